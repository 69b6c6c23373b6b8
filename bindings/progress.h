// The progress of long work on stderr, for the program `nnlua`: on a terminal in one line that
// changes, after a second; elsewhere in a line every ten seconds.
#pragma once

namespace nn {

void show_progress();

}  // namespace nn
