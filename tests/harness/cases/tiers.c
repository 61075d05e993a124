/* See tiers.h. */
#include "tests/harness/cases/tiers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/cases/models.h"

/* ---- written by hand ------------------------------------------------------------------------- */

/* One table, the quick tier's first. */
static const struct attn_battery_case battery[] = {
#define ATTN_CASE(name, text, ids, why) {name, text, ids, why},
#include "tests/harness/cases/cases.def"
#include "tests/harness/cases/cases_full.def"
#undef ATTN_CASE
};

enum {
    QUICK = 0
#define ATTN_CASE(name, text, ids, why) +1
#include "tests/harness/cases/cases.def"
#undef ATTN_CASE
    ,
    BY_HAND = sizeof battery / sizeof *battery
};

const char *const attn_tier_name[ATTN_TIERS] = {"quick", "full"};

int attn_battery_count(enum attn_tier tier)
{
    return tier == ATTN_TIER_QUICK ? QUICK : BY_HAND;
}

const struct attn_battery_case *attn_battery_at(int index)
{
    return index >= 0 && index < BY_HAND ? &battery[index] : NULL;
}

const struct attn_battery_case *attn_battery_find(const char *name)
{
    for (int n = 0; n < BY_HAND; n++)
        if (strcmp(battery[n].name, name) == 0)
            return &battery[n];
    return NULL;
}

/* ---- within claims --------------------------------------------------------------------------- */

/* Families that are about extents, or about one storage type, keep their extents.  Cases of the
 * others are about masks, data and layouts: they take the extents that are declared. */
static int keeps_extents(const char *name)
{
    static const char *const family[] = {"length-", "width-",  "empty-", "zero-",
                                         "tile-",   "uneven-", "ranks-", "only-",
                                         "alone-",  "shape-",  NULL};
    int f = 0;
    while (family[f] != NULL && strncmp(name, family[f], strlen(family[f])) != 0)
        f++;
    return family[f] != NULL;
}

/* Take a claimed type that can show the same error: f64 shows only its own, bf16 and f16 each
 * other's, and a case in f32 shows it in every type. */
static int take_type(const struct attn_battery_case *hand, const struct attn_claims *claims,
                     struct attn_case *c)
{
    static const enum attn_dtype order[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_F16};
    int alone = strncmp(hand->name, "alone-", 6) == 0; /* each type has its own */
    if (claims->bits & 1u << c->dtype || c->dtype == ATTN_F64 || alone)
        return (claims->bits & 1u << c->dtype) != 0;
    for (int n = c->dtype == ATTN_F32 ? 0 : 2; n < 4; n++)
        if (claims->bits & 1u << order[n]) {
            c->dtype = order[n];
            return 1;
        }
    return 0;
}

/* A case that is about a gradient is named for it, or has its tensor by itself. */
static int is_about_gradient(const struct attn_battery_case *hand, const struct attn_case *c)
{
    static const char *const word[] = {"bwd-", "backward", "dlse", "dbias", NULL};
    int w = 0, slot = c->only - 1;
    while (word[w] != NULL && strstr(hand->name, word[w]) == NULL)
        w++;
    return word[w] != NULL || attn_case_special_is_backward(c->special) || slot == ATTN_T_DO ||
           slot == ATTN_T_DLSE || slot >= ATTN_T_DQ;
}

/* Without claimed gradients, a case that is not about them keeps its forward pass. */
static void take_pass(const struct attn_battery_case *hand, const struct attn_claims *claims,
                      struct attn_case *c)
{
    int is_empty = c->batch * c->heads * c->n_query == 0; /* a forward pass has no result */
    if (is_about_gradient(hand, c) || c->special != ATTN_SPECIAL_NONE || is_empty)
        return;
    if (!(claims->bits & ATTN_CAP_BACKWARD))
        c->pass = ATTN_FORWARD;
    c->d_lse &= c->pass == ATTN_BACKWARD && (claims->bits & ATTN_CAP_DLSE) != 0;
    c->d_bias &= c->pass == ATTN_BACKWARD && (claims->bits & ATTN_CAP_DBIAS) != 0;
}

