// The kernels of the ascent against those of the CPU, from the same numbers: norms kernel by
// kernel, a step of the search as a whole, as the two form it from other products.
#include "common.h"

namespace driver {
namespace {

template <typename T>
std::vector<T> normals(std::int64_t count, Random& random, double size = 1) {
  std::vector<T> numbers(count);
  for (T& x : numbers) x = static_cast<T>(size * random.normal());
  return numbers;
}

// a (rows, inner) b (inner, columns), or b (columns, inner) transposed.
template <typename T>
std::vector<T> product(const std::vector<T>& a, const std::vector<T>& b, std::int64_t inner,
                       bool transposed) {
  const std::int64_t rows = static_cast<std::int64_t>(a.size()) / inner,
                     columns = static_cast<std::int64_t>(b.size()) / inner;
  std::vector<T> c(rows * columns);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t k = 0; k < inner; ++k)
      for (std::int64_t at = 0; at < columns; ++at)
        c[r * columns + at] += a[r * inner + k] * b[transposed ? at * inner + k : k * columns + at];
  return c;
}

struct Size {
  std::int64_t positions, starts, n, d;
  double scores, delta;  // how large they are
};

// A state as prepare_positions would make it: attention that fits the scores, some pairs dominated.
template <typename T>
struct Text {
  Size size;
  std::vector<std::int64_t> index, own_top, dominated_start, dominated_row;
  std::vector<T> word, words, dominated_mean, logit, a, b, inv_b, others, c2, reach, own_logit,
      own_a;
  PositionState<T> state{};

  Text(WeightFn fn, const Size& size_) : size(size_) {
    const std::int64_t P = size.positions, n = size.n, d = size.d;
    Random random(static_cast<unsigned>(n * 131 + d * 7));
    word = normals<T>(P * d, random);
    words = normals<T>(n * d, random);
    for (auto* each : {&logit, &a, &b, &inv_b, &others, &c2, &reach, &own_logit, &own_a})
      each->resize(P * n);
    dominated_start.push_back(0);
    for (std::int64_t p = 0; p < P; ++p) {
      index.push_back((p * 7 + n - 1) % n);
      for (std::int64_t j = 0; j < n; ++j) set_pair(fn, p, j, random);
      set_own_row(fn, p, random);
      dominated_start.push_back(static_cast<std::int64_t>(dominated_row.size()));
    }
    for (auto* each : {&index, &own_top, &dominated_start, &dominated_row}) each->shrink_to_fit();
    const std::int64_t pairs = static_cast<std::int64_t>(dominated_row.size());
    dominated_mean = normals<T>(pairs * d, random);
    const bool exponential = fn == WeightFn::kSoftmax;
    state = {fn,
             T(kCurve),
             P,
             size.starts,
             n,
             d,
             index.data(),
             word.data(),
             logit.data(),
             a.data(),
             b.data(),
             inv_b.data(),
             exponential ? nullptr : others.data(),
             c2.data(),
             reach.data(),
             own_logit.data(),
             own_a.data(),
             own_top.data(),
             dominated_start.data(),
             dominated_row.data(),
             dominated_mean.data()};
  }

