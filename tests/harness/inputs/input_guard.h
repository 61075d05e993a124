/* Input guard: while an implementation runs, a write to an input is noticed by the machine itself.
 *
 * Inputs (with the red zones around them) are mapped read-only.  A write to one, even of the value
 * that is there already, is noted with the element that was hit, and the code goes on.  The
 * floating-point environment (rounding, flush-to-zero, traps) is compared and put back.
 *
 * A process has one guard at a time; ranks may be threads.  Other faults go to the handler that was
 * there before: a read beyond a guard page still kills. */
#ifndef TESTS_HARNESS_INPUT_GUARD_H
#define TESTS_HARNESS_INPUT_GUARD_H

#include "tests/harness/inputs/setup.h"

void attn_input_guard_begin(struct attn_setup *setup, enum attn_pass pass);

/* Another process, which shares the tensors, wrote to this address. */
void attn_input_guard_note(const void *address);

/* NULL, or one line in text: the first input that was written to, or what changed. */
const char *attn_input_guard_end(struct attn_setup *setup, char *text, size_t size);

#endif
