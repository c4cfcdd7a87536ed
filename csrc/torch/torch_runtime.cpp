#include "torch/torch_runtime.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>

#include "cpu/base/buffer.h"
#include "cpu/base/memory.h"
#include "torch/host.h"

// MKL's, which torch exports where it was built with MKL; null elsewhere. Sets the number of
// threads that MKL uses on behalf of the calling thread (0: the number for all threads) and returns
// the one before. macOS has no torch with MKL, and its linker no weak functions that nobody
// defines.
#if defined(__APPLE__)
static int (*const MKL_Set_Num_Threads_Local)(int) = nullptr;
#else
extern "C" __attribute__((weak, visibility("default"))) int MKL_Set_Num_Threads_Local(int threads);
#endif

namespace simcore {
namespace {

// Within a parallel region a thread is all that MKL gets, whatever number torch.set_num_threads has
// asked for. The QR decomposition of MKL's LAPACK believes that number: it divides its work among
// so many threads and waits for them without end.
class OneMklThread {
 public:
  OneMklThread() {
    // When a thread first asks torch for the number, torch passes it to MKL: later than here it
    // would undo what follows.
    number_of_threads();
    if (MKL_Set_Num_Threads_Local) before_ = MKL_Set_Num_Threads_Local(1);
  }
  ~OneMklThread() {
    if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(before_);
  }
  OneMklThread(const OneMklThread&) = delete;
  OneMklThread& operator=(const OneMklThread&) = delete;

 private:
  int before_ = 0;
};

}  // namespace

cpu::Runtime torch_runtime() {
  cpu::Runtime rt;
  rt.threads = number_of_threads();
  rt.on_threads = [threads = rt.threads](const std::function<void(int)>& body) {
    // torch_parallel_for prints an exception and forgets its type: it is carried past instead.
    std::exception_ptr failure;
    std::mutex failing;
    const auto run = [&](int64_t begin, int64_t end) {
      try {
        std::optional<OneMklThread> alone;
        if (threads > 1) alone.emplace();
        for (int64_t t = begin; t < end; t++) body(int(t));
      } catch (...) {
        const std::lock_guard lock(failing);
        failure = std::current_exception();
      }
    };
    const auto called = [](int64_t begin, int64_t end, void* context) {
      (*static_cast<decltype(run)*>(context))(begin, end);
    };
    succeed(torch_parallel_for(0, threads, 1, called,
                               const_cast<void*>(static_cast<const void*>(&run))),
            "it runs nothing in parallel");
    if (failure) std::rethrow_exception(failure);
  };
  rt.progress = [](double done) {
    if (const auto progress = simcore_host()->progress) progress(done);
  };
  return rt;
}

int affordable_threads(int64_t bytes_per_thread, int64_t max_memory, int threads) {
  const int64_t bound = cpu::memory_bound(max_memory);
  SIMCORE_CHECK(bytes_per_thread <= bound, "max_memory: wanted at least ", bytes_per_thread,
                " bytes, got ", bound);
  return int(std::min<int64_t>(threads, bound / bytes_per_thread));
}

Tensor empty_in_huge_pages(Shape shape, ScalarType dtype) {
  Tensor result = empty(shape, dtype);
  cpu::ask_for_huge_pages(result.mutable_data_ptr(),
                          int64_t(result.numel() * result.element_size()));
  return result;
}

}  // namespace simcore
