/* The fill `subsets`: few keys are the whole answer, every key counts, and one key of any number
 * is missed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/inputs/subsets.h"
#include "tests/suites.h"
#include "tests/variants/honest.h"

SUITE(subsets);

/* Edges of every kind, few and many rows, small d, whole and ragged lengths. */
static const char *const shape[] = {"b2h4g2q77d16v5:none:%s:subsets:s1:pass=bwd",
                                    "b2h4g2q130d64:causal(br):%s:subsets:s2:pass=bwd",
                                    "h2q40k200d8:causal(tl):%s:subsets:s3:pass=bwd",
                                    "q200k130d3v1:causal(+3):%s:subsets:s4:pass=bwd",
                                    "b2q99d32:keys(99,50):%s:subsets:s5:pass=bwd",
                                    "h2q128d16:window(9,4,br):%s:subsets:s6:pass=bwd",
                                    "h2q300d8:causal(br)&window(30,0,br):%s:subsets:s7:pass=bwd",
                                    "h4g1q1k256d48:none:%s:subsets:s8:pass=bwd",
                                    "h2q16k520d24:causal(br):%s:subsets:s9:pass=bwd",
                                    "q30d12:none:%s:subsets:s10:scale=-0.25:pass=bwd"};
static const char *const type[] = {"f32", "bf16", "f16", "f64"};

static void open_shape(int n, const char *dtype, struct attn_setup *s)
{
    char text[ATTN_CASE_TEXT];
    snprintf(text, sizeof text, shape[n], dtype);
    setup_of(text, s);
}

static double score(const struct attn_setup *s, const int64_t at[4], int64_t j)
{
    const struct attn_problem *p = &s->problem;
    int64_t g = at[1] / (p->heads / p->kv_heads);
    double sum = 0;
    for (int64_t c = 0; c < p->d_key; c++)
        sum += attn_tensor_get(&s->tensor[ATTN_T_Q], at[0], at[1], at[2], c) *
               attn_tensor_get(&s->tensor[ATTN_T_K], at[0], g, j, c);
    return p->scale * sum;
}

/* The keys that are named score 0, one that is alone 2 to 4 or as much below 0, all others of the
 * row -200 or less. */
TEST_EACH(scores_are_0_or_far_below, COUNT(shape) * COUNT(type))
{
    struct attn_setup s;
    open_shape(_i / COUNT(type), type[_i % COUNT(type)], &s);
    const struct attn_problem *p = &s.problem;
    const int64_t rows[4] = {p->batch, p->heads, p->n_query, 1};
    int64_t *key = malloc((size_t)p->n_key * sizeof *key);
    for (int64_t at[4] = ATTN_START; attn_each(at, rows);) {
        int64_t n = attn_subsets_keys(s.subsets, at[0], at[1], at[2], key), next = 0;
        ck_assert_int_eq(n, attn_subsets_count(s.subsets, at[0], at[1], at[2]));
        ck_assert(n > 0 || !attn_setup_sees(&s, at[0], at[1], at[2]));
        for (int64_t j = 0; j < p->n_key; j++) {
            int is_named = next < n && key[next] == j;
            next += is_named;
            if (is_named)
                ck_assert(attn_problem_allows(p, at[0], at[1], at[2], j) &&
                          (n > 1 ? score(&s, at, j) == 0 : fabs(fabs(score(&s, at, j)) - 3) <= 1));
            else if (attn_problem_allows(p, at[0], at[1], at[2], j))
                ck_assert(score(&s, at, j) <= -200);
        }
        ck_assert_int_eq(next, n);
    }
    free(key);
    attn_setup_close(&s);
}

