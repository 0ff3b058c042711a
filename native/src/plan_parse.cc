#include <limits>
#include <set>

#include "error.h"
#include "json.h"
#include "plan.h"

namespace braze {
namespace {

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

int32_t index_below(const Json& json, size_t count) {
  if (count == 0) fail(BRAZE_ERROR_FORMAT, "the engine's ", json.where(), " refers to nothing");
  return static_cast<int32_t>(json.integer_in(0, static_cast<int64_t>(count) - 1));
}

template <class T, class Make>
std::vector<T> list(const Json& json, const Make& make) {
  std::vector<T> out;
  json.each([&](const Json& element, size_t index) { out.push_back(make(element, index)); });
  if (out.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(BRAZE_ERROR_FORMAT, "the engine's ", json.where(), " has too many entries");
  }
  return out;
}

// A row of exactly N integers.
template <size_t N>
void int_row(const Json& json, int64_t (&out)[N]) {
  const size_t count = json.each([&](const Json& element, size_t index) {
    if (index < N) out[index] = element.integer();
  });
  if (count != N) fail(BRAZE_ERROR_FORMAT, "the engine's ", json.where(), " has a row of ", count);
}

void require(bool condition, const Json& json, std::string_view why) {
  if (!condition) {
    fail(BRAZE_ERROR_FORMAT, "the engine's ", json.where(), ": ", why, "; build the engine again");
  }
}

template <size_t N>
size_t find_name(const std::string_view (&names)[N], std::string_view name) {
  size_t i = 0;
  while (i < N && names[i] != name) ++i;
  return i;
}

std::string from_hex(const Json& json) {
  const std::string_view hex = json.view();
  const auto digit = [&json](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    require(c >= 'a' && c <= 'f', json, "a value is not hexadecimal");
    return c - 'a' + 10;
  };
  require(hex.size() % 2 == 0, json, "a value is cut short");
  std::string out(hex.size() / 2, '\0');
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<char>(digit(hex[2 * i]) * 16 + digit(hex[2 * i + 1]));
  }
  return out;
}

class PlanParser {
 public:
  PlanParser(const Json& root, uint64_t code_bytes, uint64_t weights_bytes)
      : root_(root), code_bytes_(code_bytes), weights_bytes_(weights_bytes) {}

  Plan parse() {
    namespace k = format::manifest_keys;
    plan_.threads =
        static_cast<int32_t>(root_.at(k::kThreads).integer_in(1, int64_t{format::kMaxWorkers}));
    plan_.symbols =
        list<std::string>(root_.at(k::kSymbols), [](const Json& j, size_t) { return j.text(); });
    plan_.sizes = list<SizeOp>(root_.at(k::kSizes),
                               [this](const Json& j, size_t i) { return size_op(j, i); });
    plan_.guards =
        list<Guard>(root_.at(k::kGuards), [this](const Json& j, size_t) { return guard(j); });
    plan_.buffers =
        list<Buffer>(root_.at(k::kBuffers), [this](const Json& j, size_t) { return buffer(j); });
    parse_bindings();
    parse_code();
    plan_.steps =
        list<Step>(root_.at(k::kSteps), [this](const Json& j, size_t i) { return step(j, i); });
    plan_.profiles =
        list<Profile>(root_.at(k::kProfiles), [this](const Json& j, size_t) { return profile(j); });
    require(!plan_.profiles.empty(), root_.at(k::kProfiles), "there is none");
    plan_.debug =
        list<DebugTensor>(root_.at(k::kDebug), [this](const Json& j, size_t) { return debug(j); });
    return std::move(plan_);
  }

 private:
  int32_t size_index(const Json& json) const { return index_below(json, plan_.sizes.size()); }

  std::vector<int32_t> size_indexes(const Json& json) const {
    return list<int32_t>(json, [this](const Json& j, size_t) { return size_index(j); });
  }

  std::vector<int32_t> shape(const Json& json) const {
    std::vector<int32_t> dims = size_indexes(json);
    require(dims.size() <= format::kMaxRank, json, "a tensor has too many axes");
    return dims;
  }

  SizeOp size_op(const Json& json, size_t index) const {
    int64_t row[3] = {};
    int_row(json, row);
    if (row[0] < 0 || row[0] >= int64_t{format::kNumSizeOps}) {
      fail(BRAZE_ERROR_VERSION, "the engine uses size operation ", row[0],
           ", which this braze does not know; upgrade braze");
    }
    const auto op = static_cast<format::SizeOpCode>(row[0]);
    const auto below = [&](int64_t value, size_t count) {
      require(value >= 0 && static_cast<uint64_t>(value) < count, json, "an index is out of range");
    };
    if (op == format::SizeOpCode::kSym) {
      below(row[1], plan_.symbols.size());
    } else if (op != format::SizeOpCode::kConst) {
      below(row[1], index);
      below(row[2], index);
    }
    return {op, row[1], row[2]};
  }