 private:
  void set_pair(WeightFn fn, std::int64_t p, std::int64_t j, Random& random) {
    const std::int64_t at = p * size.n + j;
    const double score = j % 5 == 1 ? 30 : size.scores * random.normal();  // some are saturated
    const double share = 1 / (1 + std::exp(-score)), rest = 1 / (1 + std::exp(score));
    const bool dominated = normalized(fn) && share > 0.5;
    logit[at] = T(score), a[at] = T(share), b[at] = T(normalized(fn) ? rest : 1);
    inv_b[at] = dominated || !normalized(fn) ? T(1) : T(1 / rest);
    others[at] = j % 4 == 0 ? T(0) : T(random.uniform());
    c2[at] = T(random.uniform()), reach[at] = T(1 + random.uniform());
    if (j == index[p]) {  // neutral
      logit[at] = T(-1e30), a[at] = c2[at] = reach[at] = 0, b[at] = inv_b[at] = others[at] = 1;
    } else if (dominated) {
      dominated_row.push_back(j);
    }
  }
  void set_own_row(WeightFn fn, std::int64_t p, Random& random) {
    T *const score = own_logit.data() + p * size.n, *const share = own_a.data() + p * size.n;
    for (std::int64_t l = 0; l < size.n; ++l) score[l] = T(size.scores * random.normal());
    own_top.push_back(std::max_element(score, score + size.n) - score);
    const T largest = score[own_top.back()];
    double sum = 0;
    for (std::int64_t l = 0; l < size.n; ++l) {
      if (fn == WeightFn::kSoftmax) score[l] -= largest;
      sum += weight(fn, score[l]);
    }
    const double by = normalized(fn) && sum > 0 ? 1 / sum : 1;
    for (std::int64_t l = 0; l < size.n; ++l) share[l] = T(by * weight(fn, score[l]));
  }
};

// The work space of one evaluation.
template <typename T>
struct Rows {
  std::vector<T> delta, products, own_weight, own_change, own_slope, dominated_coef, scalars, value,
      size, own_delta, gradient;

  explicit Rows(const Text<T>& text) {
    const auto [P, starts, n, d, scores, delta_size] = text.size;
    const std::int64_t M = P * starts;
    Random random(static_cast<unsigned>(M + n * 17 + d));
    delta = normals<T>(M * d, random, delta_size);
    products = normals<T>(M * (3 * n + d), random, delta_size);
    own_weight = own_change = poisoned<T>(M * n);
    own_slope = poisoned<T>(text.state.weight_fn == WeightFn::kSoftmax ? 0 : M * n);
    dominated_coef = poisoned<T>(starts * static_cast<std::int64_t>(text.dominated_row.size()));
    scalars = poisoned<T>(M * kScalars);
    value = size = poisoned<T>(M);
    gradient = normals<T>(M * d, random);
  }
  // With room for Delta X^T, which norms leave alone.
  Rows on_cuda(const Text<T>& text, bool with_words) const {
    const std::int64_t n = text.size.n, d = text.size.d, from = 3 * n + d, to = 4 * n + d;
    const std::vector<T> by_words = product(delta, text.words, d, true);
    Rows out = *this;
    out.products = poisoned<T>(static_cast<std::int64_t>(value.size()) * to);
    for (std::size_t m = 0; m < value.size(); ++m) {
      std::copy_n(&products[m * from], from, &out.products[m * to + n]);
      if (with_words) std::copy_n(&by_words[m * n], n, &out.products[m * to]);
    }
    return out;
  }
  AscentRows<T> view(bool with_size) {
    T* const slope = own_slope.empty() ? own_weight.data() : own_slope.data();
    return {delta.data(),      products.data(), own_weight.data(),
            own_change.data(), slope,           dominated_coef.data(),
            scalars.data(),    value.data(),    with_size ? size.data() : nullptr};
  }
};

template <typename T>
struct Step {
  std::vector<T> delta, gradient, value, best_delta, best_gradient, best_value, beta, risen;

