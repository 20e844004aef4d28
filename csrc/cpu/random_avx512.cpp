#define WSFAST_RANDOM random_avx512
#include "random.inl"
