// Matrices of the host, and the routines of LAPACK and BLAS, through torch's dispatcher.
#pragma once

#include <tuple>

#include "torch/tensor.h"

namespace simcore::composed {

// On this thread no operation is recorded for a derivative.
class NoGrad {
 public:
  NoGrad() { aoti_torch_grad_mode_set_enabled(false); }
  ~NoGrad() { aoti_torch_grad_mode_set_enabled(before_); }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_ = aoti_torch_grad_mode_is_enabled();
};

inline Tensor transposed(const Tensor& m) {
  return call("aten::transpose", "int", m, int64_t(0), int64_t(1));
}
inline Tensor product(const Tensor& a, const Tensor& b) { return call("aten::mm", "", a, b); }

// Returns rows [begin, end) of a matrix, a view.
inline Tensor rows_between(const Tensor& m, int64_t begin, int64_t end) {
  return narrow(m, 0, begin, end - begin);
}

// Returns a contiguous tensor of the dtype: the matrix itself where it is one.
inline Tensor as(const Tensor& m, ScalarType dtype) { return contiguous(to(m, dtype)); }

// Eigenvalues of a symmetric matrix, ascending, and their vectors as rows; below the diagonal alone
// it is read.
inline std::tuple<Tensor, Tensor> eigenvectors(const Tensor& m) {
  auto [values, vectors] =
      call<std::tuple<Tensor, Tensor>>("aten::linalg_eigh", "", m, std::string("L"));
  return {values, contiguous(transposed(vectors))};
}

// The thin singular value decomposition: u [n, r], s [r], vt [r, p].
inline std::tuple<Tensor, Tensor, Tensor> thin_svd(const Tensor& m) {
  return call<std::tuple<Tensor, Tensor, Tensor>>("aten::linalg_svd", "", m, false, std::nullopt);
}

inline Tensor singular_values(const Tensor& m) {
  return call("aten::linalg_svdvals", "", m, std::nullopt);
}

// Sums what `part` makes of count numbers, in lanes: a compiler may not reorder a single sum.
template <typename T, typename Part>
double sum_of(const T* numbers, int64_t count, Part part) {
  constexpr int64_t kLanes = 8;
  double lanes[kLanes] = {}, sum = 0;
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t j = 0; j < kLanes; j++) lanes[j] += part(double(numbers[i + j]));
  for (int64_t i = whole; i < count; i++) sum += part(double(numbers[i]));
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <typename T>
double sum_of_squares(const T* numbers, int64_t count) {
  return sum_of(numbers, count, [](double x) { return x * x; });
}

// Multiplies row i of a contiguous matrix by factors[i].
template <typename T, typename Factors>
void scale_rows(const Tensor& m, const Factors& factors) {
  T* entry = mutable_data<T>(m);
  const int64_t rows = m.size(0), columns = m.size(1);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) *entry++ *= T(factors[i]);
}

}  // namespace simcore::composed
