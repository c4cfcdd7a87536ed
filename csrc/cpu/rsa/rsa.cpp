// Ranks of the dissimilarities of every layer, and their products for all layer pairs.
//
// Math      d_ij = |c_i|^2 / 2 + |c_j|^2 / 2 - c_i'c_j for i < j (standard_rows.cpp). With N of
//           them, R = 2 rank - (N + 1) are whole numbers of mean 0, ties shared or not:
//           covariance of rank / N = sum R_a R_b / (4 N^3).
// Shapes    n examples, L layers of width p_l; R [L, N] in int32, pairs (i, j) row after row.
// Plan      layers in groups, each in two steps:
//             a layer at a time:  c in panels (standard_rows.cpp), then tasks of kTaskRows rows:
//                                 their entries of c c' above the diagonal, d while in cache
//             all layers at once: a layer a task: variance, radix sort, ranks (ranks.cpp)
//           then R R' in kSlabs shares of the pairs, each with a sum of its own, packed from int32
//           kContractDepth pairs at a time.
// Cost      n^2 p flops a layer at float64's rate of matrix products, 20 ns a pair for sorting and
//           ranking, L^2 N flops. 13 layers of [1600, 768], one core at 45 Gflop/s: floor of the
//           products .57 s, foreseen 13 * (44 + 6 + 26) + 30 ms = 1.0 s; plain torch's two argsorts
//           a layer alone take 3.0 s. A profile gave 13 * (33 + 5 + 20) + 30 ms.
//           Memory 4 L N, 24 N for each layer that is sorted at the same time and 8 n p: 67 + 2 *
//           31 + 10 MB.
// Numerics  d in float64, the sum over k in the plain order whatever the tile; ties within 16 eps
//           of the mean of |c_i|^2 / 2 + |c_j|^2 / 2, because equal dissimilarities need not agree
//           in the last bits of a product. R is exact, and so is each product; sums in float64
//           over kContractDepth pairs, then over a slab, then over slabs in order: bit-equal
//           whatever the threads.
// Twin      simcore/reference/rsa.py:rank_moments
#include "cpu/rsa/rsa.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/math/index_math.h"
#include "core/math/nan.h"
#include "cpu/base/buffer.h"
#include "cpu/base/memory.h"
#include "cpu/isa/isa.h"
#include "cpu/products/contraction.h"
#include "cpu/rsa/ranks.h"
#include "cpu/rsa/standard_rows.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kDepth = 256;          // of one product over features
constexpr int64_t kSlabs = 16;           // at most, of pairs
constexpr int64_t kSlabPairs = 1 << 13;  // at least
constexpr double kTie = 16 * std::numeric_limits<double>::epsilon();

class RankPass {
 public:
  RankPass(const LayersProblem& problem, int64_t max_memory, const Runtime& rt)
      : n_(problem.n),
        pairs_(problem.n * (problem.n - 1) / 2),
        rt_(rt),
        isa_(isa_table<double>()),
        unit_(kMaxPanels * isa_.width),
        layers_(problem.x),
        count_x_(int64_t(problem.x.size())),
        plan_(count_x_, int64_t(problem.y.size()), isa_.width),
        slabs_(std::clamp<int64_t>(pairs_ / kSlabPairs, 1, kSlabs)) {
    layers_.insert(layers_.end(), problem.y.begin(), problem.y.end());
    if (pairs_ >= int64_t(1) << kIndexBits)
      throw std::invalid_argument(
          "X[0]: wanted at most 65536 rows to rank their dissimilarities, "
          "got " +
          std::to_string(n_));
    together_ = plan_together(memory_bound(max_memory));
  }

  RankMoments run() {
    const Buffer<int32_t> ranks(count() * pairs_);
    rank(ranks.data());
    collect(ranks.data());
    return std::move(result_);
  }

 private:
  // Workspace of a layer while its dissimilarities are sorted, beside its ranks.
  struct Slot {
    Buffer<double> values;          // [pairs]
    Buffer<uint64_t> items, spare;  // [pairs]
    StandardRows rows;
    explicit Slot(int64_t pairs) : values(pairs), items(pairs), spare(pairs) {}
  };

