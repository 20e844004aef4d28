// Random attention features in one pass over the words (docs/design.md, section 6).
//
// A block takes kRows queries of one text and draw and meets the words kKeys at a time. Its warps
// divide the columns: each keeps its columns of the queries and of phi in registers and copies its
// columns of the words, which serve the scores and phi alike, to shared memory, one tile ahead.
// Partial scores are summed over the warps; then every thread has one score, and the weights are
// those of the online softmax.
//
// A warp works on blocks of 16 columns. Which column a product's k stands for is free, as long as
// both factors agree; it is chosen so that every lane reads 8 or 16 bytes at once and no two lanes
// of a transaction meet in one bank.
#pragma once

#include "launch.h"
#include "weigh.cuh"

namespace wsfast::cuda {

constexpr int kRows = 16, kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kKeys = 16;  // words of a tile, one for each lane of a half-warp
constexpr int kBlockColumns = 16;
constexpr int kTiles = 2;              // of words, in shared memory
constexpr int kPadding = 8;            // of a word: neighbours lie 8 banks apart
constexpr int kWeightRow = kKeys + 4;  // rows of weights start in different banks

template <int kBlocks>
struct Layout {
  static constexpr int kWarpColumns = kBlocks * kBlockColumns;
  static constexpr int kColumns = kWarps * kWarpColumns;
  static constexpr int kStride = kColumns + kPadding;
  static constexpr int kTile = kKeys * kStride;
  static constexpr std::size_t kBytes = (kTiles * kTile + kWarps * kRows * kKeys) * sizeof(float);
  static constexpr std::size_t kWithStatic = kBytes + (kRows * kWeightRow + kRows) * sizeof(float);
  static_assert(kWithStatic <= 163 << 10, "more than a block may have on sm_80");
};

// What tensor cores take of a float, and the rest, of which they take all but the last bit or two.
template <int kCount>
struct Split {
  float high[kCount], low[kCount];
};
template <int kCount>
__device__ __forceinline__ Split<kCount> split(const float (&x)[kCount]) {
  Split<kCount> out;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    out.high[k] = round_to_tf32(x[k]);
    out.low[k] = x[k] - out.high[k];
  }
  return out;
}

// A block's part of C = A B, both factors in two parts; low times low is below the rounding of the
// result. Tensor cores truncate what they add up: so each part begins at zero, with its small
// terms, and the caller's addition rounds.
struct Fragment {
  float at[4];
};
__device__ __forceinline__ Fragment product(const Split<4> (&a)[2], const float (&b)[2][2]) {
  Fragment c = {};
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const Split<2> parts = split(b[step]);
    multiply_tf32(c.at, a[step].low, parts.high);
    multiply_tf32(c.at, a[step].high, parts.low);
    multiply_tf32(c.at, a[step].high, parts.high);
  }
  return c;
}

__device__ __forceinline__ float2 load_pair(const float* from) {
  return *reinterpret_cast<const float2*>(from);
}

template <int kBlocks>
struct Block {
  using L = Layout<kBlocks>;

  int n, d, first_row, first_column;  // of the block and of the warp
  int g, t;                           // lane 4 g + t

