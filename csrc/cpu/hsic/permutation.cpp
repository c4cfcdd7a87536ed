// Inner products of all pairs of Gram matrices for many reorderings of the second one's examples.
//
// Math      out[k, a, b] = sum_ij w_ki w_kj K^a_ij L^b_{r(i) r(j)}, r = rows[k]. K and L are
//           symmetric, so only j >= i is visited, the diagonal counting half, and the sum doubled.
// Shapes    x [n, n, Lx], y [n, n, Ly], layers innermost: an entry of all layers lies together, so
//           that a reordered entry costs one or two cache lines and not one per layer.
// Plan      for each batch of draws, so many that their panels stay in L2
//             for each slab of rows i                      one task each, with a sum of its own
//               for each chunk of kContractDepth columns j >= i
//                 left  = K_ij of all a, packed once       [Lx, chunk]
//                 right = L_{r(i) r(j)} of all b and draws [draws * Ly, chunk], gathered
//                 sum  += left right^T                     micro-kernels of isa_impl.h
// Cost      draws * n^2 * Lx * Ly flops, layers rounded up to whole registers. Row r(i) of y is
//           read from memory and gathered from L2: at most draws * n^2 * Ly / 2 elements.
// Numerics  products in T over kContractDepth entries, then float64. Slabs do not depend on the
//           threads and are added in order: bit-equal whatever their number.
// Twin      simcore/reference/stats.py:permuted_products
#include "cpu/hsic/permutation.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "cpu/base/buffer.h"
#include "cpu/isa/isa.h"
#include "cpu/products/contraction.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kBatchPanels = 12;  // of a batch's right side: 96 KB of float32 with AVX2
constexpr int64_t kSlabs = 64;        // at most, of rows

template <typename T>
class PermutationPass {
 public:
  PermutationPass(const PermutedGrams<T>& grams, const Runtime& rt)
      : g_(grams),
        rt_(rt),
        isa_(isa_table<T>()),
        w_(isa_.width),
        panels_x_((g_.count_x + w_ - 1) / w_),
        panels_y_((g_.count_y + w_ - 1) / w_),
        size_x_(round_to(g_.count_x, isa_.mr)),
        batch_(std::clamp<int64_t>(kBatchPanels / panels_y_, 1, g_.draws)),
        columns_(batch_ * panels_y_ * w_),
        slab_rows_((g_.n + kSlabs - 1) / kSlabs),
        slabs_((g_.n + slab_rows_ - 1) / slab_rows_),
        identity_(g_.n),
        sums_(slabs_ * size_x_ * columns_) {
    std::iota(identity_.begin(), identity_.end(), 0);
    for (int t = 0; t < rt.threads; t++)
      scratch_.push_back(std::make_unique<Scratch>(panels_x_ * w_, columns_));
  }

  void run(double* out) {
    for (int64_t first = 0; first < g_.draws; first += batch_) {
      const int64_t draws = std::min(batch_, g_.draws - first);
      std::fill(sums_.begin(), sums_.end(), 0.0);
      parallel_tasks(rt_, slabs_, [&](int64_t slab, int thread) {
        double* sums = sums_.data() + slab * size_x_ * columns_;
        const int64_t end = std::min(g_.n, (slab + 1) * slab_rows_);
        for (int64_t i = slab * slab_rows_; i < end; i++)
          add_row(i, first, draws, *scratch_[thread], sums);
      });
      collect(draws, out + first * g_.count_x * g_.count_y);
      if (rt_.progress) rt_.progress(double(first + draws) / double(g_.draws));
    }
  }

 private:
  struct Scratch {
    Buffer<T> left, right;        // panels of [depth][width]
    std::vector<int64_t> column;  // of each panel of `right` in the sums
    Scratch(int64_t rows, int64_t columns)
        : left(rows * kContractDepth), right(columns * kContractDepth), column(columns) {}
  };

  T weight(int64_t draw, int64_t i) const {
    return g_.weights == nullptr ? T(1) : g_.weights[draw * g_.n + i];
  }

