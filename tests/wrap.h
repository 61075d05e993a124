/* Counts what the code under test takes from the allocator, which the linker wraps.
 *
 * The test program is linked with --wrap, so every call of malloc, calloc, realloc, strdup,
 * aligned_alloc, posix_memalign and mmap that our own objects make passes through wrap.c first, and
 * so does every call of attn_ledger_take.  Memory of the ledger itself is not counted; all other
 * memory that is taken between wrap_watch and wrap_stop is, in all threads.  Memory that libc takes
 * for itself (the stacks of threads) is not seen.  Check's note of an assertion passes through it
 * too.
 */
#ifndef TESTS_WRAP_H
#define TESTS_WRAP_H

#include <stdint.h>

struct wrap_count {
    int64_t calls, bytes;
    const char *last; /* the function that was called last, or NULL */
};

/* Count from zero on. */
void wrap_watch(void);

/* Stop, and say what was taken outside the ledger since wrap_watch. */
struct wrap_count wrap_stop(void);

/* From now on the take number k (0 is the next one) fails as if memory had run out, whichever
 * ledger and thread it comes from; a negative k: none does.  Restarts wrap_takes. */
void wrap_fail_take(int64_t k);

/* Call number k of the allocator (0 is the next one) fails, whichever function makes it; a negative
 * k: none does.  1: it has failed. */
void wrap_fail_call(int k);
int wrap_call_failed(void);

/* Calls of attn_ledger_take since wrap_fail_take. */
int64_t wrap_takes(void);

#endif
