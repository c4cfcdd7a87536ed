// Nearest rows, and the similarities made of them, against plain loops.
#include "cpu/neighbours/neighbours.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "check.h"
#include "cpu/isa/isa.h"
#include "cpu/isa/neighbours_table.h"
#include "cpu/neighbours/shortlists.h"
#include "naive.h"

namespace {
using simcore::Estimator;
using namespace simcore::cpu;
using naive::DType;
using naive::Layer;

constexpr Metric kMetrics[] = {Metric::cosine, Metric::euclidean, Metric::inner};
constexpr double kRounding = 1e-12;

struct Found {
  std::vector<int32_t> index;
  std::vector<double> values, own;
};

Found nearest(const std::vector<Layer>& layers, int64_t k, Metric metric, const Runtime& rt,
              int64_t max_memory = 0) {
  const int64_t n = layers[0].n, count = int64_t(layers.size());
  Found found{std::vector<int32_t>(count * n * k), std::vector<double>(count * n * k),
              std::vector<double>(count * n)};
  nearest_rows({naive::views(layers), n, k, metric, "X"}, max_memory, rt, found.index.data(),
               found.values.data(), found.own.data());
  return found;
}

// The distance of two rows in long double: cosine, squared or minus the inner product.
long double distance(const Layer& x, int64_t i, int64_t j, Metric metric) {
  long double product = 0, square_i = 0, square_j = 0, gap = 0;
  for (int64_t c = 0; c < x.view.width; c++) {
    const long double a = x.at(i, c), b = x.at(j, c);
    product += a * b, square_i += a * a, square_j += b * b, gap += (a - b) * (a - b);
  }
  if (metric == Metric::inner) return -product;
  if (metric == Metric::euclidean) return gap;
  if (square_i == 0 || square_j == 0) return 1;
  long double half = 0;
  for (int64_t c = 0; c < x.view.width; c++) {
    const long double d = x.at(i, c) / std::sqrt(square_i) - x.at(j, c) / std::sqrt(square_j);
    half += d * d / 2;
  }
  return half;
}

// Checks lists row by row: distances ascend, no row is missing that is nearer than the last one,
// and equal rows are in order.
void check_lists(const Layer& x, int64_t k, Metric metric, const int32_t* index,
                 const double* values) {
  for (int64_t i = 0; i < x.n; i++) {
    std::vector<std::pair<long double, int64_t>> all;
    for (int64_t j = 0; j < x.n; j++)
      if (j != i) all.emplace_back(distance(x, i, j, metric), j);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (int64_t t = 0; t < k; t++) {
      const long double want = all[t].first;
      const int64_t j = index[i * k + t];
      const long double got = distance(x, i, j, metric);
      const double scale = double(std::abs(want)) + 1e-20;
      CHECK(j >= 0 && j < x.n && j != i);
      CHECK_NEAR(double(got - want), 0, 1e-9 * scale);
      const double value = metric == Metric::inner       ? -double(got)
                           : metric == Metric::euclidean ? double(std::sqrt(got))
                                                         : double(got);
      CHECK_NEAR(values[i * k + t], value, 1e-9 * std::abs(value) + 1e-20);
    }
  }
}

std::string describe(int64_t n, int64_t width, Metric metric, const std::string& more = "") {
  return "n " + std::to_string(n) + ", width " + std::to_string(width) + ", metric " +
         std::to_string(int(metric)) + more;
}

template <typename Change>
Layer changed(Layer x, naive::Order order, const Change& change) {
  change(x.values);
  naive::lay_out(x, order);
  return x;
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

TEST(rows_in_float64_match_plain_loops) {
  const NeighboursTable& table = neighbours_table();
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const auto order : {naive::Order::rows, naive::Order::columns})
      for (const int64_t width : {1, 7, 8, 64, 77}) {
        check::context = "width " + std::to_string(width);
        const Layer x = naive::make_layer(3, width, 5, {dtype, 2, 1, order});
        std::vector<double> a(width), b(width), sums(width, 1.0);
        const auto row = [&](int64_t i) {
          return static_cast<const char*>(x.view.data) + i * x.view.row_stride * bytes_of(dtype);
        };
        table.load_scaled(row(0), dtype, x.view.col_stride, width, 0.5, 3, a.data());
        table.load_scaled(row(2), dtype, x.view.col_stride, width, 2, 0.1, b.data());
        double dot = 0, gap = 0, largest = 0, furthest = 0, square = 0, with_mean = 0;
        for (int64_t k = 0; k < width; k++) {
          CHECK(a[k] == x.at(0, k) * 0.5 * 3);
          CHECK(b[k] == x.at(2, k) * 2 * 0.1);
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
        for (const int64_t n : {2, 5, 97, 150}) {
          const auto order = n == 97 ? naive::Order::columns : naive::Order::reversed;
          const int64_t wide = n == 97 && dtype == DType::f32 ? 1100 : 40;
          const auto x = naive::make_layers(n, {3, wide}, 1, {dtype, offset, 30, order});
          for (const int64_t k : {int64_t(1), int64_t(7), n - 1}) {
            if (k >= n) continue;
            check::context = describe(n, k, metric);
            const Found found = nearest(x, k, metric, naive::threads(2));
            for (size_t l = 0; l < x.size(); l++)
              check_lists(x[l], k, metric, &found.index[l * n * k], &found.values[l * n * k]);
            const Found serial = nearest(x, k, metric, Runtime::serial());
            CHECK(found.index == serial.index && found.values == serial.values);
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
    check_lists(copies, 3, metric, found.index.data(), found.values.data());
    const Layer zeros = changed(plain, naive::Order::rows, [](std::vector<double>& values) {
      std::fill_n(&values[50], 10, 0.0);
    });
    const Found with_zeros = nearest({zeros}, 4, metric, naive::threads(2));
    check_lists(zeros, 4, metric, with_zeros.index.data(), with_zeros.values.data());
    if (metric == Metric::cosine)
      for (int64_t t = 0; t < 4; t++) CHECK(with_zeros.index[10 * 4 + t] == t);
    // Two points with a hundred rows each, so near to each other that products cannot tell.
    const Layer clusters = changed(plain, naive::Order::rows, [](std::vector<double>& values) {
      for (int64_t e = 0; e < 1000; e++)
        values[e] = values[e / 5 % 2 * 5 + e % 5] + 1e-6 * values[e];
    });
    const Found near = nearest({clusters}, 6, metric, naive::threads(2));
    check_lists(clusters, 6, metric, near.index.data(), near.values.data());
  }
}

TEST(layers_without_variance_and_what_is_no_number) {
  const Layer constant =
      changed(naive::make_layer(9, 4, 1), naive::Order::rows,
              [](std::vector<double>& v) { std::fill(v.begin(), v.end(), 0.1); });
  const Layer parallel = changed(naive::make_layer(9, 4, 1), naive::Order::rows, [](auto& values) {
    for (int64_t e = 4; e < 36; e++) values[e] = values[e % 4] * double(e / 4 + 1);
  });
  for (const Metric metric : kMetrics) {
    const Found found = nearest({constant, parallel}, 2, metric, Runtime::serial());
    CHECK(found.index[0] == -1 && found.index[17] == -1 && std::isnan(found.values[5]));
    CHECK((found.index[18] == -1) == (metric == Metric::cosine));
  }
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto bad =
        changed(naive::make_layer(9, 4, 2, {dtype}), naive::Order::rows, [](auto& values) {
          values[7] = INFINITY, values[20] = std::nan(""), values[0] = -INFINITY;
        });
    for (const Metric metric : kMetrics)
      CHECK(check::message_of([&] { nearest({constant, bad}, 2, metric, naive::threads(2)); }) ==
            "X[1]: wanted finite values, got 3 NaN or infinite of 36");
  }
}

TEST(scales_at_the_ends_of_the_range) {
  const Layer x = naive::make_layer(40, 6, 3, {DType::f64, 1});
  for (const Metric metric : kMetrics) {
    const Found want = nearest({x}, 5, metric, Runtime::serial());
    for (const int exponent : {-1000, -500, 500, 1010}) {
      check::context = describe(40, 6, metric, ", 2^" + std::to_string(exponent));
      const Layer scaled = changed(x, naive::Order::rows, [&](std::vector<double>& values) {
        for (double& value : values) value = std::ldexp(value, exponent);
      });
      CHECK(nearest({scaled}, 5, metric, Runtime::serial()).index == want.index);
    }
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

namespace {

double agreement(const int32_t* a, const int32_t* b, int64_t k, ListMeasure measure) {
  double common = 0, sum = 0, harmonic = 0;
  for (int64_t r = 0; r < k; r++)
    for (int64_t s = 0; s < k; s++)
      if (a[r] == b[s]) {
        common++, harmonic += 1 / common;
        sum += 2.0 / double((1 + std::abs(r - s)) * (r + s + 2));
      }
  if (measure == ListMeasure::mutual) return common / double(k);
  if (measure == ListMeasure::jaccard) return common / (2 * double(k) - common);
  return common == 0 ? 0 : sum / harmonic;
}

struct TwoSides {
  std::vector<Layer> x, y;
  Found of_x, of_y;
  int64_t n, k;

  explicit TwoSides(int64_t n_, int64_t k_, Metric metric)
      : x(naive::make_layers(n_, {9, 4, 20}, 1, {DType::f64, 0.5})),
        y(naive::make_layers(n_, {9, 5}, 11, {DType::f64, 0.5})),
        n(n_),
        k(k_) {
    std::fill(x[1].values.begin(), x[1].values.end(), 0.25);  // has no neighbours
    naive::lay_out(x[1], naive::Order::rows);
    of_x = nearest(x, k, metric, Runtime::serial());
    of_y = nearest(y, k, metric, Runtime::serial());
  }
  ListPairs lists(bool cross) const {
    return {n, k, 3, cross ? 2 : 0, of_x.index.data(), cross ? of_y.index.data() : nullptr};
  }
  const Found& columns(bool cross) const { return cross ? of_y : of_x; }
  const std::vector<Layer>& column_layers(bool cross) const { return cross ? y : x; }
  bool defined(bool cross, int64_t a, int64_t b) const { return a != 1 && (cross || b != 1); }
};

// HSIC up to a factor, of matrices that need not be symmetric: tr(A H B H), or the unbiased one.
double masked_hsic(std::vector<double> a, std::vector<double> b, int64_t n, Estimator estimator) {
  if (estimator == Estimator::unbiased)
    for (int64_t i = 0; i < n; i++) a[i * n + i] = b[i * n + i] = 0;
  std::vector<double> rows_a(n), columns_a(n), rows_b(n), columns_b(n);
  double trace = 0, all_a = 0, all_b = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) {
      rows_a[i] += a[i * n + j], columns_a[j] += a[i * n + j], all_a += a[i * n + j];
      rows_b[i] += b[i * n + j], columns_b[j] += b[i * n + j], all_b += b[i * n + j];
      trace += a[i * n + j] * b[j * n + i];
    }
  double product = 0, centred = 0;
  for (int64_t i = 0; i < n; i++) product += columns_a[i] * rows_b[i];
  const double m = double(n);
  if (estimator == Estimator::unbiased)
    return trace + all_a * all_b / ((m - 1) * (m - 2)) - 2 / (m - 2) * product;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++)
      centred += (a[i * n + j] - rows_a[i] / m - columns_a[j] / m + all_a / (m * m)) * b[j * n + i];
  return centred;
}

// The inner products of a layer's rows with their neighbours, and 0 elsewhere.
std::vector<double> masked(const Layer& x, const int32_t* index, int64_t k, bool itself) {
  std::vector<double> matrix(x.n * x.n);
  for (int64_t i = 0; i < x.n; i++) {
    std::vector<int64_t> list(index + i * k, index + (i + 1) * k);
    if (itself && distance(x, i, i, Metric::inner) < distance(x, i, list.back(), Metric::inner))
      list.back() = i;
    for (const int64_t j : list) matrix[i * x.n + j] = -double(distance(x, i, j, Metric::inner));
  }
  return matrix;
}

}  // namespace

TEST(agreement_of_lists_matches_plain_loops) {
  for (const int64_t k : {1, 4, 20}) {
    const TwoSides sides(45, k, Metric::cosine);
    for (const bool cross : {false, true})
      for (const auto measure : {ListMeasure::mutual, ListMeasure::jaccard, ListMeasure::rank}) {
        const ListPairs pairs = sides.lists(cross);
        const auto got = list_similarity(pairs, measure, 0, naive::threads(3));
        CHECK(got.size() == size_t(3 * pairs.columns()));
        for (int64_t a = 0; a < 3; a++)
          for (int64_t b = 0; b < pairs.columns(); b++) {
            const double value = got[a * pairs.columns() + b];
            double mean = 0;
            for (int64_t i = 0; i < 45; i++)
              mean += agreement(&sides.of_x.index[(a * 45 + i) * k],
                                &sides.columns(cross).index[(b * 45 + i) * k], k, measure) /
                      45;
            if (sides.defined(cross, a, b))
              CHECK_NEAR(value, mean, kRounding);
            else
              CHECK(std::isnan(value));
            if (!cross && a == b && a != 1) CHECK(value == 1);
          }
      }
  }
  const TwoSides sides(45, 3, Metric::cosine);
  CHECK(check::message_of([&] {
          list_similarity(sides.lists(true), ListMeasure::rank, 1, Runtime::serial());
        }).find("max_memory: wanted at least ") == 0);
}

TEST(second_order_matches_plain_loops) {
  for (const int64_t k : {1, 6}) {
    const TwoSides sides(37, k, Metric::cosine);
    for (const bool cross : {false, true}) {
      const ListPairs pairs = sides.lists(cross);
      std::vector<LayerView> layers = naive::views(sides.x);
      if (cross)
        for (const LayerView& view : naive::views(sides.y)) layers.push_back(view);
      const auto got = second_order_similarity(pairs, layers, 0, naive::threads(3));
      const std::string message =
          check::message_of([&] { second_order_similarity(pairs, layers, 1, naive::threads(3)); });
      const int64_t least = std::stoll(message.substr(message.find("least ") + 6));
      const auto again = second_order_similarity(pairs, layers, least, naive::threads(3));
      for (int64_t a = 0; a < 3; a++)
        for (int64_t b = 0; b < pairs.columns(); b++) {
          const double value = got[a * pairs.columns() + b];
          if (!sides.defined(cross, a, b)) {
            CHECK(std::isnan(value));
            continue;
          }
          double mean = 0;
          for (int64_t i = 0; i < 37; i++) {
            std::set<int64_t> either(&sides.of_x.index[(a * 37 + i) * k],
                                     &sides.of_x.index[(a * 37 + i) * k] + k);
            const int32_t* const other = &sides.columns(cross).index[(b * 37 + i) * k];
            either.insert(other, other + k);
            double products = 0, square_a = 0, square_b = 0;
            for (const int64_t j : either) {
              const double v = double(distance(sides.x[a], i, j, Metric::cosine));
              const double w =
                  double(distance(sides.column_layers(cross)[b], i, j, Metric::cosine));
              products += v * w, square_a += v * v, square_b += w * w;
            }
            mean += products / std::sqrt(square_a * square_b) / 37;
          }
          CHECK_NEAR(value, mean, kRounding);
          CHECK(again[a * pairs.columns() + b] == value);
        }
    }
  }
}

TEST(cknna_matches_dense_matrices) {
  for (const auto estimator : {Estimator::biased, Estimator::unbiased})
    for (const int64_t k : {2, 9}) {
      const TwoSides sides(33, k, Metric::inner);
      for (const bool cross : {false, true}) {
        check::context = "k " + std::to_string(k) + (cross ? ", cross" : "");
        const auto given = [&](const Found& found, int64_t count) {
          return NeighbourValues{
              33, k, count, found.index.data(), found.values.data(), found.own.data()};
        };
        const NeighbourValues x = given(sides.of_x, 3), y = given(sides.of_y, cross ? 2 : 0);
        const CknnaTerms got = cknna_terms(x, y, estimator, 0, naive::threads(3));
        const int64_t columns = cross ? 2 : 3;
        std::vector<std::vector<double>> of_x, of_y;
        const bool itself = estimator == Estimator::biased;
        for (int64_t l = 0; l < 3; l++)
          of_x.push_back(l == 1 ? std::vector<double>(33 * 33)
                                : masked(sides.x[l], &sides.of_x.index[l * 33 * k], k, itself));
        for (int64_t l = 0; l < columns; l++)
          of_y.push_back(cross ? masked(sides.y[l], &sides.of_y.index[l * 33 * k], k, itself)
                               : of_x[l]);
        for (int64_t a = 0; a < 3; a++)
          for (int64_t b = 0; b < columns; b++) {
            const double value = got.xy[a * columns + b] / std::sqrt(got.xx[a] * got.yy[b]);
            if (!sides.defined(cross, a, b)) {
              CHECK(std::isnan(value));
              continue;
            }
            std::vector<double> k_both = of_x[a], l_both = of_y[b];
            for (int64_t e = 0; e < 33 * 33; e++)
              if (of_x[a][e] == 0 || of_y[b][e] == 0) k_both[e] = l_both[e] = 0;
            const double want = masked_hsic(k_both, l_both, 33, estimator) /
                                std::sqrt(masked_hsic(of_x[a], of_x[a], 33, estimator) *
                                          masked_hsic(of_y[b], of_y[b], 33, estimator));
            CHECK_NEAR(value, want, 1e-9);
          }
      }
    }
}

int main(int count, char** arguments) { return check::main(count, arguments); }
