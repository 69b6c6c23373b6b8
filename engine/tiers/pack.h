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

    // Blocks of memory that are used during a period, the core, and not needed by others in the
    // margins before and after it.
    struct Use {
        Period core;
        uint32_t before, after;            // moments of the margins
        uint32_t most_before, most_after;  // of these at first
        uint32_t begin, end;
        uint32_t number;  // counts from 0
    };
    // Collects all that are used during a part of the period, for find().
    void search_in(const Period& period);
    // The lowest or the highest address at which blocks are free during a period, if others keep no
    // more than a share of their margins; or no_slot. The period is in that of search_in().
    uint32_t find(const Period& period, uint32_t blocks, bool lowest, double share) const;
    // All that are used during a part of the period, by address.
    std::vector<Use> used_in(const Period& period);

    uint32_t add(const Use& use);  // returns its number
    const Use& use(uint32_t number) const { return all_[number]; }
    // At most as long as before.
    void set_margins(uint32_t number, uint32_t before, uint32_t after);
    void remove(uint32_t number) { all_[number].core.count = 0; }
    Period period_of(const Use& use, double share = 1) const;

private:
    // Sections of the cycle. Each use is listed in the one to three sections that it touches at the
    // level whose sections are as long as its period.
    struct Level {
        uint32_t moments, first, count;  // of a section; of the sections in `heads_`
        uint32_t listed;
    };
    struct Link {
        uint32_t number, next;
    };
    bool overlap(const Period& a, const Period& b) const;
    template <class Visit>
    void sections_of(const Level& level, const Period& period, const Visit& visit) const;

    const uint32_t blocks_, moments_;
    std::vector<Use> all_;  // by number
    std::vector<Level> levels_;
    std::vector<uint32_t> heads_;  // by section: its last link
    std::vector<Link> links_;
    std::vector<uint32_t> seen_;  // by number: the last search that found it
    uint32_t searches_ = 0;
    std::vector<uint64_t> found_;  // by the last search: 2^32 * begin + number, sorted
};

}  // namespace nn
