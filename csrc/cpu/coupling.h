// Affine coupling layers on the CPU: the entry points that the torch adapter and the C++ tests
// call.
#pragma once

#include <cstdint>

#include "cpu/layer.h"
#include "cpu/runtime.h"

namespace simcore::cpu {

// An array [batch, rows, columns] as the caller holds it, never copied.
struct RowsView {
  const void* data;
  DType dtype;
  int64_t batch_stride, row_stride, col_stride;  // in elements; may be 0 or negative
};

struct Coupling {
  int64_t batch, rows, width;  // of the half that changes
  RowsView x;                  // [batch, rows, width]; the gradients take what was kept here
  RowsView params;             // [batch, rows, 2 * width]: s_raw, then t
  double clamp = 1;            // c of the soft clamp, in (0, kMaxClamp]
  bool inverse = false;
};

// exp(s) and its square stay within float32.
constexpr double kMaxClamp = 40;

// out [batch, rows, width] and each row's log-determinant [batch, rows], both contiguous. T is
// double as soon as one input is.
template <typename T>
void couple(const Coupling& coupling, T* out, T* log_det, const Runtime& rt);

// Gradients with respect to x and params, contiguous, from those of out [batch, rows, width] and of
// log_det [batch, rows, 1]. coupling.x is x itself forward, and what `couple` gave inverse.
template <typename T>
void couple_gradients(const Coupling& coupling, const RowsView& grad, const RowsView& grad_log_det,
                      T* grad_x, T* grad_params, const Runtime& rt);

}  // namespace simcore::cpu
