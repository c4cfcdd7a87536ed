// Checks that several families make. simcore/_grid raises these errors in words for users; here
// they keep a direct call of an operator safe.
#pragma once

#include <optional>

#include "core/views/layers_problem.h"
#include "torch/tensor.h"

namespace simcore {

// n: wanted rows of every layer; none: at least one row.
void check_layers(const Tensors& layers, const char* name, std::optional<int64_t> n = {});
int64_t rows_of(const Tensors& x);  // n of a side, which may not be empty

// Returns both sides of a grid. Throws ValueError or TypeError for layers that do not fit together.
LayersProblem layers_problem(const Tensors& x, const Tensors& y);

}  // namespace simcore
