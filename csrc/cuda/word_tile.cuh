// How a tile of words lies in shared memory, and its products on tensor cores, for each type of
// word.
//
// A warp works on blocks of 16 columns. Which column a product's k stands for is free, as long as
// both factors agree; it is chosen so that every lane reads whole words of 4, 8 or 16 bytes and no
// two lanes of a transaction meet in one bank. Rows are padded so that neighbours lie 8 banks
// apart.
#pragma once

#include "../arguments.h"
#include "portable.h"

namespace wsfast {
namespace cuda {
namespace {

constexpr int kBlockColumns = 16;

template <typename T, int kCount>
struct Split {
  T high[kCount], low[kCount];
};
// What tensor cores take of a float, and what they take of the rest: together 21 bits of its 24.
template <int kCount>
__device__ __forceinline__ Split<float, kCount> split(const float (&x)[kCount]) {
  Split<float, kCount> out;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    out.high[k] = round_to_tf32(x[k]);
    out.low[k] = round_to_tf32(x[k] - out.high[k]);
  }
  return out;
}
template <int kCount>
__device__ __forceinline__ Split<double, kCount> split(const double (&x)[kCount]) {
  Split<double, kCount> out;
#pragma unroll
  for (int k = 0; k < kCount; ++k) out.high[k] = x[k];
  return out;
}

__device__ __forceinline__ float widen(unsigned half) { return __uint_as_float(half << 16); }

template <typename Word>
struct WordTile;

template <>
struct WordTile<float> {
  using Value = float;
  static constexpr int kPadding = 8;  // of a row, in words
  // The column of a block that element k = t + 4 half of a product's step stands for.
  static __device__ __forceinline__ int column(int step, int half, int t) {
    return 8 * step + 2 * t + half;
  }
  // b of both steps of a block of a word that starts at `from`.
  static __device__ __forceinline__ void load_block(const float* from, int t, float (&b)[2][2]) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const float2 pair = *reinterpret_cast<const float2*>(from + 8 * step + 2 * t);
      b[step][0] = pair.x;
      b[step][1] = pair.y;
    }
  }
  static __device__ __forceinline__ void load_pair(const float* from, float (&pair)[2]) {
    const float2 both = *reinterpret_cast<const float2*>(from);
    pair[0] = both.x;
    pair[1] = both.y;
  }
  // c += a b, each factor in two parts; low times low is below the rounding of the result.
  static __device__ __forceinline__ void multiply(float (&c)[4], const Split<float, 4>& a,
                                                  const float (&b)[2]) {
    const Split<float, 2> parts = split(b);
    multiply_tf32(c, a.low, parts.high);
    multiply_tf32(c, a.high, parts.low);
    multiply_tf32(c, a.high, parts.high);
  }
};

template <>
struct WordTile<Bfloat16> {
  using Value = float;
  static constexpr int kPadding = 16;
  static __device__ __forceinline__ int column(int step, int half, int t) {
    return 4 * t + 2 * step + half;
  }
  static __device__ __forceinline__ void load_block(const Bfloat16* from, int t, float (&b)[2][2]) {
    const uint2 four = *reinterpret_cast<const uint2*>(from + 4 * t);
    b[0][0] = widen(four.x & 0xffffu);
    b[0][1] = widen(four.x >> 16);
    b[1][0] = widen(four.y & 0xffffu);
    b[1][1] = widen(four.y >> 16);
  }
  static __device__ __forceinline__ void load_pair(const Bfloat16* from, float (&pair)[2]) {
    const unsigned both = *reinterpret_cast<const unsigned*>(from);
    pair[0] = widen(both & 0xffffu);
    pair[1] = widen(both >> 16);
  }
  // Tensor cores take a bfloat16 whole.
  static __device__ __forceinline__ void multiply(float (&c)[4], const Split<float, 4>& a,
                                                  const float (&b)[2]) {
    multiply_tf32(c, a.low, b);
    multiply_tf32(c, a.high, b);
  }
};

template <>
struct WordTile<double> {
  using Value = double;
  static constexpr int kPadding = 4;
  static __device__ __forceinline__ int column(int step, int half, int t) {
    return 8 * step + t + 4 * half;
  }
  static __device__ __forceinline__ void load_block(const double* from, int t, double (&b)[2][2]) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      b[step][0] = from[8 * step + t];
      b[step][1] = from[8 * step + t + 4];
    }
  }
  static __device__ __forceinline__ void load_pair(const double* from, double (&pair)[2]) {
    const double2 both = *reinterpret_cast<const double2*>(from);
    pair[0] = both.x;
    pair[1] = both.y;
  }
  static __device__ __forceinline__ void multiply(double (&c)[4], const Split<double, 4>& a,
                                                  const double (&b)[2]) {
    multiply_f64(c, a.high, b);
  }
};

}  // namespace
}  // namespace cuda
}  // namespace wsfast
