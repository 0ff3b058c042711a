// Builds plans by hand, with all kinds of steps, as the JSON of an engine file.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine_builder.h"
#include "error.h"

namespace braze::test {

// Numbers returned are indexes into the lists of the plan.
class PlanBuilder {
 public:
  // Of a plan for a GPU (`capability` as "sm_90") or the host. On a GPU a launch is one block.
  explicit PlanBuilder(const char* capability = nullptr) : capability_(capability) {
    if (capability_) one_ = size(1);
  }
  int size(int64_t value) { return add(sizes_, cat("[\"const\",", value, ",0]")); }
  int size(const char* op, int a, int b) {
    return add(sizes_, cat("[\"", op, "\",", a, ",", b, "]"));
  }
  // A symbol and the size that is its value.
  int axis_symbol(const char* name, int input, int axis, int64_t max) {
    return symbol(name, cat("{\"kind\":\"axis\",\"input\":", input, ",\"axis\":", axis, "}"), max);
  }
  int element_symbol(const char* name, int buffer, int element, int64_t max) {
    return symbol(
        name, cat("{\"kind\":\"element\",\"buffer\":", buffer, ",\"element\":", element, "}"), max);
  }
  int assigned_symbol(const char* name, int64_t max) {
    return symbol(name, "{\"kind\":\"assigned\"}", max);
  }
  static int symbol_of(const PlanBuilder& plan, int size) {
    return plan.symbol_of_size_.at(static_cast<size_t>(size));
  }

  int input(const char* name, const char* dtype, std::vector<int> shape, int bytes) {
    return bind(inputs_, "input", name, dtype, shape, bytes);
  }
  int output(const char* name, const char* dtype, std::vector<int> shape, int bytes) {
    return bind(outputs_, "output", name, dtype, shape, bytes);
  }
  // In the arena, at a place of its own of `room` bytes.
  int arena(int bytes, int64_t room);
  // Where another buffer of the arena lies.
  int arena_over(int other, int bytes) {
    return buffer("arena", bytes, places_.at(static_cast<size_t>(other)));
  }
  // Of a size known in the run, with memory of its own.
  int own(int bytes) { return buffer("arena", bytes, -1); }
  int weight(int bytes, int64_t offset) { return buffer("weight", bytes, -1, offset); }

  int body(const char* name, std::initializer_list<std::string> steps);
  void main(const std::vector<std::string>& steps) { steps_ = joined(steps); }
  void debug(const char* name, const char* dtype, std::vector<int> shape, int buffer, int step);

  // JSON of steps. Buffers and displacements: {buffer, size or -1}.
  using Ref = std::pair<int, int>;
  // A kernel has counters, and waits for earlier launches by itself.
  void counts(const char* kernel, int counters) { counters_[kernel] = counters; }
  std::string launch(const char* kernel, std::vector<Ref> buffers, std::vector<int> params,
                     bool parallel = false, std::vector<int> after = {},
                     const std::string& maps = "");
  // A tensor map of float32 for `launch`; shape and strides are sizes.
  static std::string map(int buffer, std::vector<int> shape, std::vector<int> strides,
                         const std::vector<int>& box);
  std::string library(const char* routine, std::vector<Ref> buffers, std::vector<int> params,
                      const char* attributes) const;
  // A module behind the first, of what a library reads.
  int library_module(std::string content) {
    modules_.push_back(std::move(content));
    return static_cast<int>(modules_.size());
  }
  // The same for another library than "braze".
  static std::string library_step(const char* library, const char* routine,
                                  const std::vector<Ref>& buffers, const std::vector<int>& params,
                                  const std::string& attributes, int module = -1);
  std::string copy(Ref source, Ref target, int bytes, std::vector<int> after = {}) const;
  // {symbol's size, size or -1}
  std::string sizes(std::vector<Ref> known) const;
  std::string branch(Ref condition, int then, int otherwise) const;
  struct LoopFields {
    int body;
    Ref trip = {-1, -1};
    Ref condition = {-1, -1};
    int counter = -1;
    struct Carried {
      int target;
      Ref first;  // {-1, -1}: none
      Ref next;
    };
    std::vector<Carried> carried = {};
    struct Size {
      int symbol;  // the symbol's size
      int first;
      int next;
    };
    std::vector<Size> sizes = {};
  };
  std::string loop(const LoopFields& fields) const;
  std::string call(int body) const;

  std::string manifest(size_t object_bytes) const;
  std::string engine(const std::string& weights = std::string(64, '\0')) const;

 private:
  static std::string ref(Ref r) { return cat("[", r.first, ",", r.second, "]"); }
  static std::string optional(Ref r) { return r.first < 0 ? "null" : ref(r); }
  static std::string refs(const std::vector<Ref>& all);
  static std::string list(const std::vector<int>& values);
  static std::string joined(const std::vector<std::string>& parts);
  int add(std::vector<std::string>& list, std::string entry) {
    list.push_back(std::move(entry));
    return static_cast<int>(list.size()) - 1;
  }
  int symbol(const char* name, const std::string& source, int64_t max);
  int buffer(const char* kind, int bytes, int64_t place, int64_t offset = 0);
  int bind(std::vector<std::string>& list, const char* kind, const char* name, const char* dtype,
           const std::vector<int>& shape, int bytes);
  int kernel(const char* entry);

  std::vector<std::string> sizes_, symbols_, ranges_, inputs_, outputs_, buffers_, bodies_, debug_;
  std::vector<std::string> kernel_names_;
  std::map<std::string, int> counters_;  // of kernels that have any
  std::vector<std::string> modules_;  // of libraries
  std::vector<int64_t> places_;
  std::vector<int> symbol_of_size_;
  std::string steps_;
  int64_t arena_bytes_ = 0;
  const char* capability_;
  int one_ = -1;
};

}  // namespace braze::test
