// The kernel of a linear functional of the change of phi.
#pragma once

#include "driver_common.h"

namespace {

// What the kernel writes at M points, in one vector; `Text` has a PositionState.
template <typename T, class Text>
std::vector<T> functional(const Text& text, double size, int threads) {
  Random random(static_cast<unsigned>(text.n * 29 + text.d + text.starts));
  const std::int64_t P = text.positions, M = P * text.starts, n = text.n, d = text.d;
  const bool exponential = text.state.weight_fn == WeightFn::kSoftmax;
  std::vector<T> by_shift = random.normals<T>(P * n), by_word = random.normals<T>(P * n),
                 delta = random.normals<T>(M * d, size),
                 products = random.normals<T>(M * (3 * n + d), size), own_weight(M * n),
                 own_change(M * n), own_slope(exponential ? 0 : M * n), value(M);
  const FunctionalRows<T> rows{by_shift.data(),
                               by_word.data(),
                               delta.data(),
                               products.data(),
                               own_weight.data(),
                               own_change.data(),
                               exponential ? nullptr : own_slope.data(),
                               value.data()};
  table<T>().functional_ascent(text.state, rows, threads);
  require_finite(value, "a functional is not finite");
  require_finite(products, "a coefficient of a functional is not finite");
  products.insert(products.end(), value.begin(), value.end());
  return products;
}

}  // namespace
