// simcore::nuclear_norms on the CPU: float32 through csrc/cpu/spectral/nuclear.cpp; float64 through
// LAPACK's singular values, pairs side by side: the former reduces in float32 and squares a band.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_svdvals.h>
#include <torch/library.h>

#include <cmath>
#include <stdexcept>
#include <tuple>

#include "cpu/base/memory.h"
#include "cpu/spectral/nuclear.h"
#include "torch/composed/centred.h"
#include "torch/options.h"

namespace simcore {
namespace {

bool any_float64(at::TensorList layers) {
  for (const at::Tensor& layer : layers)
    if (layer.scalar_type() == at::kDouble) return true;
  return false;
}

// Pairs in float64. The centred copies are made per pair: they are as large as two layers.
std::tuple<at::Tensor, at::Tensor, at::Tensor> by_singular_values(at::TensorList x,
                                                                  at::TensorList y,
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

std::tuple<at::Tensor, at::Tensor, at::Tensor> nuclear_norms_cpu(at::TensorList x, at::TensorList y,
                                                                 int64_t max_memory) {
  cpu::NuclearProblem problem;
  problem.n = rows_of(x);
  check_layers(x, "X", problem.n);
  check_layers(y, "Y", problem.n);
  if (any_float64(x) || any_float64(y)) return by_singular_values(x, y, max_memory);
  problem.x = layer_views(x);
  problem.y = layer_views(y);
  const cpu::Runtime runtime = torch_runtime();
  const int64_t left = cpu::memory_bound(max_memory) - cpu::packed_bytes(problem);
  const bool keep_packed = runtime.threads * cpu::nuclear_workspace(problem, true) <= left;
  const int threads = keep_packed ? runtime.threads
                                  : affordable_threads(cpu::nuclear_workspace(problem, false),
                                                       max_memory, runtime.threads);
  try {
    const cpu::NuclearResult result = cpu::nuclear_norms(problem, keep_packed, threads, runtime);
    const int64_t rows = int64_t(result.norm_x.size()), columns = int64_t(result.norm_y.size());
    return {to_tensor(result.xy, {rows, columns}), to_tensor(result.norm_x, {rows}),
            to_tensor(result.norm_y, {columns})};
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) { m.impl("nuclear_norms", nuclear_norms_cpu); }

}  // namespace simcore
