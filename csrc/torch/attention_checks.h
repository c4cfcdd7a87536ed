// Checks that the adapters of attention grids share.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "core/views/attention_view.h"

namespace simcore {

// Throws ValueError for shapes that do not fit together or an unknown measure.
AttentionProblem attention_problem(at::TensorList x, at::TensorList y, at::IntArrayRef words,
                                   const std::string& measure, bool causal, int64_t max_memory);

}  // namespace simcore
