#include "cpu/attention/weights.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace simcore::cpu {

struct BadWeights {
  int64_t nonfinite = 0, negative = 0, total = 0;
};

namespace {

constexpr int64_t kBlock = 256;  // columns that are looked at together

// Counts the NaN, infinite and negative weights among the weights that enter a measure.
template <typename T>
BadWeights inspect(const AttentionView& view, bool causal) {
  BadWeights found;
  T block[kBlock];
  for (int64_t h = 0; h < view.heads; h++)
    for (int64_t i = 0; i < view.words; i++) {
      const int64_t columns = causal ? i + 1 : view.words;
      for (int64_t k = 0; k < columns; k += kBlock) {
        const int64_t count = std::min(kBlock, columns - k);
        load_weights(view, h, i, k, count, block);
        int32_t nonfinite = 0, negative = 0;
        for (int64_t j = 0; j < count; j++) {
          nonfinite += !(block[j] - block[j] == 0);
          negative += block[j] < 0;
        }
        found.nonfinite += nonfinite;
        found.negative += negative;
      }
      found.total += columns;
    }
  return found;
}

void refuse(const BadWeights& found, const std::string& layer, AttentionMeasure measure) {
  const std::string total = " of " + std::to_string(found.total);
  if (found.nonfinite > 0)
    throw std::invalid_argument(layer + ": wanted finite values, got " +
                                std::to_string(found.nonfinite) + " NaN or infinite" + total);
  if (found.negative > 0 && measure == AttentionMeasure::js)
    throw std::invalid_argument(layer + ": wanted no negative weights for measure 'js', got " +
                                std::to_string(found.negative) + total);
}

}  // namespace

template <typename T>
void refuse_bad_weights(const AttentionProblem& problem, const Runtime& rt) {
  const int64_t sentences = int64_t(problem.x[0].size());
  for (const auto* side : {&problem.x, &problem.y}) {
    std::vector<BadWeights> found(side->size() * sentences);
    parallel_tasks(rt, int64_t(found.size()), [&](int64_t task, int) {
      const AttentionView& view = (*side)[task / sentences][task % sentences];
      found[task] = inspect<T>(view, problem.causal);
    });
    for (int64_t l = 0; l < int64_t(side->size()); l++) {
      BadWeights layer;
      for (int64_t s = l * sentences; s < (l + 1) * sentences; s++) {
        layer.nonfinite += found[s].nonfinite;
        layer.negative += found[s].negative;
        layer.total += found[s].total;
      }
      refuse(layer, (side == &problem.x ? "A[" : "B[") + std::to_string(l) + "]", problem.measure);
    }
  }
}

std::vector<int64_t> count_rows_off(const AttentionProblem& problem, const Runtime& rt) {
  const int64_t sentences = int64_t(problem.x[0].size());
  const int64_t layers = int64_t(problem.x.size() + problem.y.size());
  std::vector<int64_t> counts(layers);
  if (!takes_distributions(problem.measure, problem.causal)) return counts;
  std::vector<int64_t> found(layers * sentences);
  parallel_tasks(rt, int64_t(found.size()), [&](int64_t task, int) {
    const int64_t layer = task / sentences, own = layer - int64_t(problem.x.size());
    const AttentionLayer& views = own < 0 ? problem.x[layer] : problem.y[own];
    const AttentionView& view = views[task % sentences];
    double block[kBlock];
    for (int64_t row = 0; row < view.heads * view.words; row++) {
      double sum = 0;
      for (int64_t k = 0; k < view.words; k += kBlock) {
        const int64_t count = std::min(kBlock, view.words - k);
        load_weights(view, row / view.words, row % view.words, k, count, block);
        for (int64_t j = 0; j < count; j++) sum += block[j];
      }
      found[task] += std::fabs(sum - 1) > kRowSum;
    }
  });
  for (int64_t task = 0; task < int64_t(found.size()); task++)
    counts[task / sentences] += found[task];
  return counts;
}

template void refuse_bad_weights<float>(const AttentionProblem&, const Runtime&);
template void refuse_bad_weights<double>(const AttentionProblem&, const Runtime&);

}  // namespace simcore::cpu
