/* Plans: read line by line into a draft of groups, then multiplied out.
 *
 * What is known to be wrong when a line is read is said then, with the line's number; what needs
 * a whole group (a mask needs its length) is said when the groups are multiplied out, with the
 * number of the group's line. */
#include "experiments/plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli.h"
#include "ref/mask.h"

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

static const struct {
    const char *name, *help, *preset;
    int64_t min, max; /* of an integer; max 0: not an integer */
    int is_list;
} key_table[KEYS] = {
    {"spec", "spec        implementations with options: dense ring:ranks=2", "", 0, 0, 1},
    {"length", "length      lengths: as many queries as keys", "", 0, 1 << 30, 1},
    {"mask", "mask        masks, each without blanks  [none]", "none", 0, 0, 1},
    {"pass", "pass        fwd, bwd  [fwd]", "fwd", 0, 0, 1},
    {"heads", "heads       query heads  [1]", "1", 1, 1 << 20, 0},
    {"kv-heads", "kv-heads    key/value heads  [as heads]", "", 1, 1 << 20, 0},
    {"dim", "dim         features of a query and of a key  [64]", "64", 0, 1 << 20, 0},
    {"dv", "dv          features of a value  [as dim]", "", 0, 1 << 20, 0},
    {"batch", "batch       batch  [1]", "1", 1, 1 << 20, 0},
    {"dtype", "dtype       storage type  [f32]", "f32", 0, 0, 0},
    {"fill", "fill        test data  [normal]", "normal", 0, 0, 0},
    {"data-seed", "data-seed   seed of the test data  [1]", "1", 0, INT64_MAX, 0},
    {"rounds", "rounds      fresh processes for each point  [5]", "5", 1, 1000, 0},
    {"repeat", "repeat      timed calls in a process after its first, at most  [10]", "10", 1, 64,
     0},
    {"enough", "enough      seconds of timed calls in a process after which it stops  [0.3]", "0.3",
     0, 0, 0},
    {"budget", "budget      seconds for the whole session; 0: no limit  [0]", "0", 0, 0, 0},
    {"timeout", "timeout     seconds for one process  [300]", "300", 0, 0, 0},
    {"verify-all", "verify-all  longest length at which all elements are verified  [2048]", "2048",
     0, 1 << 30, 0},
    {"seed", "seed        seed of the order of points  [1]", "1", 0, INT64_MAX, 0},
};

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
    struct group *next;
};

struct attn_plan_draft {
    char *value[KEYS]; /* of the plan: ROUNDS and up */
    struct group presets, *first, *now;
    int line; /* being read; 0: flags */
};

const char *attn_plan_help(int line)
{
    return line >= 0 && line < KEYS ? key_table[line].help : NULL;
}

struct attn_plan_draft *attn_plan_begin(void)
{
    struct attn_plan_draft *draft = calloc(1, sizeof *draft);
    if (draft != NULL)
        draft->now = &draft->presets;
    return draft;
}

void attn_plan_at(struct attn_plan_draft *draft, int line)
{
    draft->line = line;
}

static void group_clear(struct group *group)
{
    for (int key = 0; key < GROUP_KEYS; key++)
        free(group->value[key]);
    while (group->limits != NULL) {
        struct limit *next = group->limits->next;
        free(group->limits);
        group->limits = next;
    }
}

void attn_plan_abandon(struct attn_plan_draft *draft)
{
    if (draft == NULL)
        return;
    while (draft->first != NULL) {
        struct group *next = draft->first->next;
        group_clear(draft->first);
        free(draft->first);
        draft->first = next;
    }
    group_clear(&draft->presets);
    for (int key = 0; key < KEYS; key++)
        free(draft->value[key]);
    free(draft);
}

