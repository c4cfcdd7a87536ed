// The similarities that are made of lists of neighbours, against plain loops.
#include <set>
#include <string>

#include "check.h"
#include "cpu/neighbours/neighbours.h"
#include "naive_neighbours.h"

namespace {
using simcore::Estimator;
using namespace simcore::cpu;
using naive::distance;
using naive::DType;
using naive::Found;
using naive::Layer;
using naive::nearest;

constexpr double kRounding = 1e-12;

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
