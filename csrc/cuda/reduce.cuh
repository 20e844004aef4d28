// Sums and maxima over the threads of a warp or a block.
#pragma once

#include "portable.h"

namespace wsfast::cuda {

constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr int kWarp = 32;

struct Add {
  template <typename T>
  __device__ __forceinline__ T operator()(T x, T y) const {
    return x + y;
  }
};
struct Larger {
  template <typename T>
  __device__ __forceinline__ T operator()(T x, T y) const {
    return x > y ? x : y;
  }
};

// Over each kLanes neighbours of a warp, which all get the result; all lanes of the warp take part.
template <int kLanes = kWarp, class Combine, typename T>
__device__ __forceinline__ T over_warp(Combine combine, T value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    value = combine(value, __shfl_xor_sync(kWholeWarp, value, offset));
  return value;
}

// Every thread gets the results, which do not depend on the order of threads. `scratch` holds
// kCount numbers for each of the kThreads / 32 warps; all threads must have left what it held
// before.
template <int kThreads, class Combine, typename T, int kCount>
__device__ __forceinline__ void over_block(Combine combine, T (&values)[kCount], T* scratch) {
  constexpr int kWarps = kThreads / kWarp;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int k = 0; k < kCount; ++k) values[k] = over_warp(combine, values[k]);
  __syncthreads();
  if (lane == 0) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) scratch[k * kWarps + warp] = values[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    values[k] = scratch[k * kWarps];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) values[k] = combine(values[k], scratch[k * kWarps + w]);
  }
}

}  // namespace wsfast::cuda
