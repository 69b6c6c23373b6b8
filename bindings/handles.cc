// The handle table behind the C API. The generation of an entry shows that a handle is stale.
#include "bindings/handles.h"

#include <new>
#include <utility>

namespace nn::capi {

namespace {

struct Entry {
    int32_t generation = 1;
    Object object;
};

struct Handles {
    std::vector<Entry> entries{Entry{}};  // index 0 stays empty: it means "absent"
    std::vector<int32_t> free;
    std::vector<std::vector<nn_ref>> scopes;
    int64_t tensors = 0;
};

// Never destroyed: finalizers may come after everything else.
Handles& handles() {
    static Handles* const instance = new Handles;
    return *instance;
}

thread_local std::string message;  // of the last error

Entry* find_entry(nn_ref ref) {
    Handles& h = handles();
    if (ref.index <= 0 || size_t(ref.index) >= h.entries.size()) return nullptr;
    Entry& entry = h.entries[size_t(ref.index)];
    if (entry.generation != ref.generation || std::holds_alternative<std::monostate>(entry.object))
        return nullptr;
    return &entry;
}

}  // namespace

const std::string& last_error() { return message; }

int caught() noexcept {
    try {
        throw;
    } catch (const Interrupted& e) {
        message = e.what();
        return NN_INTERRUPTED;
    } catch (const OutOfMemory& e) {
        message = e.what();
        return NN_OUT_OF_MEMORY;
    } catch (const std::bad_alloc&) {
        message = "out of memory";
        return NN_OUT_OF_MEMORY;
    } catch (const std::exception& e) {
        message = e.what();
        return NN_ERROR;
    } catch (...) {
        message = "an unknown error";
        return NN_ERROR;
    }
}

nn_ref new_ref(Object object) {
    Handles& h = handles();
    if (h.free.empty()) {
        h.free.push_back(int32_t(h.entries.size()));
        h.entries.emplace_back();
    }
    const int32_t index = h.free.back();
    h.free.pop_back();
    Entry& entry = h.entries[size_t(index)];
    entry.object = std::move(object);
    const nn_ref ref{index, entry.generation};
    if (std::holds_alternative<Tensor>(entry.object)) {
        ++h.tensors;
        if (!h.scopes.empty()) h.scopes.back().push_back(ref);
    }
    return ref;
}

Tensor& tensor_of(const nn_ref& ref, const char* what) {
    Entry* entry = find_entry(ref);
    Tensor* tensor = entry ? std::get_if<Tensor>(&entry->object) : nullptr;
    if (!tensor)
        fail("%s: this handle is not a live tensor (it was freed, or its scope has ended)", what);
    return *tensor;
}

// The object of a handle with shared ownership.
template <class T> static T& shared_of(const nn_ref* ref, const char* what) {
    Entry* entry = find_entry(given(ref, what));
    auto* value = entry ? std::get_if<std::shared_ptr<T>>(&entry->object) : nullptr;
    if (!value) fail("this handle is not a live %s", what);
    return **value;
}
Replay& program_of(const nn_ref* ref) { return shared_of<Replay>(ref, "program"); }
TensorFile& file_of(const nn_ref* ref) { return shared_of<TensorFile>(ref, "file"); }
text::Tokenizer& tokenizer_of(const nn_ref* ref) {
    return shared_of<text::Tokenizer>(ref, "tokenizer");
}
Images& images_of(const nn_ref* ref) { return shared_of<Images>(ref, "queue of images"); }

std::vector<Tensor> tensors_of(const nn_ref* refs, int32_t count, const char* what) {
    if (count < 0 || (count > 0 && !refs)) fail("%s: bad list of tensors", what);
    std::vector<Tensor> out;
    for (int32_t i = 0; i < count; ++i)
        out.push_back(refs[i].index == 0 ? Tensor() : tensor_of(refs[i], what));
    return out;
}

void put_results(const std::vector<Tensor>& results, nn_ref* outputs, int32_t room) {
    if (int32_t(results.size()) > room) fail("%zu results, room for %d", results.size(), room);
    for (size_t i = 0; i < results.size(); ++i)
        outputs[i] = results[i] ? new_ref(results[i]) : nn_ref{0, 0};
}

void release(nn_ref ref) {
    Entry* entry = find_entry(ref);
    if (!entry) return;
    if (std::holds_alternative<Tensor>(entry->object)) --handles().tensors;
    const auto value = std::move(entry->object);  // destroyed last: the table is consistent by then
    entry->object = std::monostate{};
    ++entry->generation;
    handles().free.push_back(ref.index);
}

void release_all() {
    const Handles& h = handles();
    for (size_t index = 1; index < h.entries.size(); ++index)
        release({int32_t(index), h.entries[index].generation});
}

int64_t tensors_alive() { return handles().tensors; }

void begin_scope() { handles().scopes.emplace_back(); }

void end_scope(const nn_ref* keep, int32_t n_keep) {
    Handles& h = handles();
    if (h.scopes.empty()) fail("scope: none is open");
    if (n_keep < 0 || (n_keep > 0 && !keep)) fail("scope: bad list of tensors to keep");
    const std::vector<nn_ref> made = std::move(h.scopes.back());
    h.scopes.pop_back();
    for (const nn_ref& ref : made) {
        bool kept = false;
        for (int32_t i = 0; i < n_keep; ++i)
            kept |= keep[i].index == ref.index && keep[i].generation == ref.generation;
        if (!kept)
            release(ref);
        else if (!h.scopes.empty() && find_entry(ref))
            h.scopes.back().push_back(ref);
    }
}

const Op& op_at(int32_t index) {
    static const std::vector<const Op*> list = [] {
        std::vector<const Op*> out;
        for (const auto& [name, op] : all_ops()) out.push_back(&op);
        return out;
    }();
    return *element(list, index, "op");
}

}  // namespace nn::capi
