/* See file_fit.h. */
#include "experiments/rim/files/file_fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/diagnose.h"

/* ---- what is declared ------------------------------------------------------------------------ */

/* 1: a set has another meaning than f32 in a storage type. */
static int applies(int set, enum attn_dtype dtype)
{
    return set == 0 || attn_dtype_size(dtype) == 2 ||
           (dtype == ATTN_F32 && !attn_arithmetic[set].sixteen);
}

enum attn_status attn_files_declared(struct attn_files *files, struct attn_error *err)
{
    const struct attn_request *r = files->request;
    enum attn_dtype dtype = ATTN_F32;
    char known[160] = "";
    attn_file_dtype_storage(files->input[ATTN_IN_Q]->tensor->dtype, &dtype);
    for (int n = 0; n < attn_arithmetic_count; n++)
        if (applies(n, dtype))
            attn_append(known, sizeof known, " %s", attn_arithmetic[n].word);
    if (r->arithmetic != NULL && r->claims != NULL)
        return attn_fail(err, ATTN_EINVAL, "--arithmetic and --claims together: one of them");
    if (r->claims != NULL && attn_claims_read(r->claims, &files->claims, err) != ATTN_OK)
        return err->status;
    int set =
        r->arithmetic != NULL ? attn_arithmetic_find(r->arithmetic) : files->claims.arithmetic;
    if (set < 0 || !applies(set, dtype))
        return attn_fail(err, ATTN_EINVAL, "arithmetic '%.40s' with q in %s: there are%s",
                         r->arithmetic != NULL ? r->arithmetic : attn_arithmetic[set].word,
                         attn_dtype_name(dtype), known);
    files->claims.arithmetic = set;
    return ATTN_OK;
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

static enum attn_status fit(const struct attn_file_trial *trial, const struct attn_party *party,
                            struct attn_fit *x, struct attn_error *err)
{
    struct attn_truth truth;
    struct attn_result *r = &x->result;
    enum attn_status status = attn_truth_compute(&trial->files->problem, &trial->inputs,
                                                 &r->precision, &trial->sample, &truth, err);
    for (int o = 0; o < ATTN_OUTPUTS && status == ATTN_OK; o++) {
        struct attn_truth_tensor *t = &truth.tensor[o];
        struct attn_agreement *a = &r->output[o];
        if (party->got[o].data == NULL || t->want == NULL)
            continue;
        attn_truth_store(t, party->stored[o]);
        attn_agree(&party->got[o], t, r->precision.u, a);
        x->silent[o] = count_silent(t, a);
        x->n_bad += a->n_bad;
        r->verdict = x->n_bad > 0 ? ATTN_FAILED : r->verdict;
        r->failure = a->n_not_finite > 0 ? ATTN_F_FINITE : r->failure;
        r->worst = a->ratio > r->worst ? a->ratio : r->worst;
    }
    if (status == ATTN_OK)
        attn_truth_free(&truth);
    return status;
}

/* Of given results: as declared, or of this set. */
static void precision_of(const struct attn_files *files, int set, const struct attn_spec *plain,
                         struct attn_fit *x)
{
    const struct attn_problem *p = &files->problem;
    x->word = set > 0                ? attn_arithmetic[set].word
              : p->dtype == ATTN_F64 ? "f64 arithmetic"
                                     : "f32 arithmetic";
    attn_precision_of(plain->impl, &plain->options, p, &x->result.precision);
    x->result.precision.merges +=
        p->sink.given; /* it may come in as a partial result (ref/sink.h) */
    attn_arithmetic_declare(set, p, &x->result.precision);
    attn_precision_complete(p, &x->result.precision);
    if (files->request->claims == NULL)
        return;
    x->word = files->request->claims;
    attn_claims_precision(&files->claims, p, &x->result.precision);
}

enum attn_status attn_fits_find(const struct attn_file_trial *trial, const struct attn_party *party,
                                struct attn_fits *fits, struct attn_error *err)
{
    const struct attn_files *files = trial->files;
    int is_one = !party->given || files->request->claims || files->request->arithmetic;
    enum attn_dtype dtype = files->problem.dtype;
    struct attn_spec plain;
    enum attn_status status = attn_spec_parse(ATTN_FILES_PLAIN, &plain, err);
    fits->n = fits->best = 0;
    for (int set = is_one ? files->claims.arithmetic : 0;
         set < attn_arithmetic_count && fits->n < ATTN_FITS && status == ATTN_OK; set++) {
        struct attn_fit *x = &fits->of[fits->n];
        int is_wide = set > 0 && attn_dtype_size(dtype) == 2 && !attn_arithmetic[set].sixteen;
        if (!is_one && (is_wide || !applies(set, dtype)))
            continue;
        *x = (struct attn_fit){.word = "",
                               .result = {.failure = ATTN_F_BOUND, .dtype = files->problem.dtype}};
        if (party->given)
            precision_of(files, set, &plain, x);
        else
            attn_precision_of(files->spec.impl, &files->spec.options, &files->problem,
                              &x->result.precision);
        status = fit(trial, party, x, err);
        fits->best = x->n_bad < fits->of[fits->best].n_bad ? fits->n : fits->best;
        fits->n++;
        if ((x->n_bad == 0 && fits->best == 0) || is_one)
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
static void lay_out(const struct attn_file_trial *trial, const struct attn_party *party,
                    struct attn_setup *s)
{
    static const double nothing = 0; /* in place of a result that is not there */
    const struct attn_problem *p = &trial->files->problem;
    const struct attn_inputs *in = &trial->inputs;
    const struct attn_cview input[] = {in->q,          in->k,   in->v,    p->bias.tensor,
                                       p->sink.tensor, in->d_o, in->d_lse};
    const int64_t d = p->d_key, dv = p->d_value,
                  width[ATTN_SLOTS] = {d, d, dv, p->n_key, 1, dv, 1, dv, 1, d, d, dv, p->n_key, 1};
    s->problem = *p;
    s->mask = trial->files->mask;
    s->most_work = 2e7; /* of a model: some seconds for all of them */
    s->given = (struct attn_case){p->batch,
                                  p->heads,
                                  p->kv_heads,
                                  p->n_query,
                                  p->n_key,
                                  d,
                                  dv,
                                  .fill = ATTN_FILL_NORMAL,
                                  .sink = p->sink.given,
                                  .kv_shared = p->kv_shared,
                                  .pass = trial->files->c.pass,
                                  .d_lse = in->d_lse.data != NULL};
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        int o = slot - ATTN_T_O,
            by_key = slot == ATTN_T_K || slot == ATTN_T_V || slot == ATTN_T_DK || slot == ATTN_T_DV;
        struct attn_cview view = o < 0 ? input[slot] : party->got[o];
        if (o >= 0 && view.data == NULL)
            view = (struct attn_cview){&nothing, ATTN_F64, {0}};
        struct attn_tensor *t = &s->tensor[slot];
        *t = (struct attn_tensor){.dtype = view.dtype,
                                  .stored = o < 0 || view.data == &nothing ? view.dtype
                                                                           : party->stored[o],
                                  .extent = {p->batch, by_key ? p->kv_heads : p->heads,
                                             by_key ? p->n_key : p->n_query, width[slot]},
                                  .data = (void *)view.data,
                                  .map = (void *)view.data,
                                  .span = 1};
        if (slot == ATTN_T_SINK || slot == ATTN_T_DSINK)
            t->extent[0] = t->extent[2] = 1;
        memcpy(t->stride, view.stride, sizeof view.stride);
        for (int n = 0; n < 4; n++)
            t->span += (t->extent[n] - 1) * t->stride[n];
    }
    if (!in->want_d_bias)
        s->tensor[ATTN_T_DBIAS].data = NULL;
    if (p->kv_shared)
        s->tensor[ATTN_T_DV].data = NULL;
    if (!in->want_d_sink)
        s->tensor[ATTN_T_DSINK].data = NULL;
}

/* Which rows of the outputs are wrong; how many of how many. */
static double print_rows(const struct attn_result *r)
{
    int64_t bad = 0, rows = 0;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_agreement *a = &r->output[o];
        const int64_t *n_of = a->marks.extent, of = n_of[0] * n_of[1] * n_of[2];
        const char *const axis[] = {"batch", "head",
                                    o == ATTN_DK || o == ATTN_DV ? "key" : "query"};
        if (a->n_bad == 0)
            continue;
        printf("%s%lld of %lld rows of %s", bad > 0 ? "; " : "", (long long)a->bad_rows,
               (long long)of, a->name);
        for (int n = 0; n < 3; n++)
            printf(a->low[n] < a->high[n] ? ", %s %lld to %lld" : ", %s %lld", axis[n],
                   (long long)a->low[n], (long long)a->high[n]);
        bad += a->bad_rows;
        rows += of;
    }
    return (double)bad / (double)rows;
}

/* How much a diagnosis says: of all outputs, of one, of digits, nothing. */
static int worth(int found, const struct attn_diagnosis *x)
{
    int says = found == ATTN_WHAT ? 3 : found == ATTN_WHAT_OF_ONE ? 2 : 0;
    return says > 0 && x->fault == ATTN_FAULT_PRECISION ? 1 : says;
}

/* The cause of a failure, if a model has it: under the narrowest arithmetic in which one fits.
 * share: of the rows that are wrong. */
static void print_cause(const struct attn_file_trial *trial, const struct attn_party *party,
                        const struct attn_fits *fits, double share)
{
    struct attn_setup *setup = attn_cli_need(calloc(1, sizeof *setup));
    struct attn_diagnosis cause = {0}, one;
    int is_whole = trial->sample.n_rows < 0 && trial->sample.n_keys < 0, most = 0, found = 0;
    lay_out(trial, party, setup);
    for (int n = 0; n < fits->n && is_whole && most < 3; n++) {
        found = attn_diagnose(setup, &fits->of[n].result, &one);
        if (worth(found, &one) > most) {
            most = worth(found, &one);
            cause = one;
        }
    }
    free(setup);
    if (most > 1 || (most == 1 && share >= 0.125)) /* coarse arithmetic is coarse everywhere */
        printf("; likely cause: %s\n", cause.text);
    else
        printf("; no cause is known%s\n",
               found == 0 ? ": all rows of one head alone, or of fewer tokens, may show it" : "");
}

/* Wider sets that allow the results too: a bound is the worst case, which does not tell them
 * apart. */
static void print_others(const struct attn_fits *fits)
{
    const char *before = ", the narrowest that allows it; so do ";
    for (int n = fits->best + 1; n < fits->n; n++)
        if (fits->of[n].n_bad == 0) {
            printf("%s%s (%.2g)", before, fits->of[n].word, fits->of[n].result.worst);
            before = ", ";
        }
}

void attn_fits_answer(const struct attn_file_trial *trial, const struct attn_party *party,
                      const struct attn_fits *fits)
{
    const struct attn_fit *first = fits->of, *best = &fits->of[fits->best];
    const char *must = attn_fits_pass(trial->files, fits) ? ""
                                                          : "; if that is meant, declare it: "
                                                            "--arithmetic ";
    if (best->n_bad == 0 && fits->best == 0) {
        printf("%s: rounding, within the bound of %s (%.2g)\n", party->of, best->word,
               best->result.worst);
    } else if (best->n_bad == 0) {
        printf("%s: rounding, %.3g times the bound of %s; within that of %s (%.2g)", party->of,
               first->result.worst, first->word, best->word, best->result.worst);
        print_others(fits);
        printf("%s%s\n", must, *must ? best->word : "");
    } else {
        printf("%s: a bug, %.3g times the bound of %s", party->of, first->result.worst,
               first->word);
        for (int n = 1; n < fits->n; n++)
            printf(", %.3g of %s", fits->of[n].result.worst, fits->of[n].word);
        printf("; beyond %s are ", best->word);
        double share = print_rows(&best->result);
        fflush(stdout); /* the cause takes seconds */
        print_cause(trial, party, fits, share);
    }
}
