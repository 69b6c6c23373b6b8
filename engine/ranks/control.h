// The control channel between ranks: TCP connections of every rank to rank 0, apart from MPI, so
// that errors arrive while MPI waits. A rank that ends, breaks off or is silent ends all ranks,
// with one message, which rank 0 prints.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace nn::control {

// Connects all ranks; transport::open() comes before. identity: what must be equal on all ranks, as
// {name, value}. Throws, naming the first difference, or a rank that does not connect.
void start(const std::vector<std::pair<std::string, std::string>>& identity);
bool started();

// Gathers a text of every rank, in their order. Every rank calls it at the same point of the
// program. wait: called again and again meanwhile; it may throw.
std::vector<std::string> gather(const std::string& what, const std::string& mine,
                                const std::function<void()>& wait);

// Ends all ranks because of an error of this one; rank 0 prints "[rank 3 on hostb] text". Any
// thread.
[[noreturn]] void fail_all(const std::string& text);
// The same after rank 0 itself has printed its error.
[[noreturn]] void end_all(int code);
void finish();  // every rank calls it at the end: afterwards it may close its connection

std::string host_name();

}  // namespace nn::control
