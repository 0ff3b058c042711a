#include "check.h"
#include "json.h"

namespace {

using braze::Json;
using braze::JsonDocument;

void test_values() {
  const std::string text = R"({"a":[1,-2,9223372036854775807],"b":{"c":"x\n\"\u00e9\ud83d\ude00"},)"
                           R"("t":true,"f":false,"n":null,"r":1.5e3})";
  const JsonDocument document(text, "text");
  const Json root = document.root();
  int64_t sum = 0;
  CHECK(root.at("a").each([&](const Json& j, size_t i) { sum += i < 2 ? j.integer() : 0; }) == 3);
  CHECK(sum == -1);
  CHECK(root.at("b").at("c").text() == "x\n\"\xc3\xa9\xf0\x9f\x98\x80");
  CHECK(root.at("t").boolean() && !root.at("f").boolean());
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "lacks zz", root.at("zz"));
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "not an integer", root.at("r").integer());
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "not a list", root.at("t").each([](const Json&, size_t) {}));
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "outside",
              root.at("a").each([](const Json& j, size_t) { j.integer_in(0, 5); }));
}

void test_rejects() {
  const char* const bad[] = {
      "",     "{",        "[1,]",     "[,1]",    "{\"a\"}",   "{\"a\":}",    "[1 2]",
      "1 2",  "tru",      "\"abc",    "\"\\q\"", "\"\\u12\"", "\"\\u0000\"", "-",
      "\"\\", "\"\x80\"", "\"\x01\"", "{1:2}",   "[1",        "\"\\u12g4\"", "99999999999999999999",
      "01",   "-01",      "1.",       "1.-1",    "1e",        "1e+",        "1-1",
  };
  for (const char* text : bad) {
    CHECK_FAILS(BRAZE_ERROR_FORMAT, "not readable", JsonDocument(text, "text"));
  }
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "deeply", JsonDocument(deep, "text"));
}

}  // namespace

int main() {
  test_values();
  test_rejects();
  return 0;
}
