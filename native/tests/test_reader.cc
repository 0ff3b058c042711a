#include <unistd.h>

#include <cstring>
#include <fstream>

#include "check.h"
#include "checksum.h"
#include "context.h"
#include "cuda_device.h"
#include "engine.h"
#include "engine_builder.h"
#include "engine_format.h"

namespace {

using braze::Engine;
using braze::EngineBytes;
using braze::test::Chain;

void load(const std::string& file) {
  const Engine engine(EngineBytes::copy(file.data(), file.size()), 0);
  engine.verify_weights();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  CHECK(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

void load_manifest(const std::string& from, const std::string& to) {
  const std::string object = braze::test::kernel_object();
  const Chain chain;
  const std::string manifest =
      replaced(braze::test::chain_manifest(chain, object.size()), from, to);
  load(braze::test::engine_file(manifest, object, std::string(64 * 16 * 4, '\0')));
}

// Why no engine for a GPU can run here, or empty: this machine has one.
std::string want_of_gpu() {
  try {
    const braze::CudaDevice card;
    return "";
  } catch (const braze::Error& e) {
    return e.what();
  }
}

// The first byte behind the section table that no section holds.
size_t padding_of(const std::string& engine) {
  braze::format::FileHeader header;
  std::memcpy(&header, engine.data(), sizeof(header));
  const size_t table_bytes = header.num_sections * sizeof(braze::format::SectionEntry);
  size_t end = header.table_offset + table_bytes;
  for (size_t at = header.table_offset; at < header.table_offset + table_bytes;) {
    braze::format::SectionEntry entry;
    std::memcpy(&entry, engine.data() + at, sizeof(entry));
    if (entry.offset > end) break;
    end = entry.offset + entry.size;
    at += sizeof(entry);
  }
  CHECK(end < engine.size());
  return end;
}

void test_damage() {
  const std::string good = braze::test::chain_engine({});
  load(good);
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "not a braze engine", load("hello, I am a text file"));
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "not a braze engine", load(""));
  for (const size_t size : {size_t{8}, size_t{63}, size_t{64}, good.size() / 2, good.size() - 1}) {
    CHECK_FAILS(BRAZE_ERROR_FORMAT, "truncated", load(good.substr(0, size)));
  }
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "too long", load(good + "x"));
  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);  // the weights come last
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "weights section is damaged", load(bad));
  bad = good;
  bad[200] = static_cast<char>(bad[200] ^ 16);
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "manifest section is damaged", load(bad));
  bad = good;
  bad[12] = static_cast<char>(bad[12] ^ 2);
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "header is damaged", load(bad));
  bad = good;
  bad[padding_of(good)] = 1;
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "damaged between its sections", load(bad));
}

void test_versions() {
  std::string newer = braze::test::chain_engine({});
  const uint32_t version = braze::format::kVersion + 1;
  std::memcpy(&newer[12], &version, sizeof(version));
  braze::test::fix_checksums(newer);
  CHECK_FAILS(BRAZE_ERROR_VERSION, "upgrade braze", load(newer));
  std::string older = braze::test::chain_engine({});
  const uint32_t first = 1;
  std::memcpy(&older[8], &first, sizeof(first));
  std::memcpy(&older[12], &first, sizeof(first));
  braze::test::fix_checksums(older);
  CHECK_FAILS(BRAZE_ERROR_VERSION, "version 1, which this braze no longer reads", load(older));
  Chain other;
  other.isa = "riscv64";
  CHECK_FAILS(BRAZE_ERROR_TARGET, "riscv64", load(braze::test::chain_engine(other)));
  other.isa = "x86-64+amx-nonsense";
  CHECK_FAILS(BRAZE_ERROR_TARGET, "amx-nonsense", load(braze::test::chain_engine(other)));
  const std::string want = want_of_gpu();
  const std::string other_card = want.empty() ? "compute capability x86-64" : want;
  CHECK_FAILS(BRAZE_ERROR_TARGET, other_card, load_manifest("\"elf\"", "\"cubin\""));
  CHECK_FAILS(BRAZE_ERROR_TARGET, "braze.load in Python", load_manifest("\"elf\"", "\"text\""));
  const std::string mixed = want.empty() ? "mixes code of a GPU and of the host" : want;
  CHECK_FAILS(BRAZE_ERROR_TARGET, mixed, load_manifest("\"host\"", "\"device\""));
  CHECK_FAILS(BRAZE_ERROR_VERSION, "kind is 'copies'", load_manifest("launch", "copies"));
  CHECK_FAILS(BRAZE_ERROR_VERSION, "is 'pow'", load_manifest("\"mul\",0", "\"pow\",0"));
  CHECK_FAILS(BRAZE_ERROR_VERSION, "dtype is 'float99'", load_manifest("float32", "float99"));
}

