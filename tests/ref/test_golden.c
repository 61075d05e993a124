/* The oracle and the bounds against arbitrary precision: problems with results of 106 bits, made by
 * code that shares nothing with ref/ (tests/golden/exact.c, by MPFR).
 *
 * Masks first: the file's cells come from loops of the generator's own.  Then the oracle, in both
 * of its widths: how many units of rounding of what each element is made of is it away?  Then
 * soundness of T1 where it counts: the true error of honest code, not its distance to the oracle.
 * The battery tests that T1 is of use, near which honest errors come.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/ledger.h"
#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/memory_data.h"
#include "tests/harness/base/files.h"
#include "tests/suites.h"

SUITE(golden);

static const char *const names[] = {
    "plain",         "grouped-causal", "offset-minus",  "offset-plus", "cancel-values",
    "cancel-scores", "ties",           "stairs",        "softcap",     "softcap-bias",
    "alibi",         "bias-shared",    "empty-rows",    "spike",       "flat",
    "subnormal-f32", "subnormal-f64",  "parallel-keys", "cells",       "learned-sinks"};

static const char *const specs[] = {"dense",
                                    "csr-textbook",
                                    "tiled-textbook",
                                    "tiled-textbook:br=4,bc=8",
                                    "tiled-textbook:br=1,bc=1",
                                    "tiled-textbook:br=3,bc=5",
                                    "ring:ranks=1",
                                    "ring:ranks=2",
                                    "ulysses:ranks=2",
                                    "ulysses:ranks=1,local=csr-textbook"};

/* A file as a case: its mask, its numbers, and what should come out. */
struct golden {
    const char *name;
    struct attn_file file;
    struct attn_setup setup;
    struct {
        int64_t extent[4];
        int64_t n;               /* elements; 0: no such output       */
        const double *hi, *rest; /* the result is hi + rest           */
        const double *size;      /* what rounding is relative to      */
    } want[ATTN_OUTPUTS];
};

/* ---- files ---------------------------------------------------------------------------------- */

/* A tensor of the file, its numbers loaded; NULL when it has none of that name. */
static const struct attn_file_tensor *tensor(struct golden *x, const char *name)
{
    struct attn_error err = {0};
    struct attn_file_tensor *t = attn_file_find(&x->file, name);
    ck_assert_msg(t == NULL || attn_file_load(&x->file, t, &err) == ATTN_OK, "%s", err.text);
    return t;
}

static const char *said_of(const struct golden *x, const char *key)
{
    const char *text = attn_file_metadata(&x->file, key);
    return text != NULL ? text : "";
}

/* The bytes that the mask of `cells` names. */
static enum attn_status find_cells(void *arg, const char *name, const char *part,
                                   struct attn_mask_tensor *to, struct attn_error *err)
{
    const struct attn_file_tensor *t = tensor(arg, name);
    if (t == NULL || part[0] != '\0')
        return attn_fail(err, ATTN_EINVAL, "no part '%s' of '%s' here", part, name);
    *to = (struct attn_mask_tensor){t->data, 1, t->n_axes, {0}};
    memcpy(to->extent, t->extent, sizeof to->extent);
    return ATTN_OK;
}

static void set_mask(struct golden *x)
{
    struct attn_problem *p = &x->setup.problem;
    const struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    const struct attn_mask_source source = {find_cells, x};
    struct attn_error err = {0};
    const char *text = said_of(x, "mask");
    attn_mask_free(x->setup.mask);
    ck_assert_msg(attn_mask_parse(text, &shape, &source, &x->setup.mask, &err) == ATTN_OK, "%s: %s",
                  x->name, err.text);
    p->mask = strcmp(text, "none") == 0 ? NULL : x->setup.mask;
}

