/* Slices: the rows that one figure is about.  A group of the plan is one slice, unless something
 * beside its subject varies too: each mask of a length group is a slice of its own, and so is
 * each length (and mask) of the others.
 *
 * The first word of a group's name says what it varies:
 *   length-WORD   L           figures memory, time, error
 *   ranks[-WORD]  P           figures rank-memory, bytes-sent
 *   density[-WORD] density    figure csr-density
 *   anything else: a table and no figure
 */
#ifndef EXPERIMENTS_REPORT_SLICES_H
#define EXPERIMENTS_REPORT_SLICES_H

#include "experiments/report/summary.h"

enum attn_slice_kind { ATTN_SLICE_LENGTH, ATTN_SLICE_RANKS, ATTN_SLICE_DENSITY, ATTN_SLICE_OTHER };

struct attn_slice {
    enum attn_slice_kind kind;
    char group[32];
    char tag[40];                     /* for names of files: "causal", "window-2", "" */
    char problem[2 * ATTN_CASE_TEXT]; /* "B=1, H=8, G=8, d=64, f32; mask causal(br); ..."    */
    const struct attn_row **row;      /* in the order of the summary (borrowed) */
    int64_t n;
};

struct attn_slices {
    struct attn_slice *slice;
    int n;
};

enum attn_status attn_slices_make(const struct attn_summary *summary, struct attn_slices *slices,
                                  struct attn_error *err);
void attn_slices_free(struct attn_slices *slices);

/* A row's name in legends: its spec, and P where the spec leaves it at its preset. */
void attn_row_label(const struct attn_row *row, char text[160]);

int attn_slice_has_pass(const struct attn_slice *slice, enum attn_pass pass);

/* The largest L at which every spec of the slice that has a good row in this pass has one;
 * 0 when there is none. */
int64_t attn_slice_common_length(const struct attn_slice *slice, enum attn_pass pass);

/* The row of a spec (as rows have it), pass and length; NULL when there is none. */
const struct attn_row *attn_slice_find(const struct attn_slice *slice, const char *spec,
                                       enum attn_pass pass, int64_t n_query);

/* What was not measured, a line for each reason: "Not measured, dropped by the time budget: dense
 * 8,192 (forward), 4,096 (backward); ring 16,384 (forward)".  "" when everything was. */
void attn_slice_not_run(const struct attn_slice *slice, char *text, size_t size);

/* Curves that the plan itself ends before the slice's largest length: "Not in the plan, backward
 * beyond 4,096: dense, csr-textbook".  "" for slices of other kinds. */
void attn_slice_not_planned(const struct attn_slice *slice, char *text, size_t size);

/* "too big for this machine", "dropped by the time budget", ... */
const char *attn_status_phrase(enum attn_point_status status);

/* "forward", "backward". */
const char *attn_pass_word(enum attn_pass pass);

#endif
