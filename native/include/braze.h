/* braze: the native runtime that executes serialized engines. C ABI, usable from any language.
 *
 * Every function that can fail returns a braze_status; BRAZE_OK is 0. braze_last_error() gives the
 * sentence for the last failure on the calling thread. Handles may be used from several threads at
 * once, except that a handle must not be destroyed while a call on it is running. Out-parameters
 * are written on success only.
 *
 * Structs start with struct_size: the caller sets it to sizeof the struct before the call, also for
 * structs that the library fills. So a program keeps working with a newer library, which then knows
 * more fields than it.
 *
 * Callbacks run on the thread that runs the engine and while the context is in use. They must not
 * call that context (which fails with BRAZE_ERROR_EXECUTION) nor destroy it, and should not throw: an
 * exception ends the run, which then fails.
 */
#ifndef BRAZE_H_
#define BRAZE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BRAZE_API __attribute__((visibility("default")))
#define BRAZE_ABI_VERSION 2

typedef int32_t braze_status;

enum {
  BRAZE_OK = 0,
  BRAZE_ERROR_FORMAT = 1,    /* not an engine, truncated or damaged */
  BRAZE_ERROR_VERSION = 2,   /* written by a newer braze */
  BRAZE_ERROR_TARGET = 3,    /* needs a processor feature this machine lacks */
  BRAZE_ERROR_SHAPE = 4,     /* shapes do not fit the engine */
  BRAZE_ERROR_PROFILE = 5,   /* shapes are outside the optimization profiles */
  BRAZE_ERROR_BINDING = 6,   /* a binding is missing, unknown or too small */
  BRAZE_ERROR_EXECUTION = 7, /* a run failed, memory ran out, or the call makes no sense */
  BRAZE_ERROR_COMPILE = 8    /* an object file cannot be loaded */
};

typedef struct braze_engine braze_engine;
typedef struct braze_context braze_context;
typedef struct braze_stream braze_stream;
typedef struct braze_event braze_event;
typedef struct braze_kernel braze_kernel;

/* ---- library and machine ---------------------------------------------------------------- */

BRAZE_API int32_t braze_abi_version(void);
/* The sentence of the last failure on this thread; valid until the next failure on it. */
BRAZE_API const char* braze_last_error(void);
/* The widest instruction set of this machine: "avx512", "avx2", "x86-64" or "aarch64". */
BRAZE_API const char* braze_host_isa(void);
/* All detected features, separated by spaces. */
BRAZE_API const char* braze_host_features(void);
/* CPUs this process may run on. */
BRAZE_API int32_t braze_host_cpus(void);
/* Checks that this machine can run `isa`, a name as above with optional "+feature" parts. */
BRAZE_API braze_status braze_host_supports(const char* isa);
/* Folders, separated by colons, where engines loaded later look for libraries of a GPU's maker that
 * they call (cuBLASLt), behind those of the environment variable BRAZE_CUDA_LIBRARIES and before
 * the loader's own. Replaces those of an earlier call. */
BRAZE_API braze_status braze_set_library_folders(const char* folders);

/* ---- engines ---------------------------------------------------------------------------- */

enum { BRAZE_BORROW = 1 }; /* the caller keeps `data` (64-byte aligned) alive and unchanged */

/* threads: workers of a run, at most what the engine was built for; 0 for that number (at most the
 * CPUs here).
 * The file stays mapped; its weights are checked in the background and the first run waits. */
BRAZE_API braze_status braze_engine_load_file(const char* path, int32_t threads,
                                              braze_engine** out);
BRAZE_API braze_status braze_engine_load_memory(const void* data, uint64_t size, uint32_t flags,
                                                int32_t threads, braze_engine** out);
typedef struct braze_engine_options {
  uint64_t struct_size;
  int32_t threads;
  uint32_t flags;        /* for an engine in memory: BRAZE_BORROW */
  int64_t weight_budget; /* bytes of a GPU's memory for weights, those of one context counted: what
                            does not fit stays in pinned memory of the host and is copied for each
                            step that reads it. -1: no limit */
} braze_engine_options;

