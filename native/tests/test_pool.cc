#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "check.h"
#include "thread_pool.h"

namespace {

using braze::ThreadPool;

struct Counts {
  std::vector<std::atomic<int>> by_worker = std::vector<std::atomic<int>>(16);
  static void work(void* argument, int64_t worker) {
    static_cast<Counts*>(argument)->by_worker[static_cast<size_t>(worker)].fetch_add(1);
  }
};

void acquire(ThreadPool& pool) {
  while (!pool.try_acquire()) std::this_thread::yield();
}

void test_every_worker_once() {
  ThreadPool& pool = ThreadPool::shared();
  for (const int64_t wanted : {2, 7, 3, 1, 7}) {
    Counts counts;
    acquire(pool);
    const int64_t workers = pool.grow(wanted);
    CHECK(workers == wanted);
    constexpr int kRounds = 2000;
    for (int i = 0; i < kRounds; ++i) pool.run(&Counts::work, &counts, workers);
    pool.release();
    for (int64_t w = 0; w < 16; ++w) {
      CHECK(counts.by_worker[static_cast<size_t>(w)] == (w < workers ? kRounds : 0));
    }
  }
}

// Plain (not atomic) data passed from phase to phase: the pool must order it.
void test_phases_see_each_other() {
  struct Ring {
    std::vector<long> values;
    int64_t workers;
    int64_t round;
    static void work(void* argument, int64_t worker) {
      Ring& ring = *static_cast<Ring*>(argument);
      const auto n = ring.workers;
      const auto from = static_cast<size_t>(((worker + 1) % n) + (ring.round % 2) * n);
      const auto to = static_cast<size_t>(worker + ((ring.round + 1) % 2) * n);
      ring.values[to] = ring.values[from] + 1;
    }
  };
  ThreadPool& pool = ThreadPool::shared();
  acquire(pool);
  Ring ring{std::vector<long>(8), pool.grow(4), 0};
  for (ring.round = 0; ring.round < 5000; ++ring.round) pool.run(&Ring::work, &ring, ring.workers);
  pool.release();
  for (int64_t w = 0; w < ring.workers; ++w) CHECK(ring.values[static_cast<size_t>(w)] == 5000);
}

void test_one_holder() {
  ThreadPool& pool = ThreadPool::shared();
  std::atomic<int> holders{0};
  std::atomic<int> claims{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        if (!pool.try_acquire()) continue;
        CHECK(holders.fetch_add(1) == 0);
        Counts counts;
        pool.run(&Counts::work, &counts, pool.grow(3));
        claims.fetch_add(1);
        holders.fetch_sub(1);
        pool.release();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(claims > 0);
}

double cpu_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void test_idle_pool_sleeps() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(cpu_seconds() - before < 0.02);
}

}  // namespace

int main() {
  test_every_worker_once();
  test_phases_see_each_other();
  test_one_holder();
  test_idle_pool_sleeps();
  return 0;
}
