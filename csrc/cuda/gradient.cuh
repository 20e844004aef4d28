// The perturbed word's own row and the gradient, between the matrix products: the kernels of the
// same names in csrc/cpu/kernels.inl, with a block for each row m.
#pragma once

#include "../weight_fn.h"
#include "rows.cuh"

namespace wsfast {
namespace cuda {
namespace {

template <int kThreads, int kWidth, typename T>
__global__ void __launch_bounds__(kThreads, kResident / kThreads)
    own_row_kernel(const __grid_constant__ AscentRows<T> rows, const Index d, T* const own_delta) {
  WSFAST_SHARED(T, scratch, 4 * kThreads / kWarp);
  const Index m = blockIdx.x;
  T* const own = own_delta + m * d;
  const T* const delta = rows.delta + m * d;
  T* const scalars = rows.scalars + m * kScalars;
  const T alpha = scalars[2];
  T sums[4] = {0, 0, 0, 0};
#pragma unroll 2
  for (Index k = threadIdx.x * kWidth; k < d; k += kThreads * kWidth) {
    auto moved = load<kWidth>(own + k);
    const auto x = load<kWidth>(delta + k);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      sums[0] += moved.at[e] * moved.at[e];
      moved.at[e] += alpha * x.at[e];
      sums[1] += x.at[e] * x.at[e];
      sums[2] += moved.at[e] * moved.at[e];
      sums[3] += moved.at[e] * x.at[e];
    }
    store(own + k, moved);
  }
  over_block<kThreads>(Add{}, sums, scratch);
  if (threadIdx.x == 0) {
    scalars[3] = sums[3];
    rows.value[m] += sums[2];
    if (rows.size) rows.size[m] += sums[0] + alpha * alpha * sums[1];
  }
}

template <int kThreads, typename T>
__global__ void __launch_bounds__(kThreads, kResident / kThreads)
    backward_kernel(const __grid_constant__ PositionState<T> p,
                    const __grid_constant__ AscentRows<T> rows, const T* const own_products,
                    const bool normalized) {
  WSFAST_SHARED(T, scratch, kThreads / kWarp);
  const Index m = blockIdx.x, n = p.n;
  const Index i = p.index[blockIdx.x / static_cast<unsigned>(p.starts)];
  T* const products = rows.products + m * (3 * n + p.d);
  T *const own = products + 2 * n, *const scalars = rows.scalars + m * kScalars;
  const T *const h = own_products + m * n, *const weight = rows.own_weight + m * n,
                 *const slope = rows.own_slope + m * n;
  const T along = scalars[3];
  T mean[1] = {0};
  if (normalized) {
    for (Index l = threadIdx.x; l < n; l += kThreads) mean[0] += weight[l] * h[l];
    over_block<kThreads>(Add{}, mean, scratch);
    mean[0] += weight[i] * along;
  }
  for (Index l = threadIdx.x; l < n; l += kThreads) {
    const T by_score = T(2) * slope[l] * (h[l] - mean[0]);
    if (l == i) {
      const T by_own_score = by_score + T(2) * slope[l] * along;
      own[l] = by_own_score;
      products[l] = by_own_score;
      scalars[4] = by_own_score;
    } else {
      own[l] = by_score;
    }
  }
}

template <int kThreads, int kWidth, typename T>
__global__ void __launch_bounds__(kThreads, kResident / kThreads)
    gradient_kernel(const __grid_constant__ PositionState<T> p,
                    const __grid_constant__ AscentRows<T> rows, const T* const own_delta,
                    T* const gradient) {
  const Index m = blockIdx.x, n = p.n, d = p.d;
  const unsigned starts = static_cast<unsigned>(p.starts), position = blockIdx.x / starts,
                 start = blockIdx.x % starts;
  const Index first = p.dominated_start[position], last = p.dominated_start[position + 1];
  const T *delta = rows.delta + m * d, *word = p.word + position * d, *own = own_delta + m * d,
          *bilinear = rows.products + m * (3 * n + d) + 3 * n, *s = rows.scalars + m * kScalars,
          *coef = rows.dominated_coef + start * p.dominated_start[p.positions];
  const T by_word = s[0], by_delta = T(2) * s[1], by_own = T(2) * s[2], by_bilinear = s[4];
#pragma unroll 2
  for (Index k = threadIdx.x * kWidth; k < d; k += kThreads * kWidth) {
    auto g = load<kWidth>(gradient + m * d + k);
    const auto w = load<kWidth>(word + k), x = load<kWidth>(delta + k), o = load<kWidth>(own + k),
               b = load<kWidth>(bilinear + k, n % kWidth == 0);
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      g.at[e] += by_word * w.at[e] + by_delta * x.at[e] + by_own * o.at[e] + by_bilinear * b.at[e];
#pragma unroll 2
    for (Index j = first; j < last; ++j) {
      const T by_mean = coef[j];
      const auto mean = load<kWidth>(p.dominated_mean + j * d + k);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) g.at[e] += by_mean * mean.at[e];
    }
    store(gradient + m * d + k, g);
  }
}

}  // namespace

template <typename T>
int own_row(const PositionState<T>& p, const AscentRows<T>& rows, T* own_delta, Stream stream) {
  return with_shape<T>(p.d, wide<T>(p.d, rows.delta, own_delta), [&](auto threads, auto width) {
    return launch_rows(own_row_kernel<decltype(threads)::value, decltype(width)::value, T>,
                       p.positions * p.starts, threads, stream, rows, p.d, own_delta);
  });
}

template <typename T>
int ascent_backward(const PositionState<T>& p, const AscentRows<T>& rows, const T* own_products,
                    Stream stream) {
  const bool normalized =
      with_weight_fn(p.weight_fn, p.curve, [](const auto& g) { return g.kNormalized; });
  return with_threads(p.n, [&](auto threads) {
    return launch_rows(backward_kernel<decltype(threads)::value, T>, p.positions * p.starts,
                       threads, stream, p, rows, own_products, normalized);
  });
}

template <typename T>
int ascent_gradient(const PositionState<T>& p, const AscentRows<T>& rows, const T* own_delta,
                    T* gradient, Stream stream) {
  const bool is_wide =
      wide<T>(p.d, rows.delta, p.word, own_delta, rows.products, p.dominated_mean, gradient);
  return with_shape<T>(p.d, is_wide, [&](auto threads, auto width) {
    return launch_rows(gradient_kernel<decltype(threads)::value, decltype(width)::value, T>,
                       p.positions * p.starts, threads, stream, p, rows, own_delta, gradient);
  });
}

}  // namespace cuda
}  // namespace wsfast
