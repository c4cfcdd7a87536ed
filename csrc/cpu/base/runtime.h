// Threads and progress reports for the torch-free CPU code.
//
// The caller injects both: the torch adapter passes ATen's thread pool, the C++ tests pass
// std::thread. Nothing below csrc/torch knows which one it runs on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace simcore::cpu {

struct Runtime {
  int threads = 1;
  // Calls body(t) once for every t in [0, threads), possibly at the same time, and waits.
  std::function<void(const std::function<void(int)>& body)> on_threads;
  // Called on the calling thread between tiles with the finished share in [0, 1]; may throw to
  // stop the computation (that is how Ctrl-C gets through). May be empty.
  std::function<void(double)> progress;

  static Runtime serial() {
    Runtime rt;
    rt.on_threads = [](const std::function<void(int)>& body) { body(0); };
    return rt;
  }
};

// Runs task(index, thread) for every index in [0, count), handed out one by one. Each index must
// write to places of its own, so that the result depends neither on the order nor on the threads.
// At most `threads` of the runtime's threads take part, numbered from 0.
template <typename Task>
void parallel_tasks(const Runtime& rt, int64_t count, int threads, const Task& task) {
  if (count <= 0) return;
  std::atomic<int64_t> next{0};
  rt.on_threads([&](int thread) {
    if (thread >= threads) return;
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) task(i, thread);
  });
}

template <typename Task>
void parallel_tasks(const Runtime& rt, int64_t count, const Task& task) {
  parallel_tasks(rt, count, rt.threads, task);
}

}  // namespace simcore::cpu
