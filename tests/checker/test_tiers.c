/* The full tier, the soak and its shrinker. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/cases/models.h"
#include "tests/harness/cases/soak.h"
#include "tests/harness/relations/relations.h"
#include "tests/suites.h"

static void make_full_tier(void);
SUITE(tiers, .prepare = make_full_tier);

/* Once, not in the process of each test. */
static void make_full_tier(void)
{
    tier_of(ATTN_TIER_FULL);
}

static int everything(void)
{
    return getenv("ATTN_FULL") != NULL;
}

/* 1: variants_pass_the_full_tier sets the case up and judges it: not those of the battery, which
 * test_battery.c judges; of those that are made of factors, of pairs and of models each
 * of two variants takes one in 32 (test_program.c has a variant in the whole quick tier). */
enum { SOME = 2, EVERY = 32 };
static int is_made(const char *name)
{
    return strncmp(name, "pairs-", 6) == 0 || strncmp(name, "factors-", 8) == 0 ||
           strncmp(name, "shape-", 6) == 0;
}

static int is_judged(const char *name, int i)
{
    if (everything())
        return 1;
    return i >= attn_battery_count(ATTN_TIER_QUICK) && strncmp(name, "corners-", 8) != 0 &&
           (!is_made(name) || (EVERY - i % EVERY) % EVERY < SOME);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Work of a tier in units of attn_case_work, where a backward pass counts twice: corners, whose
 * truth costs less, or all others. */
static double work_of(const struct attn_tier_list *list, int corners)
{
    double work = 0;
    for (int i = 0; i < list->n; i++) {
        struct attn_case c = case_of(list->at[i].battery.text);
        if (attn_is_corner(list->at[i].battery.name) == corners)
            work += attn_case_work(&c) * (c.pass == ATTN_BACKWARD ? 2 : 1);
    }
    return work;
}

/* Our own end the quick tier within 10 seconds of one core, and the full one within 60: that is
 * this much work, and not more (docs/battery.md). */
TEST(tiers_nest)
{
    const struct attn_tier_list *quick = tier_of(ATTN_TIER_QUICK), *full = tier_of(ATTN_TIER_FULL);
    ck_assert_msg(full->n >= 1000 && full->n <= 5000, "%d cases", full->n);
    ck_assert_double_le(work_of(quick, 0), 2.5e9);
    ck_assert_double_le(work_of(quick, 1), 3.5e9);
    ck_assert_double_le(work_of(full, 0), 1.55e10);
    ck_assert_double_le(work_of(full, 1), 1.45e10);
    for (int n = 0; n < quick->n; n++) {
        const struct attn_tier_case *also = attn_tier_find(full, quick->at[n].battery.name);
        ck_assert_msg(also != NULL && strcmp(also->battery.text, quick->at[n].battery.text) == 0,
                      "%s", quick->at[n].battery.name);
    }
    for (int n = 0; n < attn_battery_count(ATTN_TIER_QUICK); n++)
        ck_assert_str_eq(quick->at[n].battery.name, attn_battery_at(n)->name);
    ck_assert_ptr_null(attn_tier_find(full, "no such case"));
    ck_assert_str_eq(attn_tier_name[ATTN_TIER_FULL], "full");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* No two of them are equal. */
static void check_distinct(char **text, int n, const char *what)
{
    qsort(text, (size_t)n, sizeof *text, by_text);
    for (int i = 1; i < n; i++)
        ck_assert_msg(strcmp(text[i - 1], text[i]) != 0, "two cases have the %s %s", what, text[i]);
}

/* Each parses to what it prints, says why it is there, and can be set up: of those that no variant
 * is judged on here one in four, and with ATTN_FULL all. */
TEST(full_cases_are_sound)
{
    const struct attn_tier_list *full = tier_of(ATTN_TIER_FULL);
    int n = full->n, by_hand = attn_battery_count(ATTN_TIER_QUICK);
    char **name = calloc((size_t)n, sizeof *name), **text = calloc((size_t)n, sizeof *text);
    ck_assert(name != NULL && text != NULL);
    for (int i = 0; i < n; i++) {
        const struct attn_battery_case *k = &full->at[i].battery;
        struct attn_setup setup;
        struct attn_case c = case_of(k->text);
        char canonical[ATTN_CASE_TEXT], twice[ATTN_CASE_TEXT], damage[200];
        attn_case_print(&c, canonical);
        struct attn_case again = case_of(canonical);
        attn_case_print(&again, twice);
        ck_assert_str_eq(canonical, twice);
        ck_assert_ptr_eq(attn_tier_find(full, k->name), &full->at[i]);
        ck_assert_msg(strlen(k->why) >= (i < by_hand ? 20 : 15), "%s: no reason given", k->name);
        int is_made = full->at[i].is_made;
        ck_assert_str_eq(k->text, canonical);
        is_made |= attn_model_of_case(k->name) >= 0;
        int is_corner = strncmp(k->name, "corners-", 8) == 0 || strncmp(k->name, "long-", 5) == 0;
        ck_assert_msg(is_made || is_corner || strlen(k->ids) >= 5, "%s: no id given", k->name);
        ck_assert_msg(c.d_key <= 576 && (is_corner || c.n_query * c.n_key <= 400000), "%s is large",
                      k->name);
        name[i] = strdup(k->name);
        text[i] = strdup(canonical);
        if (is_corner || i < by_hand || is_judged(k->name, i)) /* these have tests of their own */
            continue;
        if (!everything() && i % 4 != 0)
            continue;
        setup_from(&c, &setup);
        for (int slot = 0; slot < ATTN_SLOTS; slot++)
            ck_assert_ptr_null(attn_tensor_intact(&setup.tensor[slot], damage, sizeof damage));
        attn_setup_close(&setup);
    }
    check_distinct(name, n, "name");
    check_distinct(text, n, "case string");
    for (int i = 0; i < n; i++) {
        free(name[i]);
        free(text[i]);
    }
    free(name);
    free(text);
    ck_assert_ptr_null(attn_battery_find("no such case"));
    ck_assert_ptr_null(attn_battery_at(-1));
    ck_assert_ptr_null(attn_battery_at(attn_battery_count(ATTN_TIER_FULL)));
}

/* ---- within claims --------------------------------------------------------------------------- */

/* A case by hand, as it is asked within claims; "": it is refused. */
static const struct {
    const char *name, *claims, *text;
} within[] = {
    {"mask-lengths", "\"f32\", \"cross\", \"dense\", \"empty\", \"hard\", \"backward\"",
     "b3h2q14k33d8:keys(33,0,5):f32:normal:s12:pass=bwd:poison=nan"},
    {"reveal-all", "\"bf16\"", "b2h3q7d7:none:bf16:reveal:s1"},
    {"reveal-causal-tl", "\"f16\", \"causal\"", "q8d8:causal(tl):f16:reveal:s1"},
    {"hetero", "\"f16\", \"backward\"], \"shapes\": {\"d\": \"16..64 step 16\"}, \"declines\": [",
     "b2h3q26d16:none:f16:hetero:s15:pass=bwd"},
    {"length-1-1", "\"bf16\", \"backward\"], \"shapes\": {\"d\": \"64\"}, \"declines\": [", ""},
    {"normal-f64", "\"f32\", \"gqa\", \"backward\", \"cross\", \"dv\", \"causal\"", ""},
    {"tile-bf16", "\"f32\", \"gqa\", \"backward\", \"cross\", \"dv\", \"causal\"", ""},
    {"select-negative-scale", "\"f32\"", ""},
    {"fill-cliffs-wide-f32", "\"f32\", \"cross\", \"causal\"",
     "h3q37k75d8:causal(br):f32:cliffs:s12"},
    {"mix-alibi-mqa-wide",
     "\"bf16\", \"gqa\", \"cross\", \"dv\", \"softcap\", \"scale\", \"alibi\", \"causal\", "
     "\"strides\"",
     "b3h4g1q12k8d80v70:causal(tl):bf16:normal:s4:scale=-0.2:softcap=2:bias=alibi:layout=mixed"},
    {"bwd-none", "\"f32\", \"cross\", \"dv\"", ""},
};

TEST_EACH(cases_are_asked_within_claims, COUNT(within))
{
    struct attn_claims claims;
    struct attn_case c;
    struct attn_error err = {0};
    char json[300], text[ATTN_CASE_TEXT];
    snprintf(json, sizeof json, "{\"claims\": [%s]}", within[_i].claims);
    ck_assert_msg(attn_claims_parse("claims", json, &claims, &err) == ATTN_OK, "%s", err.text);
    enum attn_status status =
        attn_case_within(attn_battery_find(within[_i].name), &claims, ATTN_ROUTE_PLUGIN, &c, &err);
    attn_case_print(&c, text);
    ck_assert_str_eq(status == ATTN_OK ? text : "", within[_i].text);
    ck_assert(status == ATTN_OK || (status == ATTN_ENOTSUP && err.text[0] != '\0'));
}

/* Few shapes: the cases of a tier are nearly as many, and so are those of a soak. */
TEST(shapes_are_few)
{
    struct attn_claims claims = {.bits = ATTN_CAP_F32 | ATTN_CAP_CROSS | ATTN_CAP_GQA |
                                         ATTN_CAP_CAUSAL | ATTN_CAP_DV,
                                 .declines = ATTN_PLUGIN_FEW_SHAPES};
    const struct attn_soak_source source = {1, &claims, ATTN_ROUTE_FILES};
    struct attn_tier_list list;
    struct attn_error err = {0};
    char *text[2][2000];
    int n[2] = {0, 0};
    ck_assert(attn_tier_open(ATTN_TIER_QUICK, &claims, ATTN_ROUTE_FILES, 1, &list, &err) ==
              ATTN_OK);
    for (int i = 0; i < 2 * list.n; i++) {
        struct attn_case c;
        const int soak = i >= list.n;
        if (soak)
            attn_soak_case(&source, (uint64_t)i, &c);
        else if (attn_case_within(&list.at[i].battery, &claims, ATTN_ROUTE_FILES, &c, &err) !=
                 ATTN_OK)
            continue; /* to be refused */
        text[soak][n[soak]] = malloc(200);
        snprintf(text[soak][n[soak]++], 200, "%lld %lld %lld %lld %lld %lld %lld",
                 (long long)c.batch, (long long)c.heads, (long long)c.kv_heads,
                 (long long)c.n_query, (long long)c.n_key, (long long)c.d_key,
                 (long long)c.d_value);
    }
    for (int soak = 0; soak < 2; soak++) {
        int distinct = 1;
        qsort(text[soak], (size_t)n[soak], sizeof *text[soak], by_text);
        for (int i = 1; i < n[soak]; i++)
            distinct += strcmp(text[soak][i - 1], text[soak][i]) != 0;
        ck_assert_msg(n[soak] > 150 && distinct <= ATTN_FEW_SHAPES, "%d of %d", distinct, n[soak]);
        while (n[soak] > 0)
            free(text[soak][--n[soak]]);
    }
    attn_tier_close(&list);
}

/* Conditions on shapes: what a text means, or the line that says what is wrong. */
static const struct {
    const char *text, *extent, *error;
    int64_t asked, nearest;
} shapes[] = {
    {"d: 8..256 step 8", "d", NULL, 20, 16},
    {"d: 8..256 step 8", "d", NULL, 300, 256},
    {"d: 8..20 step 8; heads: 1 2 4", "d", NULL, 19, 16},
    {"d: 8..20 step 8; heads: 1 2 4", "heads", NULL, 100, 4},
    {"queries: 5..", "queries", NULL, 2, 5},
    {"queries: 5..", "batch", NULL, 7, 7},
    {"width: 8", NULL, "shape \"width\" does not exist; there are: d dv heads group batch", 0, 0},
    {"d: 8..4", NULL, "at most 16 whole numbers and ranges", 0, 0},
    {"d: eight", NULL, "at most 16 whole numbers and ranges", 0, 0},
    {"d: 8..16 step 0", NULL, "at most 16 whole numbers and ranges", 0, 0},
    {"d: ", NULL, "shape \"d\" is empty", 0, 0},
    {"d: 8; d: 16", NULL, "declared twice", 0, 0},
    {"d 8", NULL, "such as \"d: 8..256 step 8; group: 1 2 4 8\"", 0, 0},
};

TEST_EACH(shapes_are_declared, COUNT(shapes))
{
    struct attn_shapes x;
    struct attn_error err = {0};
    int extent = 0;
    enum attn_status status = attn_shapes_parse(shapes[_i].text, &x, &err);
    if (shapes[_i].error != NULL) {
        ck_assert_msg(status == ATTN_EINVAL && strstr(err.text, shapes[_i].error) != NULL, "%s",
                      err.text);
        return;
    }
    while (strcmp(attn_factor[extent].name, shapes[_i].extent) != 0)
        extent++;
    ck_assert_int_eq(attn_shapes_nearest(&x, extent, shapes[_i].asked), shapes[_i].nearest);
}

/* ---- only= ----------------------------------------------------------------------------------- */

TEST(only_one_tensor_is_laid_out)
{
    struct attn_setup s;
    char text[ATTN_CASE_TEXT];
    const char *line = "b2h3q5k7d4v6:none:f32:normal:s1:pass=bwd:layout=blhd:offset=3:only=v";
    struct attn_case c = case_of(line);
    attn_case_print(&c, text);
    ck_assert_str_eq(text, line);
    setup_from(&c, &s);
    const int64_t *q = s.tensor[ATTN_T_Q].stride, *k = s.tensor[ATTN_T_K].stride,
                  *v = s.tensor[ATTN_T_V].stride;
    ck_assert(q[1] == 5 * 4 && q[2] == 4 && k[1] == 7 * 4 && k[2] == 4);
    ck_assert(v[1] == 6 && v[2] == 3 * 6);
    ck_assert_uint_eq((uintptr_t)s.tensor[ATTN_T_K].data % 64, 0);
    ck_assert_uint_eq((uintptr_t)s.tensor[ATTN_T_V].data % 64, 12);
    attn_setup_close(&s);
}

/* ---- running the full tier ------------------------------------------------------------------- */

/* Two here, with one case in eight of what is made of pairs; make test-full runs them all, and then
 * every implementation at its presets. */
/* Every family has its grid. */
TEST(families_are_there)
{
    static const struct {
        const char *prefix;
        int least;
    } family[] = {{"mask-", 130},  {"stored-", 35}, {"zero-", 24},   {"empty-", 25},
                  {"fill-", 150},  {"half-", 30},   {"only-", 25},   {"layout-", 20},
                  {"offset-", 24}, {"pack-", 25},   {"padded-", 8},  {"decode-", 20},
                  {"ranks-", 40},  {"uneven-", 18}, {"large-", 4},   {"factors-", 250},
                  {"pairs-", 800}, {"shape-", 100}, {"corners-", 60}};
    for (size_t f = 0; f < sizeof family / sizeof *family; f++) {
        int n = 0;
        for (int i = 0; i < tier_of(ATTN_TIER_FULL)->n; i++)
            n += strncmp(tier_of(ATTN_TIER_FULL)->at[i].battery.name, family[f].prefix,
                         strlen(family[f].prefix)) == 0;
        ck_assert_msg(n >= family[f].least, "%d cases of %s", n, family[f].prefix);
    }
}

/* ---- models ---------------------------------------------------------------------------------- */

static void *head_of(const void *data, enum attn_dtype dtype, const int64_t stride[4], int64_t h)
{
    return (char *)data + attn_offset(stride, 0, h, 0) * (int64_t)attn_dtype_size(dtype);
}

/* The kernel of a model whose query heads take kv head h mod G. */
static enum attn_status modulo_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_forward *t)
{
    enum attn_status status = ATTN_OK;
    for (int64_t h = 0; h < p->heads && status == ATTN_OK; h++) {
        struct attn_problem one = *p;
        struct attn_forward of = *t;
        one.heads = one.kv_heads = 1;
        of.q.data = head_of(t->q.data, t->q.dtype, t->q.stride, h);
        of.k.data = head_of(t->k.data, t->k.dtype, t->k.stride, h % p->kv_heads);
        of.v.data = head_of(t->v.data, t->v.dtype, t->v.stride, h % p->kv_heads);
        of.o.data = head_of(t->o.data, t->o.dtype, t->o.stride, h);
        of.lse.data = head_of(t->lse.data, t->lse.dtype, t->lse.stride, h);
        status = attn_impl_find("tiled")->forward(ctx, &one, &of);
    }
    return status;
}

/* A model with several kv heads keeps two, so that such a kernel is not judged good at its
 * shape. */
TEST(kv_heads_of_models_are_told_apart)
{
    struct attn_spec spec = spec_of("tiled");
    struct attn_impl impl = *spec.impl;
    impl.forward = modulo_forward;
    spec.impl = &impl;
    for (int m = 0; m < ATTN_MODELS; m++) {
        struct attn_model_case made;
        attn_model_case(&attn_models[m], 0, 0, &made);
        struct attn_case c = case_of(made.text);
        int is_one = strcmp(attn_models[m].value[1], "1") == 0;
        ck_assert_int_eq(c.kv_heads, is_one ? 1 : 2);
        if (strcmp(attn_models[m].name, "llama-3-8b") == 0)
            ck_assert_int_eq(result_of(&spec, made.text).verdict, ATTN_FAILED);
    }
}

static const char *const variants[] = {
    "tiled-textbook", "ring:ranks=2",    "bsr:size=16",
    "ring:ranks=8",   "ulysses:ranks=8", "heads:ranks=3",
#include "tests/variants/specs.def"
};
enum { VARIANTS = sizeof variants / sizeof *variants, MOST_SPECS = VARIANTS + 100 };

static const char *variant_name(int v)
{
    return v < VARIANTS ? variants[v] : attn_impl_at(v - VARIANTS)->name;
}

TEST(variants_pass_the_full_tier)
{
    int passed[MOST_SPECS] = {0}, n = everything() ? VARIANTS + attn_impl_count() : SOME;
    static struct attn_spec spec[MOST_SPECS];
    ck_assert_int_le(n, MOST_SPECS);
    for (int v = 0; v < n; v++)
        spec[v] = spec_of(variant_name(v));
    for (int i = 0; i < tier_of(ATTN_TIER_FULL)->n; i++) {
        const struct attn_battery_case *k = &tier_of(ATTN_TIER_FULL)->at[i].battery;
        struct attn_setup setup;
        int some = !everything() && is_made(k->name);
        if (!is_judged(k->name, i))
            continue;
        setup_of(k->text, &setup);
        attn_setup_keep(&setup);
        setup.unweighed = 1;
        for (int v = 0; v < n; v++) {
            struct attn_result r;
            if (some && (i + v) % EVERY != 0)
                continue;
            attn_run_setup(&spec[v], &setup, NULL, &r);
            ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_REFUSED, "%s: %s (%s): %s",
                          variant_name(v), k->name, attn_verdict_name(r.verdict), r.text);
            passed[v] += r.verdict == ATTN_PASS;
        }
        attn_setup_close(&setup);
    }
    for (int v = 0; v < n; v++)
        ck_assert_msg(passed[v] >= 40, "%s passes only %d cases", variant_name(v), passed[v]);
}

