// Standardised rows, mean ranks and the moments of ranked dissimilarities against plain loops.
#include "cpu/rsa/rsa.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "check.h"
#include "cpu/rsa/ranks.h"
#include "cpu/rsa/standard_rows.h"
#include "naive.h"

namespace {
using simcore::LayersProblem;
using namespace simcore::cpu;
using naive::DType;
using naive::Layer;

constexpr double kEps[] = {0x1p-10, 0x1p-7, 0x1p-23, 0x1p-52};  // of DType

// Returns rows centred and of unit length, [n, width], and writes their former lengths to `norms`.
std::vector<double> unit_rows(const Layer& x, std::vector<double>* norms) {
  std::vector<double> z = x.values;
  const int64_t p = x.view.width;
  for (int64_t i = 0; i < x.n; i++) {
    const long double first = z[i * p];
    long double mean = 0, square = 0;  // of differences from the first entry
    const auto centred = [&](int64_t k) { return (z[i * p + k] - first) - mean; };
    for (int64_t k = 0; k < p; k++) mean += (z[i * p + k] - first) / static_cast<long double>(p);
    for (int64_t k = 0; k < p; k++) square += centred(k) * centred(k);
    norms->push_back(double(std::sqrt(square)));
    for (int64_t k = 0; k < p; k++) z[i * p + k] = double(centred(k)) / norms->back();
  }
  return z;
}

double dissimilarity(const std::vector<double>& z, int64_t p, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < p; k++)
    sum += (z[i * p + k] - z[j * p + k]) * (z[i * p + k] - z[j * p + k]);
  return sum / 2;
}

// Computes the formula in the header of standard_rows.cpp pair by pair.
double rounding(const Layer& x) {
  std::vector<double> norms, totals(x.n);
  const std::vector<double> z = unit_rows(x, &norms);
  const int64_t p = x.view.width;
  const auto error = [&](int64_t i, int64_t k) {
    const double entry = kEps[int(x.dtype)] / 2 * x.at(i, k) / norms[i];
    const double centred = 0x1p-51 * z[i * p + k];
    return (entry * entry + centred * centred) / 3;
  };
  double first = 0, mean = 0, second = 0;
  for (int64_t i = 0; i < x.n; i++) {
    for (int64_t k = 0; k < p; k++) totals[i] += error(i, k);
    mean += totals[i] / double(x.n);
    for (int64_t j = 0; j < i; j++)
      for (int64_t k = 0; k < p; k++)
        first += (z[i * p + k] - z[j * p + k]) * (z[i * p + k] - z[j * p + k]) *
                 (error(i, k) + error(j, k));
  }
  for (const double total : totals) second += (total - mean) * (total - mean) / double(x.n);
  const double length = 0x1p-102 / 3 * (1 + double(p) / 8192);
  return first / (double(x.n) * double(x.n - 1) / 2) + second / 2 + 2 * length * length;
}

// Returns twice the ranks from 1 on, less count + 1.
std::vector<double> plain_ranks(const std::vector<double>& values, double tie) {
  const int64_t count = int64_t(values.size());
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(count);
  for (int64_t first = 0; first < count;) {
    int64_t last = first + 1;
    while (last < count && values[order[last]] - values[order[last - 1]] <= tie) last++;
    for (int64_t k = first; k < last; k++) ranks[order[k]] = double(first + last - count);
    first = last;
  }
  return ranks;
}

void check_ranks(const std::vector<double>& values, double tie) {
  const int64_t count = int64_t(values.size());
  std::vector<uint64_t> items(count + 1), spare(count + 1);
  std::vector<int32_t> got(count + 1, 77);
  items[count] = spare[count] = 77;
  centred_ranks(values.data(), count, tie, items.data(), spare.data(), got.data());
  CHECK(got[count] == 77 && items[count] == 77 && spare[count] == 77);
  const std::vector<double> wanted = plain_ranks(values, tie);
  for (int64_t k = 0; k < count; k++) CHECK(double(got[k]) == wanted[k]);
}

// Draws from one of several distributions: the sort's keys are even steps between the least and the
// largest value.
double draw(int kind, std::mt19937_64& generator) {
  std::normal_distribution<double> normal;
  const double x = 1 + 0.05 * normal(generator);
  switch (kind) {
    case 0: return x;
    case 1: return generator() % 10 == 0 ? 1e-17 * normal(generator) : x;  // equal rows
    case 2: return std::exp(5 * normal(generator));
    case 3: return generator() % 2 ? 1e-6 * x : x;
    case 4: return double(generator() % 5) + 1e-16 * normal(generator);  // hardly any values
    case 5: return generator() % 1000 ? 1e-12 * x : 1;                   // all in one step
    case 6: return generator() % 1000 ? 1e-12 * std::exp(9 * normal(generator)) : 1;
    case 7: return std::round(x * 300) / 300;
    default: return generator() % 1000 ? double(generator() % 3) * 1e-13 : 1;  // ties in a step
  }
}

