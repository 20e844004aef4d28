// The driver's part for random weights.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "driver_common.h"

namespace {

template <typename T>
const RandomKernelsOf<T>& random_table() {
  if constexpr (std::is_same_v<T, float>)
    return random_kernels().f32;
  else
    return random_kernels().f64;
}

template <typename T>
std::vector<T> random_weights(std::int64_t rows, std::int64_t cols, int threads) {
  std::vector<T> out(rows * cols, T(NAN));
  RandomBlock<T> block{};
  block.seed = ~std::uint64_t{0} - 5;
  block.draw = ~std::uint32_t{0};
  block.plane = 1u << 31;
  block.first_row = (std::int64_t{1} << 32) - rows;
  block.rows = rows;
  block.cols = cols;
  block.scale = T(0.5);
  block.out = out.data();
  random_table<T>().block(block, threads);
  require_finite(out, "random weights are not finite");
  return out;
}

std::vector<double> attention_weights(std::int64_t count, int threads) {
  std::mt19937_64 engine(7);
  std::vector<std::uint64_t> bits(count);
  for (std::uint64_t& one : bits) one = engine();
  bits[0] = 0, bits.back() = ~std::uint64_t{0};
  std::vector<double> out(count, NAN);
  random_kernels().inverse_normals(count, bits.data(), out.data(), threads);
  require_finite(out, "a normal is not finite");
  return out;
}

template <typename T>
std::vector<T> random_products(std::int64_t rows, std::int64_t cols, std::int64_t texts,
                               int threads) {
  Random random(static_cast<unsigned>(rows + cols));
  std::vector<T> x = random.normals<T>(texts * cols), z(texts * rows, T(1));
  RandomProduct<T> product{};
  product.seed = 3;
  product.rows = rows;
  product.all_rows = rows;
  product.cols = cols;
  product.texts = texts;
  product.scale = T(0.5);
  product.x = x.data();
  product.z = z.data();
  random_table<T>().product(product, threads);
  require_finite(z, "products with random weights are not finite");
  return z;
}

}  // namespace
