// Checks the weights of a loaded engine in the background, so that loading takes no time and yet
// no run ever uses damaged weights: every run waits for the check, and helps with it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine_file.h"

namespace braze {

class WeightCheck {
 public:
  WeightCheck(const Section& weights, std::string engine_name);
  ~WeightCheck();
  WeightCheck(const WeightCheck&) = delete;
  WeightCheck& operator=(const WeightCheck&) = delete;

  // Returns when the weights are known to be whole; throws a format error when they are not.
  void wait() {
    if (state_.load(std::memory_order_acquire) != kWhole) wait_slowly();
  }

 private:
  enum State : int { kRunning, kWhole, kDamaged };

  void wait_slowly();
  void hash_chunks();
  void finish();

  const Section weights_;
  const std::string engine_name_;
  const uint32_t fork_generation_;
  std::vector<uint64_t> hashes_;
  std::atomic<size_t> next_chunk_{0};
  std::atomic<size_t> chunks_done_{0};
  std::atomic<bool> stop_{false};
  std::atomic<int> state_{kRunning};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread* thread_ = nullptr;  // leaked in a forked child, where it does not exist
};

}  // namespace braze
