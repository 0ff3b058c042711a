// Waiting on a 32-bit word: spin for a short while, then sleep in the kernel.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace braze {

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "the kernel sees a plain word");

inline void futex_wait(std::atomic<uint32_t>& word, uint32_t while_equal) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, while_equal, nullptr, nullptr, 0);
}

inline void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Calls done() until it is true, for at most `budget`; returns whether it was.
template <class Done>
bool spin_until(const Done& done, std::chrono::nanoseconds budget) {
  if (done()) return true;
  if (budget.count() <= 0) return false;
  constexpr int kPausesPerClockRead = 32;
  const auto deadline = std::chrono::steady_clock::now() + budget;
  for (;;) {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      cpu_pause();
      if (done()) return true;
    }
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

}  // namespace braze
