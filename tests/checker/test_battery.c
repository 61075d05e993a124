/* The battery on all that it must tell apart: honest code, which is never flagged, and nonsense,
 * which fails wherever it is wrong.
 *
 * A case is set up once for all specs.  Options walk tile shapes, mask stores, rank counts and
 * local implementations, because an honest implementation stays honest whatever its tiles are;
 * tests/variants/honest.h walks orders of summation, bases, splits and 16-bit P.  The kernels of
 * every instruction set and 16-bit storage take the cases in other types too.  Every family of the
 * battery has a case that fails each null model (tests/variants/null.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimized/simd/isa.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/bound/kept.h"
#include "tests/harness/cases/claims.h"
#include "tests/harness/judge/runner.h"
#include "tests/suites.h"
#include "tests/variants/honest.h"
#include "tests/variants/null.h"

static const char *const variants[] = {
#include "tests/variants/specs.def"
};

/* Styles of the honest variant, as its options. */
static const int64_t styles[][HALF_STORE] = {
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

/* Those that variant_half runs in, whose inputs and outputs have 16 bits. */
static const int64_t half_styles[][HALF_STORE] = {
    {HONEST_FORWARD, HONEST_E, 1, HONEST_EXACT, HONEST_DOT},
    {HONEST_REVERSE, HONEST_TWO, 1, HONEST_EXACT, HONEST_SUM},
    {HONEST_PAIRWISE, HONEST_E, 5, HONEST_EXACT, HONEST_DOT},
    {HONEST_FORWARD, HONEST_E, 1, HONEST_BF16, HONEST_DOT},
    {HONEST_PAIRWISE, HONEST_TWO, 3, HONEST_F16, HONEST_SUM},
};

/* The subject that is judged, and its cases. */
enum kind {
    SPEC,    /* registered: each case as it is                                  */
    VARIANT, /* of other options: every fifth case, if not all are asked for    */
    RANKS,   /* the same for many ranks, which share one engine: those made for ranks, and one in
                eight of the others, if not all are asked for */
    STYLE,   /* every fifth case, if not all are asked for                      */
    KERNEL,  /* an implementation on an instruction set: in all types           */
    HALF     /* a style that stores 16 bits: in both types of that              */
};
struct contender {
    enum kind kind;
    struct attn_spec spec;
    int turn; /* which cases of those that it need not all take */
};
enum { MOST_IMPLS = 32, MOST = 4 * MOST_IMPLS + COUNT(variants) + STYLES + COUNT(half_styles) };

static struct attn_spec style_of(const struct attn_impl *impl, const int64_t style[HALF_STORE])
{
    struct attn_spec spec = {.impl = impl};
    attn_options_preset(impl, &spec.options);
    memcpy(spec.options.value, style, HALF_STORE * sizeof *style);
    return spec;
}

static int add_spec(struct contender *list, int n, const char *text)
{
    struct attn_spec spec = spec_of(text);
    enum kind kind = spec.impl->ranks != NULL        ? RANKS
                     : strcmp(spec.impl->name, text) ? VARIANT
                                                     : SPEC;
    list[n] = (struct contender){kind, spec, n};
    return n + 1;
}

static int add_kernels(struct contender *list, int n)
{
    for (int i = 0; i < attn_isa_count(); i++)
        for (int m = 0; m < attn_impl_count() && attn_isa_at(i)->present(); m++) {
            const struct attn_impl *impl = attn_impl_at(m);
            if (!impl->simd)
                continue;
            ck_assert_int_lt(n, MOST);
            list[n] = (struct contender){KERNEL, {.impl = impl}, i + ATTN_DTYPES * i + m};
            attn_options_preset(impl, &list[n].spec.options);
            list[n++].spec.options.isa = attn_isa_at(i);
        }
    return n;
}

/* Registered, variants of those, styles; then kernels and 16-bit styles. */
static int contenders(struct contender list[MOST])
{
    int n = 0;
    ck_assert_int_le(attn_impl_count(), MOST_IMPLS);
    for (int i = 0; i < attn_impl_count(); i++)
        n = add_spec(list, n, attn_impl_at(i)->name);
    for (int v = 0; v < COUNT(variants); v++)
        n = add_spec(list, n, variants[v]);
    for (int style = 0; style < STYLES; style++, n++)
        list[n] = (struct contender){STYLE, style_of(&variant_honest, styles[style]), n};
    n = add_kernels(list, n);
    for (int style = 0; style < COUNT(half_styles); style++)
        list[n++] = (struct contender){HALF, style_of(&variant_half, half_styles[style]), 0};
    return n;
}

/* One in `every` cases, drawn by the case's name: a case more changes nothing for the others.  Each
 * turn and type has draws of its own. */
static int is_drawn(int turn, const char *name, enum attn_dtype dtype, int every)
{
    uint64_t hash = 0;
    for (; *name != '\0'; name++)
        hash = attn_hash(hash, 0, (unsigned char)*name);
    return attn_hash(hash, (uint64_t)turn, dtype) % (uint64_t)every == 0;
}

/* 1: ranks divide the lengths and heads as they must, and groups are claimed where there are some:
 * textbooks have whole shards alone. */
static int divides(const struct attn_spec *spec, const char *name)
{
    struct attn_case c = case_of(attn_battery_find(name)->text);
    struct attn_claims claims;
    attn_claims_of_impl(spec->impl, &spec->options, &claims);
    return attn_shapes_have(&claims.shapes, ATTN_FACTOR_QUERIES, c.n_query) &&
           attn_shapes_have(&claims.shapes, ATTN_FACTOR_KEYS, c.n_key) &&
           attn_shapes_have(&claims.shapes, ATTN_FACTOR_HEADS, c.heads) &&
           (claims.bits & ATTN_CAP_GQA || c.heads == c.kv_heads);
}

static int is_textbook(const struct contender *x)
{
    return strstr(x->spec.impl->name, "-textbook") != NULL;
}

/* A case of the battery, in this type, is the contender's; own: the type is the case's own.
 * Kernels take all cases in all types, if ATTN_FULL is set.  Else they take, in f32, those made for
 * kernels; of the rest one in six in its own type; in other types, which cost an oracle each,
 * half of one in six, the same for all; those are what is asked of 16-bit styles. */
static int takes(const struct contender *x, int i, enum attn_dtype dtype, int own)
{
    const char *name = attn_battery_at(i)->name;
    int full = getenv("ATTN_FULL") != NULL;
    switch (x->kind) {
    case RANKS:
        return own && divides(&x->spec, name) &&
               (full || is_textbook(x) || strncmp(name, "ranks-", 6) == 0 ||
                is_drawn(x->turn, name, dtype, 8));
    case VARIANT:
    case STYLE:
        return own && (full || is_drawn(x->turn, name, dtype, 5));
    case KERNEL:
        if (full || (dtype == ATTN_F32 && strncmp(name, "tile-", 5) == 0))
            return 1;
        return own ? is_drawn(x->turn, name, dtype, 6)
                   : is_drawn(0, name, dtype, 6) && is_drawn(x->turn, name, dtype, 2);
    case HALF:
        return (dtype == ATTN_BF16 || dtype == ATTN_F16) &&
               (full || own || is_drawn(0, name, dtype, 6));
    default:
        return own;
    }
}

/* ---- the count ------------------------------------------------------------------------------ */

/* By storage type and by the type of P; shared with the children in which tests run. */
static const char *const p_name[] = {"exact P", "P in bf16", "P in f16"};
enum { MOST_CASES = 1024 };
struct honest_count {
    struct {
        long runs, refused;
        double worst;
        char spec[128], text[ATTN_CASE_TEXT];
    } by[ATTN_DTYPES][3];
    double output[MOST_IMPLS][ATTN_OUTPUTS]; /* worst error/bound of each, 16-bit storage aside */
    long graded, slow, leaned[3];  /* grades, those of B; looked at for bias, by the type of P */
    double rho, bias[3];           /* the largest */
    long asked[MOST][ATTN_DTYPES]; /* cases of the battery by contender */
    long passed[MOST][ATTN_DTYPES];
    char null_fails[NULL_MODELS][MOST_CASES];
};
static struct honest_count *count;

static void share_count(void)
{
    count = test_shared(sizeof *count);
    attn_keep_freed();
}

SUITE(battery, .prepare = share_count);

static void note_outputs(const struct attn_spec *spec, const struct attn_case *c,
                         const struct attn_result *r)
{
    for (int i = 0; i < attn_impl_count() && i < MOST_IMPLS; i++)
        for (int o = 0; o < ATTN_OUTPUTS; o++)
            if (attn_impl_at(i) == spec->impl && r->verdict == ATTN_PASS && r->output[o].n > 0 &&
                (c->dtype == ATTN_F32 || c->dtype == ATTN_F64))
                count->output[i][o] = fmax(count->output[i][o], r->output[o].ratio);
}

/* Of what is registered, its variants and the styles. */
static void note(const struct attn_spec *spec, const struct attn_case *c, const char *text,
                 const struct attn_result *r)
{
    int64_t p = spec->impl == &variant_honest ? spec->options.value[HONEST_P] : HONEST_EXACT;
    count->by[c->dtype][p].runs += r->verdict == ATTN_PASS;
    count->by[c->dtype][p].refused += r->verdict == ATTN_REFUSED;
    note_outputs(spec, c, r);
    count->graded += r->verdict == ATTN_PASS && r->grade.letter != 0;
    count->slow += r->grade.letter == 'B';
    count->rho = fmax(count->rho, r->grade.rho);
    count->leaned[p] += r->grade.rows > 0;
    count->bias[p] = fmax(count->bias[p], fabs(r->grade.bias));
    if (r->verdict == ATTN_PASS && r->worst > count->by[c->dtype][p].worst) {
        count->by[c->dtype][p].worst = r->worst;
        attn_spec_print(spec, count->by[c->dtype][p].spec, sizeof count->by[0][0].spec);
        snprintf(count->by[c->dtype][p].text, ATTN_CASE_TEXT, "%s", text);
    }
}

/* Returns 1 when it passed, 0 when it refused.  In types that are not the case's own, a kernel or
 * a style may pass where zeros would have passed as well. */
static int run_honestly(const struct contender *x, struct attn_setup *setup, const char *text)
{
    const struct attn_case c = setup->given;
    struct attn_result r;
    attn_run_setup(&x->spec, setup, NULL, &r);
    if (r.verdict != ATTN_REFUSED || x->kind == HALF)
        ck_passed(&x->spec, &c, &r, x->kind >= KERNEL);
    if (x->kind < KERNEL)
        note(&x->spec, &c, text, &r);
    return r.verdict == ATTN_PASS;
}

static void open_case(const char *text, struct attn_setup *setup)
{
    setup_of(text, setup);
    attn_setup_keep(setup);
    setup->unweighed = 1;
}

/* ---- nonsense ------------------------------------------------------------------------------- */

/* 1: a tensor is beyond its bound somewhere; 0: nowhere.  attn_agree is under test, so not by
 * it. */
static int is_beyond(const struct attn_tensor *got, const struct attn_truth_tensor *truth)
{
    int64_t at[4] = ATTN_START;
    for (int64_t e = 0; truth->want != NULL && attn_each(at, truth->extent); e++) {
        double x = attn_tensor_get(got, at[0], at[1], at[2], at[3]), want = truth->want[e];
        if (isinf(want) ? x != want : !(fabs(x - want) <= truth->bound[e]))
            return 1;
    }
    return 0;
}

static int is_wrong(const struct attn_spec *spec, struct attn_setup *s)
{
    const struct attn_inputs in = attn_setup_inputs(s, s->given.pass);
    struct attn_precision precision;
    struct attn_error err = {0};
    enum attn_status status;
    int wrong = 0;
    attn_precision_of(spec->impl, &spec->options, &s->problem, &precision);
    const struct attn_kept_truth *kept =
        attn_kept_truth(&s->problem, &in, &precision, NULL, &status, &err);
    ck_assert_msg(kept != NULL, "%s", err.text);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (kept->truth.tensor[o].want != NULL)
            wrong |= is_beyond(&s->tensor[ATTN_T_O + o], &kept->truth.tensor[o]);
    return wrong;
}

static void run_nonsense(enum null_model model, int i, struct attn_setup *setup)
{
    const struct attn_battery_case *battery = attn_battery_at(i);
    struct attn_spec spec = null_spec(model);
    struct attn_result r;
    attn_run_setup(&spec, setup, NULL, &r);
    if (r.verdict == ATTN_REFUSED)
        return; /* storage that does not exist yet */
    if (is_wrong(&spec, setup))
        ck_assert_msg(r.verdict == ATTN_FAILED, "%s: %s is beyond the bound, yet it is %s: %s",
                      battery->name, null_model_name[model], attn_verdict_name(r.verdict), r.text);
    else /* within the bound: only a probe at zero tolerance may tell */
        ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_WEAK ||
                          (r.verdict == ATTN_FAILED && r.failure == ATTN_F_EXACT),
                      "%s: %s is within the bound, yet it is %s: %s", battery->name,
                      null_model_name[model], attn_verdict_name(r.verdict), r.text);
    count->null_fails[model][i] = r.verdict == ATTN_FAILED;
}

