// Checks that the adapters of attention grids share.
#pragma once

#include <string>

#include "core/views/attention_view.h"
#include "torch/tensor.h"

namespace simcore {

// Throws ValueError for shapes that do not fit together or an unknown measure.
AttentionProblem attention_problem(const Tensors& x, const Tensors& y, Shape words,
                                   const std::string& measure, bool causal, int64_t max_memory);

}  // namespace simcore
