// Random attention features in one pass over the words (docs/design.md, section 6).
//
// A block takes kRows queries of one text and draw and meets the words kKeys at a time. Its warps
// divide the columns: each keeps its columns of the queries and of phi in registers and copies its
// columns of the words, which serve the scores and phi alike, to shared memory, one tile ahead.
// Partial scores are summed over the warps; then every thread has one score. The weights are those
// of the online softmax *without the row's largest word*, which joins at the end: phi is exact
// however far that word stands out, and the statistics of the row come with it. A word that ceases
// to be the largest is added in its turn.
//
// Where d has more columns than a block can hold (kWide), blocks divide them in slabs: scores are
// summed over all slabs, a block's own slab last, and phi is formed there.
#pragma once

#include "launch.h"
#include "online_weights.cuh"
#include "word_tile.cuh"

namespace wsfast {
namespace cuda {
namespace {

constexpr int kRows = 16, kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kTiles = 2;              // of words, in shared memory
constexpr int kWeightRow = kKeys + 4;  // rows of weights start in different banks

template <typename Word, int kBlocks>
struct Layout {
  using T = typename WordTile<Word>::Value;
  static constexpr int kWarpColumns = kBlocks * kBlockColumns;
  static constexpr int kSlab = kWarps * kWarpColumns;
  static constexpr int kStride = kSlab + WordTile<Word>::kPadding;
  static constexpr int kTile = kKeys * kStride;
  static constexpr std::size_t kBytes =
      kTiles * kTile * sizeof(Word) + kWarps * kRows * kKeys * sizeof(T);
  static constexpr std::size_t kWithStatic = kBytes + (4 << 10);  // the block's fixed arrays
};

__device__ __forceinline__ void store_pair(float* to, float x, float y) {
  *reinterpret_cast<float2*>(to) = make_float2(x, y);
}
__device__ __forceinline__ void store_pair(double* to, double x, double y) {
  *reinterpret_cast<double2*>(to) = make_double2(x, y);
}

// `kept` numbers of a row that are a multiple of 16 bytes.
__device__ __forceinline__ void store_four(float* to, const float (&x)[4], int) {
  *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
}
__device__ __forceinline__ void store_four(double* to, const double (&x)[4], int kept) {
  store_pair(to, x[0], x[1]);
  if (kept > 2) store_pair(to + 2, x[2], x[3]);
}

template <typename T, typename Word, int kBlocks, bool kWide>
struct Block {
  using L = Layout<Word, kBlocks>;
  using Tile = WordTile<Word>;

  const FeatureRows<T, Word>& in;
  int slabs, own_slab, first_row;
  const Word* words;         // of the text
  const T* queries;          // of the text and draw
  const std::uint8_t* mask;  // of the text, or null
  int lane, warp, g, t;

  __device__ __forceinline__ int slab_at(int turn) const {
    return kWide ? (own_slab + 1 + turn % slabs) % slabs : 0;
  }
  __device__ __forceinline__ int first_column(int slab) const {
    return slab * L::kSlab + warp * L::kWarpColumns;
  }

  // This warp's columns of the words of a turn: tile turn / slabs, slab by slab.
  __device__ __forceinline__ void copy_words(int turn, Word* tile) const {
    constexpr int kPer = 16 / static_cast<int>(sizeof(Word));  // numbers of one copy
    constexpr int kCopies = L::kWarpColumns / kPer;
    const int first_word = turn / (kWide ? slabs : 1) * kKeys;
    const int from = first_column(slab_at(turn));
#pragma unroll 2  // more of their addresses would take the registers of q and phi
    for (int k = 0; k < kKeys * kCopies / kWarp; ++k) {
      const int copy = lane + k * kWarp, key = copy / kCopies, part = copy % kCopies * kPer;
      const int word = first_word + key, column = from + part;
      const bool inside = word < in.n && column < in.d;
      copy_async(tile + key * L::kStride + warp * L::kWarpColumns + part,
                 inside ? words + word * in.d + column : words, inside ? 16 : 0);
    }
  }

  __device__ __forceinline__ void load_query(int column, T (&a)[2][4]) const {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = first_row + g + e % 2 * 8;
        const int at = column + Tile::column(step, e / 2, t);
        a[step][e] = row < in.n && at < in.d ? in.scale * __ldg(queries + row * in.d + at) : T(0);
      }
    }
  }
  __device__ __forceinline__ void load_queries(int slab, T (&q)[kBlocks][2][4]) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      load_query(first_column(slab) + block * kBlockColumns, q[block]);
  }

  __device__ __forceinline__ void add_scores(const Word* tile, T (&q)[2][4], int block,
                                             T (&scores)[2][4]) const {
    T b[2][2][2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      Tile::load_block(
          tile + (g + 8 * half) * L::kStride + warp * L::kWarpColumns + block * kBlockColumns, t,
          b[half]);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        forget_derived(q[step][e]);  // its split is not kept between tiles
      const Split<T, 4> a = split(q[step]);
#pragma unroll
      for (int half = 0; half < 2; ++half) Tile::multiply(scores[half], a, b[half][step]);
    }
  }

