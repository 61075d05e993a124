/* Statistics of the curves of a figure group: exponents, guides, the frontier, crossings.  They
 * stand in its rows (summary.h) and are columns of summary.csv. */
#ifndef EXPERIMENTS_REPORT_CURVES_H
#define EXPERIMENTS_REPORT_CURVES_H

#include "experiments/report/groups.h"

/* Below this, pages of stack and libraries outweigh buffers, and VmHWM says nothing about them. */
enum { ATTN_RESIDENT_FROM = 1 << 20 };

/* Fill what each row is to its curve, and the findings of the groups.  A curve is the rows of one
 * label and pass. */
void attn_curves_study(struct attn_figure_groups *groups);

/* The calls that a row's time is of: warm ones, else first ones; n = 0: none. */
const struct attn_spread *attn_row_calls(const struct attn_row *row);

/* Has it a place where memory stands against time: bytes, and the time of a call, not of simulated
 * ranks? */
int attn_row_is_choice(const struct attn_row *row);

/* Is it ours, not a plug-in's or a command's? */
int attn_row_is_ours(const struct attn_row *row);

/* Has its implementation no ranks, so that it is the same at every R? */
int attn_row_is_level(const struct attn_row *row);

/* The most ranks of a row of the group. */
int attn_group_most_ranks(const struct attn_figure_group *group);

#endif
