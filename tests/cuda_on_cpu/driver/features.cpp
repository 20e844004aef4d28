// Random attention features against the definition in double precision, rows of attention against
// the CPU's kernel.
#include "common.h"

namespace driver {
namespace {

// Words that count, every other one about; of the last text none, if there are several.
std::vector<std::uint8_t> some_words(Random& random, std::int64_t texts, std::int64_t n) {
  std::vector<std::uint8_t> mask(texts * n);
  for (std::int64_t k = 0; k < texts * n; ++k)
    mask[k] = (texts == 1 || k < (texts - 1) * n) && (k % n == n - 1 || random.uniform() < 0.5);
  return mask;
}

struct Size {
  std::int64_t texts, draws, n, d;
  bool masked;
};

void fused(WeightFn fn, const Size& size) {
  const auto [texts, draws, n, d, masked] = size;
  begin<float>("features", {{"weight_fn", static_cast<int>(fn)},
                            {"texts", texts},
                            {"draws", draws},
                            {"n", n},
                            {"d", d},
                            {"masked", masked}});
  Random random(static_cast<unsigned>(n * 101 + d));
  auto words = random.normals<float>(texts * n * d);
  for (std::int64_t k = 0; k < texts * n * d; ++k)
    if (k / d % n == n / 2) words[k] *= 8;  // one word far away
  const auto queries = random.normals<float>(texts * draws * n * d);
  const auto mask = some_words(random, texts, n);
  auto phi = poisoned<float>(texts * draws * n * d);
  const float scale = 1 / std::sqrt(static_cast<float>(d));
  launched(cuda::raf_features({fn, float(kCurve), texts, draws, n, d, scale, words.data(),
                               queries.data(), masked ? mask.data() : nullptr, phi.data()},
                              nullptr));
  for (std::int64_t at = 0; at < texts * draws * n; ++at) {
    const std::int64_t first = at / (draws * n) * n;
    const auto counts = [&, masked = masked](std::int64_t l) { return !masked || mask[first + l]; };
    std::vector<double> scores(n), sum(d);
    double shift = -std::numeric_limits<double>::infinity(), total = 0;
    for (std::int64_t l = 0; l < n; ++l) {
      for (std::int64_t k = 0; k < d; ++k)
        scores[l] += double(scale * queries[at * d + k]) * words[(first + l) * d + k];
      if (counts(l)) shift = std::max(shift, scores[l]);
    }
    for (std::int64_t l = 0; l < n; ++l) {
      if (!counts(l)) continue;
      const double w = weight(fn, fn == WeightFn::kSoftmax ? scores[l] - shift : scores[l]);
      total += w;
      for (std::int64_t k = 0; k < d; ++k) sum[k] += w * words[(first + l) * d + k];
    }
    const double by = !normalized(fn) ? 1 : total > 0 ? 1 / total : 0;
    // Words have the size 1, one of them 8.
    const double room = normalized(fn) ? 16 : 16 * (1 + total);
    for (std::int64_t k = 0; k < d; ++k)
      near("phi", phi[at * d + k], counts(at % n) ? by * sum[k] : 0, 32 * kEps<float>, room);
  }
  remember(phi);
}

template <typename T>
void rows(WeightFn fn, std::int64_t texts, std::int64_t m, std::int64_t n, bool statistics) {
  begin<T>("rows of attention", {{"weight_fn", static_cast<int>(fn)},
                                 {"texts", texts},
                                 {"rows", m},
                                 {"n", n},
                                 {"statistics", statistics}});
  Random random(static_cast<unsigned>(n));
  auto want = random.normals<T>(texts * m * n);
  const auto mask = some_words(random, texts, n);
  auto want_top = poisoned<std::int64_t>(texts * m);
  auto want_score = poisoned<T>(texts * m), want_others = want_score;
  auto got = want, score = want_score, others = want_others;
  auto top = want_top;
  AttentionRows<T> in{
      fn, T(kCurve), texts * m, n,      want.data(), statistics ? nullptr : mask.data(),
      m,  nullptr,   nullptr,   nullptr};
  if (statistics) in.top = want_top.data(), in.top_score = want_score.data();
  in.others = want_others.data();
  table<T>().attention_rows(in, 1);
  if (statistics) in.top = top.data(), in.top_score = score.data();
  in.scores = got.data(), in.others = others.data();
  launched(cuda::attention_rows<T>(in, nullptr));
  check(top == want_top, "the largest word");
  compare("weights", got, want, 32 * kEps<T>);
  compare("the largest score", score, want_score, 0);
  compare("the others", others, want_others, 32 * kEps<T>);
  remember(got), remember(others);
}

template <typename T>
void every_row() {
  for (const WeightFn fn : kFunctions) {
    rows<T>(fn, 2, 5, 70, false);
    rows<T>(fn, 1, 9, 33, true);
  }
  rows<T>(WeightFn::kSoftmax, 1, 1, 1, true);
}

}  // namespace

// A tile has 16 rows and 16 words; blocks hold 128, 384, 768 or 1024 columns.
void features() {
  for (const WeightFn fn : kFunctions) {
    fused(fn, {2, 2, 17, 40, true});
    fused(fn, {1, 1, 33, 20, false});
  }
  fused(WeightFn::kSoftmax, {1, 1, 1, 4, false});
  fused(WeightFn::kSoftmax, {1, 2, 16, 132, false});
  fused(WeightFn::kSoftmax, {1, 1, 17, 388, true});
  fused(WeightFn::kSoftmax, {1, 1, 15, 772, false});
  every_row<float>();
  every_row<double>();
}

}  // namespace driver
