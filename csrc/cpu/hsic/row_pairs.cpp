// Sums over the rows of two layers of one width, of all pairs of layers.
//
// Math      cosine: x'y / (|x| |y|); angle: its arccos over pi; divergence: (F(p) + F(q)) / 2 -
//           F((p + q) / 2), p and q the softmax of the rows and F(p) = sum p log2 p; labels: 1
//           where the largest entries are at different places, the first of equal ones. Rows of
//           zeros have no direction and do not count.
// Plan      for each chunk of rows of all layers that fits into the buffer, as float64:
//             one task per layer and some rows: rows of unit length, or halves of the softmax
//             one task per tile of pairs: products or mixtures of the chunk, some columns at a
//             time; angles row by row, because each has an arccos
//           x with itself: the upper triangle alone. Labels need no chunks: they are small.
// Cost      a layer is read once from memory; n p multiply-adds (divergence: logarithms) a pair. 13
//           layers of 1,600 x 768 on two threads: foreseen 64 MB read 2 ms, 128 MB written to and
//           read from the last cache 5 ms, products 1 ms, 1.1e8 logarithms 40 ms.
// Numerics  float64; float64 rows are scaled by a power of two before they are squared, the others
//           have squares that are normal numbers. A pair's sum is the work of one task at a time,
//           over chunks and columns in their order. Tiles and chunks do not depend on the threads,
//           and so neither do results.
// Twin      simcore/reference/rowwise.py:cosine_grid, disagreement_grid, output_divergence_grid
#include "cpu/hsic/row_pairs.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

#include "cpu/base/buffer.h"
#include "cpu/base/memory.h"
#include "cpu/isa/isa.h"
#include "cpu/isa/neighbours_table.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kChunkBytes = 8ll << 20;  // stays in the last cache
constexpr int64_t kTiles[] = {48, 24, 8, 4};
constexpr int64_t kSmallTile = 8;
constexpr int64_t kColumns = 256;  // of a larger tile at a time: its rows stay in L2
constexpr int64_t kTasks = 32;     // at least, where tiles can be so small: threads end together
constexpr int64_t kPartsPerThread = 4;

class RowPass {
 public:
  RowPass(const LayersProblem& problem, RowMeasure measure, const Runtime& rt)
      : problem_(problem), measure_(measure), rt_(rt), layers_(problem.x) {
    layers_.insert(layers_.end(), problem.y.begin(), problem.y.end());
    result_.sums.assign(problem.rows() * columns(), 0.0);
    result_.counts.assign(result_.sums.size(), measure_has_zeros() ? 0.0 : double(problem.n));
    result_.zeros.assign(layers_.size(), 0);
  }

  RowPairs run(int64_t max_memory) {
    if (measure_ == RowMeasure::labels) {
      compare_labels(memory_bound(max_memory));
    } else {
      list_tiles();
      compare_chunks(memory_bound(max_memory));
      if (measure_ == RowMeasure::divergence) turn_into_divergences();
    }
    if (symmetric()) mirror();
    return std::move(result_);
  }

 private:
  struct Tile {  // layers from i on of the result's rows against those from j on of its columns
    int64_t i, j;
  };

  bool symmetric() const { return problem_.y.empty(); }
  int64_t columns() const { return problem_.columns(); }
  int64_t width() const { return layers_[0].width; }
  int64_t padded() const { return round_to(width(), isa_.width); }
  bool measure_has_zeros() const {
    return measure_ == RowMeasure::cosine || measure_ == RowMeasure::angle;
  }
  // The layer of a column of the result.
  int64_t layer_of(int64_t column) const { return symmetric() ? column : problem_.rows() + column; }

  static void require(int64_t wanted, int64_t bound, const char* purpose) {
    if (wanted > bound)
      throw std::invalid_argument("max_memory: wanted at least " + std::to_string(wanted) +
                                  " bytes for " + purpose + ", got " + std::to_string(bound));
  }

  const void* row_of(int64_t layer, int64_t row) const {
    const LayerView& view = layers_[layer];
    return static_cast<const char*>(view.data) + row * view.row_stride * bytes_of(view.dtype);
  }

  // ---- labels

