/* Records that somebody else made, elsewhere and by other means, such as a table of a GPU's
 * allocator: drawn as what they are, in figures of their own.  Nothing in them was measured,
 * checked, priced or counted here, and no figure joins them to what was.
 *
 * A file is CSV with one header line, or a JSON object a line, with the columns (or keys)
 *   backend           who computed it: a curve                         needed
 *   L                 sequence length                                  needed
 *   peak_extra_bytes  memory, by the definition of whoever counted it  one of these two
 *   ms                milliseconds
 *   dtype B H d       of the problem; what varies is named in the legend
 *   mask              each has figures of its own
 *   dir               fwd, bwd or fwd+bwd: a panel each
 *   status            ok, or why there is no result
 * Others are left alone.  Blank lines and those that begin with # are none. */
#ifndef EXPERIMENTS_REPORT_EXTERNAL_RECORDS_H
#define EXPERIMENTS_REPORT_EXTERNAL_RECORDS_H

#include "experiments/report/figures.h"

struct attn_external_row;
struct attn_external_records {
    char source[300];              /* "PyTorch on one H200: FILE"; FILE where it has no name */
    char stem[32];                 /* for names of figures */
    struct attn_external_row *row; /* [n] by mask, curve, panel and L */
    int64_t n;
};

/* "[NAME=]FILE".  EINVAL: it cannot be read, or what a line says is wrong, with its number; a
 * price or a ledger is wrong, too, and so is a point that is there twice.  After a failure there is
 * nothing to free. */
enum attn_status attn_external_records_read(const char *file, struct attn_external_records *records,
                                            struct attn_error *err);
void attn_external_records_free(struct attn_external_records *records);

/* Add figures of memory and of time, one of each for each mask, to others; they borrow from the
 * records. */
void attn_external_records_draw(const struct attn_external_records *records,
                                struct attn_figures *figures);

#endif
