// What the driver for tests consists of.
#pragma once

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda_stub.h"

#define API extern "C" __attribute__((visibility("default")))

namespace stub {

using Address = uint64_t;
using Work = std::function<void()>;
using Kernel = void (*)(void* const*, const int64_t*, int64_t, int64_t, int32_t*);

enum Code {
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kIllegalAddress = 700,
  kUpdateFailure = 910,
  kUnjoined = 904,
};

struct Event {
  struct Stream* stream = nullptr;
  uint64_t recorded = 0;
  uint64_t done = 0;
  std::set<size_t> nodes;  // recorded in capture
  struct Graph* capture = nullptr;
};

struct Node {
  Work work;
  std::set<size_t> after;
};

struct Graph {
  std::vector<Node> nodes;
  std::string shape() const {
    std::string out;
    for (const Node& n : nodes) {
      for (const size_t a : n.after) out += std::to_string(a) + ",";
      out += ";";
    }
    return out;
  }
};

struct Exec {
  Graph graph;
};

struct Item {
  Work work;
  std::shared_ptr<Event> wait;  // or this
  uint64_t ticket = 0;
  struct Stream* recorded_on = nullptr;
};

struct Stream {
  int number = 0;
  std::deque<Item> queue;
  Graph* capture = nullptr;  // not owned until the end
  bool origin = false;
  std::set<size_t> frontier;
};

struct Function {
  std::string name;
  Kernel kernel;
  size_t buffers;
  size_t params;
  size_t counters = 0;
};

struct Module {
  std::vector<std::unique_ptr<Function>> functions;
};

struct State {
  std::recursive_mutex mutex;
  int64_t calls = 0;
  int64_t fail_at = 0;
  int fail_code = 0;
  bool sticky = false;
  bool failed = false;
  int64_t settings[kStubSettings] = {13000, 1, 90, INT64_MAX, 0, 0};
  std::string log, violations, live_text;
  std::map<Address, size_t> device, pinned;
  std::map<Address, Address> counters;  // the status word of the step that has them
  std::map<Address, int> in_use;  // pinned blocks of pending copies
  std::map<Stream*, std::unique_ptr<Stream>> streams;
  std::map<Event*, std::shared_ptr<Event>> events;
  std::map<Graph*, std::unique_ptr<Graph>> graphs;
  std::map<Exec*, std::unique_ptr<Exec>> execs;
  std::map<Module*, std::unique_ptr<Module>> modules;
  int64_t retained = 0;
  int next_stream = 1;
  Stream null_stream;
};

State& state();
extern thread_local int current_contexts;

// One entry of the driver: counts, logs and fails if it is its turn. Teardown does its work anyway.
class Call {
 public:
  explicit Call(std::string text, bool needs_context = true) : lock_(state().mutex) {
    State& s = state();
    ++s.calls;
    s.log += text + "\n";
    if (s.fail_at && s.calls == s.fail_at) s.failed = true;
    if (s.failed && (s.sticky || s.calls == s.fail_at)) code = s.fail_code;
    if (code && s.sticky) {  // the device does nothing more
      s.null_stream.queue.clear();
      for (auto& [_, stream] : s.streams) stream->queue.clear();
    }
    if (!code && needs_context && !current_contexts) code = kInvalidContext;
  }
  int code = 0;

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

std::string number(uint64_t v);
bool inside(const std::map<Address, size_t>& memory, Address address, size_t bytes);
// The null stream for null; null for one that is gone.
Stream* stream_of(void* handle);
std::string name_of(void* handle);
// Does what is pending until it is enough.
void drain(Stream& stream, const std::function<bool()>& enough);
void drain(Stream& stream);
void drain_all();
// Work for a stream, which may be in capture.
int put(void* handle, Work work);
void complain(const std::string& text);
// How many of a kernel's first arguments are tensor maps with their shapes and strides; complains
// about those that are not as they were encoded.
size_t map_arguments(void** arguments);

template <class T>
int destroy(std::map<T*, std::unique_ptr<T>>& all, void* handle) {
  return all.erase(static_cast<T*>(handle)) ? 0 : kInvalidHandle;
}

}  // namespace stub
