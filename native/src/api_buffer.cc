// The C functions for memory of an engine's device.
#include <vector>

#include "dlpack.h"
#include "handles.h"

using braze::guarded;

namespace {

// Memory of a device, and what keeps that open.
struct Memory {
  Memory(std::shared_ptr<const braze::Engine> of, bool is_pinned, int64_t count)
      : engine(std::move(of)), pinned(is_pinned), bytes(count) {
    braze::Device& device = engine->device();
    data = pinned ? device.allocate_pinned(bytes) : device.allocate(bytes);
  }
  ~Memory() {
    braze::Device& device = engine->device();
    if (pinned) {
      device.release_pinned(data, bytes);
    } else {
      device.release(data, bytes);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  const std::shared_ptr<const braze::Engine> engine;
  const bool pinned;
  const int64_t bytes;
  void* data = nullptr;
};

// A tensor for other libraries, which they delete.
struct Exported {
  braze::DlManagedTensor managed = {};
  std::shared_ptr<Memory> memory;
  std::vector<int64_t> shape;
};

void check_size(const Memory& memory, int32_t bits, const std::vector<int64_t>& shape) {
  int64_t bytes = (bits + 7) / 8;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes)) bytes = -1;
    if (bytes < 0) break;
  }
  if (bytes >= 0 && bytes <= memory.bytes) return;
  braze::fail(BRAZE_ERROR_BINDING, "a buffer of ", memory.bytes, " bytes does not hold a tensor of ",
              bytes, "; make it larger");
}

}  // namespace

struct braze_buffer {
  std::shared_ptr<Memory> memory;
};

braze_status braze_buffer_create(braze_engine* engine, int32_t space, int64_t bytes,
                                 braze_buffer** out) {
  return guarded([&] {
    braze::need(engine, out);
    if (bytes < 0) braze::fail(BRAZE_ERROR_EXECUTION, "a buffer of ", bytes, " bytes cannot be");
    if (space != BRAZE_SPACE_DEVICE && space != BRAZE_SPACE_PINNED) {
      braze::fail(BRAZE_ERROR_EXECUTION, "there is no memory space ", space);
    }
    const bool pinned = space == BRAZE_SPACE_PINNED;
    *out = new braze_buffer{std::make_shared<Memory>(engine->engine, pinned, bytes)};
  });
}

void braze_buffer_destroy(braze_buffer* buffer) { delete buffer; }

void* braze_buffer_data(const braze_buffer* buffer) {
  return buffer ? buffer->memory->data : nullptr;
}

braze_status braze_buffer_dlpack(const braze_buffer* buffer, int32_t type_code, int32_t bits,
                                 const int64_t* dims, int32_t rank, void** out) {
  return guarded([&] {
    braze::need(buffer, dims, out);
    const Memory& memory = *buffer->memory;
    auto made = std::make_unique<Exported>();
    made->memory = buffer->memory;
    made->shape.assign(dims, dims + rank);
    check_size(memory, bits, made->shape);
    const braze::DeviceName name = memory.engine->device().name();
    // pinned memory is the host's for every library
    const braze::DlDevice device = memory.pinned ? braze::DlDevice{1, 0}
                                                 : braze::DlDevice{name.type, name.number};
    const auto code = static_cast<uint8_t>(type_code);
    made->managed = {{memory.data, device, rank, {code, static_cast<uint8_t>(bits), 1},
                      made->shape.data(), nullptr, 0},
                     made.get(),
                     [](braze::DlManagedTensor* t) { delete static_cast<Exported*>(t->owner); }};
    *out = &made.release()->managed;
  });
}

braze_status braze_engine_copy(braze_engine* engine, void* to, const void* from, int64_t bytes) {
  return guarded([&] {
    if (bytes) braze::need(to, from);
    braze::need(engine);
    if (bytes < 0) braze::fail(BRAZE_ERROR_EXECUTION, "a copy of ", bytes, " bytes cannot be");
    engine->engine->device().copy(to, from, bytes);
  });
}

braze_status braze_engine_wait_cuda(braze_engine* engine, void* cuda_stream) {
  return guarded([&] {
    braze::need(engine);
    engine->engine->device().wait(cuda_stream);
  });
}
