// Rows of a layer in float64, their mean, and the centred copy that products are taken of.
//
// Plan      read_rows: one pass over the rows (two for float64 layers), in kBlocks blocks whatever
//           the threads; sums of a block in its own place, added in order. PackedRows: one pass,
//           as many rows at a time as a panel holds.
// Cost      2 n p loads and n p stores, about 10 operations an entry.
// Numerics  float64, rounded to float32 once centred: neither an offset nor, for `cosine`, lengths
//           of rows cost digits. The mean is taken of differences from the first row: a constant
//           column centres to exactly 0. Bit-equal whatever the threads.
// Twin      simcore/reference/neighbours.py:directions, is_defined
#include "cpu/neighbours/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "core/math/index_math.h"
#include "cpu/isa/isa.h"
#include "cpu/isa/neighbours_table.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kBlocks = 16;
constexpr double kLeastTurn = 4;     // directions differ by more than this many times eps
constexpr double kRounding = 16;     // eps, by which equal distances may differ, and sqrt(p) more
constexpr int kLargestScale = 1000;  // 2^-1000 and 2^1000 are normal numbers
constexpr int kOrdinary = 300;       // squares of 2^-300 and 2^300, and sums of them, are normal

// Returns the relative rounding error of a sum of so many terms, in float64.
double rounding_units(int64_t width) {
  return std::numeric_limits<double>::epsilon() * (kRounding + std::sqrt(double(width)));
}

// Returns the exponent of a magnitude, or 0 where squares of such numbers are in range.
int exponent_to_remove(double magnitude) {
  if (magnitude == 0 || !std::isfinite(magnitude)) return 0;
  const int exponent = std::clamp(std::ilogb(magnitude) + 1, -kLargestScale, kLargestScale);
  return std::abs(exponent) <= kOrdinary ? 0 : exponent;
}

// Returns a hash of the bits of a row.
uint64_t mark_of(const double* x, int64_t count) {
  constexpr int kLanes = 8;  // independent, to hide the latency of a multiplication
  uint64_t lanes[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto add = [&](int64_t k, int i) {
    uint64_t bits;
    std::memcpy(&bits, x + k, sizeof bits);
    lanes[i] = (lanes[i] ^ bits) * 0x9e3779b97f4a7c15u;
    lanes[i] ^= lanes[i] >> 29;
  };
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes)
#pragma GCC unroll 8
    for (int i = 0; i < kLanes; i++) add(k + i, i);
  for (; k < count; k++) add(k, int(k % kLanes));
  uint64_t mark = 0;
  for (const uint64_t lane : lanes) mark = (mark ^ lane) * 0xbf58476d1ce4e5b9u;
  return mark;
}

class Reader {
 public:
  Reader(const LayerView& layer, int64_t n, Metric metric, const Runtime& rt)
      : layer_(layer), n_(n), rt_(rt), table_(neighbours_table()) {
    rows_.layer = layer;
    rows_.n = n;
    rows_.metric = metric;
    rows_.scale.assign(n, 1);
    rows_.factor.assign(n, 1);
    rows_.squares.resize(n);
    for (int t = 0; t < rt.threads; t++) scratch_.emplace_back(layer.width);
  }

  Rows run() {
    if (rows_.metric != Metric::cosine && layer_.dtype == DType::f64) remove_exponent();
    first_.resize(layer_.width);
    if (rows_.metric == Metric::cosine) measure_row(0, first_.data());
    rows_.load(0, first_.data());
    sums_.assign(kBlocks * layer_.width, 0.0);
    std::vector<double> largest(kBlocks);
    for_blocks([&](int64_t block, double* x) {
      for (int64_t i = begin(block); i < begin(block + 1); i++) {
        if (rows_.metric == Metric::cosine) measure_row(i, x);
        rows_.load(i, x);
        const double difference =
            table_.add_difference(x, first_.data(), layer_.width, sums(block));
        largest[block] = std::max(largest[block], difference);
        rows_.squares[i] = rows_.metric == Metric::cosine ? double(!rows_.is_zero(i))
                                                          : table_.dot(x, x, layer_.width);
      }
    });
    rows_.largest = *std::max_element(largest.begin(), largest.end());
    finish_mean();
    const double least =
        rows_.metric == Metric::cosine
            ? kLeastTurn * eps_of(layer_.dtype) * table_.largest(first_.data(), layer_.width)
            : 0;
    rows_.defined = rows_.largest > least;
    return std::move(rows_);
  }

 private:
  int64_t begin(int64_t block) const { return n_ * block / kBlocks; }
  double* sums(int64_t block) { return sums_.data() + block * layer_.width; }

  template <typename Body>
  void for_blocks(const Body& body) {
    parallel_tasks(rt_, kBlocks,
                   [&](int64_t block, int thread) { body(block, scratch_[thread].data()); });
  }

  void remove_exponent() {
    std::vector<double> largest(kBlocks);
    for_blocks([&](int64_t block, double* x) {
      for (int64_t i = begin(block); i < begin(block + 1); i++) {
        rows_.load(i, x);
        largest[block] = std::max(largest[block], table_.largest(x, layer_.width));
      }
    });
    rows_.exponent = exponent_to_remove(*std::max_element(largest.begin(), largest.end()));
    rows_.scale.assign(n_, std::ldexp(1.0, -rows_.exponent));
  }

