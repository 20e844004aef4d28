// The Python module wsfast._cpu.
#include "bindings.h"

#include <pybind11/stl.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "cpu/dispatch.h"

namespace wsfast {
namespace {

struct Cpu {
  using Where = int;
  static constexpr const char* where = "threads";

  template <typename T>
  static const Kernels<T>& kernels();

  template <class Kernel, typename... Arguments>
  static void call(const char*, Kernel kernel, int threads, const Arguments&... arguments) {
    kernel(arguments..., threads);
  }
};
template <>
const Kernels<float>& Cpu::kernels<float>() {
  return wsfast::kernels().f32;
}
template <>
const Kernels<double>& Cpu::kernels<double>() {
  return wsfast::kernels().f64;
}

// What CUDA does in fewer passes (raf_features, ascent_step, substitution_tile), or does not do.
template <typename T>
void bind_cpu_kernels(py::module_& m, const std::string& suffix) {
  using State = On<Cpu, SubstitutionState<T>>;
  using Tile = On<Cpu, SubstitutionTile<T>>;
  m.def(("all_finite" + suffix).c_str(),
        [](Address x, std::int64_t n) { return Cpu::kernels<T>().all_finite(at<const T>(x), n); });
  m.def(
      "ascent_gradient",
      [](const On<Cpu, PositionState<T>>& state, const On<Cpu, AscentRows<T>>& rows,
         Address own_delta, Address gradient, int threads) {
        Cpu::kernels<T>().ascent_gradient(state, rows, at<const T>(own_delta), at<T>(gradient),
                                          threads);
      },
      py::arg("state"), py::arg("rows"), py::arg("own_delta"), py::arg("gradient"),
      py::arg(Cpu::where), py::call_guard<py::gil_scoped_release>());
  m.def(
      "take_step",
      [](const On<Cpu, StepRows<T>>& rows, int threads) {
        Cpu::kernels<T>().take_step(rows, threads);
      },
      py::arg("rows"), py::arg(Cpu::where), py::call_guard<py::gil_scoped_release>());
  using Functional = FunctionalRows<T>;
  bind_struct<Cpu>(m, "FunctionalRows" + suffix, field("by_shift", &Functional::by_shift),
                   field("by_word", &Functional::by_word), field("delta", &Functional::delta),
                   field("products", &Functional::products),
                   field("own_weight", &Functional::own_weight),
                   field("own_change", &Functional::own_change),
                   field("own_slope", &Functional::own_slope), field("value", &Functional::value));
  m.def(
      "functional_ascent",
      [](const On<Cpu, PositionState<T>>& state, const On<Cpu, Functional>& rows, int threads) {
        Cpu::kernels<T>().functional_ascent(state, rows, threads);
      },
      py::arg("state"), py::arg("rows"), py::arg("threads"),
      py::call_guard<py::gil_scoped_release>());
  using Head = HeadPoints<T>;
  m.def(("head_work" + suffix).c_str(),
        [](std::int64_t points, std::int64_t n, std::int64_t d_k, std::int64_t d, std::int64_t r) {
          return Cpu::kernels<T>().head_work(points, n, d_k, d, r);
        });
  bind_struct<Cpu>(m, "HeadPoints" + suffix, field("d_k", &Head::d_k), field("r", &Head::r),
                   field("moves", &Head::moves), field("moves_t", &Head::moves_t),
                   field("queries", &Head::queries), field("outputs", &Head::outputs),
                   field("keys", &Head::keys), field("values", &Head::values),
                   field("queries_t", &Head::queries_t), field("outputs_t", &Head::outputs_t),
                   field("keys_t", &Head::keys_t), field("values_t", &Head::values_t),
                   field("delta", &Head::delta), field("value", &Head::value),
                   field("size", &Head::size), field("gradient", &Head::gradient),
                   field("work", &Head::work));
  m.def(
      "head_points",
      [](const On<Cpu, PositionState<T>>& state, const On<Cpu, Head>& points, int threads) {
        Cpu::kernels<T>().head_points(state, points, threads);
      },
      py::arg("state"), py::arg("points"), py::arg("threads"),
      py::call_guard<py::gil_scoped_release>());
  using Turns = RowTurns<T>;
  bind_fields<Cpu>(
      m, "turn_rows" + suffix,
      [](const Turns& turns, int threads) { Cpu::kernels<T>().turn_rows(turns, threads); },
      field("positions", &Turns::positions), field("n", &Turns::n), field("d", &Turns::d),
      field("count", &Turns::count), field("candidates", &Turns::candidates),
      field("step", &Turns::step), field("logit", &Turns::logit), field("a", &Turns::a),
      field("c2", &Turns::c2), field("inv_b", &Turns::inv_b),
      field("directions", &Turns::directions), field("lengths", &Turns::lengths),
      field("scores", &Turns::scores), field("means", &Turns::means), field("words", &Turns::words),
      field("length", &Turns::length), field("t", &Turns::t), field("mean", &Turns::mean),
      field("u", &Turns::u), field("delta", &Turns::delta));
  using Bound = BoundRows<T>;
  bind_fields<Cpu>(
      m, "bound_rows" + suffix,
      [](const Bound& rows, int threads) { Cpu::kernels<T>().bound_rows(rows, threads); },
      field("relu", &Bound::relu), field("proof", &Bound::proof),
      field("positions", &Bound::positions), field("n", &Bound::n), field("nodes", &Bound::nodes),
      field("theta", &Bound::theta), field("node", &Bound::node),
      field("node_alpha", &Bound::node_alpha), field("index", &Bound::index),
      field("kind", &Bound::kind), field("logit", &Bound::logit), field("scale", &Bound::scale),
      field("a", &Bound::a), field("inv_b", &Bound::inv_b), field("c2", &Bound::c2),
      field("lost", &Bound::lost), field("low", &Bound::low), field("high", &Bound::high),
      field("alpha_low", &Bound::alpha_low), field("alpha_high", &Bound::alpha_high),
      field("reach", &Bound::reach), field("reach_p", &Bound::reach_p),
      field("weights", &Bound::weights), field("radius", &Bound::radius),
      field("reach_u", &Bound::reach_u), field("others", &Bound::others), field("own", &Bound::own),
      field("kappa", &Bound::kappa), field("beta", &Bound::beta), field("gamma", &Bound::gamma),
      field("nu", &Bound::nu), field("eta", &Bound::eta), field("zeta", &Bound::zeta),
      field("value", &Bound::value), field("t", &Bound::t), field("u", &Bound::u),
      field("p", &Bound::p));
  using BallOf = BoundBall<T>;
  bind_fields<Cpu>(
      m, "bound_ball" + suffix,
      [](const BallOf& ball, int threads) { Cpu::kernels<T>().bound_ball(ball, threads); },
      field("positions", &BallOf::positions), field("N", &BallOf::N),
      field("index", &BallOf::index), field("eigenvalues", &BallOf::eigenvalues),
      field("words", &BallOf::words), field("scores", &BallOf::scores), field("h", &BallOf::h),
      field("b", &BallOf::b), field("kappa", &BallOf::kappa), field("nu", &BallOf::nu),
      field("weights", &BallOf::weights), field("smooth", &BallOf::smooth),
      field("radius", &BallOf::radius), field("lam", &BallOf::lam), field("value", &BallOf::value),
      field("x", &BallOf::x), field("by_z", &BallOf::by_z), field("zz", &BallOf::zz),
      field("by_kappa", &BallOf::by_kappa));
  using StepOf = BoundStep<T>;
  bind_fields<Cpu>(
      m, "bound_step" + suffix,
      [](const StepOf& step, int threads) { Cpu::kernels<T>().bound_step(step, threads); },
      field("positions", &StepOf::positions), field("n", &StepOf::n), field("rate", &StepOf::rate),
      field("unbias", &StepOf::unbias), field("unbias2", &StepOf::unbias2),
      field("index", &StepOf::index), field("kind", &StepOf::kind),
      field("t_mean", &StepOf::t_mean), field("p_mean", &StepOf::p_mean), field("tu", &StepOf::tu),
      field("u_mean", &StepOf::u_mean), field("uu", &StepOf::uu), field("least", &StepOf::least),
      field("t", &StepOf::t), field("u", &StepOf::u), field("p", &StepOf::p),
      field("size", &StepOf::size), field("at", &StepOf::at), field("first", &StepOf::first),
      field("second", &StepOf::second));
  m.def(
      "substitution_norms",
      [](const State& state, const Tile& tile, int threads) {
        Cpu::kernels<T>().substitution_norms(state, tile, threads);
      },
      py::arg("state"), py::arg("tile"), py::arg("threads"),
      py::call_guard<py::gil_scoped_release>());
}

template <typename T>
const RandomKernelsOf<T>& random_of() {
  if constexpr (std::is_same_v<T, float>)
    return random_kernels().f32;
  else
    return random_kernels().f64;
}

template <typename T>
void bind_random(py::module_& m, const std::string& suffix) {
  using Block = RandomBlock<T>;
  using Product = RandomProduct<T>;
  bind_fields<Cpu>(
      m, "random_block" + suffix,
      [](const Block& block, int threads) { random_of<T>().block(block, threads); },
      field("seed", &Block::seed), field("draw", &Block::draw), field("plane", &Block::plane),
      field("first_row", &Block::first_row), field("rows", &Block::rows),
      field("cols", &Block::cols), field("scale", &Block::scale), field("out", &Block::out));
  bind_fields<Cpu>(
      m, "random_product" + suffix,
      [](const Product& product, int threads) { random_of<T>().product(product, threads); },
      field("seed", &Product::seed), field("draw", &Product::draw), field("plane", &Product::plane),
      field("first_row", &Product::first_row), field("rows", &Product::rows),
      field("all_rows", &Product::all_rows), field("cols", &Product::cols),
      field("texts", &Product::texts), field("scale", &Product::scale), field("x", &Product::x),
      field("z", &Product::z));
}

template <typename T>
void bind_kernels(py::module_& m, const std::string& suffix) {
  bind_attention<Cpu, T>(m, suffix);
  bind_perturbation<Cpu, T>(m, suffix);
  bind_substitution<Cpu, T>(m, suffix);
  bind_cpu_kernels<T>(m, suffix);
  bind_random<T>(m, suffix);
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#else
  return "unknown";
#endif
}

}  // namespace
}  // namespace wsfast

