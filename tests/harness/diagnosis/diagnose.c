/* See diagnose.h. */
#include "tests/harness/diagnosis/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/faults.h"

/* Takes the outputs and the pass that failed. */
static void take_result(struct attn_failed_run *run, const struct attn_result *r)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        run->compared[o] = r->output[o].n > 0;
        run->failing[o] = r->output[o].n_bad > 0 || (o == ATTN_O && r->failure == ATTN_F_EXACT);
    }
    run->backward = !run->failing[ATTN_O] && !run->failing[ATTN_LSE];
}

/* ---- what explains it ----------------------------------------------------------------------- */

/* The largest error of a row, in bounds of this truth. */
static double ratio_of(const struct attn_failed_run *run, const struct attn_truth *truth, int o,
                       int64_t row)
{
    const struct attn_truth_tensor *t = &truth->tensor[o];
    double most = 0;
    for (int64_t e = row * t->extent[3]; e < (row + 1) * t->extent[3]; e++) {
        double got = run->x[ATTN_T_O + o][e], error = fabs(got - t->want[e]);
        int is_right = got == t->want[e] || (isnan(got) && isnan(t->want[e]));
        double ratio = is_right ? 0 : error / t->bound[e];
        most = isnan(ratio) ? HUGE_VAL : fmax(most, ratio);
    }
    return most;
}

/* The arithmetic with a word within whose bound each element lies, with a rescale and a merge for
 * each 16 keys; or NULL. */
static const char *published_for(const struct attn_failed_run *run)
{
    const char *word = NULL;
    const struct attn_problem *p = &run->setup->problem;
    const struct attn_inputs in = attn_setup_inputs(run->setup, run->setup->given.pass);
    int fits = 0;
    for (int set = 0; set < attn_arithmetic_count && !fits; set++) {
        struct attn_precision own = *run->precision;
        struct attn_truth truth;
        attn_arithmetic_declare(set, p, &own);
        own.rescales += p->n_key / 16 + 1, own.merges += p->n_key / 16 + 1;
        attn_precision_complete(p, &own);
        fits = !(attn_run_is_behind_softmax(run) && (own.u_q > 0 || own.u_s > 0)) &&
               attn_truth_compute(p, &in, &own, NULL, &truth, NULL) == ATTN_OK;
        for (int o = 0; o < ATTN_OUTPUTS; o++)
            for (int64_t r = 0;
                 fits && run->failing[o] && r < attn_run_rows(run, (enum attn_output)o); r++)
                fits = ratio_of(run, &truth, o, r) <= 1;
        attn_truth_free(&truth);
        word = fits ? attn_arithmetic[set].word : NULL;
    }
    return word;
}

/* Coarse arithmetic is coarse in all rows: are others as far from the truth as the worst is, in
 * bounds and to within a factor of 16? */
static int is_everywhere(const struct attn_failed_run *run)
{
    int64_t far = 0, rows = 0;
    double worst = 0;
    for (int n = 0; n < 2 * ATTN_OUTPUTS; n++) { /* twice */
        int o = n % ATTN_OUTPUTS;
        for (int64_t r = 0; run->failing[o] && r < attn_run_rows(run, (enum attn_output)o); r++) {
            double ratio = ratio_of(run, &run->truth, o, r);
            worst = fmax(worst, ratio);
            far += n >= ATTN_OUTPUTS && ratio >= worst / 16;
            rows += n >= ATTN_OUTPUTS && ratio > 0;
        }
    }
    return rows == 1 ? worst < 16 : far >= 2 && 8 * far >= rows;
}

enum { LEVELS = 5 };
static const struct {
    double loose;
    const char *words;
} level[LEVELS] = {
    {1e-9, "errors near the bound in all rows: a low-precision step"},
    {3e-5, "errors of some units of f32 in all rows: a low-precision step"},
    {1.3e-4,
     "errors of about 1e-4 in all rows: low-precision products, or an exp that is off by as "
     "much"},
    {4e-3, "errors of about 1e-3 in all rows: low-precision sums (f16, tf32: u 4.9e-4), or an exp "
           "that is off by as much"},
    {4e-2, "errors of about 1e-2 in all rows: low-precision sums (bf16, or f16 of many keys)"}};

