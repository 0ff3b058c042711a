#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "engine_builder.h"
#include "stream.h"

namespace {

using braze::Stream;
using braze::test::Chain;
using braze::test::kChainColumns;

void test_order() {
  Stream stream;
  std::vector<int> order;
  for (int i = 0; i < 500; ++i) stream.enqueue([&order, i] { order.push_back(i); });
  stream.synchronize();
  CHECK(order.size() == 500 && order.front() == 0 && order.back() == 499);
  CHECK(stream.done());
}

void test_errors_show_in_synchronize() {
  Stream stream;
  stream.enqueue([] { braze::fail(BRAZE_ERROR_EXECUTION, "first"); });
  stream.enqueue([] { braze::fail(BRAZE_ERROR_EXECUTION, "second"); });
  CHECK_FAILS(BRAZE_ERROR_EXECUTION, "first", stream.synchronize());
  stream.synchronize();  // reported once
}

void test_events_order_streams() {
  braze_stream *producer = nullptr, *consumer = nullptr;
  braze_event *ready = nullptr, *end = nullptr;
  CHECK_OK(braze_stream_create(&producer));
  CHECK_OK(braze_stream_create(&consumer));
  CHECK_OK(braze_event_create(&ready));
  CHECK_OK(braze_event_create(&end));
  CHECK_OK(braze_stream_wait_event(consumer, ready));  // never recorded: no wait
  double ms = 0;
  CHECK(braze_event_elapsed_ms(ready, end, &ms) == BRAZE_ERROR_EXECUTION);
  static std::atomic<int> value;
  for (int round = 1; round <= 50; ++round) {
    const auto produce = [](void*) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      value.fetch_add(1);
    };
    const auto consume = [](void* seen) { *static_cast<int*>(seen) = value.load(); };
    int seen = 0;
    CHECK_OK(braze_stream_call(producer, produce, nullptr));
    CHECK_OK(braze_event_record(ready, producer));
    CHECK_OK(braze_stream_wait_event(consumer, ready));
    CHECK_OK(braze_stream_call(consumer, consume, &seen));
    CHECK_OK(braze_event_record(end, consumer));
    CHECK_OK(braze_event_synchronize(end));
    CHECK(seen == round);
    CHECK_OK(braze_event_elapsed_ms(ready, end, &ms));
    CHECK(ms >= 0);
  }
  int32_t done = 0;
  CHECK_OK(braze_event_query(end, &done));
  CHECK(done == 1);
  CHECK_OK(braze_event_record(end, producer));
  braze_event_destroy(end);  // while its record may be pending
  braze_event_destroy(ready);
  braze_stream_destroy(producer);
  braze_stream_destroy(consumer);
}

void test_a_stream_may_be_destroyed_by_its_own_work() {
  static std::atomic<int> calls;
  braze_stream* stream = nullptr;
  CHECK_OK(braze_stream_create(&stream));
  const auto count = [](void*) { calls.fetch_add(1); };
  const auto destroy = [](void* user) { braze_stream_destroy(static_cast<braze_stream*>(user)); };
  CHECK_OK(braze_stream_call(stream, destroy, stream));
  CHECK_OK(braze_stream_create(&stream));
  CHECK_OK(braze_stream_call(stream, count, nullptr));
  braze_stream_destroy(stream);  // which waits for the work
  CHECK(calls == 1);
}

void test_enqueued_runs() {
  const Chain chain{5, 64, true, "x86-64"};
  const std::string file = braze::test::chain_engine(chain);
  braze_engine* engine = nullptr;
  CHECK_OK(braze_engine_load_memory(file.data(), file.size(), 0, 0, &engine));
  braze_context* context = nullptr;
  CHECK_OK(braze_context_create(engine, -1, &context));
  braze_stream* streams[2] = {};
  for (braze_stream*& s : streams) CHECK_OK(braze_stream_create(&s));
  // Each enqueue takes the shapes and addresses of its moment, although they change right after.
  std::vector<std::vector<float>> xs, ys;
  for (int64_t rows = 1; rows <= 20; ++rows) {
    xs.emplace_back(static_cast<size_t>(rows * kChainColumns), static_cast<float>(rows));
    ys.emplace_back(xs.back().size());
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    const int64_t dims[] = {static_cast<int64_t>(i) + 1, kChainColumns};
    const auto bytes = static_cast<int64_t>(xs[i].size()) * 4;
    CHECK_OK(braze_context_set_shapes(context, dims, 2));
    CHECK_OK(braze_context_bind(context, 0, xs[i].data(), bytes));
    CHECK_OK(braze_context_bind(context, 1, ys[i].data(), bytes));
    CHECK_OK(braze_context_enqueue(context, streams[i % 2], nullptr));
  }
  braze_context_destroy(context);  // the work keeps what it needs
  braze_engine_destroy(engine);
  for (braze_stream* s : streams) CHECK_OK(braze_stream_synchronize(s));
  for (size_t i = 0; i < xs.size(); ++i) {
    CHECK(ys[i] == braze::test::chain_reference(chain, xs[i]));
  }
  for (braze_stream* s : streams) braze_stream_destroy(s);
}

}  // namespace

int main() {
  test_order();
  test_errors_show_in_synchronize();
  test_events_order_streams();
  test_a_stream_may_be_destroyed_by_its_own_work();
  test_enqueued_runs();
  return 0;
}
