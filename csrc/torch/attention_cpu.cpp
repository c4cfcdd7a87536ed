// simcore::attention_similarity on the CPU: checks, and the call into csrc/cpu.
#include <tuple>

#include "cpu/attention/attention.h"
#include "cpu/attention/weights.h"
#include "torch/attention_checks.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore {
namespace {

std::tuple<Tensor, Tensor> attention_similarity_cpu(const Tensors& x, const Tensors& y, Shape words,
                                                    const std::string& measure, bool causal,
                                                    int64_t max_memory) {
  const AttentionProblem problem = attention_problem(x, y, words, measure, causal, max_memory);
  const cpu::Runtime runtime = torch_runtime();
  const std::vector<double> values = cpu::attention_similarity(problem, runtime);
  const std::vector<int64_t> rows_off = cpu::count_rows_off(problem, runtime);
  const int64_t rows = int64_t(problem.x.size());
  return {to_tensor(values, {rows, int64_t(values.size()) / rows}), to_tensor(rows_off)};
}

}  // namespace

const Library attention_functions("CPU", [](const Library& m) {
  m.impl("attention_similarity", boxed<attention_similarity_cpu>);
});

}  // namespace simcore
