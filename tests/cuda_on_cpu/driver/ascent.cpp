// The kernels of the ascent, each against the CPU kernel of the same name, from the same numbers.
#include "common.h"

namespace driver {
namespace {

// A heap block that starts `shift` numbers beyond a boundary of 16 bytes.
template <typename T>
class Array {
 public:
  explicit Array(std::int64_t count = 0, std::int64_t shift = 0)
      : block_(poisoned<T>(count + shift)), shift_(shift) {}
  Array& normals(Random& random, double size = 1) {
    for (T& x : *this) x = static_cast<T>(size * random.normal());
    return *this;
  }
  T* data() { return block_.data() + shift_; }
  const T* data() const { return block_.data() + shift_; }
  T* begin() { return data(); }
  const T* begin() const { return data(); }
  T* end() { return block_.data() + block_.size(); }
  const T* end() const { return block_.data() + block_.size(); }
  std::size_t size() const { return block_.size() - static_cast<std::size_t>(shift_); }
  T& operator[](std::int64_t k) { return data()[k]; }
  const T& operator[](std::int64_t k) const { return data()[k]; }

 private:
  std::vector<T> block_;
  std::int64_t shift_;
};

struct Size {
  std::int64_t positions, starts, n, d, shift;
  double scores, delta;  // how large they are
};

// A state as prepare_positions would make it: attention that fits the scores, some pairs dominated.
template <typename T>
struct Text {
  Size size;
  std::vector<std::int64_t> index, own_top, dominated_start, dominated_row;
  Array<T> word, dominated_mean;
  std::vector<T> logit, a, b, inv_b, others, c2, reach, own_logit, own_a;
  PositionState<T> state{};

