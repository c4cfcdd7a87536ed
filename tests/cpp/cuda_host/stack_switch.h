// Switching from one stack to another, for the fibres of fibres.h.
//
// swapcontext of the C library asks the kernel for the signal mask twice a switch, which took most
// of the time of the host run; on x86-64 a switch is a few instructions here instead. Elsewhere it
// is swapcontext.
#pragma once

#include <cstddef>
#include <cstdint>

// Marks the machinery itself, which every fibre shares and ThreadSanitizer must not observe.
#define CUDA_HOST_UNSEEN __attribute__((noinline, no_sanitize("thread")))

#if defined(__x86_64__)

// Saves the registers that a function must preserve (System V ABI) on the running stack, stores its
// end at `*from`, and continues on the stack that ends at `to`.
extern "C" void cuda_host_switch_stack(void** from, void* to);
asm(R"(
  .pushsection .text.cuda_host_switch_stack, "axG", @progbits, cuda_host_switch_stack, comdat
  .weak cuda_host_switch_stack
  .type cuda_host_switch_stack, @function
cuda_host_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size cuda_host_switch_stack, . - cuda_host_switch_stack
  .popsection
)");

namespace cuda_host {

// A place in a program: a stack, where it was left.
class Context {
 public:
  // The first switch to this place calls `body`, which must not return.
  CUDA_HOST_UNSEEN void start(char* stack, size_t bytes, void (*body)()) {
    const uintptr_t end = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t(15);
    void** top = reinterpret_cast<void**>(end);
    *--top = nullptr;  // where a function expects its return address
    *--top = reinterpret_cast<void*>(body);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    end_ = top;
  }
  CUDA_HOST_UNSEEN void switch_to(Context& other) { cuda_host_switch_stack(&end_, other.end_); }

 private:
  void* end_ = nullptr;
};

}  // namespace cuda_host

#else

#include <ucontext.h>

namespace cuda_host {

class Context {
 public:
  CUDA_HOST_UNSEEN void start(char* stack, size_t bytes, void (*body)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, body, 0);
  }
  CUDA_HOST_UNSEEN void switch_to(Context& other) { swapcontext(&context_, &other.context_); }

 private:
  ucontext_t context_{};
};

}  // namespace cuda_host

#endif