  Guard guard(const Json& json) const {
    namespace k = format::guard_keys;
    return {size_index(json.at(k::kLhs)), size_index(json.at(k::kRhs)), json.at(k::kWhat).text()};
  }

  Buffer buffer(const Json& json) const {
    namespace k = format::buffer_keys;
    const size_t kind = find_name(format::kBufferKinds, json.at(k::kKind).view());
    require(kind < std::size(format::kBufferKinds), json, "a buffer's kind is unknown");
    Buffer out{static_cast<format::BufferKind>(kind), size_index(json.at(k::kBytes)),
               json.at(k::kOffset).integer_in(0, kMaxInt64)};
    const bool inside = static_cast<uint64_t>(out.offset) <= weights_bytes_;
    const bool aligned = static_cast<uint64_t>(out.offset) % format::kWeightAlign == 0;
    const bool weight = out.kind == format::BufferKind::kWeight;
    require(!weight || inside, json, "a weight lies outside");
    require(!weight || aligned, json, "a weight is not aligned");
    return out;
  }

  int32_t dtype(const Json& json) const {
    const std::string_view name = json.view();
    for (size_t i = 0; i < std::size(format::kDTypes); ++i) {
      if (format::kDTypes[i].name == name) return static_cast<int32_t>(i);
    }
    fail(BRAZE_ERROR_VERSION, "the engine uses element type ", name,
         ", which this braze does not know; upgrade braze");
  }

  void parse_bindings() {
    namespace k = format::manifest_keys;
    std::set<std::string> names;
    int32_t number = 0;
    const auto parse = [&](const Json& json, format::BufferKind kind) {
      Binding out = binding(json, kind);
      require(names.insert(out.name).second, json, "a binding's name is used twice");
      Buffer& target = plan_.buffers[static_cast<size_t>(out.buffer)];
      require(target.binding < 0, json, "a buffer is bound twice");
      target.binding = number++;
      return out;
    };
    plan_.inputs = list<Binding>(root_.at(k::kInputs), [&](const Json& j, size_t) {
      return parse(j, format::BufferKind::kInput);
    });
    plan_.outputs = list<Binding>(root_.at(k::kOutputs), [&](const Json& j, size_t) {
      return parse(j, format::BufferKind::kOutput);
    });
    for (const Buffer& b : plan_.buffers) {
      const bool bound = b.kind == format::BufferKind::kArena ||
                         b.kind == format::BufferKind::kWeight || b.binding >= 0;
      require(bound, root_.at(k::kBuffers), "an input or output buffer is not bound");
    }
    check_symbols_bound();
  }

  Binding binding(const Json& json, format::BufferKind kind) const {
    namespace k = format::binding_keys;
    Binding out{
        json.at(k::kName).text(),     dtype(json.at(k::kDtype)),
        shape(json.at(k::kShape)),    index_below(json.at(k::kBuffer), plan_.buffers.size()),
        from_hex(json.at(k::kValue)), false};
    out.has_value = !out.value.empty();
    const Buffer& target = plan_.buffers[static_cast<size_t>(out.buffer)];
    require(target.kind == kind, json, "a binding's buffer has the wrong kind");
    require(!out.has_value || kind == format::BufferKind::kInput, json, "an output has a value");
    return out;
  }

  // A symbol that sizes use must be given by an axis of an input, or it would have no value.
  void check_symbols_bound() const {
    std::vector<bool> bound(plan_.symbols.size());
    for (const Binding& input : plan_.inputs) {
      for (const int32_t dim : input.shape) {
        const SizeOp& op = plan_.sizes[static_cast<size_t>(dim)];
        if (op.op == format::SizeOpCode::kSym) bound[static_cast<size_t>(op.a)] = true;
      }
    }
    for (const SizeOp& op : plan_.sizes) {
      if (op.op == format::SizeOpCode::kSym && !bound[static_cast<size_t>(op.a)]) {
        fail(BRAZE_ERROR_FORMAT, "no input axis gives symbol ",
             plan_.symbols[static_cast<size_t>(op.a)], " of the engine; build the engine again");
      }
    }
  }