/* ---- the battery ---------------------------------------------------------------------------- */

/* A case in a type, on all that take it. */
static void run_battery_case(int i, enum attn_dtype dtype, const struct contender *list, int n)
{
    const struct attn_battery_case *battery = attn_battery_at(i);
    struct attn_case c = case_of(battery->text);
    struct attn_setup setup;
    int own = c.dtype == dtype, takers = own;
    for (int x = 0; x < n; x++)
        takers += takes(&list[x], i, dtype, own);
    c.dtype = dtype;
    if (takers == 0)
        return;
    if (attn_setup_open(&c, &setup, NULL) != ATTN_OK) { /* a count that 8 bits cannot hold */
        ck_assert_msg(!own && (c.fill == ATTN_FILL_REVEAL || dtype == ATTN_F64), "%s",
                      battery->name);
        return;
    }
    attn_setup_keep(&setup);
    setup.unweighed = 1;
    for (int x = 0; x < n; x++)
        if (takes(&list[x], i, dtype, own)) {
            count->asked[x][dtype]++;
            count->passed[x][dtype] += run_honestly(&list[x], &setup, battery->text);
        }
    for (int model = 0; model < NULL_MODELS && own; model++)
        run_nonsense((enum null_model)model, i, &setup);
    attn_setup_close(&setup);
}

