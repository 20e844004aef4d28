// The Python module wsfast._cuda.  It needs no driver to be imported: where there is none, the
// kernels say so when they are called.
#include "../bindings.h"

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "kernels.h"

namespace wsfast {
namespace {

struct Cuda {
  using Where = Address;
  static constexpr const char* where = "stream";

  template <typename T>
  struct Kernels {
    static constexpr auto attention_rows = &cuda::attention_rows<T>;
    static constexpr auto delta_norms = &cuda::ascent_forward<T>;
    static constexpr auto ascent_forward = &cuda::ascent_forward<T>;
    static constexpr auto own_row = &cuda::own_row<T>;
    static constexpr auto ascent_backward = &cuda::ascent_backward<T>;
    static constexpr auto centre_rows = &cuda::centre_rows<T>;
    static constexpr auto candidate_attention = &cuda::candidate_attention<T>;
  };
  template <typename T>
  static Kernels<T> kernels() {
    return {};
  }

  template <class Kernel, typename... Arguments>
  static void call(const char* name, Kernel kernel, Address stream, const Arguments&... arguments) {
    const int error = kernel(arguments..., at<void>(stream));
    if (error != 0) {
      throw std::runtime_error(std::string("wsfast: CUDA kernel ") + name + ": " +
                               cudaGetErrorString(static_cast<cudaError_t>(error)));
    }
  }
};

void bind_features(py::module_& m) {
  using Rows = FeatureRows;
  bind_fields<Cuda>(
      m, "raf_features32",
      [](const Rows& rows, Address stream) {
        Cuda::call("raf_features", &cuda::raf_features, stream, rows);
      },
      field("weight_fn", &Rows::weight_fn), field("curve", &Rows::curve),
      field("texts", &Rows::texts), field("draws", &Rows::draws), field("n", &Rows::n),
      field("d", &Rows::d), field("scale", &Rows::scale), field("words", &Rows::words),
      field("queries", &Rows::queries), field("mask", &Rows::mask), field("phi", &Rows::phi));
  m.def("feature_columns", &cuda::feature_columns);
}

template <typename T>
void bind_steps(py::module_& m, const std::string& suffix) {
  using State = On<Cuda, PositionState<T>>;
  using Rows = On<Cuda, AscentRows<T>>;
  using Step = On<Cuda, StepRows<T>>;
  using Ends = Stalls<T>;
  bind_struct<Cuda>(m, "Stalls" + suffix, field("least", &Ends::least),
                    field("history", &Ends::history), field("taken", &Ends::taken),
                    field("ended", &Ends::ended));
  m.def(
      "ascent_step",
      [](const State& state, const Rows& rows, const Step& step, const On<Cuda, Ends>& stalls,
         Address stream) {
        Cuda::call("ascent_step", &cuda::ascent_step<T>, stream, state, rows, step, stalls);
      },
      py::arg("state"), py::arg("rows"), py::arg("step"), py::arg("stalls"), py::arg(Cuda::where),
      py::call_guard<py::gil_scoped_release>());
}

template <typename T>
void bind_tiles(py::module_& m, const std::string& suffix) {
  using List = ContenderList<T>;
  bind_struct<Cuda>(m, "ContenderList" + suffix, field("allowed", &List::allowed),
                    field("number", &List::number), field("first_block", &List::first_block),
                    field("pairs", &List::pairs), field("leaders", &List::leaders),
                    field("slots", &List::slots), field("surest", &List::surest),
                    field("of_pairs", &List::of_pairs), field("of_blocks", &List::of_blocks),
                    field("threshold", &List::threshold), field("limit", &List::limit),
                    field("capacity", &List::capacity), field("count", &List::count),
                    field("position", &List::position), field("candidate", &List::candidate),
                    field("low", &List::low), field("high", &List::high));
  m.def(
      "substitution_tile",
      [](const On<Cuda, SubstitutionState<T>>& state, const On<Cuda, SubstitutionTile<T>>& tile,
         const On<Cuda, List>* list, Address stream) {
        Cuda::call("substitution_tile", &cuda::substitution_tile<T>, stream, state, tile, list);
      },
      py::arg("state"), py::arg("tile"), py::arg("list"), py::arg(Cuda::where),
      py::call_guard<py::gil_scoped_release>());
}

template <typename T>
void bind_kernels(py::module_& m, const std::string& suffix) {
  bind_attention<Cuda, T>(m, suffix);
  bind_perturbation<Cuda, T>(m, suffix);
  bind_steps<T>(m, suffix);
  bind_substitution<Cuda, T>(m, suffix);
  bind_tiles<T>(m, suffix);
}

}  // namespace
}  // namespace wsfast

PYBIND11_MODULE(_cuda, m) {
  m.doc() =
      "CUDA kernels of wsfast: closed forms of single-word perturbations of attention features.";
  wsfast::bind_kernels<float>(m, "32");
  wsfast::bind_kernels<double>(m, "64");
  wsfast::bind_features(m);
  m.def("architectures", [] { return std::string(WSFAST_CUDA_ARCHITECTURES); });
  m.def("compiler", [] { return std::string(WSFAST_CUDA_COMPILER); });
}
