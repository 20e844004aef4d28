// The largest f_j - Q_j of every row of the bound (wsfast/bound/certificate.py has the theorem, and
// this in PyTorch); part of kernels.inl.
namespace wsfast {
namespace {

enum PairKind : std::uint8_t { kPlain = 0, kDominated = 1, kAlone = 2, kNeutral = 3 };

// max s x - c x^2 over |x| <= reach, given 1/(2c) or, for c = 0, a huge number in its place.
template <typename T>
struct Parabola {
  T curve, half, reach;
  Parabola(T c, T most) : curve(c), half(c > T(0) ? T(0.5) / c : kHuge), reach(most) {}
  WSFAST_FN T place(T s) const {
    const T top = s * half;
    return top > reach ? reach : top < -reach ? -reach : top;
  }
  WSFAST_FN T value(T s) const {
    const T x = place(s);
    return x * (s - curve * x);
  }
  static constexpr T kHuge = sizeof(T) == 8 ? T(1e300) : T(1e30);
};

// A pair with its multipliers.
template <typename T>
struct BoundPair {
  T logit, scale, a, c2, inv_b, r2, low, high, alpha_low, alpha_high;
  T beta, gamma, mu, eta, zeta;
  Parabola<T> u, p;
};

template <typename T>
struct AtNode {
  T g, alpha, t, q, slope, value;  // the slope of u
};

template <typename T>
WSFAST_FN AtNode<T> at_node(const BoundPair<T>& pair, T node, T node_alpha) {
  const T g = smaller(larger(node, pair.low), pair.high);
  const T alpha = smaller(larger(node_alpha, pair.alpha_low), pair.alpha_high);
  const T t = pair.scale * g - pair.logit, q = alpha - pair.a, bend = 2 * q * alpha * pair.inv_b;
  const T slope = bend - pair.gamma - pair.eta * t;
  const T value = q * q * pair.c2 + alpha * alpha * pair.r2 - (pair.beta + pair.mu * t) * t +
                  pair.u.value(slope) + pair.p.value(-(bend + pair.zeta));
  return {g, alpha, t, q, slope, value};
}

// What a function may exceed the larger of its values at two neighbouring nodes by.
template <bool kRelu, typename T>
WSFAST_FN T between(const BoundPair<T>& pair, const AtNode<T>& at0, const AtNode<T>& at1) {
  const T h = (at1.g - at0.g) * (at1.g - at0.g) / 8, h_t = (at1.t - at0.t) * (at1.t - at0.t) / 8;
  T slope, rising, falling;
  if constexpr (kRelu) {
    const T from0 = T(1) / (T(1) + larger(at0.g, T(0)));
    slope = at1.g > T(0) ? from0 * from0 : T(0);
    rising = T(0);
    falling = 2 * slope * from0;
  } else {
    const T ends = larger(at0.alpha * (1 - at0.alpha), at1.alpha * (1 - at1.alpha));
    slope = (at0.alpha <= T(0.5) && at1.alpha >= T(0.5) ? T(0.25) : ends) * T(1 + 1e-12);
    rising = slope * larger(1 - 2 * at0.alpha, T(0));
    falling = slope * larger(2 * at1.alpha - 1, T(0));
  }
  const T down = falling * larger(at1.q * pair.c2 + at1.alpha * pair.r2, T(0)) +
                 rising * larger(-(at0.q * pair.c2 + at0.alpha * pair.r2), T(0));
  const T most = larger(absolute(at1.alpha + at1.q), absolute(at0.alpha + at0.q));
  const T e = h * 2 * pair.inv_b * (larger(rising, falling) * most + 2 * slope * slope);
  const T steep = (larger(absolute(at0.slope), absolute(at1.slope)) + e) * pair.u.half;
  return 2 * h * down + 2 * h_t * pair.mu + (smaller(steep, pair.u.reach) + pair.p.reach) * e;
}

constexpr Index kNodes = 64;  // worked on together

constexpr double kWide = 3.0;  // as WIDE of wsfast/bound/grid.py

// What a pair has at some nodes, and at the one after them.
template <typename T>
struct AtNodes {
  T g[kNodes + 1], alpha[kNodes + 1], t[kNodes + 1], q[kNodes + 1], slope[kNodes + 1],
      value[kNodes + 1];
  WSFAST_FN void put(Index m, const AtNode<T>& at) {
    g[m] = at.g, alpha[m] = at.alpha, t[m] = at.t, q[m] = at.q, slope[m] = at.slope;
    value[m] = at.value;
  }
  WSFAST_FN AtNode<T> at(Index m) const { return {g[m], alpha[m], t[m], q[m], slope[m], value[m]}; }
};

// How many of ascending nodes are at most x.
template <typename T>
Index nodes_up_to(const T* node, Index count, T x) {
  Index low = 0;
  while (count > 0) {
    const Index half = count / 2;
    const bool below = node[low + half] <= x;
    low += below ? half + 1 : 0;
    count = below ? count - half - 1 : half;
  }
  return low;
}

// Those of a narrow pair, `Nodes.of` of wsfast/bound/grid.py: between, and 0 of ReLU.
template <bool kRelu, typename T>
void own_nodes(const BoundPair<T>& pair, Index first, Index count, Index nodes, T* node,
               T* node_alpha) {
  const T low = pair.low, high = pair.high;
  const T middle = kRelu && low < T(0) && high > T(0) ? T(0) : T(0.5) * (low + high);
  const Index half = nodes / 2;  // an odd number of them
#pragma omp simd
  for (Index m = 0; m < count; ++m) {
    const T share = static_cast<T>(first + m - half) / static_cast<T>(half);
    const T g = middle + share * (share < T(0) ? middle - low : high - middle);
    const T weight = larger(g, T(0));
    node[m] = first + m == 0 ? low : first + m == nodes - 1 ? high : g;
    node_alpha[m] = kRelu ? weight / (1 + weight) : T(1) / (1 + exp_of(-g));
  }
}

template <bool kRelu, bool kProof, typename T>
void moving_row(const BoundRows<T>& in, const BoundPair<T>& pair, Index k) {
  T values[kNodes], own_node[kNodes + 1], own_alpha[kNodes + 1];
  T best = T(kMinusInfinity), where = T(0);
  const bool narrow = pair.high - pair.low < T(kWide);
  const Index below = narrow ? 1 : nodes_up_to(in.node, in.nodes, pair.low);
  const Index from = below > 0 ? below - 1 : 0;
  const Index last = narrow ? in.nodes - 1 : nodes_up_to(in.node, in.nodes - 1, pair.high);
  const Index end = kProof ? last : last + 1;  // of the intervals or nodes
  for (Index first = from; first < end; first += kNodes) {
    const Index count = smaller(kNodes, end - first);
    const T *node = in.node + first, *alpha = in.node_alpha + first;
    if (narrow) {
      own_nodes<kRelu>(pair, first, kProof ? count + 1 : count, in.nodes, own_node, own_alpha);
      node = own_node, alpha = own_alpha;
    }
    if constexpr (kProof) {
      AtNodes<T> nodes;
#pragma omp simd
      for (Index m = 0; m <= count; ++m) nodes.put(m, at_node(pair, node[m], alpha[m]));
#pragma omp simd
      for (Index m = 0; m < count; ++m) {
        const AtNode<T> at0 = nodes.at(m), at1 = nodes.at(m + 1);
        values[m] = larger(at0.value, at1.value) + between<kRelu>(pair, at0, at1);
      }
    } else {
#pragma omp simd
      for (Index m = 0; m < count; ++m) values[m] = at_node(pair, node[m], alpha[m]).value;
    }
    const T most = largest_of_row(values, count);
    if (most > best) {
      best = most;
      where = node[first_place_of(most, values, count)];
    }
  }
  in.value[k] = best;
  if constexpr (!kProof) {
    where = smaller(larger(where, pair.low), pair.high);
    const T weight = larger(where, T(0));
    const T alpha = kRelu ? weight / (1 + weight) : T(1) / (1 + exp_of(-where));
    const T t = pair.scale * where - pair.logit;
    const T bend = 2 * (alpha - pair.a) * alpha * pair.inv_b;
    in.t[k] = t;
    in.u[k] = pair.u.place(bend - pair.gamma - pair.eta * t);
    in.p[k] = pair.p.curve > T(0) ? pair.p.place(-(bend + pair.zeta)) : T(0);
  }
}

// The larger of two points (attention or not), of a row that t does not move.
template <typename T>
void still_row(const BoundRows<T>& in, Index k, const T* base, const T* bend, T gamma, T zeta,
               const Parabola<T>& u, const Parabola<T>& p) {
  T best = T(kMinusInfinity);
  for (int c = 0; c < 2; ++c) {
    const T slope = bend[c] - gamma, of_p = -(bend[c] + zeta);
    const T value = base[c] + u.value(slope) + p.value(of_p);
    if (!(value > best)) continue;
    best = value;
    in.u[k] = u.place(slope);
    in.p[k] = p.curve > T(0) ? p.place(of_p) : T(0);
  }
  in.value[k] = best;
  in.t[k] = T(0);
}

template <bool kRelu, bool kProof, typename T>
void bound_position(const BoundRows<T>& in, Index position) {
  const Index n = in.n, i = in.index[position];
  const T reach_u = in.reach_u[position], kappa = in.kappa[position], omega = kappa * in.theta,
          r2 = in.radius[position] * in.radius[position];
  for (Index j = 0; j < n; ++j) {
    const Index k = position * n + j;
    const auto kind = static_cast<PairKind>(in.kind[k]);
    const Parabola<T> u(in.nu[k], reach_u);
    const T reach = in.reach[k];
    T lost = in.lost[k];
    if (j == i) {
      const T base[2] = {in.others[position], in.own[position]}, bend[2] = {T(0), T(2)};
      lost = in.reach_p[k];
      still_row(in, k, base, bend, in.gamma[k], in.zeta[k], u, Parabola<T>(omega, lost));
    } else if (kind == kNeutral) {
      in.value[k] = in.t[k] = in.u[k] = in.p[k] = T(0);
      continue;
    } else if (kind == kAlone) {
      const T a = in.a[k], c2 = in.c2[k];
      const T base[2] = {a * a * c2, (1 - a) * (1 - a) * c2 + r2}, bend[2] = {T(0), 2 * (1 - a)};
      still_row(in, k, base, bend, in.gamma[k], in.zeta[k], u, Parabola<T>(T(0), lost));
    } else {
      const BoundPair<T> pair{in.logit[k],
                              in.scale[k],
                              in.a[k],
                              in.c2[k],
                              in.inv_b[k],
                              r2,
                              in.low[k],
                              in.high[k],
                              in.alpha_low[k],
                              in.alpha_high[k],
                              in.beta[k],
                              in.gamma[k],
                              kappa * in.weights[j],
                              in.eta[k],
                              in.zeta[k],
                              u,
                              Parabola<T>(kind == kPlain ? omega : T(0), lost)};
      moving_row<kRelu, kProof>(in, pair, k);
    }
    if constexpr (kProof) {  // the size of the terms
      const bool own = j == i;
      const T mu = own ? T(0) : kappa * in.weights[j], bend = own ? T(2) : 2 * in.inv_b[k];
      const T beta = own ? T(0) : absolute(in.beta[k]), eta = own ? T(0) : absolute(in.eta[k]);
      const T base = own ? in.others[position] + absolute(in.own[position]) : 2 * in.c2[k] + r2;
      in.t[k] = base + beta * reach + mu * reach * reach +
                (bend + absolute(in.gamma[k]) + eta * reach) * reach_u +
                in.nu[k] * reach_u * reach_u + (bend + absolute(in.zeta[k])) * lost +
                (own || kind == kPlain ? omega * lost * lost : T(0));
      in.u[k] = in.p[k] = T(0);
    }
  }
}

template <typename T>
void bound_rows(const BoundRows<T>& in, int threads) {
  for_rows(in.positions, 16 * in.n * in.nodes, threads, [&](Index position) {
    if (in.relu)
      in.proof ? bound_position<true, true>(in, position)
               : bound_position<true, false>(in, position);
    else
      in.proof ? bound_position<false, true>(in, position)
               : bound_position<false, false>(in, position);
  });
}

// ---- the ball

// Sums over the eigenbasis of products of z, h, y and b with K's diagonal part, and what follows
// for K = diagonal - V N V^T, V = [z h y], by Woodbury's identity.
template <typename T>
struct BallAt {
  T A[3][3];  // (N^-1 - V^T diagonal^-1 V)^-1
  T c[3];     // A V^T diagonal^-1 b
  T with_z[3], with_y[3];
  T size;  // (|x|^2 + smooth tr K^-1) / r^2
  bool positive;
};

// kappa D_i, of which the inverse is used.
template <typename T>
T weight_of(const BoundBall<T>& in, Index p) {
  return larger(in.kappa[p] * in.weights[in.index[p]], T(1e-14));
}

template <typename T>
BallAt<T> ball_at(const BoundBall<T>& in, Index p, T lam) {
  const Index N = in.N, i = in.index[p];
  const T *z = in.words + i * N, *y = in.scores + i * N, *h = in.h + p * N, *b = in.b + p * N;
  const T *L = in.eigenvalues, kappa = in.kappa[p], smooth = in.smooth[p];
  T zz = 0, zh = 0, hh = 0, zy = 0, hy = 0, yy = 0, zb = 0, hb = 0, yb = 0, bb = 0, trace = 0;
  T zz2 = 0, zh2 = 0, hh2 = 0, zy2 = 0, hy2 = 0, yy2 = 0, zb2 = 0, hb2 = 0, yb2 = 0, negative = 0;
#pragma omp simd reduction(+ : zz, zh, hh, zy, hy, yy, zb, hb, yb, bb, trace, zz2, zh2, hh2, zy2, \
                               hy2, yy2, zb2, hb2, yb2, negative)
  for (Index k = 0; k < N; ++k) {
    const T left = lam - kappa * L[k], by = T(1) / (left == T(0) ? T(1e-30) : left);
    const T zk = z[k] * by, hk = h[k] * by, yk = y[k] * by, bk = b[k] * by;
    trace += by;
    negative += left < T(0) ? T(1) : T(0);
    zz += z[k] * zk, zh += z[k] * hk, hh += h[k] * hk, zy += z[k] * yk, hy += h[k] * yk;
    yy += y[k] * yk, zb += zk * b[k], hb += hk * b[k], yb += yk * b[k];
    zz2 += zk * zk, zh2 += zk * hk, hh2 += hk * hk, zy2 += zk * yk, hy2 += hk * yk;
    yy2 += yk * yk, zb2 += zk * bk, hb2 += hk * bk, yb2 += yk * bk, bb += bk * bk;
  }
  const T s00 = -zz, s01 = 2 - zh, s11 = -4 * in.nu[p] - hh, s02 = -zy, s12 = -hy,
          s22 = -1 / weight_of(in, p) - yy;
  const T c00 = s11 * s22 - s12 * s12, c01 = s02 * s12 - s01 * s22, c02 = s01 * s12 - s02 * s11,
          c11 = s00 * s22 - s02 * s02, c12 = s01 * s02 - s00 * s12, c22 = s00 * s11 - s01 * s01;
  const T determinant = s00 * c00 + s01 * c01 + s02 * c02, inv = 1 / determinant;
  BallAt<T> at{{{c00 * inv, c01 * inv, c02 * inv},
                {c01 * inv, c11 * inv, c12 * inv},
                {c02 * inv, c12 * inv, c22 * inv}}};
  const T along_b[3] = {zb, hb, yb}, along_z[3] = {zz, zh, zy}, along_y[3] = {zy, hy, yy};
  const T second[3][3] = {{zz2, zh2, zy2}, {zh2, hh2, hy2}, {zy2, hy2, yy2}};
  const T b2[3] = {zb2, hb2, yb2};
  for (int r = 0; r < 3; ++r)
    for (int q = 0; q < 3; ++q) {
      at.c[r] += at.A[r][q] * along_b[q];
      at.with_z[r] += at.A[r][q] * along_z[q];
      at.with_y[r] += at.A[r][q] * along_y[q];
      trace += at.A[r][q] * second[r][q];
    }
  T length = bb;
  for (int r = 0; r < 3; ++r) {
    length += 2 * at.c[r] * b2[r];
    for (int q = 0; q < 3; ++q) length += at.c[r] * at.c[q] * second[r][q];
  }
  at.size = (T(0.25) * length + smooth * trace) / (in.radius[p] * in.radius[p]);
  // Signs of the pivots, from the last corner up; N^-1 has two negative eigenvalues.
  const int below = (s22 < T(0)) + (c00 * s22 < T(0)) + (determinant * c00 < T(0));
  at.positive = below + static_cast<int>(negative) == 2;
  return at;
}

template <typename T>
void ball_of(const BoundBall<T>& in, Index p) {
  constexpr int kSeek = 40;
  const Index N = in.N, i = in.index[p];
  const T *z = in.words + i * N, *y = in.scores + i * N, *h = in.h + p * N, *b = in.b + p * N;
  const T *L = in.eigenvalues, kappa = in.kappa[p], smooth = in.smooth[p], radius = in.radius[p];
  // Below the third largest of its diagonal, K has a negative eigenvalue.
  T low = N > 2 ? larger(kappa * L[N - 3], T(0)) : T(0), at_low = 0, at_high = 0;
  const T z2 = dot(z, z, N), h2 = dot(h, h, N), y2 = dot(y, y, N);
  T high = kappa * L[N - 1] + in.nu[p] * z2 + root(z2 * h2) + weight_of(in, p) * y2 +
           root(dot(b, b, N)) / radius + 2 * smooth / (radius * radius) * static_cast<T>(N);
  const T start = in.lam[p];
  T lam = start > low && start < high ? start : T(0.5) * (low + high);
  BallAt<T> at = ball_at(in, p, lam);
  // 1 / |x| is almost linear in lambda; 0 where K is not positive definite.
  for (int seek = 0; seek < kSeek; ++seek) {
    const T found = at.positive && at.size > T(0) ? 1 / root(at.size) : T(0);
    if (found > T(0) && absolute(found - 1) < T(1e-2)) break;
    if (found >= T(1))
      high = lam, at_high = found;
    else
      low = lam, at_low = found;
    T next = T(0.5) * (low + high);
    if (at_low > T(0) && at_high > T(0))
      next = low + (1 - at_low) / (at_high - at_low) * (high - low);
    else if (at_high > T(0))  // towards the pole, as far as it must be
      next = larger(lam - 2 * (lam - low) * (1 - 1 / found), lam - T(0.05) * lam);
    else if (at_low > T(0))
      next = smaller(lam + T(0.05) * lam, T(0.5) * (low + high));
    if (seek % 4 == 3 || !(next > low && next < high)) next = T(0.5) * (low + high);
    if (seek == kSeek - 1) next = high;
    lam = next;
    at = ball_at(in, p, lam);
  }
  in.lam[p] = lam;
  T *x = in.x + p * N, *by_z = in.by_z + p * N;
  T bx = 0, zz = 0, moments = 0, yx = 0, yy = 0;
  const T *c = at.c, *e = at.with_z, *f = at.with_y;
#pragma omp simd reduction(+ : bx, zz, moments, yx, yy)
  for (Index k = 0; k < N; ++k) {
    const T left = lam - kappa * L[k], by = T(1) / (left == T(0) ? T(1e-30) : left);
    const T xk = T(0.5) * by * (b[k] + c[0] * z[k] + c[1] * h[k] + c[2] * y[k]);
    const T zk = by * (z[k] + e[0] * z[k] + e[1] * h[k] + e[2] * y[k]);
    const T yk = by * (y[k] + f[0] * z[k] + f[1] * h[k] + f[2] * y[k]);
    const T inner =
        at.A[0][0] * z[k] * z[k] + at.A[1][1] * h[k] * h[k] + at.A[2][2] * y[k] * y[k] +
        2 * (at.A[0][1] * z[k] * h[k] + at.A[0][2] * z[k] * y[k] + at.A[1][2] * h[k] * y[k]);
    x[k] = xk, by_z[k] = zk;
    bx += b[k] * xk, zz += z[k] * zk, yx += y[k] * xk, yy += y[k] * yk;
    moments += L[k] * (xk * xk + smooth * by * (1 + by * inner));
  }
  in.value[p] = at.positive ? lam * radius * radius + T(0.5) * bx : -T(kMinusInfinity);
  in.zz[p] = zz;
  in.by_kappa[p] = moments - in.weights[i] * (yx * yx + smooth * yy);
}

template <typename T>
void bound_ball(const BoundBall<T>& in, int threads) {
  for_rows(in.positions, 200 * in.N, threads, [&](Index p) { ball_of(in, p); });
}

// ---- a step of the multipliers

// As DECAY and SMALL of wsfast/bound/multipliers.py.
constexpr double kDecay = 0.8, kDecay2 = 0.95, kSmall = 1e-8;

// What a step takes a multiplier down by.
template <typename T>
WSFAST_FN T adam(const BoundStep<T>& in, T gradient, T size, T* first, T* second) {
  const T scaled = gradient * size;
  *first = T(kDecay) * *first + T(1 - kDecay) * scaled;
  *second = T(kDecay2) * *second + T(1 - kDecay2) * scaled * scaled;
  return in.rate * size * (*first * in.unbias) / (root(*second * in.unbias2) + T(kSmall));
}

template <typename T>
void step_of(const BoundStep<T>& in, Index p) {
  const Index n = in.n, all = in.positions * n, offset = p * n, i = in.index[p];
  const T u_mean = in.u_mean[p], uu = u_mean * u_mean + in.uu[p], least = in.least[p];
  T size[5];
  for (int m = 0; m < 5; ++m) size[m] = in.size[m * in.positions + p];
  const T *t_mean = in.t_mean + offset, *p_mean = in.p_mean + offset, *tu = in.tu + offset;
  const T *t = in.t + offset, *u = in.u + offset, *q = in.p + offset;
  T *at = in.at + offset, *first = in.first + offset, *second = in.second + offset;
#pragma omp simd
  for (Index j = 0; j < n; ++j) {
    at[j] -= adam(in, t_mean[j] - t[j], size[0], first + j, second + j);
    at[all + j] -= adam(in, u_mean - u[j], size[1], first + all + j, second + all + j);
    at[2 * all + j] -=
        adam(in, uu - u[j] * u[j], size[2], first + 2 * all + j, second + 2 * all + j);
    at[2 * all + j] = larger(at[2 * all + j], least);
    at[3 * all + j] -= adam(in, t_mean[j] * u_mean + tu[j] - t[j] * u[j], size[3],
                            first + 3 * all + j, second + 3 * all + j);
    at[4 * all + j] -=
        adam(in, p_mean[j] - q[j], size[4], first + 4 * all + j, second + 4 * all + j);
  }
  // What the theorem does not have (`admissible` of wsfast/bound/form.py).
  for (Index j = 0; j < n; ++j) {
    const bool own = j == i;
    const auto kind = static_cast<PairKind>(in.kind[offset + j]);
    if (own || kind == kAlone || kind == kNeutral) at[j] = at[3 * all + j] = T(0);
    if (!own && kind != kPlain) at[4 * all + j] = T(0);
    if (!own && kind == kNeutral) at[all + j] = at[2 * all + j] = T(0);
  }
}

template <typename T>
void bound_step(const BoundStep<T>& in, int threads) {
  for_rows(in.positions, 40 * in.n, threads, [&](Index p) { step_of(in, p); });
}

}  // namespace
}  // namespace wsfast
