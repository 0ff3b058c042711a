#include "executor.h"

#include <chrono>

#include "float_mode.h"
#include "flow_walk.h"
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

using Clock = std::chrono::steady_clock;

// The steps of one run, for FlowWalk; calls the hooks.
class HostSteps {
 public:
  HostSteps(const Engine& engine, LaunchTable& table, const PoolClaim& claim,
            const braze_run_options& options)
      : plan_(engine.plan()),
        table_(table),
        claim_(claim),
        options_(options),
        hooks_(options.profile || options.debug) {}

  void run(size_t index, const Segment& segment) {
    if (hooks_) {
      for (size_t step = segment.begin; step < segment.end; ++step) {
        const Clock::time_point start = Clock::now();
        run_phase(table_, {step, step + 1, table_.is_parallel(step)}, claim_);
        after_step(step, start);
      }
    } else if (claim_.pool()) {
      for (const Phase& phase : table_.phases(index)) run_phase(table_, phase, claim_);
    } else {
      for (size_t step = segment.begin; step < segment.end; ++step) table_.launch(step, 0, 1);
    }
    table_.check_statuses(segment.begin, segment.end);
  }

  void steered(size_t step, Clock::time_point start) {
    if (hooks_) after_step(step, start);
  }

 private:
  void after_step(size_t step, Clock::time_point start) {
    const std::chrono::nanoseconds spent = Clock::now() - start;
    const auto number = static_cast<int32_t>(step);
    if (options_.profile) options_.profile(options_.user, number, spent.count());
    const std::vector<DebugTensor>& debug = plan_.debug;
    for (size_t d = 0; options_.debug && d < debug.size(); ++d) {
      if (debug[d].step != number) continue;
      const LaunchTable::DebugView view = table_.debug_view(d);
      options_.debug(options_.user, static_cast<int32_t>(d), view.data, view.dims.data(),
                     static_cast<int32_t>(view.dims.size()), view.bytes);
    }
  }

  const Plan& plan_;
  LaunchTable& table_;
  const PoolClaim& claim_;
  const braze_run_options& options_;
  const bool hooks_;
};

}  // namespace

void execute(const Engine& engine, LaunchTable& table, int32_t num_workers,
             const braze_run_options& options) {
  // Whatever ends the run, the next one starts clean.
  struct Reset {
    LaunchTable& table;
    bool done = false;
    ~Reset() {
      if (!done) table.reset_statuses();
    }
  } reset{table};
  const KernelFloatMode mode;
  const PoolClaim claim(num_workers, table.has_parallel_step());
  if (engine.plan().is_straight() && !claim.pool() && !options.profile && !options.debug) {
    // the shortest way for the smallest networks
    for (size_t step = 0; step < table.num_steps(); ++step) table.launch(step, 0, 1);
    table.check_statuses(0, table.num_steps());
  } else {
    HostSteps steps(engine, table, claim, options);
    FlowWalk<HostSteps>(engine.plan(), table, steps).run();
  }
  reset.done = true;
}

}  // namespace braze
