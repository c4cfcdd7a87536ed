// Nearest rows against plain loops.
#include "cpu/neighbours/neighbours.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "check.h"
#include "core/math/index_math.h"
#include "cpu/isa/isa.h"
#include "cpu/isa/neighbours_table.h"
#include "cpu/neighbours/shortlists.h"
#include "naive_neighbours.h"

namespace {
using namespace simcore::cpu;
using naive::distance;
using naive::DType;
using naive::Found;
using naive::Layer;
using naive::nearest;

constexpr Metric kMetrics[] = {Metric::cosine, Metric::euclidean, Metric::inner};
constexpr double kRounding = 1e-12;

// The distances of all rows, [n, n].
std::vector<long double> distances(const Layer& x, Metric metric) {
  std::vector<long double> all(x.n * x.n);
  for (int64_t i = 0; i < x.n; i++)
    for (int64_t j = 0; j <= i; j++)
      all[i * x.n + j] = all[j * x.n + i] = distance(x, i, j, metric);
  return all;
}

// Checks that the t-th neighbour of every row is as far as its t-th nearest row, and its value.
void check_lists(const std::vector<long double>& d, int64_t k, Metric metric, const int32_t* index,
                 const double* values) {
  const int64_t n = int64_t(std::sqrt(double(d.size())) + 0.5);
  for (int64_t i = 0; i < n; i++) {
    std::vector<long double> sorted;
    for (int64_t j = 0; j < n; j++)
      if (j != i) sorted.push_back(d[i * n + j]);
    std::partial_sort(sorted.begin(), sorted.begin() + k, sorted.end());
    for (int64_t t = 0; t < k; t++) {
      const int64_t j = index[i * k + t];
      CHECK(j >= 0 && j < n && j != i);
      const double got = double(d[i * n + j]);
      CHECK_NEAR(got, double(sorted[t]), 1e-9 * std::abs(got) + 1e-20);
      const double value = metric == Metric::inner       ? -got
                           : metric == Metric::euclidean ? std::sqrt(got)
                                                         : got;
      CHECK_NEAR(values[i * k + t], value, 1e-9 * std::abs(value) + 1e-20);
    }
  }
}

std::string describe(int64_t n, int64_t width, Metric metric, const std::string& more = "") {
  return "n " + std::to_string(n) + ", width " + std::to_string(width) + ", metric " +
         std::to_string(int(metric)) + more;
}

}  // namespace

TEST(flags_match_comparisons) {
  const int64_t width = isa_table<float>().width, count = 3 * width;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> g(count), bias(count), limits(count);
  for (auto* values : {&g, &bias, &limits})
    for (float& value : *values) value = normal(random);
  limits[2] = bias[1] = std::numeric_limits<float>::infinity();
  limits[3] = 0.5f - g[3];  // equal is near
  std::vector<uint8_t> flags(count, 7);
  neighbours_table().flag(g.data(), count, 0.5f, -0.25f, bias.data(), limits.data(), flags.data());
  for (int64_t j = 0; j < count; j++) {
    const bool row = bias[j] - g[j] <= -0.25f, column = 0.5f - g[j] <= limits[j];
    CHECK(flags[j] == (row ? kNearRow : 0) + (column ? kNearColumn : 0));
  }
}

TEST(kth_key_is_that_of_a_sorted_list) {
  const int64_t width = simcore::cpu::isa_table<float>().width;
  std::mt19937 random(1);
  for (const int64_t count : {1, 2, 15, 16, 17, 50, 128}) {
    std::vector<float> keys(simcore::round_to(count, width),
                            std::numeric_limits<float>::infinity());
    for (int64_t c = 0; c < count; c++) keys[c] = float(int(random() % 40)) - 20;  // some are equal
    std::vector<float> sorted = keys;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t k = 1; k <= count; k++)
      CHECK(neighbours_table().kth(keys.data(), count, k) == sorted[k - 1]);
  }
}

