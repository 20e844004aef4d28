// What the kernels of substitution do with one candidate, written once for the CPU and for CUDA
// devices (docs/design.md, section 4).
//
// The numbers that a loop over rows carries on are passed as pointers to those of one candidate: so
// compilers vectorise the loop over candidates.
#pragma once

#include "arguments.h"
#include "formulas.h"

namespace wsfast {
namespace {

using Index = std::int64_t;

template <typename T>
struct OwnRow {  // rows of SubstitutionTile::attention
  T *top, *others, *own, *rest, *own_no_top, *rest_no_top, *norm_error, *size;
};
template <typename T>
WSFAST_FN OwnRow<T> own_row_at(const SubstitutionTile<T>& tile, Index column) {
  T* at = tile.attention + column;
  const Index s = tile.stride;
  return {at, at + s, at + 2 * s, at + 3 * s, at + 4 * s, at + 5 * s, at + 6 * s, at + 7 * s};
}

// ---- the candidate's own attention to the words of the text

template <typename T>
WSFAST_FN void see_score(T score, T l, T* first, T* second, T* where) {
  const bool higher = score > *first;
  *second = higher ? *first : larger(score, *second);
  *where = higher ? l : *where;
  *first = higher ? score : *first;
}

// The bound of the rounding error of a score with a key.
template <typename T>
WSFAST_FN T key_error_of(const SubstitutionState<T>& in, T v2) {
  return in.key_error * (root(v2) + in.shift);
}

template <class G, typename T>
WSFAST_FN void add_key(const G& g, T* key, T shift, T l, T where, T reference, T error, T* sum,
                       T* live) {
  const T score = *key + shift;
  const T weight = l == where ? T(0) : g.weight_of(score, reference);
  *key = weight;
  *sum += weight;
  if constexpr (!G::kExponential) *live += score > -error ? T(1) : T(0);
}

template <class G, typename T>
WSFAST_FN void close_attention(const G& g, const SubstitutionState<T>& in, T first, T second, T sum,
                               T live, T own_score, T v2, OwnRow<T> out, Index l) {
  const T none = T(0);
  Share<T> top, own, own_no_top;
  const Rest<T> others{second, sum};
  top = g.share(first, others);
  own_no_top = g.share(own_score, others);
  if constexpr (G::kExponential) {
    // Beside all words: the largest one is the reference, so that the sum is at least 1.
    const T gap = exp_of(-absolute(first - second));
    own = g.share(own_score, Rest<T>{first, T(1) + sum * gap});
  } else {
    own = g.share(own_score, Rest<T>{none, sum + g.weight_of(first, none)});
  }
  const T v = root(v2), radius = larger(in.radius, v), given = v + in.shift;
  const T key_error = in.key_error * given, own_error = in.own_error * given * given;
  T norm_error, size;
  if constexpr (G::kExponential) {
    norm_error = radius * (key_error + T(2) * own_no_top.own * own.rest * own_error);
    size = radius + in.phi_radius;
  } else {
    const T possible = live * key_error + (own_score > -own_error ? own_error : none);
    if constexpr (G::kNormalized) {
      // Removing the largest word leaves the least weight.
      const T least = larger(sum + g.weight_of(own_score, none) - possible, possible);
      norm_error = possible > none ? T(2) * radius * possible / least : none;
      size = radius + in.phi_radius;
    } else {
      norm_error = possible * radius;
      size = (sum + g.weight_of(first, none) + own.own) * radius + in.phi_radius;
    }
  }
  out.top[l] = top.own;
  out.others[l] = G::kNormalized ? top.rest : T(1);
  out.own[l] = own.own;
  out.rest[l] = own.rest;
  out.own_no_top[l] = own_no_top.own;
  out.rest_no_top[l] = own_no_top.rest;
  out.norm_error[l] = norm_error;
  out.size[l] = size;
}

// ---- the change of the candidate's own row

// To the sums over the words that the mean of v's own row needs, its largest word left out, and to
// the products of that largest word.
template <typename T>
WSFAST_FN void add_to_mean(T weight, T by_mean, T v_word, bool is_top, T* mean2, T* mean_v,
                           T* top_mean, T* top_v) {
  *mean2 += weight * by_mean;
  *mean_v += weight * v_word;
  *top_mean = is_top ? by_mean : *top_mean;
  *top_v = is_top ? v_word : *top_v;
}

// phi_j.v, from z_j.v and x_top.v.
template <typename T>
WSFAST_FN T phi_product(T base_weight, T base, T top_weight, T top_word) {
  return base_weight * base + top_weight * top_word;
}

// The change of row i, whose word is now v: |new|^2 - 2 new.phi_i + |phi_i|^2.
template <typename T>
struct OwnProducts {
  T mean2, mean_v, top_mean, top_v, v2;  // of the candidate
  T top2, top_word, top_phi;             // its largest word with itself, x_i, phi_i
  T mean_word, mean_phi, v_word, v_phi;  // with x_i, phi_i
  T word2, word_phi, phi2;               // of the position
};
template <typename T>
struct OwnShares {  // see SubstitutionTile::attention
  T top, others, own, rest, own_no_top, rest_no_top;
};
// `weight` is that of x_i in the mean, `is_top` whether it is the largest word.
template <class G, typename T>
WSFAST_FN T own_change(const G&, OwnProducts<T> p, OwnShares<T> share, T weight, bool is_top) {
  // new = (rest (others mean + top x_top) - removed x_i + own v) scale, where the largest word is
  // removed: rest mean + own v
  const T own = is_top ? share.own_no_top : share.own;
  const T rest = is_top ? share.rest_no_top : share.rest;
  const T removed = is_top ? T(0) : rest * share.others * weight;
  const T by_mean = is_top ? rest : rest * share.others;
  const T by_top = is_top ? T(0) : rest * share.top;
  const T scale = G::kNormalized ? T(1) / (T(1) - removed) : T(1);
  const T with_phi =
      by_mean * p.mean_phi + by_top * p.top_phi - removed * p.word_phi + own * p.v_phi;
  const T with_mean = by_mean * p.mean2 + T(2) * (by_top * p.top_mean + own * p.mean_v);
  const T with_top = by_top * p.top2 + T(2) * own * p.top_v;
  const T with_word =
      removed * p.word2 - T(2) * (by_mean * p.mean_word + by_top * p.top_word + own * p.v_word);
  const T norm2 = by_mean * with_mean + by_top * with_top + own * own * p.v2 + removed * with_word;
  return scale * (scale * norm2 - T(2) * with_phi) + p.phi2;
}

// ---- dominated pairs

// |delta_j|^2, from the mean m of the row's other words.
template <class G, typename T>
WSFAST_FN void add_dominated(const G& g, const T* pair, T score, T v_mean, T v_word, T v2,
                             T* value) {
  const T a = pair[0], mean2 = pair[2], word_mean = pair[3];
  const T alpha = g.share(score, g.rest_of(pair[1])).own;
  const T cross = v_word - v_mean - word_mean + mean2;
  *value += alpha * (alpha * (v2 - T(2) * v_mean + mean2) - T(2) * a * cross) + pair[4];
}

// ---- what a row and a candidate give to all positions
//
// Bounds are made of sums over rows: `strength`, squares of v's shares; `response`, of how far a
// score that is off moves a row, over |v| + radius; `direct`, of the most that v alone moves a row.

template <typename T>
WSFAST_FN T score_error_of(const SubstitutionState<T>& in, T v2) {
  return in.score_error * root(v2) + in.score_offset;
}

template <class G, typename T>
WSFAST_FN void see_dominated(const G& g, T score, T others, T error, T* strength, T* response) {
  const T alpha = g.share(score, g.rest_of(others)).own;
  *strength += alpha * alpha;
  if constexpr (!G::kExponential) {
    const T moves = T(1) / larger(others + g.weight_of(score, T(0)) - error, error);
    *response += score > -error ? moves * moves : T(0);
  }
}

// The score becomes the weight of v over the row's, the base phi_j.v.
template <class G, typename T>
WSFAST_FN void put_odds(const G& g, T top_word, T base_weight, T top_weight, T full, T phi2,
                        T gain2, T v2, T error, T* score, T* base, T* strength, T* response,
                        T* direct) {
  const T odds = g.odds(*score, full);
  const T v_phi = phi_product(base_weight, *base, top_weight, top_word);
  const T share = G::kNormalized ? odds / (T(1) + odds) : odds;
  const T share2 = share * share * gain2;
  *strength += share2;
  *direct += share2 * (G::kNormalized ? v2 - T(2) * v_phi + phi2 : v2);
  if constexpr (!G::kExponential) {
    T moves = T(1);
    if constexpr (G::kNormalized)
      moves = T(1) / larger(full + g.weight_of(*score, T(0)) - error, error);
    *response += *score > -error ? moves * moves * gain2 : T(0);
  }
  *score = odds;
  *base = v_phi;
}

// What all rows together give to SubstitutionTile::size and norm_error.
template <class G, typename T>
WSFAST_FN void close_bounds(const G&, const SubstitutionState<T>& in, T v2, T error, T strength,
                            T response, T own_size, T own_norm_error, T* size, T* norm_error) {
  const T far = root(v2) + in.radius, far2 = far * far;
  const T felt = G::kExponential ? strength : response;
  *size = far2 * strength + own_size * own_size;
  *norm_error = far2 * error * error * felt + own_norm_error * own_norm_error;
}

// What a position knows of its norms: the root of its largest possible change without v, the size
// of its terms, and what the norm must reach.
template <typename T>
struct Reach {
  T removed, constant, threshold;
};
// 1 where the norm may reach the threshold, all other rows moved as far as v alone (`moved`, the
// root of `direct`) and the word taken out alone would move them together, else 0. `known` is the
// square without them, `norm_error` the norm's error.
template <typename T>
WSFAST_FN T may_reach(Reach<T> position, T product_error, T known, T moved, T size, T norm_error) {
  const T others = moved + position.removed;
  const T slack = T(2) * product_error * (size + position.constant);
  const T most = known + others * others + slack;
  const T needed = position.threshold - norm_error;
  return needed > T(0) && most * T(1.0001) < needed * needed ? T(0) : T(1);
}

}  // namespace
}  // namespace wsfast