/* Every SLICES-th case. */
enum { SLICES = 16 };
TEST_EACH(all_are_told_apart, SLICES)
{
    struct contender list[MOST];
    int n = contenders(list);
    ck_assert_int_le(attn_battery_count(ATTN_TIER_QUICK), MOST_CASES);
    for (int i = _i; i < attn_battery_count(ATTN_TIER_QUICK); i += SLICES)
        for (int dtype = 0; dtype < ATTN_DTYPES; dtype++)
            run_battery_case(i, (enum attn_dtype)dtype, list, n);
}

/* Errors that no case of a tier has had: the weight of a sink that comes in late, where keys agree
 * and LSE is large; terms of dK that are scaled first, and each underflow. */
static const char *const rare[][2] = {
    {"tiled", "h56q14k2d1:none:f64:rows:s1:sink=normal"},
    {"ulysses-textbook", "b2h4q16d288v140:window(8,8,br)&global(3):f32:rows:s219:pass=bwd:"
                         "softcap=30:sink=large"},
};

TEST_EACH(rare_errors_are_honest, COUNT(rare))
{
    struct attn_spec spec = spec_of(rare[_i][0]);
    struct attn_case c = case_of(rare[_i][1]);
    struct attn_result r = result_of(&spec, rare[_i][1]);
    ck_passed(&spec, &c, &r, 0);
}

