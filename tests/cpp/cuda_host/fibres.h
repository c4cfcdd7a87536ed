// The threads of one block as fibres of one host thread: this is how kernels run on the host.
//
// Threads       a fibre runs until it waits at a barrier or ends; then the next fibre that is not
//               waiting runs. The kernels' threads can observe each other through block barriers
//               and warp-wide exchanges.
// Blocks        run one after another, forwards, backwards or in a random order. Under
//               ThreadSanitizer a second host thread runs every other block at the same time.
// Mistakes      end the program: threads that wait at different barriers, a barrier that not all
//               threads reach, an exchange with a lane that has ended.
// Sanitizers    AddressSanitizer is told of every switch of stacks. ThreadSanitizer sees a thread
//               per fibre and no order between them but that of barriers, so that a missing one is
//               a reported race, whichever fibre happened to run first.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <source_location>
#include <thread>
#include <vector>

#include "stack_switch.h"

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

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace cuda_host {

constexpr int kLanes = 32;
constexpr size_t kStackBytes = 256 << 10;
#if defined(__SANITIZE_THREAD__)
constexpr int64_t kWorkers = 2;  // blocks that run at the same time
#else
constexpr int64_t kWorkers = 1;
#endif

// Where a kernel waits.
using Place = std::source_location;

[[noreturn]] inline void report(const char* what, const Place& at) {
  std::printf("%s:%u: %s\n", at.file_name(), unsigned(at.line()), what);
  std::fflush(stdout);
  std::abort();
}

inline bool same_place(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::strcmp(a.file_name(), b.file_name()) == 0;
}

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
  Place place;        // of those that wait
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
  // The number of the exchange in which each lane showed them; 0 for none of this block.
  std::array<std::array<unsigned, kLanes>, 2> exchange_of{};
};

struct Fibre {
  Context context;
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

// What a launch runs.
struct Launch {
  dim3 grid, threads;
  size_t dynamic_bytes = 0;
  const std::function<void()>* kernel = nullptr;
};

enum class Order { forwards, backwards, random };  // of the blocks, which must not matter
inline Order order_of_blocks = Order::forwards;

// One streaming multiprocessor: it runs one block at a time, in the host thread that it belongs to.
class Machine {
 public:
  static Machine& get() {
    static thread_local Machine machine;
    return machine;
  }
  Machine() = default;
  Machine(const Machine&) = delete;
  ~Machine() {
#if defined(__SANITIZE_THREAD__)
    for (auto& fibre : fibres_)
      if (fibre->tsan != nullptr) __tsan_destroy_fiber(fibre->tsan);
#endif
  }

  dim3 block, block_size, grid_size;
  Fibre* current = nullptr;

  // Runs the blocks at places first, first + step, ... of `order`.
  void run(const Launch& launch, const std::vector<int64_t>& order, int64_t first, int64_t step) {
    const dim3 grid = grid_size = launch.grid;
    block_size = launch.threads;
    kernel_ = launch.kernel;
    set_dynamic_shared(launch.dynamic_bytes);
    for (size_t b = size_t(first); b < order.size(); b += size_t(step)) {
      const int64_t at = order[b];
      block = dim3(unsigned(at % grid.x), unsigned(at / grid.x % grid.y),
                   unsigned(at / grid.x / grid.y));
      run_block();
    }
  }

  void* dynamic_shared() { return dynamic_.get(); }

  // Waits for all living threads of the block, or of the warp.
  CUDA_HOST_UNSEEN void wait(Barrier& barrier, bool orders_memory, const Place& place) {
    Fibre* self = current;
    if (barrier.waiting == 0)
      barrier.place = place;
    else if (!same_place(barrier.place, place))
      report("threads of a group wait here while others wait elsewhere", place);
    char* tag = &barrier.tags[barrier.opened % 2];
    if (orders_memory) order_before(tag);
    self->waits_at = &barrier;
    self->waits_for = barrier.opened + 1;
    barrier.waiting++;
    barrier.open_if_complete();
    leave(self);
    if (orders_memory) order_after(tag);
  }
  void wait_block(const Place& place) { wait(block_barrier_, true, place); }

