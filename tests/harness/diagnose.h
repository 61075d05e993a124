/* What a failing implementation looks like: "fits if LSE is base 2", "fits causal(tl)", "fits heads
 * mapped h mod G".
 *
 * A list of tales (tale.h), each a mistake or a convention that implementations really have, is
 * held against what was computed; the first that fits is named.  Where none fits, the pattern of
 * the failing elements is described.  A diagnosis is a hint for people; no verdict depends on it.
 */
#ifndef TESTS_HARNESS_DIAGNOSE_H
#define TESTS_HARNESS_DIAGNOSE_H

#include "tests/harness/tale.h"

/* The outputs are in the setup; the result is what attn_judge made of them, and outputs that it did
 * not compare are not looked at.  Returns 1 and one line, or 0 and "". */
int attn_diagnose(const struct attn_setup *setup, const struct attn_result *result, char *text,
                  size_t size);

/* Run the case again and diagnose it; for implementations in this process. */
int attn_diagnose_case(const struct attn_spec *spec, const struct attn_case *c,
                       const struct attn_result *result, char *text, size_t size);

/* ---- for the files of suspects --------------------------------------------------------------- */

struct attn_suspicion {
    const struct attn_setup *setup;
    const struct attn_inquiry *inquiry;
    char *text;
    size_t size;
};

/* Hold one tale against the inquiry; when it fits, its words become the diagnosis. */
int attn_suspect(struct attn_suspicion *x, const struct attn_tale *tale, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Families of suspects: 1 when one of them fits. */
int attn_suspect_masks(struct attn_suspicion *x);
int attn_suspect_ranks(struct attn_suspicion *x);
int attn_suspect_start(struct attn_suspicion *x);
int attn_suspect_numbers(struct attn_suspicion *x);
int attn_suspect_backward(struct attn_suspicion *x);

/* No tale fits: where the failing elements are. */
int attn_describe_pattern(const struct attn_inquiry *inquiry, char *text, size_t size);

#endif
