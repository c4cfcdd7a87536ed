// Similarity of attention heads: sums over all pairs of heads of all layers at once.
//
// Math      core/math/attention_math.h. All three measures add up one number per pair of heads and
//           weight: m log m, u v or (p - q)^2. A head is therefore one long row, the rows of its
//           attention one after the other. The word that a weight belongs to no longer matters;
//           only frobenius needs the ends of sentences, where it takes a root.
// Shapes    heads of x, then of y: N in all; a chunk of rows is packed as [N, columns] in T.
// Plan      for each chunk of rows (words) that fits into the buffer:
//             one task per layer and some of the rows: convert, renormalise (causal), and halve
//             (js: F of the mixture is then F(p + q)) or centre and scale to unit length (pearson)
//             one task per tile of heads: all its pairs, some columns at a time, so that the
//             tile's rows stay in L1 (js) or L2 (the others, which keep 4 x 4 sums in registers)
//           x with itself: pairs g >= h only. js against y needs F of every single head too.
//           For causal attention js and frobenius pack the lower triangle alone; for pearson the
//           zeros above it count, as in the twin.
// Cost      N^2 / 2 * sum_s t_s^2 terms; js: 17 vector operations a term, bound by arithmetic.
//           pearson and frobenius: the floor is a multiply-add a term at the rate of matrix
//           products. 144 heads, 200 sentences of 32 words, one core at 115 Gflop/s: floor 37 ms.
//           Foreseen: tiles 45 ms (a tenth for the totals of a tile, a tenth below the peak), 118
//           MB read and written 15 ms, centring 15 ms: 2.0 floors for pearson, 1.6 for frobenius,
//           whose subtractions go to units of their own. A profile gave 40, 14 and 12 ms; sums of
//           one pair at a time, bound by their two loads a term, took 5 floors in all.
//           The inputs are read once, and once more for the message if something is wrong.
// Numerics  T is float64 as soon as one layer is, else float32. Sums go to float64 every
//           PairSums::columns columns, in the order of the columns: a pair's sum is the work of
//           one task at a time, so results do not depend on the threads. JSD as a difference of
//           entropies has an absolute error near 1e-7 in float32; equal heads give exactly 1,
//           because F(a) and F(m) then come from the same numbers in the same order. frobenius
//           sums squared differences, where a product of heads would cancel.
// Twin      simcore/reference/attention.py:attention_grid
#include "cpu/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "cpu/attention/weights.h"
#include "cpu/base/buffer.h"
#include "cpu/base/memory.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kTile = 8;            // heads on either side of a tile of pairs
constexpr int64_t kProductTile = 24;    // not js: fewer reads of L2 if there are tiles enough
constexpr int64_t kTasksPerThread = 8;  // at least, so that threads end together
// Bytes of a chunk: enough columns that the tasks of a chunk outweigh its two barriers, and few
// enough that the chunk stays in L3.
constexpr int64_t kMixtureBytes = 16ll << 20, kProductBytes = 4ll << 20;

struct Row {
  int64_t sentence, word;
  int64_t length;  // columns that are packed
  int64_t offset;  // in its chunk
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

template <typename T>
class AttentionPass {
 public:
  AttentionPass(const AttentionProblem& problem, const Runtime& rt)
      : problem_(problem),
        rt_(rt),
        isa_(isa_table<T>()),
        measure_(problem.measure),
        pair_sums_(isa_.pair_sums[int(measure_)]),
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
      if (flawed_) refuse_bad_weights<T>(problem_, rt_);
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
  static constexpr int64_t kLine = 64 / sizeof(T);
  struct Tile {  // heads from h on of the result's rows against those from g on of its columns
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
    tile_ = measure_ == AttentionMeasure::js ? kTile : kProductTile;
    list_tiles_of(tile_);
    if (int64_t(tiles_.size()) < kTasksPerThread * rt_.threads) list_tiles_of(tile_ = kTile);
  }

  void list_tiles_of(int64_t tile) {
    tiles_.clear();
    for (int64_t h = 0; h < rows_end_; h += tile)
      for (int64_t g = symmetric() ? h : 0; g < columns(); g += tile) tiles_.push_back({h, g});
  }

