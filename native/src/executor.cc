#include "executor.h"

#include <chrono>

#include "float_mode.h"
#include "thread_pool.h"

namespace braze {
namespace {

// Holds the pool for a run when more than one worker is wanted and they are free.
class PoolClaim {
 public:
  PoolClaim(int64_t num_workers, bool useful) : shared_(ThreadPool::shared()) {
    shared_.begin_run();
    if (num_workers < 2 || !useful || !shared_.has_room(num_workers)) return;
    if (!shared_.try_acquire()) return;
    pool_ = &shared_;
    num_workers_ = pool_->grow(num_workers);
  }
  ~PoolClaim() {
    if (pool_) pool_->release();
    shared_.end_run();
  }
  PoolClaim(const PoolClaim&) = delete;
  PoolClaim& operator=(const PoolClaim&) = delete;

  ThreadPool* pool() const { return pool_; }
  int64_t num_workers() const { return num_workers_; }

 private:
  ThreadPool& shared_;
  ThreadPool* pool_ = nullptr;
  int64_t num_workers_ = 1;
};

struct PhaseJob {
  LaunchTable& table;
  Phase phase;
  int64_t num_workers;

  static void work(void* argument, int64_t worker) {
    const PhaseJob& job = *static_cast<const PhaseJob*>(argument);
    for (size_t step = job.phase.begin; step < job.phase.end; ++step) {
      if (job.table.is_parallel(step)) {
        job.table.launch(step, worker, job.num_workers);
      } else if (worker == 0) {
        job.table.launch(step, 0, 1);
      }
    }
  }
};

void run_phase(LaunchTable& table, const Phase& phase, const PoolClaim& claim) {
  if (claim.pool() && phase.parallel) {
    PhaseJob job{table, phase, claim.num_workers()};
    claim.pool()->run(&PhaseJob::work, &job, claim.num_workers());
  } else {
    for (size_t step = phase.begin; step < phase.end; ++step) table.launch(step, 0, 1);
  }
}

// Step by step, with a call of the hooks after each.
void run_with_hooks(const Engine& engine, LaunchTable& table, const PoolClaim& claim,
                    const braze_run_options& options) {
  const std::vector<DebugTensor>& debug = engine.plan().debug;
  // A malformed debug tensor shows here, before the first step has run.
  for (size_t d = 0; options.debug && d < debug.size(); ++d) table.debug_view(d);
  for (size_t step = 0; step < table.num_steps(); ++step) {
    const auto start = std::chrono::steady_clock::now();
    run_phase(table, {step, step + 1, table.is_parallel(step)}, claim);
    const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start;
    const auto number = static_cast<int32_t>(step);
    if (options.profile) options.profile(options.user, number, spent.count());
    for (size_t d = 0; options.debug && d < debug.size(); ++d) {
      if (debug[d].step != number) continue;
      const LaunchTable::DebugView view = table.debug_view(d);
      options.debug(options.user, static_cast<int32_t>(d), view.data, view.dims.data(),
                    static_cast<int32_t>(view.dims.size()), view.bytes);
    }
  }
}

}  // namespace

void execute(const Engine& engine, LaunchTable& table, int32_t num_workers,
             const braze_run_options& options) {
  {
    const KernelFloatMode mode;
    const PoolClaim claim(num_workers, table.has_parallel_step());
    if (options.profile || options.debug) {
      try {
        run_with_hooks(engine, table, claim, options);
      } catch (...) {  // of a hook
        table.reset_statuses();
        throw;
      }
    } else if (claim.pool()) {
      for (const Phase& phase : table.phases()) run_phase(table, phase, claim);
    } else {
      for (size_t step = 0; step < table.num_steps(); ++step) table.launch(step, 0, 1);
    }
  }
  table.check_statuses();
}

}  // namespace braze
