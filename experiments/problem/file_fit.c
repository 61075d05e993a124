/* See file_fit.h. */
#include "experiments/problem/file_fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "ref/problem.h"
#include "tests/harness/faults/diagnose.h"
#include "tests/harness/faults/evaluate.h"
#include "tests/harness/files/fileio.h"

/* ---- what is declared ------------------------------------------------------------------------ */

enum attn_status attn_files_declared(struct attn_files *files, struct attn_error *err)
{
    const struct attn_request *r = files->request;
    struct attn_error why;
    if (r->arithmetic != NULL && r->claims != NULL)
        return attn_fail(
            err, ATTN_EINVAL,
            "--arithmetic and --claims together: a declaration has its \"arithmetic\"");
    if (r->claims != NULL)
        return attn_claims_read(r->claims, &files->claims, err);
    if (r->arithmetic == NULL)
        return ATTN_OK;
    char *text = attn_cli_text("{\"claims\": [\"f32\"], \"arithmetic\": \"%.40s\"}", r->arithmetic);
    enum attn_status status = attn_claims_parse("--arithmetic", text, &files->claims, &why);
    free(text);
    return status == ATTN_OK ? ATTN_OK : attn_fail(err, ATTN_EINVAL, "%s", why.text);
}

static int applies(int set, enum attn_dtype dtype)
{
    return set == 0 || dtype == ATTN_BF16 || dtype == ATTN_F16 ||
           (dtype == ATTN_F32 && !attn_arithmetic[set].sixteen);
}

enum attn_status attn_files_declarable(struct attn_files *files, struct attn_error *err)
{
    const char *word = attn_arithmetic[files->claims.arithmetic].word;
    char known[160] = "";
    for (int n = 0; n < attn_arithmetic_count; n++)
        if (applies(n, files->problem.dtype))
            attn_append(known, sizeof known, " %s", attn_arithmetic[n].word);
    return applies(files->claims.arithmetic, files->problem.dtype)
               ? ATTN_OK
               : attn_fail(err, ATTN_EINVAL,
                           "arithmetic %s is none of q, k and v in %s:%s exist there", word,
                           attn_dtype_name(files->problem.dtype), known);
}

/* ---- results under an arithmetic ------------------------------------------------------------- */

/* How many elements nothing can be said about: those without a bound, or all of them where zeros
 * and numbers of the usual size would pass everywhere, and not because the numbers are too small
 * for their types.  A gradient that is 0 but for rounding, within a small bound, is judged. */
static int64_t count_silent(const struct attn_truth_tensor *truth, const struct attn_agreement *x)
{
    double stored = attn_dtype_tiny(truth->stored), storage = attn_dtype_tiny(truth->storage);
    int underflows = x->size <= 8 * (stored > storage ? stored : storage);
    return x->n > 0 && x->n_blind == x->n && !underflows ? x->n : x->n_unbounded;
}

static enum attn_status fit(const struct attn_trial *trial, const struct attn_party *party,
                            struct attn_fit *x, struct attn_error *err)
{
    struct attn_truth truth;
    enum attn_status status = attn_truth_compute(&trial->files->problem, &trial->inputs,
                                                 &x->precision, &trial->sample, &truth, err);
    if (status != ATTN_OK)
        return status;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        struct attn_truth_tensor *t = &truth.tensor[o];
        struct attn_agreement *a = &x->output[o];
        if (party->got[o].data == NULL || t->want == NULL)
            continue;
        attn_truth_store(t, party->stored[o]); /* in the type in which it is stored */
        attn_agree(&party->got[o], t, x->precision.u, a);
        memcpy(x->extent[o], t->extent, sizeof x->extent[o]);
        x->silent[o] = count_silent(t, a);
        x->n_bad += a->n_bad;
        x->n_not_finite += a->n_not_finite;
        x->worst = a->ratio > x->worst ? a->ratio : x->worst;
    }
    attn_truth_free(&truth);
    return ATTN_OK;
}

/* What one fit is of. */
static void precision_of(const struct attn_files *files, int given, int set,
                         const struct attn_spec *plain, struct attn_fit *x)
{
    const struct attn_problem *p = &files->problem;
    int is_declared = given && (files->request->claims || files->request->arithmetic);
    *x = (struct attn_fit){.word = files->request->claims};
    if (!given)
        attn_precision_of(files->spec.impl, &files->spec.options, p, &x->precision);
    else if (files->request->claims != NULL)
        attn_claims_precision(&files->claims, p, &x->precision);
    if (!given || x->word != NULL)
        return;
    set = is_declared ? files->claims.arithmetic : set;
    x->word = set > 0 ? attn_arithmetic[set].word : p->dtype == ATTN_F64 ? "f64" : "f32";
    attn_precision_of(plain->impl, &plain->options, p, &x->precision);
    attn_arithmetic_declare(set, p, &x->precision);
    attn_precision_complete(p, &x->precision);
}