/* The numbers of an input.  An axis of one in the file of a bias is broadcast. */
static void set_input(struct golden *x, int slot)
{
    struct attn_tensor *to = &x->setup.tensor[slot], *d_bias = &x->setup.tensor[ATTN_T_DBIAS];
    if (to->data == NULL)
        return;
    const struct attn_file_tensor *t = tensor(x, to->name);
    int64_t n = 0, at[4] = ATTN_START, extent[4] = {1, 1, 1, 1};
    memcpy(extent + (slot == ATTN_T_SINK), t->extent, (size_t)t->n_axes * sizeof *extent);
    for (int axis = 0; axis < 4 && slot == ATTN_T_BIAS; axis++)
        if (extent[axis] == 1)
            to->stride[axis] = d_bias->stride[axis] = 0;
    for (; attn_each(at, extent); n++)
        attn_tensor_set(to, at[0], at[1], at[2], at[3],
                        t->dtype == ATTN_FILE_F64 ? ((const double *)t->data)[n]
                                                  : (double)((const float *)t->data)[n]);
    if (slot == ATTN_T_BIAS)
        x->setup.problem.bias.tensor = attn_tensor_cview(to);
}

static void set_slopes(struct golden *x)
{
    const char *at = said_of(x, "alibi");
    for (int64_t h = 0; *at != '\0'; h++) {
        char *end;
        x->setup.slope[h] = strtod(at, &end);
        at = *end == ',' ? end + 1 : end;
    }
}

static void set_wanted(struct golden *x, int o)
{
    static const char *const suffix[] = {"", ".rest", ".size"};
    const double *data[3];
    for (int part = 0; part < 3; part++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s", attn_output_name((enum attn_output)o), suffix[part]);
        const struct attn_file_tensor *t = tensor(x, name);
        if (t == NULL && (o == ATTN_DBIAS || o == ATTN_DSINK))
            return;
        ck_assert_msg(t != NULL, "%s has no %s", x->name, name);
        data[part] = t->data;
        x->want[o].n = t->bytes / 8;
        x->want[o].extent[3] = 1; /* of LSE, which has three axes */
        for (int a = 0; a < 3; a++)
            x->want[o].extent[a] = 1; /* of dsink, which has one */
        memcpy(x->want[o].extent + (o == ATTN_DSINK), t->extent,
               (size_t)t->n_axes * sizeof(int64_t));
    }
    x->want[o].hi = data[0];
    x->want[o].rest = data[1];
    x->want[o].size = data[2];
}

/* wide: values stored as f32 are presented as f64, the same numbers; a problem that is f64 already
 * is itself. */
