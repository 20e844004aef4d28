#include "attention_rows.cuh"

namespace wsfast::cuda {

template int attention_rows(const AttentionRows<double>&, Stream);

}  // namespace wsfast::cuda