  // Finds the length of row i, which then has unit length.
  void measure_row(int64_t i, double* x) {
    rows_.scale[i] = rows_.factor[i] = 1;
    rows_.load(i, x);
    if (layer_.dtype == DType::f64) {
      rows_.scale[i] = std::ldexp(1.0, -exponent_to_remove(table_.largest(x, layer_.width)));
      if (rows_.scale[i] != 1) rows_.load(i, x);
    }
    const double square = table_.dot(x, x, layer_.width);
    rows_.factor[i] = square == 0 ? 0 : 1 / std::sqrt(square);
  }

  void finish_mean() {
    bool finite = std::isfinite(rows_.largest);
    rows_.mean = first_;
    for (int64_t k = 0; k < layer_.width; k++) {
      double sum = 0;
      for (int64_t block = 0; block < kBlocks; block++) sum += sums(block)[k];
      finite = finite && std::isfinite(sum) && std::isfinite(first_[k]);
      rows_.mean[k] += sum / double(n_);
    }
    if (!finite) count_nonfinite();
  }

  void count_nonfinite() {
    rows_.scale.assign(n_, 1);
    rows_.factor.assign(n_, 1);
    for (int64_t i = 0; i < n_; i++) {
      rows_.load(i, first_.data());
      for (const double value : first_) rows_.nonfinite += !std::isfinite(value);
    }
  }

  const LayerView& layer_;
  int64_t n_;
  const Runtime& rt_;
  const NeighboursTable& table_;
  Rows rows_;
  std::vector<double> first_;                 // [width] u_0
  std::vector<double> sums_;                  // [kBlocks, width] of u_i - u_0
  std::vector<std::vector<double>> scratch_;  // a row for each thread
};

}  // namespace

void Rows::load(int64_t i, double* out) const {
  const char* row =
      static_cast<const char*>(layer.data) + i * layer.row_stride * bytes_of(layer.dtype);
  neighbours_table().load_scaled(row, layer.dtype, layer.col_stride, layer.width, scale[i],
                                 factor[i], out);
}

double Rows::distance(int64_t i, const double* u_i, int64_t j, const double* u_j) const {
  const NeighboursTable& table = neighbours_table();
  if (metric == Metric::inner) return -table.dot(u_i, u_j, layer.width);
  if (metric == Metric::euclidean) return table.squared_distance(u_i, u_j, layer.width);
  if (is_zero(i) || is_zero(j)) return 1;
  const double distance = table.squared_distance(u_i, u_j, layer.width) / 2;
  const double units = rounding_units(layer.width);
  return distance > units * units ? distance : 0;
}

double Rows::rounding(double distance, int64_t i, int64_t j) const {
  const double units = rounding_units(layer.width);
  if (metric == Metric::inner) return units * std::sqrt(squares[i] * squares[j]);
  return units * (metric == Metric::cosine ? distance + std::sqrt(distance) : distance);
}

Rows read_rows(const LayerView& layer, int64_t n, Metric metric, const Runtime& rt) {
  return Reader(layer, n, metric, rt).run();
}

int64_t rows_bytes(int64_t n, int64_t width, int threads) {
  return 8 * (3 * n + (kBlocks + 2 + threads) * width + kBlocks);
}

PackedRows::PackedRows(const Rows& rows, const Runtime& rt)
    : panels(round_to(rows.n, kMaxPanels * isa_table<float>().width) * rows.layer.width),
      bias(round_to(rows.n, kMaxPanels * isa_table<float>().width),
           std::numeric_limits<float>::infinity()),
      norms(rows.n),
      marks(rows.n) {
  const IsaTable<float>& isa = isa_table<float>();
  const NeighboursTable& table = neighbours_table();
  const int64_t width = rows.layer.width, padded = int64_t(bias.size());
  const double unit = std::ldexp(1.0, -std::ilogb(std::max(rows.largest, 0x1p-1000)));
  std::vector<std::vector<double>> wide(rt.threads, std::vector<double>(width));
  std::vector<std::vector<float>> narrow(rt.threads, std::vector<float>(isa.width * width));
  parallel_tasks(rt, padded / isa.width, [&](int64_t panel, int thread) {
    const int64_t first = panel * isa.width;
    const int64_t count = std::clamp<int64_t>(rows.n - first, 0, isa.width);
    float* const source = narrow[thread].data();
    for (int64_t r = 0; r < count; r++) {
      const int64_t i = first + r;
      rows.load(i, wide[thread].data());
      marks[i] = mark_of(wide[thread].data(), width);
      const CentredSums sums =
          table.centre(wide[thread].data(), rows.mean.data(), width, unit, source + r * width);
      norms[i] = std::sqrt(sums.square);
      double own = rows.metric == Metric::inner ? -sums.with_mean : sums.square / 2;
      if (rows.metric == Metric::cosine && rows.is_zero(i)) own += unit * unit / 2;
      bias[i] = float(own);
    }
    isa.pack_plain(source, width, count, width, panels.data() + first * width);
  });
}

int64_t packed_bytes(int64_t n, int64_t width, int threads) {
  const int64_t lanes = isa_table<float>().width, padded = round_to(n, kMaxPanels * lanes);
  return buffer_bytes(4 * padded * width) + 4 * padded + 16 * n + threads * width * (8 + 4 * lanes);
}

}  // namespace simcore::cpu
