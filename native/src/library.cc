#include "library.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "json.h"
#include "record_reader.h"

namespace braze {
namespace {

void need_bytes(bool enough) {
  if (!enough) {
    fail(BRAZE_ERROR_FORMAT, "a buffer of a copy or library call is too small for what it does; ",
         "build the engine again");
  }
}

// The product of counts and an element size, or -1.
int64_t bytes_of(std::initializer_list<int64_t> factors) {
  int64_t out = 1;
  for (const int64_t f : factors) {
    if (f < 0 || __builtin_mul_overflow(out, f, &out)) return -1;
  }
  return out;
}

void need(const int64_t* bytes, size_t buffer, std::initializer_list<int64_t> factors) {
  const int64_t wanted = bytes_of(factors);
  need_bytes(wanted >= 0 && wanted <= bytes[buffer]);
}

// ---- element types: what an element is compared as ------------------------------------------

float from_bits(uint32_t bits) {
  float out;
  std::memcpy(&out, &bits, sizeof(out));
  return out;
}

struct Half {
  uint16_t bits;
  operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
    if (exponent == 0x1f) return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -small : small;
  }
};

struct Brain {
  uint16_t bits;
  operator float() const { return from_bits(static_cast<uint32_t>(bits) << 16); }
};

template <class T>
using Compared = std::conditional_t<std::is_class_v<T>, float, T>;

// NaN is larger than every number. Written for any T: integers are equal to themselves.
template <class T>
bool is_less(T a, T b) {
  return a < b || (a == a && b != b);
}

// ---- routines -------------------------------------------------------------------------------

template <class T, bool Largest>
void topk(void* const* buffers, const int64_t* params, int64_t, int64_t, int32_t*) {
  const int64_t rows = params[1], n = params[2], k = params[3];
  int64_t* const order = static_cast<int64_t*>(buffers[3]);
  for (int64_t row = 0; row < rows; ++row) {
    const T* const x = static_cast<const T*>(buffers[0]) + row * n;
    T* const values = static_cast<T*>(buffers[1]) + row * k;
    int64_t* const places = static_cast<int64_t*>(buffers[2]) + row * k;
    std::iota(order, order + n, int64_t{0});
    std::partial_sort(order, order + k, order + n, [x](int64_t i, int64_t j) {
      const Compared<T> a = x[i], b = x[j];
      if (Largest ? is_less(b, a) : is_less(a, b)) return true;
      if (Largest ? is_less(a, b) : is_less(b, a)) return false;
      return i < j;
    });
    for (int64_t i = 0; i < k; ++i) {
      values[i] = x[order[i]];
      places[i] = order[i];
    }
  }
}

void check_topk(const int64_t* params, const int64_t* bytes) {
  const int64_t element = params[0], rows = params[1], n = params[2], k = params[3];
  need_bytes(k <= n);
  need(bytes, 0, {rows, n, element});
  need(bytes, 1, {rows, k, element});
  need(bytes, 2, {rows, k, 8});
  need(bytes, 3, {n, 8});
}

template <class T>
void nonzero(void* const* buffers, const int64_t* params, int64_t, int64_t, int32_t*) {
  const T* const x = static_cast<const T*>(buffers[0]);
  int64_t* const places = static_cast<int64_t*>(buffers[1]);
  int64_t count = 0;
  for (int64_t i = 0; i < params[1]; ++i) {
    const Compared<T> value = x[i];
    if (value != 0) places[count++] = i;
  }
  *static_cast<int64_t*>(buffers[2]) = count;
}

void check_nonzero(const int64_t* params, const int64_t* bytes) {
  need(bytes, 0, {params[1], params[0]});
  need(bytes, 1, {params[1], 8});
  need(bytes, 2, {8});
}

void copy(void* const* buffers, const int64_t* params, int64_t, int64_t, int32_t*) {
  if (params[0]) std::memmove(buffers[1], buffers[0], static_cast<size_t>(params[0]));
}

void check_copy(const int64_t* params, const int64_t* bytes) {
  need(bytes, 0, {params[0]});
  need(bytes, 1, {params[0]});
}

// ---- finding them ---------------------------------------------------------------------------

// make(T{}) for the element type `dtype`.
template <class Make>
braze_kernel_fn for_type(int32_t dtype, const Make& make) {
  const std::string_view name = format::kDTypes[dtype].name;
  if (name == "float64") return make(double{});
  if (name == "float32") return make(float{});
  if (name == "float16") return make(Half{});
  if (name == "bfloat16") return make(Brain{});
  if (name == "int64") return make(int64_t{});
  if (name == "int32") return make(int32_t{});
  if (name == "int16") return make(int16_t{});
  if (name == "int8") return make(int8_t{});
  if (name == "uint64") return make(uint64_t{});
  if (name == "uint32") return make(uint32_t{});
  if (name == "uint16") return make(uint16_t{});
  if (name == "uint8" || name == "bool") return make(uint8_t{});
  return nullptr;
}

struct TopK {
  bool largest;
  template <class T>
  braze_kernel_fn operator()(T) const {
    return largest ? &topk<T, true> : &topk<T, false>;
  }
};

struct NonZero {
  template <class T>
  braze_kernel_fn operator()(T) const {
    return &nonzero<T>;
  }
};

// How many buffers a routine reads and writes, in this order, and how many params it takes.
struct Form {
  size_t reads;
  size_t writes;
  size_t params;
};

void check_form(const Plan& plan, const LibraryCall& step, const Form& form) {
  const std::string where = cat("library call ", step.name);
  require(step.buffers.size() == form.reads + form.writes, where, "the number of buffers is wrong");
  require(step.params.size() == form.params, where, "the number of params is wrong");
  for (size_t i = form.reads; i < step.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[static_cast<size_t>(step.buffers[i].buffer)];
    const bool writable =
        b.kind == format::BufferKind::kArena || b.kind == format::BufferKind::kOutput;
    require(writable, where, "it writes to a buffer that is only read");
  }
}

[[noreturn]] void unknown(const LibraryCall& step, std::string_view what) {
  fail(BRAZE_ERROR_TARGET, "the engine calls ", step.routine, " of library ", step.library,
       " in step '", step.name, "', but this runtime has no such ", what,
       "; use a runtime that has it or build the engine for this one");
}

}  // namespace

Routine find_routine(const Plan& plan, const LibraryCall& step) {
  if (step.library != "braze") unknown(step, "library");
  const JsonDocument document(step.attributes, "attributes of a library call");
  const Json attributes = document.root();
  Routine out;
  if (step.routine == "topk") {
    check_form(plan, step, {1, 3, 3});
    const int32_t dtype = read_dtype(attributes.at("dtype"));
    out = {for_type(dtype, TopK{attributes.at("largest").boolean()}), &check_topk,
           {format::kDTypes[dtype].bytes}, 1};
  } else if (step.routine == "nonzero") {
    check_form(plan, step, {1, 2, 1});
    const int32_t dtype = read_dtype(attributes.at("dtype"));
    out = {for_type(dtype, NonZero{}), &check_nonzero, {format::kDTypes[dtype].bytes}, 1};
  } else {
    unknown(step, "routine");
  }
  if (!out.function) unknown(step, "routine for this element type");
  return out;
}

Routine copy_routine() { return {&copy, &check_copy, {}, 1}; }

}  // namespace braze
