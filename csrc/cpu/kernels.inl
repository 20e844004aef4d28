// The kernels' one source, compiled once per instruction set: the including file defines
// WSFAST_TABLE. No std:: function is called here: its instantiation for AVX-512 could become the
// one that the baseline links to.
#include <algorithm>
#include <type_traits>

#include "../weight_fn.h"
#include "kernels.h"
#include "threads.h"

namespace wsfast {
namespace {

using Index = std::int64_t;

template <class Body>
void for_rows(Index rows, Index per_row, int threads, const Body& body) {
  split_rows(
      rows, rows * per_row, threads,
      [](const void* context, Index first, Index last) {
        const Body& run = *static_cast<const Body*>(context);
        for (Index row = first; row < last; ++row) run(row);
      },
      &body);
}

template <typename T>
T dot(const T* x, const T* y, Index n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index k = 0; k < n; ++k) sum += x[k] * y[k];
  return sum;
}

template <typename T>
void copy_row(T* to, const T* from, Index d) {
#pragma omp simd
  for (Index k = 0; k < d; ++k) to[k] = from[k];
}

template <typename T>
bool all_finite(const T* x, Index n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index k = 0; k < n; ++k) sum += x[k] - x[k];
  return sum == T(0);
}

// ---- attention weights of a row
// ------------------------------------------------------------------------------------

constexpr double kMinusInfinity = -__builtin_huge_val();

template <typename T>
T largest_of_row(const T* s, Index n) {
  T largest = s[0];
#pragma omp simd reduction(max : largest)
  for (Index l = 0; l < n; ++l) largest = s[l] > largest ? s[l] : largest;
  return largest;
}

template <typename T>
Index first_place_of(T value, const T* s, Index n) {
  Index where = 0;
  while (where + 1 < n && !(s[where] == value)) ++where;
  return where;
}

template <class G, typename T>
T weights_of_row(const G& g, T* s, Index n, T shift) {  // in place; returns their sum
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index l = 0; l < n; ++l) {
    T w;
    if constexpr (G::kExponential)
      w = exp_of(s[l] - shift);
    else
      w = g.weight(s[l], T(0)).value;
    s[l] = w;
    sum += w;
  }
  return sum;
}

template <typename T>
void scale_row(T* s, Index n, T sum) {
  const T inv = sum > T(0) ? T(1) / sum : T(0);
#pragma omp simd
  for (Index l = 0; l < n; ++l) s[l] *= inv;
}

template <typename T>
void clear_masked(T* s, const std::uint8_t* mask, Index n, T value) {
  for (Index l = 0; l < n; ++l) s[l] = mask[l] ? s[l] : value;
}

// exp() of this file clamps at its underflow, so -inf gives a true 0 only through a finite shift.
template <class G, typename T>
void attention_row(const G& g, const AttentionRows<T>& in, Index row) {
  const Index n = in.n;
  T* s = in.scores + row * n;
  const std::uint8_t* mask = in.mask ? in.mask + (row / in.rows_per_mask) * n : nullptr;
  if (mask) clear_masked(s, mask, n, T(kMinusInfinity));
  T shift = in.top || G::kExponential ? largest_of_row(s, n) : T(0);
  if (in.top) {
    const Index top = first_place_of(shift, s, n);
    in.top[row] = top;
    in.top_score[row] = shift;
    s[top] = T(kMinusInfinity);  // the rest is shifted by its own maximum: exact however far the
                                 // top stands out
    if (G::kExponential) shift = largest_of_row(s, n);
  }
  if (G::kExponential && shift == T(kMinusInfinity)) {  // no word at all, or none beside the top
    for (Index l = 0; l < n; ++l) s[l] = T(0);
    if (in.top) in.others[row] = T(kMinusInfinity);
    return;
  }
  const T sum =
      weights_of_row(g, s, n, shift);  // every g(-inf) is 0: what is left out adds nothing
  if (in.top)
    in.others[row] = G::kExponential ? shift + T(__builtin_log(static_cast<double>(sum))) : sum;
  if (G::kNormalized) scale_row(s, n, sum);
}

template <typename T>
void attention_rows(const AttentionRows<T>& in, int threads) {
  with_weight_fn(in.weight_fn, in.curve, [&](const auto& g) {
    for_rows(in.rows, 2 * in.n, threads, [&](Index row) { attention_row(g, in, row); });
  });
}

// ---- one evaluation: value, and the coefficients of the gradient
// ---------------------------------------------------

