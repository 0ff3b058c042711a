// Runs on streams of a GPU against the stub: order, copies, branches, memory of the caller.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>

#include "braze.hpp"
#include "cuda_network.h"
#include "dlpack.h"

extern "C" {
int cuDevicePrimaryCtxRetain(void**, int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuCtxPushCurrent_v2(void*);
int cuCtxPopCurrent_v2(void**);
int cuStreamCreateWithPriority(void**, unsigned, int);
int cuStreamDestroy_v2(void*);
int cuStreamSynchronize(void*);
}

namespace {

using namespace braze::test;

// A loaded network, a context, and streams of the program.
struct Bench {
  explicit Bench(const std::string& engine, int32_t extra_streams = -1) : use(engine) {
    stub_reset();
    CHECK_OK(use.load());
    CHECK_OK(use.create(extra_streams));
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxPushCurrent_v2(context);
    for (void*& s : streams) cuStreamCreateWithPriority(&s, 1, 0);
    stub_clear_log();
  }
  ~Bench() {
    for (void* s : streams) cuStreamDestroy_v2(s);
    cuCtxPopCurrent_v2(&context);
    cuDevicePrimaryCtxRelease_v2(0);
    use.end();
    CHECK_CLEAN();
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // x of 4 rows, then y, bound.
  void bind(float* memory) {
    const int64_t dims[] = {4, kCudaColumns};
    CHECK_OK(braze_context_set_shapes(use.context, dims, 2));
    CHECK_OK(braze_context_bind(use.context, 0, memory, 256));
    CHECK_OK(braze_context_bind(use.context, 1, memory + 64, 256));
  }
  braze_status enqueue(int stream) {
    return braze_context_enqueue_cuda(use.context, streams[stream], nullptr);
  }

  CudaUse use;
  void* context = nullptr;
  void* streams[2] = {};
};

std::vector<float> filled(float value) { return std::vector<float>(64, value); }

void test_a_run_on_a_stream_does_not_wait() {
  Bench bench(cuda_engine());
  {
    const CudaBuffer memory(bench.use.engine, BRAZE_SPACE_DEVICE, 128);
    const std::vector<float> x = filled(1.F);
    CHECK_OK(braze_engine_copy(bench.use.engine, memory.data, x.data(), 256));
    bench.bind(memory.data);
    CHECK_OK(bench.enqueue(0));
    stub_clear_log();
    CHECK_OK(bench.enqueue(0));
    CHECK(count_of("wait s") == 0 && count_of("launch graph") == 1 && count_of("capture") == 0);
    CHECK(count_of("to ") == 0 && count_of("on device") == 0 && count_of("allocate") == 0);
    CHECK_OK(braze_context_synchronize(bench.use.context));
    std::vector<float> y(64);
    CHECK_OK(braze_engine_copy(bench.use.engine, y.data(), memory.data + 64, 256));
    CHECK(CudaUse::is_right(y.data(), y.size()));
  }
}

// Pinned memory is copied as work of the stream; other memory of the host is refused.
void test_memory_of_the_host() {
  Bench bench(cuda_engine());
  {
    const CudaBuffer memory(bench.use.engine, BRAZE_SPACE_PINNED, 128);
    for (size_t i = 0; i < 64; ++i) memory.data[i] = 1.F;
    bench.bind(memory.data);
    CHECK_OK(bench.enqueue(1));  // makes what is needed
    CHECK(cuStreamSynchronize(bench.streams[1]) == 0);
    std::fill(memory.data + 64, memory.data + 128, 0.F);
    stub_clear_log();
    CHECK_OK(bench.enqueue(1));
    CHECK(count_of("to device 256 s") == 1 && count_of("to host 256 s") == 1 && count_of("wait s") == 0);
    CHECK(memory.data[64] == 0.F);  // nothing has run yet
    CHECK(cuStreamSynchronize(bench.streams[1]) == 0);
    CHECK(CudaUse::is_right(memory.data + 64, 64));
    std::vector<float> pageable(128);
    bench.bind(pageable.data());
    CHECK(bench.enqueue(1) == BRAZE_ERROR_BINDING && says("'x'") && says("pageable"));
  }
}

// The runs of a context use the same memory: one on another stream waits for the one before.
void test_runs_of_a_context_follow_each_other() {
  Bench bench(cuda_engine());
  {
    const CudaBuffer first(bench.use.engine, BRAZE_SPACE_PINNED, 128);
    const CudaBuffer second(bench.use.engine, BRAZE_SPACE_PINNED, 128);
    for (size_t i = 0; i < 64; ++i) first.data[i] = 1.F;
    for (size_t i = 0; i < 64; ++i) second.data[i] = 2.F;
    bench.bind(first.data);
    CHECK_OK(bench.enqueue(0));
    bench.bind(second.data);
    CHECK_OK(bench.enqueue(1));
    CHECK(cuStreamSynchronize(bench.streams[1]) == 0);
    CHECK(CudaUse::is_right(second.data + 64, 64, 2.F));
    CHECK(CudaUse::is_right(first.data + 64, 64, 1.F));
    CHECK_OK(bench.enqueue(0));
    CHECK_OK(bench.use.run(4));  // and so does one on the context's own stream
    CHECK_OK(bench.use.run(5));  // also with other memory
  }
}

void test_bad_data_shows_later() {
  Bench bench(cuda_engine());
  {
    const CudaBuffer memory(bench.use.engine, BRAZE_SPACE_PINNED, 128);
    for (size_t i = 0; i < 64; ++i) memory.data[i] = -5.F;
    bench.bind(memory.data);
    CHECK_OK(bench.enqueue(0));
    CHECK(braze_context_synchronize(bench.use.context) == BRAZE_ERROR_EXECUTION && says("'checked'"));
    CHECK_OK(braze_context_synchronize(bench.use.context));
    CHECK_OK(bench.enqueue(0));
    CHECK(cuStreamSynchronize(bench.streams[0]) == 0);
    CHECK(bench.enqueue(0) == BRAZE_ERROR_EXECUTION && says("'checked'"));
    CHECK_OK(bench.use.run(4));
  }
}

// Large inputs and outputs go by way of pinned chunks, of which several are on the way.
void test_large_tensors_are_copied_in_chunks() {
  constexpr int64_t rows = 1 << 17;  // 8 MiB
  Bench bench(cuda_engine("sm_90", rows));
  CHECK_OK(bench.use.run(rows));
  CHECK(count_of("to device 1048576 s") == 8 && count_of("to host 1048576 s") == 8);
  CHECK(count_of("allocate pinned 1048576") == 4);
  stub_clear_log();
  CHECK_OK(bench.use.run(rows - 5));
  CHECK(count_of("allocate pinned") == 0 && count_of("to device 1048256 s") == 1);
}

void test_branches_run_side_by_side() {
  for (const int32_t extra : {0, 1, 2, 5}) {
    for (const bool share : {false, true}) {
      Bench bench(cuda_branches(share), extra);
      CHECK_OK(bench.use.run(4));
      CHECK_OK(bench.use.run(64));
      const int streams = share ? std::min(extra, 1) : std::min(extra, 2);
      CHECK(count_of("stream ") == streams);
      CHECK((count_of("wait for event s") == 0) == (streams == 0));
      CHECK_OK(bench.use.run(64, 1.F, BRAZE_RUN_NO_GRAPH));
    }
  }
  Bench chain(cuda_engine(), 5);  // nothing to do side by side
  CHECK_OK(chain.use.run(4));
  CHECK(count_of("stream ") == 0 && count_of("wait for event s") == 0);
}

void test_ways_to_run() {
  Bench bench(cuda_engine());
  CHECK_OK(bench.use.run(4, 1.F, BRAZE_RUN_NO_GRAPH));
  CHECK(count_of("capture") == 0 && count_of("kernel") == 2);
  CHECK_OK(bench.use.run(4, 1.F, BRAZE_RUN_SLEEP));
  CHECK(count_of("launch graph") == 1 && count_of("wait for event") > 0);
  CHECK(bench.use.run(4, 1.F, 4) == BRAZE_ERROR_EXECUTION && says("flags"));
  braze_run_times times = {};
  CHECK(bench.use.run(4, 1.F, 0, &times) == BRAZE_ERROR_EXECUTION && says("struct_size"));
  times.struct_size = sizeof(times);
  CHECK_OK(bench.use.run(4, 1.F, 0, &times));
  CHECK(times.h2d_ns == 500000 && times.compute_ns == 500000 && times.d2h_ns == 500000);
  CHECK(times.enqueue_ns > 0);
}

void test_priorities() {
  stub_reset();
  CudaUse use(cuda_engine());
  CHECK_OK(use.load());
  CHECK_OK(use.create(-1, 3));
  CHECK(count_of("stream -3") == 1);
  use.end();
  CHECK_OK(use.load());
  CHECK(use.create(-1, -1) == BRAZE_ERROR_EXECUTION && says("priority"));
  CHECK(use.create(-2) == BRAZE_ERROR_EXECUTION && says("extra_streams"));
  use.end();
  CHECK_CLEAN();
}

void test_memory_of_another_gpu_is_refused() {
  Bench bench(cuda_engine());
  {
    const CudaBuffer memory(bench.use.engine, BRAZE_SPACE_DEVICE, 128);
    bench.bind(memory.data);
    stub_set(kStubMemoryOf, 1);
    CHECK(bench.enqueue(0) == BRAZE_ERROR_BINDING && says("'x' lies on GPU 1"));
    stub_set(kStubMemoryOf, 0);
    CHECK_OK(bench.enqueue(0));
  }
}

// An address that kernels cannot use is copied on the device.
void test_unaligned_memory_is_copied_on_the_device() {
  Bench bench(cuda_engine());
  {
    const CudaBuffer memory(bench.use.engine, BRAZE_SPACE_DEVICE, 132);
    const std::vector<float> x = filled(1.F);
    CHECK_OK(braze_engine_copy(bench.use.engine, memory.data + 1, x.data(), 256));
    bench.bind(memory.data + 1);
    CHECK_OK(bench.enqueue(0));
    CHECK(count_of("on device 256 s") == 3);  // one is a step
    CHECK_OK(braze_context_synchronize(bench.use.context));
    std::vector<float> y(64);
    CHECK_OK(braze_engine_copy(bench.use.engine, y.data(), memory.data + 65, 256));
    CHECK(CudaUse::is_right(y.data(), y.size()));
  }
}

// A tensor for other libraries holds the memory, and the engine's device, for as long as they want.
void test_dlpack() {
  stub_reset();
  CudaUse use(cuda_engine());
  CHECK_OK(use.load());
  void* made = nullptr;
  const int64_t dims[] = {4, kCudaColumns};
  {
    const CudaBuffer memory(use.engine, BRAZE_SPACE_DEVICE, 64);
    CHECK_OK(braze_buffer_dlpack(memory.buffer, 2, 32, dims, 2, &made));
    CHECK(static_cast<braze::DlManagedTensor*>(made)->tensor.data == memory.data);
    const int64_t large[] = {5, kCudaColumns};
    const int64_t negative[] = {-1};
    const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40};
    CHECK(braze_buffer_dlpack(memory.buffer, 2, 32, large, 2, &made) == BRAZE_ERROR_BINDING);
    CHECK(braze_buffer_dlpack(memory.buffer, 2, 32, negative, 1, &made) == BRAZE_ERROR_BINDING);
    CHECK(braze_buffer_dlpack(memory.buffer, 2, 32, huge, 2, &made) == BRAZE_ERROR_BINDING);
  }
  use.end();
  auto* const tensor = static_cast<braze::DlManagedTensor*>(made);
  CHECK(tensor->tensor.device.type == 2 && tensor->tensor.rank == 2);
  CHECK(tensor->tensor.shape[0] == 4 && tensor->tensor.shape[1] == kCudaColumns);
  CHECK(*stub_live());
  tensor->deleter(tensor);
  CHECK_CLEAN();
}

// The C++ face: memory of the GPU and a stream, without a library of CUDA.
void test_the_cpp_face() {
  stub_reset();
  {
    const std::string file = cuda_engine();
    const braze::Engine engine(file.data(), file.size());
    braze::Context context(engine, -1, 1, 2);
    CHECK(count_of("stream -1") == 1);
    context.set_input_shape("x", {4, kCudaColumns});
    braze::Buffer x(engine, 256);
    braze::Buffer y(engine, 256);
    const std::vector<float> ones = filled(1.F);
    std::vector<float> got(64);
    x.copy_from(ones.data(), 256);
    context.bind("x", x.data(), 256);
    context.bind("y", y.data(), 256);
    context.enqueue_cuda(nullptr);
    context.synchronize();
    y.copy_to(got.data(), 256);
    CHECK(CudaUse::is_right(got.data(), got.size()));
    const braze::Buffer pinned(engine, 256, braze::Space::kPinned);
    context.bind("y", pinned.data(), 256);
    context.execute();
    CHECK(CudaUse::is_right(static_cast<float*>(pinned.data()), 64));
  }
  CHECK_CLEAN();
}

// Contexts of one engine on threads of their own, and one that threads share.
void test_threads() {
  stub_reset();
  CudaUse use(cuda_engine());
  CHECK_OK(use.load());
  CHECK_OK(use.create());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&use, t] {
      CudaUse mine("");
      mine.engine = use.engine;
      CHECK_OK(mine.create(2));
      CudaUse& which = t % 2 ? use : mine;
      for (int i = 0; i < 40; ++i) {
        CHECK_OK(which.run(1 + i % 12, static_cast<float>(t)));
        if (i % 10 == 9) CHECK(which.run(4, -9.F) == BRAZE_ERROR_EXECUTION);
      }
      braze_context_destroy(mine.context);
      mine.context = nullptr;
      mine.engine = nullptr;
    });
  }
  for (std::thread& t : threads) t.join();
  use.end();
  CHECK_CLEAN();
}

