// From the number of a weight function to its formulas.
#pragma once

#include "arguments.h"
#include "formulas.h"

namespace wsfast {
namespace {

// Calls `body` with the formulas of the weight function; `curve` is that of squareplus.
template <typename T, class Body>
auto with_weight_fn(WeightFn fn, T curve, const Body& body) {
  switch (fn) {
    case WeightFn::kRelu: return body(Normalized<Relu>{});
    case WeightFn::kReluUnnormalized: return body(Unnormalized<Relu>{});
    case WeightFn::kSquareplus: return body(Normalized<Squareplus<T>>{{curve}});
    case WeightFn::kSquareplusUnnormalized: return body(Unnormalized<Squareplus<T>>{{curve}});
    default: return body(Softmax{});
  }
}

// The same for those that a user may name.
template <class Body>
auto with_given_weight_fn(WeightFn fn, const Body& body) {
  switch (fn) {
    case WeightFn::kRelu: return body(Normalized<Relu>{});
    case WeightFn::kReluUnnormalized: return body(Unnormalized<Relu>{});
    default: return body(Softmax{});
  }
}

}  // namespace
}  // namespace wsfast