  // Lets every lane of the warp show some words, which then are in all lanes.
  template <size_t count>
  CUDA_HOST_UNSEEN const auto& exchange(const std::array<uint64_t, count>& words,
                                        const Place& place) {
    Fibre* self = current;
    const size_t set = self->exchanges++ % 2;
    auto& shown = self->warp->shown[set];
    auto& exchange_of = self->warp->exchange_of[set];
    for (size_t w = 0; w < count; w++)
      shown[size_t(self->lane)][w].store(words[w], std::memory_order_relaxed);
    const unsigned number = exchange_of[size_t(self->lane)] = self->exchanges;
    wait(self->warp->barrier, false, place);
    for (const unsigned other : exchange_of)
      if (other != number) report("a lane that has ended takes no part in an exchange", place);
    return shown;
  }

 private:
  // Allocates dynamic shared memory of exactly that size, so that AddressSanitizer sees its end.
  // The memory first holds nan.
  void set_dynamic_shared(size_t bytes) {
    dynamic_.reset(bytes > 0 ? new unsigned char[bytes] : nullptr);
    if (bytes > 0) std::memset(dynamic_.get(), 0xff, bytes);
  }

  CUDA_HOST_UNSEEN void run_block() {
    const int count = int(block_size.x * block_size.y * block_size.z);
    while (int(fibres_.size()) < count) fibres_.push_back(std::make_unique<Fibre>());
    while (int(warps_.size()) < (count + kLanes - 1) / kLanes)
      warps_.push_back(std::make_unique<Warp>());
    block_barrier_.alive = count;
    for (auto& warp : warps_) {
      warp->barrier.alive = 0;
      warp->exchange_of = {};
    }
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
    fibre.context.start(fibre.stack.get(), kStackBytes, &Machine::body);
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
    host_.switch_to(fibre->context);
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
    fibre->context.switch_to(host_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fibre->fake_stack, &host_stack_, &host_bytes_);
#endif
  }

  const std::function<void()>* kernel_ = nullptr;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::unique_ptr<unsigned char[]> dynamic_;
  Barrier block_barrier_;
  Context host_;
  const void* host_stack_ = nullptr;
  size_t host_bytes_ = 0;
  void* host_tsan_ = nullptr;
  char start_tag_ = 0, end_tag_ = 0;
};

// A second host thread, which runs every other block of a launch.
class Helper {
 public:
  Helper() : thread_([this] { serve(); }) {}
  ~Helper() {
    give(nullptr);
    thread_.join();
  }
  void give(const std::function<void()>* work) {
    const std::lock_guard lock(mutex_);
    work_ = work;
    busy_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
  }

 private:
  void serve() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return busy_; });
      if (work_ == nullptr) return;
      lock.unlock();
      (*work_)();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  bool busy_ = false;
  std::thread thread_;
};

// Runs all blocks of a launch.
inline void run(const Launch& launch) {
  std::vector<int64_t> order(size_t(launch.grid.x) * launch.grid.y * launch.grid.z);
  std::iota(order.begin(), order.end(), 0);
  if (order_of_blocks == Order::backwards) std::reverse(order.begin(), order.end());
  if (order_of_blocks == Order::random) {
    static std::mt19937 generator(1);
    std::shuffle(order.begin(), order.end(), generator);
  }
  if (kWorkers == 1 || order.size() == 1) return Machine::get().run(launch, order, 0, 1);
  static Helper helper;
  const std::function<void()> half = [&] { Machine::get().run(launch, order, 1, kWorkers); };
  helper.give(&half);
  Machine::get().run(launch, order, 0, kWorkers);
  helper.wait();
}

CUDA_HOST_UNSEEN inline const dim3& thread_index() { return Machine::get().current->thread; }
CUDA_HOST_UNSEEN inline const dim3& block_index() { return Machine::get().block; }
CUDA_HOST_UNSEEN inline const dim3& block_size() { return Machine::get().block_size; }
CUDA_HOST_UNSEEN inline const dim3& grid_size() { return Machine::get().grid_size; }

}  // namespace cuda_host
