// Storage of workspaces: uninitialised, aligned, and in huge pages where it is large.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>
#include <new>

#include "core/math/index_math.h"

namespace simcore::cpu {

constexpr int64_t kHugePage = 2 << 20;

// Returns the size of a Buffer of `bytes` bytes: a large Buffer takes whole huge pages.
constexpr int64_t buffer_bytes(int64_t bytes) {
  return bytes >= kHugePage ? round_to(bytes, kHugePage) : bytes;
}

// Advises the system to use huge pages for the whole 2 MB pages of the storage. A failure is
// harmless.
inline void ask_for_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__)
  const uintptr_t begin = round_to(int64_t(reinterpret_cast<uintptr_t>(data)), kHugePage);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kHugePage * kHugePage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

// Uninitialised, aligned storage: workspaces are large and always written before they are read. A
// Buffer of 2 MB or more asks for huge pages: panels are streamed, and with small pages every 4 KB
// costs a stall of the prefetcher and a page walk (measured: 10 % of a grid's time).
template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t size) : bytes_(buffer_bytes(size * int64_t(sizeof(T)))) {
    data_ = static_cast<T*>(::operator new(bytes_, alignment()));
    ask_for_huge_pages(data_, bytes_);
  }
  ~Buffer() { ::operator delete(data_, alignment()); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* data() const { return data_; }

 private:
  std::align_val_t alignment() const {
    return std::align_val_t(bytes_ >= kHugePage ? kHugePage : 64);
  }
  int64_t bytes_;
  T* data_;
};

}  // namespace simcore::cpu
