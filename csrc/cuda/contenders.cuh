// The pairs of a tile whose norm may be among the best, and the thresholds that tell.
#pragma once

#include <cstring>

#include "candidates.cuh"

namespace wsfast::cuda {

constexpr int kListThreads = 256;
constexpr Index kListPositions = 16;  // of a block
constexpr unsigned kLargestGridY = 65535;

// Numbers that are not negative are ordered as their bits are.
template <typename T>
using Word = std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>;
template <typename T>
__device__ __forceinline__ Word<T> bits_of(T x) {
  Word<T> bits;
  std::memcpy(&bits, &x, sizeof x);
  return bits;
}
template <typename T>
__device__ __forceinline__ void raise(T* bound, T by) {
  atomicMax(reinterpret_cast<Word<T>*>(bound), bits_of(by));
}

// Some candidate of the block `block` of all, at the position p, has a norm of at least `low`. The
// slots of one position differ, and so do those of one block, as far as there are enough.
template <typename T>
__device__ __forceinline__ void raise_bounds(const ContenderList<T>& list, Index p, Index block,
                                             T low) {
  if (!(low > T(0))) return;
  raise(list.surest + p, low);
  raise(list.of_pairs + ((block + p * 2654435761) & (list.slots - 1)), low);
  raise(list.of_blocks + (block & (list.slots - 1)), low);
}

// The k-th largest of some numbers, none below 0, bit by bit; 0 where there are fewer.
template <typename T>
__device__ __forceinline__ T kth_largest(const T* numbers, Index count, Index k) {
  Word<T> found = 0;
#pragma unroll 1
  for (Word<T> bit = Word<T>(1) << (8 * sizeof(T) - 2); bit != 0; bit >>= 1) {
    Index reach = 0;
#pragma unroll 1
    for (Index first = 0; first < count; first += kListThreads) {
      const Index at = first + threadIdx.x;
      reach += __syncthreads_count(at < count && bits_of(numbers[at]) >= (found | bit));
    }
    if (reach >= k) found |= bit;
  }
  T value;
  std::memcpy(&value, &found, sizeof value);
  return value;
}

template <typename T>
__global__ void __launch_bounds__(kListThreads, kBlocksAtOnce<T>)
    contenders_kernel(const __grid_constant__ SubstitutionState<T> in,
                      const __grid_constant__ SubstitutionTile<T> tile,
                      const __grid_constant__ ContenderList<T> list) {
  const int lane = threadIdx.x % kWarp;
  const Column<T> column(tile, Index(blockIdx.x) * kListThreads + threadIdx.x);
  const T size = column.get(tile.size), norm_error = root(column.get(tile.norm_error));
  auto* const counter = reinterpret_cast<unsigned long long*>(list.count);
  if (blockIdx.y == 0 && column.there && !(size < list.limit))
    atomicAdd(counter, static_cast<unsigned long long>(list.capacity) + 1);
  const T of_all = smaller(kth_largest(list.of_pairs, list.slots, list.pairs),
                           kth_largest(list.of_blocks, list.slots, list.leaders));
  for (Index p = blockIdx.y; p < in.positions; p += gridDim.y) {
    // Ties reach it as well.
    const T threshold = smaller(list.surest[p], of_all) * T(1 - 1e-6);
    if (blockIdx.x == 0 && threadIdx.x == 0) list.threshold[p] = threshold;
    const bool possible = column.there && (list.allowed == nullptr ||
                                           list.allowed[p * tile.candidates + column.at] != 0);
    const T value = possible ? column.get(tile.value, p) : T(0), terms = size + in.constant[p];
    const T high = upper_bound(value, terms, in.product_error, norm_error);
    const bool kept = possible && !(high < threshold);
    const unsigned all_kept = __ballot_sync(kWholeWarp, kept);
    if (all_kept == 0) continue;
    unsigned long long first = 0;
    if (lane == 0) first = atomicAdd(counter, static_cast<unsigned long long>(__popc(all_kept)));
    first = __shfl_sync(kWholeWarp, first, 0);
    const Index place = static_cast<Index>(first) + __popc(all_kept & ((1u << lane) - 1u));
    if (!kept || place >= list.capacity) continue;
    list.position[place] = p;
    list.candidate[place] = list.number[column.at];
    list.low[place] = lower_bound(value, terms, in.product_error, norm_error);
    list.high[place] = high;
  }
}

template <typename T>
int keep_contenders(const SubstitutionState<T>& in, const SubstitutionTile<T>& tile,
                    const ContenderList<T>& list, Stream stream) {
  const dim3 grid(blocks_of(tile.candidates, kListThreads),
                  smaller(blocks_of(in.positions, kListPositions), kLargestGridY));
  return launch(contenders_kernel<T>, grid, kListThreads, 0, stream, in, tile, list);
}

}  // namespace wsfast::cuda
