// A word replaced by candidates of a vocabulary (docs/design.md, section 4); part of kernels.inl.
// One candidate a lane: what depends on a row and a position alone is a scalar of the loops here.
#include "../substitution_formulas.h"

namespace wsfast {
namespace {

// Rows j whose terms are held at a time: they stay in the innermost cache.
constexpr Index kChunk = 32;

// Positions that are summed over the rows together: what is noted of each lies on the stack.
constexpr Index kTogether = 1024;

template <typename T>
T centre_row(const T* given, const T* shift, T* centred, Index d) {  // returns its squared norm
  T norm2 = 0;
#pragma omp simd reduction(+ : norm2)
  for (Index k = 0; k < d; ++k) {
    const T x = given[k] - shift[k];
    centred[k] = x;
    norm2 += x * x;
  }
  return norm2;
}

template <typename T>
void centre_rows(const CentredRows<T>& in, int threads) {
  for_rows(in.rows, in.d, threads, [&](Index row) {
    in.norm2[row] = centre_row(in.given + row * in.d, in.shift, in.centred + row * in.d, in.d);
  });
}

// ---- the candidate's own attention to the words of the text
// ---------------------------------------------------------

template <class G, typename T>
void candidate_attention_block(const G& g, const SubstitutionState<T>& in,
                               const SubstitutionTile<T>& tile, Index column) {
  constexpr Index L = kLanes<T>;
  const Index n = in.n;
  T first[L], second[L], where[L], sum[L], live[L], error[L];
  for (Index l = 0; l < L; ++l) {
    first[l] = second[l] = T(kMinusInfinity);
    where[l] = sum[l] = live[l] = T(0);
    error[l] = key_error_of(in, tile.norm2[column + l]);
  }
  for (Index j = 0; j < n; ++j) {
    const T *key = tile.keys + j * tile.stride + column, shift = in.key_shift[j];
#pragma omp simd
    for (Index l = 0; l < L; ++l) see_score(key[l] + shift, T(j), first + l, second + l, where + l);
  }
  for (Index j = 0; j < n; ++j) {
    T *key = tile.keys + j * tile.stride + column, shift = in.key_shift[j];
#pragma omp simd
    for (Index l = 0; l < L; ++l)
      add_key(g, key + l, shift, T(j), where[l], second[l], error[l], sum + l, live + l);
  }
  const OwnRow<T> out = own_row_at(tile, column);
  const T *own_score = tile.own_score + column, *v2 = tile.norm2 + column;
#pragma omp simd
  for (Index l = 0; l < L; ++l)
    close_attention(g, in, first[l], second[l], sum[l], live[l], own_score[l], v2[l], out, l);
  for (Index l = 0; l < L; ++l) tile.top[column + l] = static_cast<Index>(where[l]);
  if constexpr (G::kNormalized) {
    for (Index l = 0; l < L; ++l) sum[l] = sum[l] > T(0) ? T(1) / sum[l] : T(0);
    for (Index j = 0; j < n; ++j) {
      T* key = tile.keys + j * tile.stride + column;
#pragma omp simd
      for (Index l = 0; l < L; ++l) key[l] *= sum[l];
    }
  }
}

template <typename T>
void candidate_attention(const SubstitutionState<T>& in, const SubstitutionTile<T>& tile,
                         int threads) {
  constexpr Index L = kLanes<T>;
  with_given_weight_fn(in.weight_fn, [&](const auto& g) {
    for_rows((tile.candidates + L - 1) / L, 8 * L * in.n, threads,
             [&](Index block) { candidate_attention_block(g, in, tile, block * L); });
  });
}

// ---- the change of φ
// ------------------------------------------------------------------------------------------------

// Sums over the words that the mean of v's own row needs, its largest word left out (`mean`), and
// the products of that largest word.
template <typename T>
struct MeanSums {
  T mean2[kLanes<T>], mean_v[kLanes<T>], top_mean[kLanes<T>], top_v[kLanes<T>];
};

// A position's rows of the tile, for the candidate's own row.
template <typename T>
struct OwnRows {
  const T *weight, *mean_word, *mean_phi, *v_word, *base, *top_of_row, *v2;
  T base_weight, top_weight, word2, word_phi, phi2, place;
};
template <class G, typename T>
WSFAST_FN T own_change_at(const G& g, const OwnRows<T>& rows, const MeanSums<T>& sums,
                          const OwnRow<T>& own, const T* where, const T* top2, const T* top_word,
                          const T* top_phi, Index l) {
  const bool is_top = where[l] == rows.place;
  const T v_phi = phi_product(rows.base_weight, rows.base[l], rows.top_weight, rows.top_of_row[l]);
  return own_change(
      g,
      OwnProducts<T>{sums.mean2[l], sums.mean_v[l], sums.top_mean[l], sums.top_v[l], rows.v2[l],
                     top2[l], top_word[l], top_phi[l], rows.mean_word[l], rows.mean_phi[l],
                     rows.v_word[l], v_phi, rows.word2, rows.word_phi, rows.phi2},
      OwnShares<T>{own.top[l], own.others[l], own.own[l], own.rest[l], own.own_no_top[l],
                   own.rest_no_top[l]},
      rows.weight[l], is_top);
}

template <typename T>
struct ChunkRows {  // struct RowTerms, one array of lanes a field
  T terms[kChunk][3][kLanes<T>];
};

template <typename T>
struct RowBounds {
  T strength[kLanes<T>], response[kLanes<T>], direct[kLanes<T>];
};

template <class G, typename T>
WSFAST_FN void put_terms(const G& g, T odds, T v_phi, T phi2, T v2, T* direct, T* kept, T* offset) {
  const RowTerms<T> row = row_terms(g, odds, v2, v_phi, phi2);
  *direct = row.direct;
  *kept = row.odds;
  *offset = row.offset;
}

template <class G, typename T>
WSFAST_FN Fraction<T> pair_change(const G& g, const T* pair, const T (*row)[kLanes<T>], Index l,
                                  T v_word) {
  return squared_change(g, Pair<T>{pair[0], pair[1], pair[2], pair[3]},
                        RowTerms<T>{row[0][l], row[1][l], row[2][l]}, v_word);
}
template <class G, typename T>
WSFAST_FN void add_pair(const G& g, const T* pair, const T (*row)[kLanes<T>], Index l, T v_word,
                        T* value) {
  const Fraction<T> change = pair_change(g, pair, row, l, v_word);
  *value += change.numerator / change.denominator;
}
template <class G, typename T>
WSFAST_FN void add_group(const G& g, const T* pairs, const T (*rows)[3][kLanes<T>], Index l,
                         T v_word, T* value) {
  const Fraction<T> first = pair_change(g, pairs, rows[0], l, v_word) +
                            pair_change(g, pairs + 4, rows[1], l, v_word),
                    second = pair_change(g, pairs + 8, rows[2], l, v_word) +
                             pair_change(g, pairs + 12, rows[3], l, v_word);
  *value += first.numerator / first.denominator + second.numerator / second.denominator;
}

template <class G, typename T>
struct NormsBlock {
  static constexpr Index L = kLanes<T>;
  const G& g;
  const SubstitutionState<T>& in;
  const SubstitutionTile<T>& tile;
  const Index column;

