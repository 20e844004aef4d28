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

#include "driver_bound.h"
#include "driver_common.h"
#include "driver_functional.h"
#include "driver_heads.h"
#include "driver_random.h"
#include "driver_substitution.h"

using namespace wsfast;

namespace {

constexpr WeightFn kFunctions[] = {WeightFn::kSoftmax, WeightFn::kRelu, WeightFn::kReluUnnormalized,
                                   WeightFn::kSquareplus, WeightFn::kSquareplusUnnormalized};

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
                 best_gradient = random.normals<T>(rows * d), best_value(rows), beta(rows, T(0.5)),
                 risen(rows, T(3));
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
                       beta.data(),
                       risen.data()};
  table<T>().take_step(in, threads);
  require_finite(delta, "a step is not finite");
  for (const T one : beta)
    require(one == T(1) || one == T(0.25), "a step size is neither doubled nor halved");
  for (const T one : risen)
    require(one == T(4) || one == T(0), "steps in a row are neither counted nor begun anew");
  for (std::int64_t row = 1; row < rows; ++row) {
    double norm2 = 0;
    for (std::int64_t k = 0; k < d; ++k)
      norm2 += std::pow(static_cast<double>(delta[row * d + k]), 2);
    require(norm2 < 4.0001, "a step leaves the ball");
  }
  return delta;
}

// Delta and its products after some turns, in one vector.
template <typename T>
std::vector<T> turn_rows(std::int64_t positions, std::int64_t n, std::int64_t d, double size,
                         int threads) {
  Random random(static_cast<unsigned>(n * 59 + d));
  const std::vector<T> logit = random.normals<T>(positions * n, size), a(positions * n, T(0.3)),
                       c2(positions * n, T(2)), inv_b(positions * n, T(1)),
                       directions = random.normals<T>(n * d, 0.1), lengths(n, T(2)),
                       scores = random.normals<T>(n * n, size), means = random.normals<T>(n * n),
                       words = random.normals<T>(positions * n), length(positions, T(3));
  std::vector<T> t = random.normals<T>(positions * n, size), mean(positions * n, T(0.1)),
                 u(positions, T(0.5)), delta = random.normals<T>(positions * d);
  RowTurns<T> in{};
  in.positions = positions, in.n = n, in.d = d, in.count = 4;
  in.candidates = std::min<std::int64_t>(n, 1 + n / 4), in.step = T(0.15);
  in.logit = logit.data(), in.a = a.data(), in.c2 = c2.data(), in.inv_b = inv_b.data();
  in.directions = directions.data(), in.lengths = lengths.data(), in.scores = scores.data();
  in.means = means.data(), in.words = words.data(), in.length = length.data();
  in.t = t.data(), in.mean = mean.data(), in.u = u.data(), in.delta = delta.data();
  table<T>().turn_rows(in, threads);
  for (const auto* found : {&t, &mean, &u, &delta}) require_finite(*found, "a turn is not finite");
  delta.insert(delta.end(), t.begin(), t.end());
  return delta;
}

template <typename T>
void same(const std::vector<T>& one, const std::vector<T>& two) {
  require(one == two, "the number of threads changes a result");
}

template <typename T>
void every_kernel() {
#ifdef DRIVER_UNDER_TSAN
  const std::vector<std::int64_t> sizes;  // of one thread, which cannot race
#else
  const std::vector<std::int64_t> sizes = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33};
#endif
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
            functional<T>(text, size, 1);
            if (fn != WeightFn::kSoftmax || starts == 1) continue;
            for (const std::int64_t r : {0, 5})
              for (const bool gradient : {true, false})
                head<T>(text, 1 + n % 5, r, gradient, size, 1);
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
    same(functional<T>(text, 1, 1), functional<T>(text, 1, 4));
  }
  const Text<T> text(WeightFn::kSoftmax, 61, 4, 61, 19);
  for (const bool gradient : {true, false})
    same(head<T>(text, 23, 29, gradient, 1, 1), head<T>(text, 23, 29, gradient, 1, 4));
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
  for (const bool relu : {false, true})
    for (const bool proof : {false, true}) {
      for (const std::int64_t n : sizes)
        for (const std::int64_t nodes : {3, 9, 63, 65, 67, 131})
          for (const double size : {1e-3, 1.0, 30.0})
            bound_rows<T>(relu, proof, 1 + n / 2, n, nodes, size, 1);
      same(bound_rows<T>(relu, proof, 61, 67, 201, 1, 1),
           bound_rows<T>(relu, proof, 61, 67, 201, 1, 4));
    }
  for (const std::int64_t N : sizes)
    for (const double size : {1e-3, 1.0, 30.0}) bound_ball<T>(1 + N / 2, N, size, 1);
  same(bound_ball<T>(300, 67, 1, 1), bound_ball<T>(300, 67, 1, 4));
  for (const std::int64_t n : sizes) bound_steps<T>(1 + n / 2, n, 1);
  same(bound_steps<T>(300, 67, 1), bound_steps<T>(300, 67, 4));
  for (const std::int64_t d : sizes) {
    random_weights<T>(3, d, 1);
    random_products<T>(3, d, 2, 1);
  }
  for (const std::int64_t count : sizes) attention_weights(count, 1);
  same(attention_weights(90000, 1), attention_weights(90000, 4));
  same(random_weights<T>(900, 129, 1), random_weights<T>(900, 129, 4));
  same(random_products<T>(900, 129, 2, 1), random_products<T>(900, 129, 2, 4));
  for (const std::int64_t n : sizes)
    for (const double size : {1e-3, 0.1, 1.0}) turn_rows<T>(1 + n / 2, n, 1 + n % 9, size, 1);
  same(turn_rows<T>(61, 300, 19, 1, 1), turn_rows<T>(61, 300, 19, 1, 4));
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
