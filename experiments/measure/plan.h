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
 *        title = causal attention      # of its figures; also figure, x-range, y-range
 *        label dense = Dense           # a name in legends; colour dense = D55E00
 *
 * What is beyond a limit is not measured: its price is recorded, and drawn as a dashed line.
 * A group is the product of its lists.  Keys of a group that stand before the first group hold
 * for all groups; a group replaces what it names again.
 */
#ifndef EXPERIMENTS_MEASURE_PLAN_H
#define EXPERIMENTS_MEASURE_PLAN_H

#include "experiments/measure/external_specs.h"
#include "optimized/registry.h"
#include "tests/harness/cases/cases.h"

/* One thing to be measured, `rounds` times. */
struct attn_plan_point {
    char group[32];
    char spec_text[128];
    struct attn_spec spec;                     /* of an entrant: its impl and no options */
    const struct attn_external_spec *external; /* NULL: one of ours (borrowed)           */
    struct attn_case c;
    char text[ATTN_CASE_TEXT]; /* of c */
    int is_priced;             /* beyond a limit: its price is recorded, and nothing runs */
    int is_once;               /* one process, and no call after its first one            */
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
    int64_t n;
    struct attn_plan_point *point; /* in the order written: group, mask, pass, spec, length */
    struct json_t *figures; /* an array: what groups say of their figures (docs/measuring.md) */
};

/* A plan under construction. */
struct attn_plan_draft;

struct attn_plan_draft *attn_plan_begin(void); /* NULL: no memory */

/* Implementations that are not ours: their names are words of `spec` from here on, and they join
 * every group that does not name them, after its own; but not groups "ranks...", which vary what
 * they do not have.  Borrowed by the plan too. */
void attn_plan_invite(struct attn_plan_draft *draft, const struct attn_external_specs *externals);

/* Begin a group; what is set from here on is the group's. */
enum attn_status attn_plan_group(struct attn_plan_draft *draft, const char *name,
                                 struct attn_error *err);

/* Set a key of the plan or of the group; a list's words are separated by blanks.  EINVAL: an
 * unknown key (the message names those there are), a value that is none, a key set twice. */
enum attn_status attn_plan_set(struct attn_plan_draft *draft, const char *key, const char *value,
                               struct attn_error *err);

/* The same, adding words to a list (`key += words` in a file). */
enum attn_status attn_plan_add(struct attn_plan_draft *draft, const char *key, const char *value,
                               struct attn_error *err);

void attn_plan_abandon(struct attn_plan_draft *draft); /* NULL is legal */

/* The longest length of points that match all subjects (blank-separated; cut up in place). */
enum attn_status attn_plan_limit(struct attn_plan_draft *draft, char *subjects, const char *length,
                                 struct attn_error *err);

/* What figures of the group should look like: "figure" (a name that groups share), "title",
 * "x-range", "y-range"; and of a curve, by its name in the legend: "label", "colour". */
enum attn_status attn_plan_wish(struct attn_plan_draft *draft, const char *what, const char *curve,
                                const char *value, struct attn_error *err);

/* What comes next stands in this line of a file; 0: in no file. */
void attn_plan_at(struct attn_plan_draft *draft, int line);

/* Multiply the groups out.  The plan is the caller's; the draft is used up, whatever happens.
 * On failure *line (unless NULL) is that of the group at fault. */
enum attn_status attn_plan_finish(struct attn_plan_draft *draft, struct attn_plan *plan, int *line,
                                  struct attn_error *err);

/* plan_different.c: the points from `first` on, which are those of one group, are all different. */
enum attn_status attn_plan_check_different(const struct attn_plan *plan, int64_t first,
                                           struct attn_error *err);

/* plan_file.c: a whole text, or a whole file.  Messages begin with "NAME:LINE: ".  entrants may be
 * NULL. */
enum attn_status attn_plan_parse(const char *name, const char *text,
                                 const struct attn_external_specs *externals,
                                 struct attn_plan *plan, struct attn_error *err);
enum attn_status attn_plan_read(const char *path, const struct attn_external_specs *externals,
                                struct attn_plan *plan, struct attn_error *err);
void attn_plan_free(struct attn_plan *plan);

/* Help: one line for each key, NULL after the last. */
const char *attn_plan_help(int line);

#endif