/* path: a file, or NULL for an engine of `size` bytes at `data`. */
BRAZE_API braze_status braze_engine_load_with(const char* path, const void* data, uint64_t size,
                                              const braze_engine_options* options,
                                              braze_engine** out);
BRAZE_API void braze_engine_destroy(braze_engine* engine);
/* Waits until the weights are checked; fails when they are damaged. */
BRAZE_API braze_status braze_engine_verify(braze_engine* engine);

/* The bytes of the whole engine file, valid while the engine lives. */
BRAZE_API braze_status braze_engine_bytes(const braze_engine* engine, const void** data,
                                          uint64_t* size);

typedef struct braze_tensor_info {
  uint64_t struct_size;
  const char* name;
  const char* dtype; /* "float32", "int64", ... */
  int32_t dtype_bytes;
  int32_t rank;
  int32_t is_output;
  int32_t has_value;   /* an input specialised to one content */
  const int64_t* dims; /* `rank` entries; -1 where it depends on the input shapes or the run */
  int32_t shape_from_run; /* an output whose shape only a run knows */
} braze_tensor_info;

typedef struct braze_step_info {
  uint64_t struct_size;
  const char* name;
  const char* tactic;
  const char* origins; /* separated by ", " */
  int32_t parallel;
} braze_step_info;

/* Bindings are numbered inputs first, then outputs; steps as in the plan, then those of its bodies.
 * Counts are -1 for a null engine. */
BRAZE_API int32_t braze_engine_num_inputs(const braze_engine* engine);
BRAZE_API int32_t braze_engine_num_outputs(const braze_engine* engine);
BRAZE_API int32_t braze_engine_num_profiles(const braze_engine* engine);
BRAZE_API int32_t braze_engine_num_steps(const braze_engine* engine);
BRAZE_API int32_t braze_engine_num_debug_tensors(const braze_engine* engine);
BRAZE_API int32_t braze_engine_threads(const braze_engine* engine);
/* What it runs on, as DLPack counts: type 1 is the host, 2 a CUDA GPU, which has a number too. */
BRAZE_API braze_status braze_engine_device(const braze_engine* engine, int32_t* type,
                                           int32_t* number);
BRAZE_API braze_status braze_engine_binding(const braze_engine* engine, int32_t binding,
                                            braze_tensor_info* out);
BRAZE_API braze_status braze_engine_debug_tensor(const braze_engine* engine, int32_t index,
                                                 braze_tensor_info* out);
BRAZE_API braze_status braze_engine_step(const braze_engine* engine, int32_t step,
                                         braze_step_info* out);

/* ---- contexts --------------------------------------------------------------------------- */

typedef struct braze_memory {
  void* data;
  int64_t bytes;
} braze_memory;

/* After each step, on the thread that runs: the step and the nanoseconds it took. Steps in bodies
 * come as often as they run, and count in the time of the step that ran the body. */
typedef void (*braze_profile_fn)(void* user, int32_t step, int64_t nanoseconds);
/* After the step that made it: a debug tensor's memory, valid during the call. */
typedef void (*braze_debug_fn)(void* user, int32_t debug_tensor, const void* data,
                               const int64_t* dims, int32_t rank, int64_t bytes);

/* For an output without memory (data NULL in braze_memory, or not bound) when its shape is known:
 * at least `bytes` bytes, aligned to its elements; NULL for bytes > 0 ends the run. Outputs whose
 * shape only the run knows are asked for in its middle, on the thread that runs, and again when
 * their shape changes: the last memory given holds the result. */
typedef void* (*braze_allocate_fn)(void* user, int32_t binding, const int64_t* dims, int32_t rank,
                                   int64_t bytes);

/* What a run spent its time with. On the host there is nothing to copy and to enqueue. */
typedef struct braze_run_times {
  uint64_t struct_size;
  int64_t h2d_ns;     /* copies of inputs to the device */
  int64_t enqueue_ns; /* of the host, to launch the network */
  int64_t compute_ns; /* from the first step to the last */
  int64_t d2h_ns;     /* copies of outputs from the device */
} braze_run_times;

enum {
  BRAZE_RUN_NO_GRAPH = 1, /* launch the steps one by one, not as one CUDA graph */
  BRAZE_RUN_SLEEP = 2     /* wait for the device asleep: later, and without using a CPU */
};

