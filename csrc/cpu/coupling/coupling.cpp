// Affine coupling of the half that changes, forward, inverse and backward: one pass each.
//
// Math      core/math/coupling_math.h
// Shapes    x, out [B, n, k]; params [B, n, 2k], s_raw then t, as a linear layer leaves them;
//           log_det [B, n]. The half that passes unchanged is neither read nor written.
// Plan      blocks of whole rows go to the threads one by one; a row is done kColumns at a time, so
//           that columns of another type or stride are converted into buffers that stay in L1.
// Cost      forward and inverse read 3 k and write k entries a row, backward reads 3 k and writes
//           3 k; bound by memory outside the caches, by some 40 vector operations a register
//           within.
// Numerics  coupling_impl.h; a row's log-determinant is summed in T over kColumns entries, in
//           `width` parts, and in float64 over these. Each row is the work of one thread: results
//           depend neither on the threads nor on the strides.
// Twin      simcore/reference/coupling.py:couple
#include "cpu/coupling/coupling.h"

#include <algorithm>

#include "cpu/isa/isa.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kColumns = 256;
constexpr int64_t kMostAhead = 1024;
constexpr int64_t kTaskEntries = 1 << 14;  // entries that a thread takes at a time

// Prefetch distances: the next row where rows are short, else a later part of the same row.
CouplingAhead ahead_of(int64_t width) {
  return {std::min(width, kMostAhead), width <= kMostAhead ? 2 * width : kMostAhead};
}

// Reads columns of one row of an array: in place where their type and stride allow it, else
// converted.
template <typename T>
class RowReader {
 public:
  RowReader(const RowsView& view, int64_t batch, int64_t row)
      : isa_(isa_table<T>()),
        view_(view),
        offset_(batch * view.batch_stride + row * view.row_stride) {}

  // Columns [col, col + count), count <= kColumns; valid until the next call with `buffer`.
  const T* columns(int64_t col, int64_t count, T* buffer) const {
    constexpr DType own = sizeof(T) == 8 ? DType::f64 : DType::f32;
    const int64_t first = offset_ + col * view_.col_stride;
    if (view_.dtype == own && view_.col_stride == 1)
      return static_cast<const T*>(view_.data) + first;
    isa_.load(static_cast<const char*>(view_.data) + first * bytes_of(view_.dtype), view_.dtype,
              view_.col_stride, count, buffer);
    return buffer;
  }

 private:
  const IsaTable<T>& isa_;
  const RowsView& view_;
  int64_t offset_;
};

// Calls body(batch, row) for every row; a task takes a block of whole rows.
template <typename Body>
void for_rows(const Coupling& coupling, const Runtime& rt, const Body& body) {
  const int64_t total = coupling.batch * coupling.rows;
  const int64_t block = std::max<int64_t>(1, kTaskEntries / std::max<int64_t>(1, coupling.width));
  const int64_t tasks = (total + block - 1) / block;
  const auto run = [&](int64_t task, int) {
    for (int64_t i = task * block; i < std::min(total, (task + 1) * block); i++)
      body(i / coupling.rows, i % coupling.rows);
  };
  if (tasks == 1) return run(0, 0);  // not worth waking a thread
  parallel_tasks(rt, tasks, run);
}

}  // namespace

template <typename T>
void couple(const Coupling& coupling, T* out, T* log_det, const Runtime& rt) {
  const auto kernel = isa_table<T>().couple[coupling.inverse];
  const int64_t width = coupling.width;
  const CouplingAhead ahead = ahead_of(width);
  for_rows(coupling, rt, [&](int64_t b, int64_t i) {
    const RowReader<T> x(coupling.x, b, i), params(coupling.params, b, i);
    const int64_t row = b * coupling.rows + i;
    T buffers[3][kColumns];
    double sum = 0;
    for (int64_t k = 0; k < width; k += kColumns) {
      const int64_t count = std::min(kColumns, width - k);
      kernel(x.columns(k, count, buffers[0]), params.columns(k, count, buffers[1]),
             params.columns(width + k, count, buffers[2]), count, T(coupling.clamp), ahead,
             out + row * width + k, &sum);
    }
    log_det[row] = T(sum);
  });
}

template <typename T>
void couple_gradients(const Coupling& coupling, const RowsView& grad, const RowsView& grad_log_det,
                      T* grad_x, T* grad_params, const Runtime& rt) {
  const auto kernel = isa_table<T>().couple_gradients[coupling.inverse];
  const int64_t width = coupling.width;
  const CouplingAhead ahead = ahead_of(width);
  for_rows(coupling, rt, [&](int64_t b, int64_t i) {
    const RowReader<T> kept(coupling.x, b, i), params(coupling.params, b, i);
    const RowReader<T> grads(grad, b, i), grads_log_det(grad_log_det, b, i);
    const int64_t row = b * coupling.rows + i;
    T buffers[4][kColumns];
    const T of_row = *grads_log_det.columns(0, 1, buffers[0]);
    for (int64_t k = 0; k < width; k += kColumns) {
      const int64_t count = std::min(kColumns, width - k);
      T* out = grad_params + row * 2 * width + k;
      kernel(grads.columns(k, count, buffers[1]), of_row, kept.columns(k, count, buffers[2]),
             params.columns(k, count, buffers[3]), count, T(coupling.clamp), ahead,
             grad_x + row * width + k, out, out + width);
    }
  });
}

template void couple(const Coupling&, float*, float*, const Runtime&);
template void couple(const Coupling&, double*, double*, const Runtime&);
template void couple_gradients(const Coupling&, const RowsView&, const RowsView&, float*, float*,
                               const Runtime&);
template void couple_gradients(const Coupling&, const RowsView&, const RowsView&, double*, double*,
                               const Runtime&);

}  // namespace simcore::cpu
