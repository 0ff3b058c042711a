#include "cuda_run.h"

#include <algorithm>
#include <cmath>

#include "cuda_flow.h"
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

size_t graph_segments(const Plan& plan) {
  const auto is_graph = [](const Segment& s) { return s.straight && !s.late; };
  return static_cast<size_t>(std::count_if(plan.segments.begin(), plan.segments.end(), is_graph));
}

// CUDA counts down from the least urgent, 0.
int cuda_priority(const ContextOptions& options) { return -options.priority; }

}  // namespace

CudaRun::Resources::Resources(CudaDevice& device, const Engine& engine,
                              const ContextOptions& options)
    : graphs(graph_segments(engine.plan())),
      lanes(options.extra_streams < 0 ? kExtraStreams : options.extra_streams,
            cuda_priority(options)),
      steps(device, engine),
      host(device, engine, steps) {
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
  if (!engine_.plan().is_straight()) {
    fail(BRAZE_ERROR_EXECUTION, "the host decides what this engine runs next, so it cannot run on a ",
         "stream of the GPU that goes on meanwhile; use execute");
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
  launch(table, options, stream);
  mark_time(options, 2, stream);
  copy_out(table, stream);
  mark_time(options, 3, stream);
}

void CudaRun::prepare(LaunchTable& table, const braze_memory* memory,
                      const braze_run_options& options) {
  check_values(memory);
  table.bind(memory, options);
  place_all(table);
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

// Where a tensor of the caller lies on the device.
unsigned char* CudaRun::on_device(size_t binding, unsigned char* data, int64_t bytes) {
  Tensor& t = tensors_[binding];
  t.caller = find_memory(data);
  if (t.caller.where == Whereabouts::kDevice && t.caller.device != device_.number()) {
    fail(BRAZE_ERROR_BINDING, "tensor '", engine_.plan().binding(binding).name, "' lies on GPU ",
         t.caller.device, " and the engine runs on GPU ", device_.number(), "; copy it there");
  }
  t.address = data;
  const bool aligned = reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
  if (t.caller.where == Whereabouts::kDevice && aligned && data) return t.address;
  if (!t.staged.data() || t.staged.bytes() < bytes) {
    t.staged = Arena();
    t.staged = Arena(device_, bytes);
  }
  t.address = t.staged.data();
  return t.address;
}

void CudaRun::place_all(LaunchTable& table) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const bool late = engine_.plan().is_late_binding(i);
    if (late) tensors_[i].address = nullptr;
    addresses_[i] = late ? nullptr : on_device(i, table.bound(i), table.binding_bytes(i));
  }
  table.point(addresses_);
}

unsigned char* CudaRun::place(size_t binding, unsigned char* data, int64_t bytes) {
  const Arena& staged = tensors_[binding].staged;
  if (staged.data() && staged.bytes() < bytes) settle();  // a step before may write there
  return on_device(binding, data, bytes);
}

void CudaRun::read(const Read* reads, size_t count) {
  resources_->host.read(reads, count, stream());
}

void CudaRun::write(void* to, int64_t value) { resources_->host.write(to, value, stream()); }

void CudaRun::copy(void* to, const void* from, int64_t bytes) {
  resources_->host.copy(to, from, bytes, stream());
}

void CudaRun::settle() { resources_->host.wait(stream()); }

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

void CudaRun::launch(LaunchTable& table, const braze_run_options& options, CuHandle stream) {
  const Plan& plan = engine_.plan();
  Resources& r = *resources_;
  if (options.profile || options.debug) {
    CudaHooks hooks(engine_, table, r.steps, r.host, options, stream);
    return FlowWalk<CudaHooks>(plan, table, hooks).run();
  }
  const CudaFlow::Parts parts{r.graphs, r.lanes, r.steps, r.host, r.stream.get(), addresses_};
  CudaFlow flow(table, parts, !(options.flags & BRAZE_RUN_NO_GRAPH), stream);
  FlowWalk<CudaFlow>(plan, table, flow).run();
  enqueue_ns_ = flow.enqueue_ns();
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
