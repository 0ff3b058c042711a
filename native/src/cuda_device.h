// An NVIDIA GPU: the modules, functions and weights of one engine on it.
#pragma once

#include <string>
#include <vector>

#include "cuda_driver.h"
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

class CudaDevice : public Device {
 public:
  CudaDevice();
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  void load(const Plan& plan, const Section& code) override;
  Routine kernel(const Launch& step) const override;
  const unsigned char* upload(const Section& weights) override;
  void* allocate(int64_t bytes) override;
  void release(void* memory, int64_t bytes) noexcept override;
  std::unique_ptr<Runner> runner(const Engine& engine, LaunchTable& table) override;

  CuHandle context() const { return context_; }
  CuHandle function(int32_t kernel) const { return functions_[static_cast<size_t>(kernel)]; }

 private:
  void check_plan(const Plan& plan) const;

  CuHandle context_ = nullptr;
  std::string name_;        // of the card
  std::string capability_;  // "sm_90"
  std::vector<CuHandle> modules_;
  std::vector<CuHandle> functions_;
  Arena weights_;
};

}  // namespace braze
