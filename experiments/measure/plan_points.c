/* The groups of a plan multiplied out into points.  Faults that show in a whole group alone (a
 * mask needs its length) are found here. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/plan_draft.h"

static const char *value_of(const struct attn_plan_draft *draft,
                            const struct attn_plan_group *group, int key)
{
    const char *own = group->value[key], *preset = draft->group[0].value[key];
    const char *said = own != NULL ? own : preset != NULL ? preset : attn_plan_keys[key].preset;
    const char *flag = draft->flags.value[key];
    return flag != NULL && *said != '\0' ? flag : said; /* a group without a length has none */
}

/* The line that says the key of a group; the group's, where a flag or no line says it. */
static int line_of(const struct attn_plan_draft *draft, const struct attn_plan_group *group,
                   int key)
{
    const struct attn_plan_group *said = group->value[key] != NULL ? group : &draft->group[0];
    return draft->flags.value[key] == NULL && said->value[key] != NULL ? said->line_of[key]
                                                                       : group->line;
}

/* Is the point within every limit of the group?  Notes the subjects that were met. */
static int within(struct attn_plan_group *group, const struct attn_plan_point *point)
{
    const char *impl = point->external != NULL ? point->external->name : point->spec.impl->name;
    const char *const is[] = {impl, point->spec_text, attn_pass_name(point->c.pass), point->c.mask};
    int ok = 1;
    for (int l = 0; l < group->n_limits; l++) {
        struct attn_plan_limit *limit = &group->limit[l];
        int all = 1;
        for (int s = 0; s < limit->n; s++) {
            int met = 0;
            for (size_t n = 0; n < sizeof is / sizeof *is && !met; n++)
                met = strcmp(limit->subject[s], is[n]) == 0;
            limit->is_met[s] |= met;
            all &= met;
        }
        ok &= !all || point->c.n_query <= limit->length;
    }
    return ok;
}

/* The shape, the mask and the text of a point whose words are in place. */
static enum attn_status complete(const struct attn_plan_draft *draft, struct attn_plan_group *group,
                                 struct attn_plan_point *point, struct attn_error *err)
{
    struct attn_case *c = &point->c;
    c->n_key = point->keys >= 0 ? point->keys : c->n_query;
    struct attn_problem problem;
    struct attn_mask *mask = NULL;
    enum attn_status status =
        draft->is_of_shapes ? ATTN_OK : attn_case_open(c, NULL, &problem, &mask, err);
    attn_mask_free(mask);
    if (status != ATTN_OK) /* of extents, or else of the mask */
        group->line = line_of(draft, group, attn_problem_check(&problem, NULL) ? KV_HEADS : MASK);
    if (status == ATTN_OK)
        attn_case_print(c, point->text);
    if (status == ATTN_OK && c->kv_shared && !draft->is_of_shapes) /* with every fill */
        status = attn_case_parse(point->text, &(struct attn_case){0}, err);
    return status;
}

static enum attn_status append(struct attn_plan *plan, const struct attn_plan_point *point,
                               struct attn_error *err)
{
    if (plan->n == ATTN_PLAN_POINTS)
        return attn_fail(err, ATTN_EINVAL, "more than %d points: make plans of fewer",
                         ATTN_PLAN_POINTS);
    plan->point = attn_plan_reserve(plan->point, plan->n, sizeof *plan->point);
    plan->point[plan->n++] = *point;
    return ATTN_OK;
}

/* External implementations that the group does not name come after its own specs; but not in groups
 * "ranks...", which vary what they do not have. */
static void add_externals(const struct attn_plan_draft *draft, struct attn_plan_group *group)
{
    const struct attn_subjects *externals = draft->externals;
    int varies_ranks = attn_group_kind_of(group->name) == ATTN_GROUP_RANKS;
    for (int e = 0; externals != NULL && !varies_ranks && e < externals->n; e++) {
        const char *list = value_of(draft, group, SPEC);
        if (attn_cli_listed(list, " ", externals->one[e].name))
            continue;
        char *longer = attn_cli_text("%s %s", list, externals->one[e].name);
        free(group->value[SPEC]);
        group->value[SPEC] = longer;
    }
}

