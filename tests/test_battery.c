/* The battery on every implementation, and honest variants of them: nobody is flagged.
 *
 * A case is set up once for all specs.  Their options walk tile shapes, mask stores, rank counts
 * and local implementations, because an honest implementation stays honest whatever its tiles are;
 * and tests/variants/honest.h walks orders of summation, bases, splits and 16-bit P. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/harness/runner.h"
#include "tests/suites.h"
#include "tests/variants/honest.h"

/* Beside every registered implementation with its presets, which need no line here. */
static const char *const variants[] = {
    "dense:mask=bool2d",
    "dense:mask=int32",
    "dense:mask=float4d",
    "tiled-textbook:br=16,bc=16",
    "tiled-textbook:br=1,bc=1",
    "tiled-textbook:br=128,bc=32",
    "tiled-textbook:br=7,bc=13",
    "ring:ranks=1",
    "ring:ranks=2",
    "ring:ranks=4,local=csr-textbook",
    "ulysses:ranks=1",
    "ulysses:ranks=2",
    "ulysses:ranks=2,local=dense",
    "tiled:rescale=eager",
    "csr:passes=3",
    "gemm:save=probs",
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* Styles of the honest variant, as its options. */
static const struct {
    int64_t order, exp, splits, p, delta;
} styles[] = {
    {HONEST_FORWARD, HONEST_E, 1, HONEST_EXACT, HONEST_DOT},
    {HONEST_REVERSE, HONEST_E, 1, HONEST_EXACT, HONEST_SUM},
    {HONEST_PAIRWISE, HONEST_E, 1, HONEST_EXACT, HONEST_DOT},
    {HONEST_FORWARD, HONEST_TWO, 1, HONEST_EXACT, HONEST_SUM},
    {HONEST_PAIRWISE, HONEST_TWO, 4, HONEST_EXACT, HONEST_DOT},
    {HONEST_FORWARD, HONEST_E, 2, HONEST_EXACT, HONEST_DOT},
    {HONEST_REVERSE, HONEST_E, 7, HONEST_EXACT, HONEST_DOT},
    {HONEST_FORWARD, HONEST_E, 1, HONEST_BF16, HONEST_DOT},
    {HONEST_REVERSE, HONEST_TWO, 1, HONEST_BF16, HONEST_SUM},
    {HONEST_PAIRWISE, HONEST_E, 3, HONEST_BF16, HONEST_DOT},
    {HONEST_FORWARD, HONEST_E, 1, HONEST_F16, HONEST_DOT},
    {HONEST_PAIRWISE, HONEST_TWO, 5, HONEST_F16, HONEST_SUM},
};
enum { STYLES = sizeof styles / sizeof *styles };

static int spec_count(void)
{
    return attn_impl_count() + VARIANTS + STYLES;
}

static void style_at(int index, struct attn_spec *spec)
{
    *spec = (struct attn_spec){.impl = &variant_honest};
    attn_options_preset(&variant_honest, &spec->options);
    spec->options.value[HONEST_ORDER] = styles[index].order;
    spec->options.value[HONEST_EXP] = styles[index].exp;
    spec->options.value[HONEST_SPLITS] = styles[index].splits;
    spec->options.value[HONEST_P] = styles[index].p;
    spec->options.value[HONEST_DELTA] = styles[index].delta;
}

/* Specs: what is registered, then the variants of it, then the styles. */
static void spec_at(int index, struct attn_spec *spec)
{
    int registered = attn_impl_count();
    if (index >= registered + VARIANTS) {
        style_at(index - registered - VARIANTS, spec);
        return;
    }
    const char *text =
        index < registered ? attn_impl_at(index)->name : variants[index - registered];
    *spec = spec_of(text);
}

/* ---- the count ------------------------------------------------------------------------------ */

/* By storage type and by the type of P; shared with the children in which tests run. */
static const char *const p_name[] = {"exact P", "P in bf16", "P in f16"};
enum { MOST_IMPLS = 32, MOST_SPECS = MOST_IMPLS + VARIANTS + STYLES };
struct honest_count {
    struct {
        long runs, refused;
        double worst;
        char spec[128], text[ATTN_CASE_TEXT];
    } by[ATTN_DTYPES][3];
    double output[MOST_IMPLS][ATTN_OUTPUTS]; /* worst error/bound of each, 16-bit storage aside */
    long graded, slow, leaned[3]; /* grades, those of B; looked at for bias, by the type of P */
    double rho, bias[3];          /* the largest */
    long passed[MOST_SPECS];      /* cases of the battery */
};
static struct honest_count *count;

static void note_outputs(const struct attn_spec *spec, const struct attn_case *c,
                         const struct attn_result *r)
{
    for (int i = 0; i < attn_impl_count() && i < MOST_IMPLS; i++)
        for (int o = 0; o < ATTN_OUTPUTS; o++)
            if (attn_impl_at(i) == spec->impl && r->verdict == ATTN_PASS && r->output[o].n > 0 &&
                (c->dtype == ATTN_F32 || c->dtype == ATTN_F64))
                count->output[i][o] = fmax(count->output[i][o], r->output[o].ratio);
}

/* Returns 1 when it passed, 0 when it refused. */
static int run_honestly(const struct attn_spec *spec, struct attn_setup *setup, const char *text,
                        const char *why)
{
    const struct attn_case c = setup->given;
    struct attn_result r;
    char said[4096];
    attn_run_setup(spec, setup, NULL, &r);
    attn_result_print(spec, &c, &r, said, sizeof said);
    ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_REFUSED, "%s: %s", why, said);
    int64_t p = spec->impl == &variant_honest ? spec->options.value[HONEST_P] : HONEST_EXACT;
    count->by[c.dtype][p].runs += r.verdict == ATTN_PASS;
    count->by[c.dtype][p].refused += r.verdict == ATTN_REFUSED;
    note_outputs(spec, &c, &r);
    count->graded += r.verdict == ATTN_PASS && r.grade.letter != 0;
    count->slow += r.grade.letter == 'B';
    count->rho = fmax(count->rho, r.grade.rho);
    count->leaned[p] += r.grade.rows > 0;
    count->bias[p] = fmax(count->bias[p], fabs(r.grade.bias));
    if (r.verdict == ATTN_PASS && r.worst > count->by[c.dtype][p].worst) {
        count->by[c.dtype][p].worst = r.worst;
        attn_spec_print(spec, count->by[c.dtype][p].spec, sizeof count->by[0][0].spec);
        snprintf(count->by[c.dtype][p].text, ATTN_CASE_TEXT, "%s", text);
    }
    return r.verdict == ATTN_PASS;
}