/* ---- soak ------------------------------------------------------------------------------------ */

TEST(soak_draws_the_whole_grammar)
{
    enum { CASES = 16000, WORDS = 6 };
    static const struct {
        const char *name;
        int n, least;
    } word[WORDS] = {
        {"fill", ATTN_FILL_POWERS, 40},       {"type", ATTN_DTYPES, 100},
        {"bias", ATTN_CASE_BIAS_NAN + 1, 40}, {"layout", ATTN_LAYOUT_FLIP + 1, 40},
        {"poison", ATTN_POISON_BIG + 1, 100}, {"special", ATTN_SPECIAL_K_HUGE + 1, 15}};
    int met[WORDS][ATTN_FILLS + 1] = {{0}};
    int backward = 0, other = 0, zero = 0, composed = 0, unfit = 0;
    for (uint64_t n = 0; n < CASES; n++) {
        struct attn_case c, again;
        struct attn_setup s;
        struct attn_error err = {0};
        soak_of(7, n, &c);
        soak_of(7, n, &again);
        ck_assert_mem_eq(&c, &again, sizeof c); /* a function of seed and number */
        soak_of(8, n, &again);
        other += memcmp(&c, &again, sizeof c) != 0;
        const int is[WORDS] = {(int)c.fill,   (int)c.dtype,  (int)c.bias,
                               (int)c.layout, (int)c.poison, (int)c.special};
        for (int w = 0; w < WORDS; w++)
            met[w][is[w]]++;
        backward += c.pass == ATTN_BACKWARD;
        zero += c.n_query == 0 || c.n_key == 0 || c.d_key == 0 || c.batch == 0;
        composed += strpbrk(c.mask, "&|") != NULL;
        if (n % 64 != 1)
            continue;
        enum attn_status status = attn_setup_open(&c, &s, &err);
        unfit += status != ATTN_OK && status != ATTN_ENOTSUP;
        if (status == ATTN_OK)
            attn_setup_close(&s);
    }
    for (int w = 0; w < WORDS; w++)
        for (int v = 0; v < word[w].n; v++)
            ck_assert_msg(met[w][v] >= word[w].least, "%s %d: %d times", word[w].name, v,
                          met[w][v]);
    ck_assert(backward > CASES / 3 && zero > 100 && composed > 300 && other == CASES);
    ck_assert_msg(unfit < CASES / 64 / 20, "%d of %d cases cannot be set up", unfit, CASES / 64);
}