void test_manifest_ranges() {
  const char* const changes[][2] = {
      {"[\"mul\",0,1]", "[\"mul\",0,2]"},  // a size that uses itself
      {"[\"sym\",0,0]", "[\"sym\",1,0]"},  // a symbol that is not there
      {"\"axis\":0", "\"axis\":1"},        // an axis that does not give it
      {"\"alignment\":64", "\"alignment\":96"},
      {"\"buffer\":0", "\"buffer\":99"},                       // a buffer that is not there
      {"\"buffer\":0", "\"buffer\":1"},                        // bound to a buffer of another kind
      {"\"shape\":[0,1]", "\"shape\":[0,77]"},                 // a size that is not there
      {"\"shape\":[0,1]", "\"shape\":[2,1]"},                  // nothing gives symbol n
      {"\"kernel\":0", "\"kernel\":2"},                        // a kernel that is not there
      {"\"module\":0", "\"module\":-1"},                       //
      {"\"params\":[2]", "\"params\":[6]"},                    //
      {"\"after\":[0]", "\"after\":[1]"},                      // a step that waits for itself
      {"[[0,-1]", "[[0,-2]"},                                  // a displacement that is not there
      {"[[0,-1]", "[[5,-1]"},                                  //
      {"\"weight\",\"bytes\":5,\"offset\":0", "\"weight\",\"bytes\":5,\"offset\":8"},  // misaligned
      {"\"threads\":8", "\"threads\":0"},                      //
      {"\"threads\":8", "\"threads\":100000"},                 //
      {"\"offsets\":[-1,-1,-1,0", "\"offsets\":[-1,-1,-1,8"},  // misaligned
      {"\"offsets\":[-1,-1,-1,0", "\"offsets\":[-1,-1,-1,-64"},                  //
      {"\"offsets\":[-1,-1,-1,0", "\"offsets\":[-1,-1,0"},                       // too few
      {"\"ranges\":[[1,1,64]]", "\"ranges\":[[2,1,64]]"},                        //
      {"\"ranges\":[[1,1,64]]", "\"ranges\":[]"},                                //
      {"\"code\":[0,", "\"code\":[9223372036854775807,"},                      // overflow
      {"\"name\":\"y\"", "\"name\":\"x\""},                                      // a name twice
      {"\"parallel\":true", "\"parallel\":1"},                                   // wrong types
      {"\"threads\":8", "\"threads\":[]"},                                        //
  };
  for (const auto& change : changes) {
    CHECK_FAILS(BRAZE_ERROR_FORMAT, "build", load_manifest(change[0], change[1]));
  }
  CHECK_FAILS(BRAZE_ERROR_VERSION, "has 'x', which this braze does not know",
              load_manifest("\"symbols\":[", "\"symbols\":[],\"x\":["));
  CHECK_FAILS(BRAZE_ERROR_COMPILE, "no function",
              load_manifest("\"entry\":\"add\"", "\"entry\":\"ad\""));
}

void test_large_weights_are_checked_in_the_background() {
  const std::string object = braze::test::kernel_object();
  Chain chain;
  std::string weights(size_t{9} << 20, 'w');
  const std::string manifest = braze::test::chain_manifest(chain, object.size());
  const std::string good = braze::test::engine_file(manifest, object, weights);
  load(good);
  std::string bad = good;
  bad[bad.size() - 12345] = 'v';
  const Engine engine(EngineBytes::copy(bad.data(), bad.size()), 0);
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "weights section is damaged", engine.verify_weights());
  {
    const Engine dropped(EngineBytes::copy(good.data(), good.size()), 0);
  }  // while checking
}

void test_checksum_finds_every_flipped_bit() {
  std::string data(200, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 37);
  const auto sum = [&data] {
    return braze::checksum(reinterpret_cast<const unsigned char*>(data.data()), data.size());
  };
  const uint64_t before = sum();
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    const auto mask = static_cast<char>(1 << (bit % 8));
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ mask);
    CHECK(sum() != before);
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ mask);
  }
  std::swap_ranges(data.begin(), data.begin() + 8, data.begin() + 64);
  CHECK(sum() != before);
}

void test_weights_that_were_left_out() {
  const std::string good = braze::test::chain_engine({});
  std::string bare = good;
  braze::test::strip_weights(bare);
  CHECK(bare.size() + 4096 == good.size());
  load(bare);  // it can be told of
  const auto engine = std::make_shared<Engine>(EngineBytes::copy(bare.data(), bare.size()), 0);
  CHECK(engine->is_stripped() && engine->plan().every_step.size() == 3);
  braze::Context context(engine, -1);
  const int64_t dims[] = {4, braze::test::kChainColumns};
  context.set_input_shape(0, dims, 2);
  int64_t shape[2];
  CHECK_FAILS(BRAZE_ERROR_EXECUTION, "left out", context.binding_shape(1, shape, nullptr));
  CHECK_FAILS(BRAZE_ERROR_EXECUTION, "left out", context.set_shapes(dims, 2));
  CHECK_FAILS(BRAZE_ERROR_EXECUTION, "refit it", context.request());
  const braze_memory none[2] = {};
  CHECK_FAILS(BRAZE_ERROR_EXECUTION, "left out", context.run(dims, 2, none, 2, {}));

  std::string odd = good;
  braze::test::strip_weights(odd, true);
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "section 4 says that its content was left out", load(odd));
  std::string code = good;  // the flag is the weights' alone
  braze::format::FileHeader header;
  std::memcpy(&header, code.data(), sizeof(header));
  const size_t flags = header.table_offset + sizeof(braze::format::SectionEntry) + 4;
  code[flags] = static_cast<char>(code[flags] | 2);
  braze::test::fix_checksums(code);
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "section 3 says that its content was left out", load(code));
}

void test_file() {
  const std::string path = "test_reader.engine";
  const std::string good = braze::test::chain_engine({});
  std::ofstream(path, std::ios::binary) << good;
  {
    const Engine engine(EngineBytes::map_file(path.c_str()), 0);
  }
  unlink(path.c_str());
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "cannot be opened", EngineBytes::map_file(path.c_str()));
  CHECK_FAILS(BRAZE_ERROR_FORMAT, "not a regular file", EngineBytes::map_file("/"));
}

}  // namespace

int main() {
  test_damage();
  test_versions();
  test_manifest_ranges();
  test_large_weights_are_checked_in_the_background();
  test_checksum_finds_every_flipped_bit();
  test_weights_that_were_left_out();
  test_file();
  return 0;
}
