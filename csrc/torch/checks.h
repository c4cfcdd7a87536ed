// Checks that several families make. simcore/_grid raises these errors in words for users; here
// they keep a direct call of an operator safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "core/views/layers_problem.h"

namespace simcore {

// n: wanted rows of every layer; none: at least one row.
void check_layers(at::TensorList layers, const char* name, std::optional<int64_t> n = {});
int64_t rows_of(at::TensorList x);  // n of a side, which may not be empty

// Returns both sides of a grid. Throws ValueError or TypeError for layers that do not fit together.
LayersProblem layers_problem(at::TensorList x, at::TensorList y);

}  // namespace simcore
