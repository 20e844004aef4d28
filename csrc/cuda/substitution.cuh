// The change of phi where candidates replace words: one kernel for what takes one row of each
// (candidate, position), and one for all other rows.
#pragma once

#include "contenders.cuh"

namespace wsfast::cuda {

// The candidate's own row and dominated pairs, to `value`; what a row and a candidate give to all
// positions, in place; and the bounds. Of `attention`, the row of own errors becomes the root
// of the sum `direct`, which the kernel below asks for.
template <class G, typename T>
__global__ void __launch_bounds__(kRowThreads, kBlocksAtOnce<T>)
    apart_kernel(const G g, const __grid_constant__ SubstitutionState<T> in,
                 const __grid_constant__ SubstitutionTile<T> tile) {
  WSFAST_SHARED(T, scratch, 4 * kRowThreads);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const Column<T> column(tile, Index(blockIdx.x) * kWarp + lane);
  const Index n = in.n;
  const T v2 = column.get(tile.norm2);
  const Index top = column.there ? tile.top[column.at] : 0;

  T mean[4] = {0, 0, 0, 0};  // |mean|^2, mean.v, and x_top.mean, x_top.v
#pragma unroll 4
  for (Index j = warp; j < n; j += kRowWarps)
    add_to_mean(column.get(tile.keys, j), column.get(tile.mean_products, j),
                column.get(tile.words, j), j == top, &mean[0], &mean[1], &mean[2], &mean[3]);
  over_warps(mean, scratch);

  const T* const attention = tile.attention;
  const OwnShares<T> shares = {column.get(attention, 0), column.get(attention, 1),
                               column.get(attention, 2), column.get(attention, 3),
                               column.get(attention, 4), column.get(attention, 5)};
  const T top2 = in.gram[top * n + top];
  for (Index p = warp; p < in.positions; p += kRowWarps) {
    const Index i = in.index[p];
    const T *const gram = in.gram + i * n, *const phi_words = in.phi_words + p * n;
    const T v_word = column.get(tile.words, i);
    const T v_phi = phi_product(in.base_weight[i], column.get(tile.base, i), in.top_weight[i],
                                column.get(tile.words, in.top[i]));
    const OwnProducts<T> products = {mean[0],
                                     mean[1],
                                     mean[2],
                                     mean[3],
                                     v2,
                                     top2,
                                     gram[top],
                                     phi_words[top],
                                     column.get(tile.mean_products, i),
                                     column.get(tile.mean_products, n + p),
                                     v_word,
                                     v_phi,
                                     gram[i],
                                     phi_words[i],
                                     in.phi2[i]};
    T value = own_change(g, products, shares, column.get(tile.keys, i), i == top);
    for (Index k = in.dominated_start[p]; k < in.dominated_start[p + 1]; ++k) {
      const Index j = in.dominated_row[k];
      add_dominated(g, in.dominated + 5 * k, column.get(tile.scores, j), column.get(tile.base, j),
                    v_word, v2, &value);
    }
    column.put(tile.value, p, value);
  }

  const T error = score_error_of(in, v2);
  T sums[3] = {0, 0, 0};  // strength, response, direct
  if constexpr (G::kNormalized) {
    for (Index k = warp; k < in.dominated_start[in.positions]; k += kRowWarps)
      see_dominated(g, column.get(tile.scores, in.dominated_row[k]), in.dominated[5 * k + 1], error,
                    &sums[0], &sums[1]);
  }
  __syncthreads();  // scores and products with the base have been read by all
  for (Index j = warp; j < n; j += kRowWarps) {
    T score = column.get(tile.scores, j), base = column.get(tile.base, j);
    put_odds(g, column.get(tile.words, in.top[j]), in.base_weight[j], in.top_weight[j], in.full[j],
             in.phi2[j], in.gain2[j], v2, error, &score, &base, &sums[0], &sums[1], &sums[2]);
    column.put(tile.scores, j, score);
    column.put(tile.base, j, base);
  }
  over_warps(sums, scratch);
  if (warp == 0 && column.there) {
    const OwnRow<T> own = own_row_at(tile, column.at);
    close_bounds(g, in, v2, error, sums[0], sums[1], *own.size, *own.norm_error,
                 tile.size + column.at, tile.norm_error + column.at);
    *own.norm_error = root(sums[2]);
  }
}

// ---- all other rows: a block has 64 candidates, two a lane, and a few positions for each warp

constexpr int kTileWarps = 8;
constexpr int kTileThreads = kTileWarps * kWarp;
constexpr int kWarpPositions = 4;
constexpr int kTilePositions = kTileWarps * kWarpPositions;
constexpr int kPerLane = static_cast<int>(kTileCandidates) / kWarp;
constexpr int kChunkGroups = 4;  // groups of rows that shared memory holds
constexpr int kChunkRows = kChunkGroups * static_cast<int>(kGroup);
constexpr int kTerms = 3;  // numbers of struct RowTerms
constexpr int kPair = 4;   // numbers of struct Pair

template <typename T>
using OfLane = Pack<kPerLane, T>;  // numbers of its candidates
template <typename T>
using OfPair = Pack<kPair, T>;
template <typename T>
constexpr int kPieces = static_cast<int>(kGroup * sizeof(OfPair<T>)) / 16;  // of a position's group

// Which positions and candidates are a warp's.
template <typename T>
struct Place {
  int lane, warp;
  Index positions, first, first_mine;  // of the block and of the warp
  Column<T> columns[kPerLane];