  const T* row(const T* array, Index j) const { return array + j * tile.stride + column; }
  T* value(Index p) const { return tile.value + p * tile.stride + column; }

  void own_rows() const {
    MeanSums<T> sums;
    const Index* top = tile.top + column;
    T where[L];
    for (Index l = 0; l < L; ++l) {
      sums.mean2[l] = sums.mean_v[l] = sums.top_mean[l] = sums.top_v[l] = T(0);
      where[l] = T(top[l]);
    }
    for (Index j = 0; j < in.n; ++j) {
      const T *weight = row(tile.keys, j), *by_mean = row(tile.mean_products, j),
              *v_word = row(tile.words, j);
#pragma omp simd
      for (Index l = 0; l < L; ++l)
        add_to_mean(weight[l], by_mean[l], v_word[l], where[l] == T(j), sums.mean2 + l,
                    sums.mean_v + l, sums.top_mean + l, sums.top_v + l);
    }
    T top2[L], top_word[L], top_phi[L];
    for (Index l = 0; l < L; ++l) top2[l] = in.gram[top[l] * in.n + top[l]];
    const OwnRow<T> own = own_row_at(tile, column);
    for (Index p = 0; p < in.positions; ++p) {
      const Index i = in.index[p];
      const T *gram = in.gram + i * in.n, *phi_words = in.phi_words + p * in.n;
      for (Index l = 0; l < L; ++l) {
        top_word[l] = gram[top[l]];
        top_phi[l] = phi_words[top[l]];
      }
      const OwnRows<T> rows{row(tile.keys, i),
                            row(tile.mean_products, i),
                            row(tile.mean_products, in.n + p),
                            row(tile.words, i),
                            row(tile.base, i),
                            row(tile.words, in.top[i]),
                            tile.norm2 + column,
                            in.base_weight[i],
                            in.top_weight[i],
                            gram[i],
                            phi_words[i],
                            in.phi2[i],
                            T(i)};
      T* out = value(p);
#pragma omp simd
      for (Index l = 0; l < L; ++l)
        out[l] = own_change_at(g, rows, sums, own, where, top2, top_word, top_phi, l);
    }
  }

