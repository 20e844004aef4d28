#define WSFAST_RANDOM random_avx2
#include "random.inl"
