// Scores to attention weights, in place, between two products of the library.
#pragma once

#include "launch.h"
#include "weigh.cuh"

namespace wsfast::cuda {

constexpr int kRowThreads = 256;

__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }

// A warp for each row.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) attention_rows_kernel(const AttentionRows<T> in) {
  const int n = static_cast<int>(in.n), lane = threadIdx.x % kWarp;
  const Index row = blockIdx.x * Index{kRowThreads / kWarp} + threadIdx.x / kWarp;
  if (row >= in.rows) return;
  T* scores = in.scores + row * n;
  const std::uint8_t* mask = in.mask ? in.mask + row / in.rows_per_mask * n : nullptr;
  const Weigh<T> weigh{in.weight_fn, in.curve};
  int top = -1;
  const auto score_of = [&](int l) {
    return l != top && (mask == nullptr || mask[l] != 0) ? scores[l] : kNoScore<T>;
  };
  const auto largest_score = [&] {
    T largest = kNoScore<T>;
    for (int l = lane; l < n; l += kWarp) largest = larger(score_of(l), largest);
    return over_warp(Larger{}, largest);
  };

  T shift = in.top || weigh.exponential() ? largest_score() : T(0);
  if (in.top) {
    int place = n - 1;  // the first of equal scores
    for (int l = lane; l < n; l += kWarp)
      if (score_of(l) == shift && l < place) place = l;
    top = -over_warp(Larger{}, -place);
    if (lane == 0) {
      in.top[row] = top;
      in.top_score[row] = shift;
    }
    if (weigh.exponential()) shift = largest_score();
  }
  // No word at all, or none beside the largest.
  const bool none = weigh.exponential() && shift == kNoScore<T>;
  T sum = 0;
  for (int l = lane; l < n; l += kWarp) {
    const T weight = none ? T(0) : weigh(score_of(l), shift);
    scores[l] = weight;
    sum += weight;
  }
  sum = over_warp(Add{}, sum);
  if (in.top && lane == 0) in.others[row] = weigh.exponential() ? shift + log_of(sum) : sum;
  const T scale = weigh.scale(sum);
  for (int l = lane; l < n; l += kWarp) scores[l] *= scale;
}

template <typename T>
int attention_rows(const AttentionRows<T>& in, Stream stream) {
  return launch(attention_rows_kernel<T>, blocks_of(in.rows, kRowThreads / kWarp), kRowThreads, 0,
                stream, in);
}

}  // namespace wsfast::cuda
