// Affine couplings of csrc/cuda on the host against plain loops in long double, also under the
// address and thread sanitizers.
//
// Mutations of a scratch copy that these tests were seen to catch
//   AddressSanitizer    the check of the last rows in either kernel
//   UBSan               the check of the width in write, that of the rows' stride in device_rows
#include "cuda/coupling/coupling.h"

#include "../naive_coupling.h"

using naive::DType;

namespace {

// Rows that start anywhere, which packed accesses must not touch, or rows that start at whole
// packs.
template <typename T>
void agrees(const naive::Problem& p) {
  naive::Coupled<T> got(p.coupling);
  simcore::cuda::couple(p.coupling, got.out.data(), got.log_det.data(), nullptr);
  simcore::cuda::couple_gradients(p.coupling, p.grad.view, p.grad_log_det.view, got.grad_x.data(),
                                  got.grad_params.data(), nullptr);
  naive::check_coupled(p, got);
}

}  // namespace

// Widths that are whole packs with and without gaps that keep rows at whole packs, and others.
TEST(agrees_with_plain_loops) {
  struct Layout {
    int64_t width, gap;
  };
  for (const Layout layout : {Layout{1, 3}, {31, 3}, {64, 8}, {64, 3}, {62, 2}, {257, 3}, {388, 4}})
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
      for (const bool transposed : {false, true})
        for (const bool inverse : {false, true}) {
          check::context = "width " + std::to_string(layout.width) + ", gap " +
                           std::to_string(layout.gap) + ", dtype " + std::to_string(int(dtype)) +
                           (transposed ? ", transposed" : "") + (inverse ? ", inverse" : "");
          const auto p = naive::make_problem(2, layout.width < 100 ? 8 : 4, layout.width, dtype,
                                             transposed, inverse, layout.gap);
          if (dtype != DType::f64) agrees<float>(p);
          if (dtype != DType::f16) agrees<double>(p);
        }
}

// The first entry of these arrays is not aligned to a pack.
TEST(arrays_from_anywhere) {
  naive::Problem p = naive::make_problem(1, 3, 64, DType::f32, false, false, 8);
  check::context = "shifted";
  std::vector<unsigned char> shifted(p.x.storage.size() + 4);
  std::copy(p.x.storage.begin(), p.x.storage.end(), shifted.begin() + 4);
  p.x.view.data = p.coupling.x.data = shifted.data() + 4;
  agrees<float>(p);
}

TEST(empty_inputs_are_fine) {
  agrees<float>(naive::make_problem(0, 3, 5, DType::f32, false, false));
  agrees<float>(naive::make_problem(2, 0, 5, DType::f32, false, false));
  agrees<float>(naive::make_problem(2, 3, 0, DType::f32, false, true));
}

TEST(nan_stays_and_large_arguments_are_clamped) {
  naive::Problem p = naive::make_problem(1, 1, 4, DType::f32, false, false, 4);
  float* params = reinterpret_cast<float*>(p.params.storage.data());
  const float values[] = {std::nanf(""), 1e30f, -1e30f, 0.0f};
  std::copy(values, values + 4, params);
  naive::Coupled<float> got(p.coupling);
  simcore::cuda::couple(p.coupling, got.out.data(), got.log_det.data(), nullptr);
  simcore::cuda::couple_gradients(p.coupling, p.grad.view, p.grad_log_det.view, got.grad_x.data(),
                                  got.grad_params.data(), nullptr);
  check::context = "extremes";
  CHECK(std::isnan(got.out[0]) && std::isnan(got.log_det[0]) && std::isnan(got.grad_params[0]));
  for (int k = 1; k < 4; k++) CHECK(std::isfinite(got.out[k]) && std::isfinite(got.grad_params[k]));
}

// Blocks that no launch has room for: their number would be taken modulo 2^32, here 0.
TEST(more_rows_than_a_launch_are_refused) {
  naive::Problem p = naive::make_problem(1, 1, 4, DType::f32, false, false, 4);
  naive::Coupled<float> got(p.coupling);
  p.coupling.rows = int64_t(1) << 40;
  const std::string message = check::message_of(
      [&] { simcore::cuda::couple(p.coupling, got.out.data(), got.log_det.data(), nullptr); });
  CHECK(message.find("couple_rows: wanted at most 2147483647 blocks") == 0);
}

int main(int count, char** arguments) { return check::main(count, arguments); }
