// Weights of attention, by a weight function that is chosen at run time.
#pragma once

#include "../weight_fn.h"
#include "reduce.cuh"

namespace wsfast::cuda {

template <typename T>
constexpr T kNoScore = -Bits<T>::kHuge;  // of a word that is not seen: its weight is 0

template <typename T>
struct Weigh {
  WeightFn fn;
  T curve;
  __device__ __forceinline__ bool exponential() const { return fn == WeightFn::kSoftmax; }
  __device__ __forceinline__ bool normalized() const {
    return fn != WeightFn::kReluUnnormalized && fn != WeightFn::kSquareplusUnnormalized;
  }
  // `shift` is taken from scores of the exponential.
  __device__ __forceinline__ T operator()(T score, T shift) const {
    if (score != score) return score;  // ReLU would drop what is not a number
    switch (fn) {
      case WeightFn::kSoftmax: return exp_of(score - shift);
      case WeightFn::kRelu:
      case WeightFn::kReluUnnormalized: return Relu{}.weight_of(score, T(0));
      default: return Squareplus<T>{curve}.value(score);
    }
  }
  // What makes weights of this sum attention.
  __device__ __forceinline__ T scale(T sum) const {
    return !normalized() ? T(1) : sum != T(0) ? T(1) / sum : T(0);
  }
};

}  // namespace wsfast::cuda
