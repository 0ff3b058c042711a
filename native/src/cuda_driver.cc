#include "cuda_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>

#include "error.h"
#include "thread_pool.h"

namespace braze {
namespace {

constexpr int kOldest = 12000;  // CUDA 12.0, the first with all that is called here
constexpr int kOutOfMemory = 2;
constexpr int kNoDevice = 100;
// Errors after which a context answers every call with the same error: illegal address, a launch
// that timed out, assertion, hardware stack, instruction, alignment, address space, counter, launch
// failure, uncorrectable memory, contained fault.
constexpr int kSticky[] = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721};

template <class F>
void find(void* library, const char* name, F& function) {
  void* const symbol = dlsym(library, name);
  if (!symbol) {
    fail(BRAZE_ERROR_TARGET, "the NVIDIA driver here has no ", name,
         "; install a driver for CUDA 12 or newer");
  }
  function = reinterpret_cast<F>(symbol);
}

// First, since functions of later versions may be missing.
void check_version(void* library, CudaDriver& d) {
  int version = 0;
  find(library, "cuDriverGetVersion", d.version);
  if (d.version(&version) == 0 && version >= kOldest) return;
  fail(BRAZE_ERROR_TARGET, "the NVIDIA driver here is for CUDA ", version / 1000, ".",
       version % 1000 / 10, " and engines need 12.0 or newer; update the driver");
}

void find_contexts(void* lib, CudaDriver& d) {
  find(lib, "cuInit", d.init);
  find(lib, "cuDeviceGet", d.device_get);
  find(lib, "cuDeviceGetAttribute", d.device_attribute);
  find(lib, "cuDeviceGetName", d.device_name);
  find(lib, "cuDevicePrimaryCtxRetain", d.context_retain);
  find(lib, "cuDevicePrimaryCtxRelease_v2", d.context_release);
  find(lib, "cuCtxPushCurrent_v2", d.context_push);
  find(lib, "cuCtxPopCurrent_v2", d.context_pop);
  find(lib, "cuModuleLoadData", d.module_load);
  find(lib, "cuModuleUnload", d.module_unload);
  find(lib, "cuModuleGetFunction", d.module_function);
  find(lib, "cuFuncSetAttribute", d.function_set);
  find(lib, "cuGetErrorName", d.error_name);
}

void find_memory(void* lib, CudaDriver& d) {
  find(lib, "cuMemAlloc_v2", d.allocate);
  find(lib, "cuMemFree_v2", d.free);
  find(lib, "cuMemHostAlloc", d.host_allocate);
  find(lib, "cuMemFreeHost", d.host_free);
  find(lib, "cuMemcpyHtoDAsync_v2", d.to_device);
  find(lib, "cuMemcpyDtoHAsync_v2", d.to_host);
  find(lib, "cuMemcpyDtoDAsync_v2", d.on_device);
  find(lib, "cuMemcpy", d.copy);
  find(lib, "cuMemsetD8Async", d.fill);
  find(lib, "cuPointerGetAttributes", d.pointer_attributes);
}

void find_streams(void* lib, CudaDriver& d) {
  find(lib, "cuStreamCreateWithPriority", d.stream_create);
  find(lib, "cuStreamDestroy_v2", d.stream_destroy);
  find(lib, "cuStreamSynchronize", d.stream_wait);
  find(lib, "cuStreamGetId", d.stream_id);
  find(lib, "cuStreamWaitEvent", d.stream_wait_event);
  find(lib, "cuStreamBeginCapture_v2", d.capture_begin);
  find(lib, "cuStreamEndCapture", d.capture_end);
  find(lib, "cuGraphInstantiateWithFlags", d.graph_instantiate);
  find(lib, "cuGraphExecUpdate_v2", d.graph_update);
  find(lib, "cuGraphLaunch", d.graph_launch);
  find(lib, "cuGraphExecDestroy", d.graph_exec_destroy);
  find(lib, "cuGraphDestroy", d.graph_destroy);
  find(lib, "cuLaunchKernelEx", d.launch);
  find(lib, "cuTensorMapEncodeTiled", d.tensor_map);
  find(lib, "cuEventCreate", d.event_create);
  find(lib, "cuEventDestroy_v2", d.event_destroy);
  find(lib, "cuEventRecord", d.event_record);
  find(lib, "cuEventSynchronize", d.event_wait);
  find(lib, "cuEventElapsedTime", d.event_elapsed);
}

CudaDriver open_driver() {
  void* const lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    fail(BRAZE_ERROR_TARGET, "the engine runs on an NVIDIA GPU and there is no driver for one ",
         "here (libcuda.so.1); install it, or build the engine with target='cpu'");
  }
  CudaDriver d{};
  d.fork_generation = braze::fork_generation();
  check_version(lib, d);
  find_contexts(lib, d);
  find_memory(lib, d);
  find_streams(lib, d);
  const int status = d.init(0);
  if (status == kNoDevice) {
    fail(BRAZE_ERROR_TARGET, "the engine runs on an NVIDIA GPU and there is none here; ",
         "build it with target='cpu'");
  }
  if (status != 0) {
    fail(BRAZE_ERROR_TARGET, "the NVIDIA driver does not start (error ", status,
         "); check it with nvidia-smi");
  }
  return d;
}

}  // namespace

const CudaDriver& CudaDriver::get() {
  static const CudaDriver driver = open_driver();
  return driver;
}

bool CudaDriver::is_lost() const { return fork_generation != braze::fork_generation(); }

void cuda_check(int code, const char* what) {
  if (code == 0) return;
  if (code == kOutOfMemory) {
    fail(BRAZE_ERROR_EXECUTION, "the GPU has no memory left for ", what,
         "; use fewer contexts or a smaller profile");
  }
  const char* name = nullptr;
  if (CudaDriver::get().error_name(code, &name) != 0 || !name) name = "unknown error";
  if (std::find(std::begin(kSticky), std::end(kSticky), code) != std::end(kSticky)) {
    fail(BRAZE_ERROR_EXECUTION, "the GPU failed at ", what, " (", name, ", code ", code,
         ") and refuses all further work of this process; start a new process");
  }
  fail(BRAZE_ERROR_EXECUTION, "the GPU failed at ", what, " (", name, ", code ", code,
       "); check it with nvidia-smi and create the engine again");
}

}  // namespace braze
