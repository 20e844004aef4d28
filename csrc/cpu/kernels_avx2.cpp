#define WSFAST_TABLE kernels_avx2
#include "kernels.inl"
