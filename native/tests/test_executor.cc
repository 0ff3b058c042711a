#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "check.h"
#include "context.h"
#include "loaded_chain.h"

namespace {

using braze::test::Chain;
using braze::test::kChainColumns;
using braze::test::LoadedChain;

std::vector<float> input(int64_t rows, float scale) {
  std::vector<float> x(static_cast<size_t>(rows * kChainColumns));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 23) * scale;
  return x;
}

braze_status run(braze_context* context, std::vector<float>& x, std::vector<float>& y,
                 int32_t workers) {
  const int64_t dims[] = {static_cast<int64_t>(x.size()) / kChainColumns, kChainColumns};
  const braze_memory memory[] = {{x.data(), static_cast<int64_t>(x.size()) * 4},
                                 {y.data(), static_cast<int64_t>(y.size()) * 4}};
  const braze_run_options options = {sizeof(options), workers, 0, nullptr, nullptr, nullptr, nullptr, nullptr};
  return braze_context_run(context, dims, 2, memory, 2, &options);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

void test_same_bits_for_any_number_of_workers() {
  const Chain chain{7, 64, true, "x86-64"};
  const LoadedChain loaded(chain);
  braze_context* context = nullptr;
  CHECK_OK(braze_context_create(loaded.engine, -1, &context));
  for (const int64_t rows : {1, 64, 5}) {
    std::vector<float> x = input(rows, 0.25f);
    const std::vector<float> expected = braze::test::chain_reference(chain, x);
    for (const int32_t workers : {1, 2, 7, 0}) {
      std::vector<float> y(x.size());
      CHECK_OK(run(context, x, y, workers));
      CHECK(same_bits(y, expected));
    }
  }
  braze_context_destroy(context);
}

void test_threads(bool share_context) {
  const Chain chain{6, 64, true, "x86-64"};
  const LoadedChain loaded(chain);
  braze_context* shared = nullptr;
  CHECK_OK(braze_context_create(loaded.engine, -1, &shared));
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      braze_context* own = nullptr;
      CHECK_OK(braze_context_create(loaded.engine, 0, &own));
      std::vector<float> x = input(1 + t * 9, 0.5f + static_cast<float>(t));
      const std::vector<float> expected = braze::test::chain_reference(chain, x);
      for (int i = 0; i < 200; ++i) {
        std::vector<float> y(x.size());
        CHECK_OK(run(share_context ? shared : own, x, y, 1 + (i + t) % 3));
        CHECK(same_bits(y, expected));
      }
      braze_context_destroy(own);
    });
  }
  for (std::thread& t : threads) t.join();
  braze_context_destroy(shared);
}

void test_errors() {
  const LoadedChain loaded({});
  braze_context* context = nullptr;
  CHECK(braze_context_create(loaded.engine, 3, &context) == BRAZE_ERROR_PROFILE);
  CHECK_OK(braze_context_create(loaded.engine, -1, &context));
  std::vector<float> x = input(2, 1.f), y(x.size() - 1);
  CHECK(run(context, x, y, 1) == BRAZE_ERROR_BINDING);
  CHECK(std::strstr(braze_last_error(), "'y'"));
  std::vector<float> large = input(65, 1.f);
  CHECK(run(context, large, large, 1) == BRAZE_ERROR_PROFILE);
  CHECK(std::strstr(braze_last_error(), "1..64"));
  const int64_t wrong[] = {2, 15};
  CHECK(braze_context_set_shapes(context, wrong, 2) == BRAZE_ERROR_SHAPE);
  CHECK(std::strstr(braze_last_error(), "axis 1 has size 15"));
  CHECK(braze_context_set_shapes(context, wrong, 1) == BRAZE_ERROR_SHAPE);
  const int64_t negative[] = {-5, 16};
  CHECK(braze_context_set_shapes(context, negative, 2) == BRAZE_ERROR_SHAPE);
  CHECK(braze_context_execute(context, nullptr) == BRAZE_ERROR_SHAPE);  // shapes never set
  y.resize(x.size());
  CHECK(run(context, x, y, -2) == BRAZE_ERROR_EXECUTION);
  CHECK_OK(run(context, x, y, 1));  // errors leave the context usable
  braze_context_destroy(context);
}

