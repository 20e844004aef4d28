// What csrc/cuda/portable.h has for a GPU.
#pragma once

#include <cstdint>
#include <cstring>

#include "collectives.h"
#include "copies.h"
#include "language.h"
#include "shared_memory.h"

#define WSFAST_SHARED(T, name, count) \
  T* name = ::cuda_on_cpu::shared_array<T>(__COUNTER__, __LINE__, (count))
#define WSFAST_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(::cuda_on_cpu::dynamic_shared())

namespace wsfast::cuda {

using ::cuda_on_cpu::await_copies, ::cuda_on_cpu::close_copies, ::cuda_on_cpu::copy_async;

inline double toward_zero(double x, int bits) {
  std::uint64_t all;
  std::memcpy(&all, &x, sizeof all);
  all &= ~std::uint64_t{0} << (53 - bits);
  std::memcpy(&x, &all, sizeof all);
  return x;
}

inline void multiply_tf32(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
  struct Fragments {
    double a[4], b[2];
  } mine;
  for (int e = 0; e < 4; ++e) mine.a[e] = toward_zero(a[e], 11);
  for (int e = 0; e < 2; ++e) mine.b[e] = toward_zero(b[e], 11);
  const auto all = ::cuda_on_cpu::gather(mine);
  const int lane = ::cuda_on_cpu::lane(), g = lane / 4, t = lane % 4;
  for (int e = 0; e < 4; ++e) {
    const int row = g + 8 * (e / 2), column = 2 * t + e % 2;
    for (int half = 0; half < 2; ++half) {
      double sum = c[e];
      for (int k = 0; k < 4; ++k)
        sum += all[row % 8 * 4 + k].a[row / 8 + 2 * half] * all[column * 4 + k].b[half];
      c[e] = static_cast<float>(toward_zero(sum, 24));
    }
  }
}

inline void forget_derived(float&) {}
inline float reciprocal(float x) { return 1.0f / x; }
inline double reciprocal(double x) { return 1.0 / x; }

}  // namespace wsfast::cuda
