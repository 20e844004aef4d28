// Runs every kernel, at every instruction set of the machine, without Python: for the sanitizers
// (ci/sanitize.sh). Each array is a heap block of its exact size, so that AddressSanitizer sees a
// step beyond either end.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/wait.h>
#include <unistd.h>
#define DRIVER_HAS_FORK 1
#endif
#if defined(__SANITIZE_THREAD__)
#define DRIVER_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DRIVER_UNDER_TSAN 1
#endif
#endif

#include "cpu/dispatch.h"

using namespace wsfast;

namespace {

template <typename T>
const Kernels<T>& table();
template <>
const Kernels<float>& table<float>() {
  return kernels().f32;
}
template <>
const Kernels<double>& table<double>() {
  return kernels().f64;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "driver: %s\n", what);
  std::abort();
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  double normal() { return normal_(engine_); }
  double uniform() { return uniform_(engine_); }
  template <typename T>
  std::vector<T> normals(std::int64_t count, double size = 1) {
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(size * normal());
    return values;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<double> normal_{0, 1};
  std::uniform_real_distribution<double> uniform_{0, 1};
};

template <typename T>
void require_finite(const std::vector<T>& values, const char* what) {
  for (const T value : values) require(std::isfinite(value), what);
}

constexpr WeightFn kFunctions[] = {WeightFn::kSoftmax, WeightFn::kRelu, WeightFn::kReluUnnormalized,
                                   WeightFn::kSquareplus, WeightFn::kSquareplusUnnormalized};

bool normalized(WeightFn fn) {
  return fn != WeightFn::kReluUnnormalized && fn != WeightFn::kSquareplusUnnormalized;
}

template <typename T>
std::vector<T> attention(WeightFn fn, std::int64_t rows, std::int64_t n, bool masked,
                         bool statistics, double size, int threads) {
  Random random(static_cast<unsigned>(rows * 31 + n));
  std::vector<T> scores = random.normals<T>(rows * n, size), top_score(statistics ? rows : 0),
                 others(top_score);
  std::vector<std::int64_t> top(statistics ? rows : 0, -1);
  const std::int64_t rows_per_mask = rows % 2 == 0 ? 2 : 1;
  std::vector<std::uint8_t> mask(masked ? rows / rows_per_mask * n : 0);
  for (std::size_t k = 0; k < mask.size(); ++k)
    mask[k] = k % static_cast<std::size_t>(n) == static_cast<std::size_t>(n) / 2 ||
              random.uniform() < 0.5;
  AttentionRows<T> in{};
  in.weight_fn = fn;
  in.curve = 0.48;
  in.rows = rows;
  in.n = n;
  in.scores = scores.data();
  in.mask = masked ? mask.data() : nullptr;
  in.rows_per_mask = rows_per_mask;
  in.top = statistics ? top.data() : nullptr;
  in.top_score = statistics ? top_score.data() : nullptr;
  in.others = statistics ? others.data() : nullptr;
  table<T>().attention_rows(in, threads);
  require_finite(scores, "attention weights are not finite");
  require_finite(top_score, "the largest score is not finite");
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t l = 0; l < n; ++l) {
      const double weight = static_cast<double>(scores[row * n + l]);
      require(weight >= 0, "an attention weight is negative");
      if (masked && !mask[row / rows_per_mask * n + l])
        require(weight == 0, "a masked word has weight");
      sum += weight;
    }
    if (normalized(fn) && sum > 0)
      require(std::fabs(sum - 1) < 1e-4, "the weights of a row do not add to 1");
    if (statistics) {
      require(top[row] >= 0 && top[row] < n, "the largest word is not one of the text");
      require(n == 1 || std::isfinite(others[row]), "the sum of the other weights is not finite");
    }
  }
  return scores;
}

// A state as prepare_positions would make it: attention that fits the scores, some pairs dominated.
template <typename T>
struct Text {
  std::int64_t positions, starts, n, d;
  std::vector<std::int64_t> index, own_top, dominated_start, dominated_row;
  std::vector<T> word, logit, a, b, inv_b, others, c2, reach, own_logit, own_a, dominated_mean;
  PositionState<T> state{};

