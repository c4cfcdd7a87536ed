// simcore::standardised_rows and simcore::rank_moments on the CPU: checks and the calls into
// csrc/cpu/rsa.

#include <tuple>

#include "cpu/rsa/rsa.h"
#include "cpu/rsa/standard_rows.h"
#include "torch/checks.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore {
namespace {

void check_rows_and_widths(const Tensors& layers, const char* name, int64_t n) {
  check_layers(layers, name, n);
  SIMCORE_CHECK(n >= 3, name, "[0]: wanted at least 3 rows for a dissimilarity matrix, got ", n);
  for (size_t i = 0; i < layers.size(); i++)
    SIMCORE_CHECK(layers[i].size(1) >= 2, name, "[", i,
                  "]: wanted at least 2 columns to correlate rows, got 1");
}

std::tuple<Tensor, Tensor, Tensor> standardised_rows_cpu(const Tensor& x, ScalarType dtype,
                                                         const std::string& name) {
  const int64_t n = rows_of({x});
  check_rows_and_widths({x}, "X", n);
  SIMCORE_CHECK_TYPE(dtype == ScalarType::Float || dtype == ScalarType::Double,
                     "dtype: wanted float32 or float64, got ", dtype);
  Tensor rows = empty_in_huge_pages(x.sizes(), dtype);
  const cpu::Runtime runtime = torch_runtime();
  const auto run = [&](auto* out) {
    return cpu::standardise_rows(layer_view(x), n, 1, out, runtime);
  };
  const cpu::StandardRows found =
      dtype == ScalarType::Float ? run(mutable_data<float>(rows)) : run(mutable_data<double>(rows));
  SIMCORE_CHECK(found.nonfinite == 0, name, ": wanted finite values, got ", found.nonfinite,
                " NaN or infinite of ", x.numel());
  return {rows, to_tensor(found.halves, {n}), to_tensor({found.rounding}, {})};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> rank_moments_cpu(const Tensors& x,
                                                                    const Tensors& y,
                                                                    int64_t max_memory) {
  const int64_t n = rows_of(x);
  check_rows_and_widths(x, "X", n);
  check_rows_and_widths(y, "Y", n);
  const LayersProblem problem = layers_problem(x, y);
  const cpu::RankMoments found = cpu::rank_moments(problem, max_memory, torch_runtime());
  const int64_t rows = problem.rows(), columns = problem.columns(), layers = problem.layers();
  return {to_tensor(found.xy, {rows, columns}), to_tensor(found.xx, {rows}),
          to_tensor(found.yy, {columns}), to_tensor(found.spread, {layers}),
          to_tensor(found.rounding, {layers})};
}

}  // namespace

const Library rsa_functions("CPU", [](const Library& m) {
  m.impl("standardised_rows", boxed<standardised_rows_cpu>);
  m.impl("rank_moments", boxed<rank_moments_cpu>);
});

}  // namespace simcore
