// Plans with loops, branches and sizes from data, for the tests and the fuzzer.
#pragma once

#include "plan_builder.h"

namespace braze::test {

constexpr int64_t kMostRows = 64;

// places[m] = where x[n] is not zero: the size m comes from data.
inline std::string nonzero_manifest(PlanBuilder& p) {
  const int n = p.axis_symbol("n", 0, 0, kMostRows);
  const int four = p.size(4), eight = p.size(8);
  const int x_bytes = p.size("mul", n, four);
  const int x = p.input("x", "float32", {n}, x_bytes);
  const int spare = p.arena(x_bytes, kMostRows * 4);  // a step before others that need new sizes
  const int places = p.arena(p.size("mul", n, eight), kMostRows * 8);
  const int count = p.arena(eight, 8);
  const int m = p.element_symbol("m", count, 0, kMostRows);
  const int found = p.size("mul", m, eight);
  const int y = p.output("y", "int64", {m}, found);
  p.debug("places", "int64", {m}, places, 1);
  p.main({p.library("nonzero", {{x, -1}, {places, -1}, {count, -1}}, {n},
                    "{\"dtype\":\"float32\"}"),
          p.sizes({{m, -1}}), p.copy({x, -1}, {spare, -1}, x_bytes),
          p.copy({places, -1}, {y, -1}, found)});
  return p.manifest(kernel_object().size());
}

// y = x, `trip` times one after the other: what is carried grows.
inline std::string growing_manifest(PlanBuilder& p) {
  const int n = p.axis_symbol("n", 0, 0, kMostRows);
  const int s = p.assigned_symbol("s", 4096);
  const int zero = p.size(0), four = p.size(4), eight = p.size(8);
  const int x_bytes = p.size("mul", n, four), s_bytes = p.size("mul", s, four);
  const int more = p.size("add", s, n);
  const int more_bytes = p.size("mul", more, four);
  const int x = p.input("x", "float32", {n}, x_bytes);
  const int trip = p.input("trip", "int64", {}, eight);
  const int y = p.output("y", "float32", {s}, s_bytes);
  const int kept = p.own(s_bytes), longer = p.own(more_bytes);
  const int body = p.body("append", {p.copy({kept, -1}, {longer, -1}, s_bytes),
                                     p.copy({x, -1}, {longer, s_bytes}, x_bytes)});
  PlanBuilder::LoopFields loop{body};
  loop.trip = {trip, -1};
  loop.carried = {{kept, {-1, -1}, {longer, -1}}};
  loop.sizes = {{s, zero, more}};
  p.main({p.loop(loop), p.copy({kept, -1}, {y, -1}, s_bytes)});
  return p.manifest(kernel_object().size());
}

// y = x after `outer` rounds; an odd round adds w `inner` times, an even one counts `inner` down and
// adds x each time. A loop in a branch in a loop, twice, with values carried through all of them.
inline std::string nested_manifest(PlanBuilder& p) {
  const int n = p.axis_symbol("n", 0, 0, kMostRows);
  const int one = p.size(1), four = p.size(4), eight = p.size(8);
  const int bytes = p.size("mul", n, four);
  const int x = p.input("x", "float32", {n}, bytes);
  const int outer = p.input("outer", "int64", {}, eight);
  const int inner = p.input("inner", "int64", {}, eight);
  const int y = p.output("y", "float32", {n}, bytes);
  const int w = p.weight(p.size(kMostRows * 4), 0);
  const int sum = p.arena(bytes, kMostRows * 4), next = p.arena(bytes, kMostRows * 4);
  const int part = p.arena(bytes, kMostRows * 4), counter = p.arena(eight, 8);
  const int number = p.arena(eight, 8), flag = p.arena(one, 1), going = p.arena(one, 1);
  const auto add = [&](int a, int b, int out) {
    return p.launch("add", {{a, -1}, {b, -1}, {out, -1}}, {n}, true);
  };
  // both inner loops keep their sum in `part`
  const int add_w = p.body("add_w", {add(part, w, next)});
  const int count = p.body("count", {p.launch("countdown", {{number, -1}, {going, -1}}, {}),
                                     add(part, x, next)});
  PlanBuilder::LoopFields with_trip{add_w};
  with_trip.trip = {inner, -1};
  with_trip.carried = {{part, {sum, -1}, {next, -1}}};
  PlanBuilder::LoopFields with_condition{count};
  with_condition.condition = {going, -1};
  with_condition.carried = {{part, {sum, -1}, {next, -1}}};
  const int odd = p.body("odd", {p.loop(with_trip)});
  const int even = p.body("even", {p.copy({inner, -1}, {number, -1}, eight),
                                   p.launch("positive", {{number, -1}, {going, -1}}, {}, false, {0}),
                                   p.loop(with_condition)});
  const int round = p.body("round", {p.launch("odd", {{counter, -1}, {flag, -1}}, {}),
                                     p.branch({flag, -1}, odd, even)});
  PlanBuilder::LoopFields rounds{round};
  rounds.trip = {outer, -1};
  rounds.counter = counter;
  rounds.carried = {{sum, {x, -1}, {part, -1}}};
  const int all = p.body("all", {p.loop(rounds)});
  p.debug("sum", "float32", {n}, sum, 0);
  p.main({p.call(all), p.copy({sum, -1}, {y, -1}, bytes)});
  return p.manifest(kernel_object().size());
}

// y = 3^trip x, an error when an element gets below zero: x is negative from the start or never.
inline std::string checked_manifest(PlanBuilder& p) {
  const int n = p.axis_symbol("n", 0, 0, kMostRows);
  const int four = p.size(4), eight = p.size(8);
  const int bytes = p.size("mul", n, four);
  const int x = p.input("x", "float32", {n}, bytes);
  const int trip = p.input("trip", "int64", {}, eight);
  const int y = p.output("y", "float32", {n}, bytes);
  const int next = p.arena(bytes, kMostRows * 4);
  const int body = p.body("triple", {p.launch("checked", {{y, -1}, {next, -1}}, {n}, true)});
  PlanBuilder::LoopFields loop{body};
  loop.trip = {trip, -1};
  loop.carried = {{y, {x, -1}, {next, -1}}};
  p.main({p.loop(loop)});
  return p.manifest(kernel_object().size());
}

// The same in a loop, and its size used after it: what the body of a loop gives is unknown there.
inline std::string scoped_manifest(PlanBuilder& p) {
  const int n = p.axis_symbol("n", 0, 0, kMostRows);
  const int four = p.size(4), eight = p.size(8);
  const int x = p.input("x", "float32", {n}, p.size("mul", n, four));
  const int trip = p.input("trip", "int64", {}, eight);
  const int places = p.arena(p.size("mul", n, eight), kMostRows * 8);
  const int count = p.arena(eight, 8);
  const int m = p.element_symbol("m", count, 0, kMostRows);
  const int found = p.size("mul", m, eight);
  const int y = p.output("y", "int64", {m}, found);
  const int body = p.body("find", {p.library("nonzero", {{x, -1}, {places, -1}, {count, -1}}, {n},
                                             "{\"dtype\":\"float32\"}"),
                                   p.sizes({{m, -1}}), p.copy({places, -1}, {y, -1}, found)});
  PlanBuilder::LoopFields loop{body};
  loop.trip = {trip, -1};
  p.main({p.loop(loop)});
  return p.manifest(kernel_object().size());
}

// No kernels at all, so that it may run however it is damaged: y = x in round 0, w in later ones, by
// way of a call and of an inner loop whose sizes are carried.
inline std::string steered_manifest(PlanBuilder& p) {
  const int n = p.axis_symbol("n", 0, 0, kMostRows);
  const int s = p.assigned_symbol("s", kMostRows);
  const int four = p.size(4), eight = p.size(8);
  const int bytes = p.size("mul", n, four), s_bytes = p.size("mul", s, four);
  const int x = p.input("x", "float32", {n}, bytes);
  const int trip = p.input("trip", "int64", {}, eight);
  const int y = p.output("y", "float32", {n}, bytes);
  const int w = p.weight(bytes, 0);
  const int counter = p.arena(eight, 8), kept = p.arena(bytes, kMostRows * 4);
  const int next = p.own(s_bytes);
  const int step = p.body("step", {p.copy({w, -1}, {next, -1}, s_bytes)});
  PlanBuilder::LoopFields inner{step};
  inner.trip = {trip, -1};
  inner.sizes = {{s, n, s}};
  inner.carried = {{kept, {w, -1}, {next, -1}}};
  const int later = p.body("later", {p.loop(inner)});
  const int first = p.body("first", {p.copy({x, -1}, {kept, -1}, bytes)});
  const int both = p.body("both", {p.branch({counter, -1}, later, first)});
  const int round = p.body("round", {p.call(both), p.copy({kept, -1}, {y, -1}, bytes)});
  PlanBuilder::LoopFields outer{round};
  outer.trip = {trip, -1};
  outer.counter = counter;
  p.main({p.copy({x, -1}, {y, -1}, bytes), p.loop(outer)});
  return p.manifest(kernel_object().size());
}

}  // namespace braze::test
