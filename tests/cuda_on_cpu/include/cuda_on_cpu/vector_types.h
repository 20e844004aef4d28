// float4 and its relatives, aligned as in CUDA, so that a sanitizer sees a misaligned access.
#pragma once

#include <cstddef>

#define CUDA_ON_CPU_VECTORS(T, name, size)                   \
  struct alignas(2 * size) name##2 { T x, y; };              \
  struct name##3 { T x, y, z; };                             \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }
// CUDA has four numbers in one access of at most 16 bytes.
#define CUDA_ON_CPU_VECTORS_OF_4(T, name, size)       \
  CUDA_ON_CPU_VECTORS(T, name, size)                  \
  struct alignas(4 * size) name##4 { T x, y, z, w; }; \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

CUDA_ON_CPU_VECTORS_OF_4(signed char, char, 1)
CUDA_ON_CPU_VECTORS_OF_4(unsigned char, uchar, 1)
CUDA_ON_CPU_VECTORS_OF_4(short, short, 2)
CUDA_ON_CPU_VECTORS_OF_4(unsigned short, ushort, 2)
CUDA_ON_CPU_VECTORS_OF_4(int, int, 4)
CUDA_ON_CPU_VECTORS_OF_4(unsigned, uint, 4)
CUDA_ON_CPU_VECTORS_OF_4(float, float, 4)
CUDA_ON_CPU_VECTORS(long long, longlong, 8)
CUDA_ON_CPU_VECTORS(unsigned long long, ulonglong, 8)
CUDA_ON_CPU_VECTORS(double, double, 8)

#undef CUDA_ON_CPU_VECTORS
#undef CUDA_ON_CPU_VECTORS_OF_4

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
