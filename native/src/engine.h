// A loaded engine: immutable, shared by its contexts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "braze.h"
#include "device.h"
#include "engine_file.h"
#include "plan.h"
#include "weight_check.h"

namespace braze {

class Engine {
 public:
  // threads: workers of a run, 0 for the engine's own number, at most the CPUs there are.
  // weight_budget: as in braze_engine_options.
  Engine(EngineBytes bytes, int32_t threads, int64_t weight_budget = -1);

  const EngineBytes& bytes() const { return bytes_; }
  const Plan& plan() const { return plan_; }
  const unsigned char* weights() const { return weights_; }  // where kernels find them
  uint64_t weights_bytes() const { return sections_.weights.size; }
  int32_t threads() const { return threads_; }
  Device& device() const { return *device_; }
  const Routine& routine(size_t step) const { return routines_[step]; }  // of straight steps
  void verify_weights() const { weight_check_->wait(); }
  bool is_stripped() const { return sections_.stripped; }  // without weights: it cannot run

  // Dims of a tensor with -1 where they depend on the input shapes.
  const std::vector<int64_t>& static_dims(size_t binding) const { return static_dims_[binding]; }
  const std::vector<int64_t>& debug_dims(size_t index) const { return debug_dims_[index]; }
  const std::string& origins(size_t step) const { return origins_[step]; }  // joined by ", "
  size_t num_input_dims() const { return num_input_dims_; }  // the sum of the inputs' ranks

 private:
  std::vector<int64_t> constant_dims(const std::vector<int32_t>& shape) const;

  EngineBytes bytes_;
  EngineSections sections_;
  Plan plan_;
  int32_t threads_;
  size_t num_input_dims_ = 0;
  std::unique_ptr<Device> device_;
  const unsigned char* weights_ = nullptr;
  std::vector<Routine> routines_;
  std::vector<std::vector<int64_t>> static_dims_;
  std::vector<std::vector<int64_t>> debug_dims_;
  std::vector<std::string> origins_;
  std::unique_ptr<WeightCheck> weight_check_;  // last: its thread reads the members above
};

}  // namespace braze
