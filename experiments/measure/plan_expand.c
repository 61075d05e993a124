/* A draft multiplied out: every point of every group. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/flags.h"
#include "experiments/measure/plan_draft.h"
#include "ref/mask/mask.h"

static const char *value_of(const struct attn_plan_draft *draft, const struct group *group, int key)
{
    if (key >= GROUP_KEYS)
        return draft->value[key] != NULL ? draft->value[key] : attn_plan_keys[key].preset;
    if (group->value[key] != NULL)
        return group->value[key];
    if (draft->presets.value[key] != NULL)
        return draft->presets.value[key];
    return attn_plan_keys[key].preset;
}

/* Values were checked when they were set; a value that is not there takes the other one. */
static int64_t integer_of(const struct attn_plan_draft *draft, const struct group *group, int key,
                          int64_t otherwise)
{
    const char *text = value_of(draft, group, key);
    int64_t number = otherwise;
    char word[32];
    text += strspn(text, " ");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(text, " "), text);
    (void)attn_cli_count(word, 0, 0, &number);
    return number;
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

static enum attn_status set_spec(const struct attn_plan_draft *draft, const char *word,
                                 struct attn_plan_point *point, struct attn_error *err)
{
    point->external = attn_external_specs_find(draft->externals, word);
    if (point->external == NULL) {
        enum attn_status status = attn_spec_parse(word, &point->spec, err);
        if (status == ATTN_OK)
            attn_spec_print(&point->spec, point->spec_text, sizeof point->spec_text);
        return status;
    }
    memset(&point->spec, 0, sizeof point->spec);
    point->spec.impl = &point->external->impl;
    attn_options_preset(point->spec.impl, &point->spec.options);
    strcpy(point->spec_text, point->external->name);
    return ATTN_OK;
}

/* Whether the group's list of specs has this word. */
static int names(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at++)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return 1;
    return 0;
}

/* Those who were not named come after the group's own specs. */
static enum attn_status seat(const struct attn_plan_draft *draft, struct group *group,
                             struct attn_error *err)
{
    const struct attn_external_specs *externals = draft->externals;
    if (strncmp(group->name, "ranks", 5) == 0)
        return ATTN_OK;
    for (int e = 0; externals != NULL && e < externals->n; e++) {
        const char *list = value_of(draft, group, SPEC);
        char *joined = NULL;
        if (names(list, externals->one[e].name))
            continue;
        if (asprintf(&joined, "%s %s", list, externals->one[e].name) < 0)
            return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
        free(group->value[SPEC]);
        group->value[SPEC] = joined;
    }
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
        int64_t once = integer_of(draft, group, ONCE, INT64_MAX);
        point->is_priced = !ok;
        point->is_once = ok && point->c.n_query > once;
        if (!ok && point->external != NULL) /* has no price */
            return status;
        return status == ATTN_OK ? append(plan, point, err) : status;
    }
    enum attn_status status = ATTN_OK;
    char *copy = strdup(value_of(draft, group, order[level])), *rest = copy;
    if (copy == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a plan");
    for (char *word; status == ATTN_OK && (word = attn_plan_word(&rest)) != NULL;) {
        if (order[level] == MASK)
            strcpy(point->c.mask, word);
        else if (order[level] == PASS)
            point->c.pass = strcmp(word, "bwd") == 0 ? ATTN_BACKWARD : ATTN_FORWARD;
        else if (order[level] == LENGTH)
            (void)attn_cli_count(word, 0, 0, &point->c.n_query);
        else if (set_spec(draft, word, point, err) != ATTN_OK) {
            status = ATTN_EINVAL;
            break;
        }
        status = multiply(draft, group, level + 1, point, plan, err);
    }
    free(copy);
    return status;
}

static enum attn_status expand(const struct attn_plan_draft *draft, struct group *group,
                               struct attn_plan *plan, struct attn_error *err)
{
    if (seat(draft, group, err) != ATTN_OK)
        return ATTN_ENOMEM;
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
    plan->figures = json_array();
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
        if (status == ATTN_OK && group->wishes != NULL) {
            json_object_set_new(group->wishes, "group", json_string(group->name));
            json_array_append(plan->figures, group->wishes);
        }
    }
    attn_plan_abandon(draft);
    if (status != ATTN_OK)
        attn_plan_free(plan);
    return status;
}

void attn_plan_free(struct attn_plan *plan)
{
    free(plan->point);
    json_decref(plan->figures);
    memset(plan, 0, sizeof *plan);
}
