/* Input guard: a write to an input is noticed while an implementation runs, by a page fault.
 *
 * Inputs, with the red zones around them, are made read-only.  A write to one, even of the value
 * that is there already, is noted with the element that was hit.  That input is writable from then
 * on, and the code goes on.  The floating-point environment (rounding, flush-to-zero, traps) is
 * compared with that before the run, and put back.
 *
 * A process has one guard at a time; ranks may be threads.  Other faults go to the handler that was
 * there before: a read beyond a guard page still kills. */
#ifndef TESTS_HARNESS_INPUT_GUARD_H
#define TESTS_HARNESS_INPUT_GUARD_H

#include "tests/harness/inputs/setup.h"

/* Before the implementation is called.  In a backward pass o and lse are inputs, too. */
void attn_input_guard_begin(struct attn_setup *setup, enum attn_pass pass);

/* Another process, which shares the tensors, wrote to this address. */
void attn_input_guard_note(const void *address);

/* After it returned.  NULL: nothing was touched; else one line in text: the first input that was
 * written to, or the part of the environment that changed. */
const char *attn_input_guard_end(struct attn_setup *setup, char *text, size_t size);

#endif
