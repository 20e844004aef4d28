// A kernel to try the checks on: for every row x of X the log of the sum over all rows y of Y of
// exp(scale <x / |x|, y> + bias), and the sum of that over the rows of X. It has a bit of
// everything that goes wrong: tiles that are copied asynchronously into two buffers, products on
// tensor cores in three parts, shuffles, reductions over the block, sums over the grid.
#pragma once

#include "cuda/launch.h"
#include "cuda/reduce.cuh"

namespace row_lse {

using namespace wsfast::cuda;

constexpr int kRows = 16, kWarps = 4, kThreads = 32 * kWarps, kParts = kRows * kWarps;
constexpr int kTile = 8 * kWarps;  // rows of Y at a time
constexpr int kWidth = 160, kPitch = kWidth + 4;
constexpr std::size_t kShared = (2 * kTile + kRows) * kPitch * sizeof(float);
static_assert(kShared > kSharedAtOnce, "the launch must ask for it");

__device__ __forceinline__ void start_tile(float* tile, const float* y, int first, int columns) {
  for (int i = threadIdx.x; i < kTile * kWidth / 4; i += kThreads) {
    const int column = i / (kWidth / 4), k = 4 * (i % (kWidth / 4));
    const bool there = first + column < columns;
    const float* from = y + (there ? first + column : columns - 1) * kWidth + k;
    copy_async(tile + column * kPitch + k, from, there ? 16 : 0);
  }
}

__global__ void __launch_bounds__(kThreads)
    row_lse(const float* x, const float* y, const float* bias, float scale, int rows, int columns,
            float* lse, float* total) {
  WSFAST_DYNAMIC_SHARED(float, tiles);
  WSFAST_SHARED(float, inverse_norm, kRows);
  WSFAST_SHARED(float, of_warp, kParts);
  WSFAST_SHARED(float, scratch, kWarps);
  float* xs = tiles + 2 * kTile * kPitch;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;
  const int first_row = blockIdx.x * kRows;

  start_tile(tiles, y, 0, columns);
  close_copies();
  for (int i = threadIdx.x; i < kRows * kWidth / 4; i += kThreads) {
    const int row = i / (kWidth / 4), k = 4 * (i % (kWidth / 4));
    float4 v = make_float4(0, 0, 0, 0);
    if (first_row + row < rows)
      v = __ldg(reinterpret_cast<const float4*>(x + (first_row + row) * kWidth + k));
    *reinterpret_cast<float4*>(xs + row * kPitch + k) = v;
  }
  __syncthreads();  // X is there
  for (int row = warp; row < kRows; row += kWarps) {
    float sum = 0;
    for (int k = lane; k < kWidth; k += kWarp) sum += xs[row * kPitch + k] * xs[row * kPitch + k];
    sum = over_warp(Add{}, sum);
    if (lane == 0) inverse_norm[row] = 1 / sqrtf(sum > 0 ? sum : 1);
  }

  float sums[2] = {0, 0};  // of rows g and g + 8
  for (int first = 0, stage = 0; first < columns; first += kTile, stage ^= 1) {
    if (first + kTile < columns)
      start_tile(tiles + (stage ^ 1) * kTile * kPitch, y, first + kTile, columns);
    close_copies();
    await_copies<1>();
    __syncthreads();  // Y is there
    float c[4] = {0, 0, 0, 0};
    const float* tile = tiles + stage * kTile * kPitch + (8 * warp + g) * kPitch;
    for (int k = t; k < kWidth; k += 8) {
      const float *p = xs + g * kPitch + k, *q = tile + k;
      const float a[4] = {p[0], p[8 * kPitch], p[4], p[8 * kPitch + 4]};
      const float b[2] = {q[0], q[4]};
      float a_high[4], a_low[4], b_high[2], b_low[2];
      for (int i = 0; i < 4; ++i) a_high[i] = round_to_tf32(a[i]);
      for (int i = 0; i < 4; ++i) a_low[i] = round_to_tf32(a[i] - a_high[i]);
      for (int i = 0; i < 2; ++i) b_high[i] = round_to_tf32(b[i]);
      for (int i = 0; i < 2; ++i) b_low[i] = round_to_tf32(b[i] - b_high[i]);
      multiply_tf32(c, a_low, b_high);
      multiply_tf32(c, a_high, b_low);
      multiply_tf32(c, a_high, b_high);
    }
    for (int e = 0; e < 2; ++e) {
      const int column = first + 8 * warp + 2 * t + e;
      if (column >= columns) continue;
      for (int r = 0; r < 2; ++r)
        sums[r] += expf(scale * inverse_norm[g + 8 * r] * c[2 * r + e] + bias[column]);
    }
    __syncthreads();  // Y is overwritten next
  }
  for (int bit = 1; bit <= 2; bit *= 2)
    for (int r = 0; r < 2; ++r) sums[r] += __shfl_xor_sync(kWholeWarp, sums[r], bit);
  if (t == 0)
    for (int r = 0; r < 2; ++r) of_warp[warp * kRows + g + 8 * r] = sums[r];
  __syncthreads();  // of_warp is there
  float value[1] = {0};
  if (threadIdx.x < kRows && first_row + static_cast<int>(threadIdx.x) < rows) {
    for (int w = 0; w < kWarps; ++w) value[0] += of_warp[w * kRows + threadIdx.x];
    value[0] = logf(value[0]);
    lse[first_row + threadIdx.x] = value[0];
  }
  over_block<kThreads>(Add{}, value, scratch);
  if (threadIdx.x == 0) atomicAdd(total, value[0]);
}

inline int launch_row_lse(const float* x, const float* y, const float* bias, float scale, int rows,
                          int columns, float* lse, float* total) {
  return launch(row_lse, dim3((rows + kRows - 1) / kRows), kThreads, kShared, nullptr, x, y, bias,
                scale, rows, columns, lse, total);
}

}  // namespace row_lse
