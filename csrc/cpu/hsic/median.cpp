// The RBF bandwidth: the median of the squared distances over all ordered pairs of examples.
//
// Math      core/math/rbf_math.h says which order statistics of the pairs the median consists of.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "core/math/rbf_math.h"
#include "cpu/base/buffer.h"
#include "cpu/hsic/sums.h"
#include "cpu/isa/isa.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kSampleBlocks = 400;  // of mr rows by unit columns: 38,400 pairs with AVX2
constexpr double kBracket = 0.03;       // of the ranks, to each side
constexpr int64_t kRowBlock = 96;

template <typename T>
struct Bracket {
  T lo = 0, hi = std::numeric_limits<T>::infinity();
};

template <typename T>
class MedianPass {
 public:
  MedianPass(const LayerView& layer, const Centring<T>& centring, int64_t rows)
      : isa_(isa_table<T>()),
        layer_(layer),
        rows_(rows),
        unit_(kMaxPanels * isa_.width),
        panels_(round_to(rows, unit_) * layer.width),
        norms_(round_to(rows, unit_)),
        kept_(rows * (rows - 1) / 2 + unit_) {
    std::vector<double> norms(isa_.width);
    for (int64_t r = 0; r < round_to(rows, unit_); r += isa_.width) {
      isa_.pack_rows(layer, centring, r, std::clamp<int64_t>(rows - r, 0, isa_.width),
                     panels_.data() + r * layer.width, norms.data());
      std::copy(norms.begin(), norms.end(), norms_.begin() + r);
    }
  }

  // Samples blocks of pairs at places from a fixed linear congruential sequence (Knuth's MMIX
  // constants): no state, no seed. With too few rows to sample, the bracket holds everything.
  Bracket<T> sample_bracket() {
    if (rows_ < 2 * unit_) return {};
    std::vector<T> sample;
    uint64_t state = 1;
    const auto next = [&](int64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return int64_t((state >> 33) % uint64_t(below));
    };
    alignas(64) T g[64 * 64];
    for (int64_t block = 0; block < kSampleBlocks; block++) {
      const int64_t row = next(rows_ / isa_.mr) * isa_.mr, column = next(rows_ / unit_) * unit_;
      multiply(row, row + isa_.mr, column, g);
      for (int64_t i = row; i < row + isa_.mr; i++)
        for (int64_t j = column; j < column + unit_; j++)
          if (i != j)
            sample.push_back(
                std::max(T(0), norms_[i] + norms_[j] - 2 * g[(i - row) * unit_ + j - column]));
    }
    std::sort(sample.begin(), sample.end());
    const double pairs = double(sample.size());
    return {sample[int64_t((0.5 - kBracket) * pairs)], sample[int64_t((0.5 + kBracket) * pairs)]};
  }

  // Returns the mean of order statistics a and b (a <= b <= a + 1) of the pairs' squared distances,
  // or -1 if the bracket does not hold them.
  double select(const Bracket<T>& bracket, int64_t a, int64_t b) {
    below_ = count_ = 0;
    for (int64_t column = 0; column < rows_; column += unit_) {
      const int64_t end = std::min(rows_, column + unit_);
      for (int64_t i = 0; i < end; i += kRowBlock)
        select_block(bracket, i, std::min(end, i + kRowBlock), column);
    }
    if (a < below_ || b >= below_ + count_) return -1;
    T* values = kept_.data();
    std::nth_element(values, values + (a - below_), values + count_);
    const double low = values[a - below_];
    if (a == b) return low;
    return (low + double(*std::min_element(values + (b - below_), values + count_))) / 2;
  }

 private:
  // Writes to g the dot products of rows [begin, end) with the unit of rows from `column` on.
  void multiply(int64_t begin, int64_t end, int64_t column, T* g) const {
    const int64_t p = layer_.width, w = isa_.width;
    for (int64_t i = begin; i < end; i += isa_.mr)
      // Row i is lane i % w of panel i / w; a panel is [p][w].
      isa_.micro[kMaxPanels - 1](panels_.data() + i / w * w * p + i % w,
                                 panels_.data() + column * p, w * p, p, g + (i - begin) * unit_,
                                 unit_, false);
  }

  void select_block(const Bracket<T>& bracket, int64_t begin, int64_t end, int64_t column) {
    alignas(64) T g[kRowBlock * 64];
    multiply(begin, end, column, g);
    for (int64_t i = begin; i < end; i++) {
      const int64_t first = std::max<int64_t>(0, i + 1 - column);
      const int64_t last = std::min(unit_, rows_ - column);
      if (first >= last) continue;
      count_ += isa_.select(g + (i - begin) * unit_, first, last, norms_[i], &norms_[column],
                            bracket.lo, bracket.hi, kept_.data() + count_, &below_);
    }
  }

  const IsaTable<T>& isa_;
  const LayerView& layer_;
  int64_t rows_, unit_;
  Buffer<T> panels_;
  std::vector<T> norms_;
  Buffer<T> kept_;  // room for every pair; untouched pages cost nothing
  int64_t below_ = 0, count_ = 0;
};

template <typename T>
double median_squared_distance(LayerView layer, const Centring<T>& centring, int64_t n) {
  const MedianRule rule(n);
  layer.row_stride *= rule.step;
  MedianPass<T> pass(layer, centring, rule.rows);
  double median = pass.select(pass.sample_bracket(), rule.first, rule.second);
  if (median < 0) median = pass.select(Bracket<T>(), rule.first, rule.second);
  return rule.halved ? median / 2 : median;
}

}  // namespace

template <typename T>
KernelScale median_bandwidths(const Grid<T>& grid, double bandwidth, const Runtime& rt) {
  KernelScale scale;
  scale.shifts.assign(grid.count(), double(T(rbf_shift(bandwidth))));
  scale.gammas.resize(grid.count());
  parallel_tasks(rt, grid.count(), [&](int64_t l, int) {
    const double median = median_squared_distance<T>(grid.layers[l], grid.centring[l], grid.n);
    scale.gammas[l] = rbf_gamma(median, bandwidth, double(std::numeric_limits<T>::max()));
  });
  return scale;
}

template KernelScale median_bandwidths<float>(const Grid<float>&, double, const Runtime&);
template KernelScale median_bandwidths<double>(const Grid<double>&, double, const Runtime&);

}  // namespace simcore::cpu