  // From a point and its value; what was the best before is random.
  Step(std::vector<T> point, std::vector<T> slope, std::vector<T> at)
      : delta(std::move(point)), gradient(std::move(slope)), value(std::move(at)) {
    const std::int64_t M = static_cast<std::int64_t>(value.size());
    Random random(static_cast<unsigned>(M * 31));
    for (auto* each : {&best_delta, &best_gradient})
      *each = normals<T>(static_cast<std::int64_t>(delta.size()), random);
    best_value = normals<T>(M, random);
    for (std::int64_t m = 0; m < M; ++m) {
      best_value[m] += value[m];
      if (m % 4 == 3) best_value[m] = -std::numeric_limits<T>::infinity();
      beta.push_back(T(m % 3 == 0 ? 1 : m % 3 == 1 ? 0.75 : 0.125));
      risen.push_back(T(m % 5));
    }
  }
  StepRows<T> view() {
    const std::int64_t M = static_cast<std::int64_t>(value.size()),
                       d = static_cast<std::int64_t>(delta.size()) / M;
    return {M,
            d,
            T(std::sqrt(static_cast<double>(d))),
            delta.data(),
            gradient.data(),
            value.data(),
            best_delta.data(),
            best_gradient.data(),
            best_value.data(),
            beta.data(),
            risen.data()};
  }
};

template <typename T>
void compare_steps(const Step<T>& got, const Step<T>& want, double allowed) {
  compare("delta", got.delta, want.delta, allowed);
  compare("best_delta", got.best_delta, want.best_delta, 0);
  compare("best_gradient", got.best_gradient, want.best_gradient, allowed);
  compare("best_value", got.best_value, want.best_value, allowed);
  compare("beta", got.beta, want.beta, 0);
  compare("risen", got.risen, want.risen, 0);
  for (const auto* each : {&got.delta, &got.best_gradient, &got.best_value}) remember(*each);
}

template <typename T>
double rounding(const Size& size) {
  const double length = std::sqrt(static_cast<double>(size.d));
  return 64 * kEps<T> * (1 + size.delta + size.delta * size.delta * length);
}

template <typename T>
void norms(const Text<T>& text) {
  const Kernels<T>& cpu = table<T>();
  Rows<T> want(text), got = want.on_cuda(text, false);
  cpu.delta_norms(text.state, want.view(true), 1);
  launched(cuda::ascent_forward(text.state, got.view(true), nullptr));
  got.own_delta = want.own_delta = product(want.own_change, text.words, text.size.n, false);
  cpu.own_row(text.state, want.view(true), want.own_delta.data(), 1);
  launched(cuda::own_row(text.state, got.view(true), got.own_delta.data(), nullptr));
  const double allowed = rounding<T>(text.size);
  compare("own_weight", got.own_weight, want.own_weight, allowed);
  compare("own_change", got.own_change, want.own_change, allowed);
  compare("value", got.value, want.value, allowed);
  compare("size", got.size, want.size, allowed);
  for (const auto* each : {&got.own_weight, &got.own_change, &got.value, &got.size})
    remember(*each);
}

template <typename T>
void whole_step(const Text<T>& text) {
  const auto [P, starts, n, d, scores, delta_size] = text.size;
  const std::int64_t M = P * starts;
  const Kernels<T>& cpu = table<T>();
  Rows<T> want(text), got = want.on_cuda(text, true);

  cpu.ascent_forward(text.state, want.view(false), 1);
  want.own_delta = product(want.own_change, text.words, n, false);
  cpu.own_row(text.state, want.view(false), want.own_delta.data(), 1);
  const auto own_products = product(want.own_delta, text.words, d, true);
  cpu.ascent_backward(text.state, want.view(false), own_products.data(), 1);
  cpu.ascent_gradient(text.state, want.view(false), want.own_delta.data(), want.gradient.data(), 1);

  launched(cuda::ascent_forward(text.state, got.view(false), nullptr));
  const auto by_gram = product(got.own_change, product(text.words, text.words, d, true), n, false);
  launched(cuda::ascent_backward(text.state, got.view(false), by_gram.data(), nullptr));
  std::vector<T> by_words, coefficients, others;  // of the words, and of the other rows
  for (std::int64_t m = 0; m < M; ++m) {
    const T* row = &got.products[m * (4 * n + d)];
    by_words.insert(by_words.end(), row, row + n);
    coefficients.insert(coefficients.end(), row + n, row + 4 * n);
    const T* other = &want.products[m * (3 * n + d)];
    others.insert(others.end(), other, other + 3 * n);
  }
  const auto of_words = product(by_words, text.words, n, false);
  for (std::size_t k = 0; k < of_words.size(); ++k) got.gradient[k] += of_words[k];
  const std::vector<T> lacking = got.gradient;
  launched(cuda::ascent_gradient(text.state, got.view(false), got.gradient.data(), nullptr));

  const double allowed = static_cast<double>(n) * rounding<T>(text.size);
  compare("coefficients", coefficients, others, allowed);
  compare("value", got.value, want.value, allowed);
  compare("gradient", got.gradient, want.gradient, allowed);
  for (const auto* each : {&got.products, &got.value, &got.gradient}) remember(*each);

  // The step forms the gradient that is whole in `got.gradient`.
  Step<T> whole(got.delta, got.gradient, got.value), formed = whole;
  formed.gradient = lacking;
  cpu.take_step(whole.view(), 1);
  AscentRows<T> rows = got.view(false);
  rows.delta = formed.delta.data();
  std::vector<T> history = poisoned<T>(M * kPatience);
  std::vector<std::int64_t> taken(M);
  std::vector<std::uint8_t> ended(M);
  const Stalls<T> stalls{T(1), history.data(), taken.data(), ended.data()};
  launched(cuda::ascent_step(text.state, rows, formed.view(), stalls, nullptr));
  compare_steps(formed, whole, allowed);
  for (std::int64_t m = 0; m < M; ++m) {
    near("history", history[m * kPatience], formed.best_value[m], 0);
    check(taken[m] == 1 && ended[m] == 0, "stalls");
  }
  // A row that has ended is left alone.
  std::fill(ended.begin(), ended.end(), 1);
  const Step<T> before = formed;
  launched(cuda::ascent_step(text.state, rows, formed.view(), stalls, nullptr));
  compare_steps(formed, before, 0);
}

template <typename T>
void evaluate(WeightFn fn, const Size& size) {
  begin<T>("ascent", {{"weight_fn", static_cast<int>(fn)},
                      {"positions", size.positions},
                      {"starts", size.starts},
                      {"n", size.n},
                      {"d", size.d}});
  const Text<T> text(fn, size);
  norms(text);
  whole_step(text);
}

template <typename T>
void step(std::int64_t rows, std::int64_t d) {
  begin<T>("take_step", {{"rows", rows}, {"d", d}});
  Random random(static_cast<unsigned>(rows * 31 + d));
  Step<T> want(normals<T>(rows * d, random), normals<T>(rows * d, random),
               normals<T>(rows, random));
  for (std::int64_t m = 1; m < rows; m += 4)  // without slope
    for (std::int64_t k = m * d; k < (m + 1) * d; ++k) want.gradient[k] = want.best_gradient[k] = 0;
  for (std::int64_t m = 2; m < rows; m += 4) want.value[m] = kPoison<T>;
  Step<T> got = want;
  table<T>().take_step(want.view(), 1);
  launched(cuda::take_step(got.view(), nullptr));
  compare_steps(got, want, 64 * kEps<T>);
  StepRows<T> askew = got.view();
  ++askew.delta;
  check(cuda::take_step(askew, nullptr) != 0, "rows that are not aligned are taken");
}

template <typename T>
void every() {
  for (const WeightFn fn : kFunctions) {
    evaluate<T>(fn, {1, 1, 1, 4, 1, 1});
    evaluate<T>(fn, {2, 3, 5, 8, 12, 1});
    evaluate<T>(fn, {2, 1, 32, 12, 1, 0.01});
    evaluate<T>(fn, {3, 2, 33, 260, 1, 1});
    evaluate<T>(fn, {2, 2, 68, 12, 12, 30});
    evaluate<T>(fn, {1, 2, 129, 64, 1, 1});
  }
  for (const std::int64_t d : {4, 64, 516, 1032}) step<T>(9, d);
}

}  // namespace

void ascent() {
  every<float>();
  every<double>();
}

}  // namespace driver
