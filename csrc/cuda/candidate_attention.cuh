// Candidates made ready, and their own attention to the words of the text.
#pragma once

#include "candidates.cuh"

namespace wsfast::cuda {

// A warp for each row. Numbers are read one by one, whatever the alignment: it may not change the
// order in which they are summed.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    centre_kernel(const __grid_constant__ CentredRows<T> in) {
  const int lane = threadIdx.x % kWarp;
  const Index row = Index(blockIdx.x) * kRowWarps + threadIdx.x / kWarp;
  if (row >= in.rows) return;
  const T *const given = in.given + row * in.d, *const shift = in.shift;
  T* const centred = in.centred + row * in.d;
  T norm2 = 0;
#pragma unroll 8
  for (Index k = lane; k < in.d; k += kWarp) {
    const T x = given[k] - shift[k];
    centred[k] = x;
    norm2 += x * x;
  }
  norm2 = over_warp(Add{}, norm2);
  if (lane == 0) in.norm2[row] = norm2;
}

// The two largest scores of some rows, and the row of the largest: of equals the lower one.
template <typename T>
struct TwoLargest {
  T first, second, where;
};
template <typename T>
__device__ __forceinline__ TwoLargest<T> together(TwoLargest<T> x, TwoLargest<T> y) {
  const bool swap = y.first > x.first || (y.first == x.first && y.where < x.where);
  const TwoLargest<T> high = swap ? y : x, low = swap ? x : y;
  return {high.first, larger(low.first, high.second), high.where};
}

template <class G, typename T>
__global__ void __launch_bounds__(kRowThreads, kBlocksAtOnce<T>)
    attention_kernel(const G g, const __grid_constant__ SubstitutionState<T> in,
                     const __grid_constant__ SubstitutionTile<T> tile) {
  WSFAST_SHARED(TwoLargest<T>, largest, kRowThreads);
  WSFAST_SHARED(T, scratch, 2 * kRowThreads);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const Column<T> column(tile, Index(blockIdx.x) * kWarp + lane);
  const Index n = in.n;
  const T v2 = column.get(tile.norm2);

  TwoLargest<T> seen = {-Bits<T>::kHuge, -Bits<T>::kHuge, T(0)};
#pragma unroll 4
  for (Index j = warp; j < n; j += kRowWarps)
    see_score(column.get(tile.keys, j) + in.key_shift[j], T(j), &seen.first, &seen.second,
              &seen.where);
  largest[threadIdx.x] = seen;
  __syncthreads();
  seen = largest[lane];
#pragma unroll
  for (int other = 1; other < kRowWarps; ++other)
    seen = together(seen, largest[other * kWarp + lane]);

  const T error = key_error_of(in, v2);
  T sums[2] = {0, 0};  // of the weights, and how many scores may be above 0
  for (Index j = warp; j < n; j += kRowWarps) {
    T key = column.get(tile.keys, j);
    add_key(g, &key, in.key_shift[j], T(j), seen.where, seen.second, error, &sums[0], &sums[1]);
    column.put(tile.keys, j, key);
  }
  over_warps(sums, scratch);
  if (warp == 0 && column.there) {
    close_attention(g, in, seen.first, seen.second, sums[0], sums[1], tile.own_score[column.at], v2,
                    own_row_at(tile, column.at), Index(0));
    tile.top[column.at] = static_cast<Index>(seen.where);
  }
  if constexpr (G::kNormalized) {
    const T scale = sums[0] > T(0) ? T(1) / sums[0] : T(0);
    for (Index j = warp; j < n; j += kRowWarps)
      column.put(tile.keys, j, column.get(tile.keys, j) * scale);
  }
}

template <typename T>
int centre_rows(const CentredRows<T>& in, Stream stream) {
  return launch(centre_kernel<T>, blocks_of(in.rows, kRowWarps), kRowThreads, 0, stream, in);
}

template <typename T>
int candidate_attention(const SubstitutionState<T>& in, const SubstitutionTile<T>& tile,
                        Stream stream) {
  return with_given_weight_fn(in.weight_fn, [&](const auto& g) {
    using G = std::decay_t<decltype(g)>;
    return launch(attention_kernel<G, T>, blocks_of(tile.candidates, kWarp), kRowThreads, 0, stream,
                  g, in, tile);
  });
}

}  // namespace wsfast::cuda
