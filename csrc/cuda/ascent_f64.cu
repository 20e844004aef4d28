#include "ascent.cuh"
#include "step.cuh"

namespace wsfast::cuda {

template int ascent_forward(const PositionState<double>&, const AscentRows<double>&, Stream);
template int own_row(const PositionState<double>&, const AscentRows<double>&, double*, Stream);
template int ascent_backward(const PositionState<double>&, const AscentRows<double>&, const double*,
                             Stream);
template int ascent_step(const PositionState<double>&, const AscentRows<double>&,
                         const StepRows<double>&, const Stalls<double>&, Stream);

}  // namespace wsfast::cuda
