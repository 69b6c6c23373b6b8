// All tile rules, which turn operations on tensors into tasks on tiles.
#pragma once
#include "engine/graph/builder.h"
#include "engine/rules/copy.h"
#include "engine/rules/matmul.h"
#include "engine/rules/pointwise.h"
#include "engine/rules/reduce.h"
#include "engine/rules/tiling.h"
#include "engine/rules/view.h"