static struct golden *golden_open(int index, int wide)
{
    char path[256], text[ATTN_CASE_TEXT];
    struct attn_error err = {0};
    struct golden *x = calloc(1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    x->name = names[index];
    snprintf(path, sizeof path, "tests/golden/%s.safetensors", x->name);
    ck_assert_msg(attn_file_open(path, &x->file, &err) == ATTN_OK, "%s", err.text);
    const struct attn_file_tensor *q = tensor(x, "q"), *k = tensor(x, "k"), *v = tensor(x, "v");
    ck_assert_msg(q != NULL && k != NULL && v != NULL, "%s has no q, k, v", path);
    const char *softcap = said_of(x, "softcap");
    snprintf(
        text, sizeof text, "b%dh%dg%dq%dk%dd%dv%d:none:%s:normal:s1:pass=bwd:scale=%s%s%s%s%s%s",
        (int)q->extent[0], (int)q->extent[1], (int)k->extent[1], (int)q->extent[2],
        (int)k->extent[2], (int)q->extent[3], (int)v->extent[3],
        wide || q->dtype == ATTN_FILE_F64 ? "f64" : "f32", said_of(x, "scale"),
        *softcap != '\0' ? ":softcap=" : "", softcap,
        *said_of(x, "alibi") != '\0' ? ":bias=alibi"
        : tensor(x, "bias") != NULL  ? ":bias=full:dbias=1"
                                     : "",
        tensor(x, "dlse") != NULL ? ":dlse=1" : "", tensor(x, "sink") != NULL ? ":sink=zero" : "");
    setup_of(text, &x->setup);
    set_mask(x);
    for (int slot = 0; slot < ATTN_T_O; slot++)
        set_input(x, slot);
    set_slopes(x); /* "alibi-align": "br" in every file, as in cases */
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        set_wanted(x, o);
    ck_assert_msg(attn_problem_check(&x->setup.problem, &err) == ATTN_OK, "%s: %s", path, err.text);
    return x;
}

static void golden_close(struct golden *x)
{
    attn_setup_close(&x->setup);
    attn_file_close(&x->file);
    free(x);
}

/* Both passes of an implementation, into the setup; 0 when it refuses the problem. */
static int golden_run(const struct golden *x, const struct attn_spec *spec)
{
    struct attn_ledger ledger;
    struct attn_error err = {0};
    struct attn_rank_use *use = calloc((size_t)attn_ranks(spec->impl, &spec->options), sizeof *use);
    attn_ledger_init(&ledger, NULL);
    enum attn_status status = memory_run(spec, &x->setup, ATTN_FORWARD, &ledger, use, &err);
    if (status == ATTN_OK)
        status = memory_run(spec, &x->setup, ATTN_BACKWARD, &ledger, use, &err);
    attn_ledger_clear(&ledger);
    free(use);
    ck_assert_msg(status == ATTN_OK || status == ATTN_ENOTSUP, "%s: %s: %s", x->name,
                  spec->impl->name, err.text);
    return status == ATTN_OK;
}

/* |x - (hi + rest)|: the first difference is exact where it matters, near agreement. */
static double distance(double x, double hi, double rest)
{
    if (x == hi && !isfinite(hi))
        return 0; /* LSE of a query that sees nothing */
    return fabs((x - hi) - rest);
}

static void golden_truth(const struct golden *x, const struct attn_spec *spec,
                         struct attn_truth *truth)
{
    truth_of(&x->setup, spec, NULL, truth);
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const int64_t *n = truth->tensor[o].extent;
        ck_assert_msg((truth->tensor[o].want != NULL) == (x->want[o].n > 0), "%s: %s", x->name,
                      attn_output_name((enum attn_output)o));
        if (x->want[o].n > 0)
            ck_assert_int_eq(n[0] * n[1] * n[2] * n[3], x->want[o].n);
    }
}

/* ---- masks ---------------------------------------------------------------------------------- */

TEST_EACH(masks_mean_what_their_cells_say, COUNT(names))
{
    struct golden *x = golden_open(_i, 0);
    const struct attn_problem *p = &x->setup.problem;
    const struct attn_file_tensor *visible = tensor(x, "visible");
    ck_assert_ptr_nonnull(visible);
    const unsigned char *cell = visible->data;
    const int64_t extent[4] = {p->batch, p->heads, p->n_query, p->n_key};
    for (int64_t at[4] = ATTN_START; attn_each(at, extent); cell++)
        ck_assert_msg(attn_problem_allows(p, at[0], at[1], at[2], at[3]) == *cell,
                      "%s: %s at %lld,%lld,%lld,%lld", x->name, said_of(x, "mask"),
                      (long long)at[0], (long long)at[1], (long long)at[2], (long long)at[3]);
    golden_close(x);
}

/* ---- the oracle ----------------------------------------------------------------------------- */

/* The distance of the oracle from the truth that is allowed, in units of 2^-53 of the element's
 * size (exact.c).  Measured: 3.8 0.9 0.4 0.4 1.1 0.9 in double (O of `flat`, 257 equal terms of
 * which 32 at a time are summed plainly), 0.3 0.5 0.2 0.3 0.6 0.2 in long double, whose results are
 * rounded to double once they are done: half a unit by itself. */
static const double allowed_double[ATTN_OUTPUTS] = {8, 2, 1, 1, 2, 2, 2};
static const double allowed_long[ATTN_OUTPUTS] = {1, 1, 1, 1, 1, 1, 1};

/* Where results are subnormal doubles: dS is handed on as a double, half a spacing (2^-1075) off;
 * times |q| <= 4 in each of 4 rows makes 8 spacings, 16 with room for the sums. */
