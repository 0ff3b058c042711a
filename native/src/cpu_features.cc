#include "cpu_features.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

#endif

namespace braze {
namespace {

struct Isa {
  const char* name;
  std::vector<std::string_view> needs;
};

#if defined(__x86_64__)

// State the operating system must save for a feature's registers to be usable (bits of XCR0).
constexpr uint64_t kAvxState = 0x6;
constexpr uint64_t kAvx512State = 0xe6;
constexpr uint64_t kAmxState = 0x60000;

// Linux gives a process the state of tiles only when it asks for it (since 5.16).
constexpr int kRequestState = 0x1023;
constexpr int kTileData = 18;

enum Register { kEax, kEbx, kEcx, kEdx };

struct FeatureBit {
  const char* name;
  uint32_t leaf;
  uint32_t subleaf;
  Register reg;
  int bit;
  uint64_t state;
};

constexpr FeatureBit kFeatureBits[] = {
    {"sse3", 1, 0, kEcx, 0, 0},
    {"ssse3", 1, 0, kEcx, 9, 0},
    {"sse4.1", 1, 0, kEcx, 19, 0},
    {"sse4.2", 1, 0, kEcx, 20, 0},
    {"movbe", 1, 0, kEcx, 22, 0},
    {"popcnt", 1, 0, kEcx, 23, 0},
    {"lzcnt", 0x80000001, 0, kEcx, 5, 0},
    {"avx", 1, 0, kEcx, 28, kAvxState},
    {"fma", 1, 0, kEcx, 12, kAvxState},
    {"f16c", 1, 0, kEcx, 29, kAvxState},
    {"bmi", 7, 0, kEbx, 3, 0},
    {"bmi2", 7, 0, kEbx, 8, 0},
    {"avx2", 7, 0, kEbx, 5, kAvxState},
    {"avx512f", 7, 0, kEbx, 16, kAvx512State},
    {"avx512dq", 7, 0, kEbx, 17, kAvx512State},
    {"avx512cd", 7, 0, kEbx, 28, kAvx512State},
    {"avx512bw", 7, 0, kEbx, 30, kAvx512State},
    {"avx512vl", 7, 0, kEbx, 31, kAvx512State},
    {"avx512vbmi", 7, 0, kEcx, 1, kAvx512State},
    {"avx512vnni", 7, 0, kEcx, 11, kAvx512State},
    {"avx512fp16", 7, 0, kEdx, 23, kAvx512State},
    {"avx512bf16", 7, 1, kEax, 5, kAvx512State},
    {"avxvnni", 7, 1, kEax, 4, kAvxState},
    {"amx-bf16", 7, 0, kEdx, 22, kAmxState},
    {"amx-tile", 7, 0, kEdx, 24, kAmxState},
    {"amx-int8", 7, 0, kEdx, 25, kAmxState},
};

// Asks for the state of tiles, for all threads of this process: 0, or why it is refused (errno).
// Asking again is harmless, and a process that runs no engine with tiles never asks: signal stacks
// must be larger from then on.
int request_tiles() {
  static const int refusal = [] {
    return syscall(SYS_arch_prctl, kRequestState, kTileData) == 0 ? 0 : errno;
  }();
  return refusal;
}

bool is_tiles(std::string_view feature) { return feature.substr(0, 4) == "amx-"; }

uint64_t enabled_state() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr uint32_t kOsxsave = 1u << 27;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & kOsxsave)) return 0;
  __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return (static_cast<uint64_t>(edx) << 32) | eax;
}

std::vector<std::string> detect_features() {
  const uint64_t state = enabled_state();
  std::vector<std::string> found;
  for (const FeatureBit& f : kFeatureBits) {
    uint32_t regs[4] = {};
    if (!__get_cpuid_count(f.leaf, f.subleaf, &regs[kEax], &regs[kEbx], &regs[kEcx], &regs[kEdx])) {
      continue;
    }
    const bool saved = (state & f.state) == f.state;
    if (saved && ((regs[f.reg] >> f.bit) & 1u)) found.emplace_back(f.name);
  }
  return found;
}

// The first is the widest. "avx2" is LLVM's x86-64-v3 and "avx512" its x86-64-v4: the code
// generator may use any of their features.
const std::vector<Isa>& isas() {
  static const std::vector<std::string_view> v3 = {
      "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt", "sse4.2",
  };
  static const std::vector<Isa> table = [] {
    Isa avx512{"avx512", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}};
    avx512.needs.insert(avx512.needs.end(), v3.begin(), v3.end());
    return std::vector<Isa>{avx512, {"avx2", v3}, {"x86-64", {}}};
  }();
  return table;
}

#else

int request_tiles() { return 0; }

bool is_tiles(std::string_view) { return false; }

std::vector<std::string> detect_features() { return {}; }

const std::vector<Isa>& isas() {
  static const std::vector<Isa> table = {{"aarch64", {}}};
  return table;
}

#endif

std::string_view missing_feature(const std::vector<std::string_view>& needs) {
  const std::vector<std::string>& have = host_features();
  for (const std::string_view need : needs) {
    if (std::find(have.begin(), have.end(), need) == have.end()) return need;
  }
  return {};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

const std::vector<std::string>& host_features() {
  static const std::vector<std::string> features = detect_features();
  return features;
}

const std::string& host_features_text() {
  static const std::string text = [] {
    std::string out;
    for (const std::string& f : host_features()) out += (out.empty() ? "" : " ") + f;
    return out;
  }();
  return text;
}

const char* host_isa() {
  for (const Isa& isa : isas()) {
    if (missing_feature(isa.needs).empty()) return isa.name;
  }
  return isas().back().name;
}

int host_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

void require_isa(std::string_view isa) {
  std::vector<std::string_view> needs = split(isa, '+');
  const std::string_view base = needs.front();
  needs.erase(needs.begin());
  const auto known =
      std::find_if(isas().begin(), isas().end(), [base](const Isa& i) { return i.name == base; });
  if (known == isas().end()) {
    fail(BRAZE_ERROR_TARGET, "the engine needs instruction set ", base, ", which this machine (",
         host_isa(), ") does not have; build it with target='cpu:", host_isa(), "'");
  }
  needs.insert(needs.begin(), known->needs.begin(), known->needs.end());
  const std::string_view missing = missing_feature(needs);
  if (!missing.empty()) {
    fail(BRAZE_ERROR_TARGET, "the engine needs instruction set ", isa, " but this machine (",
         host_isa(), ") lacks ", missing, "; build it with target='cpu:", host_isa(), "'");
  }
  if (!std::any_of(needs.begin(), needs.end(), is_tiles)) return;
  if (const int refusal = request_tiles()) {
    fail(BRAZE_ERROR_TARGET, "the engine needs instruction set ", isa, " but this system refuses ",
         "its tiles to the process (arch_prctl: ", std::strerror(refusal),
         "); build it with target='cpu:", host_isa(), "'");
  }
}

}  // namespace braze
