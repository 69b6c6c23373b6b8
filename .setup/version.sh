#!/bin/sh
# version.sh VERSION FILE, called by every build: writes nn_version.h if it changed. "-dirty" covers
# only what is compiled: editing a script must not rebuild anything.
commit=$(git describe --always 2>/dev/null) || commit=unknown
[ "$commit" = unknown ] || git diff --quiet HEAD -- CMakeLists.txt bindings engine kernels || commit=$commit-dirty
text="#pragma once
#define NN_VERSION \"$1\"
#define NN_VERSION_GIT \"$commit\""
[ "$text" = "$(cat "$2" 2>/dev/null)" ] || printf '%s\n' "$text" >"$2"