  // Returns the number of columns of the buffer, which is the stride of its rows. Every allocated
  // byte is counted here.
  int64_t plan_capacity() const {
    const int64_t limit = memory_bound(problem_.max_memory);
    int64_t longest = 0;
    for (const Row& row : rows_) longest = std::max(longest, round_to(row.length, isa_.width));
    const int64_t segments = by_sentence_ ? int64_t(problem_.x[0].size()) : 1;
    const int64_t fixed = rows_end_ * columns() * int64_t(sizeof(double)) * (by_sentence_ ? 2 : 1) +
                          int64_t(heads_.size() * (sizeof(Head) + sizeof(double))) +
                          2 * int64_t(rows_.size() * sizeof(Row) + tiles_.size() * sizeof(Tile)) +
                          2 * segments * int64_t(sizeof(Segment));
    const int64_t column = int64_t(heads_.size() * sizeof(T));
    const int64_t least = fixed + buffer_bytes(stride_of(longest) * column);
    if (least > limit)
      throw std::invalid_argument("max_memory: wanted at least " + std::to_string(least) +
                                  " bytes for one row of every head, got " + std::to_string(limit));
    // buffer_bytes rounds up to whole huge pages: the plan holds one huge page back.
    const int64_t wanted = measure_ == AttentionMeasure::js ? kMixtureBytes : kProductBytes;
    const int64_t bytes = std::min(wanted, limit - fixed - kHugePage);
    return std::max(stride_of(longest), stride_of(bytes / column - 2 * kLine + 1));
  }

  // Returns the stride of the heads' rows in the buffer: an odd number of cache lines. The rows of
  // a tile are read at the same column, and would otherwise meet in a few sets and banks of L1.
  static int64_t stride_of(int64_t columns) {
    const int64_t lines = (columns + kLine - 1) / kLine;
    return (lines | 1) * kLine;
  }

  // Returns the chunk of rows from `first` on that fits, at least one row, with the rows' offsets
  // set.
  Chunk next_chunk(int64_t first, int64_t capacity) {
    Chunk chunk{first, first, {}};
    int64_t begin = 0, end = 0;
    while (chunk.last < int64_t(rows_.size())) {
      Row& row = rows_[chunk.last];
      if (round_to(end + row.length, isa_.width) > capacity) break;
      row.offset = end;
      end += row.length;
      chunk.last++;
      if (by_sentence_ && ends_sentence(chunk.last)) {
        end = round_to(end, isa_.width);
        chunk.segments.push_back({begin, end, true});
        begin = end;
      }
    }
    if (begin < end) chunk.segments.push_back({begin, round_to(end, isa_.width), false});
    return chunk;
  }

  bool ends_sentence(int64_t row) const {
    return row == int64_t(rows_.size()) || rows_[row].sentence != rows_[row - 1].sentence;
  }

  void pack(const Chunk& chunk, T* buffer) {
    const int64_t layers = int64_t(first_head_.size()) - 1, rows = chunk.last - chunk.first;
    const int64_t parts = std::min(rows, (kTasksPerThread * rt_.threads + layers - 1) / layers);
    const int refused = measure_ == AttentionMeasure::js ? kNotFinite | kNegative : kNotFinite;
    parallel_tasks(rt_, layers * parts, [&](int64_t task, int) {
      const int64_t part = task % parts;
      const int found = pack_layer(chunk, task / parts, chunk.first + rows * part / parts,
                                   chunk.first + rows * (part + 1) / parts, buffer);
      if (found & refused) flawed_ = true;
    });
  }

  // Packs rows [first, end) of all heads of a layer sentence by sentence, because the heads of a
  // sentence lie together. Returns the IsaTable::flaws of these rows.
  int pack_layer(const Chunk& chunk, int64_t layer, int64_t first, int64_t end, T* buffer) const {
    int found = 0;
    for (int64_t last = first; first < end; first = last) {
      while (last < end && rows_[last].sentence == rows_[first].sentence) last++;
      const int64_t filled = rows_[last - 1].offset + rows_[last - 1].length;
      const int64_t next = last < chunk.last ? rows_[last].offset : chunk.columns();
      for (int64_t h = first_head_[layer]; h < first_head_[layer + 1]; h++) {
        T* const out = buffer + h * stride_of(chunk.columns());
        found |= pack_rows(heads_[h], first, last, out + rows_[first].offset);
        std::fill(out + filled, out + next, T(0));
      }
    }
    return found;
  }

