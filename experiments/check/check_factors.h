/* What the cases of a check were: for each property on which kernels branch, its values and how
 * many cases had them. */
#ifndef EXPERIMENTS_CHECK_CHECK_FACTORS_H
#define EXPERIMENTS_CHECK_CHECK_FACTORS_H

#include "experiments/check/verdicts.h"

int attn_check_factor_count(void);
const char *attn_check_factor_name(int factor); /* "d", "queries", "mask", ... */

/* "8 (31), 64 (4)": values in cases that were judged; and those that are in refused cases only. */
void attn_check_factor(const struct attn_verdict_list *list, int factor, char *judged,
                       size_t judged_size, char *refused, size_t refused_size);

#endif
