#include "thread_pool.h"

#include <pthread.h>

#include <mutex>
#include <new>

#include "cpu_features.h"
#include "float_mode.h"
#include "futex.h"
#include "signals.h"

namespace braze {
namespace {

using std::chrono::microseconds;

// How long threads spin before they sleep. Long enough to bridge the serial steps between parallel
// ones and uneven shares; short enough that an idle engine costs nothing, and that a thread which
// lost its CPU to another process gets this one.
constexpr microseconds kSpin{50};

struct ProcessState {
  std::mutex mutex;
  std::atomic<ThreadPool*> pool{nullptr};
  std::atomic<uint32_t> forks{0};
};

ProcessState& process_state() {
  static ProcessState* const state = [] {
    auto* const made = new ProcessState();
    pthread_atfork([] { process_state().mutex.lock(); }, [] { process_state().mutex.unlock(); },
                   [] {
                     ProcessState& s = process_state();
                     s.pool.store(nullptr);
                     s.forks.fetch_add(1);
                     s.mutex.unlock();
                   });
    return made;
  }();
  return *state;
}

}  // namespace

uint32_t fork_generation() { return process_state().forks.load(std::memory_order_relaxed); }

// Words the holder writes and words the worker writes stand on cache lines of their own.
struct ThreadPool::Worker {
  Worker(ThreadPool& owner, int64_t index) : pool(owner), number(index) {}

  ThreadPool& pool;
  const int64_t number;
  // The share of this worker in job number `ticket` belongs to who raises `claimed` to it.
  bool claim(uint32_t number_of_job) {
    uint32_t before = number_of_job - 1;
    return claimed.compare_exchange_strong(before, number_of_job, std::memory_order_acq_rel);
  }

  alignas(64) std::atomic<uint32_t> ticket{0};  // raised by the holder: one more job
  std::atomic<uint32_t> holder_sleeps{0};
  alignas(64) std::atomic<uint32_t> claimed{0};
  std::atomic<uint32_t> finished{0};  // the last job whose share this thread has done
  std::atomic<uint32_t> worker_sleeps{0};
};

ThreadPool::ThreadPool() : cpus_(host_cpus()) {}

ThreadPool& ThreadPool::shared() {
  ProcessState& state = process_state();
  ThreadPool* pool = state.pool.load(std::memory_order_acquire);
  if (pool) return *pool;
  const std::lock_guard<std::mutex> lock(state.mutex);
  pool = state.pool.load(std::memory_order_acquire);
  if (!pool) {
    pool = new ThreadPool();
    state.pool.store(pool, std::memory_order_release);
  }
  return *pool;
}

int64_t ThreadPool::grow(int64_t num_workers) {
  while (static_cast<int64_t>(workers_.size()) + 1 < num_workers) {
    const auto number = static_cast<int64_t>(workers_.size()) + 1;
    workers_.push_back(std::make_unique<Worker>(*this, number));
    const SignalsBlocked blocked;
    pthread_t thread;
    const int failed = pthread_create(&thread, nullptr, &thread_main, workers_.back().get());
    if (failed) {
      workers_.pop_back();
      break;
    }
    pthread_detach(thread);
  }
  const auto possible = static_cast<int64_t>(workers_.size()) + 1;
  num_workers = num_workers < possible ? num_workers : possible;
  // With more workers than CPUs spinning only takes time from the others.
  may_spin_.store(num_workers <= cpus_, std::memory_order_relaxed);
  return num_workers;
}

void* ThreadPool::thread_main(void* worker) {
  Worker& self = *static_cast<Worker*>(worker);
  pthread_setname_np(pthread_self(), "braze-worker");
  self.pool.serve(self);
  return nullptr;
}

void ThreadPool::serve(Worker& self) {
  const KernelFloatMode mode;
  for (uint32_t seen = 0;;) {
    const auto called = [&] { return self.ticket.load(std::memory_order_acquire) != seen; };
    const auto budget = may_spin_.load(std::memory_order_relaxed) ? kSpin : microseconds(0);
    if (!spin_until(called, budget)) {
      // Sequentially consistent: either the holder sees that we sleep, or we see its ticket.
      self.worker_sleeps.store(1, std::memory_order_seq_cst);
      while (self.ticket.load(std::memory_order_seq_cst) == seen) futex_wait(self.ticket, seen);
      self.worker_sleeps.store(0, std::memory_order_relaxed);
    }
    seen = self.ticket.load(std::memory_order_acquire);
    // Once claimed, the holder waits for us: job_ and argument_ stay as they are.
    if (!self.claim(seen)) continue;
    job_(argument_, self.number);
    self.finished.store(seen, std::memory_order_seq_cst);
    if (self.holder_sleeps.load(std::memory_order_seq_cst)) futex_wake_all(self.finished);
  }
}

void ThreadPool::run(Job job, void* argument, int64_t num_workers) {
  job_ = job;
  argument_ = argument;
  const auto count = static_cast<size_t>(num_workers - 1);
  const auto budget = may_spin_.load(std::memory_order_relaxed) ? kSpin : microseconds(0);
  for (size_t i = 0; i < count; ++i) {
    Worker& w = *workers_[i];
    w.ticket.store(w.ticket.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    if (w.worker_sleeps.load(std::memory_order_seq_cst)) futex_wake_all(w.ticket);
  }
  job(argument, 0);
  for (size_t i = 0; i < count; ++i) {
    Worker& w = *workers_[i];
    const uint32_t ticket = w.ticket.load(std::memory_order_relaxed);
    if (w.claim(ticket)) {
      job(argument, w.number);
      continue;
    }
    const auto done = [&] { return w.finished.load(std::memory_order_acquire) == ticket; };
    if (spin_until(done, budget)) continue;
    w.holder_sleeps.store(1, std::memory_order_seq_cst);
    for (;;) {
      const uint32_t finished = w.finished.load(std::memory_order_seq_cst);
      if (finished == ticket) break;
      futex_wait(w.finished, finished);
    }
    w.holder_sleeps.store(0, std::memory_order_relaxed);
  }
}

}  // namespace braze
