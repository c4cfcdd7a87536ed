// Plans and runs attention similarity: chunks of packed rows, their pairs, the grid. Kernels in
// attention.cuh.
#include "cuda/attention/attention.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cuda/attention/attention.cuh"
#include "cuda/base/arena.h"

namespace simcore::cuda {
namespace {

constexpr int64_t kTermDepth = 128;
// Blocks of contract per multiprocessor: logarithms take long, others should go on meanwhile.
constexpr int64_t kBlocksPerMultiprocessor = 4;
constexpr int kSmallTile = 48;
constexpr double kLn2 = 0.6931471805599453;

bool in_float64(const AttentionProblem& problem) {
  for (const auto* side : {&problem.x, &problem.y})
    for (const AttentionLayer& layer : *side)
      for (const AttentionView& view : layer)
        if (view.dtype == DType::f64) return true;
  return false;
}

struct AttentionSizes {
  int64_t count_x, count_y, rows, heads;  // layers; heads of the result's rows, all heads
  bool symmetric, by_sentence, selves;

  AttentionSizes(const AttentionProblem& problem, const AttentionTables& tables)
      : count_x(int64_t(problem.x.size())),
        count_y(int64_t(problem.y.size())),
        rows(tables.first_head[problem.x.size()]),
        heads(int64_t(tables.heads.size())),
        symmetric(problem.y.empty()),
        by_sentence(problem.measure == AttentionMeasure::frobenius),
        selves(problem.measure == AttentionMeasure::js && !problem.y.empty()) {}
  PairBlock pairs() const {
    return symmetric ? PairBlock{0, heads, 0, heads, true}
                     : PairBlock{0, rows, rows, heads - rows, false};
  }
};

template <typename T>
struct AttentionBuffers {
  T* packed;             // [heads][entries]
  double* sums;          // [shares][rows][columns]
  double* roots;         // frobenius: [rows][columns]
  double* similarities;  // [rows][columns]
  double* selves;
  int64_t bytes;

  AttentionBuffers(const AttentionSizes& s, const AttentionPlan& plan, void* workspace) {
    Arena arena(workspace);
    const PairBlock pairs = s.pairs();
    sums = arena.take<double>(plan.shares * pairs.rows * pairs.columns);
    roots = s.by_sentence ? arena.take<double>(pairs.rows * pairs.columns) : nullptr;
    similarities = arena.take<double>(pairs.rows * pairs.columns);
    selves = s.selves ? arena.take<double>(plan.shares * s.heads) : nullptr;
    packed = arena.take<T>(s.heads * plan.entries);
    bytes = arena.used();
  }
};

template <typename T>
class AttentionRun {
 public:
  AttentionRun(const AttentionProblem& problem, const AttentionTables& tables,
               const DeviceTables& on_device, const AttentionPlan& plan, void* workspace,
               const AttentionOutput& output, cudaStream_t stream)
      : problem_(problem),
        tables_(tables),
        on_device_(on_device),
        plan_(plan),
        sizes_(problem, tables),
        output_(output),
        stream_(stream),
        buffers_(sizes_, plan, workspace),
        pairs_(sizes_.pairs()) {}

  void run() {
    clear(buffers_.sums, plan_.shares * pairs_.rows * pairs_.columns, stream_);
    if (sizes_.by_sentence) clear(buffers_.roots, pairs_.rows * pairs_.columns, stream_);
    if (sizes_.selves) clear(buffers_.selves, plan_.shares * sizes_.heads, stream_);
    clear(output_.bad, kBadCounts * (sizes_.count_x + sizes_.count_y), stream_);
    for (int64_t row = 0, sentence = 0; row < tables_.rows();) {
      const PackedChunk chunk = chunk_from(row, sentence);
      pack(chunk);
      add(chunk);
      row += chunk.rows;
      const bool ends = row == tables_.sentences[size_t(chunk.end_sentence)].first_row;
      sentence = chunk.end_sentence - !ends;
      if (sizes_.by_sentence && ends)
        launch("close_sentence", close_sentence,
               {ceil_div(pairs_.rows * pairs_.columns, kPackThreads)}, kPackThreads, stream_,
               buffers_.sums, plan_.shares, pairs_.rows * pairs_.columns, buffers_.roots);
    }
    finish();
  }

