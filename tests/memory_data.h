/* What the tests of memory share: specs of every implementation, one pass of a case on a ledger. */
#ifndef TESTS_MEMORY_DATA_H
#define TESTS_MEMORY_DATA_H

#include <check.h>

#include "tests/harness/runner.h"

enum { MEMORY_SPECS = 64 };

/* Each implementation with its presets; one with ranks at 1, 2 and 4 of them; one with an
 * option that is a choice of words, with each word.  Returns how many. */
int memory_specs(struct attn_spec list[MEMORY_SPECS]);

/* Open a case; a failure fails the test. */
void memory_open(const char *text, struct attn_setup *s);

/* One pass, forward or backward, that takes its memory from the ledger.  use: as many as ranks. */
enum attn_status memory_run(const struct attn_spec *spec, const struct attn_setup *s,
                            enum attn_pass pass, struct attn_ledger *ledger,
                            struct attn_rank_use *use, struct attn_error *err);

TCase *memory_failure_tests(void); /* of memory_failures.c */
TCase *memory_price_tests(void);   /* of memory_prices.c */

#endif
