// The kernels of a word replaced by candidates.
#pragma once

#include "driver_common.h"

namespace {

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

}  // namespace
