// From the own row's products to the coefficients of the gradient, by the Gram matrix (see
// ascent.cuh), and from those to an accepted-or-refused step of the ascent.
#pragma once

#include "ascent.cuh"

namespace wsfast::cuda {

// `by_gram` (M, n) is the own row's change of attention times XX^T.
template <typename T>
__global__ void __launch_bounds__(kPointThreads, kPointBlocks)
    backward_kernel(const __grid_constant__ PositionState<T> p,
                    const __grid_constant__ AscentRows<T> rows, const T* const by_gram,
                    const bool normalized) {
  WSFAST_SHARED(T, scratch, 3 * kPointThreads / kWarp);
  const Index m = blockIdx.x, n = p.n;
  const Index i = p.index[blockIdx.x / static_cast<unsigned>(p.starts)];
  const Products<T> at(rows, m, n, p.d);
  const T *const gram = by_gram + m * n, *const weight = rows.own_weight + m * n,
                 *const change = rows.own_change + m * n, *const slope = rows.own_slope + m * n;
  T* const scalars = rows.scalars + m * kScalars;
  const T alpha = scalars[2], delta2 = scalars[3];
  T sums[3] = {0, 0, 0};
  for (Index l = threadIdx.x; l < n; l += kPointThreads) {
    sums[0] += weight[l] * (gram[l] + alpha * at.words[l]);
    sums[1] += change[l] * gram[l];
    sums[2] += change[l] * at.words[l];
  }
  over_block<kPointThreads>(Add{}, sums, scratch);
  const T along = sums[2] + alpha * delta2;  // delta_i.Delta
  const T mean = normalized ? sums[0] + weight[i] * along : T(0);
  for (Index l = threadIdx.x; l < n; l += kPointThreads) {
    const T by_word = gram[l] + alpha * at.words[l];  // delta_i.x_l
    const T by_score = T(2) * slope[l] * (by_word - mean + (l == i ? along : T(0)));
    at.own[l] = by_score;
    at.words[l] = T(2) * alpha * change[l];
    if (l == i) at.score[l] = scalars[4] = by_score;
  }
  if (threadIdx.x == 0) {
    rows.value[m] += larger(sums[1] + alpha * (sums[2] + along), T(0));
    scalars[1] += alpha * alpha;
  }
}

// What is left to add to a point's gradient that comes in as coefficients [X; Y; Phi; K]: to its
// columns `g` from k on, where Delta is `x`.
template <typename T>
__device__ __forceinline__ void add_rest(const PositionState<T>& p, const AscentRows<T>& rows,
                                         Index k, const Pack<kWide<T>, T>& x,
                                         Pack<kWide<T>, T>& g) {
  const unsigned starts = static_cast<unsigned>(p.starts), position = blockIdx.x / starts;
  const T* const coef = rows.dominated_coef + blockIdx.x % starts * p.dominated_start[p.positions];
  const T* const s = rows.scalars + blockIdx.x * kScalars;
  const T by_word = s[0], by_delta = T(2) * s[1], by_bilinear = s[4];
  const auto w = load(p.word + position * p.d + k);
  const auto b = load(Products<T>(rows, blockIdx.x, p.n, p.d).bilinear + k);
#pragma unroll
  for (int e = 0; e < kWide<T>; ++e)
    g.at[e] += by_word * w.at[e] + by_delta * x.at[e] + by_bilinear * b.at[e];
#pragma unroll 2
  for (Index j = p.dominated_start[position]; j < p.dominated_start[position + 1]; ++j) {
    const T by_mean = coef[j];
    const auto mean = load(p.dominated_mean + j * p.d + k);
#pragma unroll
    for (int e = 0; e < kWide<T>; ++e) g.at[e] += by_mean * mean.at[e];
  }
}

// Where a row that has hardly risen ends; see Stalls.
template <typename T>
__device__ __forceinline__ void count_step(const Stalls<T>& stalls, Index m, T value) {
  const Index taken = stalls.taken[m];
  T* const before = stalls.history + m * kPatience + taken % kPatience;
  if (taken >= kPatience && value <= *before * stalls.least) stalls.ended[m] = 1;
  *before = value;
  stalls.taken[m] = taken + 1;
}

template <typename T>
__global__ void __launch_bounds__(kPointThreads, kPointBlocks)
    step_kernel(const __grid_constant__ PositionState<T> p,
                const __grid_constant__ AscentRows<T> rows, const __grid_constant__ StepRows<T> in,
                const __grid_constant__ Stalls<T> stalls) {
  WSFAST_SHARED(T, scratch, 3 * kPointThreads / kWarp);
  const Index m = blockIdx.x, d = in.d;
  const bool counts = stalls.ended != nullptr;
  if (counts && stalls.ended[m]) return;
  T *const delta = in.delta + m * d, *const best = in.best_delta + m * d,
           *const gradient = in.best_gradient + m * d;
  const T value = in.value[m], best_value = in.best_value[m], radius = in.radius,
          old_beta = in.beta[m];
  const bool better = value > best_value;
  const T beta = !better ? T(0.5) * old_beta : (old_beta < T(0.5) ? T(2) * old_beta : T(1));
  const T counted = in.risen[m],
          risen = better ? counted + T(1) : (counted < T(0) ? counted : T(0));

  T sums[3] = {0, 0, 0};
  const auto add = [&](const Pack<kWide<T>, T>& g, const Pack<kWide<T>, T>& x) {
#pragma unroll
    for (int e = 0; e < kWide<T>; ++e) {
      sums[0] += g.at[e] * g.at[e];
      sums[1] += g.at[e] * x.at[e];
      sums[2] += x.at[e] * x.at[e];
    }
  };
  if (better) {
    for (Index k = threadIdx.x * kWide<T>; k < d; k += kPointThreads * kWide<T>) {
      const auto x = load(delta + k);
      auto g = load(in.gradient + m * d + k);
      add_rest(p, rows, k, x, g);
      auto move = load(best + k);
#pragma unroll
      for (int e = 0; e < kWide<T>; ++e) move.at[e] = x.at[e] - move.at[e];
      store(delta + k, move);
      store(best + k, x);
      store(gradient + k, g);
      add(g, x);
    }
  } else {
    for (Index k = threadIdx.x * kWide<T>; k < d; k += kPointThreads * kWide<T>)
      add(load(gradient + k), load(best + k));
  }
  over_block<kPointThreads>(Add{}, sums, scratch);  // behind its barrier all have read what changes
  if (threadIdx.x == 0) {
    in.beta[m] = beta;
    in.risen[m] = risen;
    if (better) in.best_value[m] = value;
    if (counts) count_step(stalls, m, better ? value : best_value);
  }

  // From here on each thread reads what it wrote itself.
  const T norm = root(sums[0]), along = sums[1], length = root(sums[2]);
  const bool flat = !(norm > T(0));
  const T keep = flat ? T(1) : T(1) - beta, pull = flat ? T(0) : beta * radius / norm;
  const T carry = flat ? T(0) : momentum(risen);
  T norm2[1] = {0};
#pragma unroll 2
  for (Index k = threadIdx.x * kWide<T>; k < d; k += kPointThreads * kWide<T>) {
    auto x = load(best + k);
    const auto g = load(gradient + k);
#pragma unroll
    for (int e = 0; e < kWide<T>; ++e) x.at[e] = keep * x.at[e] + pull * g.at[e];
    if (carry > T(0)) {  // else what was tried, and refused, lies there
      const auto move = load(delta + k);
#pragma unroll
      for (int e = 0; e < kWide<T>; ++e) x.at[e] += carry * move.at[e];
    }
#pragma unroll
    for (int e = 0; e < kWide<T>; ++e) norm2[0] += x.at[e] * x.at[e];
    store(delta + k, x);
  }
  if (flat) return;
  over_block<kPointThreads>(Add{}, norm2, scratch);
  // Stay on the sphere while the objective rises outwards; else walk inside the ball, which is
  // convex.
  const bool outward = along >= T(0) && length >= radius * T(0.999);
  const T now = root(norm2[0]);
  if (!(now > T(0) && (outward || now > radius))) return;
  const T rescale = radius / now;
#pragma unroll 2
  for (Index k = threadIdx.x * kWide<T>; k < d; k += kPointThreads * kWide<T>) {
    auto x = load(delta + k);
#pragma unroll
    for (int e = 0; e < kWide<T>; ++e) x.at[e] *= rescale;
    store(delta + k, x);
  }
}

template <typename T>
int ascent_backward(const PositionState<T>& p, const AscentRows<T>& rows, const T* by_gram,
                    Stream stream) {
  const bool normalized = p.weight_fn != WeightFn::kReluUnnormalized &&
                          p.weight_fn != WeightFn::kSquareplusUnnormalized;
  return launch(backward_kernel<T>, blocks_of(p.positions * p.starts), kPointThreads, 0, stream, p,
                rows, by_gram, normalized);
}

template <typename T>
int ascent_step(const PositionState<T>& p, const AscentRows<T>& rows, const StepRows<T>& in,
                const Stalls<T>& stalls, Stream stream) {
  return launch(step_kernel<T>, blocks_of(in.rows), kPointThreads, 0, stream, p, rows, in, stalls);
}

}  // namespace wsfast::cuda