  void dominated_pairs() const {
    const T* v2 = tile.norm2 + column;
    for (Index p = 0; p < in.positions; ++p) {
      for (Index k = in.dominated_start[p]; k < in.dominated_start[p + 1]; ++k) {
        const Index j = in.dominated_row[k];
        const T *score = row(tile.scores, j), *v_mean = row(tile.base, j),
                *v_word = row(tile.words, in.index[p]), *pair = in.dominated + 5 * k;
        T* out = value(p);
#pragma omp simd
        for (Index l = 0; l < L; ++l)
          add_dominated(g, pair, score[l], v_mean[l], v_word[l], v2[l], out + l);
      }
    }
  }

  void row_bounds(const T* error, RowBounds<T>& sums) const {
    if constexpr (G::kNormalized) {
      for (Index k = 0; k < in.dominated_start[in.positions]; ++k) {
        const Index j = in.dominated_row[k];
        const T *score = row(tile.scores, j), others = in.dominated[5 * k + 1];
#pragma omp simd
        for (Index l = 0; l < L; ++l)
          see_dominated(g, score[l], others, error[l], sums.strength + l, sums.response + l);
      }
    }
    const T* v2 = tile.norm2 + column;
    for (Index j = 0; j < in.n; ++j) {
      T *score = tile.scores + j * tile.stride + column,
        *base = tile.base + j * tile.stride + column;
      const T* top_word = row(tile.words, in.top[j]);
      const T base_weight = in.base_weight[j], top_weight = in.top_weight[j], full = in.full[j],
              phi2 = in.phi2[j], gain2 = in.gain2[j];
#pragma omp simd
      for (Index l = 0; l < L; ++l)
        put_odds(g, top_word[l], base_weight, top_weight, full, phi2, gain2, v2[l], error[l],
                 score + l, base + l, sums.strength + l, sums.response + l, sums.direct + l);
    }
  }

  void terms_of(Index first, Index last, ChunkRows<T>& chunk) const {
    const T* v2 = tile.norm2 + column;
    for (Index j = first; j < last; ++j) {
      auto* terms = chunk.terms[j - first];
      if (j >= in.n) {  // filling up a group: adds exactly 0
        for (Index k = 0; k < 3; ++k)
          for (Index l = 0; l < L; ++l) terms[k][l] = T(0);
        continue;
      }
      const T *odds = row(tile.scores, j), *v_phi = row(tile.base, j), phi2 = in.phi2[j];
#pragma omp simd
      for (Index l = 0; l < L; ++l)
        put_terms(g, odds[l], v_phi[l], phi2, v2[l], terms[0] + l, terms[1] + l, terms[2] + l);
    }
  }