  void compare_labels(int64_t bound) {
    const int64_t n = problem_.n, count = int64_t(layers_.size());
    const int64_t grids = 16 * int64_t(result_.sums.size());
    require(grids + 4 * n * count + 8 * rt_.threads * width(), bound, "labels");
    std::vector<int32_t> labels(n * count);
    for_rows(n, [&](int64_t layer, int64_t first, int64_t end) {
      return layers_[layer].dtype == DType::f64
                 ? find_labels<double>(layer, first, end, &labels[layer * n])
                 : find_labels<float>(layer, first, end, &labels[layer * n]);
    });
    parallel_tasks(rt_, problem_.rows(), [&](int64_t i, int) {
      for (int64_t j = symmetric() ? i : 0; j < columns(); j++) {
        const int32_t *const a = &labels[i * n], *const b = &labels[layer_of(j) * n];
        int64_t different = 0;
        for (int64_t r = 0; r < n; r++) different += a[r] != b[r];
        result_.sums[i * columns() + j] = double(different);
      }
    });
  }

  // Returns whether all entries are finite.
  template <typename T>
  bool find_labels(int64_t layer, int64_t first, int64_t end, int32_t* labels) const {
    const LayerView& view = layers_[layer];
    const IsaTable<T>& isa = isa_table<T>();
    std::vector<T> row(view.width);
    const bool as_it_is = bytes_of(view.dtype) == int64_t(sizeof(T)) && view.col_stride == 1;
    int flaws = 0;
    for (int64_t r = first; r < end; r++) {
      const T* entries = static_cast<const T*>(row_of(layer, r));
      if (!as_it_is) {
        isa.load(entries, view.dtype, view.col_stride, view.width, row.data());
        entries = row.data();
      }
      flaws |= isa.flaws(entries, view.width);
      labels[r] = int32_t(isa.place_of_largest(entries, view.width));
    }
    return (flaws & kNotFinite) == 0;
  }

  // Calls body(layer, first row, end) for parts of `rows` rows of all layers, and refuses the
  // layers unless it always returns true.
  template <typename Body>
  void for_rows(int64_t rows, const Body& body) {
    const int64_t count = int64_t(layers_.size());
    const int64_t parts = std::min(rows, (kPartsPerThread * rt_.threads + count - 1) / count);
    std::atomic<bool> finite = true;
    parallel_tasks(rt_, count * parts, [&](int64_t task, int) {
      const int64_t part = task % parts;
      if (!body(task / parts, rows * part / parts, rows * (part + 1) / parts)) finite = false;
    });
    if (!finite) refuse();
  }

  [[noreturn]] void refuse() const {
    for (size_t l = 0; l < layers_.size(); l++) {
      const int64_t bad = make_centring<double>(layers_[l], problem_.n).nonfinite;
      if (bad == 0) continue;
      const size_t of_x = problem_.x.size();
      throw std::invalid_argument(
          (l < of_x ? "X[" + std::to_string(l) : "Y[" + std::to_string(l - of_x)) +
          "]: wanted finite values, got " + std::to_string(bad) + " NaN or infinite of " +
          std::to_string(problem_.n * width()));
    }
    throw std::logic_error("row_pairs: no entry is NaN or infinite");
  }

  // ---- the others

  void list_tiles() {
    for (const int64_t tile : kTiles) {
      tile_ = tile;
      tiles_.clear();
      for (int64_t i = 0; i < problem_.rows(); i += tile)
        for (int64_t j = symmetric() ? i : 0; j < columns(); j += tile) tiles_.push_back({i, j});
      if (int64_t(tiles_.size()) >= kTasks) return;
    }
  }

  // An odd number of cache lines: rows of a tile would otherwise meet in a few sets of L1.
  int64_t stride_of(int64_t rows) const {
    return ((rows * padded() + kLine - 1) / kLine | 1) * kLine;
  }

  // Returns the bytes that chunks of so many rows take: the buffer, its rows that are not zeros,
  // and three grids, of which one is a copy (divergence) or the cosines of all tiles (angle).
  int64_t bytes(int64_t rows) const {
    const int64_t count = int64_t(layers_.size());
    return buffer_bytes(8 * count * stride_of(rows)) + count * rows +
           24 * int64_t(result_.sums.size()) + 2 * int64_t(tiles_.size() * sizeof(Tile)) +
           count * int64_t(sizeof(LayerView) + 2 * sizeof(double));
  }

