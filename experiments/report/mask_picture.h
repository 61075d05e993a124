/* A mask to look at: which key each query of batch 0, head 0 sees. */
#ifndef EXPERIMENTS_REPORT_MASK_PICTURE_H
#define EXPERIMENTS_REPORT_MASK_PICTURE_H

#include <stdio.h>

#include "ref/mask/mask.h"

/* Queries and keys that a picture may have. */
enum { ATTN_PICTURE_TEXT_MOST = 512, ATTN_PICTURE_SVG_MOST = 4096 };

/* One row of text: '#' for a key that query i sees, '.' for one that it does not; n_key bytes and
 * '\0'. */
void attn_picture_row(const struct attn_mask *mask, int64_t i, char *row);

/* PATH, which ends in .svg, by gnuplot, and beside it the script that drew it, .gp, to be edited
 * and run again.  EINVAL: another name; ENOMEM: it cannot be written, or there is no gnuplot;
 * EINTERNAL with gnuplot's own words. */
enum attn_status attn_picture_draw(const struct attn_mask *mask, const char *path,
                                   struct attn_error *err);

#endif
