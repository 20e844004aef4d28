#include "ascent.cuh"
#include "gradient.cuh"
#include "step.cuh"

namespace wsfast {
namespace cuda {

template int ascent_forward(const PositionState<float>&, const AscentRows<float>&, Stream);
template int own_row(const PositionState<float>&, const AscentRows<float>&, float*, Stream);
template int ascent_backward(const PositionState<float>&, const AscentRows<float>&, const float*,
                             Stream);
template int ascent_gradient(const PositionState<float>&, const AscentRows<float>&, float*, Stream);
template int ascent_step(const PositionState<float>&, const AscentRows<float>&,
                         const StepRows<float>&, const Stalls<float>&, Stream);
template int take_step(const StepRows<float>&, Stream);

}  // namespace cuda
}  // namespace wsfast
