#include "ascent.cuh"
#include "step.cuh"

namespace wsfast::cuda {

template int ascent_forward(const PositionState<float>&, const AscentRows<float>&, Stream);
template int own_row(const PositionState<float>&, const AscentRows<float>&, float*, Stream);
template int ascent_backward(const PositionState<float>&, const AscentRows<float>&, const float*,
                             Stream);
template int ascent_step(const PositionState<float>&, const AscentRows<float>&,
                         const StepRows<float>&, const Stalls<float>&, Stream);

}  // namespace wsfast::cuda
