// The lengths of mean rows, and the mean cosines of rows to them.
//
// Math      m = mean_i x_i; length |m|; cosine: the mean of x_i'm / (|x_i| |m|) over the rows that
//           are not zero; nan where |m| <= eps sqrt(mean_i |x_i|^2).
// Plan      the rows of a layer in kBlocks blocks: one pass for the mean, one for the cosines.
//           Threads take a layer each of many, else blocks of one layer.
// Cost      2 n p loads; 3 operations an entry in the first pass, 4 in the second: bound by memory.
// Numerics  float64. Entries are scaled by a power of two below 1 / n before they are added, and
//           float64 rows before they are squared, so that nothing overflows. Sums of a block in its
//           own place, added in order: bit-equal whatever the threads.
// Twin      simcore/reference/rowwise.py:magnitude, concentricity
#include "cpu/hsic/mean_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "core/math/nan.h"
#include "cpu/base/memory.h"
#include "cpu/isa/neighbours_table.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kBlocks = 16;
constexpr int64_t kLayersPerThread = 4;
constexpr int64_t kEntriesBetweenReports = 1 << 26;  // of a thread

// Returns the exponent of a magnitude, bounded so that powers of two of it are normal numbers.
int exponent_of(double magnitude) {
  return magnitude == 0 ? 0 : std::clamp(std::ilogb(magnitude), -1000, 1000);
}

struct Cosines {
  double sum = 0, squares = 0;  // of cosines; of lengths, in units of 4^exponent
  int64_t zeros = 0;
};

class MeanRow {
 public:
  MeanRow(const LayerView& layer, int64_t n, const Runtime& rt)
      : layer_(layer),
        n_(n),
        rt_(rt),
        scratch_(rt.threads, std::vector<double>(layer.width)),
        origin_(layer.dtype == DType::f64 ? layer.width : 0) {}

  static int64_t bytes(int64_t width, int threads) { return 8 * width * (kBlocks + 2 + threads); }

  // Finds the mean row; false if the layer holds NaN or infinity.
  bool find() {
    const int halvings = int(std::bit_width(uint64_t(n_)));
    const double share = std::ldexp(1.0, -halvings);  // of an entry, so that no sum overflows
    const int64_t width = layer_.width, places = rt_.threads == 1 ? 1 : kBlocks;
    std::vector<double> sums(places * width), largest(kBlocks);
    mean_.assign(width, 0.0);
    const auto add_to_mean = [&](int64_t place) {
      for (int64_t k = 0; k < width; k++) mean_[k] += sums[place * width + k];
    };
    for_blocks([&](int64_t block, int thread) {
      double* const of_block = &sums[block % places * width];
      std::fill_n(of_block, width, 0.0);
      for (int64_t i = n_ * block / kBlocks; i < n_ * (block + 1) / kBlocks; i++)
        largest[block] = std::max(largest[block], add(i, share, thread, of_block));
      if (places == 1) add_to_mean(0);
    });
    if (places > 1)
      for (int64_t block = 0; block < kBlocks; block++) add_to_mean(block);
    if (layer_.dtype == DType::f64)
      exponent_ = exponent_of(*std::max_element(largest.begin(), largest.end())) + halvings;
    for (double& entry : mean_) entry = entry / double(n_) / share;
    return std::all_of(mean_.begin(), mean_.end(), [](double x) { return std::isfinite(x); });
  }

  // Turns the mean row into its direction, unless it is zero; returns its length.
  double normalise() {
    const double unit = table_.largest(mean_.data(), layer_.width);
    if (unit == 0) return 0;
    for (double& entry : mean_) entry /= unit;
    const double length = std::sqrt(table_.dot(mean_.data(), mean_.data(), layer_.width));
    for (double& entry : mean_) entry /= length;
    return unit * length;
  }

  // Returns the mean cosine of the rows to the direction of the mean row, of the given length.
  double cosine(double length, int64_t& zeros) {
    std::vector<Cosines> blocks(kBlocks);
    for_rows([&](int64_t block, int64_t i, double* row) { add_cosine(i, row, blocks[block]); });
    Cosines total;
    for (const Cosines& block : blocks) {
      total.sum += block.sum;
      total.squares += block.squares;
      total.zeros += block.zeros;
    }
    zeros = total.zeros;
    const double least = eps_of(layer_.dtype) * std::sqrt(total.squares / double(n_));
    if (!(std::ldexp(length, -exponent_) > least)) return kNaN;
    return std::clamp(total.sum / double(n_ - total.zeros), -1.0, 1.0);
  }

  int64_t nonfinite() {
    std::vector<int64_t> counts(kBlocks);
    for_rows([&](int64_t block, int64_t i, double* row) {
      load(i, 1, row);
      for (int64_t k = 0; k < layer_.width; k++) counts[block] += !std::isfinite(row[k]);
    });
    return std::accumulate(counts.begin(), counts.end(), int64_t(0));
  }

 private:
  // body(block, thread) for all blocks.
  template <typename Body>
  void for_blocks(const Body& body) {
    parallel_tasks(rt_, kBlocks, body);
  }

  // body(block, i, a row to write to) for all rows i.
  template <typename Body>
  void for_rows(const Body& body) {
    for_blocks([&](int64_t block, int thread) {
      for (int64_t i = n_ * block / kBlocks; i < n_ * (block + 1) / kBlocks; i++)
        body(block, i, scratch_[thread].data());
    });
  }