  // This warp's columns of the words from number `first_word`.
  __device__ __forceinline__ void copy_words(const float* words, int first_word,
                                             float* tile) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = g + 8 * half, word = first_word + key;
      const int columns = word < n ? d - first_column - 4 * t : 0;
      const float* from = words + word * d + first_column + 4 * t;
      float* to = tile + key * L::kStride + first_column + 4 * t;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
        copy_async(to + b * kBlockColumns, from + b * kBlockColumns,
                   b * kBlockColumns < columns ? 16 : 0);
    }
  }

  // Element (step, e) of a query is that of row g + 8 (e % 2) in column 8 step + 2 t + e / 2.
  __device__ __forceinline__ void load_queries(const float* queries, float scale,
                                               float (&q)[kBlocks][2][4]) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int low = 0; low < 2; ++low) {
          const int row = first_row + g + 8 * low;
          const int column = first_column + b * kBlockColumns + 8 * step + 2 * t;
          float2 pair = make_float2(0.0f, 0.0f);
          if (row < n && column < d) pair = load_pair(queries + row * d + column);
          q[b][step][low] = scale * pair.x;
          q[b][step][2 + low] = scale * pair.y;
        }
      }
    }
  }

  __device__ __forceinline__ void add_scores(const float* tile, float (&q)[kBlocks][2][4],
                                             Fragment (&scores)[2]) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int e = 0; e < 8; ++e) forget_derived(q[b][e / 4][e % 4]);  // its split is not kept
      const Split<4> a[2] = {split(q[b][0]), split(q[b][1])};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* from =
            tile + (g + 8 * half) * L::kStride + first_column + b * kBlockColumns + 2 * t;
        const float2 x = load_pair(from), y = load_pair(from + 8);
        const Fragment part = product(a, {{x.x, x.y}, {y.x, y.y}});
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[half].at[e] += part.at[e];
      }
    }
  }

  // Where a score of the tile lies among the partial sums of a warp: rows that are written together
  // start in other banks.
  static __device__ __forceinline__ int place_of(int row, int key) {
    return row * kKeys + (key ^ (row & 2) * 4);
  }
  __device__ __forceinline__ void put_partial(float* mine, const Fragment (&scores)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int low = 0; low < 2; ++low)
        *reinterpret_cast<float2*>(mine + place_of(g + 8 * low, 8 * half + 2 * t)) =
            make_float2(scores[half].at[2 * low], scores[half].at[2 * low + 1]);
    }
  }
  static __device__ __forceinline__ float sum_partial(const float* partial, int row, int key) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += partial[w * kRows * kKeys + place_of(row, key)];
    return sum + 0.0f * sum;  // what is beyond the largest number is not a number
  }

  // phi's columns of a block that this lane holds are 4t to 4t + 3; element (side, e) of its two
  // products is column 4t + 2 (e % 2) + side of row g or g + 8.
  __device__ __forceinline__ void add_values(const float* tile, const float* weights,
                                             const float* rescale,
                                             Fragment (&phi)[kBlocks][2]) const {
    Split<4> a[2];
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      float p[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        p[e] = weights[(g + e % 2 * 8) * kWeightRow + 8 * step + t + e / 2 * 4];
      a[step] = split(p);
    }
    const float keep[2] = {rescale[g], rescale[g + 8]};
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      float x[2][2][2];  // side, step, k
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 pair =
            load_pair(tile + (t + 4 * k) * L::kStride + first_column + b * kBlockColumns + 2 * g);
        x[0][k / 2][k % 2] = pair.x;
        x[1][k / 2][k % 2] = pair.y;
      }
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const Fragment part = product(a, x[side]);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          phi[b][side].at[e] = phi[b][side].at[e] * keep[e / 2] + part.at[e];
      }
    }
  }

  __device__ __forceinline__ void store(float* phi_row, float scale, int half,
                                        const Fragment (&phi)[kBlocks][2]) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int column = first_column + b * kBlockColumns + 4 * t;
      if (column >= d) continue;
      const auto at = [&](int k) { return scale * phi[b][k % 2].at[2 * half + k / 2]; };
      *reinterpret_cast<float4*>(phi_row + column) = make_float4(at(0), at(1), at(2), at(3));
    }
  }
};

