#include "cuda_run.h"

#include <chrono>
#include <cmath>

#include "cuda_hooks.h"
#include "error.h"
#include "run_times.h"

namespace braze {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned kSleeping = 3;     // CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING
constexpr uintptr_t kAlignment = 16;  // what kernels assume of every pointer
// Of pageable inputs, more goes by way of pinned memory; less the driver copies as fast itself.
constexpr size_t kLargeInput = 64 << 10;
// Of a context that is not told how many. On an H200 at batch 1 one makes googlenet 12 % faster, more
// are no better, and networks without branches lose nothing.
constexpr int32_t kExtraStreams = 1;

size_t bytes_of(const LaunchTable& table, size_t binding) {
  return static_cast<size_t>(table.binding_bytes(binding));
}

CuAddress address_of(const void* data) { return reinterpret_cast<CuAddress>(data); }

// CUDA counts down from the least urgent, 0.
int cuda_priority(const ContextOptions& options) { return -options.priority; }

}  // namespace

CudaRun::Resources::Resources(CudaDevice& device, const Engine& engine,
                              const ContextOptions& options)
    : lanes(options.extra_streams < 0 ? kExtraStreams : options.extra_streams,
            cuda_priority(options)),
      steps(device, engine) {
  const CudaDriver& driver = CudaDriver::get();
  cuda_check(driver.stream_create(stream.out(), kNonBlocking, cuda_priority(options)),
             "making a stream");
  cuda_check(driver.event_create(done.out(), kSleeping), "making an event");
}

CudaRun::CudaRun(CudaDevice& device, const Engine& engine, const ContextOptions& options)
    : device_(device), engine_(engine) {
  const CudaScope scope(device_.context());
  tensors_.resize(engine.plan().num_bindings());
  addresses_.resize(tensors_.size());
  resources_ = std::make_unique<Resources>(device, engine, options);
}

CudaRun::~CudaRun() {
  const QuietCudaScope scope(device_.context());
  if (scope.entered) {
    CudaDriver::get().stream_wait(stream());
    if (enqueued_) CudaDriver::get().event_wait(resources_->done.get());
  }
  resources_.reset();
}

void CudaRun::forget(const LaunchTable& table) noexcept {
  const QuietCudaScope scope(device_.context());
  if (scope.entered) {
    CudaDriver::get().stream_wait(stream());
    if (enqueued_) CudaDriver::get().event_wait(resources_->done.get());
  }
  resources_->graphs.forget(&table);
}

void CudaRun::run(LaunchTable& table, const braze_memory* memory,
                  const braze_run_options& options) {
  const CudaScope scope(device_.context());
  prepare(table, memory, options);
  try {
    if (enqueued_) {
      const CuHandle done = resources_->done.get();
      cuda_check(CudaDriver::get().stream_wait_event(stream(), done, 0), "waiting for a run before");
    }
    issue(table, options, stream());
    wait(options);
    report_times(options);
  } catch (...) {
    CudaDriver::get().stream_wait(stream());  // nothing may still use the caller's memory
    resources_->steps.clear();
    throw;
  }
  enqueued_ = false;
  resources_->steps.check();
}

void CudaRun::enqueue(LaunchTable& table, const braze_memory* memory,
                      const braze_run_options& options, void* stream) {
  const CudaScope scope(device_.context());
  if (options.profile || options.debug || options.times) {
    fail(BRAZE_ERROR_EXECUTION, "a run on a stream of the GPU cannot call back or be timed; ",
         "use execute for that");
  }
  resources_->steps.check();  // of a run before
  prepare(table, memory, options);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].is_staged() || tensors_[i].caller.where != Whereabouts::kPageable) continue;
    if (!bytes_of(table, i)) continue;
    fail(BRAZE_ERROR_BINDING, "tensor '", engine_.plan().binding(i).name, "' of a run on a stream of ",
         "the GPU lies in pageable memory of the host; bind memory of the GPU or pinned memory");
  }
  const CudaDriver& driver = CudaDriver::get();
  const CuHandle done = resources_->done.get();
  unsigned long long id = 0;
  cuda_check(driver.stream_id(stream, &id), "asking for a stream");
  if (enqueued_ && enqueued_on_ != id) {
    cuda_check(driver.stream_wait_event(stream, done, 0), "waiting for a run before");
  }
  enqueued_on_ = id;
  enqueued_ = true;
  try {
    issue(table, options, stream);
    cuda_check(driver.event_record(done, stream), "marking the end of a run");
  } catch (...) {
    driver.stream_wait(stream);
    throw;
  }
}

void CudaRun::synchronize() {
  const CudaScope scope(device_.context());
  wait_for_enqueued();
}

void CudaRun::wait_for_enqueued() {
  if (enqueued_) {
    cuda_check(CudaDriver::get().event_wait(resources_->done.get()), "running the network");
    enqueued_ = false;
  }
  resources_->steps.check();
}

void CudaRun::issue(LaunchTable& table, const braze_run_options& options, CuHandle stream) {
  mark_time(options, 0, stream);
  copy_in(table, stream);
  mark_time(options, 1, stream);
  if (options.profile || options.debug) {
    CudaHooks(engine_, resources_->steps, stream).run(table, options);
  } else {
    launch(table, options, stream);
  }
  mark_time(options, 2, stream);
  copy_out(table, stream);
  mark_time(options, 3, stream);
}

