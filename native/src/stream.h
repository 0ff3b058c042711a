// Streams: first-in first-out queues of work, each served by a thread of its own. Events: marks
// in a stream that others can wait for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "error.h"

namespace braze {

class Event {
 public:
  using Clock = std::chrono::steady_clock;

  Event();

  // Throws in a forked child, where the stream that would complete it does not exist.
  void check_alive() const;
  // Called when the record is enqueued; returns its number.
  uint64_t announce();
  // Called when the stream comes to record `number`.
  void complete(uint64_t number);
  // The number of the latest record enqueued, 0 for none.
  uint64_t latest();
  // Blocks until record `number` is complete.
  void wait(uint64_t number);
  bool done();
  // When the latest record completed; throws an execution error unless it has.
  Clock::time_point time();

 private:
  const uint32_t fork_generation_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t announced_ = 0;
  uint64_t completed_ = 0;
  Clock::time_point time_;
};

class Stream {
 public:
  Stream();
  // Waits for the work already enqueued, unless called from that work itself.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void check_alive() const;  // throws in a forked child, where the thread does not exist
  void enqueue(std::function<void()> task);
  // Waits for everything enqueued so far, then throws the first error since the last call.
  void synchronize();
  bool done();
  void progress(int64_t& enqueued, int64_t& finished);

 private:
  // Shared with the thread, which may outlive the stream when its own work destroys it.
  struct State {
    std::mutex mutex;
    std::condition_variable work;
    std::condition_variable progress;
    std::deque<std::function<void()>> tasks;
    int64_t enqueued = 0;
    int64_t finished = 0;
    bool closing = false;
    std::optional<Error> first_error;
  };

  static void serve(State& state);

  const uint32_t fork_generation_;
  std::shared_ptr<State> state_;
  std::thread* thread_;  // leaked in a forked child, as is the state
};

}  // namespace braze
