// The worker threads of the process, shared by all engines; one run uses them at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace braze {

class ThreadPool {
 public:
  using Job = void (*)(void* argument, int64_t worker);

  ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The pool of this process. It is never destroyed: its threads sleep until the process ends.
  // After fork() the child gets a new one, since threads do not survive in it.
  static ThreadPool& shared();

  // Claims the pool for the calling thread unless another run holds it.
  bool try_acquire() { return !busy_.exchange(true, std::memory_order_acquire); }
  void release() { busy_.store(false, std::memory_order_release); }

  // Every run counts itself. Workers are worth it only while there are CPUs for them: with other
  // runs on the CPUs, each run does best alone on its thread, and the sum of all is largest.
  void begin_run() { active_runs_.fetch_add(1, std::memory_order_relaxed); }
  void end_run() { active_runs_.fetch_sub(1, std::memory_order_relaxed); }
  bool has_room(int64_t num_workers) const {
    const int64_t others = active_runs_.load(std::memory_order_relaxed) - 1;
    return others <= 0 || others + num_workers <= cpus_;
  }

  // The following are for the holder only.

  // Starts threads so that `num_workers` (with the caller) can run; returns how many can.
  int64_t grow(int64_t num_workers);
  // Calls job(argument, w) once for each w in [0, num_workers), w = 0 on the caller, and waits for
  // all. A share whose thread has not come for it (it sleeps, or other processes have its CPU) is
  // done by the caller, so a late thread delays nothing.
  void run(Job job, void* argument, int64_t num_workers);

 private:
  struct Worker;

  static void* thread_main(void* worker);
  void serve(Worker& self);

  alignas(64) std::atomic<bool> busy_{false};
  std::atomic<int64_t> active_runs_{0};
  std::vector<std::unique_ptr<Worker>> workers_;
  Job job_ = nullptr;
  void* argument_ = nullptr;
  std::atomic<bool> may_spin_{false};
  const int64_t cpus_;
};

// Counts how often this process came out of fork(): things with threads remember it, and a
// difference means that their threads are gone.
uint32_t fork_generation();

}  // namespace braze
