#include "attention_rows.cuh"

namespace wsfast {
namespace cuda {

template int attention_rows(const AttentionRows<double>&, Stream);

}  // namespace cuda
}  // namespace wsfast
