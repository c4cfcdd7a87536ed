// simcore::attention_similarity on the CPU: checks, and the call into csrc/cpu.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <stdexcept>
#include <tuple>

#include "cpu/attention/attention.h"
#include "cpu/attention/weights.h"
#include "torch/attention_checks.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore {
namespace {

std::tuple<at::Tensor, at::Tensor> attention_similarity_cpu(at::TensorList x, at::TensorList y,
                                                            at::IntArrayRef words,
                                                            c10::string_view measure, bool causal,
                                                            int64_t max_memory) {
  const AttentionProblem problem =
      attention_problem(x, y, words, std::string(measure), causal, max_memory);
  try {
    const cpu::Runtime runtime = torch_runtime();
    const std::vector<double> values = cpu::attention_similarity(problem, runtime);
    const std::vector<int64_t> rows_off = cpu::count_rows_off(problem, runtime);
    const int64_t rows = int64_t(problem.x.size());
    return {to_tensor(values, {rows, int64_t(values.size()) / rows}), to_tensor(rows_off)};
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CPU, m) { m.impl("attention_similarity", attention_similarity_cpu); }

}  // namespace simcore