  Text(WeightFn fn, const Size& size_) : size(size_) {
    const std::int64_t P = size.positions, n = size.n, d = size.d;
    Random random(static_cast<unsigned>(n * 131 + d * 7));
    word = Array<T>(P * d, size.shift).normals(random);
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
    dominated_mean = Array<T>(pairs * d, size.shift).normals(random);
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

// The work space of one evaluation, and what goes through the matrix products between kernels.
template <typename T>
struct Rows {
  Array<T> delta, products, own_weight, own_change, own_slope, dominated_coef, scalars, value, size;
  Array<T> own_delta, own_products, gradient;

  explicit Rows(const Text<T>& text) {
    const auto [P, starts, n, d, shift, scores, delta_size] = text.size;
    const std::int64_t M = P * starts;
    Random random(static_cast<unsigned>(M + n * 17 + d));
    delta = Array<T>(M * d, shift).normals(random, delta_size);
    products = Array<T>(M * (3 * n + d), shift).normals(random, delta_size);
    own_weight = own_change = Array<T>(M * n);
    own_slope = Array<T>(text.state.weight_fn == WeightFn::kSoftmax ? 0 : M * n);
    dominated_coef = Array<T>(starts * static_cast<std::int64_t>(text.dominated_row.size()));
    scalars = Array<T>(M * kScalars);
    value = size = Array<T>(M);
    own_delta = Array<T>(M * d, shift).normals(random, delta_size);
    own_products = Array<T>(M * n).normals(random);
    gradient = Array<T>(M * d, shift).normals(random);
  }
  AscentRows<T> view(bool with_size) {
    T* const slope = own_slope.size() > 0 ? own_slope.data() : own_weight.data();
    return {delta.data(),      products.data(), own_weight.data(),
            own_change.data(), slope,           dominated_coef.data(),
            scalars.data(),    value.data(),    with_size ? size.data() : nullptr};
  }
};

template <typename T>
void compare_rows(const Rows<T>& got, const Rows<T>& want, double allowed) {
  compare("products", got.products, want.products, allowed);
  compare("own_weight", got.own_weight, want.own_weight, allowed);
  compare("own_change", got.own_change, want.own_change, allowed);
  compare("own_slope", got.own_slope, want.own_slope, allowed);
  compare("dominated_coef", got.dominated_coef, want.dominated_coef, allowed);
  compare("scalars", got.scalars, want.scalars, allowed);
  compare("value", got.value, want.value, allowed);
  compare("size", got.size, want.size, allowed);
  compare("own_delta", got.own_delta, want.own_delta, allowed);
  compare("gradient", got.gradient, want.gradient, allowed);
  for (const auto* each :
       {&got.products, &got.own_weight, &got.own_change, &got.own_slope, &got.dominated_coef,
        &got.scalars, &got.value, &got.size, &got.own_delta, &got.gradient})
    remember(*each);
}

template <typename T>
void evaluate(WeightFn fn, const Size& size) {
  begin<T>("ascent", {{"weight_fn", static_cast<int>(fn)},
                      {"positions", size.positions},
                      {"starts", size.starts},
                      {"n", size.n},
                      {"d", size.d},
                      {"shift", size.shift}});
  const Text<T> text(fn, size);
  const PositionState<T>& state = text.state;
  const Kernels<T>& cpu = table<T>();
  const double length = std::sqrt(static_cast<double>(size.d));
  const double allowed = 64 * kEps<T> * (1 + size.delta + size.delta * size.delta * length);
  for (const bool gradient : {false, true}) {
    Rows<T> want(text), got = want;
    // Runs both, and lets the CUDA kernel that is next begin with what the CPU has.
    const auto both = [&](const auto& by_cpu, const auto& by_cuda) {
      by_cpu(want, want.view(!gradient));
      launched(by_cuda(got, got.view(!gradient)));
      compare_rows(got, want, allowed);
      got = want;
    };
    both([&](auto&,
             const auto& r) { (gradient ? cpu.ascent_forward : cpu.delta_norms)(state, r, 1); },
         [&](auto&, const auto& r) {
           return gradient ? cuda::ascent_forward(state, r, nullptr)
                           : cuda::delta_norms(state, r, nullptr);
         });
    both([&](auto& rows, const auto& r) { cpu.own_row(state, r, rows.own_delta.data(), 1); },
         [&](auto& rows, const auto& r) {
           return cuda::own_row(state, r, rows.own_delta.data(), nullptr);
         });
    if (!gradient) continue;
    both([&](auto& rows,
             const auto& r) { cpu.ascent_backward(state, r, rows.own_products.data(), 1); },
         [&](auto& rows, const auto& r) {
           return cuda::ascent_backward(state, r, std::as_const(rows.own_products).data(), nullptr);
         });
    both(
        [&](auto& rows, const auto& r) {
          cpu.ascent_gradient(state, r, rows.own_delta.data(), rows.gradient.data(), 1);
        },
        [&](auto& rows, const auto& r) {
          return cuda::ascent_gradient(state, r, std::as_const(rows.own_delta).data(),
                                       rows.gradient.data(), nullptr);
        });
  }
}

template <typename T>
void step(std::int64_t rows, std::int64_t d, std::int64_t shift) {
  begin<T>("take_step", {{"rows", rows}, {"d", d}, {"shift", shift}});
  struct Step {
    Array<T> delta, gradient, value, best_delta, best_gradient, best_value, beta, risen;
    StepRows<T> view(std::int64_t rows, std::int64_t d) {
      return {rows,
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
  } want;
  Random random(static_cast<unsigned>(rows * 31 + d));
  for (auto* each : {&want.delta, &want.gradient, &want.best_delta, &want.best_gradient})
    *each = Array<T>(rows * d, shift).normals(random);
  for (auto* each : {&want.value, &want.best_value, &want.beta, &want.risen})
    *each = Array<T>(rows).normals(random);
  for (std::int64_t row = 0; row < rows; ++row) {
    want.beta[row] = T(row % 3 == 0 ? 1 : row % 3 == 1 ? 0.75 : 0.125);
    want.risen[row] = T(row % 5);
    if (row % 4 == 1)  // without slope
      for (std::int64_t k = row * d; k < (row + 1) * d; ++k)
        want.gradient[k] = want.best_gradient[k] = 0;
    if (row % 4 == 2) want.value[row] = kPoison<T>;
    if (row % 4 == 3) want.best_value[row] = -std::numeric_limits<T>::infinity();
  }
  Step got = want;
  table<T>().take_step(want.view(rows, d), 1);
  launched(cuda::take_step(got.view(rows, d), nullptr));
  compare("delta", got.delta, want.delta, 64 * kEps<T>);
  compare("best_delta", got.best_delta, want.best_delta, 0);
  compare("best_gradient", got.best_gradient, want.best_gradient, 0);
  compare("best_value", got.best_value, want.best_value, 0);
  compare("beta", got.beta, want.beta, 0);
  compare("risen", got.risen, want.risen, 0);
  remember(got.delta);
}

// Rows of up to 64 steps have a warp, longer ones four; 16 bytes are one step where n, d and the
// addresses allow it.
template <typename T>
void every() {
  for (const WeightFn fn : kFunctions) {
    evaluate<T>(fn, {1, 1, 1, 1, 0, 1, 1});
    evaluate<T>(fn, {2, 3, 5, 8, 0, 12, 1});
    evaluate<T>(fn, {2, 1, 32, 9, 1, 1, 0.01});
    evaluate<T>(fn, {3, 2, 33, 260, 0, 1, 1});
    evaluate<T>(fn, {2, 2, 68, 12, 0, 12, 30});
    evaluate<T>(fn, {1, 2, 129, 64, 1, 1, 1});
  }
  for (const std::int64_t shift : {0, 1})
    for (const std::int64_t d : {1, 8, 65, 264}) step<T>(9, d, shift);
}

}  // namespace

void ascent() {
  every<float>();
  every<double>();
}

}  // namespace driver
