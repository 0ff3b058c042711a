#include "cuda_host.h"

#include <algorithm>
#include <cstring>

#include "error.h"
#include "float_mode.h"

namespace braze {
namespace {

// Enough that a loop which only counts waits rarely.
constexpr size_t kWords = 256;
constexpr size_t kWordBytes = sizeof(int64_t);
constexpr size_t kAlignment = 64;  // of the tensors of a call

CuAddress address_of(const void* data) { return reinterpret_cast<CuAddress>(data); }

}  // namespace

CudaHost::CudaHost(const CudaDevice& device, const Engine& engine, CudaSteps& steps)
    : device_(device), engine_(engine), steps_(steps) {
  if (engine.plan().is_straight()) return;  // the host has nothing to do
  read_ = PinnedMemory(kWords * kWordBytes);
  written_ = PinnedMemory(kWords * kWordBytes);
}

// Weights that do not stay on the GPU.
bool CudaHost::is_on_host(const void* from) const {
  const CuAddress begin = address_of(engine_.weights());
  return device_.weights().is_streamed() && address_of(from) >= begin &&
         address_of(from) < begin + engine_.weights_bytes();
}

void CudaHost::fetch(void* pinned, const void* from, int64_t bytes, CuHandle stream) const {
  const auto count = static_cast<size_t>(bytes);
  if (is_on_host(from)) {
    std::memcpy(pinned, from, count);
  } else if (count) {
    cuda_check(CudaDriver::get().to_host(pinned, address_of(from), count, stream),
               "reading for the host");
  }
}

void CudaHost::wait(CuHandle stream) {
  cuda_check(CudaDriver::get().stream_wait(stream), "running the network");
  num_written_ = 0;
  steps_.check();
}

void CudaHost::read(const DeviceMemory::Read* reads, size_t count, CuHandle stream) {
  for (size_t first = 0; first < count; first += kWords) {
    const size_t end = std::min(first + kWords, count);
    const auto word = [&](size_t i) { return read_.data() + (i - first) * kWordBytes; };
    for (size_t i = first; i < end; ++i) fetch(word(i), reads[i].from, reads[i].bytes, stream);
    wait(stream);
    for (size_t i = first; i < end; ++i) {
      std::memcpy(reads[i].to, word(i), static_cast<size_t>(reads[i].bytes));
    }
  }
}

void CudaHost::write(void* to, int64_t value, CuHandle stream) {
  if (num_written_ == kWords) wait(stream);
  unsigned char* const word = written_.data() + num_written_++ * kWordBytes;
  std::memcpy(word, &value, kWordBytes);
  cuda_check(CudaDriver::get().to_device(address_of(to), word, kWordBytes, stream), "counting a loop");
}

void CudaHost::copy(void* to, const void* from, int64_t bytes, CuHandle stream) const {
  const CudaDriver& driver = CudaDriver::get();
  const auto count = static_cast<size_t>(bytes);
  const int status = is_on_host(from)
                         ? driver.to_device(address_of(to), from, count, stream)
                         : driver.on_device(address_of(to), address_of(from), count, stream);
  cuda_check(status, "copying a tensor");
}

void CudaHost::call(LaunchTable& table, size_t step, CuHandle stream) {
  const Routine& routine = engine_.routine(step);
  const std::vector<int64_t> bytes = table.buffer_bytes(step);
  void** const pointers = table.pointers(step);
  std::vector<size_t> places;
  size_t total = 0;
  for (const int64_t count : bytes) {
    places.push_back(total);
    total += (static_cast<size_t>(count) + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (tensors_.bytes() < total) {
    wait(stream);  // for copies of a call before
    tensors_ = PinnedMemory();
    tensors_ = PinnedMemory(total);
  }
  std::vector<void*> host;
  for (const size_t place : places) host.push_back(tensors_.data() + place);
  for (size_t i = 0; i < routine.reads; ++i) fetch(host[i], pointers[i], bytes[i], stream);
  wait(stream);
  int32_t status = 0;
  {
    const KernelFloatMode mode;
    routine.function(host.data(), table.params(step), 0, 1, &status);
  }
  if (status != 0) fail_step(engine_, step, status);
  for (size_t i = routine.reads; i < bytes.size(); ++i) {
    if (!bytes[i]) continue;
    cuda_check(CudaDriver::get().to_device(address_of(pointers[i]), host[i],
                                           static_cast<size_t>(bytes[i]), stream),
               "copying what the host computed");
  }
}

}  // namespace braze
