#include "cuda_device.h"

#include <algorithm>

#include "cuda_objects.h"
#include "cuda_run.h"
#include "engine_format.h"
#include "error.h"
#include "library.h"
#include "record_reader.h"

namespace braze {
namespace {

constexpr int kMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kMinor = 76;
constexpr int kMaxDynamicShared = 8;       // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int64_t kFreeShared = 48 << 10;  // more must be asked for

CuAddress address_of(const void* data) { return reinterpret_cast<CuAddress>(data); }

// params: the number of buffers, then the bytes that a library call needs of each.
void check_needs(const int64_t* params, const int64_t* bytes) {
  for (int64_t i = 0; i < params[0]; ++i) {
    if (params[1 + i] > bytes[i]) {
      fail(BRAZE_ERROR_FORMAT, "a buffer of a library call is too small for what it does; ",
           "build the engine again");
    }
  }
}

void check_alive() {
  if (!CudaDriver::get().is_lost()) return;
  fail(BRAZE_ERROR_EXECUTION, "this process was forked after the GPU was opened, and a fork cannot ",
       "use it; start processes by 'spawn', or load engines after the fork");
}

bool runs_here(const Step& step) {
  const auto* const launch = std::get_if<Launch>(&step);
  return !launch || !launch->grid.empty();
}

// The library of a call that runs on the GPU: all but the runtime's own, whose routines the host runs.
const LibraryCall* gpu_call(const Step& step) {
  const auto* const call = std::get_if<LibraryCall>(&step);
  return call && call->library != "braze" ? call : nullptr;
}

}  // namespace

CudaScope::CudaScope(CuHandle context) {
  check_alive();
  cuda_check(CudaDriver::get().context_push(context), "entering its context");
}

CudaScope::~CudaScope() {
  CuHandle popped = nullptr;
  CudaDriver::get().context_pop(&popped);
}

QuietCudaScope::QuietCudaScope(CuHandle context)
    : entered(!CudaDriver::get().is_lost() && CudaDriver::get().context_push(context) == 0) {}

QuietCudaScope::~QuietCudaScope() {
  CuHandle popped = nullptr;
  if (entered) CudaDriver::get().context_pop(&popped);
}

CudaDevice::CudaDevice() {
  const CudaDriver& driver = CudaDriver::get();
  check_alive();
  if (driver.device_get(&device_, 0) != 0) {
    fail(BRAZE_ERROR_TARGET, "the engine runs on an NVIDIA GPU and there is none here; ",
         "build it with target='cpu'");
  }
  int major = 0;
  int minor = 0;
  char name[256] = "a GPU";
  cuda_check(driver.device_attribute(&major, kMajor, device_), "asking for its capability");
  cuda_check(driver.device_attribute(&minor, kMinor, device_), "asking for its capability");
  driver.device_name(name, sizeof name, device_);
  name_ = name;
  capability_ = cat("sm_", major, minor);
  cuda_check(driver.context_retain(&context_, device_), "making a context");
}

CudaDevice::~CudaDevice() {
  const CudaDriver& driver = CudaDriver::get();
  if (driver.is_lost()) {  // all is of the parent of a fork
    for (std::unique_ptr<CudaRoutine>& routine : routines_) (void)routine.release();
    return;
  }
  {
    const QuietCudaScope scope(context_);
    weights_ = CudaWeights();
    if (scope.entered) {
      routines_.clear();
      for (const CuHandle m : modules_) {
        if (m) driver.module_unload(m);
      }
    }
  }
  driver.context_release(device_);
}

void CudaDevice::check_plan(const Plan& plan) const {
  for (const Module& m : plan.modules) {
    if (m.kind == format::CodeKind::kLibrary) continue;
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
    if (!runs_here(*step)) {
      fail(BRAZE_ERROR_TARGET, "step '", step_name(*step), "' of the engine does not run on a GPU; ",
           "build it with target='cpu'");
    }
  }
}

void CudaDevice::load(const Plan& plan, const Section& code) {
  check_plan(plan);
  const CudaScope scope(context_);
  load_modules(plan, code);
  find_functions(plan);
  for (const Step* const step : plan.every_step) {
    const LibraryCall* const call = gpu_call(*step);
    routines_.push_back(call ? open_cuda_routine(plan, *call, code) : nullptr);
  }
}

void CudaDevice::load_modules(const Plan& plan, const Section& code) {
  constexpr int kBadImage[] = {200, 209, 218, 222};  // invalid image, no binary, bad or new PTX
  for (const Module& m : plan.modules) {
    CuHandle handle = nullptr;
    if (m.kind == format::CodeKind::kLibrary) {  // the library's, which its routine loads
      modules_.push_back(nullptr);
      continue;
    }
    const int status = CudaDriver::get().module_load(&handle, code.data + m.code.offset);
    if (std::find(std::begin(kBadImage), std::end(kBadImage), status) != std::end(kBadImage)) {
      fail(BRAZE_ERROR_COMPILE, "the driver refuses a piece of GPU code (error ", status,
           "); update the driver or build the engine again");
    }
    cuda_check(status, "GPU code");
    modules_.push_back(handle);
  }
}

void CudaDevice::find_functions(const Plan& plan) {
  const CudaDriver& driver = CudaDriver::get();
  constexpr int kNotFound = 500;
  for (const Kernel& k : plan.kernels) {
    CuHandle function = nullptr;
    const auto module = static_cast<size_t>(k.module);
    require(modules_[module], cat("kernel ", k.entry), "its code is no code of a GPU");
    const int status = driver.module_function(&function, modules_[module], k.entry.c_str());
    if (status == kNotFound) {
      fail(BRAZE_ERROR_COMPILE, "GPU code has no function ", k.entry, "; build the engine again");
    }
    cuda_check(status, "finding a kernel");
    if (k.shared_bytes > kFreeShared) {
      cuda_check(driver.function_set(function, kMaxDynamicShared, static_cast<int>(k.shared_bytes)),
                 "reserving shared memory");
    }
    functions_.push_back(function);
  }
}

// The runner issues the steps; the host calls its own routines alone, but the sizes of buffers are
// checked alike.
Routine CudaDevice::routine(const Plan& plan, const Step& step) const {
  if (std::holds_alternative<Copy>(step)) return copy_routine();
  const auto* const call = std::get_if<LibraryCall>(&step);
  if (!call) return {};
  if (!gpu_call(step)) return find_routine(plan, *call);
  const auto& all = plan.every_step;
  const auto number = std::find(all.begin(), all.end(), &step) - all.begin();
  const std::vector<int64_t>& needs = routines_[static_cast<size_t>(number)]->needs();
  Routine out{nullptr, &check_needs, needs, 0};
  out.constants.insert(out.constants.begin(), static_cast<int64_t>(needs.size()));
  return out;
}

const unsigned char* CudaDevice::upload(const Plan& plan, const Section& weights, int64_t budget) {
  const CudaScope scope(context_);
  weights_ = CudaWeights(*this, plan, weights, budget);
  return weights_.base();
}

void* CudaDevice::allocate(int64_t bytes) {
  const CudaDriver& driver = CudaDriver::get();
  const CudaScope scope(context_);
  CuAddress address = 0;
  const auto wanted = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  cuda_check(driver.allocate(&address, wanted), "memory of an engine");
  int status = driver.fill(address, 0, wanted, nullptr);
  if (status == 0) status = driver.stream_wait(nullptr);
  if (status != 0) driver.free(address);
  cuda_check(status, "clearing memory");
  return reinterpret_cast<void*>(address);
}

void CudaDevice::release(void* memory, int64_t) noexcept {
  const QuietCudaScope scope(context_);
  if (scope.entered) CudaDriver::get().free(address_of(memory));
}

void* CudaDevice::allocate_pinned(int64_t bytes) {
  const CudaScope scope(context_);
  return PinnedMemory(static_cast<size_t>(bytes)).give_away();
}

void CudaDevice::release_pinned(void* memory, int64_t) noexcept {
  const QuietCudaScope scope(context_);
  if (scope.entered) CudaDriver::get().host_free(memory);
}

void CudaDevice::copy(void* to, const void* from, int64_t bytes) {
  const CudaScope scope(context_);
  if (bytes == 0) return;
  // addresses are unified: the driver finds out where they are
  const auto count = static_cast<size_t>(bytes);
  const CudaDriver& driver = CudaDriver::get();
  cuda_check(driver.copy(address_of(to), address_of(from), count), "copying");
  cuda_check(driver.stream_wait(nullptr), "copying");  // what was pageable is only on its way
}

void CudaDevice::wait(void* stream) {
  const CudaScope scope(context_);
  cuda_check(CudaDriver::get().stream_wait(stream), "waiting for a stream");
}

std::unique_ptr<Runner> CudaDevice::runner(const Engine& engine, const ContextOptions& options) {
  return std::make_unique<CudaRun>(*this, engine, options);
}

std::unique_ptr<Device> open_cuda() { return std::make_unique<CudaDevice>(); }

}  // namespace braze
