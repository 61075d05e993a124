/* Input guard: while an implementation runs, a write to an input is noticed by the machine itself.
 *
 * Inputs (with the red zones around them) are mapped read-only: whoever writes to one, even what
 * stands there already, is noted with the element that was hit, and let go on.  The floating-point
 * environment (rounding, flush-to-zero, traps) is compared and put back.
 *
 * One watch at a time in a process; ranks may be threads.  Other faults are left to whoever handled
 * them before: reads beyond a guard page still kill. */
#ifndef TESTS_HARNESS_INPUT_GUARD_H
#define TESTS_HARNESS_INPUT_GUARD_H

#include "tests/harness/inputs/setup.h"

void attn_input_guard_begin(struct attn_setup *setup, enum attn_pass pass);

/* Another process, which shares the tensors, wrote to this address. */
void attn_input_guard_note(const void *address);

/* NULL, or one line in text: the first input that was written to, or what changed. */
const char *attn_input_guard_end(struct attn_setup *setup, char *text, size_t size);

#endif