TEST(rows_in_float64_match_plain_loops) {
  const NeighboursTable& table = neighbours_table();
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const auto order : {naive::Order::rows, naive::Order::columns})
      for (const int64_t width : {1, 7, 8, 64, 77}) {
        check::context = "width " + std::to_string(width);
        const Layer x = naive::make_layer(3, width, 5, {dtype, 2, 1, order});
        std::vector<double> a(width), b(width), sums(width, 1.0), added(width, 1.0);
        const auto row = [&](int64_t i) {
          return static_cast<const char*>(x.view.data) + i * x.view.row_stride * bytes_of(dtype);
        };
        table.load_scaled(row(0), dtype, x.view.col_stride, width, 0.5, 3, a.data());
        table.load_scaled(row(2), dtype, x.view.col_stride, width, 2, 0.1, b.data());
        table.add_scaled(row(0), dtype, x.view.col_stride, width, 0.25, added.data());
        double dot = 0, gap = 0, largest = 0, furthest = 0, square = 0, with_mean = 0;
        for (int64_t k = 0; k < width; k++) {
          CHECK(a[k] == x.at(0, k) * 0.5 * 3);
          CHECK(b[k] == x.at(2, k) * 2 * 0.1);
          CHECK(added[k] == 1 + x.at(0, k) * 0.25);
          dot += a[k] * b[k], gap += (a[k] - b[k]) * (a[k] - b[k]);
          largest = std::max(largest, std::abs(a[k]));
          furthest = std::max(furthest, std::abs(a[k] - b[k]));
        }
        CHECK_NEAR(table.dot(a.data(), b.data(), width), dot, kRounding * (1 + std::abs(dot)));
        CHECK_NEAR(table.squared_distance(a.data(), b.data(), width), gap, kRounding * (1 + gap));
        CHECK(table.squared_distance(a.data(), a.data(), width) == 0);
        CHECK(table.dot(a.data(), b.data(), width) == table.dot(b.data(), a.data(), width));
        CHECK(table.largest(a.data(), width) == largest);
        CHECK(table.add_difference(a.data(), b.data(), width, sums.data()) == furthest);
        std::vector<float> out(width);
        const CentredSums found = table.centre(a.data(), b.data(), width, 4, out.data());
        for (int64_t k = 0; k < width; k++) {
          CHECK(sums[k] == 1 + (a[k] - b[k]));
          CHECK(out[k] == float((a[k] - b[k]) * 4));
          square += double(out[k]) * out[k], with_mean += double(out[k]) * b[k] * 4;
        }
        std::vector<double> weights = b;
        table.half_softmax(weights.data(), width);
        const double top = *std::max_element(b.begin(), b.end());
        double total = 0;
        for (int64_t k = 0; k < width; k++) total += std::exp(b[k] - top);
        for (int64_t k = 0; k < width; k++)
          CHECK_NEAR(weights[k], std::exp(b[k] - top) / total / 2, kRounding);
        CHECK_NEAR(found.square, square, kRounding * (1 + square));
        CHECK_NEAR(found.with_mean, with_mean, kRounding * (1 + std::abs(with_mean)));
      }
}

TEST(shortlists_keep_what_may_be_near) {
  const std::vector<uint64_t> marks = [] {
    std::vector<uint64_t> all(400);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }();
  std::vector<int32_t> order(399);
  std::iota(order.begin(), order.end(), 1);
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  const auto slack = [](double) { return 2.0; };
  Shortlists lists(marks, 5, 400);
  for (const int32_t j : order) lists.push(0, {float(j), j}, slack);
  lists.tighten(0, slack);
  std::set<int32_t> kept;
  for (int64_t c = 0; c < lists.count(0); c++) kept.insert(lists.row(0)[c].index);
  CHECK(!lists.flooded(0) && kept == (std::set<int32_t>{1, 2, 3, 4, 5, 6, 7}));
  // Keys that rounding cannot tell apart flood a row, unless they belong to copies of one row.
  for (const int32_t j : order) lists.push(1, {float(j) * 0x1p-20f, j}, slack);
  CHECK(lists.flooded(1));
  const std::vector<uint64_t> equal(400, 9);
  Shortlists copies(equal, 5, 400);
  for (const int32_t j : order) copies.push(0, {1.0f, j}, slack);
  copies.tighten(0, slack);
  std::vector<int32_t> lowest;
  for (int64_t c = 0; c < copies.count(0); c++) lowest.push_back(copies.row(0)[c].index);
  std::sort(lowest.begin(), lowest.end());
  CHECK(!copies.flooded(0) && lowest.size() >= 5);
  for (int32_t t = 0; t < 5; t++) CHECK(lowest[t] == t + 1);
}

