// Attention, and its similarity as plain double loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "core/views/attention_view.h"
#include "naive.h"

namespace naive {

using simcore::AttentionLayer;
using simcore::AttentionMeasure;
using simcore::AttentionProblem;
using simcore::AttentionView;

constexpr AttentionMeasure kMeasures[] = {AttentionMeasure::js, AttentionMeasure::pearson,
                                          AttentionMeasure::frobenius};
constexpr double kFloat64 = 1e-12, kFloat32 = 1e-6;

// A layer that owns its weights: [heads, t, t] for every sentence, and the views of them.
struct Attention {
  int64_t heads = 0;
  std::vector<std::vector<double>> values;
  std::vector<std::vector<unsigned char>> storage;
  AttentionLayer views;
};

// Rows that sum to about 1, every fifth weight 0; the last row is constant. Rows are stored with a
// gap after each, column by column if `transposed`.
inline Attention make_attention(const std::vector<int64_t>& words, int64_t heads, DType dtype,
                                unsigned seed, bool transposed = false) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(0.01, 2);
  Attention layer;
  layer.heads = heads;
  for (const int64_t t : words) {
    const int64_t pitch = t + 3;
    std::vector<double> values(heads * t * t);
    std::vector<unsigned char> storage(heads * t * pitch * bytes_of(dtype));
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < t; i++)
        for (int64_t j = 0; j < t; j++) {
          const double weight = i == t - 1 ? 1 : (i + j + h) % 5 == 0 ? 0 : uniform(generator);
          const int64_t place = transposed ? j * pitch + i : i * pitch + j;
          values[(h * t + i) * t + j] =
              store(storage, dtype, h * t * pitch + place, weight / double(t));
        }
    layer.values.push_back(values);
    layer.storage.push_back(storage);
    layer.views.push_back({layer.storage.back().data(), dtype, heads, t, t * pitch,
                           transposed ? 1 : pitch, transposed ? pitch : 1});
  }
  // The vectors of storage may have moved while they were collected.
  for (size_t s = 0; s < words.size(); s++) layer.views[s].data = layer.storage[s].data();
  return layer;
}

inline std::vector<double> row_of(const Attention& layer, size_t s, int64_t h, int64_t i,
                                  bool causal) {
  const int64_t t = layer.views[s].words;
  const double* row = layer.values[s].data() + (h * t + i) * t;
  std::vector<double> weights(row, row + t);
  if (!causal) return weights;
  std::fill(weights.begin() + i + 1, weights.end(), 0.0);
  double total = 0;
  for (const double w : weights) total += w;
  for (double& w : weights) w = total > 0 ? w / total : 0;
  return weights;
}

inline double divergence(const std::vector<double>& p, const std::vector<double>& q) {
  const auto term = [](double x, double m) { return x > 0 ? x * std::log(x / m) / 2 : 0; };
  double sum = 0;
  for (size_t k = 0; k < p.size(); k++) {
    const double m = (p[k] + q[k]) / 2;
    // This form is correct for rows that do not sum to 1, too: the logarithms of m match.
    sum += term(p[k], m) + term(q[k], m);
  }
  return sum;
}

inline double correlation(const std::vector<double>& p, const std::vector<double>& q) {
  const double n = double(p.size());
  double mean_p = 0, mean_q = 0, pp = 0, qq = 0, pq = 0;
  for (size_t k = 0; k < p.size(); k++) mean_p += p[k] / n, mean_q += q[k] / n;
  for (size_t k = 0; k < p.size(); k++) {
    pp += (p[k] - mean_p) * (p[k] - mean_p);
    qq += (q[k] - mean_q) * (q[k] - mean_q);
    pq += (p[k] - mean_p) * (q[k] - mean_q);
  }
  return pp > 1e-20 && qq > 1e-20 ? pq / std::sqrt(pp * qq) : 0;
}

inline double head_to_head(const Attention& a, int64_t h, const Attention& b, int64_t g,
                           AttentionMeasure measure, bool causal) {
  double sum = 0, words = 0;
  for (size_t s = 0; s < a.views.size(); s++) {
    double square = 0;
    for (int64_t i = 0; i < a.views[s].words; i++, words++) {
      const std::vector<double> p = row_of(a, s, h, i, causal), q = row_of(b, s, g, i, causal);
      if (measure == AttentionMeasure::js) sum += divergence(p, q);
      if (measure == AttentionMeasure::pearson) sum += correlation(p, q);
      for (size_t k = 0; k < p.size(); k++) square += (p[k] - q[k]) * (p[k] - q[k]);
    }
    if (measure == AttentionMeasure::frobenius) sum += std::sqrt(square);
  }
  if (measure == AttentionMeasure::pearson) return sum / words;
  return 1 - sum / (measure == AttentionMeasure::js ? words : double(a.views.size()));
}

inline double similarity(const Attention& a, const Attention& b, AttentionMeasure measure,
                         bool causal) {
  double total = 0;
  for (int64_t h = 0; h < a.heads; h++) {
    double best = -1e300;
    for (int64_t g = 0; g < b.heads; g++)
      best = std::max(best, head_to_head(a, h, b, g, measure, causal));
    total += best;
  }
  return total / double(a.heads);
}

inline AttentionProblem problem_of(const std::vector<Attention>& x, const std::vector<Attention>& y,
                                   AttentionMeasure measure, bool causal = false) {
  AttentionProblem problem;
  for (const Attention& layer : x) problem.x.push_back(layer.views);
  for (const Attention& layer : y) problem.y.push_back(layer.views);
  problem.measure = measure;
  problem.causal = causal;
  return problem;
}

// compute(problem) returns the grid, row by row.
template <typename Compute>
void check_against_loops(const std::vector<Attention>& x, const std::vector<Attention>& y,
                         double tolerance, const Compute& compute,
                         std::span<const AttentionMeasure> measures = kMeasures) {
  const std::vector<Attention>& columns = y.empty() ? x : y;
  for (const AttentionMeasure measure : measures)
    for (const bool causal : {false, true}) {
      const std::vector<double> got = compute(problem_of(x, y, measure, causal));
      CHECK(got.size() == x.size() * columns.size());
      for (size_t a = 0; a < x.size(); a++)
        for (size_t b = 0; b < columns.size(); b++) {
          check::context = "measure " + std::to_string(int(measure)) + ", causal " +
                           std::to_string(causal) + ", layers " + std::to_string(a) + " and " +
                           std::to_string(b);
          CHECK_NEAR(got[a * columns.size() + b], similarity(x[a], columns[b], measure, causal),
                     tolerance);
        }
    }
}

}  // namespace naive
