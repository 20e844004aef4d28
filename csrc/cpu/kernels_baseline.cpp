#define WSFAST_TABLE kernels_baseline
#include "kernels.inl"