  Text(WeightFn fn, std::int64_t positions_, std::int64_t starts_, std::int64_t n_, std::int64_t d_)
      : positions(positions_), starts(starts_), n(n_), d(d_) {
    Random random(static_cast<unsigned>(n * 101 + d));
    const std::int64_t pairs = positions * n;
    word = random.normals<T>(positions * d);
    logit = random.normals<T>(pairs, 3);
    own_logit = random.normals<T>(pairs, 3);
    c2 = random.normals<T>(pairs);
    reach = random.normals<T>(pairs);
    a.resize(pairs), b.resize(pairs), inv_b.resize(pairs), others.resize(pairs),
        own_a.resize(pairs);
    own_top.resize(positions);
    dominated_start.push_back(0);
    for (std::int64_t p = 0; p < positions; ++p) {
      index.push_back((p * 7) % n);
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int64_t k = p * n + j;
        if (j % 5 == 1) logit[k] = T(30);  // saturated
        const double share = 1 / (1 + std::exp(-static_cast<double>(logit[k])));
        a[k] = T(share);
        b[k] = T(1 / (1 + std::exp(static_cast<double>(logit[k]))));
        const bool dominated = normalized(fn) && share > 0.5;
        inv_b[k] = dominated ? T(1) : T(1) / b[k];
        others[k] = j % 4 == 0 ? T(0) : T(random.uniform());
        c2[k] = std::fabs(c2[k]);
        reach[k] = std::fabs(reach[k]);
        if (dominated) dominated_row.push_back(j);
        if (static_cast<double>(own_logit[k]) > largest) largest = own_logit[k], own_top[p] = j;
      }
      for (std::int64_t j = 0; j < n; ++j) {
        own_logit[p * n + j] -= T(largest);
        sum += std::exp(static_cast<double>(own_logit[p * n + j]));
      }
      for (std::int64_t j = 0; j < n; ++j)
        own_a[p * n + j] = T(std::exp(static_cast<double>(own_logit[p * n + j])) / sum);
      const std::int64_t own = p * n + index[p];
      logit[own] = T(-1e30), a[own] = 0, b[own] = 1, others[own] = 1, c2[own] = 0, reach[own] = 0;
      dominated_start.push_back(static_cast<std::int64_t>(dominated_row.size()));
    }
    index.shrink_to_fit(), dominated_start.shrink_to_fit(), dominated_row.shrink_to_fit();
    dominated_mean = random.normals<T>(static_cast<std::int64_t>(dominated_row.size()) * d);
    state = {fn,
             0.48,
             positions,
             starts,
             n,
             d,
             index.data(),
             word.data(),
             logit.data(),
             a.data(),
             b.data(),
             inv_b.data(),
             fn == WeightFn::kSoftmax ? nullptr : others.data(),
             c2.data(),
             reach.data(),
             own_logit.data(),
             own_a.data(),
             own_top.data(),
             dominated_start.data(),
             dominated_row.data(),
             dominated_mean.data()};
  }
};

// What the kernels write, in one vector.
template <typename T>
std::vector<T> evaluate(const Text<T>& text, bool gradient, double size, int threads) {
  Random random(static_cast<unsigned>(text.n + 13 * text.d + text.starts));
  const std::int64_t M = text.positions * text.starts, n = text.n, d = text.d,
                     K = static_cast<std::int64_t>(text.dominated_row.size());
  const bool exponential = text.state.weight_fn == WeightFn::kSoftmax;
  std::vector<T> delta = random.normals<T>(M * d, size),
                 products = random.normals<T>(M * (3 * n + d), size), own_weight(M * n),
                 own_change(M * n), own_slope(exponential ? 0 : M * n),
                 dominated_coef(text.starts * K), scalars(M * kScalars), value(M),
                 rounding(gradient ? 0 : M), own_delta = random.normals<T>(M * d),
                 own_products = random.normals<T>(M * n), result = random.normals<T>(M * d);
  const AscentRows<T> rows{delta.data(),
                           products.data(),
                           own_weight.data(),
                           own_change.data(),
                           exponential ? own_weight.data() : own_slope.data(),
                           dominated_coef.data(),
                           scalars.data(),
                           value.data(),
                           gradient ? nullptr : rounding.data()};
  const Kernels<T>& run = table<T>();
  if (!gradient) {
    run.delta_norms(text.state, rows, threads);
    run.own_row(text.state, rows, own_delta.data(), threads);
    // Infinite where rounding may be all there is of the own row; never NaN.
    for (const T one : rounding) require(one >= 0, "a rounding size is negative or NaN");
    result = rounding;
  } else {
    run.ascent_forward(text.state, rows, threads);
    run.own_row(text.state, rows, own_delta.data(), threads);
    run.ascent_backward(text.state, rows, own_products.data(), threads);
    run.ascent_gradient(text.state, rows, own_delta.data(), result.data(), threads);
    require_finite(products, "a coefficient is not finite");
    require_finite(result, "a gradient is not finite");
  }
  require_finite(value, "a value is not finite");
  require_finite(own_weight, "an attention weight of the own row is not finite");
  require_finite(own_change, "a change of the own row is not finite");
  result.insert(result.end(), value.begin(), value.end());
  return result;
}

