// The work of whole calls at the sizes that benchmarks measure: launches, blocks and tiles, counted
// from the launch sequences without running them. Some counts stand beside those of a former
// version.
#include <limits>
#include <map>

#include "../check.h"
#include "cuda/attention/attention.h"
#include "cuda/hsic/hsic.h"
#include "cuda_runtime.h"

using simcore::DType;
using simcore::KernelKind;
using simcore::LayerView;
using simcore::cuda::Device;
using simcore::cuda::DeviceHsicProblem;
using simcore::cuda::HsicPlan;
using simcore::cuda::Variant;

#define CHECK_COUNT(got, wanted) CHECK_NEAR(double(got), double(wanted), 0)

namespace {

const Device kH200{132, 60 << 20};
constexpr int64_t kPlenty = int64_t(1) << 40, kRows = 1600, kWidth = 768;

struct Count {
  int64_t launches = 0, blocks = 0;
};

// The launches of a sequence by name.
class Counts {
 public:
  template <typename Sequence>
  explicit Counts(Sequence sequence) {
    std::vector<cuda_host::Noted> notes;
    cuda_host::notes = &notes;
    sequence();
    cuda_host::notes = nullptr;
    for (const cuda_host::Noted& note : notes) {
      Count& count = by_name_[note.name];
      count.launches++;
      count.blocks += note.blocks;
    }
    total_ = int64_t(notes.size());
  }
  int64_t total() const { return total_; }
  Count of(const char* name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? Count{} : found->second;
  }

 private:
  std::map<std::string, Count> by_name_;
  int64_t total_ = 0;
};

std::vector<LayerView> layers(int64_t count, DType dtype = DType::f32) {
  return std::vector<LayerView>(size_t(count), LayerView{nullptr, dtype, kWidth, kWidth, 1});
}

DeviceHsicProblem hsic_of(int64_t count, KernelKind kernel) {
  DeviceHsicProblem problem;
  problem.n = kRows;
  problem.x = layers(count);
  problem.kernel = kernel;
  problem.variant = Variant::tensor;
  return problem;
}

Counts counts_of(const DeviceHsicProblem& problem, const HsicPlan& plan) {
  return Counts([&] { hsic_terms(problem, plan, nullptr, {}, nullptr); });
}

}  // namespace

// 13 tiles of 128 rows a side: 91 tiles on and above the diagonal.
TEST(cka_of_325_layers_contracts_groups_of_tiles) {
  const DeviceHsicProblem problem = hsic_of(325, KernelKind::linear);
  const HsicPlan plan = make_plan(problem, kH200, kPlenty);
  CHECK(plan.tile == 128 && !plan.narrow);
  // In groups of 8 tiles, 13 panels of packed rows would be read for each of 12 groups.
  CHECK_COUNT(plan.group_tiles, 91);
  CHECK_COUNT(plan.shares, 22);  // 6 tiles of pairs: a block for each of 132 multiprocessors
  const Counts counts = counts_of(problem, plan);
  CHECK_COUNT(counts.of("gram_tiles").launches, 1);
  CHECK_COUNT(counts.of("gram_tiles").blocks, 91 * 325);
  CHECK_COUNT(counts.of("contract").launches, 1);
  CHECK_COUNT(counts.of("contract").blocks, 6 * 22);
  // Where memory does not hold all tiles, groups are halved until they fit.
  const HsicPlan less = make_plan(problem, kH200, plan.workspace_bytes - 1);
  CHECK_COUNT(less.group_tiles, 46);
  CHECK_COUNT(counts_of(problem, less).of("gram_tiles").launches, 2);
}

TEST(cka_of_13_layers_contracts_tiles_that_fit_them) {
  const DeviceHsicProblem problem = hsic_of(13, KernelKind::linear);
  const HsicPlan plan = make_plan(problem, kH200, kPlenty);
  CHECK(plan.narrow);  // a tile of 32 x 32 pairs for one of 128 x 128: a sixteenth of the products
  CHECK_COUNT(plan.group_tiles, 36);
  const Counts counts = counts_of(problem, plan);
  CHECK_COUNT(counts.of("gram_tiles").launches, 3);
  CHECK_COUNT(counts.of("gram_tiles").blocks, 91 * 13);
  CHECK_COUNT(counts.of("contract").blocks,
              2 * 132 + 128);  // shares are whole stages of 128 entries
  CHECK_COUNT(counts.total(), 13);
}

TEST(rbf_forms_every_gram_once_where_memory_allows) {
  for (const int64_t layers : {13, 325}) {
    check::context = std::to_string(layers) + " layers";
    const DeviceHsicProblem problem = hsic_of(layers, KernelKind::rbf);
    const HsicPlan plan = make_plan(problem, kH200, kPlenty);
    const Counts counts = counts_of(problem, plan);
    CHECK_COUNT(counts.of("gram_tiles").blocks, 91 * layers);
    CHECK_COUNT(counts.of("rbf_entries").launches, counts.of("contract").launches);
    CHECK_COUNT(counts.of("histogram").launches, 3);  // a launch for each digit, of all layers
    const HsicPlan less = make_plan(problem, kH200, plan.workspace_bytes - 1);
    const Counts again = counts_of(problem, less);
    // Distances that are not kept are found for as many layers as stay in half of L2, 5.
    CHECK_COUNT(again.of("histogram").launches, 3 * ((layers + 4) / 5));
    CHECK_COUNT(again.of("gram_tiles").blocks, 2 * 91 * layers);  // before, whatever the memory
    CHECK_COUNT(again.of("rbf_entries").launches, 0);
  }
}

// Above 4096 rows the median is that of some rows: their distances are not those of all pairs.
TEST(rbf_of_many_rows_keeps_no_distances) {
  DeviceHsicProblem problem = hsic_of(13, KernelKind::rbf);
  problem.n = 4097;
  CHECK(!make_plan(problem, kH200, kPlenty).keep_distances);
  problem.n = 4096;
  CHECK(make_plan(problem, kH200, kPlenty).keep_distances);
}

TEST(attention_of_12_layers_of_12_heads) {
  const simcore::AttentionLayer layer(1000, {nullptr, DType::f32, 12, 64, 4096, 64, 1});
  simcore::AttentionProblem problem;
  problem.x.assign(12, layer);
  problem.max_memory = kPlenty;
  const simcore::cuda::AttentionTables tables(problem);
  const auto plan = make_plan(problem, tables, kH200);
  const Counts counts(
      [&] { attention_similarity(problem, tables, {}, plan, nullptr, {}, nullptr); });
  CHECK_COUNT(plan.entries, 54592);  // of all heads, in half of L2
  CHECK_COUNT(plan.shares, 88);      // 6 tiles of pairs: 4 blocks a multiprocessor
  CHECK_COUNT(plan.tile, 48);        // 13,824 pairs are computed for 10,440; 24,576 with 64
  CHECK_COUNT(counts.of("contract").launches, 76);
  CHECK_COUNT(counts.total(), 156);
}

int main(int count, char** arguments) { return check::main(count, arguments); }
