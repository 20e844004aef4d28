// Bounds of the norm whose square the kernels of substitution computed.
#pragma once

#include "../substitution_formulas.h"
#include "reduce.cuh"

namespace wsfast {
namespace cuda {
namespace {

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

}  // namespace
}  // namespace cuda
}  // namespace wsfast