/* Its mask speaks of how many tokens there are. */
static int has_lengths(const struct attn_case *c)
{
    struct attn_setup setup;
    if (attn_setup_describe(c, &setup, NULL) != ATTN_OK)
        return 0;
    int counts = attn_mask_counts_tokens(setup.problem.mask);
    attn_setup_close(&setup);
    return counts;
}

void attn_case_reshape(const struct attn_claims *claims, struct attn_case *c)
{
    const struct attn_shapes *shapes = &claims->shapes;
    int64_t group = c->kv_heads > 0 ? c->heads / c->kv_heads : 1;
    int is_exact = c->fill == ATTN_FILL_REVEAL || c->fill == ATTN_FILL_SELECT;
    const struct attn_case whole = *c;
    group = claims->bits & ATTN_CAP_GQA
                ? attn_shapes_nearest(shapes, ATTN_FACTOR_GROUP, group > 0 ? group : 1)
                : 1;
    c->batch = attn_shapes_nearest(shapes, ATTN_FACTOR_BATCH, c->batch);
    c->heads = attn_shapes_nearest(shapes, ATTN_FACTOR_HEADS, c->heads);
    for (int more = 1; group > 0 && c->heads % group != 0 && more <= 64; more++)
        c->heads = attn_shapes_nearest(shapes, ATTN_FACTOR_HEADS, more * group);
    c->kv_heads = group > 0 ? c->heads / group : c->heads;
    if (!(claims->bits & ATTN_CAP_DV)) /* exact probes want a column for each key */
        c->d_key = c->d_value = is_exact && c->d_value > c->d_key ? c->d_value : c->d_key;
    c->d_key = attn_shapes_nearest(shapes, ATTN_FACTOR_D, c->d_key);
    c->d_value = claims->bits & ATTN_CAP_DV
                     ? attn_shapes_nearest(shapes, ATTN_FACTOR_DV, c->d_value)
                     : c->d_key;
    if (has_lengths(&whole))
        return;
    if (!(claims->bits & ATTN_CAP_CROSS))
        c->n_query = c->n_key = c->n_query > c->n_key ? c->n_query : c->n_key;
    c->n_query = attn_shapes_nearest(shapes, ATTN_FACTOR_QUERIES, c->n_query);
    c->n_key = claims->bits & ATTN_CAP_CROSS
                   ? attn_shapes_nearest(shapes, ATTN_FACTOR_KEYS, c->n_key)
                   : c->n_query;
}