/* Refusals are for what cannot be divided or is not claimed, not a way out. */
TEST(the_honest_do_not_refuse)
{
    struct contender list[MOST];
    int n = contenders(list);
    for (int x = 0; x < n; x++) {
        const struct attn_impl *impl = list[x].spec.impl;
        long asked = 0, passed = 0;
        int at_least = list[x].kind >= KERNEL ? 98 : 75;
        for (int dtype = 0; dtype < ATTN_DTYPES; dtype++)
            if (list[x].kind != KERNEL || (impl->caps >> dtype & 1)) {
                asked += count->asked[x][dtype];
                passed += count->passed[x][dtype];
            }
        long least = list[x].kind == RANKS && is_textbook(&list[x]) ? 20 : 50; /* few divide */
        ck_assert_msg(asked >= least && 100 * passed >= at_least * asked,
                      "%s (number %d) passed only %ld of %ld cases", impl->name, x, passed, asked);
    }
}

/* Families of cases: the headings of cases.def. */
enum { FAMILIES = 32 };
struct families {
    int n;
    char name[FAMILIES][8]; /* "F1", ... */
    int of_case[1024];      /* by number in the quick battery */
};

static void read_families(struct families *f)
{
    char line[512], name[128];
    int n = 0;
    FILE *file = fopen("tests/harness/cases/cases.def", "r");
    ck_assert_ptr_nonnull(file);
    memset(f, 0, sizeof *f);
    while (fgets(line, sizeof line, file) != NULL) {
        ck_assert_int_lt(f->n, FAMILIES);
        if (sscanf(line, "/* ---- %7[F0-9]:", f->name[f->n]) == 1)
            f->n++;
        else if (sscanf(line, "ATTN_CASE(\"%127[^\"]", name) == 1) {
            ck_assert_msg(f->n > 0 && n < 1024, "%s stands under no heading", name);
            ck_assert_str_eq(attn_battery_at(n)->name, name);
            f->of_case[n++] = f->n - 1;
        }
    }
    fclose(file);
    ck_assert(n > 0 && n <= attn_battery_count(ATTN_TIER_QUICK) &&
              attn_battery_count(ATTN_TIER_QUICK) <= 1024);
    while (n < attn_battery_count(ATTN_TIER_QUICK)) /* made by a macro under the last heading */
        f->of_case[n++] = f->n - 1;
}

