// All tile rules: how an operation on tensors becomes tasks on tiles. Each rule is written once and
// used by the ops.
#pragma once
#include "engine/graph/builder.h"
#include "engine/rules/copy.h"
#include "engine/rules/matmul.h"
#include "engine/rules/pointwise.h"
#include "engine/rules/reduce.h"
#include "engine/rules/tiling.h"
#include "engine/rules/view.h"