/* Within the least of claims too: what is drawn is allowed, and as many cases as a minute has at
 * least meet every number that the soak walks through. */
static const struct {
    const char *claims;
    int least[ATTN_WALKS]; /* of d, heads, group, batch, tails, dv, softcap, window */
} soaks[] = {
    {"{\"claims\": [\"bf16\", \"backward\", \"gqa\", \"scale\", \"causal\"]}",
     {32, 32, 16, 16, 64, 0, 0, 0}},
    {"{\"claims\": [\"f16\", \"gqa\", \"cross\", \"dv\", \"band\", \"softcap\", "
     "\"backward\"], \"causal\": \"br\"}",
     {32, 32, 16, 16, 64, 5, 3, 7}},
    {"{\"claims\": [\"bf16\", \"gqa\", \"causal\"], \"shapes\": {\"d\": \"8..256 step 8\", "
     "\"group\": \"1 2 4 8 16\", \"heads\": \"1..64\"}}",
     {32, 32, 5, 16, 64, 0, 0, 0}},
};

TEST_EACH(soak_walks_through_what_is_claimed, COUNT(soaks))
{
    enum { CASES = 3000 };
    struct attn_soak_walked walked = {0};
    struct attn_claims claims;
    ck_assert(attn_claims_parse("claims", soaks[_i].claims, &claims, NULL) == ATTN_OK);
    const struct attn_soak_source source = {1, &claims, ATTN_ROUTE_PLUGIN};
    int refused = 0;
    for (uint64_t n = 0; n < CASES; n++) {
        struct attn_case c;
        struct attn_setup s;
        unsigned needs;
        attn_soak_case(&source, n, &c);
        ck_assert(attn_setup_describe(&c, &s, NULL) == ATTN_OK);
        int is_allowed = attn_claims_allow(&claims, &s, ATTN_ROUTE_PLUGIN, &needs, NULL) == ATTN_OK;
        attn_setup_close(&s);
        refused += !is_allowed;
        if (is_allowed && n < CASES / 2)
            attn_soak_note(&claims, &c, &walked);
    }
    ck_assert_int_lt(refused, CASES / 20);
    for (int w = 0; w < ATTN_WALKS; w++)
        ck_assert_int_ge(attn_soak_met(&walked, (enum attn_walk)w), soaks[_i].least[w]);
}