void CudaRun::prepare(LaunchTable& table, const braze_memory* memory,
                      const braze_run_options& options) {
  check_values(memory);
  table.bind(memory, options);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    CallerMemory& caller = tensors_[i].caller;
    caller = find_memory(table.bound(i));
    if (caller.where == Whereabouts::kDevice && caller.device != device_.number()) {
      fail(BRAZE_ERROR_BINDING, "tensor '", engine_.plan().binding(i).name, "' lies on GPU ",
           caller.device, " and the engine runs on GPU ", device_.number(), "; copy it there");
    }
  }
  place(table);
}

// The host compares what an input was specialised to, so it must be able to read it.
void CudaRun::check_values(const braze_memory* memory) const {
  const std::vector<Binding>& inputs = engine_.plan().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].value.empty()) continue;
    if (find_memory(memory[i].data).where != Whereabouts::kDevice) continue;
    fail(BRAZE_ERROR_BINDING, "input '", inputs[i].name, "' has a fixed content, which is compared ",
         "on the host; bind memory of the host to it");
  }
}

// Where each tensor lies on the device.
void CudaRun::place(LaunchTable& table) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& t = tensors_[i];
    t.address = table.bound(i);
    const bool aligned = reinterpret_cast<uintptr_t>(t.address) % kAlignment == 0;
    if (t.caller.where != Whereabouts::kDevice || !aligned || !t.address) {
      const int64_t bytes = table.binding_bytes(i);
      if (!t.staged.data() || t.staged.bytes() < bytes) {
        t.staged = Arena();
        t.staged = Arena(device_, bytes);
      }
      t.address = t.staged.data();
    }
    addresses_[i] = t.address;
  }
  table.point(addresses_);
}

void CudaRun::copy_in(const LaunchTable& table, CuHandle stream) {
  const CudaDriver& driver = CudaDriver::get();
  for (size_t i = 0; i < engine_.plan().inputs.size(); ++i) {
    const size_t bytes = bytes_of(table, i);
    const Tensor& t = tensors_[i];
    if (!bytes || !t.is_staged()) continue;
    const CuAddress to = address_of(t.address);
    const void* const from = table.bound(i);
    if (t.caller.where == Whereabouts::kDevice) {
      cuda_check(driver.on_device(to, address_of(from), bytes, stream), "copying an input");
    } else if (t.caller.where == Whereabouts::kPinned || bytes < kLargeInput) {
      cuda_check(driver.to_device(to, from, bytes, stream), "copying an input");
    } else {
      resources_->staging.to_device(to, from, bytes, stream);
    }
  }
}

void CudaRun::copy_out(const LaunchTable& table, CuHandle stream) {
  const CudaDriver& driver = CudaDriver::get();
  for (size_t i = engine_.plan().inputs.size(); i < tensors_.size(); ++i) {
    const size_t bytes = bytes_of(table, i);
    const Tensor& t = tensors_[i];
    if (!bytes || !t.is_staged()) continue;
    const CuAddress from = address_of(t.address);
    void* const to = table.bound(i);
    if (t.caller.where == Whereabouts::kDevice) {
      cuda_check(driver.on_device(address_of(to), from, bytes, stream), "copying an output");
    } else if (t.caller.where == Whereabouts::kPinned) {
      cuda_check(driver.to_host(to, from, bytes, stream), "copying an output");
    } else {
      resources_->staging.to_host(to, from, bytes, stream);
    }
  }
}

CuHandle CudaRun::graph(LaunchTable& table) {
  const CuHandle found = resources_->graphs.find(&table, addresses_);
  if (found) return found;
  return resources_->graphs.make(&table, addresses_, stream(), [&] {
    resources_->lanes.record(table, resources_->steps, stream());
  });
}

void CudaRun::launch(LaunchTable& table, const braze_run_options& options, CuHandle stream) {
  if (!table.num_steps()) return;
  using Clock = std::chrono::steady_clock;
  const CuHandle ready = options.flags & BRAZE_RUN_NO_GRAPH ? nullptr : graph(table);
  const Clock::time_point start = Clock::now();
  if (ready) {
    cuda_check(CudaDriver::get().graph_launch(ready, stream), "launching the network");
  } else {
    resources_->steps.begin();
    bool after_launch = false;
    for (size_t step = 0; step < table.num_steps(); ++step) {
      after_launch = resources_->steps.issue(table, step, stream, after_launch);
    }
  }
  enqueue_ns_ = std::chrono::nanoseconds(Clock::now() - start).count();
}

void CudaRun::wait(const braze_run_options& options) {
  const CudaDriver& driver = CudaDriver::get();
  if (options.flags & BRAZE_RUN_SLEEP) {
    const CuHandle done = resources_->done.get();
    cuda_check(driver.event_record(done, stream()), "running the network");
    cuda_check(driver.event_wait(done), "running the network");
  } else {
    cuda_check(driver.stream_wait(stream()), "running the network");
  }
}

void CudaRun::mark_time(const braze_run_options& options, size_t mark, CuHandle stream) {
  if (!options.times) return;
  const CudaDriver& driver = CudaDriver::get();
  std::vector<CudaEvent>& times = resources_->times;
  while (times.size() <= mark) {
    CudaEvent made;
    cuda_check(driver.event_create(made.out(), 0), "making an event");
    times.push_back(std::move(made));
  }
  cuda_check(driver.event_record(times[mark].get(), stream), "timing");
}

void CudaRun::report_times(const braze_run_options& options) {
  if (!options.times) return;
  int64_t spent[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    float ms = 0;
    const std::vector<CudaEvent>& times = resources_->times;
    cuda_check(CudaDriver::get().event_elapsed(&ms, times[i].get(), times[i + 1].get()), "timing");
    spent[i] = std::lround(static_cast<double>(ms) * 1e6);
  }
  write_times({0, spent[0], enqueue_ns_, spent[1], spent[2]}, *options.times);
}

}  // namespace braze