// Where one point Delta of a position is worked on: a row of AscentRows, or what a block of points
// has at hand.
template <typename T>
struct PointAt {
  Index position;
  const T* delta;              // (d)
  T *score, *mean, *own;       // (n) products, then coefficients
  const T* bilinear;           // (d)
  T *weight, *change, *slope;  // (n) of row i, as in AscentRows
  T* dominated_coef;           // of the dominated pairs of the position
  T* scalars;                  // (kScalars)
  T *value, *size;             // size: null with a gradient
};

template <typename T>
PointAt<T> point_of(const PositionState<T>& p, const AscentRows<T>& rows, Index m) {
  const Index n = p.n, d = p.d, position = m / p.starts;
  T* products = rows.products + m * (3 * n + d);
  return {position,
          rows.delta + m * d,
          products,
          products + n,
          products + 2 * n,
          products + 3 * n,
          rows.own_weight + m * n,
          rows.own_change + m * n,
          rows.own_slope + m * n,
          rows.dominated_coef + (m % p.starts) * p.dominated_start[p.positions] +
              p.dominated_start[position],
          rows.scalars + m * kScalars,
          rows.value + m,
          rows.size ? rows.size + m : nullptr};
}

template <typename T>
struct RowSums {
  T value, size, by_shift, alpha2;
};

// All rows but the perturbed word's own, whose entries in the state are neutral: it adds exactly 0.
template <bool kGradient, class G, typename T>
RowSums<T> other_rows(const G& g, const PositionState<T>& p, const PointAt<T>& at, T word_delta,
                      T delta2) {
  const Index offset = at.position * p.n;
  T *score = at.score, *mean = at.mean;
  const T *logit = p.logit + offset, *a = p.a + offset, *b = p.b + offset,
          *inv_b = p.inv_b + offset, *c2 = p.c2 + offset, *reach = p.reach + offset,
          *others = G::kExponential ? p.logit + offset : p.others + offset;
  T value = 0, size = 0, by_shift = 0, alpha2 = 0;
#pragma omp simd reduction(+ : value, size, by_shift, alpha2)
  for (Index j = 0; j < p.n; ++j)
    add_row<kGradient>(g, PairState<T>{logit[j], a[j], b[j], others[j]}, c2[j], inv_b[j], reach[j],
                       word_delta, delta2, score + j, mean + j, &value, &size, &by_shift, &alpha2);
  return {value, size, by_shift, alpha2};
}

// New attention of row i, its change and its slope; `r` holds k_l . Delta for each word l, plus for
// word i itself the terms that Delta's own query adds.  False where rounding of the scores may be
// all there is of the weights.
template <class G, typename T>
bool own_attention(const G& g, const PositionState<T>& p, Index position, const T* r, T* weight,
                   T* change, T* slope) {
  const Index n = p.n;
  const T *logit = p.own_logit + position * n, *a = p.own_a + position * n;
  if constexpr (G::kExponential) {
    const T r_top = r[p.own_top[position]];  // a common shift of the scores: the largest word keeps
                                             // full accuracy
    T spread = 0, largest = T(kMinusInfinity);
#pragma omp simd reduction(max : spread, largest)
    for (Index l = 0; l < n; ++l) {
      const T moved = r[l] - r_top, s = logit[l] + moved;
      spread = larger(spread, where_seen(logit[l], absolute(moved)));
      largest = larger(largest, s);
    }
    if (spread <= T(1)) {
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (Index l = 0; l < n; ++l) {
        const T em = exp_pair(r[l] - r_top).expm1;
        change[l] = em;
        sum += a[l] * em;
      }
      const T inv = T(1) / (T(1) + sum);
#pragma omp simd
      for (Index l = 0; l < n; ++l) {
        weight[l] = a[l] * (T(1) + change[l]) * inv;
        change[l] = a[l] * (change[l] - sum) * inv;
      }
    } else {
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (Index l = 0; l < n; ++l) {
        weight[l] = exp_of((logit[l] + (r[l] - r_top)) - largest);
        sum += weight[l];
      }
      const T inv = T(1) / sum;
#pragma omp simd
      for (Index l = 0; l < n; ++l) {
        weight[l] *= inv;
        change[l] = weight[l] - a[l];
      }
    }
  } else {
    T sum = 0, sum_change = 0, reach = 0;
#pragma omp simd reduction(+ : sum, sum_change, reach)
    for (Index l = 0; l < n; ++l) {
      const Weight<T> w = g.weight(logit[l], r[l]);
      weight[l] = w.value;
      change[l] = w.change;
      slope[l] = w.slope;
      sum += w.value;
      sum_change += w.change;
      reach += where_seen(logit[l], absolute(logit[l]) + absolute(r[l]));
    }
    if constexpr (G::kNormalized) {
      const T inv = sum > T(0) ? T(1) / sum : T(0);
      const bool empty = !(sum > T(0));
#pragma omp simd
      for (Index l = 0; l < n; ++l) {
        weight[l] *= inv;
        slope[l] *= inv;
        change[l] = empty ? -a[l] : (change[l] - a[l] * sum_change) * inv;
      }
      return sum >= Bits<T>::kDoubt * reach;
    }
  }
  return true;
}

