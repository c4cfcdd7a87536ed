// What the two paths share: the layers of a grid, prepared once, and which pairs are wanted.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>
#include <new>
#include <vector>

#include "cpu/hsic/hsic.h"
#include "cpu/isa/isa.h"

namespace simcore::cpu {

template <typename T>
struct Grid {
  int64_t n = 0;
  int64_t count_x = 0;            // layers [0, count_x) are x, the rest y
  bool symmetric = true;          // x with itself
  std::vector<LayerView> layers;  // x, then y
  std::vector<Centring<T>> centring;

  int64_t count() const { return int64_t(layers.size()); }
  // Pairs (a, b) with b >= a that the result needs: every pair of x with itself, or every (x, y)
  // and each layer with itself.
  bool wanted(int64_t a, int64_t b) const {
    return symmetric || a == b || (a < count_x && b >= count_x);
  }
};

// Centres all layers; y empty: x with itself. Throws std::invalid_argument naming the layer that
// holds NaN or infinity.
template <typename T>
Grid<T> make_grid(int64_t n, const std::vector<LayerView>& x, const std::vector<LayerView>& y,
                  const Runtime& rt);

// Sums over example pairs, unscaled: sums are those of centred entries times 2^-exponent.
struct GridSums {
  std::vector<double> offdiag;  // [L, L], upper triangle of wanted pairs; sum_{i != j} K_ij L_ij
  std::vector<double> diag;     // [L, n] K_ii
  std::vector<double> rows;     // [L, n] sum_{j != i} K_ij; empty for the linear kernel (= -diag)
  std::vector<double> squares;  // [L, n] sum_{j != i} K_ij^2, if asked for
  std::vector<double> cubes;    // [L] sum_{i != j} K_ij^3, if asked for
};

// gammas[l] = 1 / (2 sigma_l^2); shift = the kernel's value at the median distance.
struct RbfScale {
  std::vector<double> gammas;
  double shift = 0;
};

template <typename T>
RbfScale median_bandwidths(const Grid<T>& grid, double bandwidth, const Runtime& rt);

template <typename T>
GridSums gram_sums(const Grid<T>& grid, const RbfScale* rbf, bool power_sums, const Plan& plan,
                   const Runtime& rt);

template <typename T>
GridSums feature_sums(const Grid<T>& grid, const Plan& plan, const Runtime& rt);

// A hint, for the whole pages of 2 MB in between: failing is fine.
inline void ask_for_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__)
  const uintptr_t begin = round_up(int64_t(reinterpret_cast<uintptr_t>(data)), kHugePage);
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
