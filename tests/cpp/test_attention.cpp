// Attention similarity of all layer pairs against plain double loops.
#include "cpu/attention.h"

#include <algorithm>

#include "check.h"
#include "naive.h"

using naive::DType;
using simcore::AttentionMeasure;
using simcore::cpu::attention_similarity;
using simcore::cpu::AttentionLayer;
using simcore::cpu::AttentionProblem;
using simcore::cpu::AttentionView;
using simcore::cpu::Runtime;

namespace {

constexpr AttentionMeasure kMeasures[] = {AttentionMeasure::js, AttentionMeasure::pearson,
                                          AttentionMeasure::frobenius};
constexpr double kFloat64 = 1e-12, kFloat32 = 1e-6;

// A layer that owns its weights: [heads, t, t] for every sentence, and the views of them.
struct Layer {
  int64_t heads = 0;
  std::vector<std::vector<double>> values;
  std::vector<std::vector<unsigned char>> storage;
  AttentionLayer views;
};

// Rows that sum to about 1, every fifth weight 0; the last row is constant. Stored with a gap after
// every row, column by column if `transposed`.
Layer make_layer(const std::vector<int64_t>& words, int64_t heads, DType dtype, unsigned seed,
                 bool transposed = false) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(0.01, 2);
  Layer layer;
  layer.heads = heads;
  for (const int64_t t : words) {
    const int64_t pitch = t + 3;
    std::vector<double> values(heads * t * t);
    std::vector<unsigned char> storage(heads * t * pitch * naive::bytes_of(dtype));
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < t; i++)
        for (int64_t j = 0; j < t; j++) {
          const double weight = i == t - 1 ? 1 : (i + j + h) % 5 == 0 ? 0 : uniform(generator);
          const int64_t place = transposed ? j * pitch + i : i * pitch + j;
          values[(h * t + i) * t + j] =
              naive::store(storage, dtype, h * t * pitch + place, weight / double(t));
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

std::vector<double> row_of(const Layer& layer, size_t s, int64_t h, int64_t i, bool causal) {
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

double divergence(const std::vector<double>& p, const std::vector<double>& q) {
  const auto term = [](double x, double m) { return x > 0 ? x * std::log(x / m) / 2 : 0; };
  double sum = 0;
  for (size_t k = 0; k < p.size(); k++) {
    const double m = (p[k] + q[k]) / 2;
    // For rows that do not sum to 1 this form needs no correction: the logarithms of m match.
    sum += term(p[k], m) + term(q[k], m);
  }
  return sum;
}

double correlation(const std::vector<double>& p, const std::vector<double>& q) {
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

double head_to_head(const Layer& a, int64_t h, const Layer& b, int64_t g, AttentionMeasure measure,
                    bool causal) {
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

double similarity(const Layer& a, const Layer& b, AttentionMeasure measure, bool causal) {
  double total = 0;
  for (int64_t h = 0; h < a.heads; h++) {
    double best = -1e300;
    for (int64_t g = 0; g < b.heads; g++)
      best = std::max(best, head_to_head(a, h, b, g, measure, causal));
    total += best;
  }
  return total / double(a.heads);
}

AttentionProblem problem_of(const std::vector<Layer>& x, const std::vector<Layer>& y,
                            AttentionMeasure measure, bool causal = false) {
  AttentionProblem problem;
  for (const Layer& layer : x) problem.x.push_back(layer.views);
  for (const Layer& layer : y) problem.y.push_back(layer.views);
  problem.measure = measure;
  problem.causal = causal;
  return problem;
}

void check_against_loops(const std::vector<Layer>& x, const std::vector<Layer>& y,
                         double tolerance) {
  for (const AttentionMeasure measure : kMeasures)
    for (const bool causal : {false, true}) {
      const auto got = attention_similarity(problem_of(x, y, measure, causal), Runtime::serial());
      const std::vector<Layer>& columns = y.empty() ? x : y;
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

}  // namespace

TEST(grids_match_plain_loops) {
  const std::vector<int64_t> words = {7, 1, 33, 2};
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const double tolerance = dtype == DType::f64 ? kFloat64 : kFloat32;
    std::vector<Layer> x, y;
    for (const int64_t heads : {3, 9, 1})
      x.push_back(make_layer(words, heads, dtype, unsigned(heads), heads == 9));
    for (const int64_t heads : {2, 12}) y.push_back(make_layer(words, heads, dtype, 7));
    check_against_loops(x, {}, tolerance);
    check_against_loops(x, y, tolerance);
  }
}

TEST(rows_longer_than_a_block) {
  std::vector<Layer> x;
  for (const int64_t heads : {2, 1}) x.push_back(make_layer({300, 3}, heads, DType::f32, 3));
  check_against_loops(x, {}, kFloat32);
}

TEST(threads_and_memory_leave_the_result_alone) {
  std::vector<Layer> x;
  for (const int64_t heads : {3, 12}) x.push_back(make_layer({40, 3, 17}, heads, DType::f32, 5));
  for (const AttentionMeasure measure : kMeasures) {
    AttentionProblem problem = problem_of(x, {}, measure);
    const std::vector<double> want = attention_similarity(problem, Runtime::serial());
    CHECK(attention_similarity(problem, naive::threads(3)) == want);
    problem.max_memory = 1;
    const std::string message =
        check::message_of([&] { attention_similarity(problem, Runtime::serial()); });
    CHECK(message.find("max_memory: wanted at least ") == 0);
    problem.max_memory = std::stoll(message.substr(message.find("least ") + 6));
    const std::vector<double> got = attention_similarity(problem, naive::threads(2));
    for (size_t i = 0; i < want.size(); i++) CHECK_NEAR(got[i], want[i], kFloat32);
  }
}

TEST(bad_weights_are_counted_by_layer) {
  std::vector<Layer> x;
  for (int i = 0; i < 2; i++) x.push_back(make_layer({4, 5}, 2, DType::f64, 6));
  reinterpret_cast<double*>(x[1].storage[0].data())[0] = -1;
  const auto run = [&](AttentionMeasure measure) {
    return check::message_of(
        [&] { attention_similarity(problem_of({x[0]}, {x[1]}, measure), naive::threads(2)); });
  };
  CHECK(run(AttentionMeasure::js) ==
        "B[0]: wanted no negative weights for measure 'js', got 1 of 82");
  CHECK(run(AttentionMeasure::frobenius).empty());
  for (int k = 0; k < 3; k++) reinterpret_cast<double*>(x[1].storage[1].data())[k] = std::nan("");
  CHECK(run(AttentionMeasure::frobenius) ==
        "B[0]: wanted finite values, got 3 NaN or infinite of 82");
}

int main() { return check::main(); }
