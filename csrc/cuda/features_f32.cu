#include "features.cuh"

namespace wsfast {
namespace cuda {

template int raf_features(const FeatureRows<float, float>&, Stream);

}  // namespace cuda
}  // namespace wsfast
