#include "json.h"

#include <algorithm>
#include <charconv>

#include "engine_format.h"
#include "error.h"

namespace braze {

namespace {

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | (code >> 6));
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3f));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

}  // namespace

class JsonParser {
 public:
  JsonParser(JsonDocument& document, std::string_view text) : document_(document), text_(text) {}

  void parse() {
    if (text_.size() > format::kMaxManifestBytes) reject("it is larger than the format allows");
    value(0);
    skip_space();
    if (at_ != text_.size()) reject("text follows its end");
  }

 private:
  [[noreturn]] void reject(const char* why) const {
    fail(BRAZE_ERROR_FORMAT, "the engine's ", document_.what_, " is not readable at byte ", at_,
         ": ", why, "; build the engine again");
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  char peek() {
    skip_space();
    if (at_ >= text_.size()) reject("it ends early");
    return text_[at_];
  }

  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  uint32_t open(JsonKind kind) {
    const auto index = static_cast<uint32_t>(document_.nodes_.size());
    document_.nodes_.push_back({kind, index + 1, 0, {}});
    return index;
  }

  void value(uint64_t depth) {
    if (depth > format::kMaxJsonDepth) reject("it is nested too deeply");
    const char c = peek();
    if (c == '{' || c == '[') {
      container(c == '{', depth);
    } else if (c == '"') {
      string();
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      number();
    } else if (word("true") || word("false")) {
      document_.nodes_[open(kJsonBool)].integer = c == 't';
    } else if (word("null")) {
      open(kJsonNull);
    } else {
      reject("a value was expected");
    }
  }

  void container(bool object, uint64_t depth) {
    const uint32_t index = open(object ? kJsonObject : kJsonArray);
    const size_t start = at_;
    const char close = object ? '}' : ']';
    ++at_;
    bool first = true;
    while (!take(close)) {
      if (!first && !take(',')) reject("a comma was expected");
      first = false;
      if (object) {
        if (peek() != '"') reject("a key was expected");
        string();
        if (!take(':')) reject("a colon was expected");
      }
      value(depth + 1);
    }
    document_.nodes_[index].end = static_cast<uint32_t>(document_.nodes_.size());
    document_.nodes_[index].text = text_.substr(start, at_ - start);
  }

  bool word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }

  bool is_at(char c) const { return at_ < text_.size() && text_[at_] == c; }

  // Skips digits; returns how many.
  size_t digits() {
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - start;
  }

  void number() {
    const size_t start = at_;
    const char* const begin = text_.data() + at_;
    const char* const end = text_.data() + text_.size();
    int64_t integer = 0;
    const std::from_chars_result result = std::from_chars(begin, end, integer);
    if (result.ec != std::errc()) reject("a number is not an integer of 64 bits");
    if (text_[at_] == '-') ++at_;
    const bool zero = text_[at_] == '0';
    if (digits() > 1 && zero) reject("a number begins with a zero");
    const bool fraction = is_at('.');
    if (fraction && (++at_, !digits())) reject("a fraction has no digits");
    const bool exponent = is_at('e') || is_at('E');
    if (exponent) {
      ++at_;
      if (is_at('+') || is_at('-')) ++at_;
      if (!digits()) reject("an exponent has no digits");
    }
    const bool real = fraction || exponent;
    const uint32_t node = open(real ? kJsonReal : kJsonInt);
    document_.nodes_[node].integer = integer;
    document_.nodes_[node].text = text_.substr(start, at_ - start);
  }

  void string() {
    const size_t start = ++at_;
    bool escaped = false;
    for (;; ++at_) {
      if (at_ >= text_.size()) reject("a text is not closed");
      const char c = text_[at_];
      if (c == '"') break;
      if (static_cast<signed char>(c) < 0x20) reject("a text holds a byte that is not ASCII");
      if (c == '\\') {
        escaped = true;
        ++at_;
      }
    }
    const std::string_view raw = text_.substr(start, at_ - start);
    const uint32_t node = open(kJsonString);
    document_.nodes_[node].text = escaped ? unescape(raw) : raw;
    ++at_;
  }