  __device__ __forceinline__ Place(const SubstitutionState<T>& in, const SubstitutionTile<T>& tile)
      : lane(threadIdx.x % kWarp),
        warp(threadIdx.x / kWarp),
        positions(in.positions),
        first(Index(blockIdx.y) * kTilePositions),
        first_mine(first + warp * kWarpPositions),
        columns{{tile, Index(blockIdx.x) * kTileCandidates + lane},
                {tile, Index(blockIdx.x) * kTileCandidates + kWarp + lane}} {}
  __device__ __forceinline__ bool there(int r) const { return first_mine + r < positions; }
  // The last position stands in for those beyond it.
  __device__ __forceinline__ Index position(int r) const {
    return there(r) ? first_mine + r : positions - 1;
  }
};

// What the kernel keeps of a warp's positions and a lane's candidates.
template <typename T>
struct Squares {
  T v_word[kWarpPositions][kPerLane], square[kWarpPositions][kPerLane];
  unsigned live;  // bits of the positions where some candidate may reach the threshold
};

template <typename T>
__device__ __forceinline__ Squares<T> known_squares(const SubstitutionState<T>& in,
                                                    const SubstitutionTile<T>& tile,
                                                    const Place<T>& place) {
  Squares<T> mine;
  mine.live = 0;
#pragma unroll
  for (int r = 0; r < kWarpPositions; ++r) {
    const Index p = place.position(r), i = in.index[p];
    bool reaches = tile.threshold == nullptr;
#pragma unroll
    for (int c = 0; c < kPerLane; ++c) {
      const Column<T>& column = place.columns[c];
      mine.v_word[r][c] = column.get(tile.words, i);
      mine.square[r][c] = column.get(tile.value, p);
      if (reaches || !column.there) continue;
      const Reach<T> reach = {in.removed_norm[p], in.constant[p], tile.threshold[p]};
      reaches = may_reach(reach, in.product_error, mine.square[r][c],
                          column.get(own_row_at(tile, 0).norm_error), column.get(tile.size),
                          root(column.get(tile.norm_error))) > T(0);
    }
    if (__any_sync(kWholeWarp, reaches && place.there(r))) mine.live |= 1u << r;
  }
  return mine;
}

template <typename T>
__device__ __forceinline__ Pair<T> pair_of(const OfPair<T>& numbers) {
  return {numbers.at[0], numbers.at[1], numbers.at[2], numbers.at[3]};
}

template <class G, typename T>
__device__ __forceinline__ T quotient(const G&, Fraction<T> f) {
  return G::kNormalized ? f.numerator * reciprocal(f.denominator) : f.numerator;
}

// To `square` what two rows give at one position, those of them whose change has this form.
template <class G, typename T>
__device__ __forceinline__ void add_two(const G& g, const OfPair<T>* pairs,
                                        const RowTerms<T> (&rows)[2][kPerLane],
                                        const T (&v_word)[kPerLane], T (&square)[kPerLane]) {
  const Pair<T> two[2] = {pair_of(pairs[0]), pair_of(pairs[1])};
  if (smaller(two[0].twice_a, two[1].twice_a) >= T(0)) {
#pragma unroll
    for (int c = 0; c < kPerLane; ++c)
      square[c] += quotient(g, squared_change(g, two[0], rows[0][c], v_word[c]) +
                                   squared_change(g, two[1], rows[1][c], v_word[c]));
    return;
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    if (two[k].twice_a < T(0)) continue;
#pragma unroll
    for (int c = 0; c < kPerLane; ++c)
      square[c] += quotient(g, squared_change(g, two[k], rows[k][c], v_word[c]));
  }
}

// `count` groups of rows, which shared memory is filled with.
template <class G, typename T>
__device__ __forceinline__ void add_chunk(const G& g, const OfLane<T>* terms,
                                          const OfPair<T>* pairs, int count, Squares<T>& mine) {
  terms += threadIdx.x % kWarp;
  pairs += threadIdx.x / kWarp * (kWarpPositions * kGroup);
#pragma unroll 1
  for (; count > 0; --count) {
#pragma unroll
    for (int k = 0; k < kGroup; k += 2) {
      RowTerms<T> rows[2][kPerLane];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const OfLane<T>* at = terms + (k + row) * kTerms * kWarp;
        const OfLane<T> direct = at[0], odds = at[kWarp], offset = at[2 * kWarp];
#pragma unroll
        for (int c = 0; c < kPerLane; ++c) rows[row][c] = {direct.at[c], odds.at[c], offset.at[c]};
      }
#pragma unroll
      for (int r = 0; r < kWarpPositions; ++r) {
        if (mine.live >> r & 1)
          add_two(g, pairs + r * kGroup + k, rows, mine.v_word[r], mine.square[r]);
      }
    }
    terms += kGroup * kTerms * kWarp;
    pairs += kTilePositions * kGroup;
  }
}

