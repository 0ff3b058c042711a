// Calls that make no sense, callbacks that misbehave, and structs of other versions of braze.h.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "check.h"
#include "context.h"
#include "fork_safe_mutex.h"
#include "loaded_chain.h"
#include "stream.h"

namespace {

using braze::test::kChainColumns;
using braze::test::LoadedChain;
using braze::test::says;

// A context on a chain, with memory for 4 rows.
struct Bench {
  explicit Bench(const LoadedChain& loaded) {
    CHECK_OK(braze_context_create(loaded.engine, -1, &context));
  }
  ~Bench() { braze_context_destroy(context); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  braze_status run(const braze_run_options* options = nullptr) {
    const braze_memory memory[] = {{x.data(), 256}, {y.data(), 256}};
    return braze_context_run(context, dims, 2, memory, 2, options);
  }

  const int64_t dims[2] = {4, kChainColumns};
  std::vector<float> x = std::vector<float>(64, 1.f);
  std::vector<float> y = std::vector<float>(64);
  braze_context* context = nullptr;
};

void test_outputs_must_not_overlap() {
  const LoadedChain loaded({});
  Bench bench(loaded);
  std::vector<float> both(1024, 1.f);
  const auto run = [&](size_t x, size_t y) {
    const braze_memory memory[] = {{&both[x], 256}, {&both[y], 256}};
    return braze_context_run(bench.context, bench.dims, 2, memory, 2, nullptr);
  };
  for (const size_t y : {size_t{64}, size_t{1}, size_t{127}, size_t{63}}) {
    CHECK(run(64, y) == BRAZE_ERROR_BINDING && says("overlaps"));
    CHECK(run(64, y) == BRAZE_ERROR_BINDING);  // and again: nothing was taken over
  }
  CHECK_OK(run(64, 128));  // they only touch
  CHECK_OK(run(64, 0));
}

void test_struct_sizes() {
  const LoadedChain loaded({});
  Bench bench(loaded);
  braze_tensor_info info = {};
  CHECK(braze_engine_binding(loaded.engine, 0, &info) == BRAZE_ERROR_EXECUTION);
  CHECK(says("struct_size"));
  // a caller of a later version: a larger struct, filled as far as this library knows it
  struct Later {
    braze_tensor_info known;
    int64_t unknown;
  } later = {{}, -7};
  later.known.struct_size = sizeof(later);
  CHECK_OK(braze_engine_binding(loaded.engine, 0, &later.known));
  CHECK(later.known.rank == 2 && later.unknown == -7 && later.known.struct_size == sizeof(later));

  struct LaterOptions {
    braze_run_options known;
    int64_t unknown;
  } options = {{}, 0};
  CHECK(bench.run(&options.known) == BRAZE_ERROR_EXECUTION && says("struct_size"));
  options.known.struct_size = sizeof(options);
  CHECK_OK(bench.run(&options.known));
  options.unknown = 1;
  CHECK(bench.run(&options.known) == BRAZE_ERROR_EXECUTION && says("upgrade"));
}

void test_counts_and_null_handles() {
  const LoadedChain loaded({});
  Bench bench(loaded);
  const braze_memory memory[] = {{bench.x.data(), 256}};
  CHECK(braze_context_run(bench.context, bench.dims, 2, memory, 1, nullptr) == BRAZE_ERROR_BINDING);
  for (const auto count : {braze_engine_num_inputs, braze_engine_num_outputs,
                           braze_engine_num_profiles, braze_engine_num_steps,
                           braze_engine_num_debug_tensors, braze_engine_threads}) {
    CHECK(count(nullptr) == -1 && count(loaded.engine) >= 0);
  }
  CHECK(braze_context_execute(nullptr, nullptr) == BRAZE_ERROR_EXECUTION);
  CHECK(braze_stream_synchronize(nullptr) == BRAZE_ERROR_EXECUTION);
}

void test_a_callback_may_not_call_its_context() {
  const LoadedChain loaded({3, 64, true, "x86-64"});
  Bench bench(loaded);
  static Bench* target;
  static std::atomic<int> refused;
  target = &bench;
  const auto call = [](void*, int32_t, int64_t) {
    refused += target->run() == BRAZE_ERROR_EXECUTION && says("callback");
  };
  const braze_run_options options = {sizeof(options), 1, 0, call, nullptr, nullptr, nullptr, nullptr};
  CHECK_OK(bench.run(&options));
  CHECK(refused == 3);
  CHECK_OK(bench.run());
}

void test_a_callback_that_throws_ends_the_run() {
  const LoadedChain loaded({3, 64, true, "x86-64"});
  Bench bench(loaded);
  const auto thrower = [](void*, int32_t, int64_t) { throw 7; };
  braze_run_options options = {sizeof(options), 2, 0, thrower, nullptr, nullptr, nullptr, nullptr};
  CHECK(bench.run(&options) == BRAZE_ERROR_EXECUTION && says("std::exception"));
  CHECK_OK(bench.run());
  braze_stream* stream = nullptr;
  CHECK_OK(braze_stream_create(&stream));
  CHECK_OK(braze_stream_call(
      stream, [](void*) { throw 7; }, nullptr));
  CHECK(braze_stream_synchronize(stream) == BRAZE_ERROR_EXECUTION && says("std::exception"));
  CHECK_OK(braze_stream_synchronize(stream));
  braze_stream_destroy(stream);
}

void test_a_stream_does_not_wait_for_itself() {
  static std::atomic<int> status;
  braze_stream* stream = nullptr;
  CHECK_OK(braze_stream_create(&stream));
  const auto wait = [](void* user) {
    status = braze_stream_synchronize(static_cast<braze_stream*>(user));
  };
  CHECK_OK(braze_stream_call(stream, wait, stream));
  CHECK_OK(braze_stream_synchronize(stream));
  CHECK(status == BRAZE_ERROR_EXECUTION);
  braze_stream_destroy(stream);
}

void test_signals_stay_with_the_programs_threads() {
  static std::atomic<int> blocked;
  braze::Stream stream;
  stream.enqueue([] {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    blocked = sigismember(&now, SIGINT) && sigismember(&now, SIGTERM);
  });
  stream.synchronize();
  CHECK(blocked == 1);
  sigset_t here;
  pthread_sigmask(SIG_SETMASK, nullptr, &here);
  CHECK(!sigismember(&here, SIGINT));
}

void test_the_mutex_excludes_and_wakes() {
  braze::ForkSafeMutex mutex("thing");
  int64_t count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        const std::lock_guard<braze::ForkSafeMutex> lock(mutex);
        ++count;
        if (i % 1000 == 0) std::this_thread::yield();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(count == 80000);
  mutex.lock();
  CHECK_FAILS(BRAZE_ERROR_EXECUTION, "this thing is running on this very thread", mutex.lock());
  mutex.unlock();
}

// ThreadSanitizer does not follow threads into a forked child.
#ifndef BRAZE_THREAD_SANITIZER
bool child_says_yes(const std::function<bool()>& question) {
  const pid_t child = fork();
  if (child == 0) _exit(question() ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

void test_two_threads_of_a_child_meet_on_a_free_context() {
  // Locked and freed before the fork: the child must not take the last holder for a lost one.
  braze::ForkSafeMutex mutex("thing");
  mutex.lock();
  mutex.unlock();
  CHECK(child_says_yes([&mutex] {
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20000; ++i) {
          try {
            const std::lock_guard<braze::ForkSafeMutex> lock(mutex);
          } catch (const braze::Error&) {
            ++failures;
          }
        }
      });
    }
    for (std::thread& t : threads) t.join();
    return failures == 0;
  }));
}