/* A point whose words are all in place. */
static enum attn_status finish_point(const struct attn_plan_draft *draft,
                                     struct attn_plan_group *group, struct attn_plan_point *point,
                                     struct attn_error *err)
{
    enum attn_status status = complete(draft, group, point, err);
    if (draft->is_of_shapes)
        return status == ATTN_OK ? append(draft->plan, point, err) : status;
    /* every limit is looked at, so that those without a subject are found */
    int ok = within(group, point) & within(&draft->group[0], point);
    point->is_priced = !ok;
    point->is_once = ok && point->c.n_query > point->once;
    if (point->layers.n == 0 && group->value[SAVE] != NULL) {
        group->line = line_of(draft, group, SAVE);
        status = attn_fail(err, ATTN_EINVAL, "save is of layers: `layers = N` is needed with it");
    }
    /* an external implementation has no price, and no layers */
    int is_absent = point->external != NULL && (!ok || point->layers.n > 0);
    return status == ATTN_OK && !is_absent ? append(draft->plan, point, err) : status;
}

/* Every word of every key, the slowest first.  A key that is not said takes another's value. */
static enum attn_status multiply(const struct attn_plan_draft *draft, struct attn_plan_group *group,
                                 int level, struct attn_plan_point *point, struct attn_error *err)
{
    static const int order[GROUP_KEYS] = {MASK, PASS,      DTYPE,   BATCH,   HEADS, KV_HEADS, DIM,
                                          DV,   DATA_SEED, FILL,    THREADS, PEAK,  N_KEYS,   ONCE,
                                          SAVE, SCALE,     SOFTCAP, LAYERS,  SPEC,  LENGTH};
    enum attn_status status = ATTN_OK;
    if (level == GROUP_KEYS)
        return finish_point(draft, group, point, err);
    const char *value = value_of(draft, group, order[level]);
    if (*value == '\0') {
        point->c.kv_heads = order[level] == KV_HEADS ? point->c.heads : point->c.kv_heads;
        point->c.d_value = order[level] == DV ? point->c.d_key : point->c.d_value;
        point->once = order[level] == ONCE ? INT64_MAX : point->once;
        point->keys = order[level] == N_KEYS ? -1 : point->keys;
        return multiply(draft, group, level + 1, point, err);
    }
    char *copy = attn_cli_text("%s", value), *rest = copy;
    for (char *word; status == ATTN_OK && (word = attn_plan_next_word(&rest)) != NULL;) {
        status = attn_plan_set_word(draft->externals, order[level], word, point, err);
        if (status == ATTN_OK)
            status = multiply(draft, group, level + 1, point, err);
    }
    free(copy);
    return status;
}

/* ---- what a group must hold ------------------------------------------------------------------ */

/* By spec, case and layers. */
static int by_name(const void *a, const void *b)
{
    const struct attn_plan_point *x = *(const struct attn_plan_point *const *)a;
    const struct attn_plan_point *y = *(const struct attn_plan_point *const *)b;
    char of_x[ATTN_STACK_TEXT], of_y[ATTN_STACK_TEXT];
    int order = strcmp(x->spec_text, y->spec_text);
    if (order == 0)
        order = strcmp(x->text, y->text);
    return order != 0
               ? order
               : strcmp(attn_stack_print(&x->layers, of_x), attn_stack_print(&y->layers, of_y));
}