/* The truth from the named keys is the truth. */
TEST_EACH(few_keys_are_all, COUNT(shape))
{
    struct attn_setup s;
    struct attn_truth few, all;
    struct attn_precision a;
    struct attn_spec spec = spec_of("tiled");
    open_shape(_i, "f32", &s);
    struct attn_inputs in = attn_setup_inputs(&s, ATTN_BACKWARD);
    attn_precision_of(spec.impl, &spec.options, &s.problem, &a);
    ck_assert_int_eq(attn_truth_compute(&s.problem, &in, &a, NULL, &few, NULL), ATTN_OK);
    in.keys = NULL;
    ck_assert_int_eq(attn_truth_compute(&s.problem, &in, &a, NULL, &all, NULL), ATTN_OK);
    for (int o = ATTN_O; o <= ATTN_DV; o++) {
        const int64_t *extent = few.tensor[o].extent;
        for (int64_t e = 0; e < extent[0] * extent[1] * extent[2] * extent[3]; e++) {
            double x = few.tensor[o].want[e], y = all.tensor[o].want[e];
            ck_assert_msg(x == y || fabs(x - y) <= 1e-13 * (1 + fabs(y)), "%s %lld: %g, %g",
                          attn_output_name((enum attn_output)o), (long long)e, x, y);
        }
    }
    attn_truth_free(&few);
    attn_truth_free(&all);
    attn_setup_close(&s);
}

/* Each key that is seen has weight in a row of each head; but for one query, which has one subset,
 * a power of two: then heads share them. */
static const struct {
    const char *text;
    int64_t left; /* keys of no head */
} covers[] = {{"h32q256d128:causal(br):f32:subsets:s1", 0},
              {"h2q1024d256:causal(br):bf16:subsets:s1", 0},
              {"q777d72:causal(br)&window(100,0,br):f32:subsets:s1", 0},
              {"q128k8192d64:causal(br):bf16:subsets:s1", 0},
              {"q4096d8:none:f32:subsets:s1", 0},
              {"h2g1q1k4100d64:none:f32:subsets:s1", 0},
              {"q1k4096d64:none:f32:subsets:s1", 0},
              {"q1k4100d64:none:f32:subsets:s1", 4}};

TEST_EACH(each_key_counts, COUNT(covers))
{
    struct attn_setup s;
    struct attn_case c = case_of(covers[_i].text);
    int64_t seen, covered;
    ck_assert_int_eq(attn_setup_describe(&c, &s, NULL), ATTN_OK);
    covered = attn_subsets_covered(s.subsets, 0, 0, &seen);
    ck_assert_int_eq(seen, s.problem.n_key);
    ck_assert_int_eq(covered, seen - covers[_i].left);
    if (c.n_query > 1)
        ck_assert_int_eq(attn_subsets_covered(s.subsets, 0, 1, &seen), seen);
    attn_setup_close(&s);
}

/* A key is lost: while the implementation runs, its row of K is minus a q that chooses it, so that
 * no row sees it. */
static const struct {
    const char *text;
    int full; /* long: in the full run alone */
} lengths[] = {{"h2q513d128:causal(br):%s:subsets:s1:pass=bwd", 0},
               {"h2g1q1k8192d64:none:%s:subsets:s2", 0},
               {"q128k8192d128:causal(br):%s:subsets:s3:pass=bwd", 0},
               {"q128k32768d128:causal(br):%s:subsets:s3:pass=bwd", 1},
               {"h2g1q1k131072d128:none:%s:subsets:s2", 1}};

static int64_t row_of_key(const struct attn_setup *s, int64_t j)
{
    int64_t *key = malloc((size_t)s->problem.n_key * sizeof *key), i = s->problem.n_query,
            found = 0;
    while (!found && i-- > 0)
        for (int64_t n = attn_subsets_keys(s->subsets, 0, 0, i, key); n > 0 && !found; n--)
            found = key[n - 1] == j;
    free(key);
    ck_assert(found);
    return i;
}

static void run_without(const char *text, int64_t lost, struct attn_result *r)
{
    struct running x;
    struct attn_spec spec = spec_of("tiled");
    double kept[256];
    running_open(&x, &spec, text);
    struct attn_tensor *k = &x.setup.tensor[ATTN_T_K], *q = &x.setup.tensor[ATTN_T_Q];
    const int64_t d = x.setup.problem.d_key, i = lost < 0 ? 0 : row_of_key(&x.setup, lost);
    for (int64_t c = 0; c < d && lost >= 0; c++) {
        kept[c] = attn_tensor_get(k, 0, 0, lost, c);
        attn_tensor_set(k, 0, 0, lost, c, -attn_tensor_get(q, 0, 0, i, c));
    }
    for (int pass = ATTN_FORWARD; pass <= (int)x.setup.given.pass; pass++)
        running_well(&x, (enum attn_pass)pass);
    for (int64_t c = 0; c < d && lost >= 0; c++)
        attn_tensor_set(k, 0, 0, lost, c, kept[c]);
    struct attn_precision a;
    memset(r, 0, sizeof *r);
    attn_precision_of(spec.impl, &spec.options, &x.setup.problem, &a);
    attn_judge(&x.setup, &a, NULL, x.setup.given.pass, r);
    running_close(&x);
}

