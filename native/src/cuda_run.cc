#include "cuda_run.h"

#include <cmath>

#include "error.h"

namespace braze {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr int kMemoryType = 2;        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kDeviceMemory = 2;      // CU_MEMORYTYPE_DEVICE
constexpr uintptr_t kAlignment = 16;  // what kernels assume of every pointer

bool is_on_device(const void* data) {
  int type = 0;
  const auto address = reinterpret_cast<CuAddress>(data);
  return CudaDriver::get().pointer_attribute(&type, kMemoryType, address) == 0 &&
         type == kDeviceMemory;
}

size_t bytes_of(const LaunchTable& table, size_t binding) {
  return static_cast<size_t>(table.binding_bytes(binding));
}

CuAddress address_of(const void* data) { return reinterpret_cast<CuAddress>(data); }

}  // namespace

CudaRun::Resources::Resources(CudaDevice& device, const Engine& engine)
    : steps(device, engine) {
  cuda_check(CudaDriver::get().stream_create(stream.out(), kNonBlocking, 0), "making a stream");
}

CudaRun::CudaRun(CudaDevice& device, const Engine& engine) : device_(device), engine_(engine) {
  const CudaScope scope(device_.context());
  staged_.resize(engine.plan().num_bindings());
  addresses_.resize(staged_.size());
  resources_ = std::make_unique<Resources>(device, engine);
}

CudaRun::~CudaRun() {
  const QuietCudaScope scope(device_.context());
  if (scope.entered) CudaDriver::get().stream_wait(stream());
  resources_.reset();
}

void CudaRun::forget(const LaunchTable& table) noexcept {
  const QuietCudaScope scope(device_.context());
  if (scope.entered) CudaDriver::get().stream_wait(stream());
  resources_->graphs.forget(&table);
}

void CudaRun::run(LaunchTable& table, const braze_memory* memory,
                  const braze_run_options& options) {
  const CudaScope scope(device_.context());
  check_values(memory);
  table.bind(memory, options);
  place(table);
  try {
    issue(table, options);
  } catch (...) {
    CudaDriver::get().stream_wait(stream());  // nothing may still use the caller's memory
    resources_->steps.clear();
    throw;
  }
  resources_->steps.check(table);
}

void CudaRun::issue(LaunchTable& table, const braze_run_options& options) {
  copy_in(table);
  if (options.profile || options.debug) {
    run_with_hooks(table, options);
  } else {
    launch(table);
  }
  copy_out(table);
  cuda_check(CudaDriver::get().stream_wait(stream()), "running the network");
}

// The host compares what an input was specialised to, so it must be able to read it.
void CudaRun::check_values(const braze_memory* memory) const {
  const std::vector<Binding>& inputs = engine_.plan().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].value.empty() || !is_on_device(memory[i].data)) continue;
    fail(BRAZE_ERROR_BINDING, "input '", inputs[i].name, "' has a fixed content, which is compared ",
         "on the host; bind memory of the host to it");
  }
}

// Where each tensor lies on the device.
void CudaRun::place(LaunchTable& table) {
  for (size_t i = 0; i < addresses_.size(); ++i) {
    unsigned char* data = table.bound(i);
    const bool aligned = reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
    if (!bytes_of(table, i) || !aligned || !is_on_device(data)) {
      const int64_t bytes = table.binding_bytes(i);
      if (!staged_[i].data() || staged_[i].bytes() < bytes) {
        staged_[i] = Arena();
        staged_[i] = Arena(device_, bytes);
      }
      data = staged_[i].data();
    }
    addresses_[i] = data;
  }
  table.point(addresses_);
}

void CudaRun::copy_in(const LaunchTable& table) {
  const CudaDriver& driver = CudaDriver::get();
  for (size_t i = 0; i < engine_.plan().inputs.size(); ++i) {
    const size_t bytes = bytes_of(table, i);
    if (!bytes || !is_staged(i)) continue;
    const CuAddress to = address_of(addresses_[i]);
    const void* const from = table.bound(i);
    cuda_check(is_on_device(from) ? driver.on_device(to, address_of(from), bytes, stream())
                                  : driver.to_device(to, from, bytes, stream()),
               "copying an input");
  }
}

void CudaRun::copy_out(const LaunchTable& table) {
  const CudaDriver& driver = CudaDriver::get();
  for (size_t i = engine_.plan().inputs.size(); i < addresses_.size(); ++i) {
    const size_t bytes = bytes_of(table, i);
    if (!bytes || !is_staged(i)) continue;
    const CuAddress from = address_of(addresses_[i]);
    void* const to = table.bound(i);
    cuda_check(is_on_device(to) ? driver.on_device(address_of(to), from, bytes, stream())
                                : driver.to_host(to, from, bytes, stream()),
               "copying an output");
  }
}

void CudaRun::launch(LaunchTable& table) {
  if (!table.num_steps()) return;
  CuHandle graph = resources_->graphs.find(&table, addresses_);
  if (!graph) {
    graph = resources_->graphs.make(&table, addresses_, stream(), [&] {
      bool after_launch = false;  // what ran before the graph does not count
      for (size_t step = 0; step < table.num_steps(); ++step) {
        after_launch = resources_->steps.issue(table, step, stream(), after_launch);
      }
    });
  }
  cuda_check(CudaDriver::get().graph_launch(graph, stream()), "launching the network");
}

// Step by step, each timed by events, with a call of the hooks after each.
void CudaRun::run_with_hooks(LaunchTable& table, const braze_run_options& options) {
  const CudaDriver& driver = CudaDriver::get();
  CudaEvent start;
  CudaEvent end;
  cuda_check(driver.event_create(start.out(), 0), "making an event");
  cuda_check(driver.event_create(end.out(), 0), "making an event");
  for (size_t step = 0; step < table.num_steps(); ++step) {
    cuda_check(driver.event_record(start.get(), stream()), "timing");
    resources_->steps.issue(table, step, stream(), false);
    cuda_check(driver.event_record(end.get(), stream()), "timing");
    cuda_check(driver.event_wait(end.get()), "running the network");
    float milliseconds = 0;
    cuda_check(driver.event_elapsed(&milliseconds, start.get(), end.get()), "timing");
    if (options.profile) {
      options.profile(options.user, static_cast<int32_t>(step), std::lround(milliseconds * 1e6));
    }
    if (options.debug) call_debug(table, step, options);
  }
}

void CudaRun::call_debug(LaunchTable& table, size_t step, const braze_run_options& options) {
  const std::vector<DebugTensor>& debug = engine_.plan().debug;
  for (size_t d = 0; d < debug.size(); ++d) {
    if (debug[d].step != static_cast<int32_t>(step)) continue;
    const LaunchTable::DebugView view = table.debug_view(d);
    std::vector<unsigned char> host(static_cast<size_t>(view.bytes));
    if (view.bytes) {
      const CudaDriver& driver = CudaDriver::get();
      cuda_check(driver.to_host(host.data(), address_of(view.data), host.size(), stream()),
                 "copying a debug tensor");
      cuda_check(driver.stream_wait(stream()), "copying a debug tensor");
    }
    options.debug(options.user, static_cast<int32_t>(d), host.data(), view.dims.data(),
                  static_cast<int32_t>(view.dims.size()), view.bytes);
  }
}

}  // namespace braze