void test_events_of_the_parent_are_refused_in_a_child() {
  braze_event* event = nullptr;
  braze_stream* stream = nullptr;
  CHECK_OK(braze_event_create(&event));
  CHECK_OK(braze_stream_create(&stream));
  static std::atomic<bool> go;
  const auto hold = [](void*) {
    while (!go) std::this_thread::yield();
  };
  CHECK_OK(braze_stream_call(stream, hold, nullptr));
  CHECK_OK(braze_event_record(event, stream));  // not complete at the fork
  const bool refused = child_says_yes([event] {
    int32_t done = 0;
    bool good = braze_event_synchronize(event) == BRAZE_ERROR_EXECUTION && says("forked");
    good = good && braze_event_query(event, &done) == BRAZE_ERROR_EXECUTION;
    braze_event_destroy(event);
    return good;
  });
  go = true;
  CHECK(refused);
  CHECK_OK(braze_event_synchronize(event));
  braze_event_destroy(event);
  braze_stream_destroy(stream);
}
#endif

}  // namespace

int main() {
#ifndef BRAZE_THREAD_SANITIZER
  test_two_threads_of_a_child_meet_on_a_free_context();
  test_events_of_the_parent_are_refused_in_a_child();
#endif
  test_outputs_must_not_overlap();
  test_struct_sizes();
  test_counts_and_null_handles();
  test_a_callback_may_not_call_its_context();
  test_a_callback_that_throws_ends_the_run();
  test_a_stream_does_not_wait_for_itself();
  test_signals_stay_with_the_programs_threads();
  test_the_mutex_excludes_and_wakes();
  return 0;
}