void test_stateful_way() {
  const Chain chain;
  const LoadedChain loaded(chain);
  braze_context* context = nullptr;
  CHECK_OK(braze_context_create(loaded.engine, -1, &context));
  const int64_t dims[] = {3, kChainColumns};
  CHECK_OK(braze_context_set_input_shape(context, 0, dims, 2));
  int64_t found[2] = {}, bytes = 0;
  CHECK_OK(braze_context_binding_shape(context, 1, found, &bytes));
  CHECK(found[0] == 3 && found[1] == kChainColumns && bytes == 3 * kChainColumns * 4);
  std::vector<float> x = input(3, 1.f), y(x.size());
  CHECK(braze_context_execute(context, nullptr) == BRAZE_ERROR_BINDING);  // nothing bound
  CHECK_OK(braze_context_bind(context, 0, x.data(), bytes));
  CHECK_OK(braze_context_bind(context, 1, y.data(), bytes));
  CHECK_OK(braze_context_execute(context, nullptr));
  CHECK(same_bits(y, braze::test::chain_reference(chain, x)));
  braze_context_destroy(context);
}

void test_denormals_are_flushed_and_the_caller_keeps_its_mode() {
  const LoadedChain loaded({1, 4, false, "x86-64"});
  braze_context* context = nullptr;
  CHECK_OK(braze_context_create(loaded.engine, -1, &context));
  volatile float tiny = std::numeric_limits<float>::denorm_min();
  std::vector<float> x(16, float{tiny}), y(16);
  CHECK_OK(run(context, x, y, 1));  // y = x + w, and w[3] is zero
  CHECK(y[3] == 0.f);
  const volatile float here = tiny + 0.f;
  CHECK(here != 0.f);
  braze_context_destroy(context);
}

// Barriers stand where steps wait for each other or reuse bytes of the arena, and nowhere else.
void test_phases() {
  const auto num_phases = [](const Chain& chain, bool dependencies, bool overlap) {
    const std::string object = braze::test::kernel_object();
    std::string manifest = braze::test::chain_manifest(chain, object.size());
    const auto replace_all = [&manifest](const std::string& from, const std::string& to) {
      for (size_t at = 0; (at = manifest.find(from, at)) != std::string::npos; at += to.size()) {
        manifest.replace(at, from.size(), to);
      }
    };
    for (int i = 0; !dependencies && i < chain.steps; ++i) {
      replace_all(braze::cat("\"after\":[", i, "]"), "\"after\":[]");
    }
    if (overlap) replace_all("[-1,-1,-1,0,4096]", "[-1,-1,-1,0,64]");
    const std::string file = braze::test::engine_file(manifest, object, std::string(4096, '0'));
    const braze::Engine engine(braze::EngineBytes::copy(file.data(), file.size()), 0);
    braze::Shapes shapes(engine.plan(), {64, kChainColumns}, 0);
    braze::ArenaLayout layout = braze::lay_out(engine.plan(), shapes);
    const braze::Arena arena(engine.device(), layout.bytes);
    braze::LaunchTable table(engine, std::move(shapes), std::move(layout), arena.data());
    size_t next = 0;
    for (const braze::Phase& p : table.phases(0)) {
      CHECK(p.begin == next && p.end > p.begin && p.parallel == chain.parallel);
      next = p.end;
    }
    CHECK(next == static_cast<size_t>(chain.steps));
    return table.phases(0).size();
  };
  const Chain parallel{5, 64, true, "x86-64"};
  const Chain serial{5, 64, false, "x86-64"};
  CHECK(num_phases(parallel, true, false) == 5);
  CHECK(num_phases(parallel, false, false) == 1);
  CHECK(num_phases(parallel, false, true) == 5);
  CHECK(num_phases(serial, true, true) == 1);
}

void test_memory_of_every_size() {
  const std::unique_ptr<braze::Device> cpu = braze::open_cpu();
  constexpr int64_t kHuge = int64_t{2} << 20;
  std::vector<braze::Arena> held;  // so that addresses differ
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4096}, int64_t{4097}, 2 * kHuge - 1,
                              2 * kHuge, 2 * kHuge + 1, 3 * kHuge, 5 * kHuge + 12345}) {
    held.emplace_back(*cpu, bytes);
    unsigned char* const data = held.back().data();
    CHECK(reinterpret_cast<uintptr_t>(data) % 4096 == 0);
    for (int64_t at = 0; at < bytes; at += 1 + bytes / 7) {
      CHECK(data[at] == 0);
      data[at] = 1;
    }
    if (bytes) data[bytes - 1] = 2;
  }
  held.erase(held.begin() + 4);
  for (int i = 0; i < 100; ++i) braze::Arena(*cpu, 2 * kHuge + i).data()[2 * kHuge + i - 1] = 1;
  CHECK_FAILS(BRAZE_ERROR_EXECUTION, "no memory", braze::Arena(*cpu, int64_t{1} << 60));
  CHECK_FAILS(BRAZE_ERROR_EXECUTION, "no memory",
              braze::Arena(*cpu, std::numeric_limits<int64_t>::max()));
}