/* The first level that has seven of eight rows, by what the largest error is beyond some bounds. */
static int usual_level(const struct attn_failed_run *run)
{
    int64_t within[LEVELS] = {0}, rows = 0;
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        for (int64_t r = 0; run->failing[o] && r < attn_run_rows(run, (enum attn_output)o); r++) {
            const struct attn_truth_tensor *t = &run->truth.tensor[o];
            double error = 0, size = 0;
            for (int64_t e = r * t->extent[3]; e < (r + 1) * t->extent[3]; e++) {
                double got = run->x[ATTN_T_O + o][e];
                error = fmax(error, fabs(got - t->want[e]) - 4 * t->bound[e]);
                size = fmax(size, fabs(t->want[e]));
            }
            for (int n = 0; n < LEVELS; n++)
                within[n] += error > 0 && error <= level[n].loose * size;
            rows += error > 0;
        }
    for (int n = 0; n < LEVELS; n++)
        if (8 * within[n] >= 7 * rows)
            return n;
    return LEVELS - 1;
}

/* Rounding errs to both sides.  Do rows err to one side, toward 0 or away from it, by more than
 * five times what chance would make of as many? */
static int is_systematic(const struct attn_failed_run *run)
{
    double sum = 0, squares = 0;
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        for (int64_t r = 0; run->failing[o] && r < attn_run_rows(run, (enum attn_output)o); r++) {
            const struct attn_truth_tensor *t = &run->truth.tensor[o];
            double off = 0, size = 0;
            for (int64_t e = r * t->extent[3]; e < (r + 1) * t->extent[3]; e++)
                if (isfinite(t->want[e]))
                    off += (run->x[ATTN_T_O + o][e] - t->want[e]) * t->want[e],
                        size += t->want[e] * t->want[e];
            off = size > 0 ? off / size : 0;
            sum += off, squares += off * off;
        }
    return sum * sum > 25 * squares;
}

/* The truth itself fits once tolerances are wide: nothing is wrong but the digits. */
static int try_precision(struct attn_failed_run *run)
{
    struct attn_failed_run loose = *run;
    loose.loose = level[LEVELS - 1].loose;
    if (!is_everywhere(run) ||
        !attn_fault_fits(&loose, &(struct attn_fault_model){.place = ATTN_AT_NONE}))
        return 0;
    const int n = usual_level(run), is_single = run->setup->problem.dtype == ATTN_F64 && n == 1;
    const char *published = is_single ? NULL : published_for(run);
    run->text[0] = '\0';
    if (published == NULL && is_systematic(run)) {
        attn_append(
            run->text, run->size,
            "%.*s, to one side: a sum that is off (an epsilon, padded keys), or digits that "
            "are cut, not rounded",
            (int)strcspn(level[n].words, ":"), level[n].words);
        return 1;
    }
    if (attn_run_is_behind_softmax(run))
        attn_append(run->text, run->size,
                    "%.*s, and LSE is right: low-precision P, V, sums or parts of O, or an exp "
                    "that is off in O alone",
                    (int)strcspn(level[n].words, ":"), level[n].words);
    else
        attn_append(run->text, run->size, "%s", is_single ? "arithmetic in f32" : level[n].words);
    if (published != NULL)
        attn_append(
            run->text, run->size,
            "; arithmetic %s in blocks of 16 keys allows them: if that is meant, declare it",
            published);
    return 1;
}

/* Kinds in `but` (bits) are not asked for. */
static enum attn_fault explain(struct attn_failed_run *run, unsigned but)
{
    static const struct {
        int (*learn)(struct attn_failed_run *run);
        enum attn_fault fault;
    } learner[] = {{attn_learn_heads, ATTN_FAULT_HEADS},  {attn_learn_places, ATTN_FAULT_LAYOUT},
                   {attn_learn_keys, ATTN_FAULT_KEYS},    {attn_learn_delta, ATTN_FAULT_GRADIENTS},
                   {attn_learn_lines, ATTN_FAULT_FACTOR}, {try_precision, ATTN_FAULT_PRECISION}};
    if (attn_learn_zeros(run))
        return ATTN_FAULT_FACTOR;
    /* A gradient times a number is that much, whatever else would explain it too. */
    if (run->backward && attn_learn_lines(run))
        return ATTN_FAULT_FACTOR;
    enum attn_fault fault = attn_fault_recognise(run, but);
    for (size_t n = 0; n < sizeof learner / sizeof *learner && fault == ATTN_FAULT_NONE; n++)
        if (!(but >> learner[n].fault & 1) && learner[n].learn(run))
            fault = learner[n].fault;
    return fault;
}