enum attn_status attn_fits_find(const struct attn_trial *trial, const struct attn_party *party,
                                struct attn_fits *fits, struct attn_error *err)
{
    const struct attn_files *files = trial->files;
    int is_one = !party->given || files->request->claims || files->request->arithmetic;
    enum attn_dtype dtype = files->problem.dtype;
    struct attn_spec plain;
    enum attn_status status = attn_spec_parse(ATTN_FILES_PLAIN, &plain, err);
    fits->n = fits->best = 0;
    for (int set = 0; set < (is_one ? 1 : attn_arithmetic_count) && status == ATTN_OK; set++) {
        struct attn_fit *x = &fits->of[fits->n];
        int is_wider = set > 0 && attn_dtype_size(dtype) == 2 && !attn_arithmetic[set].sixteen;
        if (is_wider || !applies(set, dtype) || fits->n == ATTN_FITS)
            continue;
        precision_of(files, party->given, set, &plain, x);
        status = fit(trial, party, x, err);
        fits->best = x->n_bad < fits->of[fits->best].n_bad ? fits->n : fits->best;
        fits->n++;
        if (x->n_bad == 0)
            break;
    }
    return status;
}

int attn_fits_pass(const struct attn_files *files, const struct attn_fits *fits)
{
    return fits->of[fits->best].n_bad == 0 &&
           (fits->best == 0 || attn_dtype_size(files->problem.dtype) == 2);
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* A case that the models of faults can be tried on; its tensors are the files'. */
static void lay_out(const struct attn_trial *trial, const struct attn_party *party,
                    struct attn_setup *s)
{
    const struct attn_problem *p = &trial->files->problem;
    const struct attn_inputs *in = &trial->inputs;
    const struct attn_cview input[ATTN_T_O] = {in->q,          in->k,   in->v,
                                               p->bias.tensor, in->d_o, in->d_lse};
    const enum attn_file_axes axes[ATTN_T_O] = {ATTN_AXES_QUERIES, ATTN_AXES_KEYS,
                                                ATTN_AXES_KEYS,    ATTN_AXES_PAIRS,
                                                ATTN_AXES_QUERIES, ATTN_AXES_ROWS};
    s->problem = *p;
    s->mask = trial->files->mask;
    s->given = (struct attn_case){p->batch,
                                  p->heads,
                                  p->kv_heads,
                                  p->n_query,
                                  p->n_key,
                                  p->d_key,
                                  p->d_value,
                                  .dtype = p->dtype,
                                  .fill = ATTN_FILL_NORMAL,
                                  .pass = trial->files->pass,
                                  .scale = p->scale,
                                  .softcap = p->softcap,
                                  .d_lse = in->d_lse.data != NULL,
                                  .d_bias = in->want_d_bias};
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        int o = slot - ATTN_T_O, by_key = slot < ATTN_T_O && axes[slot] == ATTN_AXES_KEYS;
        const struct attn_cview *view = o < 0 ? &input[slot] : &party->got[o];
        int64_t extent[4] = {p->batch, by_key ? p->kv_heads : p->heads,
                             by_key ? p->n_key : p->n_query,
                             slot == ATTN_T_V || slot == ATTN_T_DO ? p->d_value : p->d_key};
        if (slot == ATTN_T_DLSE || slot == ATTN_T_BIAS)
            extent[3] = slot == ATTN_T_BIAS ? p->n_key : 1;
        s->tensor[slot] = (struct attn_tensor){.dtype = view->dtype,
                                               .stored = o < 0 ? view->dtype : party->stored[o],
                                               .data = (void *)view->data};
        memcpy(s->tensor[slot].extent, extent, sizeof extent);
        memcpy(s->tensor[slot].stride, view->stride, sizeof view->stride);
    }
}

/* Into text: which rows of the outputs are wrong. */
static void put_rows(const struct attn_fit *x, char *text, size_t size)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_agreement *a = &x->output[o];
        const int64_t *n = x->extent[o];
        const char *const axis[3] = {"batch", "head",
                                     o == ATTN_DK || o == ATTN_DV ? "key" : "query"};
        if (a->n_bad == 0)
            continue;
        attn_append(text, size, "; %lld of %lld rows of %s", (long long)a->bad_rows,
                    (long long)(n[0] * n[1] * n[2]), a->name);
        for (int at = 0; at < 3; at++)
            if (a->high[at] > a->low[at])
                attn_append(text, size, ", %s %lld to %lld", axis[at], (long long)a->low[at],
                            (long long)a->high[at]);
            else if (n[at] > 1)
                attn_append(text, size, ", %s %lld", axis[at], (long long)a->low[at]);
    }
}

