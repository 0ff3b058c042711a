#include "cuda_device.h"

#include <algorithm>

#include "cuda_run.h"
#include "engine_format.h"
#include "error.h"

namespace braze {
namespace {

constexpr int kMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kMinor = 76;
constexpr int kMaxDynamicShared = 8;       // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int64_t kFreeShared = 48 << 10;  // more must be asked for

}  // namespace

CudaScope::CudaScope(CuHandle context) {
  cuda_check(CudaDriver::get().context_push(context), "entering its context");
}

CudaScope::~CudaScope() {
  CuHandle popped = nullptr;
  CudaDriver::get().context_pop(&popped);
}

CudaDevice::CudaDevice() {
  const CudaDriver& driver = CudaDriver::get();
  int device = 0;
  if (driver.device_get(&device, 0) != 0) {
    fail(BRAZE_ERROR_TARGET, "the engine runs on an NVIDIA GPU and there is none here; ",
         "build it with target='cpu'");
  }
  int major = 0;
  int minor = 0;
  char name[256] = "a GPU";
  cuda_check(driver.device_attribute(&major, kMajor, device), "asking for its capability");
  cuda_check(driver.device_attribute(&minor, kMinor, device), "asking for its capability");
  driver.device_name(name, sizeof name, device);
  name_ = name;
  capability_ = cat("sm_", major, minor);
  cuda_check(driver.context_retain(&context_, device), "making a context");
}

CudaDevice::~CudaDevice() {
  weights_ = Arena();
  const CudaDriver& driver = CudaDriver::get();
  CuHandle popped = nullptr;
  if (driver.context_push(context_) != 0) return;  // the context is gone, and all in it
  for (const CuHandle m : modules_) driver.module_unload(m);
  driver.context_pop(&popped);
}

void CudaDevice::check_plan(const Plan& plan) const {
  for (const Module& m : plan.modules) {
    if (m.kind != format::CodeKind::kCubin) {
      fail(BRAZE_ERROR_TARGET, "the engine mixes code of a GPU and of the host, which this runtime ",
           "does not run; build it again");
    }
    if (m.needs != capability_) {
      fail(BRAZE_ERROR_TARGET, "the engine needs a GPU of compute capability ", m.needs,
           " and this one (", name_, ") is ", capability_, "; build it again with target='cuda:",
           capability_, "'");
    }
  }
  for (const Step* const step : plan.every_step) {
    const auto* const launch = std::get_if<Launch>(step);
    if (!launch || launch->grid.empty()) {
      fail(BRAZE_ERROR_TARGET, "step '", step_name(*step), "' of the engine does not run on a GPU; ",
           "build it with target='cpu'");
    }
  }
}

void CudaDevice::load(const Plan& plan, const Section& code) {
  check_plan(plan);
  const CudaDriver& driver = CudaDriver::get();
  const CudaScope scope(context_);
  for (const Module& m : plan.modules) {
    CuHandle handle = nullptr;
    const int status = driver.module_load(&handle, code.data + m.code.offset);
    if (status != 0) {
      fail(BRAZE_ERROR_COMPILE, "the driver refuses a piece of GPU code (error ", status,
           "); build the engine again");
    }
    modules_.push_back(handle);
  }
  for (const Kernel& k : plan.kernels) {
    CuHandle function = nullptr;
    const auto module = static_cast<size_t>(k.module);
    if (driver.module_function(&function, modules_[module], k.entry.c_str()) != 0) {
      fail(BRAZE_ERROR_COMPILE, "GPU code has no function ", k.entry, "; build the engine again");
    }
    if (k.shared_bytes > kFreeShared) {
      cuda_check(driver.function_set(function, kMaxDynamicShared, static_cast<int>(k.shared_bytes)),
                 "reserving shared memory");
    }
    functions_.push_back(function);
  }
}

// The runner launches; the host calls nothing.
Routine CudaDevice::kernel(const Launch&) const { return {}; }

const unsigned char* CudaDevice::upload(const Section& weights) {
  weights_ = Arena(*this, static_cast<int64_t>(weights.size));
  const CudaScope scope(context_);
  if (weights.size) {
    const auto to = reinterpret_cast<CuAddress>(weights_.data());
    const CudaDriver& driver = CudaDriver::get();
    cuda_check(driver.to_device(to, weights.data, weights.size, nullptr), "copying the weights");
    cuda_check(driver.stream_wait(nullptr), "copying the weights");
  }
  return weights_.data();
}

void* CudaDevice::allocate(int64_t bytes) {
  const CudaDriver& driver = CudaDriver::get();
  const CudaScope scope(context_);
  CuAddress address = 0;
  const auto wanted = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  cuda_check(driver.allocate(&address, wanted), "memory of an engine");
  cuda_check(driver.fill(address, 0, wanted, nullptr), "clearing memory");
  cuda_check(driver.stream_wait(nullptr), "clearing memory");
  return reinterpret_cast<void*>(address);
}

void CudaDevice::release(void* memory, int64_t) noexcept {
  const CudaDriver& driver = CudaDriver::get();
  CuHandle popped = nullptr;
  if (driver.context_push(context_) != 0) return;
  driver.free(reinterpret_cast<CuAddress>(memory));
  driver.context_pop(&popped);
}

std::unique_ptr<Runner> CudaDevice::runner(const Engine& engine, LaunchTable& table) {
  return std::make_unique<CudaRun>(*this, engine, table);
}

std::unique_ptr<Device> open_cuda() { return std::make_unique<CudaDevice>(); }

}  // namespace braze
