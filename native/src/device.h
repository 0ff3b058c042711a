// What the code of a plan runs on: the CPU (cpu_device.cc) or an NVIDIA GPU (cuda_device.cc). Nothing
// outside an implementation knows how code is loaded, where memory comes from, or what a launch is.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "braze.h"
#include "engine_file.h"
#include "plan.h"

namespace braze {

// What a straight step calls: a function with the signature of a kernel, so that no step costs more
// than that call. The constants stand before the step's own params.
struct Routine {
  // Throws unless buffers of these sizes are enough for these params (constants first).
  using Check = void (*)(const int64_t* params, const int64_t* bytes);

  braze_kernel_fn function = nullptr;
  Check check = nullptr;  // null for kernels, which are trusted
  std::vector<int64_t> constants;
  size_t reads = 0;  // of a library call: the first of its buffers, which it does not write
};

class Engine;
class LaunchTable;

// What a context may be asked for beyond its profile; braze_context_options says what it means.
struct ContextOptions {
  int32_t priority = 0;
  int32_t extra_streams = -1;
};

// The memory of a run where the host cannot reach it. What is done here takes its turn among the work
// of the run.
class DeviceMemory {
 public:
  // At most a word of 8 bytes.
  struct Read {
    void* to;
    const void* from;
    int64_t bytes;
  };

  virtual ~DeviceMemory() = default;
  // To the host, when all work before is done; throws what its steps reported.
  virtual void read(const Read* reads, size_t count) = 0;
  virtual void write(void* to, int64_t value) = 0;
  // From any place to one of the device.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  // Until no work before uses memory that is to go away.
  virtual void settle() = 0;
  // Where steps find an output for which the caller gave `data` in the run.
  virtual unsigned char* place(size_t binding, unsigned char* data, int64_t bytes) = 0;
};

// Runs the launch tables of one context on a device that is not the host.
class Runner : public DeviceMemory {
 public:
  // One entry a binding; waits for the outputs. Throws what the steps report.
  virtual void run(LaunchTable& table, const braze_memory* memory,
                   const braze_run_options& options) = 0;
  // The same as work of a stream of the device: returns when all is enqueued. Memory must be the
  // device's or pinned.
  virtual void enqueue(LaunchTable& table, const braze_memory* memory,
                       const braze_run_options& options, void* stream) = 0;
  // Waits for what was enqueued; throws what its steps reported.
  virtual void synchronize() = 0;
  // The table goes away, or the memory it points to: waits for its runs.
  virtual void forget(const LaunchTable& table) noexcept = 0;
};

// As DLPack counts devices; the host is {1, 0}.
struct DeviceName {
  int32_t type = 1;
  int32_t number = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceName name() const { return {}; }

  // Loads the modules of the plan; throws a target error for code and memory it does not have. The
  // section stays where it is while the device lives.
  virtual void load(const Plan& plan, const Section& code) = 0;
  // What the host's executor calls for a step of the loaded plan.
  virtual Routine routine(const Plan& plan, const Step& step) const = 0;

  // From where the offsets of weights count: the section itself, or a copy. budget: bytes of a
  // device's memory for them, negative for all they need.
  virtual const unsigned char* upload(const Plan& plan, const Section& weights, int64_t budget) = 0;

  // Memory aligned as any plan may ask, zero at first. Throws an execution error without memory.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory, int64_t bytes) noexcept = 0;
  // The same of the host's memory that the device copies best.
  virtual void* allocate_pinned(int64_t bytes) { return allocate(bytes); }
  virtual void release_pinned(void* memory, int64_t bytes) noexcept { release(memory, bytes); }
  // Between any two places of the host or this device; waits.
  virtual void copy(void* to, const void* from, int64_t bytes) {
    std::memmove(to, from, static_cast<size_t>(bytes));
  }
  virtual void wait(void* stream) { (void)stream; }  // for work of a stream of the device
  // Null where the host's executor runs the steps. The engine must outlive it.
  virtual std::unique_ptr<Runner> runner(const Engine& engine, const ContextOptions& options) {
    (void)engine;
    (void)options;
    return nullptr;
  }
};

// The CPU.
std::unique_ptr<Device> open_cpu();
// The first NVIDIA GPU; throws a target error where there is none.
std::unique_ptr<Device> open_cuda();

// Memory of a device.
class Arena {
 public:
  Arena() = default;
  Arena(Device& device, int64_t bytes)
      : device_(&device), bytes_(bytes), data_(device.allocate(bytes)) {}
  ~Arena() {
    if (data_) device_->release(data_, bytes_);
  }
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }

  unsigned char* data() const { return static_cast<unsigned char*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  int64_t bytes_ = 0;
  void* data_ = nullptr;
};

}  // namespace braze