static void open_case(const char *text, struct attn_setup *setup)
{
    setup_of(text, setup);
    attn_setup_keep(setup);
}

static long passes(void)
{
    long runs = 0;
    for (int dtype = 0; dtype < ATTN_DTYPES; dtype++)
        for (int p = 0; p < 3; p++)
            runs += count->by[dtype][p].runs;
    return runs;
}

/* ---- the battery ---------------------------------------------------------------------------- */

/* A style runs every second case, the next style the others, if not all are asked for. */
static int is_taken(int i, int variant)
{
    int is_style = variant >= attn_impl_count() + VARIANTS;
    return !is_style || getenv("ATTN_FULL") != NULL || (i + variant) % 2 == 0;
}

/* Every SLICES-th case, on all specs one after the other. */
enum { SLICES = 16 };
START_TEST(variants_pass)
{
    for (int i = _i; i < attn_battery_count(); i += SLICES) {
        struct attn_setup setup;
        open_case(attn_battery_at(i)->text, &setup);
        for (int n = 0; n < spec_count(); n++) {
            struct attn_spec spec;
            spec_at(n, &spec);
            if (is_taken(i, n))
                count->passed[n] +=
                    run_honestly(&spec, &setup, attn_battery_at(i)->text, attn_battery_at(i)->why);
        }
        attn_setup_close(&setup);
    }
}
END_TEST

/* Refusals are for what cannot be divided or is not claimed, not a way out. */
START_TEST(variants_do_not_refuse)
{
    for (int n = 0; n < spec_count(); n++)
        ck_assert_msg(count->passed[n] >= 20, "variant %d passed only %ld cases", n,
                      count->passed[n]);
}
END_TEST

/* A style that changes no bit of any output would be counted for nothing. */
START_TEST(styles_differ)
{
    uint64_t digest[STYLES];
    for (int n = 0; n < STYLES; n++) {
        struct attn_spec spec;
        style_at(n, &spec);
        struct attn_result r = result_of(&spec, "h4g2q33k130d8:causal(br):f32:normal:s1:pass=bwd");
        ck_assert_int_eq(r.verdict, ATTN_PASS);
        digest[n] = r.digest;
        for (int m = 0; m < n; m++)
            ck_assert_msg(digest[m] != digest[n], "styles %d and %d give the same bits", m, n);
    }
}
END_TEST

/* Random seeds on the fills that are hardest on arithmetic: the bound must not flag one. */
START_TEST(honest_seeds)
{
    static const char *const fill[] = {"normal",  "offset-120",  "offset-3e5", "stairs-up",
                                       "cliffs",  "stairs-down", "ties",       "hetero",
                                       "lowrank", "spike"};
    struct attn_spec spec;
    spec_at(_i, &spec);
    for (int f = 0; f < 10; f++)
        for (int seed = 0; seed < 4; seed++) {
            char line[256];
            snprintf(line, sizeof line, "b2h4g2q%dk%dd%d:%s:%s:%s:s%d%s:pass=bwd", 24 + 4 * seed,
                     40 - 4 * seed, 12 + f, seed & 1 ? "causal(br)" : "random(0.5,7)",
                     seed & 2 ? "f64" : "f32", fill[f], 1000 + 10 * _i + seed,
                     f % 3 == 0 ? ":softcap=20" : "");
            struct attn_setup setup;
            open_case(line, &setup);
            run_honestly(&spec, &setup, line, "a seed of its own");
            attn_setup_close(&setup);
        }
}
END_TEST

