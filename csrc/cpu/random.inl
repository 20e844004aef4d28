// Blocks of random weights, compiled once per instruction set: the including file defines
// WSFAST_RANDOM. Contraction of a multiplication and an addition is off in these objects, so that
// every operation is one of IEEE 754 and the bits are the same on every machine;
// wsfast/_counter_random.py computes the same in PyTorch.
#include "kernels.h"
#include "threads.h"

namespace wsfast {
namespace {

using Bits32 = std::uint32_t;

inline float float_of(Bits32 bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
inline Bits32 bits_of(float value) {
  Bits32 bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Philox4x32-10 (Salmon et al., SC 2011).
inline void philox(Bits32& a, Bits32& b, Bits32& c, Bits32& d, Bits32 key0, Bits32 key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p = static_cast<std::uint64_t>(a) * 0xD2511F53u,
                        q = static_cast<std::uint64_t>(c) * 0xCD9E8D57u;
    a = static_cast<Bits32>(q >> 32) ^ b ^ key0;
    b = static_cast<Bits32>(q);
    c = static_cast<Bits32>(p >> 32) ^ d ^ key1;
    d = static_cast<Bits32>(p);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

// Natural logarithm of 2^-32 <= u <= 1: coefficients of Cephes' logf.
inline float log_of(float u) {
  const Bits32 above = bits_of(u) - 0x3F3504F3u;  // of sqrt(1/2), where the mantissa begins
  const float exponent = static_cast<float>(static_cast<std::int32_t>(above) >> 23),
              t = float_of((above & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f, t2 = t * t;
  float p = 7.0376836292e-2f;
  p = p * t - 1.1514610310e-1f;
  p = p * t + 1.1676998740e-1f;
  p = p * t - 1.2420140846e-1f;
  p = p * t + 1.4249322787e-1f;
  p = p * t - 1.6668057665e-1f;
  p = p * t + 2.0000714765e-1f;
  p = p * t - 2.4999993993e-1f;
  p = p * t + 3.3333331174e-1f;
  p = t * t2 * p;
  p = p - 2.12194440e-4f * exponent;
  p = p - 0.5f * t2;
  p = t + p;
  return p + 0.693359375f * exponent;
}

// Two normals from two words (Box and Muller): a radius, and an angle given as one of four quarters
// and a part of it; coefficients of Cephes' sinf and cosf.
inline void two_normals(Bits32 x, Bits32 y, float& first, float& second) {
  const float u = static_cast<float>(static_cast<std::int32_t>(x >> 1)) * 0x1p-31f + 0x1p-32f;
  const float square = -2.0f * log_of(u), radius = __builtin_sqrtf(square > 0.0f ? square : 0.0f);
  const std::int32_t part = static_cast<std::int32_t>(y & 0x3FFFFFFFu) - 0x20000000;
  const float a = static_cast<float>(part) * 1.4629180792671596e-9f, a2 = a * a;  // pi 2^-31
  float s = -1.9515295891e-4f * a2 + 8.3321608736e-3f;
  s = s * a2 - 1.6666654611e-1f;
  s = s * a2 * a + a;
  float c = 2.443315711809948e-5f * a2 - 1.388731625493765e-3f;
  c = c * a2 + 4.166664568298827e-2f;
  c = c * (a2 * a2) - 0.5f * a2 + 1.0f;
  c = float_of(bits_of(c) ^ (y & 0x80000000u));
  const bool swapped = (y & 0x40000000u) != 0;
  first = radius * (swapped ? s : c);
  second = radius * (swapped ? c : s);
}

// Which matrix the rows are of.
struct Source {
  Bits32 key0, key1, draw, plane;
};
template <class Arguments>
Source source_of(const Arguments& in) {
  return {static_cast<Bits32>(in.seed), static_cast<Bits32>(in.seed >> 32), in.draw, in.plane};
}

// Calls use(column, normals, count) for runs of columns of a row.  Its counters are its groups of
// four columns, which lie a quarter of the row apart.
template <class Use>
void for_runs(const Source source, Bits32 row, std::int64_t cols, const Use& use) {
  constexpr std::int64_t kStrip = 32;
  const std::int64_t groups = (cols + 3) / 4;
  float normals[4][kStrip];
  for (std::int64_t group = 0; group < groups; group += kStrip) {
#pragma omp simd
    for (std::int64_t l = 0; l < kStrip; ++l) {
      Bits32 a = static_cast<Bits32>(group + l), b = row, c = source.plane, d = source.draw;
      philox(a, b, c, d, source.key0, source.key1);
      two_normals(a, b, normals[0][l], normals[1][l]);
      two_normals(c, d, normals[2][l], normals[3][l]);
    }
    for (std::int64_t quarter = 0; quarter < 4; ++quarter) {
      const std::int64_t first = quarter * groups + group, left = cols - first;
      std::int64_t count = groups - group < kStrip ? groups - group : kStrip;
      if (left < count) count = left;
      if (count > 0) use(first, normals[quarter], count);
    }
  }
}

template <class Arguments, class Row>
void for_rows(const Arguments& in, std::int64_t work, int threads, const Row& row) {
  const auto body = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t number = first; number < last; ++number) row(number);
  };
  split_rows(
      in.rows, in.rows * work, threads,
      [](const void* context, std::int64_t first, std::int64_t last) {
        (*static_cast<const decltype(body)*>(context))(first, last);
      },
      &body);
}

template <typename T>
void random_block(const RandomBlock<T>& in, int threads) {
  const Source source = source_of(in);
  for_rows(in, in.cols * 8, threads, [&](std::int64_t row) {
    T* out = in.out + row * in.cols;
    for_runs(source, static_cast<Bits32>(in.first_row + row), in.cols,
             [&](std::int64_t column, const float* normals, std::int64_t count) {
               for (std::int64_t l = 0; l < count; ++l)
                 out[column + l] = static_cast<T>(normals[l]) * in.scale;
             });
  });
}

template <typename T>
void random_product(const RandomProduct<T>& in, int threads) {
  const Source source = source_of(in);
  for_rows(in, in.cols * (8 + in.texts), threads, [&](std::int64_t number) {
    const std::int64_t row = in.first_row + number;
    for_runs(source, static_cast<Bits32>(row), in.cols,
             [&](std::int64_t column, const float* normals, std::int64_t count) {
               for (std::int64_t b = 0; b < in.texts; ++b) {
                 const T* x = in.x + b * in.cols + column;
                 T sum = 0;
#pragma omp simd reduction(+ : sum)
                 for (std::int64_t l = 0; l < count; ++l) sum += static_cast<T>(normals[l]) * x[l];
                 in.z[b * in.all_rows + row] += in.scale * sum;
               }
             });
  });
}

// ---- attention weights: normals of 64 random bits each, by Wichura's AS 241
// ---------------------------------------------------
// wsfast/_random.py computes the same in NumPy.

struct Rational {
  double numerator[8], denominator[8];
};
constexpr Rational kCentral = {
    {2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
     4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
     1.3314166789178437745e2, 3.3871328727963666080e0},
    {5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
     2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
     4.2313330701600911252e1, 1.0}};
constexpr Rational kMiddle = {
    {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
     1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
     4.63033784615654529590e0, 1.42343711074968357734e0},
    {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
     1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
     2.05319162663775882187e0, 1.0}};
constexpr Rational kFar = {
    {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
     2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
     5.46378491116411436990e0, 6.65790464350110377720e0},
    {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
     7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
     5.99832206555887937690e-1, 1.0}};

inline double value_of(const Rational& of, double x) {
  double numerator = of.numerator[0], denominator = of.denominator[0];
  for (int k = 1; k < 8; ++k) {
    numerator = numerator * x + of.numerator[k];
    denominator = denominator * x + of.denominator[k];
  }
  return numerator / denominator;
}

// Natural logarithm of a normal number; the C library's differs between machines in the last bit.
inline double log_of(double x) {
  std::int64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  double exponent = static_cast<double>((bits >> 52) - 1022);
  bits = (bits & 0xFFFFFFFFFFFFF) | 0x3FE0000000000000;  // from 1/2 to 1
  double mantissa;
  __builtin_memcpy(&mantissa, &bits, sizeof mantissa);
  if (mantissa < 0.7071067811865476) mantissa = 2 * mantissa, exponent -= 1;
  const double z = (mantissa - 1) / (mantissa + 1), z2 = z * z;
  double series = 0;
  for (int k = 23; k > 0; k -= 2) series = series * z2 + 1.0 / k;
  return exponent * 0.6931471805599453 + 2 * (z * series);
}

// The middle of one of 2^52 cells of (0, 1): neither end, and symmetric about 1/2.
inline double cell_of(std::uint64_t bits) {
  return (static_cast<double>(static_cast<std::int64_t>(bits >> 12)) + 0.5) * 0x1p-52;
}

void inverse_normals(std::int64_t count, const std::uint64_t* bits, double* out, int threads) {
  struct Given {
    const std::uint64_t* bits;
    double* out;
  } given{bits, out};
  split_rows(
      count, 8 * count, threads,
      [](const void* context, std::int64_t first, std::int64_t last) {
        const auto [bits, out] = *static_cast<const Given*>(context);
#pragma omp simd
        for (std::int64_t k = first; k < last; ++k) {
          const double q = cell_of(bits[k]) - 0.5;
          out[k] = q * value_of(kCentral, 0.180625 - q * q);
        }
        for (std::int64_t k = first; k < last; ++k) {
          const double u = cell_of(bits[k]), q = u - 0.5;
          if (__builtin_fabs(q) <= 0.425) continue;
          const double r = __builtin_sqrt(-log_of(q < 0 ? u : 1.0 - u)),
                       value = r <= 5.0 ? value_of(kMiddle, r - 1.6) : value_of(kFar, r - 5.0);
          out[k] = q < 0 ? -value : value;
        }
      },
      &given);
}

template <typename T>
RandomKernelsOf<T> table() {
  return {random_block<T>, random_product<T>};
}

}  // namespace

RandomKernels WSFAST_RANDOM() { return {table<float>(), table<double>(), inverse_normals}; }

}  // namespace wsfast
