// Layers compared row by row, against plain loops.
#include "cpu/hsic/row_pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "check.h"
#include "naive.h"

namespace {
using namespace simcore::cpu;
using naive::DType;
using naive::Layer;
using simcore::LayersProblem;

RowPairs compute(const std::vector<Layer>& x, const std::vector<Layer>& y, RowMeasure measure,
                 const Runtime& rt, int64_t max_memory = 0) {
  return row_pairs(LayersProblem{x[0].n, naive::views(x), naive::views(y)}, measure, max_memory,
                   rt);
}

using Row = std::vector<long double>;

Row row_of(const Layer& x, int64_t i) {
  Row row(x.view.width);
  for (int64_t k = 0; k < x.view.width; k++) row[k] = x.at(i, k);
  return row;
}

long double dot(const Row& a, const Row& b) {
  long double sum = 0;
  for (size_t k = 0; k < a.size(); k++) sum += a[k] * b[k];
  return sum;
}

Row softmax(Row row) {
  const long double top = *std::max_element(row.begin(), row.end());
  long double sum = 0;
  for (long double& entry : row) sum += entry = std::exp(entry - top);
  for (long double& entry : row) entry /= sum;
  return row;
}

long double divergence(const Row& p, const Row& q) {
  const auto term = [](long double w, long double m) { return w > 0 ? w * std::log2(w / m) : 0; };
  long double sum = 0;
  for (size_t k = 0; k < p.size(); k++) {
    const long double m = (p[k] + q[k]) / 2;
    sum += (term(p[k], m) + term(q[k], m)) / 2;
  }
  return sum;
}

int64_t label(const Row& row) { return std::max_element(row.begin(), row.end()) - row.begin(); }

// The value of two rows; nan where a row has no direction.
long double plain(const Row& a, const Row& b, RowMeasure measure) {
  if (measure == RowMeasure::labels) return label(a) != label(b);
  if (measure == RowMeasure::divergence) return divergence(a, b);
  const long double cosine = dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
  return measure == RowMeasure::cosine
             ? cosine
             : std::acos(std::clamp(cosine, -1.0L, 1.0L)) / std::numbers::pi_v<long double>;
}

// The rows of each layer, as distributions for the divergence.
std::vector<std::vector<Row>> rows_of(const std::vector<Layer>& layers, RowMeasure measure) {
  std::vector<std::vector<Row>> rows(layers.size());
  for (size_t l = 0; l < layers.size(); l++)
    for (int64_t i = 0; i < layers[l].n; i++) {
      const Row row = row_of(layers[l], i);
      rows[l].push_back(measure == RowMeasure::divergence ? softmax(row) : row);
    }
  return rows;
}

void check_pairs(const RowPairs& got, const std::vector<Layer>& x, const std::vector<Layer>& y,
                 RowMeasure measure, double tolerance) {
  const auto rows = rows_of(x, measure), others = rows_of(y.empty() ? x : y, measure);
  for (size_t i = 0; i < x.size(); i++)
    for (size_t j = 0; j < others.size(); j++) {
      long double sum = 0;
      int64_t count = 0;
      for (int64_t r = 0; r < x[0].n; r++) {
        const long double value = plain(rows[i][r], others[j][r], measure);
        if (std::isnan(value)) continue;
        sum += value;
        count++;
      }
      CHECK(got.counts[i * others.size() + j] == double(count));
      CHECK_NEAR(got.sums[i * others.size() + j], double(sum), tolerance * double(x[0].n));
    }
}

constexpr RowMeasure kAll[] = {RowMeasure::cosine, RowMeasure::angle, RowMeasure::labels,
                               RowMeasure::divergence};

// Angles of a layer with itself are the arccos of 1 up to rounding.
double tolerance_of(RowMeasure measure) { return measure == RowMeasure::angle ? 1e-8 : 1e-14; }

TEST(pairs_match_plain_loops) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const auto order : {naive::Order::rows, naive::Order::columns, naive::Order::reversed})
      for (const int64_t width : {1, 5, 64, 77})
        for (const RowMeasure measure : kAll) {
          check::context = "width " + std::to_string(width);
          const std::vector<int64_t> three(3, width), seven(7, width);
          const auto x = naive::make_layers(19, seven, 1, {dtype, 0.5, 2, order});
          const auto y = naive::make_layers(19, three, 2, {DType::f32, 0.5, 1, order});
          for (const auto& other : {std::vector<Layer>{}, y}) {
            const RowPairs got = compute(x, other, measure, naive::threads(2));
            check_pairs(got, x, other, measure, tolerance_of(measure));
            const RowPairs serial = compute(x, other, measure, Runtime::serial());
            CHECK(got.sums == serial.sums && got.counts == serial.counts);
            CHECK(got.zeros == std::vector<int64_t>(x.size() + other.size()));
          }
        }
}