typedef struct braze_run_options {
  uint64_t struct_size;
  int32_t num_workers;      /* 0: the engine's; never more than it was built for */
  int32_t flags;            /* BRAZE_RUN_ values, which the host ignores */
  braze_profile_fn profile; /* NULL: no profiling */
  braze_debug_fn debug;     /* NULL: no debug tensors */
  void* user;
  braze_allocate_fn allocate; /* NULL: every output is bound */
  braze_run_times* times;     /* NULL: not timed; else filled when the run is done */
} braze_run_options;

typedef struct braze_context_options {
  uint64_t struct_size;
  int32_t profile;       /* as for braze_context_create */
  int32_t priority;      /* of its work on a GPU: 0, or higher for what is more urgent */
  int32_t extra_streams; /* of a GPU, for branches of the network side by side; -1: as braze thinks */
} braze_context_options;

/* profile: an index, or -1 to choose by the shapes (the fitting one with the smallest arena). */
BRAZE_API braze_status braze_context_create(braze_engine* engine, int32_t profile,
                                            braze_context** out);
BRAZE_API braze_status braze_context_create_with(braze_engine* engine,
                                                 const braze_context_options* options,
                                                 braze_context** out);
BRAZE_API void braze_context_destroy(braze_context* context);
/* The shapes of all inputs one after the other; `count` is the sum of their ranks. */
BRAZE_API braze_status braze_context_set_shapes(braze_context* context, const int64_t* dims,
                                                int64_t count);
/* The shape of one input; checked when all inputs have one and a size is asked for or a run. */
BRAZE_API braze_status braze_context_set_input_shape(braze_context* context, int32_t input,
                                                     const int64_t* dims, int32_t rank);
/* Shape and bytes of any binding for the current shapes. dims has room for the binding's rank. Where
 * only a run knows them they are -1 until a run with these shapes, then those of the last run. */
BRAZE_API braze_status braze_context_binding_shape(braze_context* context, int32_t binding,
                                                   int64_t* dims, int64_t* bytes);
/* The profile in use for the current shapes, and the bytes of its arena. */
BRAZE_API braze_status braze_context_profile(braze_context* context, int32_t* profile,
                                             int64_t* arena_bytes);
/* Set shapes and run, atomically with regard to other threads. memory: one entry a binding.
 * The memory of an output must not overlap that of an input or of another output: kernels read and
 * write in any order. Inputs may share memory. options may be NULL. */
BRAZE_API braze_status braze_context_run(braze_context* context, const int64_t* dims, int64_t count,
                                         const braze_memory* memory, int64_t memory_count,
                                         const braze_run_options* options);
/* The stateful way: bind memory, then execute or enqueue with the shapes set before. */
BRAZE_API braze_status braze_context_bind(braze_context* context, int32_t binding, void* data,
                                          int64_t bytes);
BRAZE_API braze_status braze_context_execute(braze_context* context,
                                             const braze_run_options* options);
/* Shapes, addresses and options are taken now; the run happens when the stream comes to it. */
BRAZE_API braze_status braze_context_enqueue(braze_context* context, braze_stream* stream,
                                             const braze_run_options* options);

/* For engines of a GPU: enqueues a run with the shapes and memory set now as work of `cuda_stream`, a
 * CUstream (NULL: the default stream), and returns without waiting for it. Memory must lie on the
 * GPU or be pinned, and stay until the run is done; runs of one context follow each other on whatever
 * streams. Refused where the host decides what runs next (conditions, loops, sizes from data). What
 * goes wrong in the run shows in braze_context_synchronize or the context's next run. */
BRAZE_API braze_status braze_context_enqueue_cuda(braze_context* context, void* cuda_stream,
                                                  const braze_run_options* options);
/* Waits for the runs that braze_context_enqueue_cuda enqueued; fails when their steps did. */
BRAZE_API braze_status braze_context_synchronize(braze_context* context);

/* ---- memory of the device -----------------------------------------------------------------
 * For programs that use no other library of the GPU. Engines of the host give memory of the host. */

