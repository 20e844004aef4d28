// From the own row's products to the coefficients of the gradient: the formulas of ascent_backward
// in csrc/cpu/kernels.inl, by the Gram matrix (see ascent.cuh).
#pragma once

#include "../weight_fn.h"
#include "ascent.cuh"

namespace wsfast {
namespace cuda {
namespace {

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

}  // namespace

template <typename T>
int ascent_backward(const PositionState<T>& p, const AscentRows<T>& rows, const T* by_gram,
                    Stream stream) {
  const bool normalized = p.weight_fn != WeightFn::kReluUnnormalized &&
                          p.weight_fn != WeightFn::kSquareplusUnnormalized;
  return launch_rows(backward_kernel<T>, p.positions * p.starts, stream, p, rows, by_gram,
                     normalized);
}

}  // namespace cuda
}  // namespace wsfast
