// Runs row_lse.cuh on odd sizes and compares with the same in double precision.
#include "row_lse.cuh"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>

namespace {

// On the heap, in its exact size, so that AddressSanitizer sees what goes beyond.
std::unique_ptr<float[]> numbers(int count, std::uint32_t state) {
  std::unique_ptr<float[]> values(new float[count]);
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = static_cast<float>(state >> 8) / (1 << 23) - 1;
  }
  return values;
}

}  // namespace

int main() {
  const int rows = 37, columns = 77, width = row_lse::kWidth;
  const float scale = 3;
  const auto x = numbers(rows * width, 1), y = numbers(columns * width, 2);
  const auto bias = numbers(columns, 3), lse = numbers(rows, 4), total = numbers(1, 5);
  for (int i = 0; i < rows; ++i) lse[i] = std::numeric_limits<float>::quiet_NaN();
  total[0] = 0;
  const int error = row_lse::launch_row_lse(x.get(), y.get(), bias.get(), scale, rows, columns,
                                            lse.get(), total.get());
  if (error != 0) {
    std::printf("error %d: %s\n", error, cudaGetErrorString(static_cast<cudaError_t>(error)));
    return 2;
  }
  double worst = 0, all = 0;
  for (int i = 0; i < rows; ++i) {
    double sum = 0, square = 0;
    for (int k = 0; k < width; ++k) square += double{x[i * width + k]} * x[i * width + k];
    for (int j = 0; j < columns; ++j) {
      double product = 0;
      for (int k = 0; k < width; ++k) product += double{x[i * width + k]} * y[j * width + k];
      sum += std::exp(scale * product / std::sqrt(square) + bias[j]);
    }
    const double difference = std::fabs(lse[i] - std::log(sum));
    if (!(difference <= worst)) worst = difference;  // a NaN too
    all += std::log(sum);
  }
  const double off = std::fabs(total[0] - all);
  const bool right = worst < 2e-5 && off < 5e-4;
  std::printf("%s: off by %.2g in a row, by %.2g in all\n", right ? "right" : "wrong", worst, off);
  return right ? 0 : 1;
}