 private:
  // Returns as many rows from `row` on, which is of `sentence`, as plan.entries has room for.
  PackedChunk chunk_from(int64_t row, int64_t sentence) const {
    const AttentionSentence& first = tables_.sentences[size_t(sentence)];
    const int64_t end = sizes_.by_sentence ? sentence + 1 : int64_t(problem_.x[0].size());
    PackedChunk chunk{row, 0, sentence, sentence, first.offset_of(row), 0};
    for (int64_t left = 0; left == 0 && chunk.end_sentence < end;) {
      const AttentionSentence& s = tables_.sentences[size_t(chunk.end_sentence)];
      left = s.first_row + s.words - row - chunk.rows;
      const int64_t fit = at_most(left, (plan_.entries - chunk.entries) / s.words);
      if (fit == 0) break;
      chunk.end_sentence++;
      chunk.rows += fit;
      chunk.entries += fit * s.words;
      left -= fit;
    }
    chunk.entries = round_to(chunk.entries, PlainProduct<T>::kDepth);
    return chunk;
  }

  void pack(const PackedChunk& chunk) {
    launch("pack_heads", pack_heads<T>, {ceil_div(chunk.rows, kPackWarps), sizes_.heads},
           kPackThreads, stream_, on_device_, int64_t(problem_.x[0].size()), chunk,
           problem_.measure, problem_.causal, buffers_.packed, output_.bad);
  }

  template <typename Term>
  void contract_with(const PackedChunk& chunk) {
    if (plan_.tile == kSmallTile)
      contract_tiles<PlainProduct<T, Term, kSmallTile>>(chunk);
    else
      contract_tiles<PlainProduct<T, Term>>(chunk);
  }
  template <typename Product>
  void contract_tiles(const PackedChunk& chunk) {
    using Heads = Panel<typename Product::Rows>;
    launch("contract", contract<Product, Heads>, {pairs_.tiles(Product::kTile), shares(chunk)},
           Product::kThreads, stream_, Heads{buffers_.packed, chunk.entries}, chunk.entries,
           kTermDepth, pairs_, buffers_.sums);
  }
  int64_t shares(const PackedChunk& chunk) const {
    return at_most(plan_.shares, ceil_div(chunk.entries, kTermDepth));
  }

  void add(const PackedChunk& chunk) {
    if (problem_.measure == AttentionMeasure::js) contract_with<Mixture>(chunk);
    if (problem_.measure == AttentionMeasure::frobenius) contract_with<SquaredDifference>(chunk);
    if (sizes_.selves)
      launch("self_terms", self_terms<T, Mixture>,
             {ceil_div(sizes_.heads, kSelfHeads), shares(chunk)}, kSelfHeads, stream_,
             buffers_.packed, sizes_.heads, chunk.entries, kTermDepth, buffers_.selves);
  }

  void finish() {
    const bool roots = sizes_.by_sentence;
    const HeadPairSums sums{roots ? buffers_.roots : buffers_.sums,
                            buffers_.selves,
                            roots ? 1 : plan_.shares,
                            pairs_.rows,
                            pairs_.columns,
                            sizes_.symmetric,
                            problem_.measure,
                            problem_.measure == AttentionMeasure::js ? kLn2 : 1.0,
                            double(roots ? int64_t(problem_.x[0].size()) : tables_.rows())};
    const int64_t columns = sizes_.symmetric ? sizes_.count_x : sizes_.count_y;
    launch("head_similarities", head_similarities,
           {ceil_div(pairs_.rows * pairs_.columns, kPackThreads)}, kPackThreads, stream_, sums,
           buffers_.similarities);
    launch("layer_grid", layer_grid, {sizes_.count_x * columns}, kGridThreads, stream_,
           buffers_.similarities, pairs_.columns, on_device_.first_head, columns,
           sizes_.symmetric ? int64_t(0) : sizes_.count_x, pairs_.column0, output_.grid);
  }

