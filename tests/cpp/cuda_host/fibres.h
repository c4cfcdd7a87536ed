// The threads of one block as fibres of one host thread: this is how kernels run on the host.
//
// A fibre runs until it waits at a barrier or ends; then the next fibre that is not waiting runs.
// The kernels' threads can observe each other through block barriers, warp-wide exchanges and a
// barrier that not all threads reach (reported, then abort).
// Sanitizers    AddressSanitizer is told of every switch of stacks. ThreadSanitizer sees a thread
//               per fibre and no order between them but that of barriers, so that a missing one is
//               a reported race, whichever fibre happened to run first.
#pragma once

#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
#endif

// Marks the machinery itself, which every fibre shares and ThreadSanitizer must not observe.
#define CUDA_HOST_UNSEEN __attribute__((noinline, no_sanitize("thread")))

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace cuda_host {

constexpr int kLanes = 32;
constexpr size_t kStackBytes = 256 << 10;

inline void order_after(void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(what);
#else
  (void)what;
#endif
}
inline void order_before(void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(what);
#else
  (void)what;
#endif
}

// Opens when all living threads of its group have come.
struct Barrier {
  int alive = 0, waiting = 0;
  unsigned opened = 0;
  char tags[2] = {};  // ThreadSanitizer orders by these; two, for fibres that leave late

  CUDA_HOST_UNSEEN void open_if_complete() {
    if (waiting > 0 && waiting == alive) {
      waiting = 0;
      opened++;
    }
  }
};

struct Warp {
  Barrier barrier;
  // The words that lanes show each other; two sets, for lanes that read late.
  std::array<std::array<std::array<std::atomic<uint64_t>, 8>, kLanes>, 2> shown;
};

struct Fibre {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  void* tsan = nullptr;
  void* fake_stack = nullptr;
  dim3 thread;
  int lane = 0;
  Warp* warp = nullptr;
  Barrier* waits_at = nullptr;
  unsigned waits_for = 0;
  unsigned exchanges = 0;
  bool ended = true;
};

class Machine {
 public:
  static Machine& get() {
    static Machine machine;
    return machine;
  }

  dim3 block, block_size, grid_size;
  bool backwards = false;  // the order in which blocks run, which must not matter
  Fibre* current = nullptr;

  void run(dim3 grid, dim3 threads, const std::function<void()>& kernel) {
    grid_size = grid;
    block_size = threads;
    kernel_ = &kernel;
    const int64_t blocks = int64_t(grid.x) * grid.y * grid.z;
    for (int64_t b = 0; b < blocks; b++) {
      const int64_t at = backwards ? blocks - 1 - b : b;
      block = dim3(unsigned(at % grid.x), unsigned(at / grid.x % grid.y),
                   unsigned(at / grid.x / grid.y));
      run_block();
    }
  }

  // Allocates dynamic shared memory of exactly that size, so that AddressSanitizer sees its end.
  // The memory first holds nan.
  void set_dynamic_shared(size_t bytes) {
    dynamic_.reset(bytes > 0 ? new unsigned char[bytes] : nullptr);
    if (bytes > 0) std::memset(dynamic_.get(), 0xff, bytes);
  }
  void* dynamic_shared() { return dynamic_.get(); }

  // Waits for all living threads of the block, or of the warp.
  CUDA_HOST_UNSEEN void wait(Barrier& barrier, bool orders_memory) {
    Fibre* self = current;
    char* tag = &barrier.tags[barrier.opened % 2];
    if (orders_memory) order_before(tag);
    self->waits_at = &barrier;
    self->waits_for = barrier.opened + 1;
    barrier.waiting++;
    barrier.open_if_complete();
    leave(self);
    if (orders_memory) order_after(tag);
  }
  void wait_block() { wait(block_barrier_, true); }

  // Lets every lane of the warp show some words; returns their address.
  template <size_t count>
  CUDA_HOST_UNSEEN const auto& exchange(const std::array<uint64_t, count>& words) {
    Fibre* self = current;
    auto& shown = self->warp->shown[self->exchanges++ % 2];
    for (size_t w = 0; w < count; w++)
      shown[size_t(self->lane)][w].store(words[w], std::memory_order_relaxed);
    wait(self->warp->barrier, false);
    return shown;
  }

 private:
  CUDA_HOST_UNSEEN void run_block() {
    const int count = int(block_size.x * block_size.y * block_size.z);
    while (int(fibres_.size()) < count) fibres_.push_back(std::make_unique<Fibre>());
    while (int(warps_.size()) < (count + kLanes - 1) / kLanes)
      warps_.push_back(std::make_unique<Warp>());
    block_barrier_.alive = count;
    for (auto& warp : warps_) warp->barrier.alive = 0;
    for (int t = 0; t < count; t++) start(t);
    order_before(&start_tag_);
    for (int living = count; living > 0;) {
      bool moved = false;
      for (int t = 0; t < count; t++) {
        Fibre* fibre = fibres_[size_t(t)].get();
        if (fibre->ended || !may_go(*fibre)) continue;
        enter(fibre);
        moved = true;
        living -= fibre->ended;
      }
      if (!moved) {
        std::printf("%d threads wait at a barrier that the others never reach\n", living);
        std::abort();
      }
    }
    order_after(&end_tag_);
  }

  CUDA_HOST_UNSEEN void start(int t) {
    Fibre& fibre = *fibres_[size_t(t)];
    fibre.thread = dim3(unsigned(t) % block_size.x, unsigned(t) / block_size.x % block_size.y,
                        unsigned(t) / block_size.x / block_size.y);
    fibre.lane = t % kLanes;
    fibre.warp = warps_[size_t(t / kLanes)].get();
    fibre.warp->barrier.alive++;
    fibre.waits_at = nullptr;
    fibre.exchanges = 0;
    fibre.ended = false;
    fibre.fake_stack = nullptr;
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.get();
    fibre.context.uc_stack.ss_size = kStackBytes;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, reinterpret_cast<void (*)()>(&Machine::body), 0);
#if defined(__SANITIZE_THREAD__)
    if (fibre.tsan == nullptr) fibre.tsan = __tsan_create_fiber(0);
#endif
  }

  CUDA_HOST_UNSEEN static bool may_go(const Fibre& fibre) {
    return fibre.waits_at == nullptr || int(fibre.waits_at->opened - fibre.waits_for) >= 0;
  }

  CUDA_HOST_UNSEEN static void body() {
    Machine& machine = get();
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &machine.host_stack_, &machine.host_bytes_);
#endif
    order_after(&machine.start_tag_);
    (*machine.kernel_)();
    order_before(&machine.end_tag_);
    Fibre* self = machine.current;
    self->ended = true;
    for (Barrier* barrier : {&machine.block_barrier_, &self->warp->barrier}) {
      barrier->alive--;
      barrier->open_if_complete();
    }
    machine.leave(self);
  }

  CUDA_HOST_UNSEEN void enter(Fibre* fibre) {
    current = fibre;
    fibre->waits_at = nullptr;
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, fibre->stack.get(), kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
    host_tsan_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fibre->tsan, 1);  // 1: the switch itself orders nothing
#endif
    swapcontext(&host_, &fibre->context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    current = nullptr;
  }

  CUDA_HOST_UNSEEN void leave(Fibre* fibre) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(fibre->ended ? nullptr : &fibre->fake_stack, host_stack_,
                                   host_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(host_tsan_, 1);
#endif
    swapcontext(&fibre->context, &host_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fibre->fake_stack, &host_stack_, &host_bytes_);
#endif
  }

  const std::function<void()>* kernel_ = nullptr;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::unique_ptr<unsigned char[]> dynamic_;
  Barrier block_barrier_;
  ucontext_t host_{};
  const void* host_stack_ = nullptr;
  size_t host_bytes_ = 0;
  void* host_tsan_ = nullptr;
  char start_tag_ = 0, end_tag_ = 0;
};

CUDA_HOST_UNSEEN inline const dim3& thread_index() { return Machine::get().current->thread; }
CUDA_HOST_UNSEEN inline const dim3& block_index() { return Machine::get().block; }
CUDA_HOST_UNSEEN inline const dim3& block_size() { return Machine::get().block_size; }
CUDA_HOST_UNSEEN inline const dim3& grid_size() { return Machine::get().grid_size; }

}  // namespace cuda_host
