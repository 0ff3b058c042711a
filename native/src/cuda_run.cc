#include "cuda_run.h"

#include <cmath>

#include "error.h"

namespace braze {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr int kMemoryType = 2;        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kDeviceMemory = 2;      // CU_MEMORYTYPE_DEVICE
constexpr int kRelaxed = 2;           // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr uintptr_t kAlignment = 16;  // what kernels assume of every pointer
constexpr int kEarlyStart = 6;        // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

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

CudaRun::CudaRun(CudaDevice& device, const Engine& engine, LaunchTable& table)
    : device_(device), engine_(engine), table_(table) {
  const CudaScope scope(device_.context());
  const CudaDriver& driver = CudaDriver::get();
  const size_t bindings = engine.plan().num_bindings();
  staged_.resize(bindings);
  addresses_.resize(bindings);
  words_.resize(table.num_steps());
  statuses_ = Arena(device_, static_cast<int64_t>(words_.size() * sizeof(int32_t)));
  int64_t counters = 0;
  for (const Step* const step : engine.plan().every_step) {
    first_counter_.push_back(counters);
    counters += engine.plan().kernels[static_cast<size_t>(std::get<Launch>(*step).kernel)].counters;
  }
  if (counters) counters_ = Arena(device_, counters * static_cast<int64_t>(sizeof(int32_t)));
  cuda_check(driver.stream_create(&stream_, kNonBlocking), "making a stream");
}

CudaRun::~CudaRun() {
  const CudaDriver& driver = CudaDriver::get();
  CuHandle popped = nullptr;
  if (driver.context_push(device_.context()) != 0) return;
  driver.stream_wait(stream_);
  drop_graph();
  driver.stream_destroy(stream_);
  driver.context_pop(&popped);
}

void CudaRun::run(const braze_memory* memory, const braze_run_options& options) {
  check_values(memory);
  table_.bind(memory, options);
  const CudaScope scope(device_.context());
  const CudaDriver& driver = CudaDriver::get();
  place(memory);
  copy_in(memory);
  if (options.profile || options.debug) {
    run_with_hooks(options);
  } else if (!words_.empty()) {
    if (!graph_) capture();
    cuda_check(driver.graph_launch(graph_, stream_), "launching the network");
  }
  copy_out(memory);
  const size_t bytes = words_.size() * sizeof(int32_t);
  if (bytes) {
    cuda_check(driver.to_host(words_.data(), address_of(statuses_.data()), bytes, stream_), "copying back");
  }
  cuda_check(driver.stream_wait(stream_), "running the network");
  for (size_t step = 0; step < words_.size(); ++step) {
    if (!words_[step]) continue;
    driver.fill(address_of(statuses_.data()), 0, bytes, stream_);
    driver.stream_wait(stream_);
    table_.fail_step(step, words_[step]);
  }
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

// Where each tensor lies on the device; a change of that needs another graph.
void CudaRun::place(const braze_memory* memory) {
  bool changed = false;
  for (size_t i = 0; i < addresses_.size(); ++i) {
    auto* data = static_cast<unsigned char*>(memory[i].data);
    const bool aligned = reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
    if (!bytes_of(table_, i) || !aligned || !is_on_device(data)) {
      if (!staged_[i].data()) {
        staged_[i] = Arena(device_, table_.binding_bytes(i));
      }
      data = staged_[i].data();
    }
    changed |= addresses_[i] != data;
    addresses_[i] = data;
  }
  table_.point(addresses_);
  if (changed) drop_graph();
}

void CudaRun::copy_in(const braze_memory* memory) {
  const CudaDriver& driver = CudaDriver::get();
  for (size_t i = 0; i < engine_.plan().inputs.size(); ++i) {
    const size_t bytes = bytes_of(table_, i);
    if (!bytes || !is_staged(i)) continue;
    const CuAddress to = address_of(addresses_[i]);
    const void* const from = memory[i].data;
    cuda_check(is_on_device(from) ? driver.on_device(to, address_of(from), bytes, stream_)
                                  : driver.to_device(to, from, bytes, stream_),
               "copying an input");
  }
}

void CudaRun::copy_out(const braze_memory* memory) {
  const CudaDriver& driver = CudaDriver::get();
  for (size_t i = engine_.plan().inputs.size(); i < addresses_.size(); ++i) {
    const size_t bytes = bytes_of(table_, i);
    if (!bytes || !is_staged(i)) continue;
    const CuAddress from = address_of(addresses_[i]);
    void* const to = memory[i].data;
    cuda_check(is_on_device(to) ? driver.on_device(address_of(to), from, bytes, stream_)
                                : driver.to_host(to, from, bytes, stream_),
               "copying an output");
  }
}

// Triton's order: pointers, the status word, counters where there are any, sizes, then two scratch
// pointers that are not used. `early`: the step before it in the stream is a launch, and a kernel
// that waits by itself may start while that runs.
void CudaRun::launch_step(size_t step, bool early) {
  const auto& launch = std::get<Launch>(*engine_.plan().every_step[step]);
  const int64_t blocks = table_.shapes().at(launch.grid.at(0));
  if (blocks <= 0) return;
  void** const pointers = table_.pointers(step);
  int64_t* const params = table_.params(step);
  CuAddress status = address_of(statuses_.data()) + step * sizeof(int32_t);
  CuAddress counters = address_of(counters_.data()) +
                       static_cast<CuAddress>(first_counter_[step]) * sizeof(int32_t);
  CuAddress unused[2] = {0, 0};
  const Kernel& k = engine_.plan().kernels[static_cast<size_t>(launch.kernel)];
  arguments_.clear();
  for (size_t i = 0; i < launch.buffers.size(); ++i) arguments_.push_back(&pointers[i]);
  arguments_.push_back(&status);
  if (k.counters) arguments_.push_back(&counters);
  for (size_t i = 0; i < launch.params.size(); ++i) arguments_.push_back(&params[i]);
  arguments_.push_back(&unused[0]);
  arguments_.push_back(&unused[1]);
  CuLaunchAttribute attribute{};
  attribute.id = kEarlyStart;
  attribute.value.number = 1;
  CuLaunchConfig config{};
  config.grid[0] = static_cast<unsigned>(blocks);
  config.block[0] = static_cast<unsigned>(k.block);
  config.grid[1] = config.grid[2] = config.block[1] = config.block[2] = 1;
  config.shared = static_cast<unsigned>(k.shared_bytes);
  config.stream = stream_;
  config.attributes = &attribute;
  config.num_attributes = early && k.waits ? 1 : 0;
  const CuHandle function = device_.function(launch.kernel);
  cuda_check(CudaDriver::get().launch(&config, function, arguments_.data(), nullptr),
             launch.name.c_str());
}

void CudaRun::launch_steps() {
  for (size_t step = 0; step < words_.size(); ++step) launch_step(step, step > 0);
}

void CudaRun::capture() {
  const CudaDriver& driver = CudaDriver::get();
  CuHandle graph = nullptr;
  cuda_check(driver.capture_begin(stream_, kRelaxed), "recording the network");
  try {
    launch_steps();
  } catch (...) {
    driver.capture_end(stream_, &graph);
    if (graph) driver.graph_destroy(graph);
    throw;
  }
  cuda_check(driver.capture_end(stream_, &graph), "recording the network");
  const int status = driver.graph_instantiate(&graph_, graph, 0);
  driver.graph_destroy(graph);
  cuda_check(status, "preparing the network");
}

void CudaRun::drop_graph() {
  if (graph_) CudaDriver::get().graph_exec_destroy(graph_);
  graph_ = nullptr;
}

// Step by step, each timed by events, with a call of the hooks after each.
void CudaRun::run_with_hooks(const braze_run_options& options) {
  const CudaDriver& driver = CudaDriver::get();
  CuHandle start = nullptr;
  CuHandle end = nullptr;
  cuda_check(driver.event_create(&start, 0), "making an event");
  cuda_check(driver.event_create(&end, 0), "making an event");
  try {
    for (size_t step = 0; step < words_.size(); ++step) {
      cuda_check(driver.event_record(start, stream_), "timing");
      launch_step(step, false);
      cuda_check(driver.event_record(end, stream_), "timing");
      cuda_check(driver.event_wait(end), "running the network");
      float milliseconds = 0;
      cuda_check(driver.event_elapsed(&milliseconds, start, end), "timing");
      if (options.profile) {
        options.profile(options.user, static_cast<int32_t>(step), std::lround(milliseconds * 1e6));
      }
      if (options.debug) call_debug(step, options);
    }
  } catch (...) {
    driver.event_destroy(start);
    driver.event_destroy(end);
    throw;
  }
  driver.event_destroy(start);
  driver.event_destroy(end);
}

void CudaRun::call_debug(size_t step, const braze_run_options& options) {
  const std::vector<DebugTensor>& debug = engine_.plan().debug;
  for (size_t d = 0; d < debug.size(); ++d) {
    if (debug[d].step != static_cast<int32_t>(step)) continue;
    const LaunchTable::DebugView view = table_.debug_view(d);
    std::vector<unsigned char> host(static_cast<size_t>(view.bytes));
    if (view.bytes) {
      const CudaDriver& driver = CudaDriver::get();
      cuda_check(driver.to_host(host.data(), address_of(view.data), host.size(), stream_),
                 "copying a debug tensor");
      cuda_check(driver.stream_wait(stream_), "copying a debug tensor");
    }
    options.debug(options.user, static_cast<int32_t>(d), host.data(), view.dims.data(),
                  static_cast<int32_t>(view.dims.size()), view.bytes);
  }
}

}  // namespace braze