  std::string_view unescape(std::string_view raw) {
    std::string& out = document_.unescaped_.emplace_back();
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        out.push_back(raw[i]);
        continue;
      }
      static constexpr std::string_view kFrom = "\"\\/bfnrt";
      static constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
      const char c = raw[++i];  // string() never ends a text right after a backslash
      const size_t simple = kFrom.find(c);
      if (simple != std::string_view::npos) {
        out.push_back(kTo[simple]);
      } else if (c == 'u') {
        append_utf8(out, code_point(raw, i));
      } else {
        reject("a text has an unknown escape");
      }
    }
    return out;
  }

  // Reads the hex digits after \u at raw[i] and leaves i on the last; joins surrogate pairs.
  uint32_t code_point(std::string_view raw, size_t& i) {
    const uint32_t unit = hex4(raw, i + 1);
    i += 4;
    if (unit == 0) reject("a text holds a zero byte");
    if (unit < 0xd800 || unit > 0xdfff) return unit;
    if (unit < 0xdc00 && raw.substr(i + 1, 2) == "\\u") {
      const uint32_t low = hex4(raw, i + 3);
      if (low >= 0xdc00 && low <= 0xdfff) {
        i += 6;
        return 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
      }
    }
    return 0xfffd;  // a lone surrogate cannot be UTF-8
  }

  uint32_t hex4(std::string_view raw, size_t at) const {
    uint32_t value = 0;
    if (at + 4 > raw.size()) reject("an escape is cut short");
    const std::from_chars_result result =
        std::from_chars(raw.data() + at, raw.data() + at + 4, value, 16);
    if (result.ec != std::errc() || result.ptr != raw.data() + at + 4) reject("an escape is wrong");
    return value;
  }

  JsonDocument& document_;
  std::string_view text_;
  size_t at_ = 0;
};

JsonDocument::JsonDocument(std::string_view text, std::string what) : what_(std::move(what)) {
  nodes_.reserve(text.size() / 8 + 16);
  JsonParser(*this, text).parse();
}

uint32_t Json::expect(uint8_t kind, const char* what) const {
  if (document_->nodes_[node_].kind != kind) {
    fail(BRAZE_ERROR_FORMAT, "the engine's ", where_, " is not ", what, "; build the engine again");
  }
  return node_;
}

uint32_t Json::next(uint32_t node) const { return document_->nodes_[node].end; }

bool Json::inside(uint32_t node) const { return node < document_->nodes_[node_].end; }

int64_t Json::integer() const { return document_->nodes_[expect(kJsonInt, "an integer")].integer; }

int64_t Json::integer_in(int64_t low, int64_t high) const {
  const int64_t value = integer();
  if (value < low || value > high) {
    fail(BRAZE_ERROR_FORMAT, "the engine's ", where_, " is ", value, ", outside ", low, "..", high,
         "; build the engine again");
  }
  return value;
}

bool Json::is_null() const { return document_->nodes_[node_].kind == kJsonNull; }

std::string Json::object_text() const {
  return std::string(document_->nodes_[expect(kJsonObject, "an object")].text);
}

size_t Json::size() const {
  return each([](const Json&, size_t) {});
}

bool Json::boolean() const {
  return document_->nodes_[expect(kJsonBool, "true or false")].integer != 0;
}

std::string_view Json::view() const {
  return document_->nodes_[expect(kJsonString, "a text")].text;
}

std::string Json::text() const { return std::string(view()); }

Json Json::at(std::string_view key) const {
  uint32_t n = expect(kJsonObject, "an object") + 1;
  while (inside(n)) {
    const uint32_t value = next(n);
    if (document_->nodes_[n].text == key) {
      return Json(*document_, value, key);
    }
    n = next(value);
  }
  fail(BRAZE_ERROR_FORMAT, "the engine's ", where_, " lacks ", key, "; build the engine again");
}

std::string_view Json::key_beside(std::initializer_list<std::string_view> known) const {
  for (uint32_t n = expect(kJsonObject, "an object") + 1; inside(n); n = next(next(n))) {
    const std::string_view key = document_->nodes_[n].text;
    if (std::find(known.begin(), known.end(), key) == known.end()) return key;
  }
  return {};
}

}  // namespace braze
