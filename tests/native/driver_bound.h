// The kernels of the bound from above.
#pragma once

#include <algorithm>

#include "driver_common.h"

namespace {

// What the kernel writes for pairs of every kind, in one vector.
template <typename T>
std::vector<T> bound_rows(bool relu, bool proof, std::int64_t positions, std::int64_t n,
                          std::int64_t nodes, double size, int threads) {
  Random random(static_cast<unsigned>(n * 43 + nodes + positions));
  const std::int64_t pairs = positions * n;
  const auto positive = [&](std::int64_t count, double by) {
    std::vector<T> values = random.normals<T>(count, by);
    for (T& value : values) value = std::fabs(value) + T(1e-3);
    return values;
  };
  std::vector<T> node = random.normals<T>(nodes, 3 * size), node_alpha(nodes);
  const auto attention = [&](double g) {
    return T(relu ? (g > 0 ? g / (1 + g) : 0) : 1 / (1 + std::exp(-g)));
  };
  const std::vector<T> logit = random.normals<T>(pairs, 3), scale = positive(pairs, 1),
                       inv_b = positive(pairs, 1), c2 = positive(pairs, 1),
                       lost = positive(pairs, 1), reach = positive(pairs, size),
                       reach_p = positive(pairs, 1), weights = positive(n, 1),
                       reach_u = positive(positions, 1), others = positive(positions, 1),
                       own = random.normals<T>(positions, 1), kappa = positive(positions, 1),
                       beta = random.normals<T>(pairs, size),
                       gamma = random.normals<T>(pairs, size), eta = random.normals<T>(pairs, size),
                       zeta = random.normals<T>(pairs, size);
  std::vector<T> a(pairs), low(pairs), high(pairs), alpha_low(pairs), alpha_high(pairs),
      nu = positive(pairs, size);
  std::vector<std::int64_t> index(positions);
  std::vector<std::uint8_t> kind(pairs);
  for (std::int64_t p = 0; p < positions; ++p) {
    index[p] = (p * 7) % n;
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t k = p * n + j;
      kind[k] = static_cast<std::uint8_t>(j == index[p] ? 3 : k % 4);
      const double at = static_cast<double>(logit[k]), unit = relu ? scale[k] : 1;
      a[k] = attention(at / unit);
      low[k] = T((at - reach[k]) / unit), high[k] = T((at + reach[k]) / unit);
      alpha_low[k] = attention(low[k]), alpha_high[k] = attention(high[k]);
      if (k % 5 == 0) nu[k] = 0;
    }
  }
  node.front() = *std::min_element(low.begin(), low.end());
  node.back() = *std::max_element(high.begin(), high.end());
  std::sort(node.begin(), node.end());
  for (std::int64_t k = 0; k < nodes; ++k) node_alpha[k] = attention(static_cast<double>(node[k]));
  const std::vector<T> ones(pairs, T(1));
  std::vector<T> value(pairs), t(pairs), u(pairs), along(pairs);
  BoundRows<T> in{};
  in.relu = relu, in.proof = proof, in.positions = positions, in.n = n, in.nodes = nodes;
  in.theta = T(0.05);
  in.node = node.data(), in.node_alpha = node_alpha.data();
  in.index = index.data(), in.kind = kind.data();
  in.logit = logit.data(), in.scale = relu ? scale.data() : ones.data(), in.a = a.data();
  in.inv_b = inv_b.data(), in.c2 = c2.data(), in.lost = lost.data();
  in.low = low.data(), in.high = high.data();
  in.alpha_low = alpha_low.data(), in.alpha_high = alpha_high.data();
  in.reach = reach.data(), in.reach_p = reach_p.data(), in.weights = weights.data();
  in.radius = ones.data(), in.reach_u = reach_u.data(), in.others = others.data(),
  in.own = own.data();
  in.kappa = kappa.data();
  in.beta = beta.data(), in.gamma = gamma.data(), in.nu = nu.data(), in.eta = eta.data();
  in.zeta = zeta.data();
  in.value = value.data(), in.t = t.data(), in.u = u.data(), in.p = along.data();
  table<T>().bound_rows(in, threads);
  for (const auto* found : {&value, &t, &u, &along})
    require_finite(*found, "a row of the bound is not finite");
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t k = p * n + j;
      if (proof) {
        require(t[k] >= 0 && u[k] == 0 && along[k] == 0, "a size of the bound's terms is negative");
      } else {
        require(std::fabs(u[k]) <= reach_u[p] * T(1.0001), "u is out of its reach");
        require(std::fabs(along[k]) <= std::fmax(lost[k], reach_p[k]) * T(1.0001),
                "p is out of its reach");
      }
    }
  for (const auto* found : {&t, &u, &along})
    value.insert(value.end(), found->begin(), found->end());
  return value;
}

