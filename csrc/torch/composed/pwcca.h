#pragma once

#include <ATen/core/Tensor.h>

namespace simcore::composed {

// Computes simcore::pwcca of checked bases and components.
at::Tensor pwcca(at::TensorList u_x, at::TensorList weighted_x, at::TensorList u_y,
                 int64_t max_memory);

}  // namespace simcore::composed
