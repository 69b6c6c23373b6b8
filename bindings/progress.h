// The progress of long work on stderr, for the program `nnlua`: on a terminal in one line that
// changes, elsewhere a line every ten seconds. Work of less than a second prints nothing.
#pragma once

namespace nn {

void show_progress();

}  // namespace nn
