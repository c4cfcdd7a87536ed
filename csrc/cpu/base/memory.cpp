// Free memory of the machine and of the control groups that this process is in.
//
// Math      The machine has MemAvailable bytes. A group has limit - (usage - inactive_file),
//           because the kernel gives back page cache that nothing has used lately before it kills a
//           group's processes. A group's limit also holds for the groups inside it, so that every
//           ancestor counts and the least value decides.
// Plan      /proc/self/cgroup names the process's group in each hierarchy: "4:memory:/a/b" is a
//           group of version 1 for memory, "0::/a/b" a group of version 2, whose mount is one
//           folder deeper where both versions are in use. The files of all folders from the mount
//           to the group are read as far as the files exist: version 2 has none for the top group.
//           In a container the path may be the host's; then only the mount exists, and the mount is
//           the container's group.
// Source    the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst
#include "cpu/base/memory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

namespace simcore::cpu {
namespace {

struct Hierarchy {
  const char *mount, *limit, *usage, *reclaimable;  // the last is an entry of memory.stat
};

// Entries that begin with total_ include the groups inside, as usage does.
constexpr Hierarchy kVersion1{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                              "/memory.usage_in_bytes", "total_inactive_file"};
constexpr Hierarchy kVersion2{"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file"};
constexpr Hierarchy kBesideVersion1{"/sys/fs/cgroup/unified", "/memory.max", "/memory.current",
                                    "inactive_file"};

// Returns nothing for a word such as "max" and for a number above the largest int64_t: neither is a
// limit.
std::optional<int64_t> parse_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return parse_number(line);
}

// The number behind `name` in a file of lines "name number".
std::optional<int64_t> entry_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(name, 0) == 0) return parse_number(std::string_view(line).substr(name.size()));
  return std::nullopt;
}

int64_t free_of_machine(const std::string& root) {
  if (const auto kilobytes = entry_of(root + "/proc/meminfo", "MemAvailable:"))
    return *kilobytes * 1024;
  return int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 2;
}

// Returns the lesser of `free` and the free memory of the group in `folder`.
int64_t least_of(int64_t free, const std::string& folder, const Hierarchy& hierarchy) {
  const std::optional<int64_t> limit = number_in(folder + hierarchy.limit);
  if (!limit) return free;
  const int64_t usage = number_in(folder + hierarchy.usage).value_or(0);
  if (*limit - usage >= free) return free;  // memory.stat is slow to read
  const std::string name = std::string(hierarchy.reclaimable) + " ";
  const int64_t reclaimable = entry_of(folder + "/memory.stat", name).value_or(0);
  return std::min(free, *limit - std::max<int64_t>(usage - reclaimable, 0));
}

// Returns the least of `free` and the free memory of the group `path` and of each group around it.
int64_t least_of_all(int64_t free, const std::string& root, const std::string& path,
                     const Hierarchy& hierarchy) {
  const std::string mount = root + hierarchy.mount;
  free = least_of(free, mount, hierarchy);
  if (path.rfind("/..", 0) == 0) return free;  // outside of what this process can see
  for (size_t end = 0; end < path.size() && path.size() > 1;) {
    end = std::min(path.find('/', end + 1), path.size());
    free = least_of(free, mount + path.substr(0, end), hierarchy);
  }
  return free;
}

// Returns true if a list of controllers such as "cpu,memory" contains memory.
bool lists_memory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

}  // namespace

int64_t free_memory(const std::string& root) {
  int64_t free = free_of_machine(root);
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (lists_memory(controllers)) free = least_of_all(free, root, path, kVersion1);
    if (!controllers.empty()) continue;
    free = least_of_all(free, root, path, kVersion2);
    free = least_of_all(free, root, path, kBesideVersion1);
  }
  return std::max<int64_t>(free, 0);
}

int64_t memory_bound(int64_t max_memory) {
  return max_memory > 0 ? max_memory : std::max<int64_t>(free_memory() / 4, 1);
}

}  // namespace simcore::cpu
