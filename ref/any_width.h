/* For loops whose iterations do not depend on each other: compiled once for each width of vectors,
 * and chosen when the program starts.  No sum changes its order, nothing is contracted: the bits
 * are the same with each width. */
#ifndef REF_ANY_WIDTH_H
#define REF_ANY_WIDTH_H

#include <stddef.h> /* ISO C wants a declaration in what is compiled alone */

#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && \
    !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define ATTN_ANY_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ATTN_ANY_WIDTH
#endif

#endif
