#include "engine/graph/context.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/graph/scalars.h"
#include "engine/machine/description.h"

namespace nn {
namespace {

int32_t layer = 0;  // the current one

// The keys of a map never move, so pointers to names stay valid.
struct Layers {
    std::vector<const char*> names{""};
    std::unordered_map<std::string, int32_t> ids{{"", 0}};
};
Layers& layers() {
    static auto* const instance = new Layers;
    return *instance;
}

struct Scalar {
    double value;
    bool owned = true;  // until free_scalar()
    int32_t held = 0;   // number of programs and computed scalars that hold it
    char op = 0;        // of a computed one
    std::array<ScalarOperand, 2> operands{};
    int operations = 0;  // of the computation, without sharing of common parts
};
constexpr int most_operations = 1000;
std::vector<Scalar> scalars;
std::vector<int32_t> free_scalars;
uint64_t seed = 0, counter = 0;  // of random numbers

Scalar& scalar_at(int32_t scalar) {
    if (scalar >= 0 && size_t(scalar) < scalars.size()) {
        Scalar& found = scalars[size_t(scalar)];
        if (found.owned || found.held) return found;
    }
    fail("unknown or freed scalar %d", scalar);
}

void reuse_if_unused(int32_t scalar) {
    const Scalar& s = scalars[size_t(scalar)];
    if (s.owned || s.held) return;
    free_scalars.push_back(scalar);
    for (const ScalarOperand& o : s.operands)
        if (o.scalar >= 0) release_scalar(o.scalar);
}

int32_t keep_scalar(const Scalar& scalar) {
    if (free_scalars.empty()) {
        scalars.push_back(scalar);
        return int32_t(scalars.size()) - 1;
    }
    const int32_t number = free_scalars.back();
    free_scalars.pop_back();
    scalars[size_t(number)] = scalar;
    return number;
}

double value_of(const ScalarOperand& o) { return o.scalar < 0 ? o.number : scalar_value(o.scalar); }

}  // namespace

int gpus_in_use() { return settings().where == Where::cpu ? 0 : machine().count(Device::cuda); }
int workers_in_use() { return gpus_in_use() > 0 ? gpus_in_use() : machine().count(Device::cpu); }

int32_t layer_id(const std::string& name) {
    const auto [it, is_new] = layers().ids.try_emplace(name, int32_t(layers().names.size()));
    if (is_new) layers().names.push_back(it->first.c_str());
    return it->second;
}

const char* current_layer() { return layers().names[size_t(layer)]; }

int32_t set_layer(int32_t id) {
    if (id < 0 || size_t(id) >= layers().names.size())
        fail("layer %d is outside [0, %zu)", id, layers().names.size());
    return std::exchange(layer, id);
}

int32_t new_scalar(double value) { return keep_scalar(Scalar{value}); }

int32_t computed_scalar(char op, ScalarOperand a, ScalarOperand b) {
    Scalar s{.value = 0, .op = op, .operands = {a, b}};
    if (!op || !std::strchr("+-*/^", op))
        fail("a scalar cannot be computed by the operator %d", op);
    s.operations = 1;
    for (const ScalarOperand& o : s.operands)
        if (o.scalar >= 0) s.operations += scalar_at(o.scalar).operations;
    if (s.operations > most_operations)
        fail("a scalar is computed from others by more than %d operations; set() one to its value",
             most_operations);
    for (const ScalarOperand& o : s.operands)
        if (o.scalar >= 0) hold_scalar(o.scalar);
    return keep_scalar(s);
}

bool depends_on(int32_t scalar, int32_t other) {
    return scalar == other || std::ranges::any_of(scalar_at(scalar).operands, [&](const auto& o) {
               return o.scalar >= 0 && depends_on(o.scalar, other);
           });
}

bool same_computation(int32_t scalar, int32_t other) {
    if (scalar == other) return true;
    const Scalar &s = scalar_at(scalar), &o = scalar_at(other);
    const auto same = [](const ScalarOperand& a, const ScalarOperand& b) {
        if (a.scalar < 0 || b.scalar < 0) return a.scalar == b.scalar && a.number == b.number;
        return same_computation(a.scalar, b.scalar);
    };
    return s.op && s.op == o.op && std::ranges::equal(s.operands, o.operands, same);
}

void free_scalar(int32_t scalar) {
    if (!scalar_at(scalar).owned) fail("scalar %d was freed before", scalar);
    scalar_at(scalar).owned = false;
    reuse_if_unused(scalar);
}
void hold_scalar(int32_t scalar) { ++scalar_at(scalar).held; }
void release_scalar(int32_t scalar) {
    --scalar_at(scalar).held;
    reuse_if_unused(scalar);
}
double scalar_value(int32_t scalar) {
    const Scalar& s = scalar_at(scalar);
    if (!s.op) return s.value;
    const double a = value_of(s.operands[0]), b = value_of(s.operands[1]);
    switch (s.op) {
        case '+': return a + b;
        case '-': return a - b;
        case '*': return a * b;
        case '/': return a / b;
        default: return std::pow(a, b);
    }
}
void set_scalar(int32_t scalar, double value) {
    if (scalar_at(scalar).op)
        fail("a scalar that is computed from others cannot change; change those");
    scalar_at(scalar).value = value;
}

void seed_random(uint64_t new_seed) {
    seed = new_seed;
    counter = 0;
}
uint64_t random_seed() { return seed; }
uint64_t random_counter() { return counter; }
void set_random_counter(uint64_t value) { counter = value; }

}  // namespace nn
