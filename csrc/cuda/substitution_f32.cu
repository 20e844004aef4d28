#include "candidate_attention.cuh"
#include "contenders.cuh"
#include "substitution.cuh"

namespace wsfast {
namespace cuda {

template int centre_rows(const CentredRows<float>&, Stream);
template int candidate_attention(const SubstitutionState<float>&, const SubstitutionTile<float>&,
                                 Stream);
template int substitution_tile(const SubstitutionState<float>&, const SubstitutionTile<float>&,
                               const std::uint8_t*, float*, Stream);
template int keep_contenders(const ContenderList<float>&, Stream);

}  // namespace cuda
}  // namespace wsfast
