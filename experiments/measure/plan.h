/* Plans: what to measure, written down in a small readable file (docs/measuring.md).
 *
 *      rounds = 5
 *      budget = 180                    # seconds
 *      heads = 2 ; dim = 64            # for every group below
 *      group length-causal
 *        spec   = dense tiled-textbook ring:ranks=2
 *        length = 256 512 1024 2048
 *        mask   = causal(br)
 *        pass   = fwd bwd
 *        limit dense = 1024            # the longest length of a spec,
 *        limit ring:ranks=2 bwd = 512  # of a spec in one pass, or in one mask
 *        once = 1024                   # beyond: one process and its first call
 *        label dense = Dense           # the name of its curves in legends
 *
 * A point beyond a limit is not measured: its price is recorded, and drawn as a dashed line.
 * A group is the product of its lists.  Keys of a group that stand before the first group hold
 * for all groups; a group replaces what it names again.
 */
#ifndef EXPERIMENTS_MEASURE_PLAN_H
#define EXPERIMENTS_MEASURE_PLAN_H

#include "experiments/cli/flags.h"
#include "experiments/measure/group_words.h"
#include "experiments/measure/subjects.h"
#include "experiments/price/stack.h"
#include "optimized/registry.h"
#include "tests/harness/inputs/case.h"

/* One thing to be measured, `rounds` times. */
struct attn_plan_point {
    char group[32];
    char spec_text[128];
    struct attn_spec spec;               /* of one of ours                   */
    const struct attn_subject *external; /* NULL: one of ours (borrowed)           */
    struct attn_case c;
    char text[ATTN_CASE_TEXT]; /* of c */
    struct attn_stack layers;  /* n 0: one call */
    int is_priced;             /* beyond a limit: its price is recorded, and nothing runs */
    int is_once;               /* one process, and no call after its first one            */
    int64_t keys;              /* of its group; -1: as many as queries                    */
    int64_t once;              /* of its group: beyond this length                        */
    int64_t peak;              /* 1: P and read bandwidth are measured beside the calls   */
};

enum { ATTN_PLAN_POINTS = 10000 }; /* at most: hours of measuring even if each takes a second */

struct attn_plan {
    int64_t rounds;     /* fresh processes for each point                            (5)   */
    int64_t repeat;     /* timed calls in each process, after the first one, at most (10)  */
    double enough_s;    /* of timed calls in a process                               (0.3) */
    double budget_s;    /* wall seconds for the whole session; 0: no limit           (0)   */
    double timeout_s;   /* for one process                                           (300) */
    int64_t verify_all; /* longest length at which every element is verified         (2048) */
    uint64_t seed;      /* of the order of points                                    (1)   */
    int64_t shuffle;    /* 1: round 0 in random order too, not from cheap to dear    (0)   */
    int64_t n;
    struct attn_plan_point *point; /* in the order written: group, mask, pass, spec, length */
    struct json_t *labels; /* an array: of each group that names curves (docs/measuring.md) */
};

/* A whole text, or a whole file.  Messages begin with "NAME:LINE: ".  externals (may be NULL) are
 * borrowed by the plan too: their names are words of `spec`, and they join every group that does
 * not name them, but not groups "ranks...".  EINVAL: an unknown key (the message names those there
 * are), a value that is none, a key set twice, points that are there twice; after a failure there
 * is nothing to free. */
enum attn_status attn_plan_parse(const char *name, const char *text,
                                 const struct attn_subjects *externals, struct attn_plan *plan,
                                 struct attn_error *err);

/* The same of a file; flags replace what it says: a key of the plan, or the lengths or the masks of
 * all groups that measure.  EINVAL too: a flag of another key, or with a value that is none. */
enum attn_status attn_plan_read(const char *path, const struct attn_cli_list *flags,
                                const struct attn_subjects *externals, struct attn_plan *plan,
                                struct attn_error *err);

/* The same keys as flags, lists with commas: one group, "length". */
enum attn_status attn_plan_from_flags(const struct attn_cli_list *flags,
                                      const struct attn_subjects *externals, struct attn_plan *plan,
                                      struct attn_error *err);

/* Flags of shapes: keys of a plan, and a model, which gives what no other flag does. */
struct attn_plan_shapes {
    struct attn_cli_list keys;
    const char *model;
};
#define ATTN_PLAN_KEY(at, id, ...) \
    ATTN_TAKES(id, (at) + offsetof(struct attn_plan_shapes, keys), __VA_ARGS__)
#define ATTN_PLAN_SHAPE_FLAGS(at)                                                                  \
    ATTN_PLAN_KEY(at, LENGTH, NULL, ATTN_KIND_ONCE),                                               \
        ATTN_PLAN_KEY(at, KEYS, NULL, ATTN_KIND_ONCE),                                             \
        ATTN_PLAN_KEY(at, BATCH, "1", ATTN_KIND_ONCE),                                             \
        ATTN_PLAN_KEY(at, HEADS, "1", ATTN_KIND_ONCE),                                             \
        ATTN_PLAN_KEY(at, KV_HEADS, NULL, ATTN_KIND_ONCE),                                         \
        ATTN_PLAN_KEY(at, DIM, "64", ATTN_KIND_ONCE), ATTN_PLAN_KEY(at, DV, NULL, ATTN_KIND_ONCE), \
        ATTN_PLAN_KEY(at, MASK, NULL),                                                             \
        ATTN_PLAN_KEY(at, DTYPE, "f32", ATTN_KIND_ONCE, "f64|f32|bf16|f16|all"),                   \
        ATTN_TAKES(MODEL, (at) + offsetof(struct attn_plan_shapes, model))

/* Points of no spec: every mask with every storage type, dim and length, in this order.  Without a
 * length they have 0 tokens; whether their masks fit is not looked at. */
enum attn_status attn_plan_of_shapes(const struct attn_cli_list *keys, struct attn_plan *plan,
                                     struct attn_error *err);

/* Was the key given? */
int attn_plan_has_key(const struct attn_cli_list *keys, const char *name);

void attn_plan_free(struct attn_plan *plan);

/* A spec without its option `ranks`: "ring:ranks=4,local=dense" gives "ring:local=dense".
 * text has room for 128 bytes. */
void attn_spec_without_ranks(const char *spec, char text[128]);

/* The bytes of the spec that a name in a legend begins with: "SPEC, MASK", "SPEC (R=2)". */
size_t attn_spec_length(const char *label);

/* Does a name of a curve, "SPEC", "SPEC, MASK" or "SPEC (R=2)", begin with the spec, or with the
 * spec without `ranks`? */
int attn_spec_is_named(const char *spec, const char *curve);

#endif