/* Multiplications of one model: some seconds for all of them. */
static double work_of(const struct attn_problem *p)
{
    return (double)(p->batch * p->heads * p->n_query) * (double)p->n_key *
           (double)(p->d_key + p->d_value + 4);
}

static const double most_work = 4e7;

static void cut_view(struct attn_cview *view, int64_t b, int64_t h)
{
    int64_t first = b * view->stride[0] + h * view->stride[1];
    if (view->data != NULL)
        view->data = (const char *)view->data + first * (int64_t)attn_dtype_size(view->dtype);
}

/* Leave batch b and head h alone; 0: the mask tells them apart. */
static int cut(struct attn_setup *s, int64_t b, int64_t h)
{
    struct attn_problem *p = &s->problem;
    int64_t group = attn_group_of(p);
    if (attn_mask_varies_by_batch(s->mask) || attn_mask_varies_by_head(s->mask))
        return 0;
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        struct attn_tensor *t = &s->tensor[slot];
        struct attn_cview view = attn_tensor_cview(t);
        int by_key = slot == ATTN_T_K || slot == ATTN_T_V;
        cut_view(&view, b, by_key ? h / group : h);
        t->data = slot > ATTN_T_DQ ? NULL : (void *)view.data; /* those are sums over heads */
        t->extent[0] = t->extent[1] = 1;
    }
    cut_view(&p->bias.tensor, b, h);
    if (p->bias.kind == ATTN_BIAS_ALIBI)
        p->bias.slope += h;
    p->batch = p->heads = p->kv_heads = 1;
    s->given.batch = s->given.heads = s->given.kv_heads = 1;
    return 1;
}

/* The cause of a failure, if a model has it, of all heads or of that of the worst element; 0: none
 * has, -1: it is too large, or not all rows are compared. */
static int find_cause(const struct attn_trial *trial, const struct attn_party *party,
                      const struct attn_fit *x, struct attn_diagnosis *cause)
{
    struct attn_setup *setup = attn_cli_need(calloc(1, sizeof *setup));
    struct attn_result r = {.verdict = ATTN_FAILED,
                            .failure = x->n_not_finite > 0 ? ATTN_F_FINITE : ATTN_F_BOUND,
                            .dtype = trial->files->problem.dtype,
                            .precision = x->precision};
    int found = trial->sample.n_rows < 0 && trial->sample.n_keys < 0, o = 0;
    while (x->output[o].n_bad == 0)
        o++;
    memcpy(r.output, x->output, sizeof r.output);
    lay_out(trial, party, setup);
    setup->most_work = most_work;
    if (found && work_of(&setup->problem) > most_work) {
        memset(&r.output[ATTN_DK], 0, (ATTN_OUTPUTS - ATTN_DK) * sizeof *r.output);
        found = o <= ATTN_DQ && cut(setup, x->output[o].at[0], x->output[o].at[1]) &&
                work_of(&setup->problem) <= most_work;
    }
    found = found ? attn_diagnose(setup, &r, cause) == ATTN_WHAT : -1;
    free(setup);
    return found;
}

void attn_fits_answer(const struct attn_trial *trial, const struct attn_party *party,
                      const struct attn_fits *fits)
{
    const struct attn_fit *first = fits->of, *best = &fits->of[fits->best];
    struct attn_diagnosis cause = {0};
    char rows[512] = "";
    const char *plain = first->word[0] == 'f' && first->word[1] != 'u' ? " arithmetic" : "";
    if (best->n_bad == 0 && fits->best == 0) {
        printf("%s: rounding, within the bound of %s%s (%.2g)\n", party->of, best->word, plain,
               best->worst);
        return;
    }
    int found = best->n_bad > 0 ? find_cause(trial, party, best, &cause) : 0;
    printf("%s: %s: ", party->of,
           best->n_bad == 0 ? "rounding"
           : found > 0 && cause.fault == ATTN_FAULT_PRECISION
               ? "a bug, or arithmetic that has no word"
               : "a bug");
    printf("%.3g times the bound of %s%s", first->worst, first->word, plain);
    if (best->n_bad == 0) {
        printf("; within that of %s (%.2g)%s%s\n", best->word, best->worst,
               attn_fits_pass(trial->files, fits) ? "" : ", which must be declared: --arithmetic ",
               attn_fits_pass(trial->files, fits) ? "" : best->word);
        return;
    }
    for (int n = 1; n < fits->n; n++)
        printf(", %.3g of %s", fits->of[n].worst, fits->of[n].word);
    put_rows(best, rows, sizeof rows);
    printf("; beyond %s: %s; ", best->word, rows + 2);
    if (found > 0)
        printf("likely cause: %s\n", cause.text + (strncmp(cause.text, "fits ", 5) == 0 ? 5 : 0));
    else
        printf("%s\n", found == 0 ? "no model of a fault explains it"
                                  : "all rows of a smaller problem would show the cause");
}