  int64_t count() const { return int64_t(layers_.size()); }
  int64_t widest() const {
    int64_t width = 0;
    for (const LayerView& layer : layers_) width = std::max(width, layer.width);
    return width;
  }
  int64_t first_pair(int64_t i) const { return i * n_ - i * (i + 1) / 2; }

  // Returns the number of layers that are sorted at once. Every allocated byte is counted here.
  int64_t plan_together(int64_t limit) const {
    const int64_t kept = buffer_bytes(4 * count() * pairs_) +
                         8 * (plan_.size() * plan_.size() + 8 * count() + count() * count());
    const int64_t rows = buffer_bytes(8 * round_to(n_, unit_) * widest()) +
                         standardise_bytes(n_, widest(), rt_.threads);
    const int64_t slot = 3 * buffer_bytes(8 * pairs_) + 16 * n_;
    const int64_t product =
        slabs_ * 8 * (plan_.size() * plan_.size() + kContractDepth * (plan_.size() + count()));
    const int64_t least = kept + std::max(rows + slot, product);
    if (least > limit)
      throw std::invalid_argument("max_memory: wanted at least " + std::to_string(least) +
                                  " bytes for ranks of all dissimilarities, got " +
                                  std::to_string(limit));
    return std::clamp<int64_t>((limit - kept - rows) / slot, 1,
                               std::min<int64_t>(rt_.threads, count()));
  }

  void rank(int32_t* ranks) {
    const Buffer<double> panels(round_to(n_, unit_) * widest());
    std::vector<std::unique_ptr<Slot>> slots;
    for (int64_t s = 0; s < together_; s++) slots.push_back(std::make_unique<Slot>(pairs_));
    result_.spread.resize(count());
    result_.rounding.resize(count());
    for (int64_t first = 0; first < count(); first += together_) {
      const int64_t group = std::min(together_, count() - first);
      for (int64_t s = 0; s < group; s++) {
        const LayerView& layer = layers_[first + s];
        // Products take whole units of rows; products with the rows beyond n are not used.
        std::fill(panels.data() + n_ / isa_.width * isa_.width * layer.width,
                  panels.data() + round_to(n_, unit_) * layer.width, 0.0);
        slots[s]->rows = standardise_rows(layer, n_, isa_.width, panels.data(), rt_);
        if (slots[s]->rows.nonfinite > 0) refuse(first + s, slots[s]->rows.nonfinite);
        compare(panels.data(), layer.width, *slots[s]);
      }
      parallel_tasks(rt_, group, [&](int64_t s, int) {
        rank_layer(*slots[s], first + s, ranks + (first + s) * pairs_);
      });
      if (rt_.progress) rt_.progress(double(first + group) / double(count()));
    }
  }

  [[noreturn]] void refuse(int64_t layer, int64_t nonfinite) const {
    const bool in_x = layer < count_x_;
    throw std::invalid_argument((in_x ? "X[" : "Y[") +
                                std::to_string(in_x ? layer : layer - count_x_) +
                                "]: wanted finite values, got " + std::to_string(nonfinite) +
                                " NaN or infinite of " + std::to_string(n_ * layers_[layer].width));
  }

  // Computes the dissimilarities of a layer.
  void compare(const double* panels, int64_t width, Slot& slot) const {
    parallel_tasks(rt_, (n_ + kTaskRows - 1) / kTaskRows, [&](int64_t task, int) {
      const int64_t begin = task * kTaskRows, end = std::min(begin + kTaskRows, n_);
      alignas(64) double block[kTaskRows * kMaxUnit];
      // From the group of columns that the diagonal enters; rows end where it leaves a group.
      for (int64_t j = begin / unit_ * unit_; j < n_; j += unit_) {
        multiply(panels, width, begin, std::min(end, j + unit_), j, block);
        for (int64_t i = begin; i < std::min(end, j + unit_); i++)
          store(block + (i - begin) * unit_, i, j, slot);
      }
    });
  }

