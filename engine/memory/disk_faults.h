// Failures of the disk that tests inject: NNLUA_FAIL_DISK=CALL:NUMBER:KIND, a comma between
// several. CALL is open, reserve, read, write, or any (of the last three). It is the NUMBER-th such
// call that fails; with "5+" the fifth and all later ones. KIND is an errno, or
//   part     half of the bytes are transferred
//   zero     no bytes are transferred
//   corrupt  a read returns one wrong byte
//   lost     a write is reported as done, but is not carried out
#pragma once
#include <atomic>
#include <string>
#include <vector>

namespace nn {

enum class DiskCall { open, reserve, read, write };
struct DiskFault {
    enum Kind { none, error, part, zero, corrupt, lost } kind = none;
    int number = 0;  // errno
};

class DiskFaults {
public:
    DiskFaults();  // throws Error for text that it cannot read
    DiskFault next(DiskCall call) { return rules_.empty() ? DiskFault() : match(call); }

private:
    struct Rule {
        std::string call;
        int number;
        bool and_later;
        DiskFault fault;
    };
    DiskFault match(DiskCall call);
    std::vector<Rule> rules_;
    std::atomic<int> calls_[4]{}, transfers_{0};  // of each DiskCall; of all except open
};

}  // namespace nn
