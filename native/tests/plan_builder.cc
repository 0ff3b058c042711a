#include "plan_builder.h"

namespace braze::test {
namespace {

constexpr const char* kRest = "\"origins\":[\"node\"]";

}  // namespace

std::string PlanBuilder::refs(const std::vector<Ref>& all) {
  std::vector<std::string> parts;
  for (const Ref& r : all) parts.push_back(ref(r));
  return cat("[", joined(parts), "]");
}

std::string PlanBuilder::list(const std::vector<int>& values) {
  std::vector<std::string> parts;
  for (const int v : values) parts.push_back(std::to_string(v));
  return cat("[", joined(parts), "]");
}

std::string PlanBuilder::joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out.append(out.empty() ? "" : ",").append(part);
  return out;
}

int PlanBuilder::symbol(const char* name, const std::string& source, int64_t max) {
  const int index = add(symbols_, cat("{\"name\":\"", name, "\",\"source\":", source, "}"));
  ranges_.push_back(cat("[0,0,", max, "]"));
  const int value = size("sym", index, 0);
  symbol_of_size_.resize(sizes_.size(), -1);
  symbol_of_size_.back() = index;
  return value;
}

int PlanBuilder::buffer(const char* kind, int bytes, int64_t place, int64_t offset) {
  places_.push_back(place);
  return add(buffers_, cat("{\"kind\":\"", kind, "\",\"bytes\":", bytes, ",\"offset\":", offset,
                           ",\"name\":\"\",\"space\":\"", capability_ ? "device" : "host",
                           "\"}"));
}

int PlanBuilder::arena(int bytes, int64_t room) {
  const int64_t place = arena_bytes_;
  arena_bytes_ += (room + 63) / 64 * 64;
  return buffer("arena", bytes, place);
}

int PlanBuilder::bind(std::vector<std::string>& list_of, const char* kind, const char* name,
                      const char* dtype, const std::vector<int>& shape, int bytes) {
  const int index = buffer(kind, bytes, -1);
  list_of.push_back(cat("{\"name\":\"", name, "\",\"dtype\":\"", dtype, "\",\"shape\":",
                        list(shape), ",\"buffer\":", index, ",\"value\":\"\",\"content\":[]}"));
  return index;
}

int PlanBuilder::kernel(const char* entry) {
  for (size_t i = 0; i < kernel_names_.size(); ++i) {
    if (kernel_names_[i] == entry) return static_cast<int>(i);
  }
  return add(kernel_names_, entry);
}

int PlanBuilder::body(const char* name, std::initializer_list<std::string> steps) {
  return add(bodies_, cat("{\"name\":\"", name, "\",\"steps\":[", joined(steps), "]}"));
}

void PlanBuilder::debug(const char* name, const char* dtype, std::vector<int> shape, int index,
                        int step) {
  debug_.push_back(cat("{\"name\":\"", name, "\",\"dtype\":\"", dtype, "\",\"shape\":",
                       list(shape), ",\"ref\":", ref({index, -1}), ",\"step\":", step, "}"));
}

std::string PlanBuilder::launch(const char* entry, std::vector<Ref> buffers,
                                std::vector<int> params, bool parallel, std::vector<int> after,
                                const std::string& maps) {
  const std::vector<int> grid = capability_ ? std::vector<int>{one_} : std::vector<int>{};
  return cat("{\"kind\":\"launch\",\"kernel\":", kernel(entry), ",\"name\":\"", entry,
             "\",\"buffers\":", refs(buffers), ",\"params\":", list(params),
             ",\"parallel\":", parallel ? "true" : "false", ",\"after\":", list(after),
             ",\"tactic\":\"\",\"grid\":", list(grid), ",\"maps\":[", maps, "],", kRest, "}");
}

std::string PlanBuilder::map(int buffer, std::vector<int> shape, std::vector<int> strides,
                             const std::vector<int>& box) {
  return cat("{\"buffer\":", buffer, ",\"dtype\":\"float32\",\"shape\":", list(shape),
             ",\"strides\":", list(strides), ",\"box\":", list(box), ",\"swizzle\":0}");
}

std::string PlanBuilder::library(const char* routine, std::vector<Ref> buffers,
                                 std::vector<int> params, const char* attributes) const {
  return library_step("braze", routine, buffers, params, attributes);
}