TEST_EACH(nonsense_fails_in_every_family, NULL_MODELS)
{
    struct families families;
    int failed[FAMILIES] = {0}, all = 0;
    read_families(&families);
    for (int i = 0; i < attn_battery_count(ATTN_TIER_QUICK); i++) {
        failed[families.of_case[i]] += count->null_fails[_i][i];
        all += count->null_fails[_i][i];
    }
    printf("null model '%s' fails %d of %d cases:", null_model_name[_i], all,
           attn_battery_count(ATTN_TIER_QUICK));
    for (int f = 0; f < families.n; f++)
        printf(" %s %d", families.name[f], failed[f]);
    printf("\n");
    fflush(stdout);
    for (int f = 0; f < families.n; f++)
        ck_assert_msg(failed[f] > 0, "no case of %s fails the null model '%s'", families.name[f],
                      null_model_name[_i]);
    ck_assert_int_ge(families.n, 10);
}

/* A style that changes no bit of any output would be counted for nothing. */
TEST(styles_differ)
{
    uint64_t digest[STYLES];
    for (int n = 0; n < STYLES; n++) {
        struct attn_spec spec = style_of(&variant_honest, styles[n]);
        struct attn_result r = result_of(&spec, "h4g2q33k130d8:causal(br):f32:normal:s1:pass=bwd");
        ck_assert_int_eq(r.verdict, ATTN_PASS);
        digest[n] = r.digest;
        for (int m = 0; m < n; m++)
            ck_assert_msg(digest[m] != digest[n], "styles %d and %d give the same bits", m, n);
    }
}

