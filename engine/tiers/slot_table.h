// The slots that a placement uses, and which of them share memory. Tasks on one slot depend on each
// other by its handle; tasks on slots that overlap depend on each other by claims.
#pragma once
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nn {

class SlotTable {
public:
    // A number for the slot of these blocks, always the same; numbers count from 0.
    uint32_t number_of(uint32_t begin, uint32_t blocks);
    // The same for its first bytes only.
    uint32_t number_of(uint32_t begin, uint32_t blocks, int64_t bytes);
    uint32_t count() const { return uint32_t(slots_.size()); }
    // The slots that were claimed before and overlap with this one, which now takes their place:
    // its next task must wait for their earlier tasks.
    const std::vector<uint32_t>& claim(uint32_t slot);

private:
    struct Range {
        uint32_t begin, end;
    };
    struct Owner {
        uint32_t end, slot;
    };
    std::unordered_map<uint64_t, uint32_t> numbers_;                     // by 2^32 * begin + blocks
    std::map<std::pair<uint64_t, int64_t>, uint32_t> numbers_of_parts_;  // and by bytes
    std::vector<Range> slots_;
    std::map<uint32_t, Owner> owners_;  // by the first block: the last slot claimed there
    std::vector<uint32_t> overlapping_;
};

}  // namespace nn
