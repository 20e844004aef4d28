// The closed forms of docs/design.md, sections 2 and 4, for one (row j, perturbed word i) pair,
// written once for every kernel, on the CPU and on CUDA devices.
//
// Notation: t = y_j . Delta is the change of the score S_ji; `alpha` the new attention of row j on
// word i; `q` = alpha minus the old attention a; `dalpha` = d alpha / dt (= dq / dt).  Then
//     delta_j = q c_ji + alpha Delta,      |delta_j|^2 = q^2 |c|^2 + 2 q alpha c.Delta + alpha^2
//     |Delta|^2.
//
// Structs go by value: one whose address is taken keeps a compiler from vectorising the loop around
// it. Everything sits in an anonymous namespace: a function compiled for AVX-512 must never be the
// copy that the linker picks for the baseline.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define WSFAST_FN __host__ __device__ __forceinline__
#else
#define WSFAST_FN inline __attribute__((always_inline))
#endif

namespace wsfast {
namespace {

template <typename T>
struct Bits;
template <>
struct Bits<float> {
  using Int = std::int32_t;
  static constexpr int kMantissa = 23;
  static constexpr Int kBias = 127;
  static constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float kExpLow = -104.0f;     // exp underflows to 0 here
  static constexpr float kExpHigh = 88.72f;
  static constexpr float kLog2e = 1.44269504f;
  static constexpr float kLn2High = 0.693359375f;
  static constexpr float kLn2Low = -2.12194440e-4f;
  static constexpr float kDoubt =
      3e-2f;  // a sum of weights, in terms of its scores, that rounding spoils
  static constexpr float kHuge = __builtin_huge_valf();
  static constexpr float kOddsCap = 1048576.0f;    // 2^20: products of four stay in range
  static WSFAST_FN float expm1_reduced(float r) {  // |r| <= ln(2)/2
    float p = 1.9841270e-4f;
    p = p * r + 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    return r + r * r * p;
  }
};
template <>
struct Bits<double> {
  using Int = std::int64_t;
  static constexpr int kMantissa = 52;
  static constexpr Int kBias = 1023;
  static constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kExpLow = -746.0;
  static constexpr double kExpHigh = 709.78;
  static constexpr double kLog2e = 1.4426950408889634;
  static constexpr double kLn2High = 6.93145751953125e-1;
  static constexpr double kLn2Low = 1.42860682030941723212e-6;
  static constexpr double kDoubt = 6e-5;
  static constexpr double kHuge = __builtin_huge_val();
  static constexpr double kOddsCap = 70368744177664.0;  // 2^46
  static WSFAST_FN double expm1_reduced(double r) {
    double p = 1.6059043836821613e-10;
    p = p * r + 2.0876756987868099e-9;
    p = p * r + 2.5052108385441719e-8;
    p = p * r + 2.7557319223985891e-7;
    p = p * r + 2.7557319223985893e-6;
    p = p * r + 2.4801587301587302e-5;
    p = p * r + 1.9841269841269841e-4;
    p = p * r + 1.3888888888888889e-3;
    p = p * r + 8.3333333333333333e-3;
    p = p * r + 4.1666666666666667e-2;
    p = p * r + 1.6666666666666667e-1;
    p = p * r + 0.5;
    return r + r * r * p;
  }
};

template <typename T>
WSFAST_FN T power_of_two(typename Bits<T>::Int k) {  // 2^k for a normal result
  using B = Bits<T>;
  const typename B::Int bits = (k + B::kBias) << B::kMantissa;
  T out;
  std::memcpy(&out, &bits, sizeof(T));
  return out;
}

// exp(x) and expm1(x) from one range reduction; both keep full relative accuracy, exp also where it
// is subnormal.
template <typename T>
struct ExpPair {
  T exp, expm1;
};
template <typename T>
WSFAST_FN ExpPair<T> exp_pair(T x) {
  using B = Bits<T>;
  using Int = typename B::Int;
  x = x < B::kExpLow ? B::kExpLow : x;
  x = x > B::kExpHigh ? B::kExpHigh : x;
  const T shifted = x * B::kLog2e + B::kMagic;
  Int k;
  std::memcpy(&k, &shifted, sizeof(T));
  Int magic;
  const T magic_value = B::kMagic;
  std::memcpy(&magic, &magic_value, sizeof(T));
  k -= magic;
  const T kf = shifted - B::kMagic;
  const T r = (x - kf * B::kLn2High) - kf * B::kLn2Low;
  const T p = B::expm1_reduced(r);
  const Int half = k >> 1;  // two factors reach subnormal results
  const T s0 = power_of_two<T>(half), s1 = power_of_two<T>(k - half);
  const T scale = s0 * s1;
  return {(p + T(1)) * s0 * s1, p * scale + (scale - T(1))};
}
template <typename T>
WSFAST_FN T exp_of(T x) {
  return exp_pair(x).exp;
}
// Not written with a comparison: a compiler that threads it into the ones that follow stops
// vectorising the loop.
WSFAST_FN float absolute(float x) { return __builtin_fabsf(x); }
WSFAST_FN double absolute(double x) { return __builtin_fabs(x); }
WSFAST_FN float root(float x) { return __builtin_sqrtf(x); }
WSFAST_FN double root(double x) { return __builtin_sqrt(x); }
// How far a step of the ascent goes on along the last one, after so many in a row that rose.
template <typename T>
WSFAST_FN T momentum(T risen) {
  return risen > T(1) ? (risen - T(1)) / (risen + T(2)) : T(0);
}
template <typename T>
WSFAST_FN T larger(T x, T y) {
  return x > y ? x : y;
}

// A move of a score of the own row, where the word is seen: others have the logit -1e30 (NEVER of
// attention/core.py) and no weight, and count in no bound.
template <typename T>
WSFAST_FN T where_seen(T logit, T move) {
  return logit > T(-5e29f) ? move : T(0);
}

template <typename T>
WSFAST_FN T smaller(T x, T y) {
  return x < y ? x : y;
}

template <typename T>
struct PairChange {
  T alpha, q, dalpha;
};

// What stays fixed for a pair while Delta moves.  `logit` is S_ji - LSE_{l != i} S_jl for softmax
// and the score S_ji itself otherwise; `a` the attention, `b` = 1 - a formed without cancellation,
// `others` the sum of the other weights.
template <typename T>
struct PairState {
  T logit, a, b, others;
};

// A weight among others, as shares of their sum.
template <typename T>
struct Share {
  T own, rest;
};
// The others: their weights, summed, in units of g(reference) where g is the exponential.
template <typename T>
struct Rest {
  T reference, total;
};

struct Softmax {
  static constexpr bool kNormalized = true;
  static constexpr bool kExponential = true;
  template <typename T>
  WSFAST_FN PairChange<T> pair(PairState<T> s, T t) const {
    const T u = s.logit + t;
    const T e = exp_pair(-absolute(u)).exp;
    const T inv = T(1) / (T(1) + e), low = e * inv;
    const bool high = u > T(0);
    const T alpha = high ? inv : low, rest = high ? low : inv;
    const T em = exp_pair(-absolute(t)).expm1;  // q without cancellation, for small t and for large
    const T q = t > T(0) ? -(alpha * s.b * em) : s.a * rest * em;
    return {alpha, q, alpha * rest};
  }
  template <typename T>
  WSFAST_FN T weight_of(T score, T reference) const {
    return exp_of(score - reference);
  }
  template <typename T>
  WSFAST_FN Rest<T> rest_of(T log_sum) const {
    return {log_sum, T(1)};
  }
  template <typename T>
  WSFAST_FN T odds(T score, T log_sum) const {
    return smaller(exp_of(score - log_sum), Bits<T>::kOddsCap);
  }
  template <typename T>
  WSFAST_FN Share<T> share(T score, Rest<T> others) const {
    const T gap = score - others.reference;
    const T small = exp_of(-absolute(gap));
    const bool ahead = gap > T(0);
    const T mine = ahead ? T(1) : small, theirs = ahead ? others.total * small : others.total;
    const T inv = T(1) / (mine + theirs);
    return {mine * inv, theirs * inv};
  }
};

// Weight functions other than exp: value and derivative of g, and g(s + t) - g(s) without
// cancellation.
template <typename T>
struct Weight {
  T value, slope, change;
};

struct Relu {
  template <typename T>
  WSFAST_FN Weight<T> weight(T s, T t) const {
    const T moved = s + t;
    const bool was = s > T(0), is = moved > T(0);
    return {is ? moved : T(0), is ? T(1) : T(0), was ? (is ? t : -s) : (is ? moved : T(0))};
  }
  template <typename T>
  WSFAST_FN T weight_of(T score, T) const {
    return score > T(0) ? score : T(0);
  }
  template <typename T>
  WSFAST_FN Rest<T> rest_of(T sum) const {
    return {T(0), sum};
  }
};

// A smooth stand-in for ReLU, (s + sqrt(s^2 + curve)) / 2, used only to start the search where ReLU
// has no slope.
template <typename T>
struct Squareplus {
  T curve;
  WSFAST_FN T value(T s) const {
    const T size = root(s * s + curve);
    return s > T(0) ? T(0.5) * (s + size) : T(0.5) * curve / (size - s);
  }
  WSFAST_FN Weight<T> weight(T s, T t) const {
    const T moved = s + t;
    const T v = value(moved);
    return {v, v / root(moved * moved + curve), v - value(s)};
  }
};

template <class G>
struct Normalized : G {
  static constexpr bool kNormalized = true;
  static constexpr bool kExponential = false;
  template <typename T>
  WSFAST_FN PairChange<T> pair(PairState<T> s, T t) const {
    const Weight<T> w = this->weight(s.logit, t);
    const T total = s.others + w.value;
    const T inv = total > T(0) ? T(1) / total : T(0);
    // With no other weight in the row the attention is 1 or 0, and no quotient gives its change.
    const bool alone = !(s.others > T(0));
    const T alpha = alone ? (w.value > T(0) ? T(1) : T(0)) : w.value * inv;
    const T q = alone ? alpha - s.a : s.b * w.change * inv;
    return {alpha, q, w.slope * s.others * inv * inv};
  }
  template <typename T>
  WSFAST_FN T odds(T score, T sum) const {
    const T mine = this->weight_of(score, T(0)), none = mine > T(0) ? Bits<T>::kOddsCap : T(0);
    return sum > T(0) ? smaller(mine / sum, Bits<T>::kOddsCap) : none;
  }
  template <typename T>
  WSFAST_FN Share<T> share(T score, Rest<T> others) const {
    const T mine = this->weight_of(score, T(0)), total = mine + others.total;
    const T inv = total > T(0) ? T(1) / total : T(0);
    return {mine * inv, others.total * inv};
  }
};

template <class G>
struct Unnormalized : G {
  static constexpr bool kNormalized = false;
  static constexpr bool kExponential = false;
  template <typename T>
  WSFAST_FN PairChange<T> pair(PairState<T> s, T t) const {
    const Weight<T> w = this->weight(s.logit, t);
    return {w.value, w.change, w.slope};
  }
  template <typename T>
  WSFAST_FN T odds(T score, T) const {
    return this->weight_of(score, T(0));
  }
  template <typename T>
  WSFAST_FN Share<T> share(T score, Rest<T>) const {
    return {this->weight_of(score, T(0)), T(1)};
  }
};

// |delta_j|^2 and its derivatives: by t (`by_score`, the coefficient of y_j), by c.Delta
// (`by_shift`, the coefficient of c_ji).  The coefficient of Delta is 2 alpha^2.
template <typename T>
struct RowChange {
  T norm2, by_score, by_shift;
};
template <typename T>
WSFAST_FN RowChange<T> row_change(PairChange<T> p, T c2, T c_delta, T delta2) {
  const T cross = p.q * p.alpha;
  return {p.q * p.q * c2 + T(2) * cross * c_delta + p.alpha * p.alpha * delta2,
          T(2) * p.dalpha * (p.q * c2 + c_delta * (p.alpha + p.q) + p.alpha * delta2),
          T(2) * cross};
}

// What row j of the text adds, and the coefficients that take the place of y_j.Delta and of the
// mean.Delta.  A function of its own: locals of a simd loop's body that are
// structs are given an array each before inlining, and the loop is not vectorised.
template <bool kGradient, class G, typename T>
WSFAST_FN void add_row(const G& g, PairState<T> pair, T c2, T inv_b, T reach, T word_delta,
                       T delta2, T* score, T* mean, T* value, T* size, T* by_shift, T* alpha2) {
  const PairChange<T> change = g.pair(pair, *score);
  const T c_delta = (word_delta - *mean) * inv_b;
  const RowChange<T> row = row_change(change, c2, c_delta, delta2);
  *value += row.norm2;
  if constexpr (kGradient) {
    const T shift = row.by_shift * inv_b;
    *score = row.by_score;
    *mean = -shift;
    *by_shift += shift;
    *alpha2 += change.alpha * change.alpha;
  } else {
    const T far = reach * inv_b;
    *size += change.q * change.q * larger(c2, far * far) + change.alpha * change.alpha * delta2;
  }
}

// ---- a word replaced by a candidate v (docs/design.md, section 4)
//
// With k = w / Z the candidate's weight over the row's, a the attention on word i and b = 1 - a,
//     delta_j = [k (v - phi_j) - a (x_i - phi_j)] / (k + b),
// where k is capped: beyond kOddsCap the row sees nothing but v.

// What a row and a candidate give to |delta_j|^2 whatever the position.
template <typename T>
struct RowTerms {
  T direct;  // k^2 |v - phi_j|^2
  T odds;    // k
  T offset;  // v.phi_j - |phi_j|^2
};
template <class G, typename T>
WSFAST_FN RowTerms<T> row_terms(const G&, T odds, T v2, T v_phi, T phi2) {
  if constexpr (G::kNormalized)
    return {odds * odds * (v2 - T(2) * v_phi + phi2), odds, v_phi - phi2};
  else
    return {odds * odds * v2, odds, T(0)};
}

// |delta_j|^2 as a fraction: the sum of two needs one division.
template <typename T>
struct Fraction {
  T numerator, denominator;
};
template <typename T>
WSFAST_FN Fraction<T> operator+(Fraction<T> x, Fraction<T> y) {
  return {x.numerator * y.denominator + y.numerator * x.denominator, x.denominator * y.denominator};
}
// A pair of a row and a position: 2 a, 2 a x_i.phi_j, (a |x_i - phi_j|)^2, b.
template <typename T>
struct Pair {
  T twice_a, cross, removal2, b;
};
template <class G, typename T>
WSFAST_FN Fraction<T> squared_change(const G&, Pair<T> pair, RowTerms<T> row, T v_word) {
  const T inner = pair.twice_a * (v_word - row.offset) - pair.cross;
  const T numerator = row.direct + pair.removal2 - row.odds * inner;
  const T root = G::kNormalized ? row.odds + pair.b : T(1);
  return {numerator, root * root};
}

}  // namespace
}  // namespace wsfast