template <bool kGradient, class G, typename T>
void forward_row(const G& g, const PositionState<T>& p, const PointAt<T>& at) {
  const Index d = p.d, i = p.index[at.position];
  const T *delta = at.delta, *word = p.word + at.position * d;
  const T delta2 = dot(delta, delta, d), word_delta = dot(word, delta, d);
  at.own[i] += at.score[i] + T(0.5) * dot(delta, at.bilinear, d);

  const Index first = p.dominated_start[at.position], last = p.dominated_start[at.position + 1];
  for (Index k = first; k < last; ++k)
    at.mean[p.dominated_row[k]] = dot(p.dominated_mean + k * d, delta, d);

  const RowSums<T> sums = other_rows<kGradient>(g, p, at, word_delta, delta2);

  const bool certain = own_attention(g, p, at.position, at.own, at.weight, at.change, at.slope);
  at.scalars[2] = at.weight[i];
  *at.value = sums.value;
  if constexpr (kGradient) {
    at.scalars[0] = sums.by_shift;
    at.scalars[1] = sums.alpha2;
    // A dominated pair's c is taken from the mean of the others, not from phi: its coefficient
    // leaves the product.
    for (Index k = first; k < last; ++k) {
      at.dominated_coef[k - first] = at.mean[p.dominated_row[k]];
      at.mean[p.dominated_row[k]] = T(0);
    }
  } else {
    *at.size = certain ? sums.size : Bits<T>::kHuge;
  }
}

template <bool kGradient, typename T>
void forward(const PositionState<T>& p, const AscentRows<T>& rows, int threads) {
  with_weight_fn(p.weight_fn, p.curve, [&](const auto& g) {
    for_rows(p.positions * p.starts, 8 * p.n + 2 * p.d, threads,
             [&](Index m) { forward_row<kGradient>(g, p, point_of(p, rows, m)); });
  });
}

// Row i itself: own (d) comes in as own_change X, goes out as delta_i.
template <typename T>
void own_row_of(const PositionState<T>& p, const PointAt<T>& at, T* own) {
  const T* delta = at.delta;
  const T alpha = at.scalars[2];
  T norm2 = 0, along = 0, before = 0, delta2 = 0;
#pragma omp simd reduction(+ : norm2, along, before, delta2)
  for (Index k = 0; k < p.d; ++k) {
    const T moved = own[k] + alpha * delta[k];
    before += own[k] * own[k];
    delta2 += delta[k] * delta[k];
    norm2 += moved * moved;
    along += moved * delta[k];
    own[k] = moved;
  }
  at.scalars[3] = along;
  *at.value += norm2;
  if (at.size) *at.size += before + alpha * alpha * delta2;
}

template <typename T>
void own_row(const PositionState<T>& p, const AscentRows<T>& rows, T* own_delta, int threads) {
  for_rows(p.positions * p.starts, p.d, threads,
           [&](Index m) { own_row_of(p, point_of(p, rows, m), own_delta + m * p.d); });
}

// h = delta_i X^T: the scores of row i get their coefficients.
template <typename T>
void backward_row(const PositionState<T>& p, const PointAt<T>& at, const T* h, bool normalized) {
  const Index n = p.n, i = p.index[at.position];
  T* own = at.own;
  const T *weight = at.weight, *slope = at.slope, along = at.scalars[3];
  const T mean = normalized ? dot(weight, h, n) + weight[i] * along : T(0);
#pragma omp simd
  for (Index l = 0; l < n; ++l) own[l] = T(2) * slope[l] * (h[l] - mean);
  own[i] += T(2) * slope[i] * along;
  at.score[i] = own[i];
  at.scalars[4] = own[i];
}

template <typename T>
void ascent_backward(const PositionState<T>& p, const AscentRows<T>& rows, const T* own_products,
                     int threads) {
  const bool normalized = p.weight_fn != WeightFn::kReluUnnormalized &&
                          p.weight_fn != WeightFn::kSquareplusUnnormalized;
  for_rows(p.positions * p.starts, p.n, threads, [&](Index m) {
    backward_row(p, point_of(p, rows, m), own_products + m * p.n, normalized);
  });
}

