// Nuclear norms of all pairs in float64 through LAPACK's singular values, pairs side by side.
//
// Plan      the centred copies are made per pair: they are as large as two layers.
// Twin      simcore/reference/cca.py:cca_grid, procrustes_grid
#include "torch/composed/nuclear_norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_svdvals.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "torch/composed/centred.h"
#include "torch/torch_runtime.h"

namespace simcore::composed {

std::tuple<at::Tensor, at::Tensor, at::Tensor> nuclear_norms(at::TensorList x, at::TensorList y,
                                                             int64_t max_memory) {
  const bool symmetric = y.empty();
  const at::TensorList columns = symmetric ? x : y;
  const int64_t count = int64_t(x.size()), across = int64_t(columns.size());
  int64_t width = 0;
  for (const at::TensorList side : {x, columns})
    for (const at::Tensor& layer : side) width = std::max(width, layer.size(1));
  cpu::Runtime runtime = torch_runtime();
  const int threads = affordable_threads(8 * (6 * x[0].size(0) * width + 4 * width * width),
                                         max_memory, runtime.threads);
  at::Tensor xy = at::empty({count, across}, at::kDouble);
  at::Tensor norm_x = at::empty({count}, at::kDouble), norm_y = at::empty({across}, at::kDouble);
  auto out = xy.accessor<double, 2>();
  auto out_x = norm_x.accessor<double, 1>();
  auto out_y = norm_y.accessor<double, 1>();
  std::vector<cpu::Centring<double>> left, right;
  for (int64_t i = 0; i < count; i++) left.push_back(centring_of(x[i], "X", i));
  for (int64_t j = 0; j < across; j++)
    right.push_back(symmetric ? left[j] : centring_of(columns[j], "Y", j));
  for (int64_t i = 0; i < count; i++) {
    cpu::parallel_tasks(runtime, across - (symmetric ? i : 0), threads, [&](int64_t task, int) {
      const at::NoGradGuard no_grad;  // of this thread
      const int64_t j = task + (symmetric ? i : 0);
      const Centred a = centred(x[i], left[i]), b = centred(columns[j], right[j]);
      const double norm_a = a.values.norm().item<double>();
      const double norm_b = b.values.norm().item<double>();
      if (task == 0) out_x[i] = std::ldexp(norm_a, a.exponent);
      if (i == 0) out_y[j] = std::ldexp(norm_b, b.exponent);
      out[i][j] =
          norm_a > 0 && norm_b > 0
              ? std::ldexp(at::linalg_svdvals(a.values.t().mm(b.values)).sum().item<double>(),
                           a.exponent + b.exponent)
              : std::numeric_limits<double>::quiet_NaN();
      if (symmetric) out[j][i] = out[i][j];
    });
    runtime.progress(double(i + 1) / double(count));
  }
  return {xy, norm_x, norm_y};
}

}  // namespace simcore::composed
