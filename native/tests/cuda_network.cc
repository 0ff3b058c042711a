#include "cuda_network.h"

#include <sstream>

namespace braze::test {
namespace {

std::string weights(int max_rows) {
  std::vector<float> out(static_cast<size_t>(max_rows * kCudaColumns));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i);
  return {reinterpret_cast<const char*>(out.data()), out.size() * 4};
}

// x, w and y of both networks.
struct Ends {
  Ends(PlanBuilder& b, int max_rows) {
    n = b.axis_symbol("n", 0, 0, max_rows);
    columns = b.size(kCudaColumns);
    count = b.size("mul", n, columns);
    bytes = b.size("mul", count, b.size(4));
    x = b.input("x", "float32", {n, columns}, bytes);
    y = b.output("y", "float32", {n, columns}, bytes);
    w = b.weight(bytes, 0);
    room = max_rows * kCudaColumns * 4;
  }
  int n, columns, count, bytes, x, y, w;
  int64_t room;
};

}  // namespace

std::string cuda_engine(const char* capability, int max_rows, int64_t many) {
  PlanBuilder b(capability);
  const Ends e(b, max_rows);
  const int sum = b.arena(e.bytes, e.room);
  const int kept = b.arena(e.bytes, e.room);
  const int rows = many == 1 ? e.n : b.size("mul", e.n, b.size(many));
  b.main({b.launch("add", {{e.x, -1}, {e.w, -1}, {sum, -1}}, {e.count}, false, {},
                   PlanBuilder::map(0, {rows, e.columns}, {e.columns}, {8, 16})),
          b.copy({sum, -1}, {kept, -1}, e.bytes, {0}),
          b.launch("checked", {{kept, -1}, {e.y, -1}}, {e.count}, false, {1})});
  return b.engine(weights(max_rows));
}

std::string cuda_branches(bool share) {
  PlanBuilder b("sm_90");
  const Ends e(b, 64);
  const auto add = [&](int left, int right, int out, std::vector<int> after) {
    return b.launch("add", {{left, -1}, {right, -1}, {out, -1}}, {e.count}, false, std::move(after));
  };
  const int one = b.arena(e.bytes, e.room);
  const int two = b.arena(e.bytes, e.room);
  const int both = b.arena(e.bytes, e.room);
  // written while `one` is dead already, where that was
  const int three = share ? b.arena_over(one, e.bytes) : b.arena(e.bytes, e.room);
  b.main({add(e.x, e.w, one, {}), add(e.x, e.w, two, {}), add(one, two, both, {0, 1}),
          add(e.x, e.w, three, {}), add(both, three, e.y, {2, 3})});
  return b.engine(weights(64));
}

std::string cuda_counters() {
  PlanBuilder b("sm_90");
  const Ends e(b, 64);
  b.counts("counted", 3);
  const int sum = b.arena(e.bytes, e.room);
  const int other = b.arena(e.bytes, e.room);
  b.main({b.launch("add", {{e.x, -1}, {e.w, -1}, {sum, -1}}, {e.count}),
          b.launch("counted", {{sum, -1}, {other, -1}}, {e.count}, false, {0}),
          b.launch("counted", {{sum, -1}, {e.y, -1}}, {e.count}, false, {0})});
  return b.engine(weights(64));
}

std::string cuda_many_weights() {
  PlanBuilder b("sm_90");
  constexpr int rows = 64;
  const Ends e(b, rows);
  const std::string w = weights(rows);
  std::string section;
  std::vector<std::string> steps;
  int from = e.x;
  for (int i = 0; i < 12; ++i) {
    const int weight = i == 0 ? e.w : b.weight(e.bytes, static_cast<int64_t>(section.size()));
    section += w + std::string(static_cast<size_t>(i % 3) * 4096, '\0');
    const int to = i == 11 ? e.y : b.arena(e.bytes, e.room);
    const std::vector<int> after = i ? std::vector<int>{i - 1} : std::vector<int>{};
    steps.push_back(b.launch("add", {{from, -1}, {weight, -1}, {to, -1}}, {e.count}, false, after));
    from = to;
  }
  b.main(steps);
  return b.engine(section);
}

int count_of(const char* line) {
  int count = 0;
  const std::string log = std::string("\n") + stub_log();
  const std::string wanted = std::string("\n") + line;
  for (size_t at = log.find(wanted); at != std::string::npos; at = log.find(wanted, at + 1)) ++count;
  return count;
}

std::string line_of(int64_t call) {
  std::istringstream log{stub_log()};
  std::string line;
  for (int64_t i = 0; i < call; ++i) std::getline(log, line);
  return line;
}

}  // namespace braze::test
