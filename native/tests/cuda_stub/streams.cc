// Streams and events: work is done as late as the rules of CUDA allow.
#include "state.h"

namespace stub {

std::string number(uint64_t v) { return std::to_string(v); }

bool inside(const std::map<Address, size_t>& memory, Address address, size_t bytes) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);  // asked for log lines too
  auto found = memory.upper_bound(address);
  if (found == memory.begin()) return false;
  --found;
  const size_t wanted = std::max<size_t>(bytes, 1);  // what lies just behind is other memory
  return address + wanted <= found->first + std::max<size_t>(found->second, 1);
}

Stream* stream_of(void* handle) {
  State& s = state();
  if (!handle) return &s.null_stream;
  const auto found = s.streams.find(static_cast<Stream*>(handle));
  return found == s.streams.end() ? nullptr : found->second.get();
}

std::string name_of(void* handle) {
  const std::lock_guard<std::recursive_mutex> lock(state().mutex);
  const Stream* const s = stream_of(handle);
  return s ? " s" + std::to_string(s->number) : " dead stream";
}

static void run(const Item& item) {
  if (!item.wait) return item.work();
  const std::shared_ptr<Event> event = item.wait;
  if (event->done < item.ticket) {
    drain(*item.recorded_on, [&] { return event->done >= item.ticket; });
  }
}

void drain(Stream& stream, const std::function<bool()>& enough) {
  while (!stream.queue.empty() && !enough()) {
    const Item item = stream.queue.front();
    stream.queue.pop_front();
    run(item);
  }
}

void drain(Stream& stream) {
  drain(stream, [] { return false; });
}

void drain_all() {
  drain(state().null_stream);
  for (auto& [_, stream] : state().streams) drain(*stream);
}

int put(void* handle, Work work) {
  Stream* const stream = stream_of(handle);
  if (!stream) return kInvalidHandle;
  if (stream->capture) {
    stream->capture->nodes.push_back({std::move(work), stream->frontier});
    stream->frontier = {stream->capture->nodes.size() - 1};
  } else {
    stream->queue.push_back({std::move(work), nullptr, 0, nullptr});
  }
  return 0;
}

void complain(const std::string& text) { state().violations += text + "\n"; }

}  // namespace stub

using namespace stub;

API int stub_put(void* stream, void (*work)(void*), void* argument, void (*release)(void*)) {
  const std::shared_ptr<void> kept(argument, release);
  return put(stream, [work, kept] { work(kept.get()); });
}

// ---- streams and events -------------------------------------------------------------------------

API int cuStreamCreateWithPriority(void** out, unsigned, int priority) {
  const Call call("stream " + std::to_string(priority));
  if (call.code) return call.code;
  auto made = std::make_unique<Stream>();
  made->number = state().next_stream++;
  *out = made.get();
  state().streams[made.get()] = std::move(made);
  return 0;
}

API int cuStreamDestroy_v2(void* stream) {
  const Call call("destroy stream");
  if (Stream* const s = stream_of(stream)) drain(*s);
  const int code = destroy(state().streams, stream);
  return call.code ? call.code : code;
}

API int cuStreamSynchronize(void* stream) {
  const Call call("wait" + name_of(stream));
  Stream* const s = stream_of(stream);
  if (!s || s->capture) return kInvalidHandle;
  drain(*s);
  return call.code;
}

API int cuStreamGetId(void* stream, unsigned long long* out) {
  const Call call("stream id");
  if (call.code) return call.code;
  const Stream* const s = stream_of(stream);
  if (!s) return kInvalidHandle;
  *out = static_cast<unsigned long long>(s->number);
  return 0;
}

API int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  const Call call("wait for event" + name_of(stream));
  if (call.code) return call.code;
  Stream* const s = stream_of(stream);
  const auto found = state().events.find(static_cast<Event*>(event));
  if (!s || found == state().events.end()) return kInvalidHandle;
  const std::shared_ptr<Event>& e = found->second;
  if (e->capture) {
    if (s->capture != e->capture) s->frontier.clear();
    s->capture = e->capture;
    s->frontier.insert(e->nodes.begin(), e->nodes.end());
  } else if (e->stream) {
    s->queue.push_back({nullptr, e, e->recorded, e->stream});
  }
  return 0;
}

API int cuEventCreate(void** out, unsigned) {
  const Call call("event");
  if (call.code) return call.code;
  auto made = std::make_shared<Event>();
  *out = made.get();
  state().events[made.get()] = made;
  return 0;
}

API int cuEventDestroy_v2(void* event) {
  const Call call("destroy event");
  return state().events.erase(static_cast<Event*>(event)) ? call.code : kInvalidHandle;
}

API int cuEventRecord(void* event, void* stream) {
  const Call call("record" + name_of(stream));
  if (call.code) return call.code;
  const auto found = state().events.find(static_cast<Event*>(event));
  Stream* const s = stream_of(stream);
  if (!s || found == state().events.end()) return kInvalidHandle;
  const std::shared_ptr<Event> e = found->second;
  e->capture = s->capture;
  if (s->capture) {
    e->nodes = s->frontier;
    return 0;
  }
  e->stream = s;
  const uint64_t ticket = ++e->recorded;
  return put(stream, [e, ticket] { e->done = ticket; });
}

API int cuEventSynchronize(void* event) {
  const Call call("wait for event");
  const auto found = state().events.find(static_cast<Event*>(event));
  if (found == state().events.end()) return kInvalidHandle;
  const std::shared_ptr<Event> e = found->second;
  if (e->done < e->recorded) drain(*e->stream, [&] { return e->done >= e->recorded; });
  return call.code;
}

API int cuEventElapsedTime(float* out, void*, void*) {
  const Call call("elapsed");
  *out = 0.5F;
  return call.code;
}
