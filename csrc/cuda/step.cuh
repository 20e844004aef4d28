// One accepted-or-refused step of the ascent, with a block for each row.
#pragma once

#include "../formulas.h"
#include "rows.cuh"

namespace wsfast {
namespace cuda {
namespace {

template <int kThreads, int kWidth, typename T>
__global__ void __launch_bounds__(kThreads, kResident / kThreads)
    step_kernel(const __grid_constant__ StepRows<T> in) {
  WSFAST_SHARED(T, scratch, 3 * kThreads / kWarp);
  const Index m = blockIdx.x, d = in.d;
  T *const delta = in.delta + m * d, *const best = in.best_delta + m * d,
           *const gradient = in.best_gradient + m * d;
  const T* const tried_gradient = in.gradient + m * d;
  const T value = in.value[m], radius = in.radius, old_beta = in.beta[m];
  const bool better = value > in.best_value[m];
  const T beta = !better ? T(0.5) * old_beta : (old_beta < T(0.5) ? T(2) * old_beta : T(1));
  const T counted = in.risen[m],
          risen = better ? counted + T(1) : (counted < T(0) ? counted : T(0));

  T sums[3] = {0, 0, 0};
#pragma unroll 2
  for (Index k = threadIdx.x * kWidth; k < d; k += kThreads * kWidth) {
    const auto x = load<kWidth>(better ? delta + k : best + k),
               g = load<kWidth>(better ? tried_gradient + k : gradient + k);
    if (better) {
      auto move = load<kWidth>(best + k);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) move.at[e] = x.at[e] - move.at[e];
      store(delta + k, move);
      store(best + k, x);
      store(gradient + k, g);
    }
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      sums[0] += g.at[e] * g.at[e];
      sums[1] += g.at[e] * x.at[e];
      sums[2] += x.at[e] * x.at[e];
    }
  }
  over_block<kThreads>(Add{}, sums, scratch);  // behind its barrier all have read what changes here
  if (threadIdx.x == 0) {
    in.beta[m] = beta;
    in.risen[m] = risen;
    if (better) in.best_value[m] = value;
  }

  // From here on each thread reads what it wrote itself.
  const T norm = root(sums[0]), along = sums[1], length = root(sums[2]);
  const bool flat = !(norm > T(0));
  const T keep = flat ? T(1) : T(1) - beta, pull = flat ? T(0) : beta * radius / norm;
  const T carry = flat ? T(0) : momentum(risen);
  T norm2[1] = {0};
#pragma unroll 2
  for (Index k = threadIdx.x * kWidth; k < d; k += kThreads * kWidth) {
    auto x = load<kWidth>(best + k);
    const auto g = load<kWidth>(gradient + k);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) x.at[e] = keep * x.at[e] + pull * g.at[e];
    if (carry > T(0)) {  // else what was tried, and refused, lies there
      const auto move = load<kWidth>(delta + k);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) x.at[e] += carry * move.at[e];
    }
#pragma unroll
    for (int e = 0; e < kWidth; ++e) norm2[0] += x.at[e] * x.at[e];
    store(delta + k, x);
  }
  if (flat) return;
  over_block<kThreads>(Add{}, norm2, scratch);
  // Stay on the sphere while the objective rises outwards; else walk inside the ball, which is
  // convex.
  const bool outward = along >= T(0) && length >= radius * T(0.999);
  const T now = root(norm2[0]);
  if (!(now > T(0) && (outward || now > radius))) return;
  const T rescale = radius / now;
#pragma unroll 2
  for (Index k = threadIdx.x * kWidth; k < d; k += kThreads * kWidth) {
    auto x = load<kWidth>(delta + k);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) x.at[e] *= rescale;
    store(delta + k, x);
  }
}

}  // namespace

template <typename T>
int take_step(const StepRows<T>& in, Stream stream) {
  const bool is_wide = wide<T>(in.d, in.delta, in.gradient, in.best_delta, in.best_gradient);
  return with_shape<T>(in.d, is_wide, [&](auto threads, auto width) {
    return launch_rows(step_kernel<decltype(threads)::value, decltype(width)::value, T>, in.rows,
                       threads, stream, in);
  });
}

}  // namespace cuda
}  // namespace wsfast
