/* Partial results: attention of every query over each of several parts of the keys, to be merged
 * (merge.h) in the order of the parts.  The parts follow from problem and spec, never from the
 * number of threads. */
#ifndef OPTIMIZED_PARTS_H
#define OPTIMIZED_PARTS_H

#include "optimized/simd/kernels.h"
#include "ref/buffers.h"

/* Into how many parts n_key keys are cut, of how many keys each: whole blocks of `block` keys.
 * `asked` parts; 0: enough for 16 units of work, where one part gives `units`, but none shorter
 * than 8 blocks, which would be more merging than work. */
void attn_parts_cut(int64_t n_key, int64_t block, int64_t asked, int64_t units, int64_t *parts,
                    int64_t *part);

/* Numbers are of the arithmetic type; o is normalised, lse in natural logarithms. */
enum { ATTN_PART_O, ATTN_PART_LSE, ATTN_PARTS }; /* [count][rows][dv], [count][rows] */
struct attn_parts {
    const struct attn_kernels *kernels;
    int64_t count, rows;
    const struct attn_buffer *buffer; /* [ATTN_PARTS] */
};

/* "part.o" and "part.lse". */
void attn_parts_buffers(const struct attn_kernels *kernels, int64_t count, int64_t rows, int64_t dv,
                        struct attn_buffer buffer[ATTN_PARTS]);

/* Where part number n of a row goes. */
void *attn_parts_o(const struct attn_parts *parts, int64_t n, int64_t row);
void *attn_parts_lse(const struct attn_parts *parts, int64_t n, int64_t row);

/* All parts of a row into the first, and that to query i of head h. */
void attn_parts_merge(const struct attn_parts *parts, int64_t row, const struct attn_forward *t,
                      int64_t b, int64_t h, int64_t i);

/* The same where rows are those of the whole problem: row = (b * H + h) * Lq + i. */
void attn_parts_merge_row(const struct attn_parts *parts, const struct attn_problem *p,
                          const struct attn_forward *t, int64_t row);

#endif