template <int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks <= 3 ? 2 : 1)
    features_kernel(const FeatureRows in, unsigned row_tiles) {
  using L = Layout<kBlocks>;
  WSFAST_DYNAMIC_SHARED(float, tiles);
  float* partial = tiles + kTiles * L::kTile;
  WSFAST_SHARED(float, weights, kRows* kWeightRow);
  WSFAST_SHARED(float, rescale, kRows);

  const int n = static_cast<int>(in.n), d = static_cast<int>(in.d);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int first_row = static_cast<int>(blockIdx.x % row_tiles) * kRows;
  const Index run = blockIdx.x / row_tiles;
  const Index text = static_cast<unsigned>(run) / static_cast<unsigned>(in.draws);
  const float* words = in.words + text * n * d;
  const std::uint8_t* mask = in.mask ? in.mask + text * n : nullptr;
  const Block<kBlocks> self{n, d, first_row, warp * L::kWarpColumns, lane / 4, lane % 4};
  // The score that is this thread's, once partial sums are added up.
  const int row = threadIdx.x / kKeys, key = threadIdx.x % kKeys;
  const Weigh<float> weigh{in.weight_fn, in.curve};
  float shift = kNoScore<float>, sum = 0.0f;  // of the row, and of this thread's weights

  float q[kBlocks][2][4];
  Fragment phi[kBlocks][2] = {};
  self.load_queries(in.queries + run * n * d, in.scale, q);
  self.copy_words(words, 0, tiles);
  close_copies();
  for (int first_word = 0, turn = 0; first_word < n; first_word += kKeys, ++turn) {
    const float* tile = tiles + turn % kTiles * L::kTile;
    if (first_word + kKeys < n)
      self.copy_words(words, first_word + kKeys, tiles + (turn + 1) % kTiles * L::kTile);
    close_copies();
    await_copies<1>();
    __syncwarp();
    Fragment scores[2] = {};
    self.add_scores(tile, q, scores);
    self.put_partial(partial + warp * kRows * kKeys, scores);
    __syncthreads();
    const int word = first_word + key;
    const bool seen = word < n && (mask == nullptr || mask[word] != 0);
    const float score = seen ? self.sum_partial(partial, row, key) : kNoScore<float>;
    float keep = 1.0f;
    if (weigh.exponential()) {
      const float largest = larger(over_warp<kKeys>(Larger{}, score), shift);
      if (largest > shift) keep = exp_of(shift - largest);
      shift = largest;
    }
    const float weight = seen ? weigh(score, shift) : 0.0f;
    sum = sum * keep + weight;
    weights[row * kWeightRow + key] = weight;
    if (key == 0) rescale[row] = keep;
    __syncthreads();
    __syncwarp();  // products are of whole warps
    self.add_values(tile, weights, rescale, phi);
    __syncwarp();  // the tile is overwritten in the next turn
  }

  sum = over_warp<kKeys>(Add{}, sum);
  __syncthreads();
  if (key == 0) {
    const int word = first_row + row;
    const bool counts = word < n && (mask == nullptr || mask[word] != 0);
    rescale[row] = counts ? weigh.scale(sum) : 0.0f;
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int mine = self.g + 8 * half, at = first_row + mine;
    if (at < n) self.store(in.phi + run * n * d + at * d, rescale[mine], half, phi);
  }
}

template <int kBlocks>
int launch_features(const FeatureRows& in, Stream stream) {
  if ((in.n + kKeys) * in.d > INT32_MAX) return cudaErrorInvalidValue;
  const unsigned row_tiles = blocks_of(in.n, kRows);
  return launch(features_kernel<kBlocks>, blocks_of(in.texts * in.draws * row_tiles), kThreads,
                Layout<kBlocks>::kBytes, stream, in, row_tiles);
}

int raf_features(const FeatureRows& in, Stream stream) {
  if (in.d <= Layout<1>::kColumns) return launch_features<1>(in, stream);
  if (in.d <= Layout<3>::kColumns) return launch_features<3>(in, stream);
  if (in.d <= Layout<6>::kColumns) return launch_features<6>(in, stream);
  if (in.d <= Layout<8>::kColumns) return launch_features<8>(in, stream);
  return cudaErrorInvalidValue;
}

int feature_columns(int device) {
  const std::size_t limit = shared_limit(device);
  int columns = 0;
  const auto try_layout = [&](auto layout) {
    using L = decltype(layout);
    if (L::kWithStatic <= limit) columns = L::kColumns;
  };
  try_layout(Layout<1>{}), try_layout(Layout<3>{}), try_layout(Layout<6>{}),
      try_layout(Layout<8>{});
  return columns;
}

}  // namespace wsfast::cuda
