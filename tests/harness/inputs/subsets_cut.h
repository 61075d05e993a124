/* The fill `subsets`: how the keys of one mask are dealt, and which row chooses which subset. */
#ifndef TESTS_HARNESS_SUBSETS_CUT_H
#define TESTS_HARNESS_SUBSETS_CUT_H

#include "ref/attn.h"

enum { ATTN_NO_SUBSET = -1 };

/* n keys: first, first + step, ... */
struct attn_subset {
    int64_t first, step, n;
};

struct attn_subset_layout {
    /* the caller's, zeros else: extents, query heads of a kv head, bits of a code */
    int64_t n_query, n_key, group, d;
    int bits;
    int n, capacity;
    struct attn_subset *set; /* in the order of their keys, but for those that are spread */
    int32_t *set_of;         /* [n_key]; ATTN_NO_SUBSET: no row sees the key */
    int32_t *choice;         /* [n_query], or [group][n_query] where heads share them out */
    int64_t *lo, *hi;        /* [n_query] what a row sees; lo == hi: nothing */
    int is_shared;
    /* Bounds of the cut: keys from begin to end are seen; those from `from` to `to` by all rows. */
    int64_t begin, from, to, end, rows;
};

/* lo and hi, as batch b of the problem has them.  EINVAL: a row sees more than one run of keys, or
 * heads have different masks; ENOMEM.  To be freed in any case. */
enum attn_status attn_subset_layout_read(const struct attn_problem *problem, int64_t b,
                                         struct attn_subset_layout *layout, struct attn_error *err);

/* Then the rest.  EINVAL: the codes are too few. */
enum attn_status attn_subset_layout_cut(struct attn_subset_layout *layout, struct attn_error *err);
void attn_subset_layout_free(struct attn_subset_layout *layout);

/* 1: row i sees all of it. */
int attn_subset_is_seen(const struct attn_subset_layout *layout, int64_t i,
                        const struct attn_subset *set);

#endif
