// The time that a step gets to end after SIGTERM. Schedulers of clusters kill a program some 30
// seconds after that signal.
#pragma once

namespace nn {

// Seconds, of NNLUA_GRACE, by default 20; 0: no limit. Throws Error if the text is no number.
double grace_limit();

}  // namespace nn