PYBIND11_MODULE(_cpu, m) {
  namespace py = pybind11;
  m.doc() =
      "CPU kernels of wsfast: closed forms of single-word perturbations of attention features.";
  wsfast::bind_kernels<float>(m, "32");
  wsfast::bind_kernels<double>(m, "64");
  m.def(
      "inverse_normals",
      [](std::int64_t count, wsfast::Address bits, wsfast::Address out, int threads) {
        wsfast::random_kernels().inverse_normals(count, wsfast::at<const std::uint64_t>(bits),
                                                 wsfast::at<double>(out), threads);
      },
      py::kw_only(), py::arg("count"), py::arg("bits"), py::arg("out"), py::arg("threads"),
      py::call_guard<py::gil_scoped_release>());

  m.def("isa_levels_built", [] {
    std::vector<std::string> names;
    for (const wsfast::Isa isa : wsfast::isa_built()) names.emplace_back(wsfast::isa_name(isa));
    return names;
  });
  m.def("isa_detected", [] { return std::string(wsfast::isa_name(wsfast::detect_isa())); });
  m.def("isa_used", [] { return std::string(wsfast::isa_name(wsfast::isa_used())); });
  m.def("set_isa", &wsfast::set_isa, py::arg("level"),
        "Use this instruction set; ValueError unless it is built and run by this machine.");
  m.def("compiler", &wsfast::compiler);

  wsfast::kernels();  // chosen here, where no other thread can be at it when the process forks
  if (const char* level = std::getenv("WSFAST_SIMD"); level != nullptr && *level != '\0') {
    try {
      wsfast::set_isa(level);
    } catch (const std::invalid_argument& error) {
      throw py::import_error(std::string("WSFAST_SIMD: ") + error.what());
    }
  }
}