/* 1: a case still shows a planted fault: a window, five queries and two heads; 0: it does not. */
static int has_window_and_five_queries(void *arg, const struct attn_case *c)
{
    (*(int *)arg)++;
    return c->n_query >= 5 && strstr(c->mask, "window(") != NULL && c->heads >= 2;
}

TEST(shrinks_to_what_matters)
{
    int asked = 0;
    const struct attn_soak_judge judge = {has_window_and_five_queries, &asked};
    char text[ATTN_CASE_TEXT];
    struct attn_case c = case_of("b3h8g4q77k90d33v20:(causal(br)|prefix(9))&(keys(x0110)|"
                                 "window(30,12,br)):f64:hetero:s991:pass=bwd:softcap=7:"
                                 "bias=full:layout=mixed:offset=5:poison=nan:dlse=1:dbias=1");
    int judged = attn_soak_shrink(&judge, 1000, &c);
    attn_case_print(&c, text);
    ck_assert_str_eq(text, "h2q5k1d1:window(1,1,br):f32:normal:s1");
    ck_assert_int_eq(judged, asked);
    ck_assert_int_lt(judged, 200);
    /* A budget is kept, and what is left still fails. */
    c = case_of("h2q64k64d8:window(9,9,br):f32:normal:s1");
    ck_assert_int_le(attn_soak_shrink(&judge, 4, &c), 4);
    ck_assert(has_window_and_five_queries(&asked, &c));
}

