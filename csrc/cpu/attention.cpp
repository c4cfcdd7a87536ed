// Similarity of attention heads: sums over all pairs of heads of all layers at once.
//
// Math      core/attention_math.h. All three measures add up one number per pair of heads and
//           weight: m log m, u v or (p - q)^2. So a head is one long row, the rows of its attention
//           one after the other, and which word a weight belongs to matters no more (js, pearson),
//           or only where a sentence ends and the root is taken (frobenius).
// Shapes    heads of x, then of y: N in all; a chunk of rows is packed as [N, columns] in T.
// Plan      for each chunk of rows (words) that fits into the buffer:
//             one task per head: convert, renormalise (causal), and halve (js: F of the mixture is
//             then F(p + q)) or centre and scale to unit length (pearson)
//             one task per tile of kTile x kTile heads: all its pairs, kMaxPairColumns at a time,
//             so that the tile's rows stay in L1
//           x with itself: pairs g >= h only. js against y needs F of every single head too.
//           For causal attention js and frobenius pack the lower triangle alone; for pearson the
//           zeros above it count, as in the twin.
// Cost      N^2 / 2 * sum_s t_s^2 terms; js: 17 vector operations a term, bound by arithmetic.
//           The inputs are read twice (once for the check).
// Numerics  T is float64 as soon as one layer is, else float32. Sums go to float64 every
//           kMaxPairColumns columns, in the order of the columns: a pair's sum is the work of one
//           task at a time, so results do not depend on the threads. JSD as a difference of
//           entropies has an absolute error near 1e-7 in float32; equal heads give exactly 1,
//           because F(a) and F(m) then come from the same numbers in the same order.
// Twin      simcore/reference/attention.py:attention_grid
#include "cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "cpu/grid.h"
#include "cpu/memory.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kTile = 8;
// Enough columns that the tasks of a chunk outweigh its two barriers; still within L3.
constexpr int64_t kChunkBytes = 16ll << 20;
// Centred rows below this length count as constant: one repeated value may leave rounding errors.
constexpr double kConstantRow = 1e-12;

struct Row {
  int64_t sentence, word;
  int64_t length;  // columns that are packed
  int64_t offset;  // in the chunk that it belongs to
};

// Columns [begin, end) of a chunk, end a multiple of the vector width.
struct Segment {
  int64_t begin, end;
  bool closes;  // the sentence ends here
};

struct Chunk {
  int64_t first, last;  // rows
  std::vector<Segment> segments;
  int64_t columns() const { return segments.back().end; }
};

// out[k] = weight of word `row` on word col + k.
template <typename T>
void load_weights(const AttentionView& view, int64_t head, int64_t row, int64_t col, int64_t count,
                  T* out) {
  const int64_t offset = head * view.head_stride + row * view.row_stride + col * view.col_stride;
  isa_table<T>().load(static_cast<const char*>(view.data) + offset * bytes_of(view.dtype),
                      view.dtype, view.col_stride, count, out);
}

template <typename T>
class AttentionPass {
 public:
  AttentionPass(const AttentionProblem& problem, const Runtime& rt)
      : problem_(problem),
        rt_(rt),
        isa_(isa_table<T>()),
        measure_(problem.measure),
        by_sentence_(problem.measure == AttentionMeasure::frobenius) {
    for (const auto* side : {&problem.x, &problem.y})
      for (const AttentionLayer& layer : *side) {
        first_head_.push_back(int64_t(heads_.size()));
        for (int64_t h = 0; h < layer[0].heads; h++) heads_.push_back({&layer, h});
      }
    first_head_.push_back(int64_t(heads_.size()));
    rows_end_ = first_head_[problem.x.size()];
    columns_begin_ = problem.y.empty() ? 0 : rows_end_;
    list_rows();
    list_tiles();
  }

  std::vector<double> run() {
    const int64_t capacity = plan_capacity();
    sums_.assign(rows_end_ * columns(), 0.0);
    if (by_sentence_) squares_.assign(sums_.size(), 0.0);
    if (needs_self()) self_.assign(heads_.size(), 0.0);
    const Buffer<T> buffer(int64_t(heads_.size()) * capacity);
    for (int64_t row = 0; row < int64_t(rows_.size());) {
      const Chunk chunk = next_chunk(row, capacity);
      pack(chunk, buffer.data());
      add(chunk, buffer.data());
      row = chunk.last;
      if (rt_.progress) rt_.progress(double(row) / double(rows_.size()));
    }
    return layer_similarities();
  }

