#include "cuda_driver.h"

#include <dlfcn.h>

#include "error.h"

namespace braze {
namespace {

constexpr int kOutOfMemory = 2;

template <class F>
void find(void* library, const char* name, F& function) {
  void* const symbol = dlsym(library, name);
  if (!symbol) {
    fail(BRAZE_ERROR_TARGET, "the NVIDIA driver here has no ", name,
         "; install a driver for CUDA 12 or newer");
  }
  function = reinterpret_cast<F>(symbol);
}

CudaDriver open_driver() {
  void* const lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    fail(BRAZE_ERROR_TARGET, "the engine runs on an NVIDIA GPU and there is no driver for one ",
         "here (libcuda.so.1); install it, or build the engine with target='cpu'");
  }
  CudaDriver d{};
  find(lib, "cuInit", d.init);
  find(lib, "cuDeviceGet", d.device_get);
  find(lib, "cuDeviceGetAttribute", d.device_attribute);
  find(lib, "cuDeviceGetName", d.device_name);
  find(lib, "cuDevicePrimaryCtxRetain", d.context_retain);
  find(lib, "cuCtxPushCurrent_v2", d.context_push);
  find(lib, "cuCtxPopCurrent_v2", d.context_pop);
  find(lib, "cuModuleLoadData", d.module_load);
  find(lib, "cuModuleUnload", d.module_unload);
  find(lib, "cuModuleGetFunction", d.module_function);
  find(lib, "cuFuncSetAttribute", d.function_set);
  find(lib, "cuMemAlloc_v2", d.allocate);
  find(lib, "cuMemFree_v2", d.free);
  find(lib, "cuMemcpyHtoDAsync_v2", d.to_device);
  find(lib, "cuMemcpyDtoHAsync_v2", d.to_host);
  find(lib, "cuMemcpyDtoDAsync_v2", d.on_device);
  find(lib, "cuMemsetD8Async", d.fill);
  find(lib, "cuPointerGetAttribute", d.pointer_attribute);
  find(lib, "cuStreamCreate", d.stream_create);
  find(lib, "cuStreamDestroy_v2", d.stream_destroy);
  find(lib, "cuStreamSynchronize", d.stream_wait);
  find(lib, "cuStreamBeginCapture_v2", d.capture_begin);
  find(lib, "cuStreamEndCapture", d.capture_end);
  find(lib, "cuGraphInstantiateWithFlags", d.graph_instantiate);
  find(lib, "cuGraphLaunch", d.graph_launch);
  find(lib, "cuGraphExecDestroy", d.graph_exec_destroy);
  find(lib, "cuGraphDestroy", d.graph_destroy);
  find(lib, "cuLaunchKernelEx", d.launch);
  find(lib, "cuEventCreate", d.event_create);
  find(lib, "cuEventDestroy_v2", d.event_destroy);
  find(lib, "cuEventRecord", d.event_record);
  find(lib, "cuEventSynchronize", d.event_wait);
  find(lib, "cuEventElapsedTime", d.event_elapsed);
  find(lib, "cuGetErrorName", d.error_name);
  if (d.init(0) != 0) {
    fail(BRAZE_ERROR_TARGET, "the NVIDIA driver does not start; check it with nvidia-smi");
  }
  return d;
}

}  // namespace

const CudaDriver& CudaDriver::get() {
  static const CudaDriver driver = open_driver();
  return driver;
}

void cuda_check(int code, const char* what) {
  if (code == 0) return;
  if (code == kOutOfMemory) {
    fail(BRAZE_ERROR_EXECUTION, "the GPU has no memory left for ", what,
         "; use fewer contexts or a smaller profile");
  }
  const char* name = nullptr;
  if (CudaDriver::get().error_name(code, &name) != 0 || !name) name = "unknown error";
  fail(BRAZE_ERROR_EXECUTION, "the GPU failed at ", what, " (", name, ", code ", code,
       "); check it with nvidia-smi and create the engine again");
}

}  // namespace braze
