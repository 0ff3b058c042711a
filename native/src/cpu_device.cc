#include <sys/mman.h>
#include <unistd.h>

#include <set>
#include <string_view>

#include "cpu_features.h"
#include "device.h"
#include "elf_loader.h"
#include "engine_format.h"
#include "error.h"
#include "library.h"

namespace braze {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

class CpuDevice : public Device {
 public:
  void load(const Plan& plan, const Section& code) override {
    check_target(plan);
    std::vector<ObjectBytes> objects;
    for (const Module& m : plan.modules) {
      objects.push_back({code.data + m.code.offset, static_cast<size_t>(m.code.bytes)});
    }
    image_ = std::make_unique<CodeImage>(objects);
    for (const Kernel& k : plan.kernels) {
      kernels_.push_back(image_->find(static_cast<size_t>(k.module), k.entry));
    }
  }

  Routine routine(const Plan& plan, const Step& step) const override {
    if (const auto* const launch = std::get_if<Launch>(&step)) {
      return {kernels_[static_cast<size_t>(launch->kernel)], nullptr, {}, 0};
    }
    if (const auto* const call = std::get_if<LibraryCall>(&step)) return find_routine(plan, *call);
    if (std::holds_alternative<Copy>(step)) return copy_routine();
    return {};
  }

  const unsigned char* upload(const Plan&, const Section& weights, int64_t) override {
    return weights.data;
  }

  // Pages come zero. Large blocks use huge pages (far fewer TLB misses); small ones would only waste
  // memory. A mapping of a huge page more than asked always holds an aligned block.
  void* allocate(int64_t bytes) override {
    void* mapping = MAP_FAILED;
    int64_t wanted = 0;
    if (!__builtin_add_overflow(bytes, slack(bytes), &wanted)) {
      mapping = mmap(nullptr, static_cast<size_t>(wanted), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (mapping == MAP_FAILED) {
      fail(BRAZE_ERROR_EXECUTION, "no memory for the ", bytes,
           " bytes of working memory this run needs; use fewer contexts or smaller shapes");
    }
    if (!is_huge(bytes)) return mapping;
    // give back what lies before and after the aligned block, so that its address says all
    const auto start = reinterpret_cast<uintptr_t>(mapping);
    const auto page = static_cast<uintptr_t>(kHugePageBytes);
    const uintptr_t skipped = (page - start % page) % page;
    auto* const block = static_cast<unsigned char*>(mapping) + skipped;
    const auto kept = static_cast<size_t>(whole_pages(bytes));
    if (skipped) munmap(mapping, skipped);
    const size_t rest = static_cast<size_t>(wanted) - skipped;
    if (whole_pages(static_cast<int64_t>(rest)) > static_cast<int64_t>(kept)) {
      munmap(block + kept, rest - kept);
    }
    madvise(block, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a hint: failure is harmless
    return block;
  }

  void release(void* memory, int64_t bytes) noexcept override {
    munmap(memory, static_cast<size_t>(is_huge(bytes) ? whole_pages(bytes) : bytes + slack(bytes)));
  }

 private:
  static bool is_huge(int64_t bytes) { return bytes >= 2 * kHugePageBytes; }
  static int64_t slack(int64_t bytes) { return is_huge(bytes) ? kHugePageBytes : 1; }
  static int64_t whole_pages(int64_t bytes) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
  }

  static void check_target(const Plan& plan) {
    std::set<std::string_view> needs;
    for (const Module& m : plan.modules) {
      if (m.kind != format::CodeKind::kElf) {
        fail(BRAZE_ERROR_TARGET, "the engine has code of kind ",
             format::kCodeKindNames[static_cast<size_t>(m.kind)], " for ", m.needs,
             ", which the native runtime does not run; load it with braze.load in Python, or build ",
             "it with target='cpu'");
      }
      needs.insert(m.needs);
    }
    for (const std::string_view isa : needs) require_isa(isa);
  }

  std::unique_ptr<CodeImage> image_;
  std::vector<braze_kernel_fn> kernels_;
};

}  // namespace

std::unique_ptr<Device> open_cpu() { return std::make_unique<CpuDevice>(); }

}  // namespace braze