#ifndef BRAZE_THREAD_SANITIZER
// The driver does not survive a fork: a child gets one sentence, and leaves what it has alone.
void test_a_forked_child_is_refused() {
  stub_reset();
  CudaUse use(cuda_engine());
  CHECK_OK(use.load());
  CHECK_OK(use.create());
  CHECK_OK(use.run(4));
  const pid_t child = fork();
  if (child == 0) {
    stub_clear_log();
    bool good = use.run(4) == BRAZE_ERROR_EXECUTION && says("forked");
    braze_context_destroy(use.context);
    braze_engine_destroy(use.engine);
    CudaUse other(cuda_engine());
    good = good && other.load() != BRAZE_OK && says("forked");
    good = good && !*stub_log();
    _exit(good ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_OK(use.run(4));
  use.end();
  CHECK_CLEAN();
}
#endif

void test_streams_of_a_gpu_are_for_engines_of_one() {
  const std::string file = chain_engine({});
  CudaUse use(file);
  CHECK_OK(use.load());
  CHECK_OK(use.create());
  CHECK(braze_context_enqueue_cuda(use.context, nullptr, nullptr) == BRAZE_ERROR_EXECUTION);
  CHECK(says("runs on the host"));
  CHECK_OK(braze_context_synchronize(use.context));
  const CudaBuffer memory(use.engine, BRAZE_SPACE_PINNED, 16);  // of the host here
  memory.data[15] = 1.F;
  CHECK_OK(braze_engine_copy(use.engine, memory.data, memory.data + 8, 32));
  CHECK(memory.data[7] == 1.F);
  braze_buffer* none = nullptr;
  CHECK(braze_buffer_create(use.engine, 7, 1, &none) == BRAZE_ERROR_EXECUTION);
  CHECK(braze_buffer_create(use.engine, 0, -1, &none) == BRAZE_ERROR_EXECUTION);
}

}  // namespace

int main() {
  test_a_run_on_a_stream_does_not_wait();
  test_memory_of_the_host();
  test_runs_of_a_context_follow_each_other();
  test_bad_data_shows_later();
  test_large_tensors_are_copied_in_chunks();
  test_branches_run_side_by_side();
  test_ways_to_run();
  test_priorities();
  test_memory_of_another_gpu_is_refused();
  test_unaligned_memory_is_copied_on_the_device();
  test_threads();
#ifndef BRAZE_THREAD_SANITIZER
  test_a_forked_child_is_refused();
#endif
  test_dlpack();
  test_the_cpp_face();
  test_streams_of_a_gpu_are_for_engines_of_one();
  return 0;
}
