// The few lines of a test framework that these tests need.
//
// A failed CHECK is printed and counted, and the test goes on. main() runs the TESTs of its file
// and returns 1 after a failure, or 77 (which ctest shows as skipped) where this processor lacks
// the instruction set that SIMCORE_CPU_ISA asks for.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace check {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

inline int failures = 0;

// Races do not depend on numbers, and ThreadSanitizer is slow: there, a test of many numbers runs
// one case of each sequence of launches.
#if defined(__SANITIZE_THREAD__)
constexpr bool kOneCase = true;
#else
constexpr bool kOneCase = false;
#endif

// The case that is being tested right now ("n = 33, avx2"), printed with a failure.
inline std::string context;

inline void fail(const char* file, int line, const std::string& what) {
  failures++;
  // The first failures say it all; the count at the end tells how many there were.
  if (failures <= 20) std::printf("%s:%d: %s [%s]\n", file, line, what.c_str(), context.c_str());
}

inline void near(const char* file, int line, const char* what, double got, double wanted,
                 double tolerance) {
  if (std::fabs(got - wanted) <= tolerance) return;  // false for nan, too
  char text[256];
  std::snprintf(text, sizeof text, "%s: wanted %.17g +- %.3g, got %.17g", what, wanted, tolerance,
                got);
  fail(file, line, text);
}

// The message of the std::invalid_argument that `body` throws; empty if it throws none.
inline std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

// Runs every test, or with the arguments `part parts` each parts-th test from `part` on.
inline int main(int count = 0, char** arguments = nullptr) {
  const size_t part = count > 2 ? std::strtoul(arguments[1], nullptr, 10) : 0;
  const size_t parts = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 1;
  for (size_t i = part; i < tests().size(); i += parts) {
    const Test& test = tests()[i];
    const int before = failures;
    const auto start = std::chrono::steady_clock::now();
    context.clear();
    try {
      test.run();
    } catch (const std::exception& error) {
      if (std::strstr(error.what(), "SIMCORE_CPU_ISA") != nullptr) {
        std::printf("skipped: %s\n", error.what());
        return 77;
      }
      fail(test.name, 0, std::string("threw ") + error.what());
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%s %6.2f s  %s\n", failures == before ? "ok    " : "FAILED", took.count(),
                test.name);
  }
  if (failures > 0) std::printf("%d checks failed\n", failures);
  return failures > 0;
}

}  // namespace check

#define CHECK(condition)                                           \
  do {                                                             \
    if (!(condition)) check::fail(__FILE__, __LINE__, #condition); \
  } while (0)
#define CHECK_NEAR(got, wanted, tolerance) \
  check::near(__FILE__, __LINE__, #got, got, wanted, tolerance)
#define TEST(name)                                                                      \
  static void name();                                                                   \
  static const bool name##_is_listed = (check::tests().push_back({#name, name}), true); \
  static void name()
