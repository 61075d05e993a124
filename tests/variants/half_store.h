/* 16-bit storage, honest and otherwise: for the tests of the bound and of the battery.
 *
 * Inputs are widened to float, attention is computed in float by the variant of honest.h in any of
 * its styles (the first five options are its own), results are rounded to the storage type once.
 * Two more options make it wrong in ways that shipped:
 *
 *   store    nearest: right.  truncate: the lower bits are dropped.  flush: a subnormal result is
 *            stored as 0.  saturate: the largest number instead of an infinity
 *   sum      float: right.  storage: partial results are kept in the storage type, O after every
 *            eight keys, dK and dV after every query head
 *   read     all: right.  normal: subnormal inputs count as 0
 */
#ifndef TESTS_VARIANTS_HALF_STORE_H
#define TESTS_VARIANTS_HALF_STORE_H

#include "ref/attn.h"

enum half_store { HALF_NEAREST, HALF_TRUNCATE, HALF_FLUSH, HALF_SATURATE };
enum half_sum { HALF_SUM_FLOAT, HALF_SUM_STORAGE };
enum half_read { HALF_READ_ALL, HALF_READ_NORMAL };

/* Places in attn_options.value, behind those of honest.h. */
enum { HALF_STORE = 5, HALF_SUM, HALF_READ };

extern const struct attn_impl variant_half;

#endif