static int fails(void *arg, const struct attn_case *c)
{
    struct attn_result r;
    attn_run_case(arg, c, &r);
    return r.verdict == ATTN_FAILED;
}

static double size_of(const struct attn_case *c)
{
    return (double)c->batch * (double)c->heads * (double)(c->n_query + c->n_key) *
           (double)(c->d_key + c->d_value);
}

/* Soak until something fails, at most `most` cases; shrink it. */
static void soak_finds(struct attn_spec *spec, uint64_t most, const char *what)
{
    struct attn_soak_judge judge = {fails, spec};
    for (uint64_t n = 0; n < most; n++) {
        struct attn_case c, small;
        soak_of(1, n, &c);
        if (!fails(spec, &c))
            continue;
        small = c;
        attn_soak_shrink(&judge, 300, &small);
        ck_assert_msg(fails(spec, &small), "%s: what was shrunk does not fail", what);
        ck_assert_msg(size_of(&small) <= size_of(&c), "%s: shrinking made it larger", what);
        ck_assert_msg(size_of(&small) <= 2000, "%s: still of size %g", what, size_of(&small));
        return;
    }
    ck_abort_msg("%s survives %d random cases", what, (int)most);
}

static const char *const planted[] = {"AL-01", "SW-05", "MK-01", "FM-03a"};