// g (d) comes in as coefficients [Y; Phi; K], goes out complete; own is delta_i.
template <typename T>
void gradient_row(const PositionState<T>& p, const PointAt<T>& at, const T* own, T* g) {
  const Index d = p.d;
  const T *delta = at.delta, *word = p.word + at.position * d, *bilinear = at.bilinear,
          *s = at.scalars;
  const T by_word = s[0], by_delta = T(2) * s[1], by_own = T(2) * s[2], by_bilinear = s[4];
#pragma omp simd
  for (Index k = 0; k < d; ++k)
    g[k] += by_word * word[k] + by_delta * delta[k] + by_own * own[k] + by_bilinear * bilinear[k];
  const Index first = p.dominated_start[at.position], last = p.dominated_start[at.position + 1];
  for (Index k = first; k < last; ++k) {
    const T* mean = p.dominated_mean + k * d;
    const T by_mean = at.dominated_coef[k - first];
#pragma omp simd
    for (Index c = 0; c < d; ++c) g[c] += by_mean * mean[c];
  }
}

template <typename T>
void ascent_gradient(const PositionState<T>& p, const AscentRows<T>& rows, const T* own_delta,
                     T* gradient, int threads) {
  const Index d = p.d;
  for_rows(p.positions * p.starts, 2 * d, threads, [&](Index m) {
    gradient_row(p, point_of(p, rows, m), own_delta + m * d, gradient + m * d);
  });
}

// ---- the ascent's step
// ---------------------------------------------------------------------------------------------

template <typename T>
void take_step(const StepRows<T>& in, int threads) {
  const Index d = in.d;
  const T radius = in.radius;
  for_rows(in.rows, 4 * d, threads, [&](Index m) {
    T *delta = in.delta + m * d, *best = in.best_delta + m * d,
      *gradient = in.best_gradient + m * d;
    if (in.value[m] > in.best_value[m]) {
      in.best_value[m] = in.value[m];
      copy_row(gradient, in.gradient + m * d, d);
#pragma omp simd
      for (Index k = 0; k < d; ++k) {
        const T before = best[k];
        best[k] = delta[k];
        delta[k] -= before;
      }
      in.beta[m] = in.beta[m] < T(0.5) ? T(2) * in.beta[m] : T(1);
      in.risen[m] += T(1);
    } else {
      std::fill(delta, delta + d, T(0));
      in.beta[m] *= T(0.5);
      in.risen[m] = std::min(in.risen[m], T(0));
    }
    const T norm = root(dot(gradient, gradient, d));
    if (!(norm > T(0))) return copy_row(delta, best, d);
    const T along = dot(gradient, best, d), length = root(dot(best, best, d));
    const T keep = T(1) - in.beta[m], pull = in.beta[m] * radius / norm;
    const T carry = momentum(in.risen[m]);
    T norm2 = 0;
#pragma omp simd reduction(+ : norm2)
    for (Index k = 0; k < d; ++k) {
      delta[k] = keep * best[k] + pull * gradient[k] + carry * delta[k];
      norm2 += delta[k] * delta[k];
    }
    // Stay on the sphere while the objective rises outwards; else walk inside the ball, which is
    // convex.
    const bool outward = along >= T(0) && length >= radius * T(0.999);
    const T now = root(norm2);
    if (now > T(0) && (outward || now > radius)) {
      const T rescale = radius / now;
#pragma omp simd
      for (Index k = 0; k < d; ++k) delta[k] *= rescale;
    }
  });
}

}  // namespace
}  // namespace wsfast

#include "bound.inl"
#include "functional.inl"
#include "heads.inl"
#include "substitution.inl"
#include "turns.inl"

namespace wsfast {
namespace {

template <typename T>
Kernels<T> table() {
  return {all_finite<T>,
          attention_rows<T>,
          forward<false, T>,
          forward<true, T>,
          own_row<T>,
          ascent_backward<T>,
          ascent_gradient<T>,
          functional_ascent<T>,
          head_points<T>,
          head_work<T>,
          turn_rows<T>,
          bound_rows<T>,
          bound_ball<T>,
          bound_step<T>,
          take_step<T>,
          centre_rows<T>,
          candidate_attention<T>,
          substitution_norms<T>};
}

}  // namespace

KernelTable WSFAST_TABLE() { return {table<float>(), table<double>()}; }

}  // namespace wsfast
