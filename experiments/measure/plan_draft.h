/* A plan while it is written: what plan.c puts into it and plan_expand.c multiplies out. */
#ifndef EXPERIMENTS_MEASURE_PLAN_DRAFT_H
#define EXPERIMENTS_MEASURE_PLAN_DRAFT_H

#include "experiments/measure/plan.h"

/* Keys of a group, in the order of its value[]; then those of the plan. */
enum {
    SPEC,
    LENGTH,
    MASK,
    PASS,
    HEADS,
    KV_HEADS,
    DIM,
    DV,
    BATCH,
    DTYPE,
    FILL,
    DATA_SEED,
    ONCE,
    GROUP_KEYS,
    ROUNDS = GROUP_KEYS,
    REPEAT,
    ENOUGH,
    BUDGET,
    TIMEOUT,
    VERIFY_ALL,
    SEED,
    KEYS
};

struct attn_plan_key {
    const char *name, *help, *preset;
    int64_t min, max; /* of an integer; max 0: not an integer */
    int is_list;
};
extern const struct attn_plan_key attn_plan_keys[KEYS];

enum { MAX_SUBJECTS = 4, SUBJECT_TEXT = 256 };

/* The longest length of points that match all subjects: implementation, spec, pass or mask. */
struct limit {
    char subject[MAX_SUBJECTS][SUBJECT_TEXT];
    int n_subjects, used[MAX_SUBJECTS], inherited;
    int64_t length;
    struct limit *next;
};

struct group {
    char name[32];
    int line;
    char *value[GROUP_KEYS]; /* NULL: not set */
    struct limit *limits;
    struct json_t *wishes; /* of its figures; NULL: none */
    struct group *next;
};

struct attn_plan_draft {
    char *value[KEYS]; /* of the plan: ROUNDS and up */
    struct group presets, *first, *now;
    int line; /* being read; 0: flags */
    const struct attn_external_specs *externals;
};

/* The next blank-separated word of *text, cut out in place; NULL after the last. */
char *attn_plan_word(char **text);

#endif
