// simcore::attention_similarity on a CUDA device: checks, the plan, tables and workspace, and the
// call into csrc/cuda on the current stream. One copy to the device precedes the kernels; one copy
// back follows them, with the number of weights that have no similarity.
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

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
  TableUpload(const cuda::AttentionTables& tables, const at::Device& device) {
    const int64_t views = add(tables.views), rows = add(tables.rows), heads = add(tables.heads);
    const int64_t first_head = add(tables.first_head);
    const auto options = at::TensorOptions().dtype(at::kByte);
    buffer_ = at::from_blob(bytes_.data(), {int64_t(bytes_.size())}, options).to(device);
    base_ = buffer_.const_data_ptr<uint8_t>();
    on_device_ = {at<AttentionView>(views), at<cuda::AttentionRow>(rows),
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
  at::Tensor buffer_;
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
void refuse_bad_weights(const at::Tensor& counts, const AttentionProblem& problem) {
  const int64_t* bad = counts.const_data_ptr<int64_t>();
  for (const auto* side : {&problem.x, &problem.y})
    for (size_t l = 0; l < side->size(); l++, bad += cuda::kBadCounts) {
      const char* name = side == &problem.x ? "A[" : "B[";
      const int64_t total = counted_weights((*side)[l], problem.causal);
      TORCH_CHECK_VALUE(bad[0] == 0, name, l, "]: wanted finite values, got ", bad[0],
                        " NaN or infinite of ", total);
      TORCH_CHECK_VALUE(problem.measure != AttentionMeasure::js || bad[1] == 0, name, l,
                        "]: wanted no negative weights for measure 'js', got ", bad[1], " of ",
                        total);
    }
}

std::tuple<at::Tensor, at::Tensor> attention_similarity_cuda(at::TensorList x, at::TensorList y,
                                                             at::IntArrayRef words,
                                                             c10::string_view measure, bool causal,
                                                             int64_t max_memory) {
  AttentionProblem problem =
      attention_problem(x, y, words, std::string(measure), causal, max_memory);
  const at::Device device = x[0].device();
  check_same_device(x, "A", device);
  check_same_device(y, "B", device);
  const c10::cuda::CUDAGuard guard(device);
  TORCH_CHECK_VALUE(
      !capturing(),
      "attention_grid: wanted a stream that captures no CUDA graph, because tables are "
      "copied to the device and counts back");
  const int64_t rows = int64_t(problem.x.size());
  const int64_t columns = problem.y.empty() ? rows : int64_t(problem.y.size());
  const at::Tensor grid = empty_on(device, {rows, columns}, at::kDouble);
  const at::Tensor bad =
      empty_on(device, {rows + int64_t(problem.y.size()), cuda::kBadCounts}, at::kLong);
  try {
    const cuda::AttentionTables tables(problem);
    const cuda::AttentionPlan plan = plan_within(max_memory, [&](int64_t bound) {
      problem.max_memory = bound;
      return cuda::make_plan(problem, tables, current_device());
    });
    const TableUpload upload(tables, device);
    const at::Tensor workspace = empty_on(device, {plan.workspace_bytes}, at::kByte);
    const cuda::AttentionOutput output{
        grid.mutable_data_ptr<double>(),
        reinterpret_cast<unsigned long long*>(bad.mutable_data_ptr<int64_t>())};
    cuda::attention_similarity(problem, tables, upload.on_device(), plan,
                               workspace.mutable_data_ptr(), output,
                               c10::cuda::getCurrentCUDAStream());
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
  const at::Tensor counts = bad.to(at::kCPU);
  refuse_bad_weights(counts, problem);
  return {grid, counts.select(1, cuda::kBadCounts - 1).contiguous()};
}

}  // namespace

TORCH_LIBRARY_IMPL(simcore, CUDA, m) { m.impl("attention_similarity", attention_similarity_cuda); }

}  // namespace simcore
