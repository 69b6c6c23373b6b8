#!/bin/sh
# Writes nn_version.h, and only if it changes: version.sh VERSION FILE, called by every build.
# "-dirty" speaks of what goes into the binary: editing a script must not rebuild anything.
commit=$(git describe --always 2>/dev/null) || commit=unknown
[ "$commit" = unknown ] || git diff --quiet HEAD -- CMakeLists.txt bindings engine kernels || commit=$commit-dirty
text="#pragma once
#define NN_VERSION \"$1\"
#define NN_VERSION_GIT \"$commit\""
[ "$text" = "$(cat "$2" 2>/dev/null)" ] || printf '%s\n' "$text" >"$2"