// Fills shared memory with `count` groups from the group `from` on; the copies of pairs may still
// be under way.
template <class G, typename T>
__device__ __forceinline__ void fetch_chunk(const G& g, const SubstitutionState<T>& in,
                                            const SubstitutionTile<T>& tile, const Place<T>& place,
                                            Index from, int count, OfLane<T>* terms,
                                            OfPair<T>* pairs) {
  const Index P = place.positions;
#pragma unroll 1
  for (int piece = threadIdx.x; piece < count * kTilePositions * kPieces<T>;
       piece += kTileThreads) {
    const int group = piece / (kTilePositions * kPieces<T>);
    const Index next = place.first + piece / kPieces<T> % kTilePositions;
    const T* const row =
        in.pairs + ((from + group) * P + (next < P ? next : P - 1)) * kGroup * kPair;
    copy_async(reinterpret_cast<char*>(pairs) + 16 * piece,
               reinterpret_cast<const char*>(row) + 16 * (piece % kPieces<T>), 16);
  }
  close_copies();
#pragma unroll 1
  for (int k = place.warp; k < count * kGroup; k += kTileWarps) {
    const Index j = from * kGroup + k;
    OfLane<T> at[kTerms] = {};  // filling up a group adds exactly 0
    if (j < in.n) {
      const T phi2 = in.phi2[j];
#pragma unroll
      for (int c = 0; c < kPerLane; ++c) {
        const Column<T>& column = place.columns[c];
        const RowTerms<T> one = row_terms(g, column.get(tile.scores, j), column.get(tile.norm2),
                                          column.get(tile.base, j), phi2);
        at[0].at[c] = one.direct, at[1].at[c] = one.odds, at[2].at[c] = one.offset;
      }
    }
#pragma unroll
    for (int e = 0; e < kTerms; ++e) terms[(k * kTerms + e) * kWarp + place.lane] = at[e];
  }
}

