/* Prices that a submission hands in as closed forms (docs/labs/07-prices), and the ledgers that
 * they are compared with. */
#ifndef EXPERIMENTS_RIM_GRADE_PRICES_H
#define EXPERIMENTS_RIM_GRADE_PRICES_H

#include "docs/labs/07-prices/prices.h"
#include "ref/attn.h"

enum { ATTN_PRICES = 8, ATTN_PRICE_PARTS = 24 }; /* problems of a criterion; buffers of one */

/* A problem with its answer.  Names of buffers are static. */
struct attn_price_part {
    const char *name;
    int64_t bytes;
};
struct attn_priced_problem {
    struct price_problem problem;
    char text[200]; /* for people */
    int64_t want;   /* bytes: the sum of its parts */
    int parts;
    struct attn_price_part part[ATTN_PRICE_PARTS];
};

/* Problem n of ATTN_PRICES about something, "dense", "ring-textbook", "open-sora": drawn by the
 * seed, run, and read off its ledger (price_problems.c).  EINVAL: there is no such thing. */
enum attn_status attn_price_ask(const char *of, const char *seed, int n,
                                struct attn_priced_problem *asked, struct attn_error *err);

/* `attnlab grade prices FILE.so`: answer the problems of standard input, a line of JSON each, by a
 * submission in C, one number a line.  An exit status. */
int attn_price_serve(const char *path);

#endif
