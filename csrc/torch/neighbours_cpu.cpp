// The operators of neighbours on the CPU: checks and the calls into csrc/cpu/neighbours.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <stdexcept>
#include <tuple>

#include "cpu/neighbours/neighbours.h"
#include "torch/checks.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore {
namespace {

cpu::Metric parse_metric(c10::string_view name) {
  if (name == "cosine") return cpu::Metric::cosine;
  if (name == "euclidean") return cpu::Metric::euclidean;
  TORCH_CHECK_VALUE(name == "inner", "metric: wanted 'cosine', 'euclidean' or 'inner', got '", name,
                    "'");
  return cpu::Metric::inner;
}

cpu::ListMeasure parse_measure(c10::string_view name) {
  if (name == "mutual") return cpu::ListMeasure::mutual;
  if (name == "jaccard") return cpu::ListMeasure::jaccard;
  TORCH_CHECK_VALUE(name == "rank", "measure: wanted 'mutual', 'jaccard' or 'rank', got '", name,
                    "'");
  return cpu::ListMeasure::rank;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> nearest_rows_cpu(at::TensorList x, int64_t k,
                                                                c10::string_view metric,
                                                                int64_t max_memory,
                                                                c10::string_view name,
                                                                bool with_values) {
  const int64_t n = rows_of(x), count = int64_t(x.size());
  check_layers(x, "X", n);
  TORCH_CHECK_VALUE(k >= 1 && k < n, "k: wanted 1 to n - 1 = ", n - 1, " neighbours, got ", k);
  TORCH_CHECK_VALUE(n < (int64_t(1) << 31), "X[0]: wanted fewer than 2^31 rows, got ", n);
  at::Tensor index = at::empty({count, n, k}, at::kInt);
  const int64_t valued = with_values ? count : 0;
  at::Tensor values = at::empty({valued, n, k}, at::kDouble);
  at::Tensor own = at::empty({valued, n}, at::kDouble);
  try {
    cpu::nearest_rows({layer_views(x), n, k, parse_metric(metric), std::string(name)}, max_memory,
                      torch_runtime(), index.mutable_data_ptr<int32_t>(),
                      with_values ? values.mutable_data_ptr<double>() : nullptr,
                      with_values ? own.mutable_data_ptr<double>() : nullptr);
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
  return {index, values, own};
}

// Checks lists [L, n, k], in which every row is below n, and -1 stands for all of a layer or none.
void check_lists(const at::Tensor& lists, const char* name) {
  TORCH_CHECK_TYPE(lists.scalar_type() == at::kInt, name, ": wanted int32, got ",
                   lists.scalar_type());
  TORCH_CHECK_VALUE(lists.dim() == 3 && lists.is_contiguous(), name,
                    ": wanted contiguous lists [L, n, k], got shape ", lists.sizes());
  const int32_t* const data = lists.const_data_ptr<int32_t>();
  const int64_t n = lists.size(1), of_layer = n * lists.size(2);
  for (int64_t i = 0; i < lists.numel(); i++)
    TORCH_CHECK_VALUE(data[i] < n && (data[i] >= 0) == (data[i / of_layer * of_layer] >= 0), name,
                      ": wanted rows below n = ", n, ", got ", data[i]);
}

// An empty y stands for x.
cpu::ListPairs list_pairs(const at::Tensor& x, const at::Tensor& y) {
  check_lists(x, "x");
  TORCH_CHECK_VALUE(x.numel() > 0, "x: wanted at least one list, got shape ", x.sizes());
  cpu::ListPairs pairs{x.size(1), x.size(2), x.size(0), 0, x.const_data_ptr<int32_t>(), nullptr};
  if (y.numel() == 0) return pairs;
  check_lists(y, "y");
  TORCH_CHECK_VALUE(y.size(1) == pairs.n && y.size(2) == pairs.k, "y: wanted lists [L, ", pairs.n,
                    ", ", pairs.k, "] as in x, got shape ", y.sizes());
  pairs.count_y = y.size(0);
  pairs.y = y.const_data_ptr<int32_t>();
  return pairs;
}

at::Tensor list_similarity_cpu(const at::Tensor& x, const at::Tensor& y, c10::string_view measure,
                               int64_t max_memory) {
  const cpu::ListPairs pairs = list_pairs(x, y);
  try {
    return to_tensor(
        cpu::list_similarity(pairs, parse_measure(measure), max_memory, torch_runtime()),
        {pairs.count_x, pairs.columns()});
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

at::Tensor second_order_similarity_cpu(at::TensorList x, at::TensorList y,
                                       const at::Tensor& index_x, const at::Tensor& index_y,
                                       int64_t max_memory) {
  const LayersProblem problem = layers_problem(x, y);
  const cpu::ListPairs pairs = list_pairs(index_x, index_y);
  TORCH_CHECK_VALUE(pairs.n == problem.n && pairs.count_x == int64_t(x.size()) &&
                        pairs.count_y == int64_t(y.size()),
                    "index: wanted the lists of all layers, got shapes ", index_x.sizes(), " and ",
                    index_y.sizes());
  std::vector<LayerView> layers = problem.x;
  layers.insert(layers.end(), problem.y.begin(), problem.y.end());
  try {
    return to_tensor(cpu::second_order_similarity(pairs, layers, max_memory, torch_runtime()),
                     {pairs.count_x, pairs.columns()});
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

cpu::NeighbourValues neighbour_values(const at::Tensor& index, const at::Tensor& values,
                                      const at::Tensor& own, const char* name) {
  if (index.numel() == 0) return {};
  check_lists(index, name);
  TORCH_CHECK_VALUE(values.scalar_type() == at::kDouble && values.is_contiguous() &&
                        values.sizes() == index.sizes(),
                    name, ": wanted contiguous float64 values like the lists, got shape ",
                    values.sizes());
  TORCH_CHECK_VALUE(own.scalar_type() == at::kDouble && own.is_contiguous() &&
                        own.sizes() == index.sizes().slice(0, 2),
                    name, ": wanted contiguous float64 squares [L, n], got shape ", own.sizes());
  return {index.size(1),
          index.size(2),
          index.size(0),
          index.const_data_ptr<int32_t>(),
          values.const_data_ptr<double>(),
          own.const_data_ptr<double>()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cknna_terms_cpu(
    const at::Tensor& index_x, const at::Tensor& values_x, const at::Tensor& own_x,
    const at::Tensor& index_y, const at::Tensor& values_y, const at::Tensor& own_y,
    c10::string_view estimator, int64_t max_memory) {
  TORCH_CHECK_VALUE(estimator == "biased" || estimator == "unbiased",
                    "estimator: wanted 'biased' or 'unbiased', got '", estimator, "'");
  const cpu::ListPairs pairs = list_pairs(index_x, index_y);
  const auto x = neighbour_values(index_x, values_x, own_x, "x");
  const auto y = neighbour_values(index_y, values_y, own_y, "y");
  const Estimator chosen = estimator == "biased" ? Estimator::biased : Estimator::unbiased;
  TORCH_CHECK_VALUE(pairs.n >= min_examples(chosen), "x: wanted at least ", min_examples(chosen),
                    " rows for the ", estimator, " estimator, got ", pairs.n);
  try {
    const cpu::CknnaTerms found = cpu::cknna_terms(x, y, chosen, max_memory, torch_runtime());
    return {to_tensor(found.xy, {pairs.count_x, pairs.columns()}),
            to_tensor(found.xx, {pairs.count_x}), to_tensor(found.yy, {pairs.columns()})};
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) {
  m.impl("nearest_rows", nearest_rows_cpu);
  m.impl("list_similarity", list_similarity_cpu);
  m.impl("second_order_similarity", second_order_similarity_cpu);
  m.impl("cknna_terms", cknna_terms_cpu);
}

}  // namespace simcore
