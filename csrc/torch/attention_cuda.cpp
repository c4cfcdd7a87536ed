// simcore::attention_similarity on a CUDA device: checks, the plan, tables and workspace, and the
// call into csrc/cuda on the current stream. One copy to the device precedes the kernels; one copy
// back follows them, with the number of weights that have no similarity.

#include <cstring>
#include <tuple>

#include "cuda/attention/attention.h"
#include "torch/attention_checks.h"
#include "torch/runtime_cuda.h"

namespace simcore {
namespace {

constexpr int64_t kAlignment = 16;

// Host tables in one buffer, and where each of them is once the buffer is on the device.
class TableUpload {
 public:
  TableUpload(const cuda::AttentionTables& tables, const Device& device) {
    const int64_t views = add(tables.views), sentences = add(tables.sentences);
    const int64_t heads = add(tables.heads), first_head = add(tables.first_head);
    buffer_ = empty_on(device, {int64_t(bytes_.size())}, ScalarType::Byte);
    copy_into(buffer_, bytes_of_host(bytes_));
    base_ = const_data<uint8_t>(buffer_);
    on_device_ = {at<AttentionView>(views), at<cuda::AttentionSentence>(sentences),
                  at<cuda::AttentionHead>(heads), at<int64_t>(first_head)};
  }
  const cuda::DeviceTables& on_device() const { return on_device_; }

 private:
  template <typename T>
  int64_t add(const std::vector<T>& table) {
    const size_t start = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
    bytes_.resize(start + table.size() * sizeof(T));
    std::memcpy(bytes_.data() + start, table.data(), table.size() * sizeof(T));
    return int64_t(start);
  }
  template <typename T>
  const T* at(int64_t start) const {
    return reinterpret_cast<const T*>(base_ + start);
  }

  std::vector<uint8_t> bytes_;
  Tensor buffer_;
  const uint8_t* base_ = nullptr;
  cuda::DeviceTables on_device_{};
};

int64_t counted_weights(const AttentionLayer& layer, bool causal) {
  int64_t total = 0;
  for (const AttentionView& view : layer)
    total += view.heads * (causal ? view.words * (view.words + 1) / 2 : view.words * view.words);
  return total;
}

// counts: those of cuda::AttentionOutput::bad, on the host.
void refuse_bad_weights(const Tensor& counts, const AttentionProblem& problem) {
  const int64_t* bad = const_data<int64_t>(counts);
  for (const auto* side : {&problem.x, &problem.y})
    for (size_t l = 0; l < side->size(); l++, bad += cuda::kBadCounts) {
      const char* name = side == &problem.x ? "A[" : "B[";
      const int64_t total = counted_weights((*side)[l], problem.causal);
      SIMCORE_CHECK(bad[0] == 0, name, l, "]: wanted finite values, got ", bad[0],
                    " NaN or infinite of ", total);
      SIMCORE_CHECK(problem.measure != AttentionMeasure::js || bad[1] == 0, name, l,
                    "]: wanted no negative weights for measure 'js', got ", bad[1], " of ", total);
    }
}

std::tuple<Tensor, Tensor> attention_similarity_cuda(const Tensors& x, const Tensors& y,
                                                     Shape words, const std::string& measure,
                                                     bool causal, int64_t max_memory) {
  AttentionProblem problem = attention_problem(x, y, words, measure, causal, max_memory);
  const Device device = x[0].device();
  check_same_device(x, "A", device);
  check_same_device(y, "B", device);
  const DeviceGuard guard(device.index());
  SIMCORE_CHECK(!capturing(device),
                "attention_grid: wanted a stream that captures no CUDA graph, because tables are "
                "copied to the device and counts back");
  const int64_t rows = int64_t(problem.x.size());
  const int64_t columns = problem.y.empty() ? rows : int64_t(problem.y.size());
  const Tensor grid = empty_on(device, {rows, columns}, ScalarType::Double);
  const Tensor bad =
      empty_on(device, {rows + int64_t(problem.y.size()), cuda::kBadCounts}, ScalarType::Long);
  const cuda::AttentionTables tables(problem);
  const cuda::AttentionPlan plan = plan_within(max_memory, device, [&](int64_t bound) {
    problem.max_memory = bound;
    return cuda::make_plan(problem, tables, properties_of(device));
  });
  const TableUpload upload(tables, device);
  const Tensor workspace = empty_on(device, {plan.workspace_bytes}, ScalarType::Byte);
  const cuda::AttentionOutput output{
      mutable_data<double>(grid),
      reinterpret_cast<unsigned long long*>(mutable_data<int64_t>(bad))};
  cuda::attention_similarity(problem, tables, upload.on_device(), plan,
                             workspace.mutable_data_ptr(), output, current_stream(device));
  Tensor counts = on_host(bad, "attention_similarity");
  refuse_bad_weights(counts, problem);
  return {grid, contiguous(call("aten::select", "int", counts, int64_t(1), cuda::kBadCounts - 1))};
}

}  // namespace

const Library functions("CUDA", [](const Library& m) {
  m.impl("attention_similarity", boxed<attention_similarity_cuda>);
});

}  // namespace simcore
