// What the parts of the driver share: names of cases, poison, and comparison.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../native/driver_common.h"
#include "cuda/kernels.h"

namespace driver {

void features();
void ascent();
void substitution();

// The case under way.
inline std::string name;
template <typename T>
void begin(const char* kernels, std::initializer_list<std::pair<const char*, std::int64_t>> sizes) {
  name = std::string(kernels) + (sizeof(T) == 4 ? " float32" : " float64");
  for (const auto& [what, size] : sizes)
    name += std::string(" ") + what + "=" + std::to_string(size);
}

inline void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "driver: %s: %s\n", name.c_str(), what);
  std::abort();
}
inline void launched(int error) { check(error == 0, cuda::error_text(error)); }

// What outputs are filled with.
template <typename T>
constexpr T kPoison = std::is_integral_v<T> ? T(-1) : std::numeric_limits<T>::quiet_NaN();
template <typename T>
std::vector<T> poisoned(std::int64_t count) {
  return std::vector<T>(count, kPoison<T>);
}

template <typename T>
constexpr double kEps = std::numeric_limits<T>::epsilon();

// `size` is what `allowed` is relative to. Poison that both left is equal.
inline void near(const char* what, double got, double want, double allowed, double size = 1) {
  const bool same = got == want || (std::isnan(got) && std::isnan(want));
  if (same || std::fabs(got - want) <= allowed * size) return;
  std::fprintf(stderr, "driver: got %.9g, not %.9g, where %.3g is allowed\n", got, want,
               allowed * size);
  check(false, what);
}

// Relative to the largest number, at least 1.
template <class Numbers>
void compare(const char* what, const Numbers& got, const Numbers& want, double allowed) {
  double size = 1;
  for (const auto x : want)
    if (std::isfinite(x)) size = std::max(size, std::fabs(static_cast<double>(x)));
  check(got.size() == want.size(), what);
  for (std::size_t k = 0; k < want.size(); ++k) near(what, got[k], want[k], allowed, size);
}

// Of all that the CUDA kernels have written (FNV-1a): the same whatever the order of threads.
inline std::uint64_t checksum = 14695981039346656037u;
template <class Numbers>
void remember(const Numbers& written) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(written.data());
  for (std::size_t k = 0; k < written.size() * sizeof *written.data(); ++k)
    checksum = (checksum ^ bytes[k]) * 1099511628211u;
}

constexpr WeightFn kFunctions[] = {WeightFn::kSoftmax, WeightFn::kRelu, WeightFn::kReluUnnormalized,
                                   WeightFn::kSquareplus, WeightFn::kSquareplusUnnormalized};
constexpr double kCurve = 0.48;

inline double weight(WeightFn fn, double score) {
  switch (fn) {
    case WeightFn::kSoftmax: return std::exp(score);
    case WeightFn::kRelu:
    case WeightFn::kReluUnnormalized: return std::max(score, 0.0);
    default: return 0.5 * (score + std::sqrt(score * score + kCurve));
  }
}

}  // namespace driver
