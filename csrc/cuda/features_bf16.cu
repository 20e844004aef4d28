#include "features.cuh"

namespace wsfast {
namespace cuda {

template int raf_features(const FeatureRows<float, Bfloat16>&, Stream);

}  // namespace cuda
}  // namespace wsfast
