// A mutex that does not deadlock when a forked child inherits it locked.
#pragma once

#include <atomic>
#include <mutex>

#include "error.h"
#include "thread_pool.h"

namespace braze {

// Lockable. In a forked child whose parent held it, lock() throws an execution error.
class ForkSafeMutex {
 public:
  explicit ForkSafeMutex(const char* what) : what_(what) {}

  void lock() {
    if (!mutex_.try_lock()) {
      if (owner_generation_.load() != fork_generation()) {
        fail(BRAZE_ERROR_EXECUTION, "this ", what_, " was in use by another thread when the ",
             "process forked; create a new one in the child");
      }
      mutex_.lock();
    }
    owner_generation_.store(fork_generation());
  }
  void unlock() { mutex_.unlock(); }

 private:
  const char* const what_;
  std::mutex mutex_;
  std::atomic<uint32_t> owner_generation_{0};
};

}  // namespace braze