/* The points from `first` on, which are those of one group, are all different. */
static enum attn_status check_different(const struct attn_plan *plan, int64_t first,
                                        struct attn_error *err)
{
    char stack[ATTN_STACK_TEXT];
    int64_t n = plan->n - first, twice = 0;
    const struct attn_plan_point **sorted = attn_cli_need(calloc((size_t)n + 1, sizeof *sorted));
    for (int64_t i = 0; i < n; i++)
        sorted[i] = &plan->point[first + i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    for (int64_t i = 1; i < n && twice == 0; i++)
        twice = by_name(&sorted[i - 1], &sorted[i]) == 0 ? i : 0;
    const struct attn_plan_point *p = sorted[twice];
    free(sorted);
    if (twice == 0)
        return ATTN_OK;
    return attn_fail(err, ATTN_EINVAL, "%s %s%s%s is there twice", p->spec_text, p->text,
                     p->layers.n > 0 ? " of " : "", attn_stack_print(&p->layers, stack));
}

/* A label is of a spec of the group. */
static int is_spec_of(const struct attn_plan *plan, int64_t first, const char *subject)
{
    for (int64_t i = first; i < plan->n; i++)
        if (attn_spec_is_named(plan->point[i].spec_text, subject))
            return 1;
    return 0;
}

static enum attn_status check_subjects(const struct attn_plan *plan, int64_t first,
                                       struct attn_plan_group *group, struct attn_error *err)
{
    for (int l = 0; l < group->n_labels; l++)
        if (!is_spec_of(plan, first, group->label[l].subject)) {
            group->line = group->label[l].line;
            return attn_fail(err, ATTN_EINVAL,
                             "group %s: label names '%.60s', which is no spec of it", group->name,
                             group->label[l].subject);
        }
    for (int l = 0; l < group->n_limits; l++)
        for (int s = 0; s < group->limit[l].n; s++)
            if (!group->limit[l].is_met[s]) {
                group->line = group->limit[l].line;
                return attn_fail(err, ATTN_EINVAL,
                                 "group %s: limit names '%.60s', which is no implementation, spec, "
                                 "pass or mask of the group",
                                 group->name, group->limit[l].subject[s]);
            }
    return ATTN_OK;
}

/* {"label": {SPEC: TEXT}, "group": NAME}: a "figure" line of records. */
static void add_labels(struct attn_plan *plan, const struct attn_plan_group *group)
{
    if (group->n_labels == 0)
        return;
    json_t *labels = attn_cli_need(json_object());
    for (int l = 0; l < group->n_labels; l++)
        json_object_set_new(labels, group->label[l].subject, json_string(group->label[l].text));
    json_array_append_new(plan->labels,
                          json_pack("{s:o, s:s}", "label", labels, "group", group->name));
}

enum attn_status attn_plan_expand(const struct attn_plan_draft *draft,
                                  struct attn_plan_group *group, struct attn_error *err)
{
    int is_label = *value_of(draft, group, SPEC) == '\0' &&
                   *value_of(draft, group, LENGTH) == '\0' && group->n_labels > 0 &&
                   group->n_limits == 0;
    if (is_label) { /* of records that there are: nothing to measure */
        add_labels(draft->plan, group);
        return ATTN_OK;
    }
    add_externals(draft, group);
    if (!draft->is_of_shapes &&
        (*value_of(draft, group, SPEC) == '\0' || *value_of(draft, group, LENGTH) == '\0'))
        return attn_fail(err, ATTN_EINVAL, "group %s needs spec and length: it has no %s",
                         group->name, *value_of(draft, group, SPEC) == '\0' ? "spec" : "length");
    struct attn_plan_point *point = attn_cli_need(calloc(1, sizeof *point));
    strcpy(point->group, group->name);
    point->c.scale = (double)NAN;
    int64_t first = draft->plan->n;
    enum attn_status status = multiply(draft, group, 0, point, err);
    free(point);
    if (status == ATTN_OK)
        status = check_different(draft->plan, first, err);
    if (status == ATTN_OK)
        status = check_subjects(draft->plan, first, group, err);
    if (status == ATTN_OK)
        add_labels(draft->plan, group);
    return status;
}
