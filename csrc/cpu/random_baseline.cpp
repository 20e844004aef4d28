#define WSFAST_RANDOM random_baseline
#include "random.inl"