/* Random seeds on the fills that are hardest on arithmetic: the bound must not flag one.  Every
 * GROUPS-th contender has cases of its own, which are set up once for them. */
enum { GROUPS = 4 };
TEST_EACH(honest_seeds, GROUPS)
{
    static const char *const fill[] = {"normal",  "offset-120",  "offset-3e5", "stairs-up",
                                       "cliffs",  "stairs-down", "ties",       "hetero",
                                       "lowrank", "spike"};
    struct contender list[MOST];
    int n = contenders(list);
    for (int f = 0; f < 10; f++)
        for (int seed = 0; seed < 4; seed++) {
            if (getenv("ATTN_FULL") == NULL && (seed % 3 != 0) != f % 2)
                continue; /* of two masks and two types each once */
            char line[256];
            struct attn_setup setup;
            snprintf(line, sizeof line, "b2h4g2q%dk%dd%d:%s:%s:%s:s%d%s:pass=bwd", 24 + 4 * seed,
                     40 - 4 * seed, 12 + f, seed & 1 ? "causal(br)" : "random(0.5,7)",
                     seed & 2 ? "f64" : "f32", fill[f], 1000 + 10 * _i + seed,
                     f % 3 == 0 ? ":softcap=20" : "");
            open_case(line, &setup);
            for (int x = _i; x < n; x += GROUPS)
                if (list[x].kind < KERNEL)
                    run_honestly(&list[x], &setup, line);
            attn_setup_close(&setup);
        }
}

/* Runs after all of the above, and says what they came to. */
TEST(honest_runs_are_many)
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
    for (int p = HONEST_EXACT; p <= HONEST_F16; p++)
        ck_assert_int_ge(count->by[ATTN_F32][p].runs, 100);
}

/* Runs after all of the above: speed is not paid for in digits. */
TEST(kernels_err_as_the_textbook_does)
{
    const struct attn_impl *dense = attn_impl_find("dense");
    const double *textbook = NULL;
    ck_assert_int_le(attn_impl_count(), MOST_IMPLS);
    for (int i = 0; i < attn_impl_count(); i++)
        if (attn_impl_at(i) == dense)
            textbook = count->output[i];
    ck_assert_ptr_nonnull(textbook);
    for (int i = 0; i < attn_impl_count(); i++)
        for (int o = 0; o < ATTN_OUTPUTS && attn_impl_at(i)->ranks == NULL; o++) {
            if (o == ATTN_DSINK && attn_impl_at(i)->sinks == ATTN_SINKS_AROUND)
                continue;                              /* ref/sink.c sums in double */
            ck_assert_msg(count->output[i][o] >= 0.01, /* else the bound is of no use */
                          "%s of %s never comes nearer to its bound than %g",
                          attn_output_name((enum attn_output)o), attn_impl_at(i)->name,
                          count->output[i][o]);
        }
    for (int i = 0; i < attn_impl_count(); i++)
        for (int o = 0; o < ATTN_OUTPUTS && attn_impl_at(i)->simd; o++) {
            ck_assert(count->output[i][o] > 0 && textbook[o] > 0);
            ck_assert_msg(count->output[i][o] <= 2 * textbook[o], "%s: %s up to %.3g, dense %.3g",
                          attn_impl_at(i)->name, attn_output_name((enum attn_output)o),
                          count->output[i][o], textbook[o]);
        }
}
