/* Prefetching: rows that come next, a few cache lines at a time, while others are worked on.
 * Memory is fast only while requests are always under way, in order and without bursts, and the
 * work on a tile or a row is long enough to hide the next one from the machine.
 *
 * They go into the second-level cache (prefetcht1 on x86), not the first: that one is full of
 * what is worked on, and the few requests that it can have under way at a time are the work's own.
 * docs/kernel.md, 4, has what that is worth. */

struct FN(prefetch) {
    const char *at; /* the next row */
    int64_t step, bytes, done;
    int64_t rows;   /* left to prefetch                                   */
    int64_t passes; /* of the work, over which they are spread             */
};

/* Rows as they are stored; nothing where there are none. */
static struct FN(prefetch) FN(prefetch_rows)(struct attn_tensor_rows rows, int64_t passes)
{
    const int64_t *stride = rows.x->stride, size = (int64_t)attn_dtype_size(rows.x->dtype);
    if (rows.i0 >= rows.i1 || rows.n == 0)
        return (struct FN(prefetch)){0};
    return (struct FN(prefetch)){.at = (const char *)rows.x->data +
                                       attn_offset(stride, rows.b, rows.h, rows.i0) * size,
                                 .step = stride[2] * size,
                                 .bytes = rows.n * size,
                                 .rows = rows.i1 - rows.i0,
                                 .passes = passes};
}

/* n numbers next to each other, in one pass. */
static struct FN(prefetch) FN(prefetch_numbers)(const REAL *from, int64_t n)
{
    return (struct FN(prefetch)){
        .at = (const char *)from, .bytes = n * (int64_t)sizeof *from, .rows = n > 0, .passes = 1};
}

/* The lines to prefetch in each of `steps` steps of a pass.  x may be NULL: none. */
static int64_t FN(lines_of_step)(const struct FN(prefetch) * x, int64_t steps)
{
    if (x == NULL || x->rows == 0)
        return 0;
    int64_t lines = x->rows * ((x->bytes + 63) / 64) - x->done / 64;
    steps *= x->passes;
    return steps > 0 ? (lines + steps - 1) / steps : 0;
}

static inline __attribute__((always_inline)) void FN(prefetch_lines)(struct FN(prefetch) * x,
                                                                     int64_t lines)
{
    for (; lines > 0 && x->rows > 0; lines--) {
        __builtin_prefetch(x->at + x->done, 0, 2);
        x->done += 64;
        if (x->done >= x->bytes) {
            x->done = 0;
            x->at += x->step;
            x->rows--;
        }
    }
}
