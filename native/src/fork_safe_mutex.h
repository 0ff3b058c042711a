// A mutex that does not deadlock when a forked child inherits it locked, or when a callback that
// runs under it comes back.
#pragma once

#include <atomic>
#include <thread>

#include "error.h"
#include "futex.h"
#include "thread_pool.h"

namespace braze {

// Lockable. lock() throws an execution error in a forked child whose parent held it, and on the
// thread that holds it already. One word says whether it is held and since which fork, so that a
// fork sees both or neither.
class ForkSafeMutex {
 public:
  explicit ForkSafeMutex(const char* what) : what_(what) {}
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock() {
    const uint32_t mine = (fork_generation() + 1) << 1;
    uint32_t found = kFree;
    if (!word_.compare_exchange_strong(found, mine, std::memory_order_acquire)) wait(mine, found);
    holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }

  void unlock() {
    holder_.store(std::thread::id(), std::memory_order_relaxed);
    if (word_.exchange(kFree, std::memory_order_release) & kWaited) futex_wake_all(word_);
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kWaited = 1;  // the lowest bit: someone sleeps until it is free

  void wait(uint32_t mine, uint32_t found) {
    // Only this thread can have stored its own id, so a relaxed load tells it apart.
    if (holder_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
      fail(BRAZE_ERROR_EXECUTION, "this ", what_, " is running on this very thread; ",
           "a callback must not call the ", what_, " it was called from");
    }
    for (;;) {
      if (found == kFree) {
        // Others may still sleep, so the one that frees it must wake them.
        if (word_.compare_exchange_weak(found, mine | kWaited, std::memory_order_acquire)) return;
        continue;
      }
      if ((found & ~kWaited) != mine) {
        fail(BRAZE_ERROR_EXECUTION, "this ", what_, " was in use by another thread when the ",
             "process forked; create a new one in the child");
      }
      if (found & kWaited || word_.compare_exchange_weak(found, found | kWaited)) {
        futex_wait(word_, mine | kWaited);
        found = word_.load(std::memory_order_relaxed);
      }
    }
  }

  const char* const what_;
  std::atomic<uint32_t> word_{kFree};
  std::atomic<std::thread::id> holder_{};
};

}  // namespace braze