/* NaN alone has no numbers that speak for a model. */
static int has_wrong_numbers(const struct attn_failed_run *run, int o)
{
    int64_t n = attn_run_rows(run, (enum attn_output)o) * run->truth.tensor[o].extent[3];
    while (--n >= 0)
        if (!isnan(run->x[ATTN_T_O + o][n]) &&
            !attn_run_element_is_right(run, (enum attn_output)o, n))
            return 1;
    return 0;
}

/* Of one output, as if no other were there. */
static enum attn_fault explain_alone(struct attn_failed_run *run, int o, unsigned but)
{
    struct attn_failed_run one = *run;
    char text[256] = "";
    one.text = text, one.size = sizeof text;
    for (int other = 0; other < ATTN_OUTPUTS; other++)
        one.failing[other] = one.compared[other] = other == o;
    enum attn_fault fault = has_wrong_numbers(run, o)
                                ? explain(&one, but | 1u << ATTN_FAULT_PRECISION)
                                : ATTN_FAULT_NONE;
    if (fault != ATTN_FAULT_NONE)
        attn_append(run->text, run->size, "%s%s alone: %s", run->text[0] != '\0' ? "; " : "",
                    attn_output_name((enum attn_output)o), text);
    memcpy(run->remedy, one.remedy, sizeof one.remedy);
    return fault;
}

/* No model explains all outputs, but one may explain a single output.  Models of keys and ranks are
 * not asked for O alone: a key that O has not seen is missing in LSE too.  A fault of O is a fault
 * of LSE too, unless LSE has one of its own. */
static enum attn_fault explain_one(struct attn_failed_run *run)
{
    static const unsigned both = 1u << ATTN_FAULT_KEYS | 1u << ATTN_FAULT_RANKS,
                          own = 1u << ATTN_FAULT_LSE | 1u << ATTN_FAULT_LAYOUT |
                                1u << ATTN_FAULT_FACTOR;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        if (!run->failing[o] || (o >= ATTN_DQ) != run->backward)
            continue;
        run->text[0] = '\0';
        enum attn_fault fault = explain_alone(run, o, o == ATTN_O ? both : 0);
        if (fault != ATTN_FAULT_NONE && o == ATTN_O && run->failing[ATTN_LSE] &&
            !(own >> explain_alone(run, ATTN_LSE, both) & 1))
            fault = ATTN_FAULT_NONE;
        if (fault != ATTN_FAULT_NONE)
            return fault;
    }
    return ATTN_FAULT_NONE;
}

/* By the multiplications of one model. */
static int is_large(const struct attn_case *c, double most)
{
    return (double)(c->batch * c->heads * c->n_query) * (double)c->n_key *
               (double)(c->d_key + c->d_value + 4) >
           (most > 0 ? most : 8e6);
}

const char *attn_fault_remedy(enum attn_fault fault)
{
    static const char *const remedy[ATTN_FAULTS] = {
        [ATTN_FAULT_LSE] = "give the natural logarithm of the sum, m + ln l, or declare another",
        [ATTN_FAULT_LAYOUT] = "use the strides that are given, or declare the layout",
        [ATTN_FAULT_KEYS] = "compare with the picture: attnlab list masks --mask MASK",
        [ATTN_FAULT_HEADS] = "query head h reads kv head h / (H / G) of its own batch",
        [ATTN_FAULT_SCORES] = "s = scale q.k, then the softcap, then the bias, then the mask",
        [ATTN_FAULT_EMPTY] = "a row without keys has O = 0, LSE = -inf and no gradient",
        [ATTN_FAULT_SOFTMAX] = "m is the maximum of visible scores, l the sum of exp(s - m)",
        [ATTN_FAULT_GRADIENTS] = "compare with the backward of ref/tiled.c",
        [ATTN_FAULT_RANKS] = "merge parts by their LSE, each under its part of the mask",
        [ATTN_FAULT_FACTOR] = "find the factor that is missing, or there twice",
        [ATTN_FAULT_PRECISION] = "compute in a wider type, or declare the arithmetic",
        [ATTN_FAULT_STATE] = "write all memory before it is read, and keep nothing between calls",
        [ATTN_FAULT_FEATURE] = "leave the feature out of the claims until it is right"};
    return remedy[fault] != NULL ? remedy[fault] : "";
}

