// simcore::standardised_rows and simcore::rank_moments on the CPU: checks and the calls into
// csrc/cpu.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <stdexcept>
#include <tuple>

#include "cpu/rsa/rsa.h"
#include "cpu/rsa/standard_rows.h"
#include "torch/options.h"

namespace simcore {
namespace {

void check_rows_and_widths(at::TensorList layers, const char* name, int64_t n) {
  check_layers(layers, name, n);
  TORCH_CHECK_VALUE(n >= 3, name, "[0]: wanted at least 3 rows for a dissimilarity matrix, got ",
                    n);
  for (size_t i = 0; i < layers.size(); i++)
    TORCH_CHECK_VALUE(layers[i].size(1) >= 2, name, "[", i,
                      "]: wanted at least 2 columns to correlate rows, got 1");
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> standardised_rows_cpu(const at::Tensor& x,
                                                                     at::ScalarType dtype,
                                                                     c10::string_view name) {
  const int64_t n = rows_of(x);
  check_rows_and_widths(x, "X", n);
  TORCH_CHECK_TYPE(dtype == at::kFloat || dtype == at::kDouble,
                   "dtype: wanted float32 or float64, got ", dtype);
  at::Tensor rows = empty_in_huge_pages(x.sizes(), dtype);
  const cpu::Runtime runtime = torch_runtime();
  const auto run = [&](auto* out) {
    return cpu::standardise_rows(layer_view(x), n, 1, out, runtime);
  };
  const cpu::StandardRows found = dtype == at::kFloat ? run(rows.mutable_data_ptr<float>())
                                                      : run(rows.mutable_data_ptr<double>());
  TORCH_CHECK_VALUE(found.nonfinite == 0, name, ": wanted finite values, got ", found.nonfinite,
                    " NaN or infinite of ", x.numel());
  return {rows, to_tensor(found.halves, {n}), to_tensor({found.rounding}, {})};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> rank_moments_cpu(
    at::TensorList x, at::TensorList y, int64_t max_memory) {
  cpu::RankProblem problem;
  problem.n = rows_of(x);
  check_rows_and_widths(x, "X", problem.n);
  check_rows_and_widths(y, "Y", problem.n);
  problem.x = layer_views(x);
  problem.y = layer_views(y);
  problem.max_memory = max_memory;
  try {
    const cpu::RankMoments found = cpu::rank_moments(problem, torch_runtime());
    const int64_t rows = int64_t(found.xx.size()), columns = int64_t(found.yy.size());
    const int64_t layers = int64_t(found.spread.size());
    return {to_tensor(found.xy, {rows, columns}), to_tensor(found.xx, {rows}),
            to_tensor(found.yy, {columns}), to_tensor(found.spread, {layers}),
            to_tensor(found.rounding, {layers})};
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) {
  m.impl("standardised_rows", standardised_rows_cpu);
  m.impl("rank_moments", rank_moments_cpu);
}

}  // namespace simcore
