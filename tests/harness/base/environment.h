/* The floating-point environment: rounding, flush-to-zero, denormals-are-zero, traps.
 *
 * A shared object linked with -Ofast sets flush-to-zero for the whole thread when it is loaded
 * (gcc 12, clang 14; measured), and any callee may change what it likes.  So it is noted before,
 * compared after, and put back: a call must not change how the next one computes.
 */
#ifndef TESTS_HARNESS_ENVIRONMENT_H
#define TESTS_HARNESS_ENVIRONMENT_H

#include <fenv.h>
#include <stddef.h>
#include <stdint.h>

struct attn_environment {
    fenv_t whole;
    uint64_t control; /* without the sticky exception flags, which everybody changes */
};

void attn_environment_save(struct attn_environment *environment);

/* Put back what was saved.  Returns 1, with one line in text, when something other than exception
 * flags had changed. */
int attn_environment_restore(const struct attn_environment *environment, char *text, size_t size);

#endif