  // Whether some candidate of the block may reach the threshold at position p.
  bool may_reach_at(Index p, const RowBounds<T>& sums) const {
    if (tile.threshold == nullptr) return true;
    const T *known = value(p), *size = tile.size + column, *norm_error = tile.norm_error + column;
    const Reach<T> position{in.removed_norm[p], in.constant[p], tile.threshold[p]};
    const T product_error = in.product_error;
    T reached = T(0);
#pragma omp simd reduction(max : reached)
    for (Index l = 0; l < L; ++l)
      reached = larger(reached, may_reach(position, product_error, known[l], root(sums.direct[l]),
                                          size[l], root(norm_error[l])));
    return reached > T(0);
  }

  // Positions first, ..., last - 1, those that are `live` of them.
  void other_rows(Index first, Index last, const std::uint8_t* live) const {
    ChunkRows<T> chunk;
    const Index groups = (in.n + kGroup - 1) / kGroup;
    for (Index from = 0; from < groups; from += kChunk / kGroup) {
      const Index until = from + kChunk / kGroup < groups ? from + kChunk / kGroup : groups;
      terms_of(from * kGroup, until * kGroup, chunk);
      for (Index p = first; p < last; ++p) {
        if (!live[p - first]) continue;
        const T* v_word = row(tile.words, in.index[p]);
        T sum[L], v_words[L];
        for (Index l = 0; l < L; ++l) sum[l] = T(0);
        for (Index l = 0; l < L; ++l) v_words[l] = v_word[l];
        for (Index group = from; group < until; ++group) {
          const Index place = group * in.positions + p;
          const T* pairs = in.pairs + place * kGroup * 4;
          const auto* terms = chunk.terms + (group - from) * kGroup;
          if (in.plain[place]) {
#pragma omp simd
            for (Index l = 0; l < L; ++l) add_group(g, pairs, terms, l, v_words[l], sum + l);
            continue;
          }
          for (Index k = 0; k < kGroup; ++k) {
            if (pairs[4 * k] < T(0)) continue;
#pragma omp simd
            for (Index l = 0; l < L; ++l)
              add_pair(g, pairs + 4 * k, terms[k], l, v_words[l], sum + l);
          }
        }
        T* out = value(p);
#pragma omp simd
        for (Index l = 0; l < L; ++l) out[l] += sum[l];
      }
    }
  }

  void run() const {
    RowBounds<T> sums;
    T error[L];
    const T* v2 = tile.norm2 + column;
    for (Index l = 0; l < L; ++l) {
      sums.strength[l] = sums.response[l] = sums.direct[l] = T(0);
      error[l] = score_error_of(in, v2[l]);
    }
    own_rows();
    dominated_pairs();
    row_bounds(error, sums);
    const OwnRow<T> own = own_row_at(tile, column);
    T *size = tile.size + column, *norm_error = tile.norm_error + column;
#pragma omp simd
    for (Index l = 0; l < L; ++l)
      close_bounds(g, in, v2[l], error[l], sums.strength[l], sums.response[l], own.size[l],
                   own.norm_error[l], size + l, norm_error + l);
    std::uint8_t live[kTogether];
    for (Index first = 0; first < in.positions; first += kTogether) {
      const Index last = first + kTogether < in.positions ? first + kTogether : in.positions;
      bool any = false;
      for (Index p = first; p < last; ++p) {
        live[p - first] = may_reach_at(p, sums);
        any = any || live[p - first];
      }
      if (any) other_rows(first, last, live);
    }
  }
};

template <typename T>
void substitution_norms(const SubstitutionState<T>& in, const SubstitutionTile<T>& tile,
                        int threads) {
  constexpr Index L = kLanes<T>;
  with_given_weight_fn(in.weight_fn, [&](const auto& g) {
    using G = std::decay_t<decltype(g)>;
    for_rows((tile.candidates + L - 1) / L, 10 * L * in.n * in.positions, threads,
             [&](Index block) { NormsBlock<G, T>{g, in, tile, block * L}.run(); });
  });
}

}  // namespace
}  // namespace wsfast