TEST(lists_match_plain_loops) {
  for (const Metric metric : kMetrics)
    for (const DType dtype : {DType::f32, DType::f64})
      for (const double offset : {0.0, 1000.0})
        for (const int64_t n : {2, 5, 97, 120}) {
          const auto order = n == 97 ? naive::Order::columns : naive::Order::reversed;
          const int64_t wide = n == 5 ? 1100 : 20;  // more than products take at a time
          for (const Layer& x : naive::make_layers(n, {3, wide}, 1, {dtype, offset, 30, order})) {
            const std::vector<long double> d = distances(x, metric);
            for (const int64_t k : {int64_t(1), int64_t(7), n - 1}) {
              if (k >= n) continue;
              check::context = describe(n, k, metric);
              const Found found = nearest({x}, k, metric, naive::threads(2));
              check_lists(d, k, metric, found.index.data(), found.values.data());
              const Found serial = nearest({x}, k, metric, Runtime::serial());
              CHECK(found.index == serial.index && found.values == serial.values);
            }
          }
        }
}

TEST(copies_zeros_and_clusters) {
  for (const Metric metric : kMetrics) {
    check::context = describe(200, 5, metric);
    const Layer plain = naive::make_layer(200, 5, 3, {DType::f64, 1});
    // Four rows, each fifty times: their copies come in order.
    const Layer copies = changed(plain, naive::Order::rows, [](std::vector<double>& values) {
      for (int64_t i = 4; i < 200; i++) std::copy_n(&values[i % 4 * 5], 5, &values[i * 5]);
    });
    const Found found = nearest({copies}, 3, metric, naive::threads(3));
    if (metric != Metric::inner)
      for (int64_t i = 0; i < 200; i++)
        for (int64_t t = 0; t < 3; t++)
          CHECK(found.index[i * 3 + t] == i % 4 + 4 * (t + (i < 4 * (t + 1) + i % 4)) ||
                found.values[i * 3 + t] != 0);
    check_lists(distances(copies, metric), 3, metric, found.index.data(), found.values.data());
    const Layer zeros = changed(plain, naive::Order::rows, [](std::vector<double>& values) {
      std::fill_n(&values[50], 10, 0.0);
    });
    const Found with_zeros = nearest({zeros}, 4, metric, naive::threads(2));
    check_lists(distances(zeros, metric), 4, metric, with_zeros.index.data(),
                with_zeros.values.data());
    if (metric == Metric::cosine)
      for (int64_t t = 0; t < 4; t++) CHECK(with_zeros.index[10 * 4 + t] == t);
    // Two points with a hundred rows each, so near to each other that products cannot tell.
    const Layer clusters = changed(plain, naive::Order::rows, [](std::vector<double>& values) {
      for (int64_t e = 0; e < 1000; e++)
        values[e] = values[e / 5 % 2 * 5 + e % 5] + 1e-6 * values[e];
    });
    const Found near = nearest({clusters}, 6, metric, naive::threads(2));
    check_lists(distances(clusters, metric), 6, metric, near.index.data(), near.values.data());
  }
}

TEST(memory_is_counted_and_refused) {
  const auto x = naive::make_layers(150, {40, 3}, 1, {DType::f32, 1});
  const Found want = nearest(x, 7, Metric::cosine, naive::threads(2));
  const std::string message =
      check::message_of([&] { nearest(x, 7, Metric::cosine, naive::threads(2), 1); });
  CHECK(message.find("max_memory: wanted at least ") == 0);
  const int64_t least = std::stoll(message.substr(message.find("least ") + 6));
  CHECK(nearest(x, 7, Metric::cosine, naive::threads(2), least).index == want.index);
}

int main(int count, char** arguments) { return check::main(count, arguments); }
