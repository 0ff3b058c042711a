// A cuDNN for tests, of version 9.19.0: a plan is the text "plan of N", which adds the tensors 1 and
// 2 of N floats and writes tensor 5, in the order of the driver's streams. Counts what is alive, and
// fails when it is told to.
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "cuda_stub.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {

struct Descriptor {
  std::map<int, std::vector<int64_t>> values;  // integers and pointers by attribute
  std::string text;
};

struct Handle {
  void* stream = nullptr;
};

struct State {
  int live = 0;
  int64_t calls = 0;
  int64_t fails_at = 0;
};

State& state() {
  static State s;
  return s;
}

int called() { return ++state().calls == state().fails_at ? 5000 : 0; }

struct Work {
  const float* a;
  const float* b;
  float* out;
  int64_t count;
};

constexpr const char* kPlan = "plan of ";

}  // namespace

API int dnn_stub_live() { return state().live; }
API void dnn_stub_fail(int64_t call) { state().fails_at = call ? state().calls + call : 0; }

API size_t cudnnGetVersion() { return 91900; }
API int cudnnCreate(void** out) {
  if (const int status = called()) return status;
  *out = new Handle;
  ++state().live;
  return 0;
}
API int cudnnDestroy(void* handle) {
  delete static_cast<Handle*>(handle);
  --state().live;
  return 0;
}
API int cudnnSetStream(void* handle, void* stream) {
  if (const int status = called()) return status;
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}
API int cudnnBackendCreateDescriptor(int, void** out) {
  if (const int status = called()) return status;
  *out = new Descriptor;
  ++state().live;
  return 0;
}
API int cudnnBackendDestroyDescriptor(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  --state().live;
  return 0;
}
API int cudnnBackendSetAttribute(void* descriptor, int attribute, int type, int64_t count,
                                 const void* values) {
  if (const int status = called()) return status;
  auto& d = *static_cast<Descriptor*>(descriptor);
  if (type == 24) {
    d.text.assign(static_cast<const char*>(values), static_cast<size_t>(count));
  } else {
    auto& out = d.values[attribute];
    out.resize(static_cast<size_t>(count));
    std::memcpy(out.data(), values, out.size() * sizeof(int64_t));
  }
  return 0;
}
API int cudnnBackendFinalize(void* descriptor) {
  if (const int status = called()) return status;
  const auto& d = *static_cast<Descriptor*>(descriptor);
  return d.text.empty() || d.text.rfind(kPlan, 0) == 0 ? 0 : 3000;
}
API int cudnnBackendGetAttribute(void*, int attribute, int, int64_t, int64_t* count, void* out) {
  if (const int status = called()) return status;
  if (attribute != 402) return 2000;
  const int64_t workspace = 256;
  std::memcpy(out, &workspace, sizeof workspace);
  *count = 1;
  return 0;
}
API int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  if (const int status = called()) return status;
  auto& values = static_cast<Descriptor*>(pack)->values;
  std::map<int64_t, int64_t> tensors;
  for (size_t i = 0; i < values[1000].size(); ++i) tensors[values[1000][i]] = values[1001][i];
  if (values[1003].empty() || !values[1003][0]) return 2000;
  const std::string& text = static_cast<Descriptor*>(plan)->text;
  const int64_t count = std::stoll(text.substr(std::strlen(kPlan)));
  auto* const work =
      new Work{reinterpret_cast<const float*>(tensors[1]), reinterpret_cast<const float*>(tensors[2]),
               reinterpret_cast<float*>(tensors[5]), count};
  return stub_put(
      static_cast<Handle*>(handle)->stream,
      [](void* w) {
        const Work& k = *static_cast<Work*>(w);
        for (int64_t i = 0; i < k.count; ++i) k.out[i] = k.a[i] + k.b[i];
      },
      work, [](void* w) { delete static_cast<Work*>(w); });
}
