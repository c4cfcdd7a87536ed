// simcore::standardised_rows and simcore::rank_moments on the CPU: checks and the calls into
// csrc/cpu/rsa.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <stdexcept>
#include <tuple>

#include "cpu/rsa/rsa.h"
#include "cpu/rsa/standard_rows.h"
#include "torch/checks.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

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
  const int64_t n = rows_of(x);
  check_rows_and_widths(x, "X", n);
  check_rows_and_widths(y, "Y", n);
  const LayersProblem problem = layers_problem(x, y);
  try {
    const cpu::RankMoments found = cpu::rank_moments(problem, max_memory, torch_runtime());
    const int64_t rows = problem.rows(), columns = problem.columns(), layers = problem.layers();
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
