// Messages over TCP between rank 0 and each other rank, for control.cc.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace nn::sockets {

// How rank 0 can be reached: the IPv4 addresses of its interfaces, and the port of its listener.
struct Address {
    uint32_t hosts[16] = {};  // network byte order; 0: none
    uint16_t port = 0;
};

int listen(Address* address);  // a socket on a free port of all interfaces; throws
// Connects to the first address that answers within `seconds`; on_same_host: tries the loopback
// first. -1: none does.
int connect(const Address& address, bool on_same_host, double seconds);
int accept(int listener, double seconds);  // -1 if nobody connects

enum class Type : uint32_t { hello, beat, value, values, ask_report, report, error, end };
struct Message {
    Type type;
    std::string text;
};
constexpr size_t most_bytes = size_t(256) << 20;  // of a message; more is not one of ours
// Blocks while the peer reads, and for at most `seconds` while it does not; false if the message
// was not sent. If a part of it was, nothing can follow, and both ends of the connection are
// closed.
bool send(int socket, Type type, const std::string& text, double seconds);
std::string why_not_sent(size_t bytes, double seconds);

// Texts as one: each after its size.
std::string packed(const std::vector<std::string>& texts);
std::vector<std::string> unpacked(const std::string& text);

// The messages that arrive at a socket.
class Inbox {
public:
    // Reads what has arrived without waiting. False: the peer closed the connection, or it broke.
    bool read(int socket);
    bool next(Message* message);
    bool is_damaged() const { return damaged_; }  // next() met bytes that are no message

private:
    std::string bytes_;
    bool damaged_ = false;
};

}  // namespace nn::sockets
