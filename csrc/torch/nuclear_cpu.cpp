// simcore::nuclear_norms on the CPU: float32 through csrc/cpu/nuclear.cpp; float64 through LAPACK's
// singular values, pairs side by side: the former reduces in float32 and squares a band.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_svdvals.h>
#include <torch/library.h>

#include <stdexcept>
#include <tuple>

#include "cpu/nuclear.h"
#include "cpu/plan.h"
#include "torch/options.h"

namespace simcore {
namespace {

bool any_float64(at::TensorList layers) {
  for (const at::Tensor& layer : layers)
    if (layer.scalar_type() == at::kDouble) return true;
  return false;
}

void check_finite(at::TensorList layers, const char* name) {
  for (size_t i = 0; i < layers.size(); i++) {
    const int64_t finite = at::isfinite(layers[i]).sum().item<int64_t>(), all = layers[i].numel();
    TORCH_CHECK_VALUE(finite == all, name, "[", i, "]: wanted finite values, got ", all - finite,
                      " NaN or infinite of ", all);
  }
}

at::Tensor centred(const at::Tensor& layer) {
  const at::Tensor x = layer.to(at::kDouble);
  const at::Tensor first = x - x.mean(0);
  return (first - first.mean(0)).masked_fill_((x == x[0]).all(0), 0.0);
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
  for (int64_t i = 0; i < count; i++) {
    cpu::parallel_tasks(runtime, across - (symmetric ? i : 0), threads, [&](int64_t task, int) {
      const at::NoGradGuard no_grad;  // of this thread
      const int64_t j = task + (symmetric ? i : 0);
      const at::Tensor a = centred(x[i]), b = centred(columns[j]);
      const double norm_a = a.norm().item<double>(), norm_b = b.norm().item<double>();
      if (task == 0) out_x[i] = norm_a;
      if (i == 0) out_y[j] = norm_b;
      out[i][j] = norm_a > 0 && norm_b > 0 ? at::linalg_svdvals(a.t().mm(b)).sum().item<double>()
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
  if (any_float64(x) || any_float64(y)) {
    check_finite(x, "X");
    check_finite(y, "Y");
    return by_singular_values(x, y, max_memory);
  }
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
