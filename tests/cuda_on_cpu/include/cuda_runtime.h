// First on the include path, this stands in for CUDA's header: a .cu file then compiles as plain
// C++20, and its kernels run on the CPU. See ../README.md.
#pragma once

#include "cuda_on_cpu/collectives.h"
#include "cuda_on_cpu/copies.h"
#include "cuda_on_cpu/language.h"
#include "cuda_on_cpu/launch.h"
#include "cuda_on_cpu/runtime_api.h"
#include "cuda_on_cpu/shared_memory.h"
