// How much memory a computation could take now, and the bound that follows from it.
#pragma once

#include <cstdint>
#include <string>

namespace simcore::cpu {

// Bytes: the least of what the machine has free and of what each control group that this process is
// in (container, batch job, service) has left up to its limit. The folder `root` stands before
// /proc and /sys, for tests.
int64_t free_memory(const std::string& root = "");

// The bound in force: max_memory itself, or a quarter of the free memory for 0. At least 1.
int64_t memory_bound(int64_t max_memory);

}  // namespace simcore::cpu