template <typename T>
std::vector<T> step(std::int64_t rows, std::int64_t d, int threads) {
  Random random(static_cast<unsigned>(rows + d));
  std::vector<T> delta = random.normals<T>(rows * d), gradient = random.normals<T>(rows * d),
                 value = random.normals<T>(rows), best_delta = random.normals<T>(rows * d),
                 best_gradient = random.normals<T>(rows * d), best_value(rows), beta(rows, T(0.5));
  for (std::int64_t k = 0; k < d; ++k) best_gradient[k] = gradient[k] = 0;  // a row without slope
  const StepRows<T> in{rows,
                       d,
                       2.0,
                       delta.data(),
                       gradient.data(),
                       value.data(),
                       best_delta.data(),
                       best_gradient.data(),
                       best_value.data(),
                       beta.data()};
  table<T>().take_step(in, threads);
  require_finite(delta, "a step is not finite");
  for (const T one : beta)
    require(one == T(1) || one == T(0.25), "a step size is neither doubled nor halved");
  for (std::int64_t row = 1; row < rows; ++row) {
    double norm2 = 0;
    for (std::int64_t k = 0; k < d; ++k)
      norm2 += std::pow(static_cast<double>(delta[row * d + k]), 2);
    require(norm2 < 4.0001, "a step leaves the ball");
  }
  return delta;
}

// ---- a word replaced by candidates

constexpr WeightFn kSubstituted[] = {WeightFn::kSoftmax, WeightFn::kRelu,
                                     WeightFn::kReluUnnormalized};

// A text as the search would keep it: attention that adds up, some pairs dominated.
template <typename T>
struct ReplacedText {
  std::int64_t positions, n;
  std::vector<std::int64_t> index, top, dominated_start, dominated_row;
  std::vector<T> full, phi2, base_weight, top_weight, gain2, pairs, dominated, key_shift, gram,
      phi_words, constant, removed_norm;
  std::vector<std::uint8_t> plain;
  SubstitutionState<T> state{};

  ReplacedText(WeightFn fn, std::int64_t positions_, std::int64_t n_)
      : positions(positions_), n(n_) {
    Random random(static_cast<unsigned>(n * 53 + positions));
    const bool exponential = fn == WeightFn::kSoftmax;
    const std::int64_t groups = (n + kGroup - 1) / kGroup;
    full = random.normals<T>(n), phi2 = random.normals<T>(n), key_shift = random.normals<T>(n);
    gram = random.normals<T>(n * n), phi_words = random.normals<T>(positions * n);
    constant = random.normals<T>(positions), removed_norm = random.normals<T>(positions);
    base_weight.assign(n, T(1)), top_weight.assign(n, T(0)), gain2.assign(n, T(4));
    top.assign(n, 0);
    for (std::int64_t j = 0; j < n; ++j) {
      phi2[j] = std::fabs(phi2[j]);
      if (!exponential) full[j] = j % 6 == 4 ? T(0) : std::fabs(full[j]);  // a row without weight
      if (j % 5 == 1 && normalized(fn)) {
        base_weight[j] = T(0.2), top_weight[j] = T(0.8), top[j] = n - 1;
      }
    }
    pairs.assign(groups * positions * kGroup * 4, T(0));
    plain.assign(groups * positions, 1);
    dominated_start.push_back(0);
    for (std::int64_t p = 0; p < positions; ++p) {
      index.push_back((p * 7 + n - 1) % n);
      constant[p] = std::fabs(constant[p]), removed_norm[p] = std::fabs(removed_norm[p]);
      for (std::int64_t j = 0; j < groups * kGroup; ++j) {
        const std::int64_t group = j / kGroup * positions + p;
        T* pair = pairs.data() + (group * kGroup + j % kGroup) * 4;
        pair[3] = T(1);
        if (j >= n) continue;
        const bool apart = normalized(fn) && j % 5 == 1 && index[p] == n - 1;
        if (j == index[p] || apart) {
          pair[0] = T(-2), plain[group] = 0;
          if (j != index[p]) dominated_row.push_back(j);
          continue;
        }
        const double a = 0.5 * random.uniform();
        pair[0] = T(2 * a), pair[1] = T(random.normal());
        pair[2] = T(random.uniform()), pair[3] = normalized(fn) ? T(1 - a) : T(1);
      }
      dominated_start.push_back(static_cast<std::int64_t>(dominated_row.size()));
    }
    index.shrink_to_fit(), dominated_start.shrink_to_fit(), dominated_row.shrink_to_fit();
    for (std::size_t k = 0; k < dominated_row.size(); ++k)
      for (const double value : {0.8, k % 2 == 0 ? 0.0 : 1.0, 1.0, 0.5, 0.3})
        dominated.push_back(T(value));
    dominated.shrink_to_fit();
    state = {fn,
             positions,
             n,
             index.data(),
             full.data(),
             phi2.data(),
             base_weight.data(),
             top_weight.data(),
             top.data(),
             gain2.data(),
             pairs.data(),
             plain.data(),
             dominated_start.data(),
             dominated_row.data(),
             dominated.data(),
             key_shift.data(),
             gram.data(),
             phi_words.data(),
             1.0,
             2.0,
             2.0,
             1e-6,
             1e-6,
             1e-6,
             1e-6,
             1e-5,
             constant.data(),
             removed_norm.data()};
  }
};

