// Standardised rows, less their mean, and the rounding of the dissimilarities made of them.
//
// Math      z_i = (x_i - mean) / r_i, r_i = |x_i - mean|; c_i = z_i - mean over i of z_i;
//           d_ij = |z_i - z_j|^2 / 2 = |c_i - c_j|^2 / 2, whose digits do not cancel where all rows
//           point in nearly one direction.
//           Rounding. An entry x_ik is known to eps / 2 of its magnitude, with the eps of the
//           layer's own dtype, and x_ik - mean to 2 eps64 of its magnitude, with the eps of
//           float64. Taken as evenly spread, these errors give z_ik the variance
//             t_ik = ((eps / 2 x_ik)^2 + (2 eps64 (x_ik - mean))^2) / (3 r_i^2),
//           and d_ij two errors that differ from pair to pair. To first order, e_ij =
//           sum_k (z_ik - z_jk) (error of z_ik - error of z_jk), of variance
//             sum_k (c_ik - c_jk)^2 (t_ik + t_jk),
//           whose mean over all pairs i != j is, because sum_i c_ik = 0,
//             2 / (n (n - 1)) sum_k [n sum_i c_ik^2 t_ik + (sum_i t_ik) (sum_i c_ik^2)].
//           To second order, |error of z_i - error of z_j|^2 / 2, with mean (t_i + t_j) / 2 where
//           t_i = sum_k t_ik, which varies over the pairs by var_i(t_i) / 2. If all rows point in
//           one direction, c itself is rounding error and sum_k c_ik^2 is near t_i: the first
//           variance is then near sum_k (t_ik + t_jk)^2, above the variance of |error|^2 / 2.
//           r_i has an error that all entries of its row share, which moves d_ij between two rows
//           of one direction by (g_i - g_j)^2 / 2 for relative errors g. Within 2 eps64, and more
//           for the sum of many squares: var(g) = (2 eps64)^2 / 3 (1 + p / 8192); the variance of
//           (g_i - g_j)^2 / 2 is 2 var(g)^2, which does not fall with p as the others do.
//           `rounding` is the sum of the three variances.
// Plan      two passes over the rows, in kBlocks blocks whatever the threads, sums of a block in
//           its own place and added in order: means and lengths, and the sum of z; then c, written
//           once, and the sums for `rounding`.
// Cost      2 n p loads and n p stores; 20 flops an entry, at 2 to 3 ns.
// Numerics  float64 throughout, c rounded to T on the store; rows are scaled by powers of two, so
//           that squares stay in range. The mean is taken off twice: the second one is what
//           rounding left of the first. Bit-equal whatever the threads.
// Twin      simcore/reference/rsa.py:standardised, rounding_variance
#include "cpu/rsa/standard_rows.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/math/nan.h"
#include "cpu/base/buffer.h"
#include "cpu/isa/isa.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kBlocks = 8;               // their sums are as large as twice as many rows
constexpr int kSums = 8;                     // side by side, to hide the latency of an addition
constexpr double kByCentred = 0x1p-102 / 3;  // the variance of an error within 2 eps64

