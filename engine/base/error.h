// User-facing errors: the given value, the expected one, what to do. Inside the engine they are
// exceptions; the C API (bindings/handles.cc) converts them to a status and a message, so no
// exception leaves it.
#pragma once
#include <stdexcept>
#include <string>

namespace nn {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};
// Ctrl-C or SIGTERM arrived while the engine worked or waited.
struct Interrupted : Error {
    Interrupted() : Error("interrupted") {}
};
// The requested tensors do not fit into the memory budget.
struct OutOfMemory : Error {
    using Error::Error;
};

// printf to a std::string.
std::string format(const char* text, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void fail(const char* text, ...) __attribute__((format(printf, 1, 2)));

// "4.2 GB": bytes in decimal units.
std::string human_bytes(double bytes);

// The op being applied, for error messages and profiles. in_place: it changes an input. Main thread
// only.
struct CurrentOp {
    CurrentOp(const char* op, bool changes_input) { name = op, in_place = changes_input; }
    ~CurrentOp() { name = "task", in_place = false; }
    CurrentOp(const CurrentOp&) = delete;
    static inline const char* name = "task";  // outside of any
    static inline bool in_place = false;
};
inline const char* current_op() { return CurrentOp::name; }  // "task" outside an op
inline bool current_op_is_in_place() { return CurrentOp::in_place; }

}  // namespace nn
