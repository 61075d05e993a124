/* A plan while it is read: groups whose keys are text, before they are multiplied out into points.
 * Of plan_words.c (keys and their values), plan_read.c (text) and plan_points.c (points) alone. */
#ifndef EXPERIMENTS_MEASURE_PLAN_DRAFT_H
#define EXPERIMENTS_MEASURE_PLAN_DRAFT_H

#include "experiments/measure/plan.h"

enum {
#define KEY(id, ...) id,
#include "experiments/measure/plan_keys.def"
#undef KEY
    KEYS,
    GROUP_KEYS = ROUNDS /* those before it are of a group */
};

struct attn_plan_key {
    const char *name, *preset;
    int is_list;
    enum { WORD, INTEGER, SECONDS } kind;
    size_t place;
    int64_t min, max;
};
extern const struct attn_plan_key attn_plan_keys[KEYS];

/* `limit SUBJECT... = LENGTH`: is_met: some point of the group has the subject. */
enum { ATTN_PLAN_SUBJECTS = 4 };
struct attn_plan_limit {
    int64_t length;
    int n, line;
    const char *subject[ATTN_PLAN_SUBJECTS];
    int is_met[ATTN_PLAN_SUBJECTS];
};

/* `label SUBJECT = TEXT`: the name of a curve. */
struct attn_plan_label {
    const char *subject, *text;
    int line;
};

struct attn_plan_group {
    char name[32];
    int line;          /* its own; after a fault, that of the fault */
    char *value[KEYS]; /* as it was written, lists with blanks; NULL: not set */
    int line_of[KEYS]; /* where it was written */
    int n_limits, n_labels;
    struct attn_plan_limit *limit;
    struct attn_plan_label *label;
};

/* Texts of limits and labels are borrowed from what is parsed. */
struct attn_plan_draft {
    struct attn_plan *plan;
    const struct attn_subjects *externals;
    struct attn_plan_group *group; /* the first: what stands before all groups */
    struct attn_plan_group flags;  /* what replaces what all of them say */
    int n;
    int line;         /* being read, or of the group being multiplied out */
    int is_of_shapes; /* of attn_plan_of_shapes */
};

/* KEYS where there is none of that name. */
int attn_plan_key_find(const char *name);

/* The next blank-separated word of *text, cut out in place; NULL after the last. */
char *attn_plan_next_word(char **text);

/* A number goes to its place in `base`, a point or the plan; a word of a group's key goes to a
 * point.  EINVAL: it is none. */
enum attn_status attn_plan_set_number(const struct attn_plan_key *key, const char *word, void *base,
                                      struct attn_error *err);
enum attn_status attn_plan_set_word(const struct attn_subjects *externals, int key,
                                    const char *word, struct attn_plan_point *point,
                                    struct attn_error *err);

/* An array of n things with room for one more: it doubles at every power of two. */
void *attn_plan_reserve(void *array, int64_t n, size_t size);

/* Multiply one group out: its points are added to the plan.  On failure
 * group->line is the line of the fault. */
enum attn_status attn_plan_expand(const struct attn_plan_draft *draft,
                                  struct attn_plan_group *group, struct attn_error *err);

#endif
