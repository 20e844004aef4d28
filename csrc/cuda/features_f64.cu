#include "features.cuh"

namespace wsfast {
namespace cuda {

template int raf_features(const FeatureRows<double, double>&, Stream);

}  // namespace cuda
}  // namespace wsfast
