// The routines of the library "braze" against the standard library, and what is refused.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "check.h"
#include "context.h"
#include "flow_plans.h"

namespace {

using braze::test::PlanBuilder;

// values, places = topk(x[rows, n], k)
std::string topk_engine(const char* dtype, int64_t bytes, int64_t k, const char* attributes) {
  PlanBuilder p;
  const int rows = p.axis_symbol("rows", 0, 0, 64), n = p.axis_symbol("n", 0, 1, 1024);
  const int element = p.size(bytes), eight = p.size(8), most = p.size(k);
  const auto times = [&p](int a, int b) { return p.size("mul", a, b); };
  const int x = p.input("x", dtype, {rows, n}, times(times(rows, n), element));
  const int values = p.output("values", dtype, {rows, most}, times(times(rows, most), element));
  const int places = p.output("places", "int64", {rows, most}, times(times(rows, most), eight));
  const int scratch = p.arena(times(n, eight), 1024 * 8);
  p.main({p.library("topk", {{x, -1}, {values, -1}, {places, -1}, {scratch, -1}}, {rows, n, most},
                    attributes)});
  return p.engine();
}

template <class T, class Less>
void check_topk(const char* dtype, bool largest, const std::vector<T>& x, int64_t rows, int64_t n,
                int64_t k, const Less& less) {
  const std::string attributes = braze::cat("{\"dtype\":\"", dtype, "\",\"largest\":",
                                            largest ? "true" : "false", "}");
  const std::string file = topk_engine(dtype, sizeof(T), k, attributes.c_str());
  const auto engine = std::make_shared<const braze::Engine>(
      braze::EngineBytes::copy(file.data(), file.size()), 0);
  braze::Context context(engine, -1);
  std::vector<T> values(static_cast<size_t>(rows * k));
  std::vector<int64_t> places(values.size());
  const int64_t dims[] = {rows, n};
  const auto size = static_cast<int64_t>(values.size());
  const braze_memory memory[] = {{const_cast<T*>(x.data()), rows * n * int64_t{sizeof(T)}},
                                 {values.data(), size * int64_t{sizeof(T)}},
                                 {places.data(), size * 8}};
  context.run(dims, 2, memory, 3, {});
  for (int64_t row = 0; row < rows; ++row) {
    const T* const of_row = x.data() + row * n;
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return largest ? less(of_row[b], of_row[a]) : less(of_row[a], of_row[b]);
    });
    for (int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<size_t>(row * k + i);
      CHECK(places[at] == order[static_cast<size_t>(i)]);
      CHECK(std::memcmp(&values[at], &of_row[places[at]], sizeof(T)) == 0);
    }
  }
}

bool less_nan_last(double a, double b) { return a < b || (!std::isnan(a) && std::isnan(b)); }

float half(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const float fraction = static_cast<float>(bits & 0x3ff);
  float out = exponent ? std::ldexp(1024.f + fraction, exponent - 25) : std::ldexp(fraction, -24);
  if (exponent == 31) out = fraction != 0.f ? std::nanf("") : std::numeric_limits<float>::infinity();
  return bits & 0x8000 ? -out : out;
}

void test_topk() {
  std::mt19937 random(5);
  for (const bool largest : {true, false}) {
    for (const int64_t n : {1, 2, 37, 1000}) {
      for (const int64_t k : {int64_t{0}, int64_t{1}, n / 2, n}) {
        std::vector<float> x(static_cast<size_t>(3 * n));
        const float special[] = {std::nanf(""), -std::nanf(""), -0.f, 0.f,
                                 std::numeric_limits<float>::infinity()};
        for (float& v : x) {
          v = random() % 4 ? static_cast<float>(random() % 20) - 10.f : special[random() % 5];
        }
        check_topk("float32", largest, x, 3, n, k, less_nan_last);
        std::vector<double> wide(x.begin(), x.end());
        check_topk("float64", largest, wide, 3, n, k, less_nan_last);
        std::vector<int64_t> big(x.size());
        for (int64_t& v : big) v = static_cast<int64_t>(random()) * (random() % 2 ? 1 : -1) * (int64_t{1} << 31);
        check_topk("int64", largest, big, 3, n, k, std::less<int64_t>());
        std::vector<uint8_t> bytes(x.size());
        for (uint8_t& v : bytes) v = static_cast<uint8_t>(random());
        check_topk("uint8", largest, bytes, 3, n, k, std::less<uint8_t>());
        std::vector<uint16_t> halves(x.size());
        for (uint16_t& v : halves) v = static_cast<uint16_t>(random());
        check_topk("float16", largest, halves, 3, n, k, [](uint16_t a, uint16_t b) {
          return less_nan_last(half(a), half(b));
        });
      }
    }
  }
}

void test_rows_and_columns_of_none() {
  check_topk("float32", true, std::vector<float>(), 0, 5, 3, less_nan_last);
  check_topk("float32", true, std::vector<float>(), 4, 0, 0, less_nan_last);
}

void load(const std::string& file) {
  const braze::Engine engine(braze::EngineBytes::copy(file.data(), file.size()), 0);
}

void test_what_is_refused() {
  const char* const good = "{\"dtype\":\"float32\",\"largest\":true}";
  std::string file = topk_engine("float32", 4, 2, good);
  load(file);
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "lacks largest",
              load(topk_engine("float32", 4, 2, "{\"dtype\":\"float32\"}")));
  CHECK_FAILS(BRAZE_ERROR_VERSION, "float99",
              load(topk_engine("float32", 4, 2, "{\"dtype\":\"float99\",\"largest\":true}")));
  const auto changed = [&](const char* from, const char* to) {
    std::string text = file;
    const size_t at = text.find(from);
    CHECK(at != std::string::npos && std::strlen(from) == std::strlen(to));
    text.replace(at, std::strlen(from), to);
    braze::test::fix_checksums(text);
    return text;
  };
  CHECK_FAILS(BRAZE_ERROR_TARGET, "of library cudnn",
              load(changed("\"library\":\"braze\"", "\"library\":\"cudnn\"")));
  CHECK_FAILS(BRAZE_ERROR_TARGET, "topl",
              load(changed("\"routine\":\"topk\"", "\"routine\":\"topl\"")));
  // more elements wanted than there are, and fewer params than it takes
  const braze::test::PlanBuilder unused;
  const auto engine = std::make_shared<const braze::Engine>(
      braze::EngineBytes::copy(file.data(), file.size()), 0);
  braze::Context context(engine, -1);
  std::vector<float> x(8);
  const int64_t dims[] = {1, 1};
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "too small", context.set_shapes(dims, 2));
}

}  // namespace

int main() {
  test_topk();
  test_rows_and_columns_of_none();
  test_what_is_refused();
  return 0;
}
