#include "engine/memory/disk_faults.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "engine/base/error.h"

namespace nn {
namespace {

const char* const calls[] = {"open", "reserve", "read", "write"};
const char* const kinds[] = {"", "", "part", "zero", "corrupt", "lost"};

bool is_call(const std::string& name) {
    for (const char* call : calls)
        if (name == call) return true;
    return name == "any";
}

DiskFault fault_of(const std::string& text) {
    for (int kind = DiskFault::part; kind <= DiskFault::lost; ++kind)
        if (text == kinds[kind]) return {DiskFault::Kind(kind), 0};
    const int number = std::atoi(text.c_str());
    return {number > 0 ? DiskFault::error : DiskFault::none, number};
}

}  // namespace

DiskFaults::DiskFaults() {
    const char* const text = std::getenv("NNLUA_FAIL_DISK");
    std::istringstream words(text ? text : "");
    for (std::string word; std::getline(words, word, ',');) {
        char call[8], kind[8], plus[2] = "";
        int number = 0;
        if (std::sscanf(word.c_str(), "%7[a-z]:%d:%7s", call, &number, kind) != 3 &&
            std::sscanf(word.c_str(), "%7[a-z]:%d%1[+]:%7s", call, &number, plus, kind) != 4)
            number = 0;
        const DiskFault fault = number > 0 ? fault_of(kind) : DiskFault();
        if (fault.kind == DiskFault::none || !is_call(call))
            fail("NNLUA_FAIL_DISK is '%s'; CALL:NUMBER:KIND is needed, such as write:3:28", text);
        rules_.push_back({call, number, *plus != 0, fault});
    }
}

DiskFault DiskFaults::match(DiskCall call) {
    const int of_call = ++calls_[int(call)];
    const int of_any = call == DiskCall::open ? 0 : ++transfers_;
    for (const Rule& rule : rules_) {
        const int number = rule.call == "any"              ? of_any
                           : rule.call == calls[int(call)] ? of_call
                                                           : 0;
        if (number == rule.number || (rule.and_later && number > rule.number)) return rule.fault;
    }
    return {};
}

}  // namespace nn
