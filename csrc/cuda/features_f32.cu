#include "attention_rows.cuh"
#include "features.cuh"

namespace wsfast::cuda {

template int attention_rows(const AttentionRows<float>&, Stream);

}  // namespace wsfast::cuda
