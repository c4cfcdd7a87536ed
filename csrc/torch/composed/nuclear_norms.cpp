// Nuclear norms of all pairs in float64 through LAPACK's singular values, pairs side by side.
//
// Plan      the centred copies are made per pair: they are as large as two layers.
// Twin      simcore/reference/cca.py:cca_grid, procrustes_grid
#include "torch/composed/nuclear_norms.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/math/nan.h"
#include "torch/composed/centred.h"
#include "torch/composed/linalg.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore::composed {
namespace {

double norm(const Tensor& m) { return std::sqrt(sum_of_squares(const_data<double>(m), m.numel())); }

double nuclear_norm(const Tensor& m) {
  const Tensor values = singular_values(m);
  return sum_of(const_data<double>(values), values.numel(), [](double s) { return s; });
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> nuclear_norms(const Tensors& x, const Tensors& y,
                                                 int64_t max_memory) {
  const bool symmetric = y.empty();
  const Tensors& columns = symmetric ? x : y;
  const int64_t count = int64_t(x.size()), across = int64_t(columns.size());
  int64_t width = 0;
  for (const Tensors* side : {&x, &columns})
    for (const Tensor& layer : *side) width = std::max(width, layer.size(1));
  cpu::Runtime runtime = torch_runtime();
  const int threads = affordable_threads(8 * (6 * x[0].size(0) * width + 4 * width * width),
                                         max_memory, runtime.threads);
  std::vector<double> xy(count * across), norm_x(count), norm_y(across);
  std::vector<cpu::Centring<double>> left, right;
  for (int64_t i = 0; i < count; i++) left.push_back(centring_of(x[i], "X", i));
  for (int64_t j = 0; j < across; j++)
    right.push_back(symmetric ? left[j] : centring_of(columns[j], "Y", j));
  for (int64_t i = 0; i < count; i++) {
    cpu::parallel_tasks(runtime, across - (symmetric ? i : 0), threads, [&](int64_t task, int) {
      const NoGrad no_grad;
      const int64_t j = task + (symmetric ? i : 0);
      const Centred a = centred(x[i], left[i]), b = centred(columns[j], right[j]);
      const double norm_a = norm(a.values), norm_b = norm(b.values);
      if (task == 0) norm_x[i] = std::ldexp(norm_a, a.exponent);
      if (i == 0) norm_y[j] = std::ldexp(norm_b, b.exponent);
      double& value = xy[i * across + j];
      value = norm_a > 0 && norm_b > 0
                  ? std::ldexp(nuclear_norm(product(transposed(a.values), b.values)),
                               a.exponent + b.exponent)
                  : kNaN;
      if (symmetric) xy[j * across + i] = value;
    });
    runtime.progress(double(i + 1) / double(count));
  }
  return {to_tensor(xy, {count, across}), to_tensor(norm_x, {count}), to_tensor(norm_y, {across})};
}

}  // namespace simcore::composed
