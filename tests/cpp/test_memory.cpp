// free_memory: /proc and /sys as kernels and containers arrange them, built in a folder.
#include "cpu/base/memory.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "check.h"

using simcore::cpu::free_memory;
using simcore::cpu::memory_bound;

namespace {

constexpr int64_t kMB = 1 << 20;
constexpr int64_t kMachine = 64000 * kMB;
const std::string kNoLimitVersion1 = "9223372036854771712";

// A folder that stands in for /, with 64000 MB free.
class Root {
 public:
  Root() {
    static int count = 0;
    folder_ = std::filesystem::temp_directory_path() /
              ("simcore-memory-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    write("/proc/meminfo",
          "MemTotal:       90000000 kB\nMemFree:         1000000 kB\nMemAvailable: " +
              std::to_string(kMachine / 1024) + " kB\nSwapFree:  1 kB\n");
  }
  ~Root() { std::filesystem::remove_all(folder_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void groups(const std::string& lines) const { write("/proc/self/cgroup", lines); }

  // Sizes in MB.
  void version2(const std::string& folder, const std::string& limit, int64_t usage,
                int64_t inactive) const {
    write(folder + "/memory.max", limit);
    write(folder + "/memory.current", std::to_string(usage * kMB));
    write(folder + "/memory.stat", "anon 1\nactive_file 777777777\ninactive_file " +
                                       std::to_string(inactive * kMB) + "\nworkingset 5");
  }
  void version1(const std::string& folder, const std::string& limit, int64_t usage,
                int64_t inactive) const {
    write(folder + "/memory.limit_in_bytes", limit);
    write(folder + "/memory.usage_in_bytes", std::to_string(usage * kMB));
    // inactive_file counts the group alone, total_inactive_file the groups inside it too.
    write(folder + "/memory.stat",
          "cache 1\ninactive_file 4096\ntotal_cache 2\n"
          "total_inactive_file " +
              std::to_string(inactive * kMB));
  }
  int64_t free() const { return free_memory(folder_); }

 private:
  std::string folder_;
};

std::string bytes(int64_t megabytes) { return std::to_string(megabytes * kMB); }

}  // namespace

TEST(a_machine_without_groups_has_what_is_available) {
  const Root root;
  CHECK(root.free() == kMachine);
  root.groups("0::/user.slice/session-1.scope");  // the folders of this group do not exist
  CHECK(root.free() == kMachine);
}

TEST(version_2_limit_less_usage_that_is_not_reclaimable) {
  const Root root;
  root.groups("0::/job");
  root.version2("/sys/fs/cgroup/job", bytes(8000), 3000, 1000);
  CHECK(root.free() == 6000 * kMB);
  root.version2("/sys/fs/cgroup/job", bytes(90000), 3000, 1000);
  CHECK(root.free() == kMachine);
  root.version2("/sys/fs/cgroup/job", bytes(66000), 3000, 3000);
  CHECK(root.free() == kMachine);
  root.version2("/sys/fs/cgroup/job", "max", 3000, 1000);
  CHECK(root.free() == kMachine);
}

TEST(the_tightest_ancestor_decides) {
  const Root root;
  root.groups("0::/kubepods/pod7/main/worker");
  const std::string top = "/sys/fs/cgroup/kubepods";
  root.version2(top, bytes(32000), 31000, 0);
  root.version2(top + "/pod7", bytes(8000), 7500, 0);
  root.version2(top + "/pod7/main", "max", 6000, 0);
  root.version2(top + "/pod7/main/worker", bytes(9000), 10, 0);
  CHECK(root.free() == 500 * kMB);
  root.version2(top, bytes(32000), 31900, 0);
  CHECK(root.free() == 100 * kMB);
  root.version2(top + "/pod7/main/worker", bytes(60), 10, 0);
  CHECK(root.free() == 50 * kMB);
  root.version2(top + "/pod7/other", bytes(1), 0, 0);  // not an ancestor
  CHECK(root.free() == 50 * kMB);
}

TEST(a_container_sees_its_own_group_as_the_mount) {
  for (const char* path : {"/", "/..", "/../..", "/../../sibling", "/docker/8dee8b6d"}) {
    check::context = path;
    const Root root;
    root.groups(std::string("0::") + path);
    root.version2("/sys/fs/cgroup", bytes(8000), 3000, 1000);
    CHECK(root.free() == 6000 * kMB);
    // A folder outside the mount, where a path with ".." would lead.
    root.version2("/sys/fs", bytes(1), 0, 0);
    root.version2("/sys", bytes(1), 0, 0);
    CHECK(root.free() == 6000 * kMB);
  }
}

TEST(version_1_limit_less_usage_that_is_not_reclaimable) {
  const Root root;
  root.groups("5:cpuset:/elsewhere\n4:memory:/job/step\n1:name=systemd:/");
  const std::string mount = "/sys/fs/cgroup/memory";
  root.version1(mount, kNoLimitVersion1, 80000, 0);
  root.version1(mount + "/job", bytes(8000), 3000, 1000);
  root.version1(mount + "/job/step", kNoLimitVersion1, 3000, 1000);
  CHECK(root.free() == 6000 * kMB);
  root.version1(mount + "/job/step", bytes(3001), 3000, 1000);
  CHECK(root.free() == 1001 * kMB);
  root.version1(mount + "/elsewhere", bytes(1), 0, 0);  // of another controller
  root.version2("/sys/fs/cgroup/elsewhere", bytes(1), 0, 0);
  CHECK(root.free() == 1001 * kMB);
}

TEST(version_1_of_several_controllers_in_a_container) {
  for (const char* line : {"4:cpu,memory:/docker/8dee", "4:memory,cpu:/", "4:memory:/../.."}) {
    check::context = line;
    const Root root;
    root.groups(line);
    root.version1("/sys/fs/cgroup/memory", bytes(8000), 3000, 0);
    CHECK(root.free() == 5000 * kMB);
  }
  const Root root;
  root.groups("4:nomemory:/");
  root.version1("/sys/fs/cgroup/memory", bytes(8000), 3000, 0);
  CHECK(root.free() == kMachine);
}

TEST(both_versions_at_once) {
  const Root root;
  root.groups("4:memory:/job\n1:name=systemd:/job\n0::/scope");
  root.version1("/sys/fs/cgroup/memory/job", bytes(8000), 3000, 0);
  root.write("/sys/fs/cgroup/unified/scope/cgroup.procs", "1");
  CHECK(root.free() == 5000 * kMB);
  root.version2("/sys/fs/cgroup/unified/scope", bytes(4000), 0, 0);
  CHECK(root.free() == 4000 * kMB);
}

TEST(files_may_be_missing_or_strange) {
  const Root root;
  root.groups("nonsense\n0::/a:b");
  root.write("/sys/fs/cgroup/a:b/memory.max", bytes(8000));
  CHECK(root.free() == 8000 * kMB);  // neither usage nor memory.stat
  root.write("/sys/fs/cgroup/a:b/memory.current", bytes(9000));
  CHECK(root.free() == 0);  // over its limit
  for (const char* limit : {"", "nonsense", "18446744073709551615"}) {
    root.write("/sys/fs/cgroup/a:b/memory.max", limit);
    CHECK(root.free() == kMachine);
  }
}

TEST(page_cache_beyond_the_usage_adds_nothing_to_the_limit) {
  const Root root;
  root.groups("0::/job");
  root.version2("/sys/fs/cgroup/job", bytes(8000), 100, 300);  // read at two moments
  CHECK(root.free() == 8000 * kMB);
}

TEST(a_bound_of_0_is_a_quarter_of_this_machine_s) {
  CHECK(memory_bound(12345) == 12345);
  const double free = double(free_memory());
  CHECK(free > 0);
  CHECK_NEAR(double(memory_bound(0)), free / 4, free / 8);  // other processes come and go
}

int main() { return check::main(); }
