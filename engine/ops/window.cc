#include "engine/ops/window.h"

#include <algorithm>

namespace nn {
namespace {

constexpr int64_t most = int64_t(1) << 30;  // of each number, against overflow

bool all_between(const Dims& numbers, int64_t least) {
    return std::ranges::all_of(numbers, [=](int64_t n) { return n >= least && n <= most; });
}

nn_window_axis axis_of(const Call& c, int64_t in, const Sliding& window, size_t axis,
                       const Dims& pad) {
    const int64_t taps = window.size[axis], dilation = window.dilation[axis];
    c.need(taps <= most, "a window of {} elements is too large", taps);
    const int64_t reach = (taps - 1) * dilation;
    const int64_t before = window.same ? reach / 2 : pad[2 * axis],
                  after = window.same ? reach - before : pad[2 * axis + 1],
                  padded = in + before + after;
    c.need(reach < padded, "the window spans {} elements, x with its padding has {}", reach + 1,
           padded);
    return {in,       (padded - reach - 1) / window.stride[axis] + 1,
            taps,     window.stride[axis],
            dilation, before};
}

}  // namespace

Dims paddings(const Call& c) {
    const Dims given = c.ints("padding");
    const size_t n = given.size();
    c.need((n == 1 || n == 2 || n == 4) && all_between(given, 0),
           "padding is {}; a whole number of at least 0, two, or four (top, bottom, left, right), "
           "is needed",
           given);
    return n == 4 ? given : Dims{given[0], given[0], given.back(), given.back()};
}

Dims pair(const Call& c, const char* attribute) {
    const Dims given = c.ints(attribute);
    c.need((given.size() == 1 || given.size() == 2) && all_between(given, 1),
           "{} is {}; a whole number of at least 1, or two of them, is needed", attribute, given);
    return {given[0], given.back()};
}

void set_window(const Call& c, const Tensor& x, const Sliding& window, nn_window_axis& rows,
                nn_window_axis& columns) {
    const Dims pad = paddings(c);
    rows = axis_of(c, x.dim(-2), window, 0, pad);
    columns = axis_of(c, x.dim(-1), window, 1, pad);
}

}  // namespace nn
