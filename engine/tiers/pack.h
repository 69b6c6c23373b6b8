// Addresses for blocks of memory that are used at known times: dynamic storage allocation, offline.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nn {

// Moments [begin, begin + count) of a cycle.
struct Period {
    uint32_t begin, count;
};

class Packing {
public:
    Packing(uint32_t blocks, uint32_t moments);

    // The lowest or the highest address at which the blocks are free during one of the periods: the
    // first one for which there is such an address. Each period contains the later ones.
    struct Found {
        uint32_t slot;  // or no_slot
        Period period;
    };
    Found find(const std::vector<Period>& periods, uint32_t blocks, bool lowest);
    void add(const Period& period, uint32_t slot, uint32_t blocks);

private:
    struct Block {
        Period period;
        uint32_t begin, end;
    };
    bool overlap(const Period& a, const Period& b) const;
    bool is_long(const Period& period) const { return period.count * 16 >= moments_; }
    template <class Visit> void sections_of(const Period& period, const Visit& visit) const;
    void gather(const Period& period);
    uint32_t find_in_gathered(const Period& period, uint32_t blocks, bool lowest) const;

    const uint32_t blocks_, moments_, sections_;
    std::vector<Block> all_;
    std::vector<uint32_t> long_;                // blocks that are used for a long time
    std::vector<std::vector<uint32_t>> short_;  // the others, by section of the cycle
    std::vector<uint32_t> seen_;                // by block: the last search that found it
    uint32_t searches_ = 0;
    std::vector<Block> taken_;  // during the period of the last search, by address
};

}  // namespace nn