std::string PlanBuilder::library_step(const char* library, const char* routine,
                                      const std::vector<Ref>& buffers,
                                      const std::vector<int>& params,
                                      const std::string& attributes, int module) {
  return cat("{\"kind\":\"library\",\"library\":\"", library, "\",\"routine\":\"", routine,
             "\",\"name\":\"", routine, "\",\"buffers\":", refs(buffers),
             ",\"params\":", list(params), ",\"attributes\":", attributes,
             ",\"after\":[],\"tactic\":\"\",\"module\":", module, ",", kRest, "}");
}

std::string PlanBuilder::copy(Ref source, Ref target, int bytes, std::vector<int> after) const {
  return cat("{\"kind\":\"copy\",\"source\":", ref(source), ",\"target\":", ref(target),
             ",\"bytes\":", bytes, ",\"name\":\"copy\",\"after\":", list(after), ",", kRest, "}");
}

std::string PlanBuilder::sizes(std::vector<Ref> known) const {
  std::vector<std::string> parts;
  for (const Ref& k : known) parts.push_back(ref({symbol_of(*this, k.first), k.second}));
  return cat("{\"kind\":\"sizes\",\"known\":[", joined(parts), "],\"name\":\"sizes\",", kRest, "}");
}

std::string PlanBuilder::branch(Ref condition, int then, int otherwise) const {
  return cat("{\"kind\":\"if\",\"condition\":", ref(condition), ",\"then\":", then,
             ",\"otherwise\":", otherwise, ",\"name\":\"if\",", kRest, "}");
}

std::string PlanBuilder::loop(const LoopFields& f) const {
  std::vector<std::string> carried, sizes;
  for (const LoopFields::Carried& c : f.carried) {
    carried.push_back(cat("{\"target\":", c.target, ",\"first\":", optional(c.first),
                          ",\"next\":", ref(c.next), "}"));
  }
  for (const LoopFields::Size& s : f.sizes) {
    sizes.push_back(cat("[", symbol_of(*this, s.symbol), ",", s.first, ",", s.next, "]"));
  }
  return cat("{\"kind\":\"loop\",\"body\":", f.body, ",\"trip\":", optional(f.trip),
             ",\"condition\":", optional(f.condition), ",\"counter\":", f.counter,
             ",\"carried\":[", joined(carried), "],\"sizes\":[", joined(sizes),
             "],\"name\":\"loop\",", kRest, "}");
}

std::string PlanBuilder::call(int index) const {
  return cat("{\"kind\":\"call\",\"body\":", index, ",\"name\":\"call\",", kRest, "}");
}

std::string PlanBuilder::manifest(size_t object_bytes) const {
  std::vector<std::string> kernels, places;
  for (const std::string& name : kernel_names_) {
    const auto found = counters_.find(name);
    const bool counts = found != counters_.end();
    kernels.push_back(cat("{\"entry\":\"", name, "\",\"module\":0,\"block\":0,\"shared_bytes\":0,",
                          "\"counters\":", counts ? found->second : 0,
                          ",\"waits\":", counts ? "true" : "false", "}"));
  }
  for (const int64_t place : places_) places.push_back(std::to_string(place));
  std::string others;
  size_t at = object_bytes;
  for (const std::string& content : modules_) at -= content.size();
  const size_t own_bytes = at;
  for (const std::string& content : modules_) {
    others += cat(",{\"kind\":\"library\",\"needs\":\"\",\"code\":[", at, ",", content.size(), "]}");
    at += content.size();
  }
  return cat("{\"target\":{\"fingerprint\":\"\",\"alignment\":64,\"about\":{}},\"threads\":8,",
             "\"symbols\":[", joined(symbols_), "],\"sizes\":[", joined(sizes_),
             "],\"guards\":[],\"inputs\":[", joined(inputs_), "],\"outputs\":[",
             joined(outputs_), "],\"buffers\":[", joined(buffers_),
             "],\"modules\":[{\"kind\":\"", capability_ ? "cubin" : "elf", "\",\"needs\":\"",
             capability_ ? capability_ : "x86-64", "\",\"code\":[0,", own_bytes,
             "]}", others, "],\"kernels\":[", joined(kernels), "],\"steps\":[", steps_,
             "],\"profiles\":[{\"ranges\":[", joined(ranges_), "],\"offsets\":[", joined(places),
             "],\"arena_bytes\":", arena_bytes_,
             ",\"lower_bound_bytes\":0}],\"weights\":[],\"debug\":[", joined(debug_),
             "],\"bodies\":[", joined(bodies_), "]}");
}

std::string PlanBuilder::engine(const std::string& weights) const {
  std::string object = capability_ ? std::string("STUB") : kernel_object();
  for (const std::string& content : modules_) object += content;
  return engine_file(manifest(object.size()), object, weights);
}

}  // namespace braze::test