void test_profile_hook() {
  const Chain chain{5, 64, true, "x86-64"};
  const LoadedChain loaded(chain);
  braze_context* context = nullptr;
  CHECK_OK(braze_context_create(loaded.engine, -1, &context));
  std::vector<float> x = input(4, 1.f), y(x.size());
  std::vector<int32_t> steps;
  const int64_t dims[] = {4, kChainColumns};
  const braze_memory memory[] = {{x.data(), 256}, {y.data(), 256}};
  const auto note = [](void* user, int32_t step, int64_t ns) {
    CHECK(ns >= 0);
    static_cast<std::vector<int32_t>*>(user)->push_back(step);
  };
  const braze_run_options options = {sizeof(options), 2, 0, note, nullptr, &steps, nullptr, nullptr};
  CHECK_OK(braze_context_run(context, dims, 2, memory, 2, &options));
  CHECK((steps == std::vector<int32_t>{0, 1, 2, 3, 4}));
  CHECK(same_bits(y, braze::test::chain_reference(chain, x)));
  braze_context_destroy(context);
}

// ThreadSanitizer does not follow threads into a forked child.
void test_fork() {
#ifndef BRAZE_THREAD_SANITIZER
  const Chain chain{6, 64, true, "x86-64"};
  const LoadedChain loaded(chain);
  braze_context* context = nullptr;
  CHECK_OK(braze_context_create(loaded.engine, -1, &context));
  std::vector<float> x = input(64, 1.f), y(x.size());
  CHECK_OK(run(context, x, y, 2));
  const pid_t child = fork();
  if (child == 0) {
    std::vector<float> z(x.size());
    const bool good = run(context, x, z, 2) == BRAZE_OK && same_bits(y, z);
    _exit(good ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_OK(run(context, x, y, 2));
  braze_context_destroy(context);
#endif
}

// A context whose run was going on at the fork can never become free in the child.
void test_fork_during_a_run() {
#ifndef BRAZE_THREAD_SANITIZER
  static std::atomic<int> stage;
  const LoadedChain loaded({3, 64, true, "x86-64"});
  braze_context* context = nullptr;
  CHECK_OK(braze_context_create(loaded.engine, -1, &context));
  std::vector<float> x = input(4, 1.f), y(x.size()), z(x.size());
  std::thread runner([&] {
    const auto pause = [](void*, int32_t, int64_t) {
      if (stage == 0) stage = 1;
      while (stage != 2) std::this_thread::yield();
    };
    const int64_t dims[] = {4, kChainColumns};
    const braze_memory memory[] = {{x.data(), 256}, {y.data(), 256}};
    const braze_run_options options = {sizeof(options), 2, 0, pause, nullptr, nullptr, nullptr, nullptr};
    CHECK_OK(braze_context_run(context, dims, 2, memory, 2, &options));
  });
  while (stage != 1) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    bool good = run(context, x, z, 2) == BRAZE_ERROR_EXECUTION;
    good = good && std::strstr(braze_last_error(), "forked");
    braze_context* fresh = nullptr;
    good = good && braze_context_create(loaded.engine, -1, &fresh) == BRAZE_OK;
    good = good && run(fresh, x, z, 2) == BRAZE_OK;
    _exit(good ? 0 : 1);
  }
  stage = 2;
  runner.join();
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  braze_context_destroy(context);
#endif
}

}  // namespace

int main() {
  test_same_bits_for_any_number_of_workers();
  test_threads(false);
  test_threads(true);
  test_errors();
  test_stateful_way();
  test_denormals_are_flushed_and_the_caller_keeps_its_mode();
  test_phases();
  test_memory_of_every_size();
  test_profile_hook();
  test_fork();
  test_fork_during_a_run();
  return 0;
}
