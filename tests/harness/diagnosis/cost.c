/* See cost.h. */
#include "tests/harness/diagnosis/cost.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/faults.h"

/* Shape and mask; fill, seed and fields: between them stands the type. */
static const struct {
    const char *problem, *rest;
} asked[] = {{"h2q19d8:none", "normal:s1"},
             {"q36d8:none", "stairs-up:s2"},
             {"h2q12d8:none", "offset-120:s3"},
             {"b2h2q18d8:causal(tl)", "normal:s4:scale=0.4"},
             {"b2h6g2q9d8:none", "normal:s5:scale=0.4"},
             {"b2h4g2q12k19d12v8:causal(br)", "normal:s6"},
             {"b2h2q19k12d8:causal(br)", "normal:s7"},
             {"h4g2q18d8:window(5,2,br)", "normal:s8"},
             {"b2h4g2q9k21d8:dense(bhqk50)", "normal:s9"},
             {"h4g2q9k19d8:none", "normal:s10:softcap=1.5"},
             {"b2h4g2q9k12d8:none", "normal:s11:bias=full:dbias=1:pass=bwd"},
             {"h4g2q18d8:causal(br)", "normal:s12:bias=alibi"},
             {"h4g2q12k19d8:none", "normal:s13:dlse=1:pass=bwd"}};

enum { MOST_ROWS = 400, MOST_OF_ROW = 3 /* hypotheses of a row, in one pass */ };

/* The rows of faults.def that move a result: at all, and beyond the bounds. */
enum bound { AT_ALL, PLAIN, DECLARED, BOUNDS };
struct cost {
    const struct attn_claims *claims;
    unsigned char moves[BOUNDS][MOST_ROWS];
    char words[MOST_ROWS][60];
};

/* The results are right, and bounds as asked for. */
static void put_truth(struct attn_setup *s, struct attn_failed_run *run, enum bound bound)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        struct attn_truth_tensor *t = &run->truth.tensor[o];
        const int64_t n =
            t->want != NULL ? attn_run_rows(run, (enum attn_output)o) * t->extent[3] : 0;
        double *x = run->x[ATTN_T_O + o], size = 0;
        int64_t at[4] = ATTN_START;
        run->compared[o] = run->failing[o] = n > 0;
        for (int64_t e = 0; e < n && attn_each(at, t->extent); e++) {
            attn_tensor_set(&s->tensor[ATTN_T_O + o], at[0], at[1], at[2], at[3], t->want[e]);
            x[e] = t->want[e];
            size = isfinite(x[e]) ? fmax(size, fabs(x[e])) : size;
        }
        for (int64_t e = 0; e < n && bound == AT_ALL; e++)
            t->bound[e] = 1e-5 * size; /* less is no mistake */
    }
}

/* Every model that is not known to exceed the bound, in one pass. */
static void ask(const struct attn_failed_run *run, enum bound bound, struct cost *x)
{
    struct attn_hypothesis h = {0};
    int r = -1, of_row = 0;
    while (attn_hypothesis_next(run, &h) && h.r < MOST_ROWS) {
        of_row = h.r == r ? of_row + 1 : 0;
        r = h.r;
        if (h.kind == ATTN_FAULT_PRECISION || of_row == MOST_OF_ROW || x->moves[bound][r])
            attn_hypothesis_skip(&h);
        else if (attn_fault_exceeds(run, &h.model)) {
            x->moves[bound][r] = 1;
            snprintf(x->words[r], sizeof *x->words, "%.59s", h.words);
        }
    }
}

/* 0 without memory. */
static int ask_all(struct attn_setup *s, struct cost *x)
{
    static const struct attn_impl plain = {0};
    static const struct attn_options none = {.threads = 1};
    for (enum bound bound = AT_ALL; bound < BOUNDS; bound++) {
        struct attn_precision precision;
        struct attn_failed_run run = {.ranks = 1};
        attn_precision_of(&plain, &none, &s->problem, &precision);
        if (bound == DECLARED)
            attn_claims_precision(x->claims, &s->problem, &precision);
        if (!attn_run_open(&run, s, &precision))
            return 0;
        put_truth(s, &run, bound);
        run.loose = (double)INFINITY;
        for (; run.backward <= (int)s->given.pass; run.backward++)
            ask(&run, bound, x);
        attn_run_close(&run);
    }
    return 1;
}

/* Every case, in as many passes as the claims allow. */
static enum attn_status ask_about_all(struct cost *x, enum attn_dtype dtype, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (size_t n = 0; n < 2 * sizeof asked / sizeof *asked && status == ATTN_OK; n++) {
        char text[ATTN_CASE_TEXT];
        struct attn_case c;
        struct attn_setup s;
        unsigned needs;
        snprintf(text, sizeof text, "%s:%s:%s", asked[n / 2].problem, attn_dtype_name(dtype),
                 asked[n / 2].rest);
        status = attn_case_parse(text, &c, err);
        c.pass = n % 2 == 0 ? ATTN_BACKWARD : ATTN_FORWARD;
        c.d_lse &= c.pass == ATTN_BACKWARD, c.d_bias &= c.pass == ATTN_BACKWARD;
        if (status == ATTN_OK)
            status = attn_setup_open(&c, &s, err);
        if (status != ATTN_OK)
            break;
        int is_allowed =
            attn_claims_allow(x->claims, &s, ATTN_ROUTE_FILES, &needs, NULL) == ATTN_OK;
        if (is_allowed && !ask_all(&s, x))
            status = attn_fail(err, ATTN_ENOMEM, "no memory for what a bound costs");
        n += is_allowed && n % 2 == 0; /* the backward had a forward */
        attn_setup_close(&s);
    }
    return status;
}

/* The mistakes that the bound allows, as many as there is room for. */
static void put_within(const struct cost *x, char *text, size_t size)
{
    const char *before = "; within it: ";
    for (int r = 0; r < MOST_ROWS; r++) {
        const char *words = x->words[r] + (strncmp(x->words[r], "if ", 3) == 0 ? 3 : 0);
        if (!x->moves[AT_ALL][r] || x->moves[DECLARED][r] || strstr(text, words) != NULL)
            continue;
        int is_full = strlen(text) + strlen(words) + 20 > size;
        attn_append(text, size, "%s%s", before, is_full ? "..." : words);
        before = ", ";
        if (is_full)
            return;
    }
}

enum attn_status attn_bound_cost(const struct attn_claims *claims, enum attn_dtype dtype,
                                 char *text, size_t size, struct attn_error *err)
{
    struct attn_claims any = *claims;
    struct cost x = {.claims = &any};
    memset(&any.shapes, 0, sizeof any.shapes); /* the problems are small, whatever is declared */
    int n[BOUNDS] = {0};
    enum attn_status status = ask_about_all(&x, dtype, err);
    for (int r = 0; r < MOST_ROWS; r++)
        for (int bound = 0; bound < BOUNDS; bound++)
            n[bound] += x.moves[AT_ALL][r] & x.moves[bound][r];
    snprintf(text, size, "What the declared bound costs: %d of %d fault models exceed it in %s",
             n[DECLARED], n[AT_ALL], attn_dtype_name(dtype));
    if (n[PLAIN] != n[DECLARED])
        attn_append(text, size, " (%d in plain %s arithmetic)", n[PLAIN],
                    dtype == ATTN_F64 ? "f64" : "f32");
    put_within(&x, text, size);
    return status;
}
