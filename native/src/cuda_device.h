// An NVIDIA GPU: the modules, functions, library calls and weights of one engine on it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda_driver.h"
#include "cuda_routine.h"
#include "cuda_weights.h"
#include "device.h"

namespace braze {

// Makes a context that of this thread while it lives.
class CudaScope {
 public:
  explicit CudaScope(CuHandle context);
  ~CudaScope();
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;
};

// The same where nothing may throw: `entered` is false when the context is gone, and all in it, and in
// a forked child, which must not touch it.
class QuietCudaScope {
 public:
  explicit QuietCudaScope(CuHandle context);
  ~QuietCudaScope();
  QuietCudaScope(const QuietCudaScope&) = delete;
  QuietCudaScope& operator=(const QuietCudaScope&) = delete;

  const bool entered;
};

class CudaDevice : public Device {
 public:
  static constexpr int32_t kDlCuda = 2;

  CudaDevice();
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  void load(const Plan& plan, const Section& code) override;
  Routine routine(const Plan& plan, const Step& step) const override;
  const unsigned char* upload(const Plan& plan, const Section& weights, int64_t budget) override;
  void* allocate(int64_t bytes) override;
  void release(void* memory, int64_t bytes) noexcept override;
  void* allocate_pinned(int64_t bytes) override;
  void release_pinned(void* memory, int64_t bytes) noexcept override;
  void copy(void* to, const void* from, int64_t bytes) override;
  void wait(void* stream) override;
  DeviceName name() const override { return {kDlCuda, device_}; }
  std::unique_ptr<Runner> runner(const Engine& engine, const ContextOptions& options) override;

  CuHandle context() const { return context_; }
  int number() const { return device_; }  // of the card
  CuHandle function(int32_t kernel) const { return functions_[static_cast<size_t>(kernel)]; }
  const CudaWeights& weights() const { return weights_; }
  // Of a LibraryCall, numbered as in Plan::every_step.
  CudaRoutine& library_routine(size_t step) const { return *routines_[step]; }

 private:
  void check_plan(const Plan& plan) const;
  void load_modules(const Plan& plan, const Section& code);
  void find_functions(const Plan& plan);

  int device_ = 0;
  CuHandle context_ = nullptr;
  std::string name_;        // of the card
  std::string capability_;  // "sm_90"
  std::vector<CuHandle> modules_;
  std::vector<CuHandle> functions_;
  std::vector<std::unique_ptr<CudaRoutine>> routines_;  // of every step; null for other kinds
  CudaWeights weights_;
};

}  // namespace braze