 private:
  struct Head {
    const AttentionLayer* layer;
    int64_t index;
  };
  struct Tile {  // heads [h, h + kTile) of the result's rows against [g, g + kTile) of its columns
    int64_t h, g;
  };

  bool symmetric() const { return problem_.y.empty(); }
  int64_t columns() const { return int64_t(heads_.size()) - columns_begin_; }
  bool needs_self() const { return measure_ == AttentionMeasure::js && !symmetric(); }

  void list_rows() {
    const bool triangle = problem_.causal && measure_ != AttentionMeasure::pearson;
    for (int64_t s = 0; s < int64_t(problem_.x[0].size()); s++) {
      const int64_t words = problem_.x[0][s].words;
      for (int64_t i = 0; i < words; i++) rows_.push_back({s, i, triangle ? i + 1 : words, 0});
    }
  }

  void list_tiles() {
    for (int64_t h = 0; h < rows_end_; h += kTile)
      for (int64_t g = symmetric() ? h : 0; g < columns(); g += kTile) tiles_.push_back({h, g});
  }

  // Columns of the buffer. Every byte that is allocated is counted here.
  int64_t plan_capacity() const {
    const int64_t limit = memory_bound(problem_.max_memory);
    int64_t longest = 0;
    for (const Row& row : rows_) longest = std::max(longest, round_up(row.length, isa_.width));
    const int64_t segments = by_sentence_ ? int64_t(problem_.x[0].size()) : 1;
    const int64_t fixed = rows_end_ * columns() * int64_t(sizeof(double)) * (by_sentence_ ? 2 : 1) +
                          int64_t(heads_.size() * (sizeof(Head) + sizeof(double))) +
                          2 * int64_t(rows_.size() * sizeof(Row) + tiles_.size() * sizeof(Tile)) +
                          2 * segments * int64_t(sizeof(Segment));
    const int64_t column = int64_t(heads_.size() * sizeof(T));
    const int64_t least = fixed + buffer_bytes(longest * column);
    if (least > limit)
      throw std::invalid_argument("max_memory: wanted at least " + std::to_string(least) +
                                  " bytes for one row of every head, got " + std::to_string(limit));
    // buffer_bytes rounds up to whole huge pages: one is held back.
    const int64_t bytes = std::min(kChunkBytes, limit - fixed - kHugePage);
    return std::max(longest, bytes / column / isa_.width * isa_.width);
  }

  // The rows from `first` on that fit, at least one; their offsets are set.
  Chunk next_chunk(int64_t first, int64_t capacity) {
    Chunk chunk{first, first, {}};
    int64_t begin = 0, end = 0;
    while (chunk.last < int64_t(rows_.size())) {
      Row& row = rows_[chunk.last];
      if (round_up(end + row.length, isa_.width) > capacity) break;
      row.offset = end;
      end += row.length;
      chunk.last++;
      if (by_sentence_ && ends_sentence(chunk.last)) {
        end = round_up(end, isa_.width);
        chunk.segments.push_back({begin, end, true});
        begin = end;
      }
    }
    if (begin < end) chunk.segments.push_back({begin, round_up(end, isa_.width), false});
    return chunk;
  }

  bool ends_sentence(int64_t row) const {
    return row == int64_t(rows_.size()) || rows_[row].sentence != rows_[row - 1].sentence;
  }

  void pack(const Chunk& chunk, T* buffer) const {
    const int64_t stride = chunk.columns();
    parallel_tasks(rt_, int64_t(heads_.size()), [&](int64_t h, int) {
      T* out = buffer + h * stride;
      for (int64_t r = chunk.first; r < chunk.last; r++) {
        const Row& row = rows_[r];
        pack_row(heads_[h], row, out + row.offset);
        const int64_t next = r + 1 < chunk.last ? rows_[r + 1].offset : stride;
        std::fill(out + row.offset + row.length, out + next, T(0));
      }
    });
  }

  void pack_row(const Head& head, const Row& row, T* out) const {
    const AttentionView& view = (*head.layer)[row.sentence];
    const int64_t counted = problem_.causal ? row.word + 1 : view.words;
    load_weights(view, head.index, row.word, 0, counted, out);
    std::fill(out + counted, out + row.length, T(0));
    if (problem_.causal) renormalise(out, counted);
    if (measure_ == AttentionMeasure::js)
      for (int64_t k = 0; k < row.length; k++) out[k] *= T(0.5);
    if (measure_ == AttentionMeasure::pearson) to_unit_length(out, row.length);
  }