TEST_EACH(soak_finds_a_mutant, COUNT(planted))
{
    char path[512], spec_name[64] = "";
    struct attn_spec spec;
    struct attn_error err = {0};
    enum attn_status (*parse)(const char *, struct attn_spec *, struct attn_error *) = NULL;
    snprintf(path, sizeof path, "%s/mutants/%s.so", test_build(), planted[_i]);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
    *(void **)&parse = dlsym(library, "attn_spec_parse");
    ck_assert_msg(parse != NULL, "no registry in %s", path);
    FILE *list = fopen("tests/mutants/mutants.def", "r");
    ck_assert_ptr_nonnull(list);
    char line[512], id[32];
    while (spec_name[0] == '\0' && fgets(line, sizeof line, list) != NULL)
        if (sscanf(line, "%31s %63s", id, spec_name) != 2 || strcmp(id, planted[_i]) != 0)
            spec_name[0] = '\0';
    fclose(list);
    ck_assert_msg(parse(spec_name, &spec, &err) == ATTN_OK, "%s", err.text);
    soak_finds(&spec, 2000, planted[_i]);
    dlclose(library);
}

/* Random cases of the types that exist: no honest implementation is flagged. */
TEST_EACH(soak_spares_the_honest, 5)
{
    static const char *const name[] = {"tiled-textbook:br=8,bc=8", "dense", "csr-textbook",
                                       "ring:ranks=4", "ulysses:ranks=2"};
    int cases = everything() ? 20000 : 100, passed = 0;
    struct attn_spec spec = spec_of(name[_i]);
    for (int n = 0; n < cases; n++) {
        struct attn_case c;
        struct attn_result r;
        char text[ATTN_CASE_TEXT];
        soak_of(100 + (uint64_t)_i, (uint64_t)n, &c);
        attn_run_case(&spec, &c, &r);
        attn_case_print(&c, text);
        ck_assert_msg(r.verdict != ATTN_FAILED, "%s: %s: %s", name[_i], text, r.text);
        passed += r.verdict == ATTN_PASS;
    }
    ck_assert_int_ge(passed, cases / 12);
}
