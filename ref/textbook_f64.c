/* The textbooks in double; their own files are compiled in float (ref/real.h). */
#define ATTN_REAL_F64
#include "ref/csr.c"
#include "ref/dense.c"
#include "ref/ring.c"
#include "ref/tiled.c"
#include "ref/ulysses.c"