  static void renormalise(T* row, int64_t count) {
    double total = 0;
    for (int64_t k = 0; k < count; k++) total += double(row[k]);
    if (!(total > 0)) return std::fill(row, row + count, T(0));
    for (int64_t k = 0; k < count; k++) row[k] = T(double(row[k]) / total);
  }

  static void to_unit_length(T* row, int64_t count) {
    double mean = 0, square = 0;
    for (int64_t k = 0; k < count; k++) mean += double(row[k]);
    mean /= double(count);
    for (int64_t k = 0; k < count; k++) square += (double(row[k]) - mean) * (double(row[k]) - mean);
    const double scale = std::sqrt(square) > kConstantRow ? 1 / std::sqrt(square) : 0.0;
    for (int64_t k = 0; k < count; k++) row[k] = T((double(row[k]) - mean) * scale);
  }

  void add(const Chunk& chunk, const T* buffer) {
    parallel_tasks(rt_, int64_t(tiles_.size()),
                   [&](int64_t t, int) { add_tile(chunk, buffer, tiles_[t]); });
    if (!needs_self()) return;
    parallel_tasks(rt_, int64_t(heads_.size()), [&](int64_t h, int) {
      const T* row = buffer + h * chunk.columns();
      for_blocks(chunk.segments[0], [&](int64_t begin, int64_t count) {
        pair_sums(row + begin, row + begin, 0, 1, count, &self_[h]);
      });
    });
  }

  void add_tile(const Chunk& chunk, const T* buffer, const Tile& tile) {
    const int64_t stride = chunk.columns();
    const int64_t h_end = std::min(tile.h + kTile, rows_end_);
    const int64_t g_end = std::min(tile.g + kTile, columns());
    double* out = by_sentence_ ? squares_.data() : sums_.data();
    for (const Segment& segment : chunk.segments) {
      for_blocks(segment, [&](int64_t begin, int64_t count) {
        for (int64_t h = tile.h; h < h_end; h++) {
          const int64_t g = symmetric() ? std::max(h, tile.g) : tile.g;
          pair_sums(buffer + h * stride + begin, buffer + (columns_begin_ + g) * stride + begin,
                    stride, g_end - g, count, out + h * columns() + g);
        }
      });
      if (segment.closes) close_sentence(tile, h_end, g_end);
    }
  }

  void close_sentence(const Tile& tile, int64_t h_end, int64_t g_end) {
    for (int64_t h = tile.h; h < h_end; h++)
      for (int64_t g = tile.g; g < g_end; g++) {
        sums_[h * columns() + g] += std::sqrt(squares_[h * columns() + g]);
        squares_[h * columns() + g] = 0;
      }
  }

  template <typename Body>
  static void for_blocks(const Segment& segment, const Body& body) {
    for (int64_t begin = segment.begin; begin < segment.end; begin += kMaxPairColumns)
      body(begin, std::min(kMaxPairColumns, segment.end - begin));
  }

  void pair_sums(const T* p, const T* q, int64_t q_stride, int64_t rows, int64_t count,
                 double* sums) const {
    isa_.pair_sums[int(measure_)](p, q, q_stride, rows, count, sums);
  }

  // h: a head of the result's rows; g: of its columns.
  double head_to_head(int64_t h, int64_t g) const {
    if (symmetric() && g < h) std::swap(h, g);
    const double count = by_sentence_ ? double(problem_.x[0].size()) : double(rows_.size());
    HeadSums s{sums_[h * columns() + g], 0, 0};
    if (measure_ == AttentionMeasure::js) {
      s.self_a = symmetric() ? sums_[h * columns() + h] : self_[h];
      s.self_b = symmetric() ? sums_[g * columns() + g] : self_[columns_begin_ + g];
    }
    return head_similarity(measure_, s, count);
  }

