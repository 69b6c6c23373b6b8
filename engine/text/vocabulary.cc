// Tokens by text and by prefix.
#include "engine/base/error.h"
#include "engine/text/model.h"

namespace nn::text {

Vocabulary::Vocabulary(std::string texts, std::vector<int64_t> their_ends)
    : bytes(std::move(texts)), ends(std::move(their_ends)) {
    ids.reserve(ends.size());
    for (int32_t id = 0; id < size(); ++id) ids[text(id)] = id;
    for (int byte = 0; byte < 256; ++byte) byte_ids.push_back(find(format("<0x%02X>", byte)));
}

std::string_view Vocabulary::text(int32_t id) const {
    const int64_t first = id ? ends[size_t(id) - 1] : 0;
    return std::string_view(bytes).substr(size_t(first), size_t(ends[size_t(id)] - first));
}

int32_t Vocabulary::find(std::string_view token) const {
    const auto found = ids.find(token);
    return found == ids.end() ? -1 : found->second;
}

bool Vocabulary::append_bytes(std::string_view text, Ids& out) const {
    for (const char byte : text)
        if (byte_ids[uint8_t(byte)] < 0) return false;
    for (const char byte : text) out.push_back(byte_ids[uint8_t(byte)]);
    return true;
}

void Trie::add(std::string_view token, int32_t id) {
    uint64_t node = 0;
    for (const char byte : token) {
        const uint64_t key = edge(node, byte);
        if (const uint64_t* const next = edges.find(key)) {
            node = *next;
        } else {
            node = ids.size();
            ids.push_back(-1);
            edges.set(key, node);
        }
    }
    if (node) ids[node] = id;
}

}  // namespace nn::text
