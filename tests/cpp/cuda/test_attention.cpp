// attention_similarity of csrc/cuda on the host against plain double loops, also under the address
// and thread sanitizers.
//
// Mutations of a scratch copy that these tests were seen to catch
//   by wrong values     the first barrier of self_terms, the barrier of layer_grid, the zeros at
//                       the end of a chunk
//   ThreadSanitizer     the second barrier of self_terms
//   UBSan               the check of the chunk's rows in pack_heads
// Not caught: the check of heads in self_terms; without the check, zeros are added within the
// workspace.
#include "cuda/attention/attention.h"

#include <cstdlib>
#include <cstring>
#include <limits>

#include "../check.h"
#include "../naive_attention.h"
#include "cuda_runtime.h"

using naive::Attention;
using naive::DType;
using naive::kFloat32;
using naive::kFloat64;
using naive::make_attention;
using naive::problem_of;
using simcore::AttentionMeasure;
using simcore::AttentionProblem;
using simcore::cuda::AttentionPlan;
using simcore::cuda::AttentionTables;
using simcore::cuda::Device;
using simcore::cuda::kBadCounts;
using simcore::cuda::make_plan;

namespace {

constexpr int64_t kPlenty = int64_t(1) << 40;
// Pearson's correlation is composed of torch's operations.
constexpr AttentionMeasure kMeasures[] = {AttentionMeasure::js, AttentionMeasure::frobenius};

struct Result {
  std::vector<double> grid;
  std::vector<unsigned long long> bad;
  AttentionPlan plan;
};

// Output that the kernels leave untouched is nan, which no comparison passes.
Result compute(AttentionProblem problem, int64_t max_memory = kPlenty, int64_t l2_bytes = 1 << 20) {
  problem.max_memory = max_memory;
  const AttentionTables tables(problem);
  Result r{{}, {}, make_plan(problem, tables, Device{3, l2_bytes})};
  const size_t columns = problem.y.empty() ? problem.x.size() : problem.y.size();
  r.grid.assign(problem.x.size() * columns, std::numeric_limits<double>::quiet_NaN());
  r.bad.assign(size_t(kBadCounts) * (problem.x.size() + problem.y.size()), 99);
  void* workspace = std::aligned_alloc(256, size_t(r.plan.workspace_bytes));
  std::memset(workspace, 0xff, size_t(r.plan.workspace_bytes));  // nan, too
  attention_similarity(
      problem, tables,
      {tables.views.data(), tables.sentences.data(), tables.heads.data(), tables.first_head.data()},
      r.plan, workspace, {r.grid.data(), r.bad.data()}, nullptr);
  std::free(workspace);
  return r;
}

void check_against_loops(const std::vector<Attention>& x, const std::vector<Attention>& y,
                         double tolerance) {
  const auto grid = [](const AttentionProblem& problem) {
    const Result got = compute(problem);
    for (size_t i = 0; i < got.bad.size(); i++)
      CHECK(i % kBadCounts == kBadCounts - 1 || got.bad[i] == 0);  // rows sum to about 1
    return got.grid;
  };
  naive::check_against_loops(x, y, tolerance, grid, kMeasures);
}

}  // namespace

TEST(grids_match_plain_loops) {
  const std::vector<int64_t> words = {5, 1, 9};
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const double tolerance = dtype == DType::f64 ? kFloat64 : kFloat32;
    const bool wide = dtype == DType::f64 || dtype == DType::f32;
    std::vector<Attention> x, y;  // filled by moves: views point into the storage
    x.push_back(make_attention(words, 3, dtype, 3, true));
    x.push_back(make_attention(words, 1, dtype, 1));
    y.push_back(make_attention(words, 4, dtype, 7));
    if (wide) check_against_loops(x, {}, tolerance);
    // An emulated block of threads takes long whatever it does: one measure is enough for halves.
    if (wide) check_against_loops(x, y, tolerance);
    if (!wide)
      CHECK_NEAR(compute(problem_of(x, y, AttentionMeasure::js)).grid[0],
                 naive::similarity(x[0], y[0], AttentionMeasure::js, false), tolerance);
  }
}

// More heads than a tile holds, and so little L2 that every sentence takes several chunks.
TEST(several_tiles_chunks_and_shares) {
  std::vector<Attention> x;
  for (const int64_t heads : {40, 33, 80, 41})
    x.push_back(make_attention({3, 9}, heads, DType::f32, unsigned(heads)));
  for (const AttentionMeasure measure : kMeasures) {
    check::context = "measure " + std::to_string(int(measure));
    // 40 kB: 64 weights of every head at a time; then all at once, in several shares.
    const Result narrow = compute(problem_of({x[0], x[1]}, {}, measure), kPlenty, 40000);
    const Result wide = compute(problem_of({x[0]}, {x[1]}, measure));
    CHECK(narrow.plan.entries < 90 && wide.plan.entries >= 90);
    CHECK(narrow.plan.tile == 48 && wide.plan.tile == 48);
    // 121 heads: 2 tiles of 64 a side are fewer pairs than 3 of 48.
    const Result large = compute(problem_of({x[2], x[3]}, {}, measure));
    CHECK(large.plan.tile == 64);
    CHECK_NEAR(large.grid[1], naive::similarity(x[2], x[3], measure, false), kFloat32);
    CHECK_NEAR(narrow.grid[1], naive::similarity(x[0], x[1], measure, false), kFloat32);
    CHECK_NEAR(wide.grid[0], naive::similarity(x[0], x[1], measure, false), kFloat32);
  }
}

