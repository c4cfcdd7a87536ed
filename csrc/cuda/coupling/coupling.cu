// Affine coupling of the half that changes, forward, inverse and backward: one pass each.
//
// Math      core/math/coupling_math.h
// Shapes    x, out [B, n, k]; params [B, n, 2k], s_raw then t; log_det [B, n].
// Plan      a warp per row, 16 bytes of the compute type a lane at a time: arrays whose rows start
//           at whole packs are read and written in one access of a pack, others entry by entry.
//           Where all arrays are of the compute type and start so (`same`), the kernel has no
//           other accesses, and registers for more rows at a time.
// Cost      3 k entries read and k written a row, backward 3 k and 3 k: bound by memory. Two
//           exponentials an entry.
// Numerics  s is good to a few eps of itself near 0 too, ds / ds_raw where tanh is near 1 too; the
//           log-determinant is summed in float64, in a fixed order. Beyond |s_raw| = 40 c, ds /
//           ds_raw keeps its value at 40 c. NaN stays NaN.
// Twin      simcore/reference/coupling.py:couple; csrc/cpu/coupling/coupling.cpp on the CPU
#include "cuda/coupling/coupling.h"

#include <cmath>
#include <initializer_list>

#include "core/math/hsic_math.h"
#include "core/math/index_math.h"
#include "cuda/base/device_math.cuh"

namespace simcore::cuda {
namespace {

#include "core/math/coupling_math.h"

constexpr int kCouplingThreads = 256;
constexpr int kRowsPerBlock = kCouplingThreads / kWarp;

template <typename T>
constexpr int kPack = int(16 / sizeof(T));

template <typename E, int count>
struct alignas(sizeof(E) * count) Pack {
  E entries[count];
};

// A view of an array; `packed` if its rows are whole packs, each of them aligned.
struct DeviceRows {
  RowsView view;
  bool packed;

