// The border between the library of operators, which knows no Python, and simcore._C, which does
// (csrc/python/module.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/hsic/plan.h"

namespace simcore {

enum class Refusal { value, type, unimplemented, memory };  // memory: torch.OutOfMemoryError

// What Python does for the operators of every library; both functions throw errors of Python.
struct Host {
  // Is told the finished share of an operator, in [0, 1], and lets pending signals raise.
  void (*progress)(double done) = nullptr;
  // Raises an error of that class.
  void (*refuse)(Refusal kind, const char* message) = nullptr;
};

#pragma GCC visibility push(default)
extern "C" Host* simcore_host();  // of the process: libraries of kernels find it in this one

// The plan that HSIC would follow: simcore.plan_cka.
cpu::HsicPlan plan_hsic(int64_t n, std::vector<int64_t> widths_x, std::vector<int64_t> widths_y,
                        const char* kernel, double bandwidth, const char* method, bool float64,
                        int64_t max_memory);
const char* name_of(cpu::Method method);
const char* instruction_set();  // in use
int64_t free_memory();
int64_t memory_bound(int64_t max_memory);  // the bytes that a bound of 0 or more stands for
#pragma GCC visibility pop

}  // namespace simcore
