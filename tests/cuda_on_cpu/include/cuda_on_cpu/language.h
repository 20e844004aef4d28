// CUDA's words, vectors and functions of numbers, as far as the kernels use them. `__shared__` is
// left out on purpose: a shared array that does not go through shared_memory.h would be neither
// poisoned nor fenced, so it must not compile.
#pragma once

#include <math.h>  // fmaxf and its like, outside namespace std

#include <atomic>
#include <bit>

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

// Aligned as in CUDA, so that a sanitizer sees a misaligned access.
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }

template <class T>
T __ldg(const T* address) {
  return *address;
}

// Relaxed as in CUDA: they order no other access.
template <class T>
T atomicAdd(T* address, T value) {
  return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}
template <class T>
T atomicMax(T* address, T value) {
  const std::atomic_ref<T> held(*address);
  T before = held.load(std::memory_order_relaxed);
  while (before < value && !held.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
  return before;
}
