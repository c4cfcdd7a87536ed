// The operators of single neurons on the CPU: checks and the calls into csrc/cpu/neurons.
#include <tuple>
#include <vector>

#include "core/math/index_math.h"
#include "cpu/isa/isa.h"
#include "cpu/neurons/assignment.h"
#include "cpu/neurons/matching.h"
#include "cpu/neurons/neurons.h"
#include "torch/checks.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore {
namespace {

std::tuple<Tensor, Tensor, Tensor> best_partners_cpu(const Tensors& x, const Tensors& y, bool keep,
                                                     int64_t max_memory) {
  const LayersProblem problem = layers_problem(x, y);
  const cpu::Runtime runtime = torch_runtime();
  const int64_t rows = problem.rows(), columns = problem.columns();
  const int64_t neurons = keep ? total_width(problem.x) : 0;
  const cpu::TilePlan plan = cpu::neuron_plan(problem, max_memory, runtime.threads);
  const cpu::Partners found = cpu::best_partners(problem, keep, plan, runtime);
  Tensor partner = empty({neurons, columns}, ScalarType::Long);
  std::copy(found.partner.begin(), found.partner.end(), mutable_data<int64_t>(partner));
  return {to_tensor(found.grid, {rows, columns}), to_tensor(found.best, {neurons, columns}),
          partner};
}

Tensor multiple_correlations_cpu(const Tensors& x, const Tensors& y, int64_t max_memory) {
  SIMCORE_CHECK(!y.empty(), "Y: wanted at least one layer, got none");
  const LayersProblem problem = layers_problem(x, y);
  const cpu::Runtime runtime = torch_runtime();
  const cpu::TilePlan plan = cpu::neuron_plan(problem, max_memory, runtime.threads);
  return to_tensor(cpu::multiple_correlations(problem, plan, runtime),
                   {problem.rows(), problem.columns()});
}

cpu::Matching parse_matching(const std::string& name) {
  if (name == "best") return cpu::Matching::best;
  SIMCORE_CHECK(name == "one-to-one", "matching: wanted 'best' or 'one-to-one', got '", name, "'");
  return cpu::Matching::one_to_one;
}

cpu::MatchScore parse_score(const std::string& name) {
  if (name == "correlation") return cpu::MatchScore::correlation;
  if (name == "distance") return cpu::MatchScore::distance;
  SIMCORE_CHECK(name == "angular", "score: wanted 'correlation', 'distance' or 'angular', got '",
                name, "'");
  return cpu::MatchScore::angular;
}

Tensor match_neurons_cpu(const Tensors& x, const Tensors& y, const std::string& matching,
                         const std::string& score, int64_t max_memory) {
  const LayersProblem problem = layers_problem(x, y);
  const cpu::Matching how = parse_matching(matching);
  const cpu::MatchScore what = parse_score(score);
  SIMCORE_CHECK(how == cpu::Matching::one_to_one || what == cpu::MatchScore::correlation,
                "score: wanted 'correlation' for matching 'best', got '", score, "'");
  return to_tensor(cpu::match_neurons(problem, how, what, max_memory, torch_runtime()),
                   {problem.rows(), problem.columns()});
}

// Returns the numbers of the entries that are set.
std::vector<int64_t> numbers_of(const bool* flags, int64_t count) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; i++)
    if (flags[i]) numbers.push_back(i);
  return numbers;
}

// Writes the column of each of `rows` to partner; both lists hold places in a matrix of gains.
template <typename T>
void assign(const T* gains, int64_t stride, const std::vector<int64_t>& rows,
            const std::vector<int64_t>& columns, int64_t* partner) {
  if (rows.empty() || columns.empty()) return;
  const bool turned = rows.size() > columns.size();
  const std::vector<int64_t>&narrow = turned ? columns : rows, &wide = turned ? rows : columns;
  const int64_t padded = round_to(int64_t(wide.size()), cpu::isa_table<T>().width);
  std::vector<T> costs(narrow.size() * padded, cpu::Costs<T>::beyond());
  for (size_t i = 0; i < narrow.size(); i++)
    for (size_t j = 0; j < wide.size(); j++)
      costs[i * padded + j] =
          -(turned ? gains[wide[j] * stride + narrow[i]] : gains[narrow[i] * stride + wide[j]]);
  cpu::Assignment<T> solver(int64_t(wide.size()));
  const std::vector<int64_t>& found =
      solver.solve({costs.data(), int64_t(narrow.size()), int64_t(wide.size()), padded});
  for (size_t i = 0; i < narrow.size(); i++)
    if (turned)
      partner[wide[found[i]]] = narrow[i];
    else
      partner[narrow[i]] = wide[found[i]];
}

Tensor best_assignments_cpu(const Tensor& gains_, const Tensor& rows_, const Tensor& columns_) {
  SIMCORE_CHECK(gains_.dim() == 3, "gains: wanted shape [B, p, q], got ", gains_.sizes());
  SIMCORE_CHECK_TYPE(
      gains_.scalar_type() == ScalarType::Float || gains_.scalar_type() == ScalarType::Double,
      "gains: wanted float32 or float64, got ", gains_.scalar_type());
  const int64_t count = gains_.size(0), p = gains_.size(1), q = gains_.size(2);
  const auto check = [&](const Tensor& flags, const char* name, int64_t size) {
    SIMCORE_CHECK_TYPE(flags.scalar_type() == ScalarType::Bool, name, ": wanted bool, got ",
                       flags.scalar_type());
    SIMCORE_CHECK(flags.sizes() == Shape({count, size}), name, ": wanted shape [", count, ", ",
                  size, "], got ", flags.sizes());
  };
  check(rows_, "rows", p);
  check(columns_, "columns", q);
  const Tensor gains = contiguous(gains_), rows = contiguous(rows_), columns = contiguous(columns_);
  const Tensor partner = empty({count, p}, ScalarType::Long);
  int64_t* const out = mutable_data<int64_t>(partner);
  std::fill(out, out + count * p, -1);
  cpu::parallel_tasks(torch_runtime(), count, [&](int64_t b, int) {
    const auto left = numbers_of(const_data<bool>(rows) + b * p, p);
    const auto right = numbers_of(const_data<bool>(columns) + b * q, q);
    if (gains.scalar_type() == ScalarType::Float)
      assign(const_data<float>(gains) + b * p * q, q, left, right, out + b * p);
    else
      assign(const_data<double>(gains) + b * p * q, q, left, right, out + b * p);
  });
  return partner;
}

}  // namespace

const Library neurons_functions("CPU", [](const Library& m) {
  m.impl("best_partners", boxed<best_partners_cpu>);
  m.impl("multiple_correlations", boxed<multiple_correlations_cpu>);
  m.impl("match_neurons", boxed<match_neurons_cpu>);
  m.impl("best_assignments", boxed<best_assignments_cpu>);
});

}  // namespace simcore
