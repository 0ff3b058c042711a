// A thin C++ face over braze.h: handles that free themselves, errors as exceptions.
//
//   braze::Engine engine("model.engine");
//   braze::Context context(engine);
//   context.set_input_shape("x", {1, 3, 224, 224});
//   context.bind("x", image.data(), image.size() * sizeof(float));
//   std::vector<float> y(context.bytes("y") / sizeof(float));
//   context.bind("y", y.data(), y.size() * sizeof(float));
//   context.execute();
//
// braze_build.hpp, which it includes, makes networks and builds engines of them.
#ifndef BRAZE_HPP_
#define BRAZE_HPP_

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "braze.h"

namespace braze {
inline namespace v1 {

// Any failure of the runtime; what() is one sentence, status() a BRAZE_ERROR_ value.
class Failure : public std::runtime_error {
 public:
  Failure(braze_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  braze_status status() const noexcept { return status_; }

 private:
  braze_status status_;
};

inline void check(braze_status status) {
  if (status != BRAZE_OK) throw Failure(status, braze_last_error());
}

// Gives an output without memory some when its shape is known: at least `bytes` bytes, which stay
// the caller's.
using Allocator = std::function<void*(const std::string& name,
                                      const std::vector<std::int64_t>& shape, std::size_t bytes)>;

// An input or output; an axis that depends on the input shapes or on the run has size -1.
struct TensorInfo {
  std::string name;
  std::string dtype;
  std::int32_t dtype_bytes;
  bool is_output;
  std::vector<std::int64_t> shape;
};

// A loaded engine. Copies share it.
class Engine {
 public:
  // threads: workers of a run, 0 for what the engine was built for.
  explicit Engine(const std::string& path, std::int32_t threads = 0) {
    braze_engine* made = nullptr;
    check(braze_engine_load_file(path.c_str(), threads, &made));
    handle_.reset(made, braze_engine_destroy);
    read_tensors();
  }

  Engine(const void* data, std::uint64_t size, std::int32_t threads = 0) {
    braze_engine* made = nullptr;
    check(braze_engine_load_memory(data, size, 0, threads, &made));
    handle_.reset(made, braze_engine_destroy);
    read_tensors();
  }

  // Inputs first, then outputs.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  std::int32_t threads() const { return braze_engine_threads(handle_.get()); }
  std::int32_t num_profiles() const { return braze_engine_num_profiles(handle_.get()); }
  // Waits until the weights are checked; throws when they are damaged.
  void verify() { check(braze_engine_verify(handle_.get())); }

  std::int32_t index(const std::string& name) const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].name == name) return static_cast<std::int32_t>(i);
    }
    throw Failure(BRAZE_ERROR_BINDING, "the engine has no tensor '" + name + "'");
  }

  braze_engine* handle() const { return handle_.get(); }

 private:
  void read_tensors() {
    const std::int32_t count =
        braze_engine_num_inputs(handle()) + braze_engine_num_outputs(handle());
    for (std::int32_t i = 0; i < count; ++i) {
      braze_tensor_info info = {};
      info.struct_size = sizeof(info);
      check(braze_engine_binding(handle(), i, &info));
      tensors_.push_back({info.name, info.dtype, info.dtype_bytes, info.is_output != 0,
                          std::vector<std::int64_t>(info.dims, info.dims + info.rank)});
    }
  }

  std::shared_ptr<braze_engine> handle_;
  std::vector<TensorInfo> tensors_;
};

enum class Space : std::int32_t { kDevice = BRAZE_SPACE_DEVICE, kPinned = BRAZE_SPACE_PINNED };

// Memory of an engine's device, or of the host where that copies it fastest. Zero at first.
class Buffer {
 public:
  Buffer(const Engine& engine, std::size_t bytes, Space space = Space::kDevice) : engine_(engine) {
    braze_buffer* made = nullptr;
    check(braze_buffer_create(engine.handle(), static_cast<std::int32_t>(space),
                              static_cast<std::int64_t>(bytes), &made));
    handle_.reset(made);
  }
  void* data() const { return braze_buffer_data(handle_.get()); }
  // Copies from its beginning, and waits.
  void copy_to(void* to, std::size_t bytes) const {
    check(braze_engine_copy(engine_.handle(), to, data(), static_cast<std::int64_t>(bytes)));
  }
  void copy_from(const void* from, std::size_t bytes) {
    check(braze_engine_copy(engine_.handle(), data(), from, static_cast<std::int64_t>(bytes)));
  }

 private:
  struct Destroy {
    void operator()(braze_buffer* buffer) const { braze_buffer_destroy(buffer); }
  };
  Engine engine_;
  std::unique_ptr<braze_buffer, Destroy> handle_;
};

// First-in first-out work on a thread of its own.
class Stream {
 public:
  Stream() {
    braze_stream* made = nullptr;
    check(braze_stream_create(&made));
    handle_.reset(made);
  }
  // Waits for everything enqueued so far; throws the first failure of it.
  void synchronize() { check(braze_stream_synchronize(handle())); }
  braze_stream* handle() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(braze_stream* stream) const { braze_stream_destroy(stream); }
  };
  std::unique_ptr<braze_stream, Destroy> handle_;
};

