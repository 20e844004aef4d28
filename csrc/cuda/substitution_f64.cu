#include "candidate_attention.cuh"
#include "substitution.cuh"

namespace wsfast::cuda {

template int centre_rows(const CentredRows<double>&, Stream);
template int candidate_attention(const SubstitutionState<double>&, const SubstitutionTile<double>&,
                                 Stream);
template int substitution_tile(const SubstitutionState<double>&, const SubstitutionTile<double>&,
                               const ContenderList<double>*, Stream);

}  // namespace wsfast::cuda
