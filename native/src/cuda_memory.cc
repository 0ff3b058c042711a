#include "cuda_memory.h"

#include <algorithm>
#include <cstring>

namespace braze {
namespace {

constexpr unsigned kNoTiming = 2;  // CU_EVENT_DISABLE_TIMING

}  // namespace

PinnedMemory::PinnedMemory(size_t bytes) {
  constexpr unsigned kPortable = 1;  // CU_MEMHOSTALLOC_PORTABLE: pinned for all contexts
  const size_t wanted = std::max<size_t>(bytes, 1);
  cuda_check(CudaDriver::get().host_allocate(&data_, wanted, kPortable), "pinned host memory");
  bytes_ = bytes;
  std::fill(data(), data() + wanted, static_cast<unsigned char>(0));
}

CallerMemory find_memory(const void* data) {
  int type = 0;  // what memory that the driver does not know has
  int device = 0;
  int attributes[] = {2, 9};  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  void* results[] = {&type, &device};
  const auto address = reinterpret_cast<CuAddress>(data);
  if (!data) return {Whereabouts::kPageable, 0};
  cuda_check(CudaDriver::get().pointer_attributes(2, attributes, results, address),
             "asking where memory lies");
  if (type == 2) return {Whereabouts::kDevice, device};
  return {type == 1 ? Whereabouts::kPinned : Whereabouts::kPageable, 0};
}

CudaStaging::Slot& CudaStaging::slot(size_t index, size_t bytes) {
  Slot& s = slots_[index % slots_.size()];
  wait(s);
  if (!s.free) cuda_check(CudaDriver::get().event_create(s.free.out(), kNoTiming), "making an event");
  if (s.memory.bytes() < bytes) {
    s.memory = PinnedMemory();
    s.memory = PinnedMemory(std::min(kChunkBytes, std::max<size_t>(bytes, 4096)));
  }
  return s;
}

void CudaStaging::wait(Slot& slot) {
  if (slot.busy) cuda_check(CudaDriver::get().event_wait(slot.free.get()), "copying");
  slot.busy = false;
}

void CudaStaging::to_device(CuAddress to, const void* from, size_t bytes, CuHandle stream) {
  const CudaDriver& driver = CudaDriver::get();
  const auto* const source = static_cast<const unsigned char*>(from);
  for (size_t at = 0, index = 0; at < bytes; at += kChunkBytes, ++index) {
    const size_t count = std::min(kChunkBytes, bytes - at);
    Slot& s = slot(index, count);
    std::memcpy(s.memory.data(), source + at, count);
    cuda_check(driver.to_device(to + at, s.memory.data(), count, stream), "copying an input");
    s.busy = true;
    cuda_check(driver.event_record(s.free.get(), stream), "copying an input");
  }
}

void CudaStaging::to_host(void* to, CuAddress from, size_t bytes, CuHandle stream) {
  const CudaDriver& driver = CudaDriver::get();
  auto* const target = static_cast<unsigned char*>(to);
  const size_t chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  const auto size_of = [&](size_t i) { return std::min(kChunkBytes, bytes - i * kChunkBytes); };
  for (size_t i = 0; i < chunks + slots_.size() - 1; ++i) {
    if (i >= slots_.size() - 1) {  // the oldest on the way
      const size_t done = i - (slots_.size() - 1);
      Slot& s = slots_[done % slots_.size()];
      wait(s);
      std::memcpy(target + done * kChunkBytes, s.memory.data(), size_of(done));
    }
    if (i >= chunks) continue;
    Slot& s = slot(i, size_of(i));
    cuda_check(driver.to_host(s.memory.data(), from + i * kChunkBytes, size_of(i), stream),
               "copying an output");
    s.busy = true;
    cuda_check(driver.event_record(s.free.get(), stream), "copying an output");
  }
}

}  // namespace braze