// A mark in a stream.
class Event {
 public:
  Event() {
    braze_event* made = nullptr;
    check(braze_event_create(&made));
    handle_.reset(made);
  }
  void record(Stream& stream) { check(braze_event_record(handle(), stream.handle())); }
  void wait_on(Stream& stream) { check(braze_stream_wait_event(stream.handle(), handle())); }
  void synchronize() { check(braze_event_synchronize(handle())); }
  double elapsed_ms(const Event& end) const {
    double ms = 0;
    check(braze_event_elapsed_ms(handle(), end.handle(), &ms));
    return ms;
  }
  braze_event* handle() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(braze_event* event) const { braze_event_destroy(event); }
  };
  std::unique_ptr<braze_event, Destroy> handle_;
};

// The state of one execution: shapes and memory. Several contexts may run at the same time.
class Context {
 public:
  // profile: an optimization profile, or -1 to choose by the shapes.
  explicit Context(const Engine& engine, std::int32_t profile = -1) : Context(engine, profile, 0, -1) {}
  // priority: of its work on a GPU, 0 or higher; extra_streams: for branches of the network side by
  // side on a GPU, -1 for as many as braze thinks.
  Context(const Engine& engine, std::int32_t profile, std::int32_t priority,
          std::int32_t extra_streams)
      : engine_(engine) {
    braze_context* made = nullptr;
    const braze_context_options options = {sizeof(options), profile, priority, extra_streams};
    check(braze_context_create_with(engine.handle(), &options, &made));
    handle_.reset(made);
  }

  void set_input_shape(const std::string& name, const std::vector<std::int64_t>& shape) {
    check(braze_context_set_input_shape(handle(), engine_.index(name), shape.data(),
                                        static_cast<std::int32_t>(shape.size())));
  }

  std::vector<std::int64_t> shape(const std::string& name) const {
    std::int64_t bytes = 0;
    return query(name, bytes);
  }

  std::int64_t bytes(const std::string& name) const {
    std::int64_t out = 0;
    query(name, out);
    return out;
  }

  // The memory stays the caller's and is not copied.
  void bind(const std::string& name, void* data, std::size_t bytes) {
    const std::int32_t binding = engine_.index(name);
    check(braze_context_bind(handle(), binding, data, static_cast<std::int64_t>(bytes)));
  }

  // For outputs that are not bound, in runs from now on; those whose shape only a run knows need it
  // unless enough memory is bound. With enqueue the context must live until the run is done.
  void set_allocator(Allocator allocator) { *allocator_ = {engine_, std::move(allocator)}; }

  // num_workers: 0 for the engine's own number.
  void execute(std::int32_t num_workers = 0) {
    const braze_run_options options = options_for(num_workers);
    check(braze_context_execute(handle(), &options));
  }

  void enqueue(Stream& stream) {
    const braze_run_options options = options_for(0);
    check(braze_context_enqueue(handle(), stream.handle(), &options));
  }

  // As work of a CUstream (null: the default stream), for engines of a GPU; bound memory is a
  // GPU's or pinned. Does not wait, which `synchronize` does.
  void enqueue_cuda(void* cuda_stream) {
    check(braze_context_enqueue_cuda(handle(), cuda_stream, nullptr));
  }
  void synchronize() { check(braze_context_synchronize(handle())); }

  braze_context* handle() const { return handle_.get(); }

 private:
  struct NamedAllocator {
    Engine engine;
    Allocator allocate;

    static void* call(void* user, std::int32_t binding, const std::int64_t* dims,
                      std::int32_t rank, std::int64_t bytes) {
      const NamedAllocator& self = *static_cast<const NamedAllocator*>(user);
      return self.allocate(self.engine.tensors()[static_cast<std::size_t>(binding)].name,
                           std::vector<std::int64_t>(dims, dims + rank),
                           static_cast<std::size_t>(bytes));
    }
  };

  braze_run_options options_for(std::int32_t num_workers) const {
    braze_run_options options = {};
    options.struct_size = sizeof(options);
    options.num_workers = num_workers;
    if (allocator_->allocate) {
      options.user = allocator_.get();
      options.allocate = &NamedAllocator::call;
    }
    return options;
  }

  std::vector<std::int64_t> query(const std::string& name, std::int64_t& bytes) const {
    const std::int32_t binding = engine_.index(name);
    std::vector<std::int64_t> dims(
        engine_.tensors()[static_cast<std::size_t>(binding)].shape.size() + 1);
    check(braze_context_binding_shape(handle(), binding, dims.data(), &bytes));
    dims.pop_back();
    return dims;
  }

  struct Destroy {
    void operator()(braze_context* context) const { braze_context_destroy(context); }
  };
  Engine engine_;
  std::unique_ptr<NamedAllocator> allocator_ =
      std::make_unique<NamedAllocator>(NamedAllocator{engine_, nullptr});
  std::unique_ptr<braze_context, Destroy> handle_;
};

}  // namespace v1
}  // namespace braze

#include "braze_build.hpp"

#endif  // BRAZE_HPP_