  __device__ __forceinline__ int64_t row(int64_t i, int64_t rows) const {
    return i / rows * view.batch_stride + i % rows * view.row_stride;
  }
};

template <typename T, typename E>
__device__ __forceinline__ void read_packed(const void* data, int64_t at, T (&out)[kPack<T>]) {
  const auto pack = *reinterpret_cast<const Pack<E, kPack<T>>*>(static_cast<const E*>(data) + at);
#pragma unroll
  for (int e = 0; e < kPack<T>; e++) out[e] = entry_of<T>(pack.entries[e]);
}

// Columns [k, k + count) of the row that starts at `row`, count <= kPack; the others are zeros.
template <typename T>
__device__ __forceinline__ void read_any(const DeviceRows& array, int64_t row, int64_t k, int count,
                                         T (&out)[kPack<T>]) {
  const int64_t at = row + k * array.view.col_stride;
  if (array.packed) {
    switch (array.view.dtype) {
      case DType::f16: return read_packed<T, __half>(array.view.data, at, out);
      case DType::bf16: return read_packed<T, uint16_t>(array.view.data, at, out);
      case DType::f32: return read_packed<T, float>(array.view.data, at, out);
      default: return read_packed<T, double>(array.view.data, at, out);
    }
  }
#pragma unroll
  for (int e = 0; e < kPack<T>; e++)
    out[e] = e < count ? load<T>(array.view.data, array.view.dtype, at + e * array.view.col_stride)
                       : T(0);
}

template <typename T, bool same>
__device__ __forceinline__ void read(const DeviceRows& array, int64_t row, int64_t k, int count,
                                     T (&out)[kPack<T>]) {
  if constexpr (same)
    read_packed<T, T>(array.view.data, row + k, out);
  else
    read_any<T>(array, row, k, count, out);
}

template <typename T>
__device__ __forceinline__ void write_packed(T* at, const T (&values)[kPack<T>]) {
  Pack<T, kPack<T>> pack;
#pragma unroll
  for (int e = 0; e < kPack<T>; e++) pack.entries[e] = values[e];
  *reinterpret_cast<Pack<T, kPack<T>>*>(at) = pack;
}

// Writes columns [k, k + count) of a row of a contiguous array of `width` columns, k a multiple of
// kPack.
template <typename T, bool same>
__device__ __forceinline__ void write(T* row, int64_t width, int64_t k, int count,
                                      const T (&values)[kPack<T>]) {
  if (same || width % kPack<T> == 0) {
    write_packed(row + k, values);
  } else {
#pragma unroll
    for (int e = 0; e < kPack<T>; e++)
      if (e < count) row[k + e] = values[e];
  }
}

template <typename T>
__device__ __forceinline__ SoftClamp<T> clamp_entry(T s_raw, T clamp, T two_over_clamp) {
  const T largest = T(kMaxTanhArgument);
  T z = fabs(s_raw * two_over_clamp);
  z = z > largest ? largest : z;  // as written, NaN stays
  // s is odd and its slope even in s_raw, and above 0 exp is expm1 + 1 without cancellation.
  const T e_minus_1 = expm1_of(z);
  SoftClamp<T> c = soft_clamp<T, T>(e_minus_1 + T(1), e_minus_1, clamp);
  c.s = copysign(c.s, s_raw);
  return c;
}

// Blocks: rows of all matrices of the batch, one after the other.
template <typename T, bool same, bool inverse>
__global__ void __launch_bounds__(kCouplingThreads, same ? 4 : 2)
    couple_rows(DeviceRows x, DeviceRows params, int64_t total, int64_t rows, int64_t width,
                T clamp, T* out, T* log_det) {
  const int64_t i = int64_t(blockIdx.x) * kRowsPerBlock + warp_of_thread();
  if (i >= total) return;
  const int64_t row_x = x.row(i, rows), row_params = params.row(i, rows);
  const T two_over_clamp = 2 / clamp;
  double sum = 0;
  for (int64_t k = lane_of_thread() * kPack<T>; k < width; k += kWarp * kPack<T>) {
    const int count = width - k < kPack<T> ? int(width - k) : kPack<T>;
    T value[kPack<T>], s_raw[kPack<T>], t[kPack<T>];
    read<T, same>(x, row_x, k, count, value);
    read<T, same>(params, row_params, k, count, s_raw);
    read<T, same>(params, row_params, width + k, count, t);
    T part = 0;
#pragma unroll
    for (int e = 0; e < kPack<T>; e++) {
      const T s = clamp_entry(s_raw[e], clamp, two_over_clamp).s;
      part += s;
      value[e] = couple_entry<inverse>(value[e], exp_of(inverse ? -s : s), t[e]);
    }
    sum += double(part);
    write<T, same>(out + i * width, width, k, count, value);
  }
  sum = warp_sum(sum);
  if (lane_of_thread() == 0) log_det[i] = T(inverse ? -sum : sum);
}

// registers: couple_rows_backward: 80: 3 blocks of 256 threads
template <typename T, bool same, bool inverse>
__global__ void __launch_bounds__(kCouplingThreads, same ? 4 : 2)
    couple_rows_backward(DeviceRows grad, DeviceRows grad_log_det, DeviceRows kept,
                         DeviceRows params, int64_t total, int64_t rows, int64_t width, T clamp,
                         T* grad_x, T* grad_params) {
  const int64_t i = int64_t(blockIdx.x) * kRowsPerBlock + warp_of_thread();
  if (i >= total) return;
  const int64_t row_grad = grad.row(i, rows), row_kept = kept.row(i, rows);
  const int64_t row_params = params.row(i, rows);
  const T of_row =
      load<T>(grad_log_det.view.data, grad_log_det.view.dtype, grad_log_det.row(i, rows));
  const T two_over_clamp = 2 / clamp;
  for (int64_t k = lane_of_thread() * kPack<T>; k < width; k += kWarp * kPack<T>) {
    const int count = width - k < kPack<T> ? int(width - k) : kPack<T>;
    T g[kPack<T>], value[kPack<T>], s_raw[kPack<T>], t[kPack<T>];
    read<T, same>(grad, row_grad, k, count, g);
    read<T, same>(kept, row_kept, k, count, value);
    read<T, same>(params, row_params, k, count, s_raw);
#pragma unroll
    for (int e = 0; e < kPack<T>; e++) {
      const SoftClamp<T> c = clamp_entry(s_raw[e], clamp, two_over_clamp);
      const auto d = coupling_gradients<inverse>(g[e], of_row, value[e],
                                                 T(exp_of(inverse ? -c.s : c.s)), c.slope);
      g[e] = d.x, s_raw[e] = d.s_raw, t[e] = d.t;
    }
    write<T, same>(grad_x + i * width, width, k, count, g);
    write<T, same>(grad_params + i * 2 * width, width, k, count, s_raw);
    write<T, same>(grad_params + i * 2 * width + width, width, k, count, t);
  }
}

template <typename T>
constexpr DType kDType = sizeof(T) == 8 ? DType::f64 : DType::f32;

// Rows of `width` columns, and of 2 * width for params, whose second half starts at `width`.
template <typename T>
DeviceRows device_rows(const RowsView& view, int64_t width) {
  constexpr int64_t pack = kPack<T>;
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  const bool packed = view.col_stride == 1 && view.row_stride % pack == 0 &&
                      view.batch_stride % pack == 0 && width % pack == 0 &&
                      address % uintptr_t(pack * bytes_of(view.dtype)) == 0;
  return {view, packed};
}

template <typename T>
bool same_packs(std::initializer_list<DeviceRows> arrays) {
  for (const DeviceRows& array : arrays)
    if (!array.packed || array.view.dtype != kDType<T>) return false;
  return true;
}

}  // namespace

template <typename T>
void couple(const Coupling& c, T* out, T* log_det, cudaStream_t stream) {
  const int64_t total = c.batch * c.rows;
  const DeviceRows x = device_rows<T>(c.x, c.width), params = device_rows<T>(c.params, c.width);
  const bool same = same_packs<T>({x, params});
  const auto kernel = c.inverse ? same ? couple_rows<T, true, true> : couple_rows<T, false, true>
                      : same    ? couple_rows<T, true, false>
                                : couple_rows<T, false, false>;
  launch("couple_rows", kernel, {ceil_div(total, kRowsPerBlock)}, kCouplingThreads, stream, x,
         params, total, c.rows, c.width, c.clamp, out, log_det);
}

template <typename T>
void couple_gradients(const Coupling& c, const RowsView& grad, const RowsView& grad_log_det,
                      T* grad_x, T* grad_params, cudaStream_t stream) {
  const int64_t total = c.batch * c.rows;
  const DeviceRows of_y = device_rows<T>(grad, c.width), kept = device_rows<T>(c.x, c.width);
  const DeviceRows params = device_rows<T>(c.params, c.width);
  const bool same = same_packs<T>({of_y, kept, params});
  const auto kernel =
      c.inverse ? same ? couple_rows_backward<T, true, true> : couple_rows_backward<T, false, true>
      : same    ? couple_rows_backward<T, true, false>
                : couple_rows_backward<T, false, false>;
  launch("couple_rows_backward", kernel, {ceil_div(total, kRowsPerBlock)}, kCouplingThreads, stream,
         of_y, DeviceRows{grad_log_det, false}, kept, params, total, c.rows, c.width, c.clamp,
         grad_x, grad_params);
}

template void couple(const Coupling&, float*, float*, cudaStream_t);
template void couple(const Coupling&, double*, double*, cudaStream_t);
template void couple_gradients(const Coupling&, const RowsView&, const RowsView&, float*, float*,
                               cudaStream_t);
template void couple_gradients(const Coupling&, const RowsView&, const RowsView&, double*, double*,
                               cudaStream_t);

}  // namespace simcore::cuda
