#include "attention_rows.cuh"
#include "features.cuh"

namespace wsfast {
namespace cuda {

template int attention_rows(const AttentionRows<float>&, Stream);

}  // namespace cuda
}  // namespace wsfast