template <typename T>
__device__ __forceinline__ void see_bounds(const SubstitutionState<T>& in,
                                           const SubstitutionTile<T>& tile, const Place<T>& place,
                                           const Squares<T>& mine, const ContenderList<T>& list) {
  T best[kWarpPositions] = {};
#pragma unroll
  for (int c = 0; c < kPerLane; ++c) {
    const Column<T>& column = place.columns[c];
    const T size = column.get(tile.size), norm_error = root(column.get(tile.norm_error));
#pragma unroll
    for (int r = 0; r < kWarpPositions; ++r) {
      const Index p = place.position(r);
      const bool possible = column.there && (list.allowed == nullptr ||
                                             list.allowed[p * tile.candidates + column.at] != 0);
      const T low =
          lower_bound(mine.square[r][c], size + in.constant[p], in.product_error, norm_error);
      best[r] = possible ? larger(best[r], low) : best[r];
    }
  }
#pragma unroll
  for (int r = 0; r < kWarpPositions; ++r) {
    const T low = over_warp(Larger{}, best[r]);
    if (place.lane == 0 && place.there(r))
      raise_bounds(list, place.position(r), list.first_block + blockIdx.x, low);
  }
}

template <class G, typename T>
__global__ void __launch_bounds__(kTileThreads, kBlocksAtOnce<T>)
    rows_kernel(const G g, const __grid_constant__ SubstitutionState<T> in,
                const __grid_constant__ SubstitutionTile<T> tile,
                const __grid_constant__ ContenderList<T> list) {
  WSFAST_SHARED(OfLane<T>, terms, kChunkRows * kTerms * kWarp);
  WSFAST_SHARED(OfPair<T>, pairs, kChunkRows * kTilePositions);
  const Place<T> place(in, tile);
  Squares<T> mine = known_squares(in, tile, place);
  const bool any = __syncthreads_or(mine.live != 0) != 0;
  const Index groups = (in.n + kGroup - 1) / kGroup;
  for (Index from = 0; any && from < groups; from += kChunkGroups) {
    const int count = static_cast<int>(smaller(groups - from, Index(kChunkGroups)));
    fetch_chunk(g, in, tile, place, from, count, terms, pairs);
    await_copies<0>();
    __syncthreads();
    if (mine.live != 0) add_chunk(g, terms, pairs, count, mine);
    __syncthreads();
  }

#pragma unroll
  for (int r = 0; r < kWarpPositions; ++r) {
#pragma unroll
    for (int c = 0; c < kPerLane; ++c)
      if (mine.live >> r & 1)
        place.columns[c].put(tile.value, place.position(r), mine.square[r][c]);
  }
  if (list.surest != nullptr) see_bounds(in, tile, place, mine, list);
}

template <typename T>
int substitution_tile(const SubstitutionState<T>& in, const SubstitutionTile<T>& tile,
                      const ContenderList<T>* list, Stream stream) {
  const int error = with_given_weight_fn(in.weight_fn, [&](const auto& g) {
    using G = std::decay_t<decltype(g)>;
    const int first = launch(apart_kernel<G, T>, blocks_of(tile.candidates, kWarp), kRowThreads, 0,
                             stream, g, in, tile);
    if (first != cudaSuccess) return first;
    const dim3 grid(blocks_of(tile.candidates, kTileCandidates),
                    blocks_of(in.positions, kTilePositions));
    return launch(rows_kernel<G, T>, grid, kTileThreads, 0, stream, g, in, tile,
                  list == nullptr ? ContenderList<T>{} : *list);
  });
  if (error != cudaSuccess || list == nullptr) return error;
  return keep_contenders(in, tile, *list, stream);
}

}  // namespace wsfast::cuda