  const AttentionProblem& problem_;
  const AttentionTables& tables_;
  const DeviceTables& on_device_;
  const AttentionPlan& plan_;
  AttentionSizes sizes_;
  const AttentionOutput& output_;
  cudaStream_t stream_;
  AttentionBuffers<T> buffers_;
  PairBlock pairs_;
};

// Returns the side of a tile with which the fewest pairs are computed: heads of the last tiles that
// do not exist cost as much as others.
int64_t best_tile(const PairBlock& pairs) {
  constexpr int64_t large = PlainProduct<float>::kTile;
  const auto computed = [&](int64_t side) { return pairs.tiles(side) * side * side; };
  return computed(kSmallTile) < computed(large) ? kSmallTile : large;
}

int64_t bytes_for(const AttentionSizes& sizes, const AttentionPlan& plan) {
  return plan.float64 ? AttentionBuffers<double>(sizes, plan, nullptr).bytes
                      : AttentionBuffers<float>(sizes, plan, nullptr).bytes;
}

}  // namespace

AttentionTables::AttentionTables(const AttentionProblem& problem) {
  int64_t layer = 0;
  for (const auto* side : {&problem.x, &problem.y})
    for (const AttentionLayer& of_layer : *side) {
      views.insert(views.end(), of_layer.begin(), of_layer.end());
      first_head.push_back(int64_t(heads.size()));
      for (int64_t h = 0; h < of_layer[0].heads; h++) heads.push_back({layer, h});
      layer++;
    }
  first_head.push_back(int64_t(heads.size()));
  int64_t row = 0, offset = 0;
  for (const AttentionView& sentence : problem.x[0]) {
    sentences.push_back({sentence.words, row, offset});
    row += sentence.words;
    offset += sentence.words * sentence.words;
  }
  sentences.push_back({0, row, offset});
}

AttentionPlan make_plan(const AttentionProblem& problem, const AttentionTables& tables,
                        const Device& device) {
  if (problem.measure == AttentionMeasure::pearson)
    throw std::invalid_argument(
        "measure: wanted 'js' or 'frobenius' for the kernels of a CUDA device");
  const AttentionSizes sizes(problem, tables);
  if (sizes.heads > kMaxGridY)
    throw std::invalid_argument("A, B: wanted at most " + std::to_string(kMaxGridY) +
                                " heads in all on a CUDA device, got " +
                                std::to_string(sizes.heads));
  constexpr int64_t depth = PlainProduct<float>::kDepth;
  AttentionPlan plan;
  plan.float64 = in_float64(problem);
  int64_t longest = 0;
  for (const AttentionSentence& s : tables.sentences) longest = std::max(longest, s.words);
  const int64_t entry = sizes.heads * (plan.float64 ? 8 : 4);
  const int64_t least = round_to(longest, depth);
  plan.entries = std::clamp(device.l2_bytes / 2 / entry / depth * depth, least,
                            std::max(least, round_to(tables.sentences.back().offset, depth)));
  plan.tile = best_tile(sizes.pairs());
  const int64_t tiles = sizes.pairs().tiles(plan.tile);
  plan.shares = std::clamp<int64_t>(kBlocksPerMultiprocessor * device.multiprocessors / tiles, 1,
                                    std::min(ceil_div(plan.entries, kTermDepth), kMaxGridY));
  while ((plan.workspace_bytes = bytes_for(sizes, plan)) > problem.max_memory) {
    if (plan.shares > 1)
      plan.shares = ceil_div(plan.shares, 2);
    else if (plan.entries > least)
      plan.entries = std::max(least, plan.entries / 2 / depth * depth);
    else
      throw std::invalid_argument(
          "max_memory: wanted at least " + std::to_string(plan.workspace_bytes) +
          " bytes for one row of every head, got " + std::to_string(problem.max_memory));
  }
  return plan;
}

void attention_similarity(const AttentionProblem& problem, const AttentionTables& tables,
                          const DeviceTables& on_device, const AttentionPlan& plan, void* workspace,
                          const AttentionOutput& output, cudaStream_t stream) {
  if (plan.float64)
    AttentionRun<double>(problem, tables, on_device, plan, workspace, output, stream).run();
  else
    AttentionRun<float>(problem, tables, on_device, plan, workspace, output, stream).run();
}

}  // namespace simcore::cuda
