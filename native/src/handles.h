// What stands behind the opaque handles of braze.h, and how failures cross the C border.
#pragma once

#include <memory>
#include <new>

#include "context.h"
#include "engine.h"
#include "error.h"
#include "stream.h"
#include "thread_pool.h"

struct braze_engine {
  std::shared_ptr<const braze::Engine> engine;
};

struct braze_context {
  std::shared_ptr<braze::Context> context;
};

struct braze_stream {
  braze::Stream stream;
};

struct braze_event {
  // A forked child leaks the event: waiters that stayed in the parent would be waited for.
  ~braze_event() {
    if (fork_generation != braze::fork_generation()) {
      new std::shared_ptr<braze::Event>(std::move(event));
    }
  }
  std::shared_ptr<braze::Event> event = std::make_shared<braze::Event>();
  const uint32_t fork_generation = braze::fork_generation();
};

namespace braze {

// Keeps the message for braze_last_error and returns the code.
braze_status report(int32_t code, const char* message) noexcept;

// Runs body() and turns what it throws into a status.
template <class Body>
braze_status guarded(const Body& body) noexcept {
  try {
    body();
    return BRAZE_OK;
  } catch (const Error& e) {
    return report(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return report(BRAZE_ERROR_EXECUTION, "memory ran out; free some and try again");
  } catch (const std::exception& e) {
    return report(BRAZE_ERROR_EXECUTION, e.what());
  } catch (...) {  // a C++ callback of the caller may throw anything
    return report(BRAZE_ERROR_EXECUTION, kUnknownException);
  }
}

// Throws an execution error unless every pointer is there.
template <class... Pointers>
void need(const Pointers*... pointers) {
  if (((pointers == nullptr) || ...)) fail(BRAZE_ERROR_EXECUTION, "a required pointer is null");
}

}  // namespace braze
