#include "candidate_attention.cuh"
#include "substitution.cuh"

namespace wsfast::cuda {

template int centre_rows(const CentredRows<float>&, Stream);
template int candidate_attention(const SubstitutionState<float>&, const SubstitutionTile<float>&,
                                 Stream);
template int substitution_tile(const SubstitutionState<float>&, const SubstitutionTile<float>&,
                               const ContenderList<float>*, Stream);

}  // namespace wsfast::cuda