  // Where a score of the tile lies among the partial sums of a warp: rows that are written together
  // start in other banks.
  static __device__ __forceinline__ int place_of(int row, int key) {
    constexpr int kMoved = sizeof(T) == sizeof(float) ? 2 : 1;
    return row * kKeys + (key ^ (row & kMoved) * (8 / kMoved));
  }
  __device__ __forceinline__ void put_partial(T* partial, const T (&scores)[2][4]) const {
    T* mine = partial + warp * kRows * kKeys;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int low = 0; low < 2; ++low)
        store_pair(mine + place_of(g + 8 * low, 8 * half + 2 * t), scores[half][2 * low],
                   scores[half][2 * low + 1]);
    }
  }
  static __device__ __forceinline__ T sum_partial(const T* partial, int row, int key) {
    T sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += partial[w * kRows * kKeys + place_of(row, key)];
    return sum;
  }

  // phi's columns of a block that this lane holds are 4t to 4t + 3; element (side, e) of its two
  // products is column 4t + 2 (e % 2) + side of row g or g + 8.
  __device__ __forceinline__ void add_values(const Word* tile, const T* weights,
                                             T (&phi)[kBlocks][2][4]) const {
#pragma unroll
    for (int step = 0; step < kKeys / 8; ++step) {
      T p[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        p[e] = weights[(g + e % 2 * 8) * kWeightRow + 8 * step + t + e / 2 * 4];
      const Split<T, 4> a = split(p);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        T x[2][2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
          Tile::load_pair(tile + (8 * step + t + 4 * half) * L::kStride + warp * L::kWarpColumns +
                              block * kBlockColumns + 2 * g,
                          x[half]);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const T b[2] = {x[0][side], x[1][side]};
          Tile::multiply(phi[block][side], a, b);
        }
      }
    }
  }

  // Four columns of a word from global memory; 0 beyond d.
  __device__ __forceinline__ void load_word(int word, int column, T (&x)[4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      T pair[2] = {T(0), T(0)};
      if (column + 2 * half < in.d) Tile::load_pair(words + word * in.d + column + 2 * half, pair);
      x[2 * half] = pair[0];
      x[2 * half + 1] = pair[1];
    }
  }

  __device__ __forceinline__ void change_phi(const T* rescale, const T* again,
                                             const int* again_word, T (&phi)[kBlocks][2][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = g + 8 * half;
      const T factor = rescale[row], weight = again[row];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int k = 0; k < 4; ++k) phi[block][k % 2][2 * half + k / 2] *= factor;
      }
      if (weight == T(0)) continue;
      const int word = again_word[row], from = first_column(own_slab) + 4 * t;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        T x[4];
        load_word(word, from + block * kBlockColumns, x);
#pragma unroll
        for (int k = 0; k < 4; ++k) phi[block][k % 2][2 * half + k / 2] += weight * x[k];
      }
    }
  }

  __device__ __forceinline__ void store(const RowEnd<T>& end, int row, int half, T* phi_row,
                                        T* mean_row, const T (&phi)[kBlocks][2][4]) const {
    const bool counts = mask == nullptr || mask[row] != 0;
    const int from = first_column(own_slab) + 4 * t;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int column = from + block * kBlockColumns, kept = static_cast<int>(in.d) - column;
      if (kept <= 0) continue;
      T top[4] = {T(0), T(0), T(0), T(0)}, out[4], mean[4];
      if (end.top >= 0) load_word(end.top, column, top);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const T rest = phi[block][k % 2][2 * half + k / 2];
        out[k] = counts ? end.keep * rest + end.pull * top[k] : T(0);
        mean[k] = end.mean * rest;
      }
      store_four(phi_row + column, out, kept);
      if (mean_row != nullptr) store_four(mean_row + column, mean, kept);
    }
  }
};