  // Adds a share of a row to the sums; returns the largest of these entries of a float64 row.
  double add(int64_t i, double share, int thread, double* sums) {
    if (layer_.dtype != DType::f64) {
      table_.add_scaled(row_of(i), layer_.dtype, layer_.col_stride, layer_.width, share, sums);
      return 0;
    }
    double* const row = scratch_[thread].data();
    load(i, share, row);
    return table_.add_difference(row, origin_.data(), layer_.width, sums);
  }

  void load(int64_t i, double factor, double* row) const {
    table_.load_scaled(row_of(i), layer_.dtype, layer_.col_stride, layer_.width, 1, factor, row);
  }

  const void* row_of(int64_t i) const {
    return static_cast<const char*>(layer_.data) + i * layer_.row_stride * bytes_of(layer_.dtype);
  }

  void add_cosine(int64_t i, double* row, Cosines& sums) const {
    load(i, 1, row);
    int exponent = 0;  // squares of the other dtypes are normal numbers of float64
    if (layer_.dtype == DType::f64) {
      exponent = exponent_of(table_.largest(row, layer_.width));
      load(i, std::ldexp(1.0, -exponent), row);
    }
    const double square = table_.dot(row, row, layer_.width);
    if (square == 0) {
      sums.zeros++;
      return;
    }
    sums.sum += table_.dot(row, mean_.data(), layer_.width) / std::sqrt(square);
    sums.squares += std::ldexp(square, 2 * (exponent - exponent_));
  }

  const LayerView& layer_;
  int64_t n_;
  const Runtime& rt_;
  const NeighboursTable& table_ = neighbours_table();
  std::vector<std::vector<double>> scratch_;  // a row for each thread
  std::vector<double> origin_;                // of float64 layers
  std::vector<double> mean_;                  // or its direction
  int exponent_ = 0;                          // of a bound of the entries, if they are float64
};

// Returns the number of layers that one thread each computes, which needs no barrier for a pass: a
// multiple of `threads`, or 0 where there are few layers or little memory.
size_t layers_apart(const MeanRowsProblem& problem, int64_t max_memory, int threads) {
  int64_t widest = 0;
  for (const LayerView& layer : problem.layers) widest = std::max(widest, layer.width);
  const int64_t wanted = MeanRow::bytes(widest, threads), bound = memory_bound(max_memory);
  if (wanted > bound)
    throw std::invalid_argument("max_memory: wanted at least " + std::to_string(wanted) +
                                " bytes for sums of rows, got " + std::to_string(bound));
  const size_t count = problem.layers.size();
  const bool many = int64_t(count) >= kLayersPerThread * threads;
  return many && threads * MeanRow::bytes(widest, 1) <= bound ? count - count % threads : 0;
}

size_t layers_between_reports(const MeanRowsProblem& problem, int threads) {
  int64_t largest = 1;
  for (size_t l = 0; l < problem.layers.size(); l++)
    largest = std::max(largest, problem.rows[l] * problem.layers[l].width);
  return size_t(threads) * std::max(kLayersPerThread, kEntriesBetweenReports / largest);
}

[[noreturn]] void refuse(const MeanRowsProblem& problem, size_t layer, int64_t nonfinite) {
  throw std::invalid_argument(problem.name + "[" + std::to_string(layer) +
                              "]: wanted finite values, got " + std::to_string(nonfinite) +
                              " NaN or infinite of " +
                              std::to_string(problem.rows[layer] * problem.layers[layer].width));
}

}  // namespace

MeanRows mean_rows(const MeanRowsProblem& problem, int64_t max_memory, const Runtime& rt) {
  neighbours_table();  // is refused here where the processor lacks it: an error ends no thread
  const size_t apart = layers_apart(problem, max_memory, rt.threads);
  const size_t count = problem.layers.size(), with_cosines = problem.with_cosines ? count : 0;
  MeanRows result{std::vector<double>(count), std::vector<double>(with_cosines),
                  std::vector<int64_t>(with_cosines)};
  std::vector<int64_t> nonfinite(count, -1);  // -1: all entries are finite
  const auto compute = [&](size_t l, const Runtime& threads) {
    MeanRow mean(problem.layers[l], problem.rows[l], threads);
    if (!mean.find()) {
      nonfinite[l] = mean.nonfinite();
      return;
    }
    result.length[l] = mean.normalise();
    if (problem.with_cosines) result.cosine[l] = mean.cosine(result.length[l], result.zeros[l]);
  };
  const Runtime serial = Runtime::serial();
  const size_t together = layers_between_reports(problem, rt.threads);
  for (size_t first = 0, end; first < count; first = end) {
    end = first < apart ? std::min(first + together, apart) : first + 1;
    if (first < apart)
      parallel_tasks(rt, int64_t(end - first), [&](int64_t l, int) { compute(first + l, serial); });
    else
      compute(first, rt);
    for (size_t l = first; l < end; l++)
      if (nonfinite[l] >= 0) refuse(problem, l, nonfinite[l]);
    if (rt.progress) rt.progress(double(end) / double(count));
  }
  return result;
}

}  // namespace simcore::cpu
