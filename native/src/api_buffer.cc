// The C functions for memory of an engine's device.
#include "handles.h"

using braze::guarded;

struct braze_buffer {
  braze_buffer(std::shared_ptr<const braze::Engine> of, bool pinned, int64_t count)
      : engine(std::move(of)), is_pinned(pinned), bytes(count) {
    braze::Device& device = engine->device();
    data = is_pinned ? device.allocate_pinned(bytes) : device.allocate(bytes);
  }
  ~braze_buffer() {
    braze::Device& device = engine->device();
    is_pinned ? device.release_pinned(data, bytes) : device.release(data, bytes);
  }
  braze_buffer(const braze_buffer&) = delete;
  braze_buffer& operator=(const braze_buffer&) = delete;

  const std::shared_ptr<const braze::Engine> engine;
  const bool is_pinned;
  const int64_t bytes;
  void* data = nullptr;
};

braze_status braze_buffer_create(braze_engine* engine, int32_t space, int64_t bytes,
                                 braze_buffer** out) {
  return guarded([&] {
    braze::need(engine, out);
    if (bytes < 0) braze::fail(BRAZE_ERROR_EXECUTION, "a buffer of ", bytes, " bytes cannot be");
    if (space != BRAZE_SPACE_DEVICE && space != BRAZE_SPACE_PINNED) {
      braze::fail(BRAZE_ERROR_EXECUTION, "there is no memory space ", space);
    }
    *out = new braze_buffer(engine->engine, space == BRAZE_SPACE_PINNED, bytes);
  });
}

void braze_buffer_destroy(braze_buffer* buffer) { delete buffer; }

void* braze_buffer_data(const braze_buffer* buffer) { return buffer ? buffer->data : nullptr; }

braze_status braze_engine_copy(braze_engine* engine, void* to, const void* from, int64_t bytes) {
  return guarded([&] {
    if (bytes) braze::need(to, from);
    braze::need(engine);
    if (bytes < 0) braze::fail(BRAZE_ERROR_EXECUTION, "a copy of ", bytes, " bytes cannot be");
    engine->engine->device().copy(to, from, bytes);
  });
}
