// What the adapters of neuron-level grids share.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/views/neuron_problem.h"

namespace simcore {

// Throws ValueError for layers that do not fit together.
NeuronProblem neuron_problem(at::TensorList x, at::TensorList y);
int64_t total_width(at::TensorList x);

}  // namespace simcore