  void compare_chunks(int64_t bound) {
    const int64_t count = int64_t(layers_.size());
    require(bytes(1), bound, "one row of all layers");
    const int64_t most = std::max<int64_t>(1, kChunkBytes / (8 * count * padded()));
    int64_t rows = std::min(most, problem_.n);
    while (bytes(rows) > bound) rows -= (rows + 7) / 8;
    stride_ = stride_of(rows);
    const Buffer<double> buffer(count * stride_);
    own_.assign(measure_ == RowMeasure::divergence && !symmetric() ? count : 0, 0.0);
    some_.resize(count * rows);
    for (int64_t first = 0; first < problem_.n; first += rows) {
      rows_ = std::min(rows, problem_.n - first);
      std::fill(some_.begin(), some_.end(), uint8_t(1));
      for_rows(rows_, [&](int64_t layer, int64_t begin, int64_t end) {
        bool finite = true;
        for (int64_t r = begin; r < end; r++)
          finite &= pack(layer, first + r, buffer.data() + layer * stride_ + r * padded(),
                         some_[layer * rows_ + r]);
        return finite;
      });
      parallel_tasks(rt_, int64_t(tiles_.size()),
                     [&](int64_t t, int) { add_tile(tiles_[t], buffer.data()); });
      add_own(buffer.data());
      if (measure_has_zeros()) add_counts();
      if (rt_.progress) rt_.progress(double(first + rows_) / double(problem_.n));
    }
  }

  // Writes one row as float64, padded with zeros; returns whether its entries are finite. `some` is
  // set to 0 for a row of zeros.
  bool pack(int64_t layer, int64_t r, double* out, uint8_t& some) const {
    const LayerView& view = layers_[layer];
    const void* const source = row_of(layer, r);
    const auto load = [&](double scale, double factor) {
      rows_table_.load_scaled(source, view.dtype, view.col_stride, view.width, scale, factor, out);
    };
    load(1, 1);
    std::fill(out + view.width, out + padded(), 0.0);
    if (isa_.flaws(out, view.width) & kNotFinite) return false;
    if (measure_ == RowMeasure::divergence) {
      rows_table_.half_softmax(out, view.width);
      return true;
    }
    double scale = 1;
    if (view.dtype == DType::f64) {
      const double largest = rows_table_.largest(out, view.width);
      if (largest > 0) scale = std::ldexp(1.0, -std::clamp(std::ilogb(largest), -1000, 1000));
      load(scale, 1);
    }
    const double square = rows_table_.dot(out, out, view.width);
    some = square > 0;
    if (some) load(scale, 1 / std::sqrt(square));
    return true;
  }

  void add_tile(const Tile& tile, const double* buffer) {
    const int64_t i_end = std::min(tile.i + tile_, problem_.rows());
    const int64_t j_end = std::min(tile.j + tile_, columns());
    if (measure_ == RowMeasure::angle) return add_angles(tile, i_end, j_end, buffer);
    const auto& pair_sums = isa_.pair_sums[measure_ == RowMeasure::divergence ? 0 : 1];
    const int64_t length = rows_ * padded();
    const int64_t columns_at_once = tile_ > kSmallTile ? kColumns : pair_sums.columns;
    for (int64_t k = 0; k < length; k += columns_at_once)
      for (int64_t i = tile.i; i < i_end; i += pair_sums.rows) {
        const int64_t j = symmetric() ? std::max(i, tile.j) : tile.j;
        if (j >= j_end) continue;
        pair_sums.add(buffer + i * stride_ + k, std::min(pair_sums.rows, i_end - i),
                      buffer + layer_of(j) * stride_ + k, j_end - j, stride_,
                      std::min(columns_at_once, length - k), &result_.sums[i * columns() + j],
                      columns());
      }
  }

