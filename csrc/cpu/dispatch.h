// The one place where an instruction set is chosen.
#pragma once

#include <string>
#include <vector>

#include "isa.h"
#include "kernels.h"

namespace wsfast {

// Levels compiled into this build, lowest first.
std::vector<Isa> isa_built();
// The highest level that is both built and detected.
Isa isa_best();
Isa isa_used();
// Throws std::invalid_argument for an unknown level, one that is not built, or one above what the
// machine runs.
void set_isa(const std::string& name);
const KernelTable& kernels();
const RandomKernels& random_kernels();

}  // namespace wsfast
