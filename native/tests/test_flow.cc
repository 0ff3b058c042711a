// Plans with loops, branches, calls and sizes from data, through the C ABI.
#include <sys/wait.h>
#include <unistd.h>

#include "braze.hpp"
#include "flow_cases.h"

namespace {

using namespace braze::test;

void test_streams() {
  const Loaded loaded(growing_manifest);
  braze_stream* stream = nullptr;
  CHECK_OK(braze_stream_create(&stream));
  std::vector<float> x = some(4);
  int64_t trips[3] = {2, 0, 5};
  Outputs outs[3];
  const int64_t rows = 4;
  CHECK_OK(braze_context_set_input_shape(loaded.context, 0, &rows, 1));
  for (int i = 0; i < 3; ++i) {
    CHECK_OK(braze_context_bind(loaded.context, 0, x.data(), 16));
    CHECK_OK(braze_context_bind(loaded.context, 1, &trips[i], 8));
    braze_run_options options = {};
    options.struct_size = sizeof(options);
    options.user = &outs[i];
    options.allocate = &Outputs::allocate;
    CHECK_OK(braze_context_enqueue(loaded.context, stream, &options));
  }
  CHECK_OK(braze_stream_synchronize(stream));
  for (int i = 0; i < 3; ++i) {
    CHECK(outs[i].tensor<float>(2).size() == static_cast<size_t>(trips[i] * 4));
  }
  braze_stream_destroy(stream);
}

// ThreadSanitizer does not follow threads into a forked child.
void test_fork() {
#ifndef BRAZE_THREAD_SANITIZER
  const Loaded loaded(nested_manifest);
  check_nested(loaded.context);
  const pid_t child = fork();
  if (child == 0) {
    check_nested(loaded.context);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
#endif
}

void test_the_cpp_face() {
  const std::string file = flow_file(growing_manifest);
  const braze::v1::Engine engine(file.data(), file.size());
  CHECK(engine.tensors()[2].shape == std::vector<int64_t>{-1});
  braze::v1::Context context(engine);
  std::vector<float> x = some(4), y;
  int64_t trip = 3;
  context.set_input_shape("x", {4});
  context.bind("x", x.data(), 16);
  context.bind("trip", &trip, 8);
  context.set_allocator([&](const std::string& name, const std::vector<int64_t>& shape,
                            size_t bytes) {
    CHECK(name == "y" && shape.size() == 1 && bytes == static_cast<size_t>(shape[0]) * 4);
    y.resize(static_cast<size_t>(shape[0]));
    return y.data();
  });
  context.execute();
  CHECK(y.size() == 12 && y[5] == x[1] && context.bytes("y") == 48);
  braze::v1::Context moved = std::move(context);
  trip = 2;
  braze::v1::Stream stream;
  moved.enqueue(stream);
  stream.synchronize();
  CHECK(y.size() == 8 && moved.shape("y") == std::vector<int64_t>{8});
}

}  // namespace

int main() {
  test_fork();
  check_flow(nullptr);
  test_streams();
  test_the_cpp_face();
  return 0;
}