typedef struct braze_buffer braze_buffer;

enum {
  BRAZE_SPACE_DEVICE = 0, /* where kernels find it without a copy */
  BRAZE_SPACE_PINNED = 1  /* of the host, where the device copies it fastest and by itself */
};

/* Zero at first; keeps the engine's device open while it lives. */
BRAZE_API braze_status braze_buffer_create(braze_engine* engine, int32_t space, int64_t bytes,
                                           braze_buffer** out);
BRAZE_API void braze_buffer_destroy(braze_buffer* buffer);
BRAZE_API void* braze_buffer_data(const braze_buffer* buffer);
/* A DLManagedTensor (https://dmlc.github.io/dlpack) of the buffer with this shape, row-major, which
 * keeps the memory until its deleter is called. type_code and bits are those of a DLDataType. */
BRAZE_API braze_status braze_buffer_dlpack(const braze_buffer* buffer, int32_t type_code,
                                           int32_t bits, const int64_t* dims, int32_t rank,
                                           void** out);
/* Copies between any two places in memory of the host and of the engine's device, and waits. */
BRAZE_API braze_status braze_engine_copy(braze_engine* engine, void* to, const void* from,
                                         int64_t bytes);
/* Waits for the work of a CUstream (NULL: the default stream). */
BRAZE_API braze_status braze_engine_wait_cuda(braze_engine* engine, void* cuda_stream);

/* ---- streams and events ----------------------------------------------------------------- */

typedef void (*braze_host_fn)(void* user);

BRAZE_API braze_status braze_stream_create(braze_stream** out);
/* Waits for the work already enqueued. */
BRAZE_API void braze_stream_destroy(braze_stream* stream);
/* Waits for everything enqueued so far; returns the first failure since the last call. Work on the
 * stream cannot wait for the stream itself. */
BRAZE_API braze_status braze_stream_synchronize(braze_stream* stream);
/* done: 1 when nothing is left to do. */
BRAZE_API braze_status braze_stream_query(braze_stream* stream, int32_t* done);
/* Numbers of tasks enqueued and finished since the stream was made. */
BRAZE_API braze_status braze_stream_progress(braze_stream* stream, int64_t* enqueued,
                                             int64_t* finished);
BRAZE_API braze_status braze_stream_call(braze_stream* stream, braze_host_fn fn, void* user);
BRAZE_API braze_status braze_stream_wait_event(braze_stream* stream, braze_event* event);

BRAZE_API braze_status braze_event_create(braze_event** out);
BRAZE_API void braze_event_destroy(braze_event* event);
BRAZE_API braze_status braze_event_record(braze_event* event, braze_stream* stream);
BRAZE_API braze_status braze_event_synchronize(braze_event* event);
BRAZE_API braze_status braze_event_query(braze_event* event, int32_t* done);
BRAZE_API braze_status braze_event_elapsed_ms(braze_event* start, braze_event* end, double* ms);

/* ---- single kernels, for the tuner ------------------------------------------------------ */

/* What every kernel is: buffers and sizes in, its share of the work done, *status on bad data. */
typedef void (*braze_kernel_fn)(void* const* buffers, const int64_t* params, int64_t worker,
                                int64_t num_workers, int32_t* status);

enum { BRAZE_KERNEL_INDEX_OUT_OF_RANGE = 1, BRAZE_KERNEL_BAD_DATA = 2 };

BRAZE_API braze_status braze_kernel_load(const void* object, uint64_t size, const char* entry,
                                         braze_kernel** out);
BRAZE_API void braze_kernel_destroy(braze_kernel* kernel);
BRAZE_API braze_status braze_kernel_run(braze_kernel* kernel, void* const* buffers,
                                        const int64_t* params, int32_t num_workers,
                                        int32_t* status);
/* Runs `warmup` times, then writes the nanoseconds of each of `repeats` runs to ns. */
BRAZE_API braze_status braze_kernel_time(braze_kernel* kernel, void* const* buffers,
                                         const int64_t* params, int32_t num_workers, int32_t warmup,
                                         int32_t repeats, int64_t* ns);

#ifdef __cplusplus
}
#endif

#endif /* BRAZE_H_ */