/* Runs after all of the above, and says what they came to. */
START_TEST(honest_runs_are_many)
{
    for (int dtype = 0; dtype < ATTN_DTYPES; dtype++)
        for (int p = 0; p < 3; p++)
            if (count->by[dtype][p].runs + count->by[dtype][p].refused > 0)
                printf("honest runs, %s, %s: %ld, no false alarm (%ld refused); largest "
                       "error/bound %.3g: %s, %s\n",
                       attn_dtype_name((enum attn_dtype)dtype), p_name[p], count->by[dtype][p].runs,
                       count->by[dtype][p].refused, count->by[dtype][p].worst,
                       count->by[dtype][p].spec, count->by[dtype][p].text);
    printf("honest runs, graded: %ld, of which %ld are B (error/T2 up to %.3g)\n", count->graded,
           count->slow, count->rho);
    for (int p = 0; p < 3; p++)
        printf("honest runs, bias, %s: %ld, largest %.3g\n", p_name[p], count->leaned[p],
               count->bias[p]);
    fflush(stdout);
    ck_assert_int_ge(count->graded, 500);
    for (int p = HONEST_EXACT; p <= HONEST_F16; p++) {
        ck_assert_int_gt(count->leaned[p], 0);
        ck_assert(count->bias[p] <= ATTN_BIAS_LIMIT / 3); /* far from an alarm */
    }
    ck_assert_int_ge(passes(), 500);
    for (int p = HONEST_EXACT; p <= HONEST_F16; p++)
        ck_assert_int_ge(count->by[ATTN_F32][p].runs, 100);
}
END_TEST

/* Runs after all of the above: speed is not paid for in digits. */
START_TEST(kernels_err_as_the_textbook_does)
{
    const struct attn_impl *dense = attn_impl_find("dense");
    const double *textbook = NULL;
    ck_assert_int_le(attn_impl_count(), MOST_IMPLS);
    for (int i = 0; i < attn_impl_count(); i++)
        if (attn_impl_at(i) == dense)
            textbook = count->output[i];
    ck_assert_ptr_nonnull(textbook);
    for (int i = 0; i < attn_impl_count(); i++)
        for (int o = 0; o < ATTN_OUTPUTS && attn_impl_at(i)->simd; o++) {
            ck_assert(count->output[i][o] > 0 && textbook[o] > 0);
            ck_assert_msg(count->output[i][o] <= 2 * textbook[o], "%s: %s up to %.3g, dense %.3g",
                          attn_impl_at(i)->name, attn_output_name((enum attn_output)o),
                          count->output[i][o], textbook[o]);
        }
}
END_TEST

/* What a failing case prints runs back to the same verdict. */
START_TEST(failure_reproduces)
{
    struct attn_result r;
    char text[4096], shape[512];
    struct attn_spec spec = spec_of("tiled-textbook:br=16");
    struct attn_case c = case_of("b2h2q9k17d8:causal(br)|prefix(3):f32:ties:s5:softcap=4:pass=bwd");
    attn_run_case(&spec, &c, &r);
    attn_result_print(&spec, &c, &r, text, sizeof text);
    char *at = strstr(text, "attnlab check '");
    ck_assert_ptr_nonnull(at);
    at += strlen("attnlab check '");
    char *end = strchr(at, '\'');
    *end = '\0';
    struct attn_spec again = spec_of(at);
    ck_assert_ptr_eq(again.impl, spec.impl);
    ck_assert_int_eq(memcmp(&again.options, &spec.options, sizeof spec.options), 0);
    at = strstr(end + 1, "--case '") + strlen("--case '");
    snprintf(shape, sizeof shape, "%.*s", (int)strcspn(at, "'"), at);
    struct attn_case back = case_of(shape);
    struct attn_result same;
    attn_run_case(&again, &back, &same);
    ck_assert_uint_eq(same.digest, r.digest);
}
END_TEST

Suite *suite_battery(void)
{
    Suite *suite = suite_create("battery");
    TCase *cases = tcase_create("battery");
    tcase_set_timeout(cases, 240);
    if (count == NULL)
        count =
            mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tcase_add_test(cases, styles_differ);
    tcase_add_test(cases, failure_reproduces);
    if (count != MAP_FAILED) {
        tcase_add_loop_test(cases, variants_pass, 0, SLICES);
        tcase_add_test(cases, variants_do_not_refuse);
        tcase_add_loop_test(cases, honest_seeds, 0, spec_count());
    }
    tcase_add_test(cases, honest_runs_are_many);
    tcase_add_test(cases, kernels_err_as_the_textbook_does);
    suite_add_tcase(suite, cases);
    return suite;
}
