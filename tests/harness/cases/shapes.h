/* Conditions on shapes: which extents an implementation has, as it declares them.
 *
 * A text for each extent: numbers, ranges and steps, such as "8..256 step 8", "1 2 4 8", "1..".
 * An extent that is not declared is free.  Claims say what goes together: dv, cross and gqa
 * (claims.h). */
#ifndef TESTS_HARNESS_CASES_SHAPES_H
#define TESTS_HARNESS_CASES_SHAPES_H

#include "ref/attn.h"
#include "tests/harness/cases/factors.h"

enum { ATTN_RANGES = 16, ATTN_RANGE_OPEN = INT32_MAX };

struct attn_range {
    int32_t from, to, step; /* to: itself one of them; ATTN_RANGE_OPEN */
};
struct attn_shapes {
    struct {
        int n; /* 0: not declared */
        struct attn_range range[ATTN_RANGES];
    } of[ATTN_EXTENTS];
};

/* 1: an extent may be so; one that is nearest to it (the smaller of two). */
int attn_shapes_have(const struct attn_shapes *shapes, int extent, int64_t n);
int64_t attn_shapes_nearest(const struct attn_shapes *shapes, int extent, int64_t n);

/* The extent of a name: "d", "dv", ...  EINVAL lists those there are, or says what a text may
 * be. */
enum attn_status attn_shapes_declare(struct attn_shapes *shapes, const char *name, const char *text,
                                     struct attn_error *err);

/* All in one text, as plug-ins have it: "d: 8..256 step 8; group: 1 2 4 8". */
enum attn_status attn_shapes_parse(const char *text, struct attn_shapes *shapes,
                                   struct attn_error *err);

/* One extent as it was declared. */
void attn_shapes_print(const struct attn_shapes *shapes, int extent, char *text, size_t size);

#endif
