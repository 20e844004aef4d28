// The value of a change and the coefficients of its gradient, between the matrix products: the
// formulas of csrc/cpu/kernels.inl, with a block for each point m.
//
// A step of the search forms the own row's change from the Gram matrix of the words: with r its
// change of attention, |delta_i|^2 = r.(XX^T) r + 2 alpha r.(X Delta) + alpha^2 |Delta|^2, so that
// two products lie between this and the gradient, not four. What cancels there moves a step by its
// rounding; norms that are to be right (delta_norms) form delta_i itself.
#pragma once

#include "../weight_fn.h"
#include "rows.cuh"

namespace wsfast::cuda {

template <typename T>
struct DeltaProducts {
  T delta2, word_delta, bilinear;
};
template <typename T>
__device__ __forceinline__ DeltaProducts<T> delta_products(const T* __restrict__ delta,
                                                           const T* __restrict__ word,
                                                           const T* __restrict__ bilinear, Index d,
                                                           T* scratch) {
  T sums[3] = {0, 0, 0};
#pragma unroll 1
  for (Index k = threadIdx.x * kWide<T>; k < d; k += kPointThreads * kWide<T>) {
    const auto x = load(delta + k), w = load(word + k), b = load(bilinear + k);
#pragma unroll
    for (int e = 0; e < kWide<T>; ++e) {
      sums[0] += x.at[e] * x.at[e];
      sums[1] += x.at[e] * w.at[e];
      sums[2] += x.at[e] * b.at[e];
    }
  }
  over_block<kPointThreads>(Add{}, sums, scratch);
  return {sums[0], sums[1], sums[2]};
}

// A point's rows of AscentRows::products.
template <typename T>
struct Products {
  T *words, *score, *mean, *own, *bilinear;
  __device__ __forceinline__ Products(const AscentRows<T>& rows, Index m, Index n, Index d)
      : words(rows.products + m * (4 * n + d)),
        score(words + n),
        mean(score + n),
        own(mean + n),
        bilinear(own + n) {}
};

// Products of Delta with the means that dominated pairs have instead of phi: a warp for each.
template <typename T>
__device__ __forceinline__ void dominated_products(const PositionState<T>& p, Index first,
                                                   Index last, const T* __restrict__ delta,
                                                   T* __restrict__ mean) {
  const int lane = threadIdx.x % kWarp;
  for (Index k = first + threadIdx.x / kWarp; k < last; k += kPointThreads / kWarp) {
    const T* row = p.dominated_mean + k * p.d;
    T sum = 0;
#pragma unroll 1
    for (Index c = lane * kWide<T>; c < p.d; c += kWarp * kWide<T>) {
      const auto x = load(delta + c), y = load(row + c);
#pragma unroll
      for (int e = 0; e < kWide<T>; ++e) sum += x.at[e] * y.at[e];
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
template <bool kGradient, class G, typename T, int kCount>
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
  for (Index j = threadIdx.x; j < p.n; j += kPointThreads) {
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

template <typename T>
__device__ __forceinline__ void shift_own_row(OwnRow<T>& own, Index top, Index n, T* scratch) {
  own.moved_top = own.moved[top];
  T largest[2] = {-Bits<T>::kHuge, 0};
#pragma unroll 1
  for (Index l = threadIdx.x; l < n; l += kPointThreads) {
    const T moved = own.moved[l] - own.moved_top;
    largest[0] = larger(largest[0], own.logit[l] + moved);
    largest[1] = larger(largest[1], where_seen(own.logit[l], absolute(moved)));
  }
  over_block<kPointThreads>(Larger{}, largest, scratch);
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

template <class G, typename T, int kCount>
__device__ __forceinline__ void add_own_row(const G& g, const OwnRow<T>& own, Index n,
                                            T (&sums)[kCount]) {
#pragma unroll 1
  for (Index l = threadIdx.x; l < n; l += kPointThreads) {
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
template <class G, typename T, int kCount>
__device__ __forceinline__ void write_own_row(const G& g, const OwnRow<T>& own, Index i, Index n,
                                              const T (&sums)[kCount], T* __restrict__ weight,
                                              T* __restrict__ change, T* __restrict__ slope,
                                              T* own_weight_of_i) {
#pragma unroll 1
  for (Index l = threadIdx.x; l < n; l += kPointThreads) {
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

template <class G, typename T>
__global__ void __launch_bounds__(kPointThreads, kPointBlocks)
    forward_kernel(const __grid_constant__ G g, const __grid_constant__ PositionState<T> p,
                   const __grid_constant__ AscentRows<T> rows) {
  WSFAST_SHARED(T, scratch, kSums<G> * kPointThreads / kWarp);
  const Index m = blockIdx.x, n = p.n, d = p.d;
  const unsigned starts = static_cast<unsigned>(p.starts), position = blockIdx.x / starts,
                 start = blockIdx.x % starts;
  const Index i = p.index[position], first = p.dominated_start[position],
              last = p.dominated_start[position + 1];
  const T *delta = rows.delta + m * d, *word = p.word + position * d;
  const Products<T> at(rows, m, n, d);
  T* const scalars = rows.scalars + m * kScalars;

  const auto with_delta = delta_products(delta, word, at.bilinear, d, scratch);
  dominated_products(p, first, last, delta, at.mean);
  if (threadIdx.x == 0) at.own[i] += at.score[i] + T(0.5) * with_delta.bilinear;
  __syncthreads();

  OwnRow<T> own{p.own_logit + position * n, p.own_a + position * n, at.own, 0, 0, false};
  if constexpr (G::kExponential) shift_own_row(own, p.own_top[position], n, scratch);
  T sums[kSums<G>] = {};
  const bool with_size = rows.size != nullptr;
  if (with_size)
    add_other_rows<false>(g, p, position, at.score, at.mean, with_delta.word_delta,
                          with_delta.delta2, sums);
  else
    add_other_rows<true>(g, p, position, at.score, at.mean, with_delta.word_delta,
                         with_delta.delta2, sums);
  add_own_row(g, own, n, sums);
  over_block<kPointThreads>(Add{}, sums, scratch);
  write_own_row(g, own, i, n, sums, rows.own_weight + m * n, rows.own_change + m * n,
                rows.own_slope + m * n, scalars + 2);

  if (threadIdx.x == 0) {
    rows.value[m] = sums[kValue];
    if (with_size) {
      bool certain = true;  // else rounding of the scores may be all there is of the weights
      if constexpr (G::kNormalized && !G::kExponential)
        certain = sums[kOwn] >= Bits<T>::kDoubt * sums[kOwnReach];
      rows.size[m] = certain ? sums[kSizeOrShift] : Bits<T>::kHuge;
    } else {
      scalars[0] = sums[kSizeOrShift];
      scalars[1] = sums[kAlpha2];
      scalars[3] = with_delta.delta2;
    }
  }
  if (with_size) return;
  // A dominated pair's c is taken from the mean of the others, not from phi: its coefficient leaves
  // the product. It was written before the barriers of over_block.
  T* coef = rows.dominated_coef + start * p.dominated_start[p.positions];
  for (Index k = first + threadIdx.x; k < last; k += kPointThreads) {
    const Index j = p.dominated_row[k];
    coef[k] = at.mean[j];
    at.mean[j] = T(0);
  }
}

// delta_i itself, for norms: `own_delta` comes in as the own row's change of attention times X.
template <typename T>
__global__ void __launch_bounds__(kPointThreads, kPointBlocks)
    own_row_kernel(const __grid_constant__ AscentRows<T> rows, const Index d, T* const own_delta) {
  WSFAST_SHARED(T, scratch, 3 * kPointThreads / kWarp);
  const Index m = blockIdx.x;
  const T *const own = own_delta + m * d, *const delta = rows.delta + m * d;
  const T alpha = rows.scalars[m * kScalars + 2];
  T sums[3] = {0, 0, 0};
#pragma unroll 2
  for (Index k = threadIdx.x * kWide<T>; k < d; k += kPointThreads * kWide<T>) {
    const auto before = load(own + k), x = load(delta + k);
#pragma unroll
    for (int e = 0; e < kWide<T>; ++e) {
      const T moved = before.at[e] + alpha * x.at[e];
      sums[0] += before.at[e] * before.at[e];
      sums[1] += x.at[e] * x.at[e];
      sums[2] += moved * moved;
    }
  }
  over_block<kPointThreads>(Add{}, sums, scratch);
  if (threadIdx.x == 0) {
    rows.value[m] += sums[2];
    rows.size[m] += sums[0] + alpha * alpha * sums[1];
  }
}

template <typename T>
int ascent_forward(const PositionState<T>& p, const AscentRows<T>& rows, Stream stream) {
  return with_weight_fn(p.weight_fn, p.curve, [&](const auto& g) {
    using G = std::decay_t<decltype(g)>;
    return launch(forward_kernel<G, T>, blocks_of(p.positions * p.starts), kPointThreads, 0, stream,
                  g, p, rows);
  });
}

template <typename T>
int own_row(const PositionState<T>& p, const AscentRows<T>& rows, T* own_delta, Stream stream) {
  return launch(own_row_kernel<T>, blocks_of(p.positions * p.starts), kPointThreads, 0, stream,
                rows, p.d, own_delta);
}

}  // namespace wsfast::cuda
