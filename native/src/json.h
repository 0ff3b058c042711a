// A bounded JSON reader for the manifest: flat nodes, no recursion past a fixed depth, ASCII only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "error.h"

namespace braze {

class JsonDocument;

// A view of one value of a document. Accessors throw a format error that names the place.
class Json {
 public:
  Json() = default;
  // `where` (the last key on the way here) must outlive the view: keys are constants.
  Json(const JsonDocument& document, uint32_t node, std::string_view where)
      : document_(&document), node_(node), where_(where) {}

  int64_t integer() const;
  int64_t integer_in(int64_t low, int64_t high) const;  // low <= value <= high
  bool boolean() const;
  std::string text() const;
  std::string_view view() const;
  Json at(std::string_view key) const;  // member of an object
  // The first key of an object that is none of `known`, or empty.
  std::string_view key_beside(std::initializer_list<std::string_view> known) const;
  bool is_null() const;
  std::string object_text() const;  // the JSON text of an object
  size_t size() const;              // elements of an array
  std::string_view where() const { return where_; }

  // The elements of an array of exactly N.
  template <size_t N>
  std::array<Json, N> row() const;

  // Calls visit(Json element, size_t index) for each element of an array; returns their number.
  template <class Visit>
  size_t each(const Visit& visit) const;

 private:
  uint32_t expect(uint8_t kind, const char* what) const;
  uint32_t next(uint32_t node) const;
  bool inside(uint32_t node) const;

  const JsonDocument* document_ = nullptr;
  uint32_t node_ = 0;
  std::string_view where_;
};

enum JsonKind : uint8_t {
  kJsonNull,
  kJsonBool,
  kJsonInt,
  kJsonReal,
  kJsonString,
  kJsonArray,
  kJsonObject,
};

// Owns the parsed nodes; the text must outlive it.
class JsonDocument {
 public:
  JsonDocument(std::string_view text, std::string what);
  Json root() const { return Json(*this, 0, what_); }

 private:
  friend class Json;
  friend class JsonParser;

  // Nodes stand in the order of the text; the children of node i start at i + 1 and end before
  // nodes_[i].end. An object alternates keys (strings) and values.
  struct Node {
    JsonKind kind;
    uint32_t end;
    int64_t integer;
    std::string_view text;
  };

  std::string what_;
  std::vector<Node> nodes_;
  std::deque<std::string> unescaped_;
};

template <size_t N>
std::array<Json, N> Json::row() const {
  std::array<Json, N> out;
  const size_t count = each([&](const Json& element, size_t index) {
    if (index < N) out[index] = element;
  });
  if (count != N) {
    fail(BRAZE_ERROR_FORMAT, "the engine's ", where_, " has a row of ", count, " in place of ", N,
         "; build the engine again");
  }
  return out;
}

template <class Visit>
size_t Json::each(const Visit& visit) const {
  size_t index = 0;
  for (uint32_t n = expect(kJsonArray, "a list") + 1; inside(n); n = next(n), ++index) {
    visit(Json(*document_, n, where_), index);
  }
  return index;
}

}  // namespace braze