std::vector<double> dissimilarities(const Layer& x) {
  std::vector<double> norms, d;
  const std::vector<double> z = unit_rows(x, &norms);
  for (int64_t i = 0; i < x.n; i++)
    for (int64_t j = i + 1; j < x.n; j++) d.push_back(dissimilarity(z, x.view.width, i, j));
  return d;
}

double mean_product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t k = 0; k < a.size(); k++) sum += a[k] * b[k];
  return sum / double(a.size());
}

void check_moments(const std::vector<Layer>& x, const std::vector<Layer>& y) {
  LayersProblem problem;
  problem.n = x[0].n;
  problem.x = naive::views(x);
  problem.y = naive::views(y);
  const RankMoments got = rank_moments(problem, 0, naive::threads(3));
  std::vector<std::vector<double>> ranks;
  for (const auto* side : {&x, &y})
    for (const Layer& layer : *side) {
      const std::vector<double> d = dissimilarities(layer);
      const double pairs = double(d.size()), n = double(layer.n);
      const double mean = std::accumulate(d.begin(), d.end(), 0.0) / pairs;
      const double unit = mean * (n - 1) / (2 * n);
      double spread = 0;
      for (const double value : d) spread += (value - mean) * (value - mean) / pairs;
      const size_t l = ranks.size();
      CHECK_NEAR(got.spread[l] / (spread / (unit * unit)), 1, 1e-9);
      CHECK_NEAR(got.rounding[l] / (rounding(layer) / (unit * unit)), 1, 1e-9);
      ranks.push_back(plain_ranks(d, 1e-14 * mean));
      for (double& rank : ranks.back()) rank /= 2 * pairs;
    }
  const size_t first_y = y.empty() ? 0 : x.size(), count_y = y.empty() ? x.size() : y.size();
  CHECK(got.xy.size() == x.size() * count_y && got.yy.size() == count_y);
  for (size_t a = 0; a < x.size(); a++)
    for (size_t b = 0; b < count_y; b++) {
      const auto &first = ranks[a], &second = ranks[first_y + b];
      CHECK_NEAR(got.xy[a * count_y + b], mean_product(first, second), 1e-12);
      CHECK_NEAR(got.xx[a], mean_product(first, first), 1e-12);
      CHECK_NEAR(got.yy[b], mean_product(second, second), 1e-12);
    }
}

bool equal(const RankMoments& a, const RankMoments& b) {
  return a.xy == b.xy && a.xx == b.xx && a.yy == b.yy && a.spread == b.spread &&
         a.rounding == b.rounding;
}

// Returns x with its first rows appended once more: their pairs tie.
std::vector<Layer> doubled(std::vector<Layer> layers, int64_t rows) {
  for (Layer& layer : layers) {
    layer.values.insert(layer.values.end(), layer.values.begin(),
                        layer.values.begin() + rows * layer.view.width);
    layer.n += rows;
    naive::lay_out(layer, naive::Order::rows);
  }
  return layers;
}

}  // namespace

TEST(ranks_of_any_distribution) {
  for (int kind = 0; kind <= 8; kind++)
    for (const int64_t count : {0, 1, 2, 3, 300, 20000}) {
      check::context = "kind " + std::to_string(kind) + ", " + std::to_string(count) + " values";
      std::mt19937_64 generator(kind);
      std::vector<double> values(count);
      for (double& value : values) value = draw(kind, generator);
      for (const double tie : {0.0, 1e-15, 3e-6}) check_ranks(values, tie);
    }
}

TEST(chains_of_ties) {
  for (const double step : {0.9, 1.1})  // times the bound of a tie
    for (const int64_t count : {5, 1000}) {
      std::vector<double> values;
      for (int64_t k = 0; k < count; k++) values.push_back(1 + double(k * 7 % count) * step * 1e-6);
      check_ranks(values, 1e-6);
      values.push_back(1e6);  // now the chain lies within one step of the keys
      check_ranks(values, 1e-6);
    }
}

// In a run of equal keys that all tie only the least and the largest value are put in order; they
// meet values in the next steps.
TEST(a_run_that_ties_between_neighbours) {
  for (const double begin : {0.0, 1.05}) {
    // With values from 0 to the largest key, one step of the keys is 1, which is also the bound of
    // a tie.
    std::vector<double> values = {0, 0.3, 5, 1073741823.0};
    for (int64_t k = 0; k < 600; k++)
      values.push_back(begin + 0.9 * double((k * 77 + 300) % 600) / 600);
    if (begin == 0) values.push_back(1.4);
    check_ranks(values, 1.0);
  }
}

