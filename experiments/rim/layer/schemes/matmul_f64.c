/* matmul.c in double; its own file is compiled in float (ref/real.h). */
#define ATTN_REAL_F64
#include "experiments/rim/layer/schemes/matmul.c"
