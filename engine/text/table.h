// A hash table from 64-bit keys to 64-bit values, for merges and tries: half full at most, linear
// probing. Keys are not 0.
#pragma once
#include <cstdint>
#include <vector>

namespace nn::text {

class Table {
public:
    explicit Table(size_t expected = 0) { resize(expected); }

    // The value of a key; nullptr if there is none. Valid until the next set().
    const uint64_t* find(uint64_t key) const {
        for (size_t i = mix(key) & mask;; i = (i + 1) & mask) {
            if (entries[i].key == key) return &entries[i].value;
            if (entries[i].key == 0) return nullptr;
        }
    }
    void set(uint64_t key, uint64_t value) {
        if (2 * (count + 1) > entries.size()) grow();
        Entry& entry = place(key);
        count += entry.key == 0;
        entry = {key, value};
    }

private:
    struct Entry {
        uint64_t key = 0, value = 0;
    };
    static uint64_t mix(uint64_t key) {
        key *= 0x9E3779B97F4A7C15u;
        return key ^ key >> 32;
    }
    Entry& place(uint64_t key) {
        size_t i = mix(key) & mask;
        while (entries[i].key != 0 && entries[i].key != key) i = (i + 1) & mask;
        return entries[i];
    }
    void resize(size_t expected) {
        size_t size = 16;
        while (size < 2 * expected + 2) size *= 2;
        entries.assign(size, Entry{});
        mask = size - 1;
    }
    void grow() {
        std::vector<Entry> before;
        before.swap(entries);
        resize(before.size());
        for (const Entry& entry : before)
            if (entry.key) place(entry.key) = entry;
    }

    std::vector<Entry> entries;
    size_t mask = 0, count = 0;
};

}  // namespace nn::text
