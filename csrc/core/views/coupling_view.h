// One affine coupling of a whole batch, as the caller holds its arrays.
#pragma once

#include <cstdint>

#include "core/views/layer_view.h"

namespace simcore {

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

}  // namespace simcore