enum attn_status attn_case_within(const struct attn_battery_case *hand,
                                  const struct attn_claims *claims, enum attn_route route,
                                  struct attn_case *c, struct attn_error *err)
{
    struct attn_case written, own;
    enum attn_status status = attn_case_parse(hand->text, &written, err);
    if (status != ATTN_OK)
        return status;
    *c = written;
    if (!take_type(hand, claims, c)) {
        *c = written;
        return attn_claims_allow_case(claims, c, route, err);
    }
    if (strstr(hand->name, "scale") == NULL) /* those need their scale */
        attn_case_narrow(claims, c);
    if (attn_claims_allow_case(claims, c, route, NULL) == ATTN_OK)
        return ATTN_OK;
    take_pass(hand, claims, c);
    own = *c;
    if (attn_claims_allow_case(claims, c, route, NULL) == ATTN_OK)
        return ATTN_OK;
    if (!keeps_extents(hand->name))
        attn_case_reshape(claims, c);
    attn_case_narrow(claims, c);
    status = attn_claims_allow_case(claims, c, route, err);
    if (status == ATTN_OK || status == ATTN_ENOMEM)
        return status;
    *c = own;
    status = attn_claims_allow_case(claims, c, route, err);
    if (status != ATTN_EINVAL)
        return status;
    *c = written; /* another type cannot hold its data */
    return attn_claims_allow_case(claims, c, route, err);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Add a case; list->lacks_memory where there is no memory. */
static void add(struct attn_tier_list *list, const char *name, const struct attn_case *c,
                const char *ids, const char *why, const struct attn_choice *choice)
{
    char text[ATTN_CASE_TEXT];
    if (list->n == list->capacity) {
        int capacity = list->capacity > 0 ? 2 * list->capacity : 1024;
        void *more = realloc(list->at, (size_t)capacity * sizeof *list->at);
        list->lacks_memory |= more == NULL;
        if (more == NULL)
            return;
        list->at = more;
        list->capacity = capacity;
    }
    attn_case_print(c, text);
    struct attn_tier_case *to = &list->at[list->n++];
    *to = (struct attn_tier_case){.battery = {strdup(name), strdup(text), strdup(ids), strdup(why)},
                                  .is_made = choice != NULL};
    if (choice != NULL)
        to->choice = *choice;
    list->lacks_memory |= to->battery.name == NULL || to->battery.text == NULL ||
                          to->battery.ids == NULL || to->battery.why == NULL;
}

static void drop(struct attn_tier_case *c)
{
    free((void *)c->battery.name);
    free((void *)c->battery.text);
    free((void *)c->battery.ids);
    free((void *)c->battery.why);
}

void attn_tier_close(struct attn_tier_list *list)
{
    for (int i = 0; i < list->n; i++)
        drop(&list->at[i]);
    free(list->at);
    list->at = NULL;
    list->n = list->capacity = 0;
}

/* A choice of the table as a case.  One that the claims do not allow is dropped and counted; its
 * pairs of values count as met. */
struct making {
    struct attn_tier_list *list;
    enum attn_route route;
};

static void take_choice(void *arg, const char *name, const struct attn_choice *choice,
                        uint64_t seed)
{
    const struct making *x = arg;
    const struct attn_factors *table = &x->list->table;
    char values[300], why[400];
    struct attn_case c;
    attn_choice_case(table, choice, seed, &c);
    attn_case_narrow(table->claims, &c);
    attn_choice_print(table, choice, values, sizeof values);
    snprintf(why, sizeof why, "what kernels branch on: %s",
             values[0] != '\0' ? values : "nothing unusual");
    if (attn_claims_allow_case(table->claims, &c, x->route, NULL) == ATTN_OK)
        add(x->list, name, &c, "", why, choice);
    else
        x->list->refused++;
}

static void take_corner(void *arg, const char *name, const struct attn_case *c)
{
    const struct making *x = arg;
    if (attn_claims_allow_case(&x->list->claims, c, x->route, NULL) == ATTN_OK)
        add(x->list, name, c, "", "faults that strike from some batch, heads, lengths and d on",
            NULL);
    else
        x->list->refused++;
}

/* A case of long rows is asked only where the claims allow its keys, and more keys than queries. */
static int is_asked(const struct attn_battery_case *hand, const struct attn_claims *claims,
                    enum attn_route route)
{
    struct attn_case c;
    return strncmp(hand->name, "long-", 5) != 0 ||
           (claims->bits & ATTN_CAP_CROSS && attn_case_parse(hand->text, &c, NULL) == ATTN_OK &&
            c.n_key <=
                (route == ATTN_ROUTE_OWN ? claims->long_keys : attn_claims_long_keys(claims)));
}

static void add_by_hand(struct attn_tier_list *list, enum attn_route route, int from, int to)
{
    for (int n = from; n < to; n++) {
        struct attn_case c;
        if (!is_asked(&battery[n], &list->claims, route))
            continue;
        attn_case_within(&battery[n], &list->claims, route, &c, NULL);
        add(list, battery[n].name, &c, battery[n].ids, battery[n].why, NULL);
    }
}

static void add_models(struct attn_tier_list *list, enum attn_route route, enum attn_tier tier)
{
    int n = tier == ATTN_TIER_FULL ? ATTN_MODEL_CASES : 1;
    for (int m = 0; m < ATTN_MODELS * n; m++) {
        struct attn_model_case made;
        struct attn_case c;
        attn_model_case(&attn_models[m / n], m % n, list->claims.bits, &made);
        const struct attn_battery_case hand = {made.name, made.text, "", made.why};
        attn_case_within(&hand, &list->claims, route, &c, NULL);
        add(list, hand.name, &c, hand.ids, hand.why, NULL);
    }
}

/* By text, then by place. */
static int by_text(const void *a, const void *b)
{
    const struct attn_tier_case *x = *(struct attn_tier_case *const *)a;
    const struct attn_tier_case *y = *(struct attn_tier_case *const *)b;
    int order = strcmp(x->battery.text, y->battery.text);
    return order != 0 ? order : (x > y) - (x < y);
}

/* Of equal cases the first stays. */
static void drop_equal(struct attn_tier_list *list)
{
    struct attn_tier_case **at = calloc((size_t)list->n + 1, sizeof(void *));
    int kept = 0;
    list->lacks_memory |= at == NULL;
    if (list->lacks_memory) {
        free(at);
        return;
    }
    for (int i = 0; i < list->n; i++)
        at[i] = &list->at[i];
    qsort(at, (size_t)list->n, sizeof(void *), by_text);
    for (int i = list->n - 1; i > 0; i--)
        if (strcmp(at[i]->battery.text, at[i - 1]->battery.text) == 0) {
            drop(at[i]);
            at[i]->battery.name = NULL;
        }
    free(at);
    for (int i = 0; i < list->n; i++)
        if (list->at[i].battery.name != NULL)
            list->at[kept++] = list->at[i];
    list->n = kept;
}

/* Seconds of one core that the cases of a list take our own, with the judge. */
static double seconds_of(const struct attn_tier_list *list)
{
    double seconds = 0;
    for (int i = 0; i < list->n; i++) {
        struct attn_case c;
        if (attn_case_parse(list->at[i].battery.text, &c, NULL) != ATTN_OK)
            continue;
        double each = c.fill == ATTN_FILL_SUBSETS ? 1e-9 : c.pass == ATTN_FORWARD ? 8e-9 : 16e-9;
        seconds += attn_case_work(&c) * each;
    }
    return seconds;
}

enum attn_status attn_tier_open(enum attn_tier tier, const struct attn_claims *claims,
                                enum attn_route route, uint64_t seed, struct attn_tier_list *list,
                                struct attn_error *err)
{
    *list = (struct attn_tier_list){.claims = *claims};
    struct making making = {list, route};
    const struct attn_choice_taker taker = {take_choice, &making, &list->left_out};
    attn_factors_open(&list->claims, route, seed, tier, &list->table);
    add_by_hand(list, route, 0, QUICK);
    add_models(list, route, tier);
    list->lacks_memory |= !attn_factor_choices(&list->table, tier, &taker);
    if (tier == ATTN_TIER_FULL)
        add_by_hand(list, route, QUICK, BY_HAND);
    const int few = (claims->declines & ATTN_PLUGIN_FEW_SHAPES) != 0;
    if (few && !list->lacks_memory)
        attn_few_shapes(list, route);
    const struct attn_case_taker corner_taker = {take_corner, &making};
    if (!few)
        list->lacks_memory |=
            !attn_corner_cases(&list->table, tier, route, seconds_of(list), &corner_taker);
    if (!list->lacks_memory)
        drop_equal(list);
    if (!list->lacks_memory)
        return ATTN_OK;
    attn_tier_close(list);
    return attn_fail(err, ATTN_ENOMEM, "no memory for the cases of a tier");
}

const struct attn_tier_case *attn_tier_find(const struct attn_tier_list *list, const char *name)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->at[i].battery.name, name) == 0)
            return &list->at[i];
    return NULL;
}
