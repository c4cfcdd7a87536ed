// The memory that a computation could take now, and the bound that follows from it.
#pragma once

#include <cstdint>
#include <string>

namespace simcore::cpu {

// Returns free bytes: the least of the machine's free memory and of the memory that each control
// group of this process (container, batch job, service) has left up to its limit. Tests pass a
// folder `root`, which then stands before /proc and /sys.
int64_t free_memory(const std::string& root = "");

// Returns the bound in force: max_memory itself, or a quarter of the free memory for 0. At least 1.
int64_t memory_bound(int64_t max_memory);

}  // namespace simcore::cpu
