// Captures, graphs and launches.
#include "state.h"

using namespace stub;

namespace {

// Of the nodes whose predecessors have run, the one recorded last.
void run_graph(const Graph& graph) {
  std::vector<char> done(graph.nodes.size());
  for (size_t count = 0; count < graph.nodes.size(); ++count) {
    for (size_t i = graph.nodes.size(); i-- > 0;) {
      const Node& n = graph.nodes[i];
      const auto ran = [&](size_t a) { return done[a] != 0; };
      if (done[i] || !std::all_of(n.after.begin(), n.after.end(), ran)) continue;
      n.work();
      done[i] = 1;
      break;
    }
  }
}

bool reaches(const Graph& graph, const std::set<size_t>& from, size_t node) {
  for (const size_t f : from) {
    if (f == node || reaches(graph, graph.nodes[f].after, node)) return true;
  }
  return false;
}

}  // namespace

// ---- graphs -------------------------------------------------------------------------------------

API int cuStreamBeginCapture_v2(void* stream, int) {
  const Call call("capture" + name_of(stream));
  if (call.code) return call.code;
  Stream* const s = stream_of(stream);
  if (!stream || !s || s->capture) return kInvalidHandle;
  auto made = std::make_unique<Graph>();
  s->capture = made.get();
  s->origin = true;
  s->frontier.clear();
  state().graphs[made.get()] = std::move(made);
  return 0;
}

API int cuStreamEndCapture(void* stream, void** out) {
  const Call call("end capture" + name_of(stream));
  Stream* const s = stream_of(stream);
  *out = nullptr;
  if (!s || !s->capture || !s->origin) return kInvalidHandle;
  Graph* const graph = s->capture;
  bool joined = true;
  for (auto& [_, other] : state().streams) {
    if (other->capture != graph) continue;
    for (const size_t node : other->frontier) joined &= reaches(*graph, s->frontier, node);
    other->capture = nullptr;
  }
  for (auto& [_, event] : state().events) {
    if (event->capture == graph) event->capture = nullptr;
  }
  s->origin = false;
  if (call.code || !joined) {
    state().graphs.erase(graph);
    return call.code ? call.code : kUnjoined;
  }
  *out = graph;
  return 0;
}

API int cuGraphInstantiateWithFlags(void** out, void* graph, unsigned long long) {
  const Call call("instantiate");
  if (call.code) return call.code;
  auto made = std::make_unique<Exec>();
  made->graph = *static_cast<Graph*>(graph);
  *out = made.get();
  state().execs[made.get()] = std::move(made);
  return 0;
}

API int cuGraphExecUpdate_v2(void* exec, void* graph, void*) {
  const Call call("update");
  if (call.code) return call.code;
  Graph& mine = static_cast<Exec*>(exec)->graph;
  const Graph& other = *static_cast<Graph*>(graph);
  if (state().settings[kStubRefuseUpdate] || mine.shape() != other.shape()) return kUpdateFailure;
  mine = other;
  return 0;
}

API int cuGraphLaunch(void* exec, void* stream) {
  const Call call("launch graph" + name_of(stream));
  if (call.code) return call.code;
  return put(stream, [graph = static_cast<Exec*>(exec)->graph] { run_graph(graph); });
}

API int cuGraphExecDestroy(void* exec) {
  const Call call("destroy instance");
  const int code = destroy(state().execs, exec);
  return call.code ? call.code : code;
}

API int cuGraphDestroy(void* graph) {
  const Call call("destroy graph");
  const int code = destroy(state().graphs, graph);
  return call.code ? call.code : code;
}

// ---- launches -----------------------------------------------------------------------------------

namespace {

struct Config {
  unsigned grid[3], block[3], shared;
  void* stream;
  const void* attributes;
  unsigned num_attributes;
};

}  // namespace

API int cuLaunchKernelEx(const Config* config, void* function, void** arguments, void**) {
  const Function& f = *static_cast<Function*>(function);
  const char* const early = config->num_attributes ? " early" : "";
  const Call call("kernel " + f.name + " " + number(config->grid[0]) + name_of(config->stream) + early);
  if (call.code) return call.code;
  std::vector<void*> buffers;
  std::vector<int64_t> params;
  arguments += map_arguments(arguments);
  for (size_t i = 0; i < f.buffers; ++i) buffers.push_back(*static_cast<void**>(arguments[i]));
  auto* const status = *static_cast<int32_t**>(arguments[f.buffers]);
  int32_t* counters = nullptr;
  if (f.counters) {
    counters = *static_cast<int32_t**>(arguments[f.buffers + 1]);
    const auto step = reinterpret_cast<Address>(status);
    const auto owner = state().counters.emplace(reinterpret_cast<Address>(counters), step).first;
    if (owner->second != step) complain("two steps have the same counters");
    ++arguments;
  }
  for (size_t i = 0; i < f.params; ++i) {
    params.push_back(*static_cast<int64_t*>(arguments[f.buffers + 1 + i]));
  }
  return put(config->stream, [=] {
    const auto bytes = params.empty() ? 1 : static_cast<size_t>(params[0]) * sizeof(float);
    for (void* const b : buffers) {
      if (inside(state().device, reinterpret_cast<Address>(b), bytes)) continue;
      return complain("kernel " + f.name + " uses memory that is not the device's");
    }
    const auto word = reinterpret_cast<Address>(status);
    if (!inside(state().device, word, 4) && !inside(state().pinned, word, 4)) {
      return complain("kernel " + f.name + " has no status word");
    }
    if (f.counters && !inside(state().device, reinterpret_cast<Address>(counters), 4 * f.counters)) {
      return complain("kernel " + f.name + " has no counters");
    }
    for (size_t i = 0; i < f.counters; ++i) {
      if (counters[i]) return complain("counters are not zero");
    }
    f.kernel(buffers.data(), params.data(), 0, 1, status);
  });
}
