// The gradient of each point, and one accepted-or-refused step of the ascent.
#pragma once

#include "../formulas.h"
#include "ascent.cuh"

namespace wsfast {
namespace cuda {
namespace {

// What is left to add to a gradient that comes in as coefficients [X; Y; Phi; K].
template <typename T>
struct Rest {
  const T *word, *delta, *bilinear, *coef, *means;
  Index first, last, d;
  T by_word, by_delta, by_bilinear;

  // To the pack `g` of the columns from k on.
  __device__ __forceinline__ void add(Index k, Pack<kWide<T>, T>& g) const {
    const auto w = load(word + k), x = load(delta + k), b = load(bilinear + k);
#pragma unroll
    for (int e = 0; e < kWide<T>; ++e)
      g.at[e] += by_word * w.at[e] + by_delta * x.at[e] + by_bilinear * b.at[e];
#pragma unroll 2
    for (Index j = first; j < last; ++j) {
      const T by_mean = coef[j];
      const auto mean = load(means + j * d + k);
#pragma unroll
      for (int e = 0; e < kWide<T>; ++e) g.at[e] += by_mean * mean.at[e];
    }
  }
};
template <typename T>
struct Lacking {
  PositionState<T> p;
  AscentRows<T> rows;

  __device__ __forceinline__ Rest<T> at(Index m) const {
    const Index position = m / p.starts, start = m % p.starts;
    const T* const s = rows.scalars + m * kScalars;
    return {p.word + position * p.d,
            rows.delta + m * p.d,
            Products<T>(rows, m, p.n, p.d).bilinear,
            rows.dominated_coef + start * p.dominated_start[p.positions],
            p.dominated_mean,
            p.dominated_start[position],
            p.dominated_start[position + 1],
            p.d,
            s[0],
            T(2) * s[1],
            s[4]};
  }
};
// A gradient that is whole.
struct Whole {
  __device__ __forceinline__ Whole at(Index) const { return {}; }
  template <typename Numbers>
  __device__ __forceinline__ void add(Index, Numbers&) const {}
};

template <typename T>
__global__ void __launch_bounds__(kPointThreads, kPointBlocks)
    gradient_kernel(const __grid_constant__ Lacking<T> lacking, T* const gradient) {
  const Index m = blockIdx.x, d = lacking.p.d;
  const Rest<T> rest = lacking.at(m);
  for (Index k = threadIdx.x * kWide<T>; k < d; k += kPointThreads * kWide<T>) {
    auto g = load(gradient + m * d + k);
    rest.add(k, g);
    store(gradient + m * d + k, g);
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

template <class Gradient, typename T>
__global__ void __launch_bounds__(kPointThreads, kPointBlocks)
    step_kernel(const __grid_constant__ StepRows<T> in, const __grid_constant__ Gradient tried,
                const __grid_constant__ Stalls<T> stalls) {
  WSFAST_SHARED(T, scratch, 3 * kPointThreads / kWarp);
  const Index m = blockIdx.x, d = in.d;
  const bool counts = stalls.ended != nullptr;
  if (counts && stalls.ended[m]) return;
  T *const delta = in.delta + m * d, *const best = in.best_delta + m * d,
           *const gradient = in.best_gradient + m * d;
  const T* const tried_gradient = in.gradient + m * d;
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
    const auto rest = tried.at(m);
    for (Index k = threadIdx.x * kWide<T>; k < d; k += kPointThreads * kWide<T>) {
      auto g = load(tried_gradient + k);
      rest.add(k, g);
      const auto x = load(delta + k);
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

}  // namespace

template <typename T>
int ascent_gradient(const PositionState<T>& p, const AscentRows<T>& rows, T* gradient,
                    Stream stream) {
  if (!whole<T>(p.d, gradient)) return cudaErrorInvalidValue;
  const Lacking<T> lacking{p, rows};
  return launch_rows(gradient_kernel<T>, p.positions * p.starts, stream, lacking, gradient);
}

template <class Gradient, typename T>
int step(const StepRows<T>& in, const Gradient& tried, const Stalls<T>& stalls, Stream stream) {
  if (!whole<T>(in.d, in.delta, in.gradient, in.best_delta, in.best_gradient))
    return cudaErrorInvalidValue;
  return launch_rows(step_kernel<Gradient, T>, in.rows, stream, in, tried, stalls);
}

template <typename T>
int ascent_step(const PositionState<T>& p, const AscentRows<T>& rows, const StepRows<T>& in,
                const Stalls<T>& stalls, Stream stream) {
  return step(in, Lacking<T>{p, rows}, stalls, stream);
}

template <typename T>
int take_step(const StepRows<T>& in, Stream stream) {
  return step(in, Whole{}, Stalls<T>{}, stream);
}

}  // namespace cuda
}  // namespace wsfast
