// Floating-point mode of kernels: denormals flushed, no traps, round to nearest.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace braze {

// Sets the kernels' mode and restores the thread's own when it goes out of scope.
class KernelFloatMode {
 public:
#if defined(__x86_64__)
  KernelFloatMode() : saved_(_mm_getcsr()) {
    _mm_setcsr(kFlushToZero | kDenormalsAreZero | kMasked);
  }
  ~KernelFloatMode() { _mm_setcsr(saved_); }

 private:
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kDenormalsAreZero = 0x0040;
  static constexpr unsigned kMasked = 0x1f80;
  unsigned saved_;
#elif defined(__aarch64__)
  KernelFloatMode() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
    __asm__ volatile("msr fpcr, %0" : : "r"(kFlushToZero));
  }
  ~KernelFloatMode() { __asm__ volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  static constexpr uint64_t kFlushToZero = uint64_t{1} << 24;
  uint64_t saved_;
#endif

 public:
  KernelFloatMode(const KernelFloatMode&) = delete;
  KernelFloatMode& operator=(const KernelFloatMode&) = delete;
};

}  // namespace braze