TEST_EACH(one_key_is_missed, COUNT(lengths) * COUNT(type))
{
    int n = _i / COUNT(type);
    char text[ATTN_CASE_TEXT];
    struct attn_result r;
    snprintf(text, sizeof text, lengths[n].text, type[_i % COUNT(type)]);
    if (getenv("ATTN_FULL") == NULL && (lengths[n].full || (n + _i % COUNT(type)) % 2 != 0))
        return; /* two of four types by turns */
    const int64_t keys = case_of(text).n_key, lost[] = {0, keys / 2, keys - 1};
    run_without(text, -1, &r);
    ck_assert_msg(r.verdict == ATTN_PASS, "%s: %s", text, r.text);
    for (int l = 0; l < COUNT(lost); l++) {
        run_without(text, lost[l], &r);
        for (int o = ATTN_O; o <= ATTN_DV; o++)
            ck_assert_msg(r.output[o].n == 0 || r.output[o].n_bad > 0 || o <= ATTN_LSE,
                          "%s: key %lld lost, and %s passes", text, (long long)lost[l],
                          attn_output_name((enum attn_output)o));
        ck_assert_msg(r.verdict == ATTN_FAILED, "%s: key %lld lost", text, (long long)lost[l]);
    }
}

/* Honest code of every arithmetic and style passes, also where one row has thousands of keys. */
static const struct {
    int order, splits, delta;
} styles[] = {{HONEST_FORWARD, 1, HONEST_DOT},
              {HONEST_PAIRWISE, 7, HONEST_SUM},
              {HONEST_REVERSE, 3, HONEST_DOT}};

TEST_EACH(the_honest_pass, HONEST_ARITHMETICS *COUNT(styles))
{
    static const char *const more[] = {"q2k8192d16:none:%s:subsets:s11:pass=bwd",
                                       "q1k4096d64:none:%s:subsets:s12:pass=bwd",
                                       "h2q33k2048d20:causal(br):%s:subsets:s13:pass=bwd"};
    enum honest_arithmetic arithmetic = (enum honest_arithmetic)(_i / COUNT(styles));
    struct attn_spec spec = honest_spec(arithmetic);
    if (getenv("ATTN_FULL") == NULL && _i % COUNT(styles) != (int)arithmetic % COUNT(styles))
        return;
    int passed = 0;
    spec.options.value[HONEST_ORDER] = styles[_i % COUNT(styles)].order;
    spec.options.value[HONEST_SPLITS] = styles[_i % COUNT(styles)].splits;
    spec.options.value[HONEST_DELTA] = styles[_i % COUNT(styles)].delta;
    for (int n = 0; n < (COUNT(shape) + COUNT(more)) * COUNT(type); n++) {
        const char *format = n / COUNT(type) < COUNT(shape) ? shape[n / COUNT(type)]
                                                            : more[n / COUNT(type) - COUNT(shape)];
        char text[ATTN_CASE_TEXT];
        if (spec.impl == &variant_honest && strcmp(type[n % COUNT(type)], "f64") == 0 &&
            arithmetic != HONEST_PLAIN)
            continue; /* tf32 is of f32 */
        if (getenv("ATTN_FULL") == NULL && (n / COUNT(type) + n + (int)arithmetic) % 4 != 0)
            continue; /* one of four types by turns */
        snprintf(text, sizeof text, format, type[n % COUNT(type)]);
        struct attn_result r = result_of(&spec, text);
        ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_REFUSED ||
                          (r.verdict == ATTN_WEAK && arithmetic == HONEST_F16_SUMS),
                      "%d %s: %s: %s", _i, text, attn_verdict_name(r.verdict), r.text);
        passed += r.verdict == ATTN_PASS;
    }
    ck_assert_int_gt(passed, 0);
}
