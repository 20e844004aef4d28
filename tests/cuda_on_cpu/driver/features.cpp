// Random attention features, against the definition in double precision.
#include <cstring>

#include "common.h"

namespace driver {
namespace {

template <typename Word>
Word word_of(double x) {
  return static_cast<Word>(x);
}
template <>
Bfloat16 word_of<Bfloat16>(double x) {
  const float single = static_cast<float>(x);
  std::uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  return {static_cast<std::uint16_t>(bits >> 16)};
}
double number_of(double word) { return word; }
double number_of(Bfloat16 word) {
  const std::uint32_t bits = std::uint32_t{word.bits} << 16;
  float single;
  std::memcpy(&single, &bits, sizeof single);
  return single;
}

struct Size {
  std::int64_t texts, draws, n, d;
  bool masked, statistics;
};

template <typename T, typename Word>
struct Features {
  WeightFn fn;
  Size size;
  T scale;
  std::vector<Word> words;
  std::vector<T> queries, phi, top_score, others, others_mean;
  std::vector<std::uint8_t> mask;
  std::vector<std::int64_t> top;

  Features(WeightFn fn_, const Size& size_)
      : fn(fn_), size(size_), scale(T(1 / std::sqrt(static_cast<double>(size.d)))) {
    const auto [texts, draws, n, d, masked, statistics] = size;
    Random random(static_cast<unsigned>(n * 101 + d));
    words.resize(texts * n * d);
    for (std::int64_t k = 0; k < texts * n * d; ++k)
      words[k] = word_of<Word>((k / d % n == n / 2 ? 8 : 1) * random.normal());  // one far away
    queries = random.normals<T>(texts * draws * n * d);
    phi = poisoned<T>(texts * draws * n * d);
    if (masked) {  // no word of the last text counts, if there are several
      mask.resize(texts * n);
      for (std::int64_t k = 0; k < texts * n; ++k)
        mask[k] = (texts == 1 || k < (texts - 1) * n) && (k % n == n - 1 || random.uniform() < 0.5);
    }
    if (!statistics) return;
    top = poisoned<std::int64_t>(texts * draws * n);
    top_score = others = poisoned<T>(texts * draws * n);
    others_mean = phi;
  }

  FeatureRows<T, Word> rows() {
    const auto [texts, draws, n, d, masked, statistics] = size;
    return {fn,
            T(kCurve),
            texts,
            draws,
            n,
            d,
            scale,
            words.data(),
            queries.data(),
            masked ? mask.data() : nullptr,
            phi.data(),
            statistics ? top.data() : nullptr,
            statistics ? top_score.data() : nullptr,
            statistics ? others.data() : nullptr,
            statistics ? others_mean.data() : nullptr};
  }

  // Of a query, the row `at` of (texts, draws, n), and a word of its text.
  double score(std::int64_t at, std::int64_t l) const {
    const std::int64_t text = at / (size.draws * size.n), d = size.d;
    double sum = 0;
    for (std::int64_t k = 0; k < d; ++k)
      sum += double(scale * queries[at * d + k]) * number_of(words[(text * size.n + l) * d + k]);
    return sum;
  }

  void compare_row(std::int64_t at, double allowed) const {
    const std::int64_t n = size.n, d = size.d, text = at / (size.draws * n);
    const auto counts = [&](std::int64_t l) { return !size.masked || mask[text * n + l] != 0; };
    std::vector<double> scores(n);
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t l = 0; l < n; ++l) {
      scores[l] = score(at, l);
      if (counts(l)) largest = std::max(largest, scores[l]);
    }
    const bool some = std::isfinite(largest);
    const double shift = some && fn == WeightFn::kSoftmax ? largest : 0;
    const std::int64_t top_word = size.statistics ? top[at] : -1;
    if (size.statistics) {
      check(some ? top_word >= 0 && top_word < n && counts(top_word) : top_word == -1,
            "the largest word");
      near("the largest score", top_score[at], largest, allowed, some ? 1 + std::fabs(largest) : 1);
      if (some)
        near("the score of the largest word", scores[top_word], top_score[at], allowed,
             1 + std::fabs(largest));
    }
    double total = 0, rest = 0;
    std::vector<double> sum(d), rest_sum(d);
    for (std::int64_t l = 0; l < n; ++l) {
      if (!counts(l)) continue;
      const double w = weight(fn, scores[l] - shift);
      total += w;
      if (l != top_word) rest += w;
      for (std::int64_t k = 0; k < d; ++k) {
        const double x = w * number_of(words[(text * n + l) * d + k]);
        sum[k] += x;
        if (l != top_word) rest_sum[k] += x;
      }
    }
    const double by = !normalized(fn) ? 1 : total > 0 ? 1 / total : 0;
    const double by_rest = !normalized(fn) ? 1 : rest > 0 ? 1 / rest : 0;
    // Words have the size 1, one of them 8.
    const double room = normalized(fn) ? 16 : 16 * (1 + total);
    for (std::int64_t k = 0; k < d; ++k) {
      near("phi", phi[at * d + k], counts(at % n) ? by * sum[k] : 0, allowed, room);
      if (size.statistics)
        near("the mean of the others", others_mean[at * d + k], by_rest * rest_sum[k], allowed,
             room);
    }
    if (size.statistics)
      near("the others", others[at], fn == WeightFn::kSoftmax ? shift + std::log(rest) : rest,
           allowed, 16 + std::fabs(largest) * some + rest);
  }
};

template <typename T, typename Word>
void one(WeightFn fn, const Size& size) {
  begin<T>(sizeof(Word) == 2 ? "features of bfloat16" : "features",
           {{"weight_fn", static_cast<int>(fn)},
            {"texts", size.texts},
            {"draws", size.draws},
            {"n", size.n},
            {"d", size.d},
            {"masked", size.masked},
            {"statistics", size.statistics}});
  Features<T, Word> features(fn, size);
  launched(cuda::raf_features(features.rows(), nullptr));
  for (std::int64_t at = 0; at < size.texts * size.draws * size.n; ++at)
    features.compare_row(at, 32 * kEps<T>);
  remember(features.phi), remember(features.others_mean), remember(features.others);
}

// A tile has 16 rows and 16 words; blocks hold 128, 384, 768 or 1024 columns (float64: 128, 384),
// or slabs of that many.
template <typename T, typename Word>
void every() {
  constexpr std::int64_t kOddRow = 5 * 16 / sizeof(Word);  // an odd number of 16 bytes
  for (const WeightFn fn : kFunctions) {
    one<T, Word>(fn, {2, 2, 17, 40, true, true});
    one<T, Word>(fn, {1, 1, 33, kOddRow, false, true});
  }
  const WeightFn softmax = WeightFn::kSoftmax;
  one<T, Word>(softmax, {1, 1, 1, 8, false, true});
  one<T, Word>(softmax, {1, 2, 16, 136, false, false});
  one<T, Word>(softmax, {1, 1, 17, 392, true, true});
  if (sizeof(T) == 8) return;  // that was wide
  one<T, Word>(softmax, {1, 1, 15, 776, false, true});
  one<T, Word>(softmax, {1, 1, 17, 1032, true, true});
}

}  // namespace

void features() {
  every<float, float>();
  every<double, double>();
  every<float, Bfloat16>();
}

}  // namespace driver
