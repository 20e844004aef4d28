// What the kernels share in which each lane of a warp has a candidate of its own, and the warps of
// a block share out the rows.
#pragma once

#include "../substitution_formulas.h"
#include "../weight_fn.h"
#include "rows.cuh"

namespace wsfast::cuda {

constexpr int kRowWarps = 8;
constexpr int kRowThreads = kRowWarps * kWarp;
// Blocks that a multiprocessor is to hold at once, as __launch_bounds__ wants them.
template <typename T>
constexpr int kBlocksAtOnce = sizeof(T) == sizeof(float) ? 4 : 2;

// The thread's candidate in arrays with a column for each. Beyond the last candidate nothing is
// read or written: zeros stand in.
template <typename T>
struct Column {
  Index at, stride;
  bool there;

  __device__ __forceinline__ Column(const SubstitutionTile<T>& tile, Index at_)
      : at(at_), stride(tile.stride), there(at_ < tile.candidates) {}
  __device__ __forceinline__ T get(const T* rows, Index row = 0) const {
    return there ? rows[row * stride + at] : T(0);
  }
  __device__ __forceinline__ void put(T* rows, Index row, T value) const {
    if (there) rows[row * stride + at] = value;
  }
};

// Sums over the warps for each lane, in the order of the warps. `scratch` holds kCount numbers a
// thread; all threads must have left what it held before.
template <typename T, int kCount>
__device__ __forceinline__ void over_warps(T (&sums)[kCount], T* scratch) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int k = 0; k < kCount; ++k) scratch[k * kRowThreads + threadIdx.x] = sums[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    sums[k] = scratch[k * kRowThreads + lane];
#pragma unroll
    for (int warp = 1; warp < kRowWarps; ++warp)
      sums[k] += scratch[k * kRowThreads + warp * kWarp + lane];
  }
}

// ---- bounds of the norm whose square was computed

// Relative; covers the rounding of the bounds themselves.
template <typename T>
constexpr T kMargin = sizeof(T) == 4 ? T(1e-6) : T(1e-14);

// Of the square `value`, whose terms have the size `size`, all parts of it together; `norm_error`
// is the error of the norm that scores may cause.
template <typename T>
__device__ __forceinline__ T lower_bound(T value, T size, T product_error, T norm_error) {
  const T least = value - T(2) * product_error * size * (T(1) + kMargin<T>);
  const T norm = least > T(0) ? root(least) : T(0);
  const T low = norm * (T(1) - kMargin<T>)-norm_error * (T(1) + kMargin<T>);
  return least == least && low == low ? low : -Bits<T>::kHuge;  // not where either is not a number
}
template <typename T>
__device__ __forceinline__ T upper_bound(T value, T size, T product_error, T norm_error) {
  const T most = value + T(2) * product_error * size * (T(1) + kMargin<T>);
  const T norm = most > T(0) ? root(most) : T(0);
  const T high = (norm + norm_error) * (T(1) + T(2) * kMargin<T>);
  return most == most && high == high ? high : Bits<T>::kHuge;
}

}  // namespace wsfast::cuda