  // Adds the products of row i of K with row r(i) of L for draws [first, first + draws).
  void add_row(int64_t i, int64_t first, int64_t draws, Scratch& s, double* sums) {
    for (int64_t j = i; j < g_.n; j += kContractDepth) {
      const int64_t depth = std::min(kContractDepth, g_.n - j), panel = depth * w_;
      isa_.gather_entries(g_.x + i * g_.n * g_.count_x, g_.count_x, identity_.data() + j, depth,
                          s.left.data());
      if (j == i)  // a diagonal entry has no mirror image
        for (int64_t q = 0; q < panels_x_; q++)
          for (int64_t l = 0; l < w_; l++) s.left.data()[q * panel + l] *= T(0.5);
      int64_t panels = 0;
      for (int64_t d = 0; d < draws; d++) {
        if (weight(first + d, i) == T(0)) continue;
        gather_draw(i, j, depth, first + d, s.right.data() + panels * panel);
        for (int64_t q = 0; q < panels_y_; q++) s.column[panels++] = (d * panels_y_ + q) * w_;
      }
      multiply(depth, panels, s, sums);
    }
  }

  void gather_draw(int64_t i, int64_t j, int64_t depth, int64_t draw, T* panels) const {
    const int32_t* rows = g_.rows + draw * g_.n;
    isa_.gather_entries(g_.y + rows[i] * g_.n * g_.count_y, g_.count_y, rows + j, depth, panels);
    if (g_.weights == nullptr) return;
    const T* weights = g_.weights + draw * g_.n;
    for (int64_t q = 0; q < panels_y_; q++)
      for (int64_t k = 0; k < depth; k++, panels += w_) {
        const T factor = weights[i] * weights[j + k];
        for (int64_t l = 0; l < w_; l++) panels[l] *= factor;
      }
  }

  void multiply(int64_t depth, int64_t panels, Scratch& s, double* sums) const {
    alignas(64) T block[kMaxUnit * kMaxUnit];
    const int64_t panel = depth * w_;
    for (int64_t p = 0; p < panels; p += kMaxPanels) {
      const int64_t group = std::min<int64_t>(kMaxPanels, panels - p), width = group * w_;
      for (int64_t a = 0; a < size_x_; a += isa_.mr) {
        isa_.micro[group - 1](s.left.data() + a / w_ * panel + a % w_, s.right.data() + p * panel,
                              panel, depth, block, width, false);
        for (int64_t r = 0; r < isa_.mr; r++)
          for (int64_t q = 0; q < group; q++) {
            double* out = sums + (a + r) * columns_ + s.column[p + q];
            for (int64_t l = 0; l < w_; l++) out[l] += double(block[r * width + q * w_ + l]);
          }
      }
    }
  }

  void collect(int64_t draws, double* out) const {
    for (int64_t d = 0; d < draws; d++)
      for (int64_t a = 0; a < g_.count_x; a++)
        for (int64_t b = 0; b < g_.count_y; b++) {
          double sum = 0;
          for (int64_t slab = 0; slab < slabs_; slab++)
            sum += sums_[(slab * size_x_ + a) * columns_ + d * panels_y_ * w_ + b];
          *out++ = 2 * sum;
        }
  }

  const PermutedGrams<T>& g_;
  const Runtime& rt_;
  const IsaTable<T>& isa_;
  int64_t w_, panels_x_, panels_y_, size_x_;
  int64_t batch_;    // draws at a time
  int64_t columns_;  // of a batch's sums
  int64_t slab_rows_, slabs_;
  std::vector<int32_t> identity_;
  std::vector<double> sums_;                       // [slabs, size_x, columns]
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one per thread
};

}  // namespace

template <typename T>
void permuted_gram_products(const PermutedGrams<T>& grams, double* out, const Runtime& rt) {
  if (grams.draws == 0) return;
  PermutationPass<T>(grams, rt).run(out);
}

template void permuted_gram_products(const PermutedGrams<float>&, double*, const Runtime&);
template void permuted_gram_products(const PermutedGrams<double>&, double*, const Runtime&);

}  // namespace simcore::cpu
