/* Figure groups: the rows of records that one figure is about, and what they have in common in
 * words.  A group of the plan is one figure group, unless something beside its subject varies too:
 * each mask of a length group is a figure group of its own, and so is each length of the others.
 *
 * The first word of a group's name says what it varies (experiments/measure/group_words.def); of
 * another word it is a table and no figure.
 */
#ifndef EXPERIMENTS_REPORT_GROUPS_H
#define EXPERIMENTS_REPORT_GROUPS_H

#include <jansson.h>

#include "experiments/report/summary.h"

struct attn_figure_group {
    enum attn_group_kind kind;
    char name[32];                    /* of the plan's group */
    char tag[40];                     /* for names of files: "causal", "window-2", ""            */
    char special[160];                /* for titles: "causal mask", "window of 256, L = 32,768"  */
    char problem[2 * ATTN_CASE_TEXT]; /* "B=1, H=8, G=8, d=64, f32"                              */
    const json_t *labels;             /* of its curves: {SPEC: TEXT} (borrowed); NULL: none      */
    struct attn_row **row;            /* [n] by label, pass and x (borrowed)                     */
    int64_t n;
    char finding_of_bytes[400], finding_of_time[400]; /* in words (curves.h); "" */
    int is_of_one_round[2]; /* a crossing of time, of memory: its interval is unknown */
};

struct attn_figure_groups {
    struct attn_figure_group *group;
    int n;
};

/* labels: the "figure" lines of the records (docs/measuring.md), or NULL; borrowed.  Rows get
 * what they are to their group. */
void attn_groups_make(const struct attn_summary *summary, const json_t *labels,
                      struct attn_figure_groups *groups);
void attn_groups_free(struct attn_figure_groups *groups);

/* The plan's name for a curve, by its whole key or by the spec that it begins with; NULL: none. */
const char *attn_group_label(const struct attn_figure_group *group, const char *key);

/* The name of a row's curve in the legend: what the plan calls it, or its label. */
const char *attn_group_legend(const struct attn_figure_group *group, const struct attn_row *row);

/* Behind the last row of the label and pass of row s, by x. */
int64_t attn_group_curve_end(const struct attn_figure_group *group, int64_t s);

/* Is this row the first of its label? */
int attn_group_is_first(const struct attn_figure_group *group, int64_t s);

int attn_group_has_pass(const struct attn_figure_group *group, enum attn_pass pass);

/* The largest L at which every spec of the group that has a good row in this pass has one;
 * 0 when there is none. */
int64_t attn_group_common_length(const struct attn_figure_group *group, enum attn_pass pass);

/* The row of a label, pass and length; NULL when there is none. */
const struct attn_row *attn_group_find(const struct attn_figure_group *group, const char *label,
                                       enum attn_pass pass, int64_t n_query);

/* "too big for this machine", "dropped by the time budget", ... */
const char *attn_status_phrase(enum attn_point_status status);

/* "forward", "backward". */
const char *attn_pass_word(enum attn_pass pass);

/* The mask of a case in words where there are some: "window of 256", "causal mask"; else as it is
 * written. */
void attn_mask_words(const struct attn_case *c, char text[80]);

#endif
