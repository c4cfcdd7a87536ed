// The operators of neighbours on the CPU: checks and the calls into csrc/cpu/neighbours.
#include <tuple>

#include "cpu/neighbours/neighbours.h"
#include "torch/checks.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore {
namespace {

cpu::Metric parse_metric(const std::string& name) {
  if (name == "cosine") return cpu::Metric::cosine;
  if (name == "euclidean") return cpu::Metric::euclidean;
  SIMCORE_CHECK(name == "inner", "metric: wanted 'cosine', 'euclidean' or 'inner', got '", name,
                "'");
  return cpu::Metric::inner;
}

cpu::ListMeasure parse_list_measure(const std::string& name) {
  if (name == "mutual") return cpu::ListMeasure::mutual;
  if (name == "jaccard") return cpu::ListMeasure::jaccard;
  SIMCORE_CHECK(name == "rank", "measure: wanted 'mutual', 'jaccard' or 'rank', got '", name, "'");
  return cpu::ListMeasure::rank;
}

std::tuple<Tensor, Tensor, Tensor> nearest_rows_cpu(const Tensors& x, int64_t k,
                                                    const std::string& metric, int64_t max_memory,
                                                    const std::string& name, bool with_values) {
  const int64_t n = rows_of(x), count = int64_t(x.size());
  check_layers(x, "X", n);
  SIMCORE_CHECK(k >= 1 && k < n, "k: wanted 1 to n - 1 = ", n - 1, " neighbours, got ", k);
  SIMCORE_CHECK(n < (int64_t(1) << 31), "X[0]: wanted fewer than 2^31 rows, got ", n);
  Tensor index = empty({count, n, k}, ScalarType::Int);
  const int64_t valued = with_values ? count : 0;
  Tensor values = empty({valued, n, k}, ScalarType::Double);
  Tensor own = empty({valued, n}, ScalarType::Double);
  cpu::nearest_rows({layer_views(x), n, k, parse_metric(metric), name}, max_memory, torch_runtime(),
                    mutable_data<int32_t>(index),
                    with_values ? mutable_data<double>(values) : nullptr,
                    with_values ? mutable_data<double>(own) : nullptr);
  return {index, values, own};
}

// Checks lists [L, n, k], in which every row is below n, and -1 stands for all of a layer or none.
void check_lists(const Tensor& lists, const char* name) {
  SIMCORE_CHECK_TYPE(lists.scalar_type() == ScalarType::Int, name, ": wanted int32, got ",
                     lists.scalar_type());
  SIMCORE_CHECK(lists.dim() == 3 && lists.is_contiguous(), name,
                ": wanted contiguous lists [L, n, k], got shape ", lists.sizes());
  const int32_t* const data = const_data<int32_t>(lists);
  const int64_t n = lists.size(1), of_layer = n * lists.size(2), count = lists.numel();
  for (int64_t i = 0; i < count; i++)
    SIMCORE_CHECK(data[i] < n && (data[i] >= 0) == (data[i / of_layer * of_layer] >= 0), name,
                  ": wanted rows below n = ", n, ", got ", data[i]);
}

// An empty y stands for x.
cpu::ListPairs list_pairs(const Tensor& x, const Tensor& y) {
  check_lists(x, "x");
  SIMCORE_CHECK(x.numel() > 0, "x: wanted at least one list, got shape ", x.sizes());
  cpu::ListPairs pairs{x.size(1), x.size(2), x.size(0), 0, const_data<int32_t>(x), nullptr};
  if (y.numel() == 0) return pairs;
  check_lists(y, "y");
  SIMCORE_CHECK(y.size(1) == pairs.n && y.size(2) == pairs.k, "y: wanted lists [L, ", pairs.n, ", ",
                pairs.k, "] as in x, got shape ", y.sizes());
  pairs.count_y = y.size(0);
  pairs.y = const_data<int32_t>(y);
  return pairs;
}

Tensor list_similarity_cpu(const Tensor& x, const Tensor& y, const std::string& measure,
                           int64_t max_memory) {
  const cpu::ListPairs pairs = list_pairs(x, y);
  return to_tensor(
      cpu::list_similarity(pairs, parse_list_measure(measure), max_memory, torch_runtime()),
      {pairs.count_x, pairs.columns()});
}

Tensor second_order_similarity_cpu(const Tensors& x, const Tensors& y, const Tensor& index_x,
                                   const Tensor& index_y, int64_t max_memory) {
  const LayersProblem problem = layers_problem(x, y);
  const cpu::ListPairs pairs = list_pairs(index_x, index_y);
  SIMCORE_CHECK(pairs.n == problem.n && pairs.count_x == int64_t(x.size()) &&
                    pairs.count_y == int64_t(y.size()),
                "index: wanted the lists of all layers, got shapes ", index_x.sizes(), " and ",
                index_y.sizes());
  std::vector<LayerView> layers = problem.x;
  layers.insert(layers.end(), problem.y.begin(), problem.y.end());
  return to_tensor(cpu::second_order_similarity(pairs, layers, max_memory, torch_runtime()),
                   {pairs.count_x, pairs.columns()});
}

cpu::NeighbourValues neighbour_values(const Tensor& index, const Tensor& values, const Tensor& own,
                                      const char* name) {
  if (index.numel() == 0) return {};
  check_lists(index, name);
  SIMCORE_CHECK(values.scalar_type() == ScalarType::Double && values.is_contiguous() &&
                    values.sizes() == index.sizes(),
                name, ": wanted contiguous float64 values like the lists, got shape ",
                values.sizes());
  SIMCORE_CHECK(own.scalar_type() == ScalarType::Double && own.is_contiguous() &&
                    own.sizes() == index.sizes().prefix(2),
                name, ": wanted contiguous float64 squares [L, n], got shape ", own.sizes());
  return {index.size(1),
          index.size(2),
          index.size(0),
          const_data<int32_t>(index),
          const_data<double>(values),
          const_data<double>(own)};
}

std::tuple<Tensor, Tensor, Tensor> cknna_terms_cpu(const Tensor& index_x, const Tensor& values_x,
                                                   const Tensor& own_x, const Tensor& index_y,
                                                   const Tensor& values_y, const Tensor& own_y,
                                                   const std::string& estimator,
                                                   int64_t max_memory) {
  SIMCORE_CHECK(estimator == "biased" || estimator == "unbiased",
                "estimator: wanted 'biased' or 'unbiased', got '", estimator, "'");
  const cpu::ListPairs pairs = list_pairs(index_x, index_y);
  const auto x = neighbour_values(index_x, values_x, own_x, "x");
  const auto y = neighbour_values(index_y, values_y, own_y, "y");
  const Estimator chosen = estimator == "biased" ? Estimator::biased : Estimator::unbiased;
  SIMCORE_CHECK(pairs.n >= min_examples(chosen), "x: wanted at least ", min_examples(chosen),
                " rows for the ", estimator, " estimator, got ", pairs.n);
  const cpu::CknnaTerms found = cpu::cknna_terms(x, y, chosen, max_memory, torch_runtime());
  return {to_tensor(found.xy, {pairs.count_x, pairs.columns()}),
          to_tensor(found.xx, {pairs.count_x}), to_tensor(found.yy, {pairs.columns()})};
}

}  // namespace

const Library neighbours_functions("CPU", [](const Library& m) {
  m.impl("nearest_rows", boxed<nearest_rows_cpu>);
  m.impl("list_similarity", boxed<list_similarity_cpu>);
  m.impl("second_order_similarity", boxed<second_order_similarity_cpu>);
  m.impl("cknna_terms", boxed<cknna_terms_cpu>);
});

}  // namespace simcore