static int diagnose(const struct attn_setup *s, const struct attn_result *r, int ranks,
                    int reads_hidden, struct attn_diagnosis *d)
{
    struct attn_failed_run run = {.ranks = ranks,
                                  .reads_hidden = reads_hidden,
                                  .text = d->text,
                                  .where = d->where,
                                  .size = sizeof d->text,
                                  .where_size = sizeof d->where};
    int numeric =
        r->failure == ATTN_F_FINITE || r->failure == ATTN_F_EXACT || r->failure == ATTN_F_BOUND;
    *d = (struct attn_diagnosis){.fault = ATTN_FAULT_NONE};
    if (r->verdict != ATTN_FAILED || !numeric || !(r->precision.u > 0))
        return 0;
    if (is_large(&s->given, s->most_work))
        attn_describe_large(&s->given, r, d);
    if (is_large(&s->given, s->most_work) || !attn_run_open(&run, s, &r->precision))
        return 0;
    take_result(&run, r);
    d->fault = explain(&run, 0);
    int found = d->fault != ATTN_FAULT_NONE ? ATTN_WHAT : ATTN_WHAT_OF_ONE;
    if (found != ATTN_WHAT)
        d->fault = explain_one(&run);
    if (d->fault == ATTN_FAULT_NONE)
        found = ATTN_WHERE;
    if (found == ATTN_WHERE)
        d->text[0] = '\0';
    else
        memcpy(d->remedy, run.remedy, sizeof d->remedy);
    attn_describe(&run, d);
    attn_run_close(&run);
    return d->text[0] != '\0' ? found : 0;
}

int attn_diagnose(const struct attn_setup *s, const struct attn_result *r, struct attn_diagnosis *d)
{
    return diagnose(s, r, 1, -1, d);
}

/* No model fits: other runs may say more than where the failing elements are. */
static void look_further(const struct attn_spec *spec, const struct attn_claims *claims,
                         const struct attn_case *c, const struct attn_result *r,
                         struct attn_diagnosis *d)
{
    char part[3][200] = {"", "", ""}, whole[3 * sizeof part[0]] = "";
    enum attn_fault fault[3] = {ATTN_FAULT_STATE, d->fault, ATTN_FAULT_FEATURE};
    attn_rerun_again(spec, c, r, part[0], sizeof part[0]);
    if (d->fault != ATTN_FAULT_NONE)
        snprintf(part[1], sizeof part[1], "%.199s", d->text);
    attn_rerun_without(spec, claims, c, NULL, part[2], sizeof part[2]);
    for (int n = 2; n >= 0; n--)
        d->fault = part[n][0] != '\0' ? fault[n] : d->fault;
    for (int n = 0; n < 3; n++)
        if (part[n][0] != '\0')
            attn_append(whole, sizeof whole, "%s%.199s", whole[0] != '\0' ? "; " : "", part[n]);
    if (whole[0] != '\0')
        snprintf(d->text, sizeof d->text, "%.255s", whole);
}

int attn_diagnose_case(const struct attn_spec *spec, const struct attn_claims *claims,
                       const struct attn_case *c, const struct attn_result *r,
                       struct attn_diagnosis *d)
{
    struct attn_setup setup;
    struct attn_error err = {0};
    struct attn_case own = *c;
    int found = 0;
    *d = (struct attn_diagnosis){.fault = ATTN_FAULT_NONE};
    if (claims != NULL && c->layout == ATTN_LAYOUT_BHLD)
        own.layout = attn_claims_layout(
            claims); /* so that nothing is copied: hypotheses read what it has read */
    if (is_large(c, 0))
        attn_describe_large(c, r, d);
    if (is_large(c, 0) || attn_setup_open(&own, &setup, &err) != ATTN_OK)
        return 0;
    if (attn_rerun(spec, &setup, 1, NULL) != ATTN_OK)
        found = 0;
    else if (attn_rerun_is_right(&setup, r)) {
        d->fault = ATTN_FAULT_STATE;
        snprintf(d->text, sizeof d->text,
                 "right when it is run again: a race, or state that is kept between calls");
        found = ATTN_WHAT;
    } else {
        const int reads = r->failure == ATTN_F_FINITE && c->poison == ATTN_POISON_NAN &&
                          attn_rerun_reads_hidden(spec, claims, c);
        found = diagnose(&setup, r, spec->impl->ranks != NULL ? 2 : claims != NULL, reads, d);
    }
    attn_setup_close(&setup);
    if (found == ATTN_WHERE)
        look_further(spec, claims, c, r, d);
    return found != 0;
}
