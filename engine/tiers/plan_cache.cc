// The plans that are kept: the last ones in memory, and all in files of a folder.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <list>
#include <optional>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/kept_file.h"
#include "engine/tiers/found_plan.h"
#include "engine/tiers/search_time.h"

namespace nn {
namespace {

namespace fs = std::filesystem;

constexpr const char* title = "plan 4";  // its number changes with the format

struct Kept {
    uint64_t key = 0;
    LinkBytes bytes;
    SearchLimits limits;
    double search_limit = 0;  // seconds; 0: none
    FoundPlan plan;
};

struct PlansKept {
    std::list<Kept> plans;  // the last one is first
    size_t from_folder = 0;
};
PlansKept& plans_kept() {
    static PlansKept instance;
    return instance;
}

bool serves(const Kept& kept, uint64_t key, const LinkBytes& bytes, int64_t disk) {
    const auto is_near = [](double a, double b) {
        constexpr double most = 1.4;
        return a == b || (a < most * b && b < most * a);
    };
    const double limit = search_limit();
    const bool enough_time =
        !kept.limits.by_time || kept.search_limit == 0 || (limit > 0 && limit <= kept.search_limit);
    constexpr double more = 1.05;  // that hardly change a plan
    const bool enough_room =
        kept.limits.disk == 0 || (disk > 0 && double(disk) <= more * double(kept.limits.disk));
    return kept.key == key && enough_time && enough_room &&
           std::ranges::equal(kept.bytes, bytes, is_near);
}

// Calls visit for each part of a plan: numbers, and vectors of numbers.
template <class Kept, class Visit> void visit_parts(Kept& kept, Visit visit) {
    visit(kept.key), visit(kept.bytes);
    visit(kept.limits.by_time), visit(kept.limits.disk), visit(kept.search_limit);
    auto& plan = kept.plan;
    visit(plan.choice.cut.head), visit(plan.choice.cut.copies), visit(plan.choice.cut.tail);
    visit(plan.choice.order.by_layer), visit(plan.choice.order.late_updates);
    visit(plan.blocks), visit(plan.least_moved);
    for (auto& placement : plan.placements) {
        visit(placement.blocks), visit(placement.loaded), visit(placement.stored);
        for (auto* numbers : {&placement.slots, &placement.first, &placement.last}) visit(*numbers);
        visit(placement.steps);
    }
}

// The bytes of a plan after each other. Their order is that of this machine.
class Writer {
public:
    template <class T> void operator()(const T& number) {
        const auto* const bytes = reinterpret_cast<const char*>(&number);
        out_.append(bytes, sizeof number);
    }
    template <class T> void operator()(const std::vector<T>& numbers) {
        (*this)(uint64_t(numbers.size()));
        for (const T number : numbers) (*this)(number);
    }
    void operator()(const std::vector<Placement::Step>& steps) {
        (*this)(uint64_t(steps.size()));
        for (const auto& step : steps) {
            (*this)(step.kind), (*this)(step.index), (*this)(step.slot), (*this)(step.due);
        }
    }
    const std::string& bytes() const { return out_; }

private:
    std::string out_;
};

class Reader {
public:
    explicit Reader(const std::string& bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}
    template <class T> void operator()(T& number) {
        if (size_t(end_ - at_) < sizeof number) fail("a kept plan ends early");
        std::copy_n(at_, sizeof number, reinterpret_cast<char*>(&number));
        at_ += sizeof number;
    }
    template <class T> void operator()(std::vector<T>& numbers) {
        resize(numbers, sizeof(T));
        for (T& number : numbers) (*this)(number);
    }
    void operator()(std::vector<Placement::Step>& steps) {
        resize(steps, 13);
        for (auto& step : steps) {
            (*this)(step.kind), (*this)(step.index), (*this)(step.slot), (*this)(step.due);
        }
    }
    bool ended() const { return at_ == end_; }

private:
    template <class T> void resize(std::vector<T>& list, size_t bytes_of_each) {
        uint64_t count = 0;
        (*this)(count);
        if (count > size_t(end_ - at_) / bytes_of_each) fail("a kept plan ends early");
        list.resize(count);
    }
    const char* at_;
    const char* const end_;
};

fs::path file_of(uint64_t key) {
    return kept_path(format("plans/%016llx", static_cast<unsigned long long>(key)));
}

std::string contents(const Kept& kept) {
    Writer writer;
    writer(uint64_t(kept.plan.placements.size()));
    visit_parts(kept, [&](const auto& part) { writer(part); });
    return writer.bytes();
}

std::optional<Kept> read_plan(uint64_t key) {
    const std::optional<std::string> bytes = read_kept(file_of(key), title);
    if (!bytes) return {};
    try {
        Reader reader(*bytes);
        uint64_t placements = 0;
        reader(placements);
        Kept out;
        if (placements > 64) return {};
        out.plan.placements.resize(placements);
        visit_parts(out, [&](auto& part) { reader(part); });
        return reader.ended() ? std::optional(std::move(out)) : std::nullopt;
    } catch (const Error&) {
        return {};
    }
}

void remove_oldest() {
    constexpr size_t most = 64;  // files, of up to a few MB
    std::error_code ignored;
    std::vector<std::pair<fs::file_time_type, fs::path>> files;
    for (const auto& entry : fs::directory_iterator(kept_path("plans"), ignored))
        files.emplace_back(entry.last_write_time(ignored), entry.path());
    if (files.size() <= most) return;
    std::sort(files.begin(), files.end());
    for (size_t i = 0; i + most < files.size(); ++i) fs::remove(files[i].second, ignored);
}

const Kept& put_first(Kept kept) {
    constexpr size_t most = 12;  // of the trials of what to recompute, and others
    auto& plans = plans_kept().plans;
    plans.remove_if([&](const Kept& other) { return other.key == kept.key; });
    plans.push_front(std::move(kept));
    if (plans.size() > most) plans.pop_back();
    return plans.front();
}

}  // namespace

const FoundPlan* kept_plan(uint64_t key, const LinkBytes& bytes, int64_t disk) {
    for (const Kept& kept : plans_kept().plans)
        if (serves(kept, key, bytes, disk)) return &kept.plan;
    if (file_of(key).empty()) return nullptr;
    std::optional<Kept> read = read_plan(key);
    if (!read || !serves(*read, key, bytes, disk)) return nullptr;
    ++plans_kept().from_folder;
    std::error_code ignored;
    fs::last_write_time(file_of(key), fs::file_time_type::clock::now(), ignored);
    return &put_first(std::move(*read)).plan;
}

void keep_plan(uint64_t key, const LinkBytes& bytes, const SearchLimits& limits, FoundPlan plan) {
    const Kept& kept = put_first({key, bytes, limits, search_limit(), std::move(plan)});
    if (file_of(key).empty()) return;
    write_kept(file_of(key), title, contents(kept));
    remove_oldest();
}

void forget_plans() { plans_kept().plans.clear(); }

size_t plans_from_folder() { return plans_kept().from_folder; }

}  // namespace nn
