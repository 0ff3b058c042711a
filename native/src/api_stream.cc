// The C functions for streams and events.
#include "handles.h"

using braze::guarded;

braze_status braze_stream_create(braze_stream** out) {
  return guarded([&] {
    braze::need(out);
    *out = new braze_stream();
  });
}

void braze_stream_destroy(braze_stream* stream) { delete stream; }

braze_status braze_stream_synchronize(braze_stream* stream) {
  return guarded([&] {
    braze::need(stream);
    stream->stream.synchronize();
  });
}

braze_status braze_stream_query(braze_stream* stream, int32_t* done) {
  return guarded([&] {
    braze::need(stream, done);
    *done = stream->stream.done();
  });
}

braze_status braze_stream_progress(braze_stream* stream, int64_t* enqueued, int64_t* finished) {
  return guarded([&] {
    braze::need(stream, enqueued, finished);
    stream->stream.progress(*enqueued, *finished);
  });
}

braze_status braze_stream_call(braze_stream* stream, braze_host_fn fn, void* user) {
  return guarded([&] {
    braze::need(stream);
    if (!fn) braze::fail(BRAZE_ERROR_EXECUTION, "the host function is null");
    stream->stream.enqueue([fn, user] { fn(user); });
  });
}

braze_status braze_stream_wait_event(braze_stream* stream, braze_event* event) {
  return guarded([&] {
    braze::need(stream, event);
    const std::shared_ptr<braze::Event> target = event->event;
    stream->stream.enqueue([target, number = target->latest()] { target->wait(number); });
  });
}

braze_status braze_event_create(braze_event** out) {
  return guarded([&] {
    braze::need(out);
    *out = new braze_event();
  });
}

void braze_event_destroy(braze_event* event) { delete event; }

braze_status braze_event_record(braze_event* event, braze_stream* stream) {
  return guarded([&] {
    braze::need(event, stream);
    const std::shared_ptr<braze::Event> target = event->event;
    stream->stream.check_alive();  // an announced record must not stay without its task
    const uint64_t number = target->announce();
    stream->stream.enqueue([target, number] { target->complete(number); });
  });
}

braze_status braze_event_synchronize(braze_event* event) {
  return guarded([&] {
    braze::need(event);
    event->event->wait(event->event->latest());
  });
}

braze_status braze_event_query(braze_event* event, int32_t* done) {
  return guarded([&] {
    braze::need(event, done);
    *done = event->event->done();
  });
}

braze_status braze_event_elapsed_ms(braze_event* start, braze_event* end, double* ms) {
  return guarded([&] {
    braze::need(start, end, ms);
    const std::chrono::duration<double, std::milli> spent =
        end->event->time() - start->event->time();
    *ms = spent.count();
  });
}