// Copied to the device for every call: nothing of the tables grows with the number of words.
TEST(tables_have_an_entry_for_a_sentence_and_none_for_a_word) {
  const std::vector<int64_t> words = {3, 90, 1};
  const Attention x = make_attention(words, 2, DType::f32, 6);
  const AttentionTables tables(problem_of({x}, {}, AttentionMeasure::js));
  CHECK(tables.views.size() == 3 && tables.sentences.size() == 4 && tables.heads.size() == 2);
  CHECK(tables.rows() == 94 && tables.sentences[2].first_row == 93);
  CHECK(tables.sentences[1].offset_of(5) == 9 + 2 * 90 && tables.sentences[3].offset == 8110);
}

// Chunks that end within a sentence, with it, and after several.
TEST(chunks_end_anywhere) {
  const std::vector<int64_t> words = {4, 8, 1, 1, 2, 16, 5, 3};
  const Attention x = make_attention(words, 3, DType::f32, 6),
                  y = make_attention(words, 2, DType::f32, 7);
  for (const AttentionMeasure measure : kMeasures)
    for (int64_t entries = 32; entries <= 160; entries += 32) {
      check::context = "measure " + std::to_string(int(measure)) + ", " + std::to_string(entries);
      const Result r = compute(problem_of({x}, {y}, measure), kPlenty, 2 * 5 * 4 * entries);
      CHECK(r.plan.entries == entries);
      CHECK_NEAR(r.grid[0], naive::similarity(x, y, measure, false), kFloat32);
    }
}

TEST(equal_heads_are_equal_exactly) {
  const Attention x = make_attention({9, 20}, 5, DType::f32, 3);
  check::context = "js";
  CHECK(compute(problem_of({x}, {}, AttentionMeasure::js)).grid[0] == 1);
  CHECK(compute(problem_of({x}, {x}, AttentionMeasure::js)).grid[0] == 1);
}

TEST(memory_and_the_order_of_blocks_leave_the_result_alone) {
  std::vector<Attention> x;
  for (const int64_t heads : {3, 12}) x.push_back(make_attention({9, 3}, heads, DType::f32, 5));
  for (const AttentionMeasure measure : kMeasures) {
    check::context = "measure " + std::to_string(int(measure));
    const AttentionProblem problem = problem_of(x, {}, measure);
    const Result want = compute(problem);
    cuda_host::order_of_blocks = cuda_host::Order::random;
    CHECK(compute(problem).grid == want.grid);
    cuda_host::order_of_blocks = cuda_host::Order::forwards;
    const std::string message = check::message_of([&] { compute(problem, 1); });
    CHECK(message.find("max_memory: wanted at least ") == 0);
    const Result narrow = compute(problem, std::stoll(message.substr(message.find("least ") + 6)));
    CHECK(narrow.plan.workspace_bytes < want.plan.workspace_bytes);
    for (size_t i = 0; i < want.grid.size(); i++)
      CHECK_NEAR(narrow.grid[i], want.grid[i], kFloat32);
  }
}

TEST(bad_weights_are_counted_by_layer) {
  std::vector<Attention> x;
  for (int i = 0; i < 2; i++) x.push_back(make_attention({4, 5}, 2, DType::f64, 6));
  reinterpret_cast<double*>(x[1].storage[0].data())[0] = -1;
  for (int k = 0; k < 3; k++) reinterpret_cast<double*>(x[1].storage[1].data())[k] = std::nan("");
  const Result r = compute(problem_of({x[0]}, {x[1]}, AttentionMeasure::frobenius));
  CHECK(r.bad == (std::vector<unsigned long long>{0, 0, 0, 3, 1, 0}));
}

TEST(rows_that_are_no_distributions_are_counted_by_layer) {
  std::vector<Attention> x;
  for (const int64_t heads : {2, 3}) x.push_back(make_attention({4, 40}, heads, DType::f32, 6));
  std::vector<unsigned long long> want(2 * kBadCounts, 0);
  for (size_t layer = 0; layer < 2; layer++)
    for (size_t s = 0; s < 2; s++)
      for (int64_t h = 0; h < x[layer].heads; h++)
        for (int64_t i = 0; i < x[layer].views[s].words; i++) {
          double sum = 0;
          for (const double weight : naive::row_of(x[layer], s, h, i, false)) sum += weight;
          want[layer * kBadCounts + 2] += std::fabs(sum - 1) > simcore::kRowSum;
        }
  CHECK(want[2] > 0 && want[2] < 88 && want[5] > 0);
  AttentionProblem problem = problem_of({x[0]}, {x[1]}, AttentionMeasure::js);
  CHECK(compute(problem).bad == want);
  problem.causal = true;
  const std::vector<unsigned long long> none(2 * kBadCounts, 0);
  CHECK(compute(problem).bad == none);
  CHECK(compute(problem_of({x[0]}, {x[1]}, AttentionMeasure::frobenius)).bad == none);
}

TEST(pearsons_correlation_is_refused) {
  const Attention x = make_attention({4}, 2, DType::f32, 6);
  const AttentionProblem problem = problem_of({x}, {}, AttentionMeasure::pearson);
  CHECK(check::message_of([&] { compute(problem); }).find("measure: wanted 'js' or") == 0);
}

int main(int count, char** arguments) { return check::main(count, arguments); }
