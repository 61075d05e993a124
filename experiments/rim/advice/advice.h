/* `attnlab advise SPEC`: what to change first.
 *
 * A table of changes is tried on one SPEC of one case, one change at a time, and where none of
 * them fits, two that keep the result.  Each has a price of its own, by the same formula as every
 * price, and is shown with the bytes that it brings, whether it fits then, the longest length then,
 * and the command that prints that price.  The change that brings most stands first.  Changes that
 * alter the result are kept apart; refused ones are named with their reasons.  Nothing is
 * estimated. */
#ifndef EXPERIMENTS_RIM_ADVICE_ADVICE_H
#define EXPERIMENTS_RIM_ADVICE_ADVICE_H

#include "experiments/price/show.h"

enum { ATTN_ADVICE_TEXT = 330, ATTN_ADVICE_MOST = 160 };

/* One change. */
struct attn_advice {
    char what[ATTN_ADVICE_TEXT]; /* "tiled", "mask=bool2d", "ring on 4 ranks", "bf16" */
    struct attn_spec spec;       /* with it */
    struct attn_stack stack;
    struct attn_case c;
    int changes_result;   /* more than the order of sums */
    double bytes, brings; /* what is needed then, and how much less that is; may be < 0 */
    const char
        *lacks;      /* what does not run so, and is only priced (attn_cost.lacks); NULL: it runs */
    int64_t longest; /* tokens; -1: not looked for, because a price takes long */
    int order;       /* of the table */
    struct attn_error refused; /* status ATTN_OK: it is not */
};

/* Changes that keep the result, then those that alter it, then refused ones; in each part the most
 * first, in the order of the table in a tie. */
struct attn_advices {
    double bytes;    /* what is needed as it is */
    int64_t longest; /* as above */
    int n;
    struct attn_advice at[ATTN_ADVICE_MOST];
};

/* ENOTSUP, EINVAL: what was asked for has no price itself. */
enum attn_status attn_price_advices(const struct attn_price_asked *asked,
                                    struct attn_advices *advices, struct attn_error *err);

/* The question with the change in it, which the change's price answers.  Borrowed from both. */
struct attn_price_asked attn_advice_asked(const struct attn_price_asked *asked,
                                          struct attn_advice *x);

/* ---- shown (advice_show.c) ------------------------------------------------------------------- */

/* The command that prints the price of this. */
void attn_price_command(const struct attn_price_asked *asked, char *text, size_t size);

/* Print all that.  all: NULL for text.  An exit status. */
int attn_price_advise(const struct attn_price_asked *asked, json_t *all);

#endif
