// The C functions for contexts.
#include "abi_struct.h"
#include "handles.h"

using braze::guarded;

namespace {

constexpr size_t kFirstOptions = offsetof(braze_run_options, user) + sizeof(void*);

constexpr int32_t kHighestPriority = 100;  // the driver takes its highest for any above that
constexpr int32_t kMostExtraStreams = 16;

braze_run_options or_default(const braze_run_options* options) {
  if (!options) return {};
  braze_run_options out = braze::read_struct(*options, kFirstOptions, "braze_run_options");
  if (out.flags & ~(BRAZE_RUN_NO_GRAPH | BRAZE_RUN_SLEEP)) {
    braze::fail(BRAZE_ERROR_EXECUTION, "the run options have unknown flags ", out.flags,
                "; upgrade braze");
  }
  return out;
}

}  // namespace

braze_status braze_context_create(braze_engine* engine, int32_t profile, braze_context** out) {
  return guarded([&] {
    braze::need(engine, out);
    *out = new braze_context{std::make_shared<braze::Context>(engine->engine, profile)};
  });
}

braze_status braze_context_create_with(braze_engine* engine, const braze_context_options* options,
                                       braze_context** out) {
  return guarded([&] {
    constexpr size_t first = offsetof(braze_context_options, extra_streams) + sizeof(int32_t);
    braze::need(engine, options, out);
    const auto given = braze::read_struct(*options, first, "braze_context_options");
    const auto check = [](int32_t value, int32_t low, int32_t high, const char* name) {
      if (value >= low && value <= high) return;
      braze::fail(BRAZE_ERROR_EXECUTION, name, " is ", value, ", outside ", low, "..", high);
    };
    check(given.priority, 0, kHighestPriority, "priority");
    check(given.extra_streams, -1, kMostExtraStreams, "extra_streams");
    *out = new braze_context{std::make_shared<braze::Context>(
        engine->engine, given.profile,
        braze::ContextOptions{given.priority, given.extra_streams})};
  });
}

void braze_context_destroy(braze_context* context) { delete context; }

braze_status braze_context_set_shapes(braze_context* context, const int64_t* dims, int64_t count) {
  return guarded([&] {
    braze::need(context, dims);
    context->context->set_shapes(dims, count);
  });
}

braze_status braze_context_set_input_shape(braze_context* context, int32_t input,
                                           const int64_t* dims, int32_t rank) {
  return guarded([&] {
    braze::need(context, dims);
    context->context->set_input_shape(input, dims, rank);
  });
}

braze_status braze_context_binding_shape(braze_context* context, int32_t binding, int64_t* dims,
                                         int64_t* bytes) {
  return guarded([&] {
    braze::need(context, dims);
    context->context->binding_shape(binding, dims, bytes);
  });
}

braze_status braze_context_profile(braze_context* context, int32_t* profile, int64_t* arena_bytes) {
  return guarded([&] {
    braze::need(context, profile, arena_bytes);
    context->context->profile(profile, arena_bytes);
  });
}

braze_status braze_context_run(braze_context* context, const int64_t* dims, int64_t count,
                               const braze_memory* memory, int64_t memory_count,
                               const braze_run_options* options) {
  return guarded([&] {
    braze::need(context, dims, memory);
    context->context->run(dims, count, memory, memory_count, or_default(options));
  });
}

braze_status braze_context_bind(braze_context* context, int32_t binding, void* data,
                                int64_t bytes) {
  return guarded([&] {
    braze::need(context);
    context->context->bind(binding, {data, bytes});
  });
}

braze_status braze_context_execute(braze_context* context, const braze_run_options* options) {
  return guarded([&] {
    braze::need(context);
    context->context->run(context->context->request(), or_default(options));
  });
}

braze_status braze_context_enqueue(braze_context* context, braze_stream* stream,
                                   const braze_run_options* options) {
  return guarded([&] {
    braze::need(context, stream);
    const std::shared_ptr<braze::Context> target = context->context;
    stream->stream.enqueue(
        [target, request = target->request(), taken = or_default(options)] {
          target->run(request, taken);
        });
  });
}

braze_status braze_context_enqueue_cuda(braze_context* context, void* cuda_stream,
                                        const braze_run_options* options) {
  return guarded([&] {
    braze::need(context);
    context->context->enqueue(cuda_stream, or_default(options));
  });
}

braze_status braze_context_synchronize(braze_context* context) {
  return guarded([&] {
    braze::need(context);
    context->context->synchronize();
  });
}
