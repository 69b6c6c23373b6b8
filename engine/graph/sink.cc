#include "engine/graph/sink.h"

#include <utility>

namespace nn {

static Sink* in_use = nullptr;

Sink& sink() { return *in_use; }
Sink* use_sink(Sink* sink) { return std::exchange(in_use, sink); }

}  // namespace nn