  void add_angles(const Tile& tile, int64_t i_end, int64_t j_end, const double* buffer) {
    const auto& products = isa_.pair_sums[1];
    const int64_t count_j = j_end - tile.j;
    std::vector<double> cosines((i_end - tile.i) * count_j);
    for (int64_t r = 0; r < rows_; r++) {
      std::fill(cosines.begin(), cosines.end(), 0.0);
      const double* const row = buffer + r * padded();
      for (int64_t k = 0; k < padded(); k += products.columns)
        for (int64_t i = tile.i; i < i_end; i += products.rows)
          products.add(row + i * stride_ + k, std::min(products.rows, i_end - i),
                       row + layer_of(tile.j) * stride_ + k, count_j, stride_,
                       std::min(products.columns, padded() - k), &cosines[(i - tile.i) * count_j],
                       count_j);
      for (int64_t i = tile.i; i < i_end; i++)
        for (int64_t j = symmetric() ? std::max(i, tile.j) : tile.j; j < j_end; j++)
          if (some_[i * rows_ + r] && some_[layer_of(j) * rows_ + r]) {
            const double cosine = cosines[(i - tile.i) * count_j + j - tile.j];
            result_.sums[i * columns() + j] +=
                std::acos(std::clamp(cosine, -1.0, 1.0)) * std::numbers::inv_pi;
          }
    }
  }

  // F of every layer, where it is no pair of the result.
  void add_own(const double* buffer) {
    const auto& mixtures = isa_.pair_sums[0];
    const int64_t length = rows_ * padded();
    parallel_tasks(rt_, int64_t(own_.size()), [&](int64_t layer, int) {
      const double* const row = buffer + layer * stride_;
      for (int64_t k = 0; k < length; k += mixtures.columns)
        mixtures.add(row + k, 1, row + k, 1, 0, std::min(mixtures.columns, length - k),
                     &own_[layer], 0);
    });
  }

  void add_counts() {
    std::vector<int64_t> zeros(layers_.size());
    for (size_t l = 0; l < layers_.size(); l++) {
      const auto begin = some_.begin() + int64_t(l) * rows_;
      zeros[l] = std::count(begin, begin + rows_, uint8_t(0));
      result_.zeros[l] += zeros[l];
    }
    for (int64_t i = 0; i < problem_.rows(); i++)
      for (int64_t j = symmetric() ? i : 0; j < columns(); j++) {
        const int64_t y = layer_of(j);
        int64_t both = rows_ - zeros[i] - zeros[y];
        if (zeros[i] > 0 && zeros[y] > 0)
          for (int64_t r = 0; r < rows_; r++)
            both += !some_[i * rows_ + r] && !some_[y * rows_ + r];
        result_.counts[i * columns() + j] += double(both);
      }
  }

  void turn_into_divergences() {
    const std::vector<double> mixtures = result_.sums;
    const auto own = [&](int64_t layer) {
      return own_.empty() ? mixtures[layer * columns() + layer] : own_[layer];
    };
    for (int64_t i = 0; i < problem_.rows(); i++)
      for (int64_t j = 0; j < columns(); j++) {
        double& sum = result_.sums[i * columns() + j];
        sum = ((own(i) + own(layer_of(j))) / 2 - sum) / std::numbers::ln2;
      }
  }

  void mirror() {
    for (auto* grid : {&result_.sums, &result_.counts})
      for (int64_t i = 0; i < columns(); i++)
        for (int64_t j = 0; j < i; j++) (*grid)[i * columns() + j] = (*grid)[j * columns() + i];
  }

  static constexpr int64_t kLine = 64 / sizeof(double);

  const LayersProblem& problem_;
  const RowMeasure measure_;
  const Runtime& rt_;
  const IsaTable<double>& isa_ = isa_table<double>();
  const NeighboursTable& rows_table_ = neighbours_table();
  std::vector<LayerView> layers_;  // of x, then of y
  std::vector<Tile> tiles_;
  int64_t tile_ = 0;           // layers on either side of a tile
  int64_t rows_ = 0;           // of the chunk
  int64_t stride_ = 0;         // entries of the buffer from a layer to the next
  std::vector<uint8_t> some_;  // [layers, rows_]: not a row of zeros
  std::vector<double> own_;    // F of the layers
  RowPairs result_;
};

}  // namespace

RowPairs row_pairs(const LayersProblem& problem, RowMeasure measure, int64_t max_memory,
                   const Runtime& rt) {
  return RowPass(problem, measure, rt).run(max_memory);
}

}  // namespace simcore::cpu