// What the kernel writes, in one vector; `size` is that of the form's linear part.
template <typename T>
std::vector<T> bound_ball(std::int64_t positions, std::int64_t N, double size, int threads) {
  Random random(static_cast<unsigned>(N * 47 + positions));
  const std::int64_t n = positions;
  std::vector<std::int64_t> index(positions);
  for (std::int64_t p = 0; p < positions; ++p) index[p] = (p * 7) % n;
  std::vector<T> eigenvalues = random.normals<T>(N), kappa = random.normals<T>(positions),
                 nu = random.normals<T>(positions);
  for (auto* values : {&eigenvalues, &kappa, &nu})
    for (T& value : *values) value = std::fabs(value) + T(1e-3);
  std::sort(eigenvalues.begin(), eigenvalues.end());
  const std::vector<T> words = random.normals<T>(n * N), scores = random.normals<T>(n * N, 0.1),
                       h = random.normals<T>(positions * N, size),
                       b = random.normals<T>(positions * N, size), smooth(positions, T(1e-2)),
                       radius(positions, T(1)), weights(n, T(0.01));
  std::vector<T> lam(positions, T(1)), value(positions), x(positions * N), by_z(positions * N),
      zz(positions), by_kappa(positions);
  BoundBall<T> in{};
  in.positions = positions, in.N = N;
  in.index = index.data(), in.eigenvalues = eigenvalues.data();
  in.words = words.data(), in.scores = scores.data(), in.h = h.data(), in.b = b.data();
  in.kappa = kappa.data(), in.nu = nu.data(), in.weights = weights.data();
  in.smooth = smooth.data(), in.radius = radius.data();
  in.lam = lam.data(), in.value = value.data(), in.x = x.data(), in.by_z = by_z.data();
  in.zz = zz.data(), in.by_kappa = by_kappa.data();
  table<T>().bound_ball(in, threads);
  require_finite(lam, "a multiplier of the ball is not finite");
  for (std::int64_t p = 0; p < positions; ++p) {
    require(lam[p] > 0, "a multiplier of the ball is not positive");
    double norm2 = 0;
    for (std::int64_t k = 0; k < N; ++k) norm2 += std::pow(static_cast<double>(x[p * N + k]), 2);
    require(norm2 < 1.1, "a maximiser is outside of the ball");
    require(value[p] >= -1e-3, "a form is nowhere as large as at 0");
  }
  for (const auto* found : {&x, &by_z, &zz, &by_kappa}) {
    require_finite(*found, "a slope of the ball's maximum is not finite");
    value.insert(value.end(), found->begin(), found->end());
  }
  return value;
}

// Three steps of the multipliers, in one vector.
template <typename T>
std::vector<T> bound_steps(std::int64_t positions, std::int64_t n, int threads) {
  Random random(static_cast<unsigned>(n * 53 + positions));
  const std::int64_t pairs = positions * n;
  std::vector<std::int64_t> index(positions);
  std::vector<std::uint8_t> kind(pairs);
  for (std::int64_t p = 0; p < positions; ++p) index[p] = (p * 7) % n;
  for (std::int64_t k = 0; k < pairs; ++k) kind[k] = static_cast<std::uint8_t>(k % 4);
  const std::vector<T> t_mean = random.normals<T>(pairs), p_mean = random.normals<T>(pairs),
                       tu = random.normals<T>(pairs), t = random.normals<T>(pairs),
                       u = random.normals<T>(pairs), p = random.normals<T>(pairs),
                       u_mean = random.normals<T>(positions), uu = random.normals<T>(positions),
                       least(positions, T(1e-3)), size(5 * positions, T(0.5));
  std::vector<T> at = random.normals<T>(5 * pairs), first(5 * pairs), second(5 * pairs);
  BoundStep<T> in{};
  in.positions = positions, in.n = n, in.rate = T(0.1);
  in.index = index.data(), in.kind = kind.data();
  in.t_mean = t_mean.data(), in.p_mean = p_mean.data(), in.tu = tu.data();
  in.u_mean = u_mean.data(), in.uu = uu.data(), in.least = least.data();
  in.t = t.data(), in.u = u.data(), in.p = p.data(), in.size = size.data();
  in.at = at.data(), in.first = first.data(), in.second = second.data();
  for (int step = 1; step <= 3; ++step) {
    in.unbias = static_cast<T>(1 / (1 - std::pow(0.8, step)));
    in.unbias2 = static_cast<T>(1 / (1 - std::pow(0.95, step)));
    table<T>().bound_step(in, threads);
  }
  require_finite(at, "a multiplier of the bound is not finite");
  return at;
}

}  // namespace
