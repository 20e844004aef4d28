// The value of a change and the coefficients of its gradient, between the matrix products: the
// kernels of the same names in csrc/cpu/kernels.inl, with a block for each row m.
#pragma once

#include "../weight_fn.h"
#include "rows.cuh"

namespace wsfast {
namespace cuda {
namespace {

template <typename T>
struct DeltaProducts {
  T delta2, word_delta, bilinear;
};
template <int kThreads, int kWidth, typename T>
__device__ __forceinline__ DeltaProducts<T> delta_products(const T* __restrict__ delta,
                                                           const T* __restrict__ word,
                                                           const T* __restrict__ bilinear,
                                                           bool bilinear_aligned, Index d,
                                                           T* scratch) {
  T sums[3] = {0, 0, 0};
#pragma unroll 1
  for (Index k = threadIdx.x * kWidth; k < d; k += kThreads * kWidth) {
    const auto x = load<kWidth>(delta + k), w = load<kWidth>(word + k),
               b = load<kWidth>(bilinear + k, bilinear_aligned);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      sums[0] += x.at[e] * x.at[e];
      sums[1] += x.at[e] * w.at[e];
      sums[2] += x.at[e] * b.at[e];
    }
  }
  over_block<kThreads>(Add{}, sums, scratch);
  return {sums[0], sums[1], sums[2]};
}

// Products of Delta with the means that dominated pairs have instead of phi: a warp for each.
template <int kThreads, int kWidth, typename T>
__device__ __forceinline__ void dominated_products(const PositionState<T>& p, Index first,
                                                   Index last, const T* __restrict__ delta,
                                                   T* __restrict__ mean) {
  const int lane = threadIdx.x % kWarp;
  for (Index k = first + threadIdx.x / kWarp; k < last; k += kThreads / kWarp) {
    const T* row = p.dominated_mean + k * p.d;
    T sum = 0;
#pragma unroll 1
    for (Index c = lane * kWidth; c < p.d; c += kWarp * kWidth) {
      const auto x = load<kWidth>(delta + c), y = load<kWidth>(row + c);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) sum += x.at[e] * y.at[e];
    }
    sum = over_warp(Add{}, sum);
    if (lane == 0) mean[p.dominated_row[k]] = sum;
  }
}

// Sums over a row of words. The own row's are: softmax, that of the terms; else those of the new
// weights, of their changes, and of the scores that they come from.
enum Sum : int { kValue, kSizeOrShift, kAlpha2, kOwn, kOwnChange, kOwnReach };
template <class G>
constexpr int kSums = G::kExponential ? kOwn + 1 : (G::kNormalized ? kOwnReach + 1 : kOwn);

// All rows but the perturbed word's own, whose entries in the state are neutral: it adds exactly 0.
template <bool kGradient, int kThreads, class G, typename T, int kCount>
__device__ __forceinline__ void add_other_rows(const G& g, const PositionState<T>& p,
                                               Index position, T* __restrict__ score,
                                               T* __restrict__ mean, T word_delta, T delta2,
                                               T (&sums)[kCount]) {
  const Index offset = position * p.n;
  const T* __restrict__ logit = p.logit + offset;
  const T* __restrict__ a = p.a + offset;
  const T* __restrict__ b = p.b + offset;
  const T* __restrict__ inv_b = p.inv_b + offset;
  const T* __restrict__ c2 = p.c2 + offset;
  const T* __restrict__ reach = p.reach + offset;
  const T* __restrict__ others = G::kExponential ? logit : p.others + offset;
#pragma unroll 1
  for (Index j = threadIdx.x; j < p.n; j += kThreads) {
    add_row<kGradient>(g, PairState<T>{logit[j], a[j], b[j], others[j]}, c2[j], inv_b[j], reach[j],
                       word_delta, delta2, score + j, mean + j, &sums[kValue], &sums[kSizeOrShift],
                       &sums[kSizeOrShift], &sums[kAlpha2]);
  }
}

// The perturbed word's own row.
template <typename T>
struct OwnRow {
  const T *logit, *a;
  const T* moved;  // k_l . Delta for each word l, and for word i itself the terms that Delta's own
                   // query adds
  T moved_top;     // softmax: a common shift of the scores, with which the largest word keeps full
                   // accuracy
  T largest;       // softmax: the largest new score, less that shift
  bool near;       // softmax: no score moves far, and changes are formed without cancellation
};

template <int kThreads, typename T>
__device__ __forceinline__ void shift_own_row(OwnRow<T>& own, Index top, Index n, T* scratch) {
  own.moved_top = own.moved[top];
  T largest[2] = {-Bits<T>::kHuge, 0};
#pragma unroll 1
  for (Index l = threadIdx.x; l < n; l += kThreads) {
    const T moved = own.moved[l] - own.moved_top;
    largest[0] = larger(largest[0], own.logit[l] + moved);
    largest[1] = larger(largest[1], where_seen(own.logit[l], absolute(moved)));
  }
  over_block<kThreads>(Larger{}, largest, scratch);
  own.largest = largest[0];
  own.near = largest[1] <= T(1);
}

// What a word adds to the sum of the weights: its change over a where nothing moves far, or its
// weight.
template <typename T>
__device__ __forceinline__ T own_term(const OwnRow<T>& own, Index l) {
  const T moved = own.moved[l] - own.moved_top;
  const ExpPair<T> e = exp_pair(own.near ? moved : (own.logit[l] + moved) - own.largest);
  return own.near ? e.expm1 : e.exp;
}

template <int kThreads, class G, typename T, int kCount>
__device__ __forceinline__ void add_own_row(const G& g, const OwnRow<T>& own, Index n,
                                            T (&sums)[kCount]) {
#pragma unroll 1
  for (Index l = threadIdx.x; l < n; l += kThreads) {
    if constexpr (G::kExponential) {
      const T term = own_term(own, l);
      sums[kOwn] += own.near ? own.a[l] * term : term;
    } else if constexpr (G::kNormalized) {
      const Weight<T> w = g.weight(own.logit[l], own.moved[l]);
      sums[kOwn] += w.value;
      sums[kOwnChange] += w.change;
      sums[kOwnReach] += where_seen(own.logit[l], absolute(own.logit[l]) + absolute(own.moved[l]));
    }
  }
}

// New attention of row i, its change and its slope, from the sums over the row.
template <int kThreads, class G, typename T, int kCount>
__device__ __forceinline__ void write_own_row(const G& g, const OwnRow<T>& own, Index i, Index n,
                                              const T (&sums)[kCount], T* __restrict__ weight,
                                              T* __restrict__ change, T* __restrict__ slope,
                                              T* own_weight_of_i) {
#pragma unroll 1
  for (Index l = threadIdx.x; l < n; l += kThreads) {
    T now;
    if constexpr (G::kExponential) {
      const T a = own.a[l], term = own_term(own, l), sum = sums[kOwn];
      const T inv = T(1) / (own.near ? T(1) + sum : sum);
      now = (own.near ? a * (T(1) + term) : term) * inv;
      change[l] = own.near ? a * (term - sum) * inv : now - a;
    } else {
      const Weight<T> w = g.weight(own.logit[l], own.moved[l]);
      now = w.value;
      if constexpr (G::kNormalized) {
        const T a = own.a[l], sum = sums[kOwn];
        const bool empty = !(sum > T(0));
        const T inv = empty ? T(0) : T(1) / sum;
        now *= inv;
        change[l] = empty ? -a : (w.change - a * sums[kOwnChange]) * inv;
        slope[l] = w.slope * inv;
      } else {
        change[l] = w.change;
        slope[l] = w.slope;
      }
    }
    weight[l] = now;
    if (l == i) *own_weight_of_i = now;
  }
}

template <bool kGradient, int kThreads, class G, typename T>
__global__ void __launch_bounds__(kThreads, kResident / kThreads)
    forward_kernel(const __grid_constant__ G g, const __grid_constant__ PositionState<T> p,
                   const __grid_constant__ AscentRows<T> rows, const bool is_wide) {
  WSFAST_SHARED(T, scratch, kSums<G> * kThreads / kWarp);
  const Index m = blockIdx.x, n = p.n, d = p.d;
  const unsigned starts = static_cast<unsigned>(p.starts), position = blockIdx.x / starts,
                 start = blockIdx.x % starts;
  const Index i = p.index[position], first = p.dominated_start[position],
              last = p.dominated_start[position + 1];
  const T *delta = rows.delta + m * d, *word = p.word + position * d;
  T* products = rows.products + m * (3 * n + d);
  T *score = products, *mean = products + n, *own_score = products + 2 * n,
    *scalars = rows.scalars + m * kScalars;

  DeltaProducts<T> with_delta;
  if (is_wide) {
    with_delta = delta_products<kThreads, kWide<T>>(delta, word, products + 3 * n,
                                                    n % kWide<T> == 0, d, scratch);
    dominated_products<kThreads, kWide<T>>(p, first, last, delta, mean);
  } else {
    with_delta = delta_products<kThreads, 1>(delta, word, products + 3 * n, true, d, scratch);
    dominated_products<kThreads, 1>(p, first, last, delta, mean);
  }
  if (threadIdx.x == 0) own_score[i] += score[i] + T(0.5) * with_delta.bilinear;
  __syncthreads();

  OwnRow<T> own{p.own_logit + position * n, p.own_a + position * n, own_score, 0, 0, false};
  if constexpr (G::kExponential) shift_own_row<kThreads>(own, p.own_top[position], n, scratch);
  T sums[kSums<G>] = {};
  add_other_rows<kGradient, kThreads>(g, p, position, score, mean, with_delta.word_delta,
                                      with_delta.delta2, sums);
  add_own_row<kThreads>(g, own, n, sums);
  over_block<kThreads>(Add{}, sums, scratch);
  write_own_row<kThreads>(g, own, i, n, sums, rows.own_weight + m * n, rows.own_change + m * n,
                          rows.own_slope + m * n, scalars + 2);

  if (threadIdx.x == 0) {
    rows.value[m] = sums[kValue];
    if constexpr (kGradient) {
      scalars[0] = sums[kSizeOrShift];
      scalars[1] = sums[kAlpha2];
    } else {
      bool certain = true;  // else rounding of the scores may be all there is of the weights
      if constexpr (G::kNormalized && !G::kExponential)
        certain = sums[kOwn] >= Bits<T>::kDoubt * sums[kOwnReach];
      rows.size[m] = certain ? sums[kSizeOrShift] : Bits<T>::kHuge;
    }
  }
  // A dominated pair's c is taken from the mean of the others, not from phi: its coefficient leaves
  // the product. It was written before the barriers of over_block.
  if constexpr (kGradient) {
    T* coef = rows.dominated_coef + start * p.dominated_start[p.positions];
    for (Index k = first + threadIdx.x; k < last; k += kThreads) {
      const Index j = p.dominated_row[k];
      coef[k] = mean[j];
      mean[j] = T(0);
    }
  }
}

template <bool kGradient, typename T>
int forward(const PositionState<T>& p, const AscentRows<T>& rows, Stream stream) {
  const bool is_wide = wide<T>(p.d, rows.delta, p.word, rows.products, p.dominated_mean);
  const Index steps = larger(p.n, is_wide ? p.d / kWide<T> : p.d);
  return with_weight_fn(p.weight_fn, p.curve, [&](const auto& g) {
    return with_threads(steps, [&](auto threads) {
      using G = std::decay_t<decltype(g)>;
      return launch_rows(forward_kernel<kGradient, decltype(threads)::value, G, T>,
                         p.positions * p.starts, threads, stream, g, p, rows, is_wide);
    });
  });
}

}  // namespace

template <typename T>
int delta_norms(const PositionState<T>& p, const AscentRows<T>& rows, Stream stream) {
  return forward<false>(p, rows, stream);
}

template <typename T>
int ascent_forward(const PositionState<T>& p, const AscentRows<T>& rows, Stream stream) {
  return forward<true>(p, rows, stream);
}

}  // namespace cuda
}  // namespace wsfast