  void parse_code() {
    namespace k = format::manifest_keys;
    plan_.objects = list<Object>(root_.at(k::kObjects), [this](const Json& j, size_t) {
      namespace o = format::object_keys;
      const Object out{static_cast<uint64_t>(j.at(o::kOffset).integer_in(0, kMaxInt64)),
                       static_cast<uint64_t>(j.at(o::kBytes).integer_in(0, kMaxInt64))};
      const bool inside = out.offset <= code_bytes_ && out.bytes <= code_bytes_ - out.offset;
      require(inside, j, "an object lies outside the code section");
      return out;
    });
    plan_.kernels = list<Kernel>(root_.at(k::kKernels), [this](const Json& j, size_t) {
      namespace e = format::kernel_keys;
      return Kernel{j.at(e::kEntry).text(), j.at(e::kIsa).text(),
                    index_below(j.at(e::kObject), plan_.objects.size())};
    });
  }

  BufferRef buffer_ref(const Json& json) const {
    int64_t row[2] = {};
    int_row(json, row);
    const auto in = [](int64_t value, size_t count) {
      return value >= 0 && static_cast<uint64_t>(value) < count;
    };
    require(in(row[0], plan_.buffers.size()), json, "a buffer index is out of range");
    require(row[1] == -1 || in(row[1], plan_.sizes.size()), json, "a displacement is out of range");
    return {static_cast<int32_t>(row[0]), static_cast<int32_t>(row[1])};
  }

  Step step(const Json& json, size_t index) const {
    namespace k = format::step_keys;
    const std::string_view kind = json.at(k::kKind).view();
    if (find_name(format::kStepKinds, kind) == std::size(format::kStepKinds)) {
      fail(BRAZE_ERROR_VERSION, "the engine has a step of kind ", kind,
           ", which this braze does not know; upgrade braze");
    }
    Step out;
    out.kernel = index_below(json.at(k::kKernel), plan_.kernels.size());
    out.name = json.at(k::kName).text();
    out.buffers = list<BufferRef>(json.at(k::kBuffers),
                                  [this](const Json& j, size_t) { return buffer_ref(j); });
    out.params = size_indexes(json.at(k::kParams));
    out.parallel = json.at(k::kParallel).boolean();
    out.after = list<int32_t>(json.at(k::kAfter),
                              [index](const Json& j, size_t) { return index_below(j, index); });
    json.at(k::kOrigins).each([&out](const Json& j, size_t i) {
      out.origins.append(i ? ", " : "").append(j.view());
    });
    out.tactic = json.at(k::kTactic).text();
    return out;
  }

  Profile profile(const Json& json) const {
    namespace k = format::profile_keys;
    Profile out;
    out.ranges = list<Range>(json.at(k::kRanges), [](const Json& j, size_t) {
      int64_t row[3] = {};
      int_row(j, row);
      const bool ordered = 0 <= row[0] && row[0] <= row[1] && row[1] <= row[2];
      require(ordered, j, "a range is not min <= opt <= max");
      return Range{row[0], row[1], row[2]};
    });
    require(out.ranges.size() == plan_.symbols.size(), json, "a profile lacks ranges");
    out.arena_bytes = json.at(k::kArenaBytes).integer_in(0, kMaxInt64);
    json.at(k::kLowerBoundBytes).integer();
    out.offsets =
        list<int64_t>(json.at(k::kOffsets), [](const Json& j, size_t) { return j.integer(); });
    require(out.offsets.size() == plan_.buffers.size(), json, "a profile lacks offsets");
    for (size_t i = 0; i < out.offsets.size(); ++i) {
      if (plan_.buffers[i].kind != format::BufferKind::kArena) continue;
      const int64_t offset = out.offsets[i];
      const bool placed =
          offset >= 0 && offset <= out.arena_bytes && offset % int64_t{format::kArenaAlign} == 0;
      require(placed, json, "an arena offset is misplaced");
    }
    return out;
  }

  DebugTensor debug(const Json& json) const {
    namespace k = format::debug_keys;
    return {json.at(k::kName).text(), dtype(json.at(k::kDtype)), shape(json.at(k::kShape)),
            buffer_ref(json.at(k::kRef)), index_below(json.at(k::kStep), plan_.steps.size())};
  }

  Json root_;
  uint64_t code_bytes_;
  uint64_t weights_bytes_;
  Plan plan_;
};

}  // namespace

Plan parse_plan(std::string_view manifest, uint64_t code_bytes, uint64_t weights_bytes) {
  const JsonDocument document(manifest, "manifest");
  return PlanParser(document.root(), code_bytes, weights_bytes).parse();
}

}  // namespace braze
