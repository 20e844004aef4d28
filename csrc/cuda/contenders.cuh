// The pairs of a tile whose norm may be among the best.
#pragma once

#include "candidates.cuh"
#include "norm_bounds.cuh"

namespace wsfast {
namespace cuda {
namespace {

constexpr int kListThreads = 256;
constexpr Index kLargestGridY = 65535;

// The largest grid has fewer rows than there may be positions: a block takes several of them then.
template <typename T>
__global__ void __launch_bounds__(kListThreads, kBlocksAtOnce<T>)
    contenders_kernel(const __grid_constant__ ContenderList<T> in) {
  const int lane = threadIdx.x % kWarp;
  const Index v = Index(blockIdx.x) * kListThreads + threadIdx.x;
  const bool there = v < in.candidates;
  const T size = there ? in.size[v] : T(0), norm_error = there ? root(in.norm_error[v]) : T(0);
  for (Index p = blockIdx.y; p < in.positions; p += gridDim.y) {
    const bool possible =
        there && (in.allowed == nullptr || in.allowed[p * in.candidates + v] != 0);
    const T value = possible ? in.value[p * in.stride + v] : T(0);
    const T terms = size + in.constant[p];
    const T high = upper_bound(value, terms, in.product_error, norm_error);
    const bool kept = possible && !(high < in.threshold[p]);
    const unsigned all_kept = __ballot_sync(kWholeWarp, kept);
    if (all_kept == 0) continue;
    unsigned long long first = 0;
    if (lane == 0)
      first = atomicAdd(reinterpret_cast<unsigned long long*>(in.count),
                        static_cast<unsigned long long>(__popc(all_kept)));
    first = __shfl_sync(kWholeWarp, first, 0);
    const Index place = static_cast<Index>(first) + __popc(all_kept & ((1u << lane) - 1u));
    if (!kept || place >= in.capacity) continue;
    in.position[place] = p;
    in.candidate[place] = in.number[v];
    in.low[place] = lower_bound(value, terms, in.product_error, norm_error);
    in.high[place] = high;
  }
}

}  // namespace

template <typename T>
int keep_contenders(const ContenderList<T>& in, Stream stream) {
  if (in.positions == 0 || in.candidates == 0) return cudaSuccess;
  const Index rows = in.positions < kLargestGridY ? in.positions : kLargestGridY;
  return launch(contenders_kernel<T>,
                dim3(blocks_of(in.candidates, kListThreads), static_cast<unsigned>(rows)),
                kListThreads, 0, stream, in);
}

}  // namespace cuda
}  // namespace wsfast
