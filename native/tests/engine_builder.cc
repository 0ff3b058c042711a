#include "engine_builder.h"

#include <cstring>
#include <fstream>
#include <iterator>

#include "check.h"
#include "checksum.h"
#include "engine_format.h"

namespace braze::test {
namespace {

uint64_t sum_of(const std::string& bytes, size_t at, size_t size) {
  return checksum(reinterpret_cast<const unsigned char*>(bytes.data()) + at, size);
}

template <class T>
void put(std::string& file, size_t at, const T& value) {
  std::memcpy(&file[at], &value, sizeof(value));
}

template <class T>
T get(const std::string& file, size_t at) {
  T value;
  std::memcpy(&value, file.data() + at, sizeof(value));
  return value;
}

std::string row(std::initializer_list<int64_t> values) {
  std::string out = "[";
  for (const int64_t v : values) out += (out.size() > 1 ? "," : "") + std::to_string(v);
  return out + "]";
}

std::string step_json(const Chain& chain, int i) {
  const int source = i == 0 ? 0 : 3 + (i - 1) % 2;
  const int target = i == chain.steps - 1 ? 1 : 3 + i % 2;
  const bool add = i % 2 == 0;
  const std::string refs =
      add ? cat("[", row({source, -1}), ",", row({2, -1}), ",", row({target, -1}), "]")
          : cat("[", row({source, -1}), ",", row({target, -1}), "]");
  return cat("{\"kind\":\"launch\",\"kernel\":", add ? 0 : 1, ",\"name\":\"step_", i,
             "\",\"buffers\":", refs,
             ",\"params\":[2],\"parallel\":", chain.parallel ? "true" : "false",
             ",\"after\":", i ? row({i - 1}) : "[]", ",\"origins\":[\"node_", i,
             "\"],\"tactic\":\"plain\",\"grid\":[],\"maps\":[]}");
}

}  // namespace

std::string kernel_object() {
  std::ifstream file(BRAZE_TEST_KERNELS, std::ios::binary);
  CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string engine_file(const std::string& manifest, const std::string& code,
                        const std::string& weights) {
  struct Part {
    uint32_t kind;
    const std::string& bytes;
  };
  const Part parts[] = {{1, manifest}, {3, code}, {4, weights}};
  std::string file(sizeof(format::FileHeader) + 3 * sizeof(format::SectionEntry), '\0');
  format::FileHeader header = {};
  std::memcpy(header.magic, format::kMagic, sizeof(format::kMagic));
  header.version = format::kVersion;
  header.min_reader_version = format::kMinReaderVersion;
  header.table_offset = sizeof(header);
  header.num_sections = 3;
  for (size_t i = 0; i < 3; ++i) {
    file.resize((file.size() + 63) / 64 * 64);
    const format::SectionEntry entry = {parts[i].kind, format::kSectionFlagRequired, file.size(),
                                        parts[i].bytes.size(), 0};
    put(file, sizeof(header) + i * sizeof(entry), entry);
    file += parts[i].bytes;
  }
  header.file_bytes = file.size();
  put(file, 0, header);
  fix_checksums(file);
  return file;
}

void fix_checksums(std::string& file) {
  auto header = get<format::FileHeader>(file, 0);
  for (uint32_t i = 0; i < header.num_sections; ++i) {
    const size_t at = header.table_offset + i * sizeof(format::SectionEntry);
    auto entry = get<format::SectionEntry>(file, at);
    entry.checksum = sum_of(file, entry.offset, entry.size);
    put(file, at, entry);
  }
  header.table_checksum =
      sum_of(file, header.table_offset, header.num_sections * sizeof(format::SectionEntry));
  put(file, 0, header);
  header.header_checksum = sum_of(file, 0, format::kHeaderCheckedBytes);
  put(file, 0, header);
}

void strip_weights(std::string& file, bool said_only) {
  auto header = get<format::FileHeader>(file, 0);
  const size_t at = header.table_offset + 2 * sizeof(format::SectionEntry);
  auto entry = get<format::SectionEntry>(file, at);
  entry.flags |= format::kSectionFlagStripped;
  if (!said_only) {
    file.resize(entry.offset);
    entry.size = 0;
  }
  put(file, at, entry);
  header.file_bytes = file.size();
  put(file, 0, header);
  fix_checksums(file);
}

// Sizes: 0 n, 1 columns, 2 count, 3 four, 4 bytes, 5 weight bytes.
std::string chain_manifest(const Chain& chain, size_t object_bytes) {
  const int64_t span = chain.max_rows * kChainColumns * 4;
  std::string steps;
  for (int i = 0; i < chain.steps; ++i) steps += (i ? "," : "") + step_json(chain, i);
  const auto size = [](const char* op, int64_t a, int64_t b) {
    return cat("[\"", op, "\",", a, ",", b, "]");
  };
  const std::string sizes =
      cat("[", size("sym", 0, 0), ",", size("const", kChainColumns, 0), ",", size("mul", 0, 1), ",",
          size("const", 4, 0), ",", size("mul", 2, 3), ",", size("const", span, 0), "]");
  const auto binding = [](const char* name, int buffer) {
    return cat("[{\"name\":\"", name,
               "\",\"dtype\":\"float32\",\"shape\":[0,1],\"buffer\":", buffer, ",\"value\":\"\",\"content\":[]}]");
  };
  const auto buffer = [](const char* kind, int bytes) {
    return cat("{\"kind\":\"", kind, "\",\"bytes\":", bytes, ",\"offset\":0,\"name\":\"\",\"space\":\"host\"}");
  };
  const auto kernel = [](const char* entry) {
    return cat("{\"entry\":\"", entry, "\",\"module\":0,\"block\":0,\"shared_bytes\":0,\"counters\":0,\"waits\":false}");
  };
  return cat("{\"target\":{\"fingerprint\":\"\",\"alignment\":64,\"about\":{}},\"threads\":8,",
             "\"symbols\":[{\"name\":\"n\",\"source\":{\"kind\":\"axis\",\"input\":0,",
             "\"axis\":0}}],\"sizes\":", sizes,
             ",\"guards\":[],", "\"inputs\":", binding("x", 0), ",\"outputs\":", binding("y", 1),
             ",\"buffers\":[", buffer("input", 4), ",", buffer("output", 4), ",",
             buffer("weight", 5), ",", buffer("arena", 4), ",", buffer("arena", 4),
             "],\"modules\":[{\"kind\":\"elf\",\"needs\":\"", chain.isa, "\",\"code\":[0,",
             object_bytes, "]}],\"kernels\":[",
             kernel("add"), ",", kernel("table"), "],\"steps\":[", steps,
             "],\"profiles\":[{\"ranges\":[", row({1, 1, chain.max_rows}),
             "],\"offsets\":", row({-1, -1, -1, 0, span}), ",\"arena_bytes\":", 2 * span,
             ",\"lower_bound_bytes\":0}],\"weights\":[],\"debug\":[],\"bodies\":[]}");
}

std::vector<float> chain_weights(const Chain& chain) {
  std::vector<float> out(static_cast<size_t>(chain.max_rows * kChainColumns));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i % 11) - 3.f;
  return out;
}

std::string chain_engine(const Chain& chain) {
  const std::vector<float> weights = chain_weights(chain);
  const std::string object = kernel_object();
  return engine_file(chain_manifest(chain, object.size()), object,
                     {reinterpret_cast<const char*>(weights.data()), weights.size() * 4});
}

std::vector<float> chain_reference(const Chain& chain, const std::vector<float>& x) {
  const std::vector<float> w = chain_weights(chain);
  std::vector<float> y = x;
  for (int step = 0; step < chain.steps; ++step) {
    for (size_t i = 0; i < y.size(); ++i) {
      const auto t = static_cast<float>(i % 8 + 1);
      if (step % 2 == 0) {
        y[i] += w[i];
      } else {
        const float by_case[8] = {y[i] + t, y[i] * t, y[i] - t, t - y[i], -y[i], t, t, t};
        y[i] = by_case[i % 8];
      }
    }
  }
  return y;
}

AlignedCopy::AlignedCopy(const std::string& bytes)
    : data(std::aligned_alloc(64, (bytes.size() + 64) / 64 * 64)) {
  CHECK(data != nullptr);
  std::memcpy(data, bytes.data(), bytes.size());
}

AlignedCopy::~AlignedCopy() { std::free(data); }

}  // namespace braze::test