  std::vector<double> layer_similarities() const {
    const int64_t count_x = int64_t(problem_.x.size());
    const int64_t first_y = symmetric() ? 0 : count_x;
    const int64_t count_y = int64_t(first_head_.size()) - 1 - first_y;
    std::vector<double> result(count_x * count_y);
    parallel_tasks(rt_, count_x, [&](int64_t a, int) {
      for (int64_t b = 0; b < count_y; b++) {
        double total = 0;
        for (int64_t h = first_head_[a]; h < first_head_[a + 1]; h++) {
          double best = -std::numeric_limits<double>::infinity();
          for (int64_t g = first_head_[first_y + b]; g < first_head_[first_y + b + 1]; g++)
            best = std::max(best, head_to_head(h, g - columns_begin_));
          total += best;
        }
        result[a * count_y + b] = total / double(first_head_[a + 1] - first_head_[a]);
      }
    });
    return result;
  }

  const AttentionProblem& problem_;
  const Runtime& rt_;
  const IsaTable<T>& isa_;
  const AttentionMeasure measure_;
  const bool by_sentence_;
  std::vector<Head> heads_;          // of x, then of y
  std::vector<int64_t> first_head_;  // [layers + 1]
  int64_t rows_end_ = 0;             // heads [0, rows_end_) are the rows of sums_,
  int64_t columns_begin_ = 0;        // heads [columns_begin_, N) its columns
  std::vector<Row> rows_;
  std::vector<Tile> tiles_;
  std::vector<double> sums_;     // [rows, columns]; x with itself: g >= h
  std::vector<double> squares_;  // frobenius: of the sentence in progress
  std::vector<double> self_;     // js against y: F of each head
};

struct BadWeights {
  int64_t nonfinite = 0, negative = 0, total = 0;
};

// What measures cannot be computed from, among the weights that count.
template <typename T>
BadWeights inspect(const AttentionView& view, bool causal) {
  BadWeights found;
  T block[kMaxPairColumns];
  for (int64_t h = 0; h < view.heads; h++)
    for (int64_t i = 0; i < view.words; i++) {
      const int64_t columns = causal ? i + 1 : view.words;
      for (int64_t k = 0; k < columns; k += kMaxPairColumns) {
        const int64_t count = std::min(kMaxPairColumns, columns - k);
        load_weights(view, h, i, k, count, block);
        int32_t nonfinite = 0, negative = 0;
        for (int64_t j = 0; j < count; j++) {
          nonfinite += !(block[j] - block[j] == 0);
          negative += block[j] < 0;
        }
        found.nonfinite += nonfinite;
        found.negative += negative;
      }
      found.total += columns;
    }
  return found;
}

void refuse(const BadWeights& found, const std::string& layer, AttentionMeasure measure) {
  const std::string total = " of " + std::to_string(found.total);
  if (found.nonfinite > 0)
    throw std::invalid_argument(layer + ": wanted finite values, got " +
                                std::to_string(found.nonfinite) + " NaN or infinite" + total);
  if (found.negative > 0 && measure == AttentionMeasure::js)
    throw std::invalid_argument(layer + ": wanted no negative weights for measure 'js', got " +
                                std::to_string(found.negative) + total);
}

template <typename T>
void check_weights(const AttentionProblem& problem, const Runtime& rt) {
  const int64_t sentences = int64_t(problem.x[0].size());
  for (const auto* side : {&problem.x, &problem.y}) {
    std::vector<BadWeights> found(side->size() * sentences);
    parallel_tasks(rt, int64_t(found.size()), [&](int64_t task, int) {
      const AttentionView& view = (*side)[task / sentences][task % sentences];
      found[task] = inspect<T>(view, problem.causal);
    });
    for (int64_t l = 0; l < int64_t(side->size()); l++) {
      BadWeights layer;
      for (int64_t s = l * sentences; s < (l + 1) * sentences; s++) {
        layer.nonfinite += found[s].nonfinite;
        layer.negative += found[s].negative;
        layer.total += found[s].total;
      }
      refuse(layer, (side == &problem.x ? "A[" : "B[") + std::to_string(l) + "]", problem.measure);
    }
  }
}

template <typename T>
std::vector<double> similarity(const AttentionProblem& problem, const Runtime& rt) {
  AttentionPass<T> pass(problem, rt);
  check_weights<T>(problem, rt);
  return pass.run();
}

}  // namespace

std::vector<double> attention_similarity(const AttentionProblem& problem, const Runtime& rt) {
  bool float64 = false;
  for (const auto* side : {&problem.x, &problem.y})
    for (const AttentionLayer& layer : *side)
      for (const AttentionView& view : layer) float64 |= view.dtype == DType::f64;
  return float64 ? similarity<double>(problem, rt) : similarity<float>(problem, rt);
}

}  // namespace simcore::cpu