static const double BOTTOM = 0x1p-1070;

TEST_EACH(oracle_meets_mpfr, 2)
{
    int wide = _i; /* 0: double, for the problems stored as f32; 1: long double, for all */
    double worst[ATTN_OUTPUTS] = {0};
    int64_t compared = 0;
    const double *allowed = wide && LDBL_MANT_DIG >= 64 ? allowed_long : allowed_double;
    const struct attn_spec dense = spec_of("dense");
    for (int index = 0; index < COUNT(names); index++) {
        struct golden *x = golden_open(index, wide);
        struct attn_truth truth;
        golden_truth(x, &dense, &truth);
        for (int o = 0; o < ATTN_OUTPUTS && x->setup.problem.dtype == (wide ? ATTN_F64 : ATTN_F32);
             o++)
            for (int64_t n = 0; n < x->want[o].n; n++, compared++) {
                double hi = x->want[o].hi[n], size = x->want[o].size[n];
                double off = distance(truth.tensor[o].want[n], hi, x->want[o].rest[n]);
                int ok = off <= allowed[o] * 0x1p-53 * size + BOTTOM;
                ck_assert_msg(ok, "%s: %s[%lld] = %a, want %a: off by %g u of its size", x->name,
                              truth.tensor[o].name, (long long)n, truth.tensor[o].want[n], hi,
                              off / (0x1p-53 * size));
                if (size > 0x1p-960 && off / (0x1p-53 * size) > worst[o])
                    worst[o] = off / (0x1p-53 * size);
            }
        attn_truth_free(&truth);
        golden_close(x);
    }
    printf("golden: the oracle in %s, %lld elements, largest error in 2^-53 of the size:",
           wide ? "long double" : "double", (long long)compared);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        printf(" %s %.2f", attn_output_name((enum attn_output)o), worst[o]);
    printf("\n");
    ck_assert_int_gt(compared, 1000);
}

/* ---- T1 is sound ---------------------------------------------------------------------------- */

static double rounded(double hi, double rest, enum attn_dtype dtype)
{
    if (dtype == ATTN_F64)
        return hi;
    /* hi may lie half-way between two floats: rest decides then, by a nudge of hi */
    return (double)(float)(rest == 0 ? hi : nextafter(hi, rest > 0 ? HUGE_VAL : -HUGE_VAL));
}

/* The computed number, and the one nearest to the truth, are within T1 of the truth. */
static void check_bound(const struct golden *x, const struct attn_spec *spec)
{
    struct attn_truth truth;
    golden_truth(x, spec, &truth);
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_tensor *got = &x->setup.tensor[ATTN_T_O + o];
        int64_t n = 0, at[4] = ATTN_START;
        for (; x->want[o].n > 0 && attn_each(at, x->want[o].extent); n++) {
            double hi = x->want[o].hi[n], rest = x->want[o].rest[n];
            const double is[] = {attn_tensor_get(got, at[0], at[1], at[2], at[3]),
                                 rounded(hi, rest, got->dtype)};
            for (int which = 0; which < 2; which++)
                ck_assert_msg(distance(is[which], hi, rest) <= truth.tensor[o].bound[n],
                              "%s: %s[%lld] = %a, want %a within %g", x->name, truth.tensor[o].name,
                              (long long)n, is[which], hi, truth.tensor[o].bound[n]);
        }
    }
    attn_truth_free(&truth);
}

TEST_EACH(no_honest_error_exceeds_t1, COUNT(specs))
{
    const struct attn_spec spec = spec_of(specs[_i]);
    int runs = 0;
    for (int index = 0; index < 2 * COUNT(names); index++) {
        struct golden *x = golden_open(index / 2, index % 2);
        if (golden_run(x, &spec)) {
            check_bound(x, &spec);
            runs++;
        }
        golden_close(x);
    }
    ck_assert_int_ge(runs, 6); /* ranks refuse what they cannot split */
}
