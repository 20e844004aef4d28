// What the parts of the driver share.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "cpu/dispatch.h"

using namespace wsfast;

namespace {

template <typename T>
const Kernels<T>& table();
template <>
const Kernels<float>& table<float>() {
  return kernels().f32;
}
template <>
const Kernels<double>& table<double>() {
  return kernels().f64;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "driver: %s\n", what);
  std::abort();
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  double normal() { return normal_(engine_); }
  double uniform() { return uniform_(engine_); }
  template <typename T>
  std::vector<T> normals(std::int64_t count, double size = 1) {
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(size * normal());
    return values;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<double> normal_{0, 1};
  std::uniform_real_distribution<double> uniform_{0, 1};
};

template <typename T>
void require_finite(const std::vector<T>& values, const char* what) {
  for (const T value : values) require(std::isfinite(value), what);
}

inline bool normalized(WeightFn fn) {
  return fn != WeightFn::kReluUnnormalized && fn != WeightFn::kSquareplusUnnormalized;
}

}  // namespace
