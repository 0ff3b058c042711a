// Memory and copies.
#include "state.h"

using namespace stub;

namespace {

void copy(Address to, Address from, size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}

// Pinned memory that a copy will use; until the copy is gone.
std::shared_ptr<void> hold(Address address) {
  const Address block = std::prev(state().pinned.upper_bound(address))->first;
  ++state().in_use[block];
  return {nullptr, [block](void*) { --state().in_use[block]; }};
}

}  // namespace

// ---- memory -------------------------------------------------------------------------------------

API int cuMemAlloc_v2(Address* out, size_t bytes) {
  const Call call("allocate " + number(bytes));
  if (call.code) return call.code;
  State& s = state();
  size_t used = 0;
  for (const auto& [_, size] : s.device) used += size;
  if (static_cast<int64_t>(used + bytes) > s.settings[kStubMemory]) return kOutOfMemory;
  void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, 0x5a, bytes);
  *out = reinterpret_cast<Address>(memory);
  s.device[*out] = bytes;
  return 0;
}

API int cuMemFree_v2(Address address) {
  const Call call("free");
  drain_all();
  const auto freed = state().device.find(address);
  if (freed == state().device.end()) return kInvalidValue;
  auto& counters = state().counters;
  counters.erase(counters.lower_bound(address), counters.lower_bound(address + freed->second));
  state().device.erase(freed);
  std::free(reinterpret_cast<void*>(address));
  return call.code;
}

API int cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  const Call call("allocate pinned " + number(bytes));
  if (call.code) return call.code;
  *out = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*out, 0x5a, bytes);
  state().pinned[reinterpret_cast<Address>(*out)] = bytes;
  return 0;
}

API int cuMemFreeHost(void* memory) {
  const Call call("free pinned");
  if (state().in_use[reinterpret_cast<Address>(memory)]) {
    complain("pinned memory is freed while a copy of it is pending");
  }
  if (!state().pinned.erase(reinterpret_cast<Address>(memory))) return kInvalidValue;
  std::free(memory);
  return call.code;
}

// Like the driver's: what it does not know has type 0.
API int cuPointerGetAttributes(unsigned count, int* attributes, void** results, Address address) {
  const Call call("pointer attributes");
  if (call.code) return call.code;
  const bool device = inside(state().device, address, 0);
  const bool pinned = inside(state().pinned, address, 0);
  for (unsigned i = 0; i < count; ++i) {
    const int type = device ? 2 : pinned ? 1 : 0;
    const auto number = static_cast<int>(state().settings[kStubMemoryOf]);
    *static_cast<int*>(results[i]) = attributes[i] == 2 ? type : number;
  }
  return 0;
}

API int cuMemcpy(Address to, Address from, size_t bytes) {
  const Call call("copy " + number(bytes));
  if (call.code) return call.code;
  drain_all();
  copy(to, from, bytes);
  return 0;
}

API int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void* stream) {
  const auto source = reinterpret_cast<Address>(from);
  const bool pinned = inside(state().pinned, source, bytes);
  const Call call("to device " + number(bytes) + name_of(stream) + (pinned ? " pinned" : ""));
  if (call.code) return call.code;
  if (!inside(state().device, to, bytes)) return kInvalidValue;
  if (pinned) return put(stream, [=, held = hold(source)] { copy(to, source, bytes); });
  const auto* const begin = static_cast<const char*>(from);
  return put(stream, [to, taken = std::vector<char>(begin, begin + bytes)] {
    copy(to, reinterpret_cast<Address>(taken.data()), taken.size());
  });
}

API int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void* stream) {
  const auto target = reinterpret_cast<Address>(to);
  const bool pinned = inside(state().pinned, target, bytes);
  const Call call("to host " + number(bytes) + name_of(stream) + (pinned ? " pinned" : ""));
  if (call.code) return call.code;
  if (!inside(state().device, from, bytes)) return kInvalidValue;
  const std::shared_ptr<void> held = pinned ? hold(target) : nullptr;
  const int code = put(stream, [=] { copy(target, from, bytes); });
  if (!code && !pinned && !stream_of(stream)->capture) drain(*stream_of(stream));
  return code;
}

API int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void* stream) {
  const Call call("on device " + number(bytes) + name_of(stream));
  if (call.code) return call.code;
  if (!inside(state().device, to, bytes) || !inside(state().device, from, bytes)) {
    return kInvalidValue;
  }
  return put(stream, [=] { copy(to, from, bytes); });
}

API int cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void* stream) {
  const Call call("fill " + number(bytes) + name_of(stream));
  if (call.code) return call.code;
  if (!inside(state().device, to, bytes)) return kInvalidValue;
  return put(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
}