double total_of(const double (&parts)[kSums]) {
  return ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
         ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

// sum_k term(k)
template <typename Term>
double sum(int64_t count, const Term& term) {
  double parts[kSums] = {};
  int64_t k = 0;
  for (; k + kSums <= count; k += kSums)
    for (int i = 0; i < kSums; i++) parts[i] += term(k + i);
  for (; k < count; k++) parts[0] += term(k);
  return total_of(parts);
}

// Entry k of z is ((x_k * scale - mean) - rest) * inverse; 0 for a constant row.
struct RowScale {
  double scale, mean, rest, inverse;
  int64_t nonfinite;
  bool constant() const { return inverse == 0; }
};

RowScale row_scale(const double* x, int64_t width) {
  const auto bad = [](double value) { return !std::isfinite(value); };
  if (std::all_of(x, x + width, [&](double value) { return value == x[0]; }))
    return {1, 0, 0, 0, bad(x[0]) ? width : 0};
  double largest[kSums] = {};
  for (int64_t k = 0; k < width; k += kSums)
    for (int64_t i = k; i < std::min(k + kSums, width); i++)
      largest[i - k] = std::max(largest[i - k], std::abs(x[i]));
  // The inverse power of a subnormal number would be infinite.
  const int exponent = std::max(std::ilogb(*std::max_element(largest, largest + kSums)), -1000);
  RowScale row{std::ldexp(1.0, -exponent), 0, 0, 0, 0};
  row.mean = sum(width, [&](int64_t k) { return x[k] * row.scale; }) / double(width);
  row.rest = sum(width, [&](int64_t k) { return x[k] * row.scale - row.mean; }) / double(width);
  const double square = sum(width, [&](int64_t k) {
    const double d = (x[k] * row.scale - row.mean) - row.rest;
    return d * d;
  });
  if (bad(square)) return {1, 0, 0, 0, std::count_if(x, x + width, bad)};
  row.inverse = 1 / std::sqrt(square);
  return row;
}

template <typename T>
class Standardiser {
 public:
  Standardiser(const LayerView& layer, int64_t n, int64_t panel, T* out, const Runtime& rt)
      : layer_(layer),
        n_(n),
        panel_(panel),
        out_(out),
        rt_(rt),
        rows_(n),
        spread_(n),
        columns_(kColumnSums * kBlocks * layer.width),
        mean_(layer.width) {
    for (int t = 0; t < rt.threads; t++)
      scratch_.push_back(std::make_unique<Buffer<double>>(layer.width));
    result_.halves.resize(n);
  }

  StandardRows run() {
    for_blocks([&](int64_t block, double* x) { add_rows(block, x); });
    for (int64_t k = 0; k < layer_.width; k++) mean_[k] = total(kMeans, k) / double(n_);
    for_blocks([&](int64_t block, double* x) { write_rows(block, x); });
    for (const double half : result_.halves) result_.mean_half += half / double(n_);
    for (const RowScale& row : rows_) result_.nonfinite += row.nonfinite;
    result_.rounding = rounding();
    return std::move(result_);
  }

 private:
  // Sums over the rows of a block, for every column: of z and, later in the same place, of t; of
  // c^2.
  enum { kMeans, kErrors = kMeans, kSquares, kColumnSums };
  struct RowSpread {
    double error, product;  // sum_k t_ik; sum_k c_ik^2 t_ik
  };

  double* column_sums(int kind, int64_t block) {
    return columns_.data() + (kind * kBlocks + block) * layer_.width;
  }
  double total(int kind, int64_t k) {
    double value = 0;
    for (int64_t block = 0; block < kBlocks; block++) value += column_sums(kind, block)[k];
    return value;
  }

  template <typename Body>
  void for_blocks(const Body& body) {
    parallel_tasks(rt_, kBlocks,
                   [&](int64_t block, int thread) { body(block, scratch_[thread]->data()); });
  }

  template <typename Body>
  void for_rows(int64_t block, double* x, const Body& body) const {
    for (int64_t i = n_ * block / kBlocks; i < n_ * (block + 1) / kBlocks; i++) {
      const char* row =
          static_cast<const char*>(layer_.data) + i * layer_.row_stride * bytes_of(layer_.dtype);
      isa_table<double>().load(row, layer_.dtype, layer_.col_stride, layer_.width, x);
      body(i);
    }
  }

  void add_rows(int64_t block, double* x) {
    double* const sums = column_sums(kMeans, block);
    std::fill(sums, sums + layer_.width, 0.0);
    for_rows(block, x, [&](int64_t i) {
      const RowScale row = rows_[i] = row_scale(x, layer_.width);
      for (int64_t k = 0; k < layer_.width; k++)
        sums[k] += ((x[k] * row.scale - row.mean) - row.rest) * row.inverse;
    });
  }

  void write_rows(int64_t block, double* x) {
    double *const errors = column_sums(kErrors, block), *const squares =
                                                            column_sums(kSquares, block);
    std::fill(errors, errors + layer_.width, 0.0);
    std::fill(squares, squares + layer_.width, 0.0);
    const double eps = eps_of(layer_.dtype) / 2;
    for_rows(block, x, [&](int64_t i) {
      T* const out = out_ + i / panel_ * panel_ * layer_.width + i % panel_;
      const RowScale row = rows_[i];
      if (row.constant()) {
        for (int64_t k = 0; k < layer_.width; k++) out[k * panel_] = T(0);
        result_.halves[i] = kNaN;
        return;
      }
      const double by_entry = eps * row.inverse * eps * row.inverse / 3;
      double half[kSums] = {}, error[kSums] = {}, product[kSums] = {};
      const auto write = [&](int64_t k, int lane) {
        const double scaled = x[k] * row.scale;
        const double z = ((scaled - row.mean) - row.rest) * row.inverse, c = z - mean_[k];
        const double t = scaled * scaled * by_entry + z * z * kByCentred, square = c * c;
        out[k * panel_] = T(c);
        errors[k] += t;
        squares[k] += square;
        half[lane] += square / 2;
        error[lane] += t;
        product[lane] += square * t;
      };
      int64_t k = 0;
      for (; k + kSums <= layer_.width; k += kSums)
        for (int lane = 0; lane < kSums; lane++) write(k + lane, lane);
      for (; k < layer_.width; k++) write(k, 0);
      result_.halves[i] = total_of(half);
      spread_[i] = {total_of(error), total_of(product)};
    });
  }

  double rounding() {
    const double n = double(n_);
    double products = 0, mean = 0, variance = 0, crossed = 0;
    for (const RowSpread& row : spread_) {
      products += row.product;
      mean += row.error / n;
    }
    for (const RowSpread& row : spread_) variance += (row.error - mean) * (row.error - mean) / n;
    for (int64_t k = 0; k < layer_.width; k++) crossed += total(kErrors, k) * total(kSquares, k);
    const double length = kByCentred * (1 + double(layer_.width) / 8192);
    return 2 / (n * (n - 1)) * (n * products + crossed) + variance / 2 + 2 * length * length;
  }

  const LayerView& layer_;
  int64_t n_, panel_;
  T* out_;
  const Runtime& rt_;
  std::vector<RowScale> rows_;
  std::vector<RowSpread> spread_;
  std::vector<double> columns_;                           // [kColumnSums, kBlocks, width]
  std::vector<double> mean_;                              // [width] of z
  std::vector<std::unique_ptr<Buffer<double>>> scratch_;  // a row for each thread
  StandardRows result_;
};

}  // namespace

template <typename T>
StandardRows standardise_rows(const LayerView& layer, int64_t n, int64_t panel, T* out,
                              const Runtime& rt) {
  return Standardiser<T>(layer, n, panel, out, rt).run();
}

template StandardRows standardise_rows(const LayerView&, int64_t, int64_t, float*, const Runtime&);
template StandardRows standardise_rows(const LayerView&, int64_t, int64_t, double*, const Runtime&);

int64_t standardise_bytes(int64_t n, int64_t width, int threads) {
  return 8 * (n * 8 + width * (2 * kBlocks + 1) + threads * width);
}

}  // namespace simcore::cpu