TEST(rows_with_a_large_common_offset) {
  const Layer x = naive::make_layer(21, 19, 3, {DType::f64, 1e6, 1, naive::Order::rows});
  std::vector<double> norms, got(21 * 19);
  const std::vector<double> z = unit_rows(x, &norms);
  standardise_rows(x.view, x.n, 1, got.data(), Runtime::serial());
  for (int64_t k = 0; k < 19; k++) {
    double mean = 0;
    for (int64_t i = 0; i < 21; i++) mean += z[i * 19 + k] / 21;
    for (int64_t i = 0; i < 21; i++) CHECK_NEAR(got[i * 19 + k], z[i * 19 + k] - mean, 1e-14);
  }
}

TEST(rows_are_standardised_in_any_layout) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const naive::Order order :
         {naive::Order::rows, naive::Order::columns, naive::Order::reversed})
      for (const int64_t panel : {1, 4, 8}) {
        check::context = "dtype " + std::to_string(int(dtype)) + ", panel " + std::to_string(panel);
        const Layer x = naive::make_layer(21, 19, 3, {dtype, 2, 30, order});
        std::vector<double> norms;
        std::vector<double> z = unit_rows(x, &norms);
        std::vector<double> got(24 * 19, 77), serial = got;
        const StandardRows rows =
            standardise_rows(x.view, x.n, panel, got.data(), naive::threads(3));
        standardise_rows(x.view, x.n, panel, serial.data(), Runtime::serial());
        CHECK(got == serial);
        CHECK_NEAR(rows.rounding / rounding(x), 1, 1e-9);
        double mean_half = 0;
        for (int64_t i = 0; i < x.n; i++) {
          double half = 0;
          for (int64_t k = 0; k < 19; k++) {
            double mean = 0;
            for (int64_t r = 0; r < x.n; r++) mean += z[r * 19 + k] / double(x.n);
            const double c = z[i * 19 + k] - mean;
            half += c * c / 2;
            CHECK_NEAR(got[i / panel * panel * 19 + k * panel + i % panel], c, 1e-14);
          }
          CHECK_NEAR(rows.halves[i], half, 1e-14);
          mean_half += half / double(x.n);
        }
        CHECK_NEAR(rows.mean_half, mean_half, 1e-14);
      }
}

TEST(constant_rows_and_what_is_no_number) {
  Layer x = naive::make_layer(9, 5, 4, {DType::f32, 0, 1, naive::Order::rows});
  std::fill(x.values.begin() + 15, x.values.begin() + 20, 0.1);
  naive::lay_out(x, naive::Order::rows);
  std::vector<float> rows(45);
  StandardRows found = standardise_rows(x.view, x.n, 1, rows.data(), Runtime::serial());
  CHECK(std::isnan(found.halves[3]) && std::isnan(found.mean_half) && found.nonfinite == 0);
  for (int64_t k = 15; k < 20; k++) CHECK(rows[k] == 0);
  LayersProblem problem{9, {x.view, x.view}, {}};
  const RankMoments moments = rank_moments(problem, 0, Runtime::serial());
  CHECK(std::isnan(moments.spread[0]) && moments.xx[0] == 0 && moments.xy[1] == 0);
  x.values[7] = INFINITY, x.values[31] = std::nan("");
  naive::lay_out(x, naive::Order::rows);
  const Layer good = naive::make_layer(9, 5, 1);
  problem = {9, {good.view}, {good.view, x.view}};
  CHECK(check::message_of([&] { rank_moments(problem, 0, naive::threads(2)); }) ==
        "Y[1]: wanted finite values, got 2 NaN or infinite of 45");
}

TEST(moments_match_plain_loops) {
  for (const int64_t n : {3, 25, 50, 130})
    for (const DType dtype : {DType::f32, DType::f64}) {
      check::context = "n " + std::to_string(n);
      const std::vector<Layer> x = naive::make_layers(n, {5, 31, 300}, 1, {dtype, 3, 10}),
                               y = naive::make_layers(n, {7, 12}, 9, {dtype, 0, 1});
      check_moments(x, {});
      check_moments(x, y);
      check_moments(doubled(x, n / 3), doubled(y, n / 3));
    }
}

TEST(threads_and_memory_leave_the_result_alone) {
  const std::vector<Layer> x = naive::make_layers(260, {5, 31, 30, 7}, 1, {DType::f32, 3, 10});
  LayersProblem problem{260, naive::views(x), {}};
  const RankMoments want = rank_moments(problem, 0, Runtime::serial());
  CHECK(equal(rank_moments(problem, 0, naive::threads(3)), want));
  const std::string message =
      check::message_of([&] { rank_moments(problem, 1, naive::threads(3)); });
  CHECK(message.find("max_memory: wanted at least ") == 0);
  const int64_t least = std::stoll(message.substr(message.find("least ") + 6));
  CHECK(equal(rank_moments(problem, least, naive::threads(3)), want));
  problem = {70000, {{nullptr, DType::f32, 3, 3, 1}}, {}};
  CHECK(check::message_of([&] { rank_moments(problem, 0, Runtime::serial()); }) ==
        "X[0]: wanted at most 65536 rows to rank their dissimilarities, got 70000");
}

int main() { return check::main(); }