template <typename T, typename Word, int kBlocks, bool kWide>
__global__ void __launch_bounds__(kThreads, kBlocks <= 3 && sizeof(T) == sizeof(float) ? 2 : 1)
    features_kernel(const FeatureRows<T, Word> in, int slabs, int row_tiles) {
  using L = Layout<Word, kBlocks>;
  WSFAST_DYNAMIC_SHARED(Word, tiles);
  T* partial = reinterpret_cast<T*>(tiles + kTiles * L::kTile);
  WSFAST_SHARED(T, weights, kRows * kWeightRow);
  WSFAST_SHARED(T, rescale, kRows);
  WSFAST_SHARED(T, again, kRows);
  WSFAST_SHARED(int, again_word, kRows);
  WSFAST_SHARED(RowEnd<T>, ends, kRows);

  const int n = static_cast<int>(in.n), lane = threadIdx.x % kWarp;
  int block = blockIdx.x;
  const int own_slab = kWide ? block % slabs : 0;
  if (kWide) block /= slabs;
  const int first_row = block % row_tiles * kRows;
  const std::int64_t run = block / row_tiles, text = run / in.draws;
  const Block<T, Word, kBlocks, kWide> self{in,
                                            slabs,
                                            own_slab,
                                            first_row,
                                            in.words + text * in.n * in.d,
                                            in.queries + run * in.n * in.d,
                                            in.mask ? in.mask + text * in.n : nullptr,
                                            lane,
                                            static_cast<int>(threadIdx.x) / kWarp,
                                            lane / 4,
                                            lane % 4};
  // The score that is this thread's, once partial sums are added up.
  const int row = threadIdx.x / kKeys, key = threadIdx.x % kKeys;
  const Weigh<T> weigh{in.weight_fn, in.curve};
  RowState<T> state{kNoScore<T>, -1, kNoScore<T>, T(0)};

  T q[kBlocks][2][4], phi[kBlocks][2][4] = {}, scores[2][4] = {};
  if (!kWide) self.load_queries(0, q);
  const int turns = (n + kKeys - 1) / kKeys * slabs;
  self.copy_words(0, tiles);
  close_copies();
  for (int turn = 0; turn < turns; ++turn) {
    const Word* tile = tiles + turn % kTiles * L::kTile;
    if (turn + 1 < turns) self.copy_words(turn + 1, tiles + (turn + 1) % kTiles * L::kTile);
    close_copies();
    if (kWide) self.load_queries(self.slab_at(turn), q);
    await_copies<1>();
    __syncwarp();
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) self.add_scores(tile, q[b], b, scores);
    if (kWide && turn % slabs != slabs - 1) {
      __syncwarp();  // the tile is overwritten in the turn after next
      continue;
    }
    self.put_partial(partial, scores);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[half][e] = T(0);
    }
    __syncthreads();
    const int word = turn / slabs * kKeys + key;
    const bool seen = word < n && (self.mask == nullptr || self.mask[word] != 0);
    TileChange<T> change;
    const T score = seen ? self.sum_partial(partial, row, key) : kNoScore<T>;
    weights[row * kWeightRow + key] = see_tile(weigh, score, word, state, change);
    if (key == 0) {
      rescale[row] = change.rescale;
      again[row] = change.again;
      again_word[row] = change.again_word;
    }
    __syncthreads();
    self.change_phi(rescale, again, again_word, phi);
    self.add_values(tile, weights, phi);
    __syncwarp();
  }

  if (key == 0) {
    ends[row] = end_row(weigh, state);
    if (in.top != nullptr && own_slab == 0 && first_row + row < n) {
      const std::int64_t at = run * in.n + first_row + row;
      in.top[at] = state.top;
      in.top_score[at] = state.top_score;
      in.others[at] = state.sum;
      if (weigh.exponential())
        in.others[at] = state.sum > T(0) ? state.shift + log_of(state.sum) : kNoScore<T>;
    }
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int mine = self.g + 8 * half, at = first_row + mine;
    if (at >= n) continue;
    const std::int64_t offset = (run * in.n + at) * in.d;
    self.store(ends[mine], at, half, in.phi + offset,
               in.others_mean ? in.others_mean + offset : nullptr, phi);
  }
}

template <typename T, typename Word, int kBlocks, bool kWide>
int launch_features(const FeatureRows<T, Word>& in, Stream stream) {
  using L = Layout<Word, kBlocks>;
  const std::int64_t slabs = kWide ? (in.d + L::kSlab - 1) / L::kSlab : 1;
  const std::int64_t row_tiles = (in.n + kRows - 1) / kRows;
  const std::int64_t blocks = in.texts * in.draws * row_tiles * slabs;
  if (blocks > INT32_MAX || in.n * in.d > INT32_MAX) return cudaErrorInvalidValue;
  return launch(&features_kernel<T, Word, kBlocks, kWide>, dim3(static_cast<unsigned>(blocks)),
                kThreads, L::kBytes, stream, in, static_cast<int>(slabs),
                static_cast<int>(row_tiles));
}

// The narrowest kernel whose blocks hold all columns; else the widest that the device has shared
// memory for, and slabs.
template <typename T, typename Word>
int choose_features(const FeatureRows<T, Word>& in, Stream stream) {
  if (in.texts * in.draws * in.n == 0) return cudaSuccess;
  const auto holds = [&](auto layout) {
    using L = decltype(layout);
    return in.d <= L::kSlab && L::kWithStatic <= shared_limit();
  };
  if (holds(Layout<Word, 1>{})) return launch_features<T, Word, 1, false>(in, stream);
  if (holds(Layout<Word, 3>{})) return launch_features<T, Word, 3, false>(in, stream);
  if constexpr (sizeof(T) == sizeof(float)) {
    if (holds(Layout<Word, 6>{})) return launch_features<T, Word, 6, false>(in, stream);
    if (holds(Layout<Word, 8>{})) return launch_features<T, Word, 8, false>(in, stream);
    if (Layout<Word, 8>::kWithStatic <= shared_limit())
      return launch_features<T, Word, 8, true>(in, stream);
  } else if (Layout<Word, 3>::kWithStatic > shared_limit()) {
    return launch_features<T, Word, 1, true>(in, stream);
  }
  return launch_features<T, Word, 3, true>(in, stream);
}

}  // namespace

template <typename T, typename Word>
int raf_features(const FeatureRows<T, Word>& in, Stream stream) {
  return choose_features(in, stream);
}

}  // namespace cuda
}  // namespace wsfast