  // Packs rows [first, last) of one sentence and returns their IsaTable::flaws.
  int pack_rows(const Head& head, int64_t first, int64_t last, T* out) const {
    const AttentionView& view = (*head.layer)[rows_[first].sentence];
    const int64_t words = view.words,
                  count = rows_[last - 1].offset + rows_[last - 1].length - rows_[first].offset;
    int found = 0;
    if (problem_.causal) {
      for (int64_t r = first; r < last; r++)
        found |= pack_causal_row(head, rows_[r], out + rows_[r].offset - rows_[first].offset);
    } else {
      const bool adjacent = view.col_stride == 1 && view.row_stride == words;
      const int64_t together = adjacent ? count : words;
      for (int64_t k = 0; k < count; k += together)
        load_weights(view, head.index, rows_[first].word + k / words, 0, together, out + k);
      found = isa_.flaws(out, count);
    }
    if (measure_ == AttentionMeasure::js)
      for (int64_t k = 0; k < count; k++) out[k] *= T(0.5);
    if (measure_ == AttentionMeasure::pearson) isa_.unit_rows(out, last - first, words);
    return found;
  }

  int pack_causal_row(const Head& head, const Row& row, T* out) const {
    const int64_t counted = row.word + 1;
    load_weights((*head.layer)[row.sentence], head.index, row.word, 0, counted, out);
    const int found = isa_.flaws(out, counted);
    renormalise(out, counted);
    std::fill(out + counted, out + row.length, T(0));
    return found;
  }

  static void renormalise(T* row, int64_t count) {
    double total = 0;
    for (int64_t k = 0; k < count; k++) total += double(row[k]);
    if (!(total > 0)) return std::fill(row, row + count, T(0));
    for (int64_t k = 0; k < count; k++) row[k] = T(double(row[k]) / total);
  }

  void add(const Chunk& chunk, const T* buffer) {
    parallel_tasks(rt_, int64_t(tiles_.size()),
                   [&](int64_t t, int) { add_tile(chunk, buffer, tiles_[t]); });
    if (!needs_self()) return;
    parallel_tasks(rt_, int64_t(heads_.size()), [&](int64_t h, int) {
      const T* row = buffer + h * stride_of(chunk.columns());
      for_blocks(chunk.segments[0], [&](int64_t begin, int64_t count) {
        pair_sums_.add(row + begin, 1, row + begin, 1, 0, count, &self_[h], 0);
      });
    });
  }

  void add_tile(const Chunk& chunk, const T* buffer, const Tile& tile) {
    const int64_t stride = stride_of(chunk.columns());
    const int64_t h_end = std::min(tile.h + tile_, rows_end_);
    const int64_t g_end = std::min(tile.g + tile_, columns());
    double* out = by_sentence_ ? squares_.data() : sums_.data();
    for (const Segment& segment : chunk.segments) {
      for_blocks(segment, [&](int64_t begin, int64_t count) {
        for (int64_t h = tile.h; h < h_end; h += pair_sums_.rows) {
          const int64_t g = symmetric() ? std::max(h, tile.g) : tile.g;
          pair_sums_.add(buffer + h * stride + begin, std::min(pair_sums_.rows, h_end - h),
                         buffer + (columns_begin_ + g) * stride + begin, g_end - g, stride, count,
                         out + h * columns() + g, columns());
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
  void for_blocks(const Segment& segment, const Body& body) const {
    for (int64_t begin = segment.begin; begin < segment.end; begin += pair_sums_.columns)
      body(begin, std::min(pair_sums_.columns, segment.end - begin));
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
  const typename IsaTable<T>::PairSums& pair_sums_;
  const bool by_sentence_;
  std::vector<Head> heads_;          // of x, then of y
  std::vector<int64_t> first_head_;  // [layers + 1]
  int64_t rows_end_ = 0;             // heads [0, rows_end_) are the rows of sums_,
  int64_t columns_begin_ = 0;        // heads [columns_begin_, N) its columns
  std::vector<Row> rows_;
  int64_t tile_ = 0;  // heads on either side of a tile
  std::vector<Tile> tiles_;
  std::atomic<bool> flawed_{false};
  std::vector<double> sums_;     // [rows, columns]; x with itself: g >= h
  std::vector<double> squares_;  // frobenius: of the sentence in progress
  std::vector<double> self_;     // js against y: F of each head
};

template <typename T>
std::vector<double> similarity(const AttentionProblem& problem, const Runtime& rt) {
  return AttentionPass<T>(problem, rt).run();
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