// What the kernels write for m candidates of d dimensions, in one vector.
template <typename T>
std::vector<T> substitute(const ReplacedText<T>& text, std::int64_t m, std::int64_t d, double size,
                          double threshold, int threads) {
  Random random(static_cast<unsigned>(m * 17 + d));
  const std::int64_t n = text.n, P = text.positions,
                     stride = (m + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  const Kernels<T>& run = table<T>();
  const std::vector<T> given = random.normals<T>(m * d, size), shift = random.normals<T>(d);
  std::vector<T> centred(m * d), norm2(stride, T(1));
  run.centre_rows({m, d, given.data(), shift.data(), centred.data(), norm2.data()}, threads);
  for (std::int64_t row = 0; row < m; ++row) {
    double sum = 0;
    for (std::int64_t k = 0; k < d; ++k) {
      require(centred[row * d + k] == given[row * d + k] - shift[k], "a candidate is not centred");
      sum += std::pow(static_cast<double>(centred[row * d + k]), 2);
    }
    require(std::fabs(norm2[row] - sum) <= 1e-5 * sum, "a squared norm is wrong");
  }
  // What a matrix product would give; any numbers do.
  std::vector<T> scores = random.normals<T>(n * stride, size), base = random.normals<T>(n * stride),
                 words = random.normals<T>(n * stride), keys = random.normals<T>(n * stride, size),
                 own_score = random.normals<T>(stride, size), attention(kOwnRows * stride),
                 mean_products = random.normals<T>((n + P) * stride), value(P * stride),
                 rounding(stride), blur(stride);
  std::vector<std::int64_t> top(stride, -1);
  const std::vector<T> least(P, T(threshold));
  const SubstitutionTile<T> tile{m,
                                 stride,
                                 scores.data(),
                                 base.data(),
                                 words.data(),
                                 keys.data(),
                                 own_score.data(),
                                 norm2.data(),
                                 attention.data(),
                                 top.data(),
                                 mean_products.data(),
                                 threshold > 0 ? least.data() : nullptr,
                                 value.data(),
                                 rounding.data(),
                                 blur.data()};
  run.candidate_attention(text.state, tile, threads);
  require_finite(keys, "an attention weight of a candidate is not finite");
  require_finite(attention, "a share of a candidate is not finite");
  for (std::int64_t v = 0; v < stride; ++v) {
    require(top[v] >= 0 && top[v] < n, "the largest word of a candidate is not one of the text");
    require(keys[top[v] * stride + v] == T(0), "the largest word is not left out");
    double sum = 0;
    for (std::int64_t l = 0; l < n; ++l) sum += static_cast<double>(keys[l * stride + v]);
    if (normalized(text.state.weight_fn) && sum > 0)
      require(std::fabs(sum - 1) < 1e-4, "the weights of a candidate do not add to 1");
  }
  run.substitution_norms(text.state, tile, threads);
  require_finite(value, "a change is not finite");
  require_finite(rounding, "the size of a change is not finite");
  require_finite(blur, "the error of a change is not finite");
  for (std::int64_t v = 0; v < stride; ++v)
    require(rounding[v] >= 0 && blur[v] >= 0, "a bound is negative");
  value.insert(value.end(), rounding.begin(), rounding.end());
  value.insert(value.end(), blur.begin(), blur.end());
  return value;
}

template <typename T>
void same(const std::vector<T>& one, const std::vector<T>& two) {
  require(one == two, "the number of threads changes a result");
}

template <typename T>
void every_kernel() {
  const std::int64_t sizes[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33};
  for (const WeightFn fn : kFunctions) {
    for (const std::int64_t n : sizes)
      for (const double size : {1.0, 1000.0})
        for (const bool masked : {false, true})
          for (const bool statistics : {false, true})
            if (!(masked && statistics))
              attention<T>(fn, 1 + n % 4, n, masked, statistics, size, 1);
    for (const std::int64_t n : sizes)
      for (const std::int64_t d : {std::int64_t{1}, std::int64_t{3}, n})
        for (const std::int64_t starts : {1, 3}) {
          const Text<T> text(fn, 1 + n / 2, starts, n, d);
          for (const double size : {1e-4, 1.0, 100.0}) {
            evaluate(text, true, size, 1);
            evaluate(text, false, size, 1);
          }
        }
    // Large enough for more than one thread.
    same(attention<T>(fn, 300, 257, true, false, 1, 1),
         attention<T>(fn, 300, 257, true, false, 1, 4));
    same(attention<T>(fn, 300, 257, false, true, 1, 1),
         attention<T>(fn, 300, 257, false, true, 1, 3));
    const Text<T> text(fn, 61, 4, 61, 67);
    for (const bool gradient : {true, false})
      same(evaluate(text, gradient, 1, 1), evaluate(text, gradient, 1, 4));
  }
  for (const WeightFn fn : kSubstituted) {
    for (const std::int64_t n : sizes)
      for (const std::int64_t positions : {std::int64_t{1}, 1 + n / 2, n}) {
        const ReplacedText<T> text(fn, positions, n);
        for (const std::int64_t m : {1, 7, 8, 9, 16, 17, 33})
          for (const double size : {1e-3, 1.0, 300.0})
            for (const double threshold : {0.0, 1.0, 1e4})
              substitute(text, m, n, size, threshold, 1);
      }
    const ReplacedText<T> text(fn, 40, 61);
    for (const double threshold : {0.0, 10.0})
      same(substitute(text, 300, 67, 1, threshold, 1), substitute(text, 300, 67, 1, threshold, 4));
  }
  for (const std::int64_t d : sizes) step<T>(3, d, 1);
  same(step<T>(900, 129, 1), step<T>(900, 129, 4));
}

void busy(int rounds) {
  const ReplacedText<float> replaced(WeightFn::kSoftmax, 20, 33);
  for (int k = 0; k < rounds; ++k) {
    substitute(replaced, 200, 9, 1, 3, 3);
    attention<float>(WeightFn::kSoftmax, 300, 257, false, true, 1, 3);
    step<double>(900, 129, 3);
  }
}

}  // namespace

int main() {
  for (const Isa isa : isa_built()) {
    if (isa > detect_isa()) continue;
    set_isa(isa_name(isa));
    every_kernel<float>();
    every_kernel<double>();
    std::printf("driver: %s passed\n", isa_name(isa));
    std::fflush(stdout);
  }

  std::vector<std::thread> callers;
  for (int k = 0; k < 3; ++k) callers.emplace_back(busy, 10);
  for (std::thread& caller : callers) caller.join();
  std::printf("driver: three callers at once passed\n");
  std::fflush(stdout);

  // ThreadSanitizer does not support new threads in a forked child.
#if defined(DRIVER_HAS_FORK) && !defined(DRIVER_UNDER_TSAN)
  const pid_t child = fork();
  if (child == 0) {
    busy(3);
    _exit(0);
  }
  int status = -1;
  require(child > 0 && waitpid(child, &status, 0) == child && status == 0,
          "the kernels fail in a forked child");
  busy(3);
  std::printf("driver: a forked child passed\n");
#endif
  return 0;
}