TEST(tiles_of_every_size_and_chunks_of_some_rows) {
  struct Size {
    int64_t x, y;
  };
  // Tiles of 4, 8, 24 and 48 layers; of the larger ones, some columns of a chunk at a time.
  for (const auto [count_x, count_y] : {Size{9, 0}, {60, 0}, {180, 0}, {360, 0}, {150, 100}}) {
    const bool large = count_x > 60;
    const int64_t n = large ? 21 : 6, width = large ? 13 : 37;
    const auto x = naive::make_layers(n, std::vector<int64_t>(count_x, width), 1, {DType::f32, 1});
    const auto y = naive::make_layers(n, std::vector<int64_t>(count_y, width), 2, {DType::f32, 1});
    for (const RowMeasure measure : kAll) {
      check::context = std::to_string(count_x) + " layers";
      const RowPairs got = compute(x, y, measure, naive::threads(2));
      if (!large || measure == RowMeasure::cosine)
        check_pairs(got, x, y, measure, tolerance_of(measure));
      // The corner of the grid where its last tile is, in tiles of 4.
      const std::vector<Layer> last(x.end() - 9, x.end());
      const RowPairs corner = compute(last, y, measure, Runtime::serial());
      const int64_t columns = y.empty() ? count_x : count_y, few = y.empty() ? 9 : count_y;
      for (int64_t i = 0; i < 9; i++)
        for (int64_t j = 0; j < few; j++)
          CHECK_NEAR(got.sums[(count_x - 9 + i) * columns + columns - few + j],
                     corner.sums[i * few + j], tolerance_of(measure) * double(n));
      for (const int threads : {1, 3, 5})
        CHECK(compute(x, y, measure, naive::threads(threads)).sums == got.sums);
      const std::string message =
          check::message_of([&] { compute(x, y, measure, naive::threads(2), 1); });
      CHECK(message.find("max_memory: wanted at least ") == 0);
      const int64_t least = std::stoll(message.substr(message.find("least ") + 6));
      const RowPairs tight = compute(x, y, measure, naive::threads(2), least);  // row by row
      for (size_t e = 0; e < got.sums.size(); e++)
        CHECK_NEAR(tight.sums[e], got.sums[e], tolerance_of(measure) * double(n));
    }
  }
}

TEST(equal_layers_are_at_no_distance) {
  const Layer x = naive::make_layer(40, 33, 1, {DType::f32, 1});
  for (const RowMeasure measure : {RowMeasure::labels, RowMeasure::divergence})
    for (const auto& y : {std::vector<Layer>{}, std::vector<Layer>{x, x}}) {
      const RowPairs got = compute({x, x}, y, measure, naive::threads(2));
      for (const double sum : got.sums) CHECK(sum == 0);
    }
}

TEST(scales_at_the_ends_of_the_range) {
  const Layer x = naive::make_layer(33, 7, 1, {DType::f64, 1});
  const Layer y = naive::make_layer(33, 7, 2, {DType::f64, 1});
  const RowPairs want = compute({x}, {y}, RowMeasure::cosine, Runtime::serial());
  for (const int exponent : {-1000, -600, 600, 1000}) {
    const Layer scaled = changed(x, [&](std::vector<double>& values) {
      for (double& value : values) value = std::ldexp(value, exponent);
    });
    CHECK(compute({scaled}, {y}, RowMeasure::cosine, Runtime::serial()).sums == want.sums);
  }
  // Logits of any size: the weights of the softmax may be 0 and 1.
  const Layer large = changed(x, [](std::vector<double>& values) {
    for (double& value : values) value *= 1e300;
  });
  const RowPairs sure = compute({large}, {x}, RowMeasure::divergence, Runtime::serial());
  check_pairs(sure, {large}, {x}, RowMeasure::divergence, 1e-14);
}

}  // namespace

int main(int count, char** arguments) { return check::main(count, arguments); }
