// The C functions for single kernels, which the tuner measures.
#include <chrono>
#include <string>

#include "elf_loader.h"
#include "engine_format.h"
#include "float_mode.h"
#include "handles.h"
#include "thread_pool.h"

struct braze_kernel {
  braze_kernel(const void* object, size_t size, const char* entry)
      : bytes(static_cast<const char*>(object), size),
        image({{reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()}}),
        function(image.find(0, entry)) {}

  const std::string bytes;  // symbol names of the image point into it
  const braze::CodeImage image;
  const braze_kernel_fn function;
};

namespace braze {
namespace {

struct KernelJob {
  braze_kernel_fn function;
  void* const* buffers;
  const int64_t* params;
  int64_t num_workers;
  int32_t status;

  static void work(void* argument, int64_t worker) {
    KernelJob& job = *static_cast<KernelJob*>(argument);
    job.function(job.buffers, job.params, worker, job.num_workers, &job.status);
  }
};

// Holds the pool, waiting for its turn: a measurement must use the workers it was asked for.
class PoolTurn {
 public:
  explicit PoolTurn(int32_t num_workers) {
    if (num_workers < 1 || num_workers > static_cast<int32_t>(format::kMaxWorkers)) {
      fail(BRAZE_ERROR_EXECUTION, "num_workers is ", num_workers, ", outside 1..",
           format::kMaxWorkers);
    }
    if (num_workers == 1) return;
    ThreadPool& pool = ThreadPool::shared();
    while (!pool.try_acquire()) std::this_thread::yield();
    pool_ = &pool;
    if (pool.grow(num_workers) < num_workers) {
      pool.release();
      fail(BRAZE_ERROR_EXECUTION, "the system cannot start ", num_workers - 1, " threads");
    }
  }
  ~PoolTurn() {
    if (pool_) pool_->release();
  }
  PoolTurn(const PoolTurn&) = delete;
  PoolTurn& operator=(const PoolTurn&) = delete;

  void run(KernelJob& job) const {
    if (pool_) {
      pool_->run(&KernelJob::work, &job, job.num_workers);
    } else {
      KernelJob::work(&job, 0);
    }
  }

 private:
  ThreadPool* pool_ = nullptr;
};

}  // namespace
}  // namespace braze

using braze::guarded;
using braze::KernelJob;

braze_status braze_kernel_load(const void* object, uint64_t size, const char* entry,
                               braze_kernel** out) {
  return guarded([&] {
    braze::need(object, entry, out);
    *out = new braze_kernel(object, size, entry);
  });
}

void braze_kernel_destroy(braze_kernel* kernel) { delete kernel; }

braze_status braze_kernel_run(braze_kernel* kernel, void* const* buffers, const int64_t* params,
                              int32_t num_workers, int32_t* status) {
  return guarded([&] {
    braze::need(kernel, buffers, params, status);
    const braze::PoolTurn turn(num_workers);
    const braze::KernelFloatMode mode;
    KernelJob job{kernel->function, buffers, params, num_workers, 0};
    turn.run(job);
    *status = job.status;
  });
}

braze_status braze_kernel_time(braze_kernel* kernel, void* const* buffers, const int64_t* params,
                               int32_t num_workers, int32_t warmup, int32_t repeats, int64_t* ns) {
  return guarded([&] {
    braze::need(kernel, buffers, params, ns);
    const braze::PoolTurn turn(num_workers);
    const braze::KernelFloatMode mode;
    KernelJob job{kernel->function, buffers, params, num_workers, 0};
    for (int32_t i = 0; i < warmup; ++i) turn.run(job);
    for (int32_t i = 0; i < repeats; ++i) {
      const auto start = std::chrono::steady_clock::now();
      turn.run(job);
      const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start;
      ns[i] = spent.count();
    }
  });
}