enum attn_status attn_plan_group(struct attn_plan_draft *draft, const char *name,
                                 struct attn_error *err)
{
    struct group *group = calloc(1, sizeof *group);
    if (group == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
    size_t length = strlen(name);
    if (length == 0 || length >= sizeof group->name || strpbrk(name, " \t\"'=,/") != NULL) {
        free(group);
        return attn_fail(err, ATTN_EINVAL,
                         "a group needs a name of 1 to 31 letters, digits and -, got '%.60s'",
                         name);
    }
    struct group **end = &draft->first;
    for (; *end != NULL; end = &(*end)->next)
        if (strcmp((*end)->name, name) == 0) {
            free(group);
            return attn_fail(err, ATTN_EINVAL, "there are two groups named %s", name);
        }
    memcpy(group->name, name, length + 1);
    group->line = draft->line;
    draft->now = *end = group;
    return ATTN_OK;
}

/* ---- one value ---------------------------------------------------------------------------- */

/* The next blank-separated word of *text, cut out in place; NULL after the last. */
static char *next_word(char **text)
{
    *text += strspn(*text, " \t");
    if (**text == '\0')
        return NULL;
    char *word = *text;
    *text += strcspn(*text, " \t");
    if (**text != '\0')
        *(*text)++ = '\0';
    return word;
}

static enum attn_status check_word(int key, const char *word, struct attn_error *err)
{
    struct attn_spec spec;
    int64_t integer;
    double real;
    if (key == SPEC) {
        if (strlen(word) >= sizeof((struct attn_plan_point *)0)->spec_text)
            return attn_fail(err, ATTN_EINVAL, "spec '%.40s...' is longer than 127 bytes", word);
        return attn_spec_parse(word, &spec, err);
    }
    if (key == PASS && strcmp(word, "fwd") != 0 && strcmp(word, "bwd") != 0)
        return attn_fail(err, ATTN_EINVAL, "pass '%.40s': there are fwd and bwd", word);
    if (key == MASK && strlen(word) >= SUBJECT_TEXT)
        return attn_fail(err, ATTN_EINVAL, "mask '%.40s...' is longer than 255 bytes", word);
    if (key_table[key].max > 0 &&
        !attn_cli_int(word, key_table[key].min, key_table[key].max, &integer))
        return attn_fail(err, ATTN_EINVAL, "%s = '%.40s' is not an integer from %lld to %lld",
                         key_table[key].name, word, (long long)key_table[key].min,
                         (long long)key_table[key].max);
    if ((key == ENOUGH || key == BUDGET || key == TIMEOUT) &&
        !(attn_cli_double(word, &real) && real >= 0 && real < 1e9))
        return attn_fail(err, ATTN_EINVAL, "%s = '%.40s' is not a number of seconds",
                         key_table[key].name, word);
    if (key == DTYPE) {
        for (int dtype = 0; dtype < ATTN_DTYPES; dtype++)
            if (strcmp(word, attn_dtype_name((enum attn_dtype)dtype)) == 0)
                return ATTN_OK;
        return attn_fail(err, ATTN_EINVAL, "dtype '%.40s': there are f64, f32, bf16, f16", word);
    }
    if (key == FILL && attn_fill_find(word) < 0)
        return attn_fail(err, ATTN_EINVAL, "fill '%.40s': attnlab list names those there are",
                         word);
    return ATTN_OK;
}

static enum attn_status check_value(int key, const char *value, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    int words = 0;
    char *copy = strdup(value), *rest = copy;
    if (copy == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
    for (char *word; status == ATTN_OK && (word = next_word(&rest)) != NULL; words++)
        status = check_word(key, word, err);
    free(copy);
    if (status == ATTN_OK && words == 0)
        status = attn_fail(err, ATTN_EINVAL, "%s = needs a value", key_table[key].name);
    if (status == ATTN_OK && words > 1 && !key_table[key].is_list)
        status = attn_fail(err, ATTN_EINVAL, "%s takes one value, got '%.60s'", key_table[key].name,
                           value);
    return status;
}

static enum attn_status unknown_key(const char *key, struct attn_error *err)
{
    char names[256] = "";
    for (int k = 0; k < KEYS; k++) {
        strcat(names, k == 0 ? "" : " "); /* all names together: 125 bytes */
        strcat(names, key_table[k].name);
    }
    return attn_fail(err, ATTN_EINVAL,
                     "unknown key '%.40s'; there are %s, and the lines `group NAME` and "
                     "`limit SUBJECT... = LENGTH`",
                     key, names);
}

static enum attn_status put(struct attn_plan_draft *draft, const char *name, const char *value,
                            int append, struct attn_error *err)
{
    int key = 0;
    while (key < KEYS && strcmp(key_table[key].name, name) != 0)
        key++;
    if (key == KEYS)
        return unknown_key(name, err);
    if (key >= GROUP_KEYS && draft->now != &draft->presets && draft->line > 0)
        return attn_fail(err, ATTN_EINVAL, "%s is the plan's: it goes before the first group",
                         name);
    char **slot = key < GROUP_KEYS ? &draft->now->value[key] : &draft->value[key];
    if (append && !key_table[key].is_list)
        return attn_fail(err, ATTN_EINVAL, "%s takes one value: nothing can be added to it", name);
    if (*slot != NULL && !append)
        return attn_fail(err, ATTN_EINVAL, "%s is set twice%s", name,
                         key_table[key].is_list ? "; `+=` adds to a list" : "");
    enum attn_status status = check_value(key, value, err);
    if (status != ATTN_OK)
        return status;
    char *joined = NULL;
    if (asprintf(&joined, "%s %s", *slot != NULL ? *slot : "", value) < 0)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
    free(*slot);
    *slot = joined;
    return ATTN_OK;
}

enum attn_status attn_plan_set(struct attn_plan_draft *draft, const char *key, const char *value,
                               struct attn_error *err)
{
    return put(draft, key, value, 0, err);
}

enum attn_status attn_plan_add(struct attn_plan_draft *draft, const char *key, const char *value,
                               struct attn_error *err)
{
    return put(draft, key, value, 1, err);
}

enum attn_status attn_plan_limit(struct attn_plan_draft *draft, char *subjects, const char *length,
                                 struct attn_error *err)
{
    struct limit *limit = calloc(1, sizeof *limit);
    if (limit == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
    limit->inherited = draft->now == &draft->presets;
    for (char *word; (word = next_word(&subjects)) != NULL; limit->n_subjects++) {
        if (limit->n_subjects == MAX_SUBJECTS || strlen(word) >= SUBJECT_TEXT) {
            free(limit);
            return attn_fail(err, ATTN_EINVAL, "limit: at most %d subjects of 255 bytes",
                             MAX_SUBJECTS);
        }
        strcpy(limit->subject[limit->n_subjects], word);
    }
    if (limit->n_subjects == 0 || !attn_cli_int(length, 0, 1 << 30, &limit->length)) {
        free(limit);
        return attn_fail(err, ATTN_EINVAL,
                         "a limit reads `limit SUBJECT... = LENGTH`, where a subject is an "
                         "implementation, a spec, a pass or a mask");
    }
    limit->next = draft->now->limits;
    draft->now->limits = limit;
    return ATTN_OK;
}

/* ---- multiplied out ----------------------------------------------------------------------- */

static const char *value_of(const struct attn_plan_draft *draft, const struct group *group, int key)
{
    if (key >= GROUP_KEYS)
        return draft->value[key] != NULL ? draft->value[key] : key_table[key].preset;
    if (group->value[key] != NULL)
        return group->value[key];
    if (draft->presets.value[key] != NULL)
        return draft->presets.value[key];
    return key_table[key].preset;
}

/* Values were checked when they were set; a value that is not there takes the other one. */
static int64_t integer_of(const struct attn_plan_draft *draft, const struct group *group, int key,
                          int64_t otherwise)
{
    const char *text = value_of(draft, group, key);
    text += strspn(text, " ");
    return *text == '\0' ? otherwise : strtoll(text, NULL, 10);
}

static double real_of(const struct attn_plan_draft *draft, int key)
{
    return strtod(value_of(draft, NULL, key), NULL);
}

/* Is the point within every limit?  Marks the subjects that were met. */
static int within(struct limit *limits, const struct attn_plan_point *point)
{
    int ok = 1;
    for (struct limit *limit = limits; limit != NULL; limit = limit->next) {
        int met = 0;
        for (int s = 0; s < limit->n_subjects; s++) {
            const char *subject = limit->subject[s];
            if (strcmp(subject, point->spec.impl->name) == 0 ||
                strcmp(subject, point->spec_text) == 0 ||
                strcmp(subject, attn_pass_name(point->c.pass)) == 0 ||
                strcmp(subject, point->c.mask) == 0)
                met += limit->used[s] = 1;
        }
        if (met == limit->n_subjects && point->c.n_query > limit->length)
            ok = 0;
    }
    return ok;
}

/* The shape, the mask and the text of a point whose words are in place. */
static enum attn_status complete(const struct attn_plan_draft *draft, const struct group *group,
                                 struct attn_plan_point *point, struct attn_error *err)
{
    struct attn_case *c = &point->c;
    c->n_key = c->n_query;
    c->batch = integer_of(draft, group, BATCH, 1);
    c->heads = integer_of(draft, group, HEADS, 1);
    c->kv_heads = integer_of(draft, group, KV_HEADS, c->heads);
    c->d_key = integer_of(draft, group, DIM, 64);
    c->d_value = integer_of(draft, group, DV, c->d_key);
    c->seed = (uint64_t)integer_of(draft, group, DATA_SEED, 1);
    c->scale = (double)NAN;
    const char *text = value_of(draft, group, DTYPE);
    text += strspn(text, " ");
    for (int dtype = 0; dtype < ATTN_DTYPES; dtype++)
        if (strcmp(text, attn_dtype_name((enum attn_dtype)dtype)) == 0)
            c->dtype = (enum attn_dtype)dtype;
    text = value_of(draft, group, FILL);
    c->fill = (enum attn_fill)attn_fill_find(text + strspn(text, " "));
    if (c->kv_heads > c->heads || c->heads % c->kv_heads != 0)
        return attn_fail(err, ATTN_EINVAL, "kv-heads = %lld does not divide heads = %lld",
                         (long long)c->kv_heads, (long long)c->heads);
    struct attn_mask *mask = NULL;
    struct attn_mask_shape shape = {c->batch, c->heads, c->n_query, c->n_key};
    enum attn_status status = attn_mask_parse(c->mask, &shape, NULL, &mask, err);
    attn_mask_free(mask);
    if (status == ATTN_OK)
        attn_case_print(c, point->text);
    return status;
}

static enum attn_status append(struct attn_plan *plan, const struct attn_plan_point *point,
                               struct attn_error *err)
{
    if (plan->n == ATTN_PLAN_POINTS)
        return attn_fail(err, ATTN_EINVAL, "more than %d points: make plans of fewer",
                         ATTN_PLAN_POINTS);
    if ((plan->n & (plan->n - 1)) == 0) { /* room doubles at every power of two */
        size_t room = plan->n == 0 ? 1 : 2 * (size_t)plan->n;
        struct attn_plan_point *more = realloc(plan->point, room * sizeof *more);
        if (more == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for %zu points", room);
        plan->point = more;
    }
    plan->point[plan->n++] = *point;
    return ATTN_OK;
}

/* words[] runs over mask, pass, spec, length: the lists, slowest first. */
static enum attn_status multiply(const struct attn_plan_draft *draft, struct group *group,
                                 int level, struct attn_plan_point *point, struct attn_plan *plan,
                                 struct attn_error *err)
{
    static const int order[] = {MASK, PASS, SPEC, LENGTH};
    if (level == 4) {
        enum attn_status status = complete(draft, group, point, err);
        /* every limit is looked at, so that those without a subject are found */
        int ok = within(group->limits, point) & within(draft->presets.limits, point);
        return status == ATTN_OK && ok ? append(plan, point, err) : status;
    }
    enum attn_status status = ATTN_OK;
    char *copy = strdup(value_of(draft, group, order[level])), *rest = copy;
    if (copy == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
    for (char *word; status == ATTN_OK && (word = next_word(&rest)) != NULL;) {
        if (order[level] == MASK)
            strcpy(point->c.mask, word);
        else if (order[level] == PASS)
            point->c.pass = strcmp(word, "bwd") == 0 ? ATTN_BACKWARD : ATTN_FORWARD;
        else if (order[level] == LENGTH)
            point->c.n_query = strtoll(word, NULL, 10);
        else {
            status = attn_spec_parse(word, &point->spec, err);
            if (status != ATTN_OK)
                break;
            attn_spec_print(&point->spec, point->spec_text, sizeof point->spec_text);
        }
        status = multiply(draft, group, level + 1, point, plan, err);
    }
    free(copy);
    return status;
}

static enum attn_status expand(const struct attn_plan_draft *draft, struct group *group,
                               struct attn_plan *plan, struct attn_error *err)
{
    if (*value_of(draft, group, SPEC) == '\0' || *value_of(draft, group, LENGTH) == '\0')
        return attn_fail(err, ATTN_EINVAL, "group %s needs spec and length", group->name);
    struct attn_plan_point *point = calloc(1, sizeof *point);
    if (point == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
    strcpy(point->group, group->name);
    int64_t first = plan->n;
    enum attn_status status = multiply(draft, group, 0, point, plan, err);
    free(point);
    if (status == ATTN_OK)
        status = attn_plan_check_different(plan, first, err);
    for (struct limit *limit = group->limits; status == ATTN_OK && limit != NULL;
         limit = limit->next)
        for (int s = 0; s < limit->n_subjects; s++)
            if (!limit->used[s])
                return attn_fail(err, ATTN_EINVAL,
                                 "group %s: limit names '%.60s', which is no implementation, spec, "
                                 "pass or mask of the group",
                                 group->name, limit->subject[s]);
    return status;
}

enum attn_status attn_plan_finish(struct attn_plan_draft *draft, struct attn_plan *plan, int *line,
                                  struct attn_error *err)
{
    memset(plan, 0, sizeof *plan);
    plan->rounds = integer_of(draft, NULL, ROUNDS, 5);
    plan->repeat = integer_of(draft, NULL, REPEAT, 10);
    plan->enough_s = real_of(draft, ENOUGH);
    plan->budget_s = real_of(draft, BUDGET);
    plan->timeout_s = real_of(draft, TIMEOUT);
    plan->verify_all = integer_of(draft, NULL, VERIFY_ALL, 2048);
    plan->seed = (uint64_t)integer_of(draft, NULL, SEED, 1);
    enum attn_status status = ATTN_OK;
    if (line != NULL)
        *line = draft->line;
    if (draft->first == NULL)
        status = attn_fail(err, ATTN_EINVAL, "there is no `group NAME`: nothing to measure");
    for (struct group *group = draft->first; status == ATTN_OK && group != NULL;
         group = group->next) {
        if (line != NULL)
            *line = group->line;
        status = expand(draft, group, plan, err);
    }
    attn_plan_abandon(draft);
    if (status != ATTN_OK)
        attn_plan_free(plan);
    return status;
}

void attn_plan_free(struct attn_plan *plan)
{
    free(plan->point);
    memset(plan, 0, sizeof *plan);
}
