// Control of the stub; devices, contexts and modules.
#include "state.h"

extern "C" {
void add(void* const*, const int64_t*, int64_t, int64_t, int32_t*);
void table(void* const*, const int64_t*, int64_t, int64_t, int32_t*);
void checked(void* const*, const int64_t*, int64_t, int64_t, int32_t*);
void countdown(void* const*, const int64_t*, int64_t, int64_t, int32_t*);
void positive(void* const*, const int64_t*, int64_t, int64_t, int32_t*);
void odd(void* const*, const int64_t*, int64_t, int64_t, int32_t*);
}

namespace stub {

State& state() {
  static State* const s = new State;  // streams may be used while the process ends
  return *s;
}

thread_local int current_contexts = 0;

}  // namespace stub

using namespace stub;

// ---- control ----------------------------------------------------------------------------------

API void stub_reset() {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  State& s = state();
  s.calls = s.fail_at = 0;
  s.failed = s.sticky = false;
  s.log.clear();
  s.violations.clear();
  const int64_t first[kStubSettings] = {13000, 1, 90, INT64_MAX, 0, 0};
  std::copy(first, first + kStubSettings, s.settings);
}

API void stub_fail(int64_t call, int code, int sticky) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  State& s = state();
  s.fail_at = s.calls + call;
  s.fail_code = code;
  s.sticky = sticky != 0;
  s.failed = false;
}

API int64_t stub_calls() {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  return state().calls;
}

API int stub_failed() {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  return state().failed;
}

API const char* stub_live() {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  State& s = state();
  s.live_text.clear();
  const auto add_line = [&](const char* what, size_t count) {
    if (count) s.live_text += std::to_string(count) + " " + what + "\n";
  };
  add_line("device memory", s.device.size());
  add_line("pinned memory", s.pinned.size());
  add_line("streams", s.streams.size());
  add_line("events", s.events.size());
  add_line("graphs", s.graphs.size());
  add_line("instances", s.execs.size());
  add_line("modules", s.modules.size());
  add_line("contexts", static_cast<size_t>(s.retained));
  return s.live_text.c_str();
}

API const char* stub_log() { return state().log.c_str(); }
API const char* stub_violations() { return state().violations.c_str(); }
API void stub_clear_log() {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  state().log.clear();
}
API void stub_drop() {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  State& s = state();
  for (const auto* memory : {&s.device, &s.pinned}) {
    for (const auto& [address, _] : *memory) std::free(reinterpret_cast<void*>(address));
  }
  s.device.clear();
  s.pinned.clear();
  s.streams.clear();
  s.events.clear();
  s.graphs.clear();
  s.execs.clear();
  s.modules.clear();
  s.null_stream.queue.clear();
  s.violations.clear();
  s.retained = 0;
}
API void stub_set(int setting, int64_t value) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  state().settings[setting] = value;
}

// ---- device and context -------------------------------------------------------------------------

API int cuInit(unsigned) { return Call("init", false).code; }

API int cuDriverGetVersion(int* out) {
  const Call call("version", false);
  *out = static_cast<int>(state().settings[kStubVersion]);
  return call.code;
}

API int cuDeviceGet(int* out, int index) {
  const Call call("device", false);
  if (call.code) return call.code;
  *out = index;
  return index < state().settings[kStubDevices] ? 0 : kNoDevice;
}

API int cuDeviceGetAttribute(int* out, int attribute, int) {
  const Call call("attribute", false);
  const auto capability = static_cast<int>(state().settings[kStubCapability]);
  *out = attribute == 75 ? capability / 10 : capability % 10;
  return call.code;
}

API int cuDeviceGetName(char* out, int size, int) {
  const Call call("name", false);
  if (!call.code) std::strncpy(out, "a stub", static_cast<size_t>(size));
  return call.code;
}

API int cuDevicePrimaryCtxRetain(void** out, int) {
  const Call call("retain", false);
  if (call.code) return call.code;
  ++state().retained;
  *out = &state();
  return 0;
}

API int cuDevicePrimaryCtxRelease_v2(int) {
  const Call call("release", false);
  --state().retained;
  return call.code;
}

API int cuCtxPushCurrent_v2(void* context) {
  const Call call("push", false);
  if (call.code) return call.code;
  if (context != &state() || !state().retained) return kInvalidContext;
  ++current_contexts;
  return 0;
}

API int cuCtxPopCurrent_v2(void** out) {
  const Call call("pop", false);
  *out = &state();
  --current_contexts;
  return call.code;
}

API int cuGetErrorName(int code, const char** out) {
  *out = code == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_STUB";
  return 0;
}

// ---- modules ------------------------------------------------------------------------------------

API int cuModuleLoadData(void** out, const void* image) {
  const Call call("module");
  if (call.code) return call.code;
  if (std::memcmp(image, "STUB", 4) != 0) return kInvalidImage;
  auto made = std::make_unique<Module>();
  *out = made.get();
  state().modules[made.get()] = std::move(made);
  return 0;
}

API int cuModuleUnload(void* module) {
  const Call call("unload");
  const int code = destroy(state().modules, module);
  return call.code ? call.code : code;
}

API int cuModuleGetFunction(void** out, void* module, const char* name) {
  const Call call(std::string("function ") + name);
  if (call.code) return call.code;
  const Function known[] = {{"add", add, 3, 1}, {"table", table, 2, 1}, {"checked", checked, 2, 1},
                            {"counted", checked, 2, 1, 3}, {"countdown", countdown, 2, 0},
                            {"positive", positive, 2, 0}, {"odd", odd, 2, 0}};
  for (const Function& f : known) {
    if (f.name != name) continue;
    auto& functions = static_cast<Module*>(module)->functions;
    functions.push_back(std::make_unique<Function>(f));
    *out = functions.back().get();
    return 0;
  }
  return kNotFound;
}

API int cuFuncSetAttribute(void*, int, int) { return Call("function attribute").code; }
