// What the kernels are given, on the CPU and on CUDA devices: everything between two matrix
// products (docs/design.md, section 6).  Plain pointers, row-major.
//
// Shapes: P positions, s starts, M = P s rows (row m belongs to position m / s), n words, d
// dimensions, K dominated pairs: a pair (row j, position i) is dominated when row j puts more than
// half of its attention on word i.
#pragma once

#include <cstdint>

namespace wsfast {

enum class WeightFn : int {
  kSoftmax = 0,
  kRelu = 1,
  kReluUnnormalized = 2,
  kSquareplus = 3,
  kSquareplusUnnormalized = 4
};

// Scores to attention weights, in place, one row at a time; masked words get weight 0.
template <typename T>
struct AttentionRows {
  WeightFn weight_fn;
  T curve;  // of squareplus
  std::int64_t rows, n;
  T* scores;                 // (rows, n)
  const std::uint8_t* mask;  // (rows / rows_per_mask, n), or null: every word counts
  std::int64_t rows_per_mask;
  // Null, or statistics (rows): then the weights written are those of the row *without its
  // largest*, normalised by their own sum, and `others` is that sum (softmax: its logarithm, scores
  // not shifted).
  std::int64_t* top;
  T* top_score;
  T* others;
};

// Random attention features in float32, from queries to phi in one pass over the words, for texts
// and draws of W (CUDA only). Rows start at multiples of 16 bytes.
struct FeatureRows {
  WeightFn weight_fn;
  float curve;
  std::int64_t texts, draws, n, d;  // B, R
  float scale;                      // of the scores
  const float* words;               // (B, n, d)
  const float* queries;             // (B, R, n, d)
  const std::uint8_t* mask;         // (B, n), or null: every word counts; masked words get phi = 0
  float* phi;                       // (B, R, n, d)
};

// What a position knows of every row; fixed while Delta moves.  The entries of the position's own
// row (j = i) are neutral: they give alpha = q = 0.
template <typename T>
struct PositionState {
  WeightFn weight_fn;
  T curve;
  std::int64_t positions, starts, n, d;
  const std::int64_t* index;            // (P) which word
  const T* word;                        // (P, d) x_i, for softmax less the mean of the words
  const T* logit;                       // (P, n) see PairState
  const T* a;                           // (P, n)
  const T* b;                           // (P, n)
  const T* inv_b;                       // (P, n) 1 for dominated pairs
  const T* others;                      // (P, n), null for softmax
  const T* c2;                          // (P, n) |c_ji|^2
  const T* reach;                       // (P, n) |x_i| + |phi_j|
  const T* own_logit;                   // (P, n) scores of row i; softmax: less the row's maximum
                                        // (-1e30: words that the row does not see)
  const T* own_a;                       // (P, n) its attention
  const std::int64_t* own_top;          // (P) its largest word
  const std::int64_t* dominated_start;  // (P + 1) into the next two
  const std::int64_t* dominated_row;    // (K) j
  const T* dominated_mean;              // (K, d) mean of row j without word i
};

// Work space of one evaluation at M points Delta.
template <typename T>
struct AscentRows {
  const T* delta;  // (M, d)
  T* products;     // (M, 3n + d) Delta [Y; Phi; K; W + W^T]^T; the first 3n columns become
                   // coefficients. CUDA: (M, 4n + d), Delta X^T first; norms do not look at it
  T* own_weight;   // (M, n) new attention of row i
  T* own_change;   // (M, n) new less old
  T* own_slope;    // (M, n) d own_weight / d score, up to the mean; equals own_weight for softmax
  T* dominated_coef;  // (s, K)
  T* scalars;         // (M, kScalars)
  T* value;           // (M) sum of |delta_j|^2
  T* size;            // (M) the size of the terms that value is a sum of, for its rounding error
};
// Sum of by_shift / b, sum of alpha^2, own alpha, own delta.Delta (CUDA: |Delta|^2), own score
// coefficient.
constexpr int kScalars = 5;

// One evaluation of a linear functional of the change of phi, Theta (n, d), at M points Delta (CPU
// only).
template <typename T>
struct FunctionalRows {
  const T* by_shift;  // (P, n) theta_j.c_ji; any number in the position's own row
  const T* by_word;   // (P, n) theta_i.x_l
  const T* delta;     // (M, d)
  // (M, 3n + d) Delta [Y; Theta; K; W + W^T]^T; the first 3n columns become coefficients, the
  // others what the bilinear form adds to the gradient.
  T* products;
  T* own_weight;  // (M, n) as in AscentRows
  T* own_change;  // (M, n)
  T* own_slope;   // (M, n), null for softmax
  T* value;       // (M) sum of theta_j.delta_j
};

// A cache line of numbers: blocks of columns that are worked on together have so many.
template <typename T>
constexpr std::int64_t kLanes = 64 / static_cast<std::int64_t>(sizeof(T));

// One evaluation of a head of a trained layer at M points, its products included (CPU only;
// docs/design.md, section 7).  Matrices lie in panels of kLanes columns, the last one filled up
// with zeros: (panels, rows, kLanes).  `moves` makes of Delta (r) the changes of the key, of the
// value and of the query, D = 2 d_k + d numbers; without it, r = D and they are Delta.
template <typename T>
struct HeadPoints {
  std::int64_t d_k, r;
  const T *queries, *outputs, *keys, *values;          // panels of (n, .)
  const T *queries_t, *outputs_t, *keys_t, *values_t;  // panels of (., n)
  const T *moves, *moves_t;                            // panels of (r, D) and of (D, r), or null
  const T* delta;                                      // (M, r)
  T* value;                                            // (M) as in AscentRows
  T* size;                                             // (M), or null: the gradient is wanted
  T* gradient;                                         // (M, r)
  T* work;                                             // head_work numbers
};

// The rows of the bound from above (CPU only; wsfast/bound): pairs and multipliers as there, and
// the largest f_j - Q_j of each pair among the nodes, or with `proof` anywhere.
template <typename T>
struct BoundRows {
  std::int64_t relu, proof, positions, n, nodes;
  T theta;
  // (nodes), ascending, an odd number, from the lowest of `low` or below to the highest of `high`.
  const T *node, *node_alpha;
  const std::int64_t* index;                                         // (P)
  const std::uint8_t* kind;                                          // (P, n)
  const T *logit, *scale, *a, *inv_b, *c2, *lost, *reach, *reach_p;  // (P, n)
  const T *low, *high, *alpha_low, *alpha_high;                      // (P, n)
  const T* weights;                                                  // (n)
  const T *radius, *reach_u, *others, *own, *kappa;                  // (P)
  const T *beta, *gamma, *nu, *eta, *zeta;                           // (P, n)
  T *value, *t, *u, *p;  // (P, n) where it is attained; of a proof: t the size of its terms
};

// The least of lambda r^2 + b.K^-1 b / 4 - smooth log det K, K = lambda - M, for the form M of the
// bound (wsfast/bound/form.py), without its last term, and what its slopes need.
template <typename T>
struct BoundBall {
  std::int64_t positions, N;
  const std::int64_t* index;              // (P)
  const T* eigenvalues;                   // (N) L, ascending
  const T *words, *scores, *h, *b;        // (n, N), (n, N), (P, N), (P, N)
  const T* weights;                       // (n) D
  const T *kappa, *nu, *smooth, *radius;  // (P)
  T *lam, *value;                         // (P) in: where to start
  T *x, *by_z;                            // (P, N) K^-1 b / 2 and K^-1 z
  T *zz, *by_kappa;  // (P) z.K^-1 z, and L.diag(X) - D_i y.X y of X = xx + smooth K^-1
};

// A step of Adam of the multipliers of the bound (wsfast/bound/multipliers.py), in place.
template <typename T>
struct BoundStep {
  std::int64_t positions, n;
  T rate, unbias, unbias2;
  const std::int64_t* index;      // (P)
  const std::uint8_t* kind;       // (P, n)
  const T *t_mean, *p_mean, *tu;  // (P, n)
  const T *u_mean, *uu, *least;   // (P)
  const T *t, *u, *p;             // (P, n)
  const T* size;                  // (5, P)
  T *at, *first, *second;         // (5, P, n)
};

constexpr std::int64_t kTurnCandidates = 128;

// Turns of Delta by the queries of rows (wsfast/attention/turns.py), in place, under softmax.
template <typename T>
struct RowTurns {
  std::int64_t positions, n, d, count;
  std::int64_t candidates;  // of the second turn and further ones, at most kTurnCandidates
  T step;
  const T *logit, *a, *c2, *inv_b;  // (P, n); inv_b is 0 for dominated pairs
  const T *directions, *lengths;    // (n, d) and (n), the queries: of length 1, and their lengths
  const T *scores, *means;          // (n, n) directions with queries and with means
  const T* words;                   // (P, n) the words with directions
  const T* length;                  // (P) of Delta, above 0
  T *t, *mean;                      // (P, n) Delta with queries and with means
  T *u, *delta;                     // (P) and (P, d) Delta with its word, and Delta
};

// One accepted-or-refused step of the ascent for every row (docs/design.md, section 3).
template <typename T>
struct StepRows {
  std::int64_t rows, d;
  T radius;
  T* delta;           // (M, d) in: the point tried; out: the next to try
  const T* gradient;  // (M, d) at the point tried
  const T* value;     // (M)
  T* best_delta;      // (M, d)
  T* best_gradient;   // (M, d)
  T* best_value;      // (M)
  T* beta;            // (M) step sizes
  T* risen;           // (M) steps in a row that rose; -inf without momentum
};

// Which rows of a climb have ended: a row whose value is at most `least` times what it was
// kPatience steps before. Nothing of it changes any more (CUDA only).
template <typename T>
struct Stalls {
  T least;
  T* history;           // (M, kPatience)
  std::int64_t* taken;  // (M) steps
  std::uint8_t* ended;  // (M), or null: none ends
};
constexpr int kPatience = 4;

// A block of random weights: normals times `scale`, each a function of seed, draw, plane, row and
// column alone.  A plane is the weights of one word, or those of a deeper layer.
template <typename T>
struct RandomBlock {
  std::uint64_t seed;
  std::uint32_t draw, plane;
  std::int64_t first_row, rows, cols;
  T scale;
  T* out;  // (rows, cols)
};

// What such a block makes of a few words, without being held: z += V x, at its rows of z.
template <typename T>
struct RandomProduct {
  std::uint64_t seed;
  std::uint32_t draw, plane;
  std::int64_t first_row, rows, all_rows, cols, texts;
  T scale;
  const T* x;  // (texts, cols)
  T* z;        // (texts, all_rows)
};

// Rows less a common shift, and their squared norms.
template <typename T>
struct CentredRows {
  std::int64_t rows, d;
  const T* given;  // (rows, d)
  const T* shift;  // (d)
  T* centred;      // (rows, d)
  T* norm2;        // (rows)
};

// Candidates are worked on in blocks of kLanes; their arrays have one column for each, and whole
// blocks of columns.

// Rows j that are worked on together.
constexpr std::int64_t kGroup = 4;

// A text in which one word is replaced by a candidate v (docs/design.md, section 4).  Vectors are
// centred as the words are; m rows are groups of kGroup, the last one filled up with zeros.
template <typename T>
struct SubstitutionState {
  WeightFn weight_fn;
  std::int64_t positions, n;
  const std::int64_t* index;  // (P) which word
  // Rows of attention.
  const T* full;  // (n) log-sum-exp of the row, for scores of the centred v, or sum of its weights
  const T* phi2;  // (n) |phi_j|^2
  const T*
      base_weight;  // (n) phi_j = base_weight z_j + top_weight x_top: z_j is phi_j itself, or for
  const T* top_weight;      // (n) a dominated row the mean of the others
  const std::int64_t* top;  // (n)
  const T* gain2;           // (n) 1 / (1 - its largest attention that does not dominate)^2
  // Pairs, four rows at a time: (m / 4, P, 4, 4) of struct Pair; those whose change is not of that
  // form (the word's own row, dominated pairs) have a negative first number, and their group is
  // not plain. Rows that fill up a group are zeros, and b = 1.
  const T* pairs;
  const std::uint8_t* plain;  // (m / 4, P), of the CPU alone
  // Dominated pairs, sorted by position.
  const std::int64_t* dominated_start;  // (P + 1)
  const std::int64_t* dominated_row;    // (K)
  const T* dominated;  // (K, 5) attention a, log-sum-exp or sum of the others, |m|^2, x_i.m,
                       // (a |x_i - m|)^2
  // The candidate's own row.
  const T* key_shift;  // (n) k_l.v less its product with the centred v
  const T* gram;       // (n, n) x_i.x_l
  const T* phi_words;  // (P, n) phi_i.x_l
  T shift;             // |v| less |centred v| is at most this
  T radius;            // largest |x_l|
  T phi_radius;        // largest |phi_j|
  // Bounds of the rounding error of scores, over the norm of v as given (own_error: over its
  // square).
  T score_error, key_error, own_error;
  T score_offset;  // of a row's log-sum-exp
  // Rounding of a squared norm, over the size of its terms: what depends on v, and this (P).
  T product_error;
  const T* constant;
  const T* removed_norm;  // (P) root of the sum of (a |x_i - phi_j| / b)^2
};

// The candidates of one tile; `stride` columns a row.
template <typename T>
struct SubstitutionTile {
  std::int64_t candidates, stride;
  T* scores;               // (n, stride) y_j.v; becomes the weight of v over the row's
  T* base;                 // (n, stride) z_j.v; becomes phi_j.v
  const T* words;          // (n, stride) x_l.v
  T* keys;                 // (n, stride) k_l.v; becomes the attention of v without its largest word
  const T* own_score;      // (stride) v.Wv / sqrt(d)
  const T* norm2;          // (stride) |v|^2
  T* attention;            // (kOwnRows, stride)
  std::int64_t* top;       // (stride) v's largest word
  const T* mean_products;  // (n + P, stride) products of gram, then phi_words, with the attention
  // Null, or a norm (P): where the change surely is less for a whole block, what is written is less
  // than it too, but not the change.
  const T* threshold;
  T* value;       // (P, stride) |phi(X') - phi(X)|^2
  T* size;        // (stride) the size of the terms, less what does not depend on v
  T* norm_error;  // (stride) squared error of the norm that scores may cause
};
// The largest word's share and the others', v's own share and the rest beside all words, and beside
// all but the largest; the error of the own row by scores; its size.
constexpr std::int64_t kOwnRows = 8;

// Pairs whose norm may be among the best, from tile to tile (CUDA only). A block of candidates has
// a pair whose norm is no less than a lower bound; those bounds raise the threshold that the upper
// bound of a pair must reach.
template <typename T>
struct ContenderList {
  const std::uint8_t* allowed;  // (P, candidates), or null: every pair is
  const std::int64_t* number;   // (candidates) rows of the vocabulary
  std::int64_t first_block;     // so many blocks of candidates came before
  // So many pairs, and candidates, are among the best beside the best pair of each position.
  std::int64_t pairs, leaders;
  // The largest lower bound of each position (P); of the (position, block)s and of the blocks that
  // share a slot (slots), a power of two. None is below 0.
  std::int64_t slots;
  T *surest, *of_pairs, *of_blocks;
  T* threshold;  // (P)
  T limit;       // a size that is not below it counts as more pairs than there is room for
  std::int64_t capacity;
  std::int64_t* count;      // (1) pairs so far; those beyond the capacity are only counted
  std::int64_t* position;   // (capacity)
  std::int64_t* candidate;  // (capacity)
  T* low;                   // (capacity) bounds of the norm
  T* high;                  // (capacity)
};

}  // namespace wsfast
