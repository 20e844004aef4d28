// The kernel of heads of trained layers, products included.
#pragma once

#include "driver_common.h"

namespace {

// A random matrix (rows, columns) in panels; 0 beyond its last column.
template <typename T>
std::vector<T> panels(Random& random, std::int64_t rows, std::int64_t columns) {
  const std::int64_t count = (columns + kLanes<T> - 1) / kLanes<T>;
  std::vector<T> values = random.normals<T>(count * rows * kLanes<T>);
  for (std::int64_t c = columns; c < count * kLanes<T>; ++c)
    for (std::int64_t row = 0; row < rows; ++row)
      values[((c / kLanes<T>)*rows + row) * kLanes<T> + c % kLanes<T>] = T(0);
  return values;
}

// What the kernel writes at M points, in one vector; `Text` has a PositionState. `r` dimensions of
// Delta, 0: those of the head.
template <typename T, class Text>
std::vector<T> head(const Text& text, std::int64_t d_k, std::int64_t r, bool gradient, double size,
                    int threads) {
  Random random(static_cast<unsigned>(text.n * 37 + text.d + text.starts + d_k));
  const std::int64_t M = text.positions * text.starts, n = text.n, d = text.d, D = 2 * d_k + d,
                     given = r ? r : D;
  const auto queries = panels<T>(random, n, d_k), outputs = panels<T>(random, n, d),
             keys = panels<T>(random, n, d_k), values = panels<T>(random, n, d),
             queries_t = panels<T>(random, d_k, n), outputs_t = panels<T>(random, d, n),
             keys_t = panels<T>(random, d_k, n), values_t = panels<T>(random, d, n),
             moves = panels<T>(random, r, D), moves_t = panels<T>(random, D, r);
  const std::vector<T> delta = random.normals<T>(M * given, size);
  std::vector<T> value(M), rounding(gradient ? 0 : M), result(gradient ? M * given : 0),
      work(table<T>().head_work(M, n, d_k, d, given));
  HeadPoints<T> in{};
  in.d_k = d_k, in.r = given;
  in.queries = queries.data(), in.outputs = outputs.data();
  in.keys = keys.data(), in.values = values.data();
  in.queries_t = queries_t.data(), in.outputs_t = outputs_t.data();
  in.keys_t = keys_t.data(), in.values_t = values_t.data();
  in.moves = r ? moves.data() : nullptr, in.moves_t = r ? moves_t.data() : nullptr;
  in.delta = delta.data(), in.value = value.data(), in.gradient = result.data();
  in.size = gradient ? nullptr : rounding.data(), in.work = work.data();
  table<T>().head_points(text.state, in, threads);
  require_finite(value, "a value of a head is not finite");
  require_finite(result, "a gradient of a head is not finite");
  for (const T one : rounding) require(one >= 0, "a rounding size of a head is negative or NaN");
  result.insert(result.end(), value.begin(), value.end());
  result.insert(result.end(), rounding.begin(), rounding.end());
  return result;
}

}  // namespace
