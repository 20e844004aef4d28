// The weights of a row of attention, met a tile of words at a time: the online softmax, or a plain
// sum, without the row's largest word.
#pragma once

#include "../weight_fn.h"
#include "reduce.cuh"

namespace wsfast {
namespace cuda {
namespace {

constexpr int kKeys = 16;  // words of a tile, one for each lane of a half-warp

// What every thread of a row's half-warp knows of the row so far.
template <typename T>
struct RowState {
  T top_score;
  int top;       // -1: no word yet
  T shift, sum;  // of the other weights; shift is their largest score, for softmax
};

// What a tile does to a row's phi.
template <typename T>
struct TileChange {
  T rescale;  // of what phi was
  T again;    // weight of the word that was the largest until now
  int again_word;
};

template <typename T>
struct Weigh {
  WeightFn fn;
  T curve;
  __device__ __forceinline__ bool exponential() const { return fn == WeightFn::kSoftmax; }
  __device__ __forceinline__ bool normalized() const {
    return fn != WeightFn::kReluUnnormalized && fn != WeightFn::kSquareplusUnnormalized;
  }
  __device__ __forceinline__ T operator()(T score, T shift) const {
    switch (fn) {
      case WeightFn::kSoftmax: return exp_of(score - shift);
      case WeightFn::kRelu:
      case WeightFn::kReluUnnormalized: return Relu{}.weight(score, T(0)).value;
      default: return Squareplus<T>{curve}.value(score);
    }
  }
};

__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }

template <typename T>
constexpr T kNoScore = -Bits<T>::kHuge;

// Takes a tile's scores into the row, one for each lane, kNoScore where there is no word; returns
// this lane's weight.
template <typename T>
__device__ __forceinline__ T see_tile(const Weigh<T>& weigh, T score, int word, RowState<T>& row,
                                      TileChange<T>& change) {
  const T tile_top = over_warp<kKeys>(Larger{}, score);
  // The first of equal scores.
  const int place =
      over_warp<kKeys>(Larger{}, score == tile_top && score > kNoScore<T> ? -word : INT32_MIN);
  const bool rises = place != INT32_MIN && tile_top > row.top_score;
  const T old_score = row.top_score;
  const int old_top = row.top;
  if (rises) {
    row.top_score = tile_top;
    row.top = -place;
  }
  const bool again = rises && old_top >= 0;
  const bool counts = score != kNoScore<T> && word != row.top;
  change = {T(1), T(0), old_top};
  if (weigh.exponential()) {
    T shift = over_warp<kKeys>(Larger{}, counts ? score : kNoScore<T>);
    shift = larger(shift, row.shift);
    if (again) shift = larger(shift, old_score);
    if (row.shift > kNoScore<T> && shift > row.shift) change.rescale = exp_of(row.shift - shift);
    row.shift = shift;
  }
  // What is not a number must not vanish: ReLU and maxima would drop it.
  const T weight = !counts ? T(0) : score == score ? weigh(score, row.shift) : score;
  if (again) change.again = weigh(old_score, row.shift);
  row.sum = row.sum * change.rescale + over_warp<kKeys>(Add{}, weight) + change.again;
  return weight;
}

// phi = keep (sum of the others) + pull (largest word), the others' mean = mean (their sum).
template <typename T>
struct RowEnd {
  T keep, pull, mean;
  int top;
};
template <typename T>
__device__ __forceinline__ RowEnd<T> end_row(const Weigh<T>& weigh, const RowState<T>& row) {
  const bool some = row.top >= 0;
  T by_rest = T(1), top_weight = some ? T(1) : T(0);
  if (weigh.exponential()) {
    if (some) by_rest = row.shift > kNoScore<T> ? exp_of(row.shift - row.top_score) : T(0);
  } else if (some) {
    top_weight = weigh(row.top_score, T(0));
  }
  T scale = T(1), mean = T(1);
  if (weigh.normalized()) {
    const T total = top_weight + by_rest * row.sum;
    scale = total != T(0) ? T(1) / total : T(0);
    mean = row.sum != T(0) ? T(1) / row.sum : T(0);
  }
  return {by_rest * scale, top_weight * scale, mean, row.top};
}

}  // namespace
}  // namespace cuda
}  // namespace wsfast