  // block[i - begin][q] = c_i'c_(j + q) for i in [begin, end), q < unit.
  void multiply(const double* panels, int64_t width, int64_t begin, int64_t end, int64_t j,
                double* block) const {
    const int64_t w = isa_.width;
    for (int64_t k = 0; k < width; k += kDepth)
      for (int64_t i = begin; i < end; i += isa_.mr)
        isa_.micro[kMaxPanels - 1](
            panels + i / w * w * width + k * w + i % w, panels + j * width + k * w, w * width,
            std::min(kDepth, width - k), block + (i - begin) * unit_, unit_, k > 0);
  }

  void store(const double* products, int64_t i, int64_t j, Slot& slot) const {
    const double* halves = slot.rows.halves.data();
    double* const out = slot.values.data() + first_pair(i) - i - 1;
    for (int64_t q = std::max(i + 1, j); q < std::min(j + unit_, n_); q++)
      out[q] = (halves[i] + halves[q]) - products[q - j];
  }

  void rank_layer(Slot& slot, int64_t layer, int32_t* out) {
    const double unit = slot.rows.mean_half, n = double(n_);
    result_.rounding[layer] = slot.rows.rounding / (unit * unit);
    if (!(unit > 0)) {
      result_.spread[layer] = kNaN;
      std::fill(out, out + pairs_, 0);
      return;
    }
    const double mean = 2 * n / (n - 1) * unit;
    double squares = 0;
    for (int64_t i = 0; i + 1 < n_; i++) {
      double row = 0;
      for (int64_t k = first_pair(i); k < first_pair(i + 1); k++) {
        const double d = slot.values.data()[k] - mean;
        row += d * d;
      }
      squares += row;
    }
    result_.spread[layer] = squares / double(pairs_) / (unit * unit);
    centred_ranks(slot.values.data(), pairs_, kTie * 2 * unit, slot.items.data(), slot.spare.data(),
                  out);
  }

  // Adds up the products of the ranks of all pairs of layers.
  void collect(const int32_t* ranks) {
    std::vector<std::unique_ptr<ContractionSlot<double>>> slots(slabs_);
    parallel_tasks(rt_, slabs_, [&](int64_t s, int) {
      slots[s] = std::make_unique<ContractionSlot<double>>(plan_);
      std::vector<double> block(count() * kContractDepth);
      const int64_t end = pairs_ * (s + 1) / slabs_;
      for (int64_t k = pairs_ * s / slabs_; k < end; k += kContractDepth) {
        const int64_t depth = std::min(kContractDepth, end - k);
        for (int64_t l = 0; l < count(); l++)
          std::copy_n(ranks + l * pairs_ + k, depth, block.data() + l * kContractDepth);
        slots[s]->add(plan_, block.data(), kContractDepth, depth);
      }
    });
    const auto covariance = [&](int64_t a, int64_t b) {
      double sum = 0;
      for (const auto& slot : slots) sum += slot->sum(plan_.at(std::min(a, b), std::max(a, b)));
      const double pairs = double(pairs_);
      return sum / (4 * pairs * pairs * pairs);
    };
    const bool symmetric = count() == count_x_;
    for (int64_t a = 0; a < count_x_; a++) {
      result_.xx.push_back(covariance(a, a));
      for (int64_t b = symmetric ? 0 : count_x_; b < count(); b++)
        result_.xy.push_back(covariance(a, b));
    }
    for (int64_t b = count_x_; b < count(); b++) result_.yy.push_back(covariance(b, b));
    if (symmetric) result_.yy = result_.xx;
  }

  int64_t n_, pairs_;
  const Runtime& rt_;
  const IsaTable<double>& isa_;
  int64_t unit_;  // columns of one micro-kernel call
  std::vector<LayerView> layers_;
  int64_t count_x_;
  ContractionPlan plan_;
  int64_t slabs_, together_ = 1;
  RankMoments result_;
};

}  // namespace

RankMoments rank_moments(const LayersProblem& problem, int64_t max_memory, const Runtime& rt) {
  return RankPass(problem, max_memory, rt).run();
}

}  // namespace simcore::cpu
