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

// What a Buffer of so many bytes takes: large ones come in whole huge pages.
constexpr int64_t buffer_bytes(int64_t bytes) {
  return bytes >= kHugePage ? round_to(bytes, kHugePage) : bytes;
}

// A hint, for the whole pages of 2 MB in between: failing is fine.
inline void ask_for_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__)
  const uintptr_t begin = round_to(int64_t(reinterpret_cast<uintptr_t>(data)), kHugePage);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kHugePage * kHugePage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

// Uninitialised, aligned storage: workspaces are large and always written before read. From 2 MB on
// huge pages are asked for: panels are streamed, and with small pages every 4 KB costs a stall of
// the prefetcher and a page walk (measured: 10 % of a grid's time).
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
