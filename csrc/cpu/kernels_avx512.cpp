#define WSFAST_TABLE kernels_avx512
#include "kernels.inl"
