#include "experiments/rim/studies/study.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"

const struct attn_study attn_studies[] = {
#define ATTN_STUDY(id, name, takes, question, ...) \
    {name, question, attn_study_run_##id, takes, {__VA_ARGS__}},
#include "experiments/rim/studies/studies.def"
#undef ATTN_STUDY
};

static const char *const label_name[] = {"published", "derived", "inferred"};

/* Quantities stand below each other; what is not one has a blank line before and after. */
static void end_list(struct attn_study_run *run)
{
    if (run->in_list)
        fputc('\n', run->out);
    run->in_list = 0;
}

static struct attn_study_run *run_of(struct attn_tape_owner *owner)
{
    return (struct attn_study_run *)owner; /* its first member */
}

/* A block that a counted tape takes is an entry of the run, which a test may leave out. */
static int enter(struct attn_tape_owner *owner, const char *name, int64_t *bytes)
{
    struct attn_study_run *run = run_of(owner);
    int entry = run->n_entries++;
    if (entry >= ATTN_STUDY_ENTRIES)
        attn_cli_need(NULL);
    struct attn_study_entry *kept = &run->entry[entry];
    snprintf(kept->name, sizeof kept->name, "%s", name);
    kept->matters = 0;
    if (entry == run->leave_out)
        *bytes = 0;
    return entry;
}

int attn_study_entry_of(struct attn_study_run *run, const char *name)
{
    int64_t bytes;
    for (int e = 0; e < run->n_entries; e++)
        if (strcmp(run->entry[e].name, name) == 0)
            return e;
    return enter(&run->owner, name, &bytes);
}

static void lacks(struct attn_tape_owner *owner, const struct attn_error *err)
{
    run_of(owner)->lacks = err->status;
    attn_study_say(run_of(owner), "%s", err->text);
}

int attn_study_carry_out(const struct attn_study *study, struct attn_study_run *run)
{
    run->owner = (struct attn_tape_owner){enter, lacks};
    run->study = study;
    run->curve = run->panel = NULL;
    run->n_entries = run->n_quantities = run->n_failed = run->in_list = 0;
    run->lacks = run->bad.status = ATTN_OK;
    if (!run->as_json)
        fprintf(run->out, "%s: %s\n\n", study->name, study->question);
    study->run(run);
    end_list(run);
    if (run->bad.status != ATTN_OK)
        return attn_cli_error(&run->bad);
    if (!run->as_json)
        fprintf(run->out, "%s: %d quantities, %d did not come out\n", study->name,
                run->n_quantities, run->n_failed);
    if (run->n_failed > 0)
        return ATTN_EXIT_DISAGREE;
    if (run->lacks != ATTN_OK)
        return ATTN_EXIT_LACKS;
    return run->n_quantities > 0 ? ATTN_EXIT_GOOD : ATTN_EXIT_DISAGREE;
}

/* ---- what a study says ----------------------------------------------------------------------- */

void attn_study_say(struct attn_study_run *run, const char *format, ...)
{
    va_list args;
    if (run->as_json)
        return;
    end_list(run);
    va_start(args, format);
    vfprintf(run->out, format, args);
    va_end(args);
    fputs("\n\n", run->out);
}

static void print_amount(FILE *out, double x, const char *unit)
{
    char text[32];
    if (strcmp(unit, "B") == 0 && x >= 10240)
        fprintf(out, "%s (%.0f B)", attn_cli_bytes((int64_t)x, text), x);
    else
        fprintf(out, "%.10g%s%s", x, unit[0] != '\0' ? " " : "", unit);
}

static void print_line(struct attn_study_run *run, const char *name, enum attn_study_label label,
                       double published, double got, const char *unit, int ok)
{
    fprintf(run->out, "  %-9s  %s  %s: ", label_name[label],
            ok                       ? "ok  "
            : label == ATTN_INFERRED ? "off "
                                     : "FAIL",
            name);
    print_amount(run->out, got, unit);
    if (!ok || (label != ATTN_DERIVED && got != published)) {
        fputs(label == ATTN_INFERRED ? "; expected " : "; the account says ", run->out);
        print_amount(run->out, published, unit);
    }
    fputc('\n', run->out);
    run->in_list = 1;
}

/* block: the live set of which the quantity is the sum, or NULL. */
static void record(struct attn_study_run *run, const char *name, enum attn_study_label label,
                   double published, double got, const char *unit, double tolerance,
                   const struct attn_tape_block *block, int n_blocks)
{
    int ok = fabs(got - published) <= tolerance; /* not: of NaN */
    run->n_quantities++;
    run->n_failed += !ok && label != ATTN_INFERRED;
    if (run->curve != NULL && run->figure != NULL)
        attn_study_figure_add(run, label, published, got, block, n_blocks);
    if (!run->as_json)
        print_line(run, name, label, published, got, unit, ok);
    else {
        json_t *line =
            json_pack("{s:i, s:s, s:s, s:s, s:f, s:f, s:s, s:s, s:f, s:b}", "schema",
                      ATTN_RECORD_SCHEMA, "record", "study", "study", run->study->name, "name",
                      name, label_name[label], published, "got", got, "unit", unit, "label",
                      label_name[label], "tolerance", tolerance, "ok", ok);
        if (block != NULL)
            json_object_set_new(line, "live", attn_tape_json(block, n_blocks));
        if (run->curve != NULL) {
            json_object_set_new(line, "curve", json_string(run->curve));
            json_object_set_new(line, "x", json_real(run->x));
        }
        json_dumpf(line, run->out, JSON_COMPACT);
        fputc('\n', run->out);
        json_decref(line);
    }
    run->curve = NULL;
}

const char *attn_study_text(struct attn_study_run *run, const char *format, ...)
{
    va_list args;
    char *text = run->text[run->n_texts++ % ATTN_STUDY_TEXTS];
    va_start(args, format);
    vsnprintf(text, sizeof run->text[0], format, args);
    va_end(args);
    return text;
}

void attn_study_place(struct attn_study_run *run, const char *curve, double x)
{
    run->curve = curve;
    run->x = x;
}

void attn_study_quantity(struct attn_study_run *run, const char *name, enum attn_study_label label,
                         double published, double got, const char *unit, double tolerance)
{
    record(run, name, label, published, got, unit, tolerance, NULL, 0);
}

static void print_live(struct attn_study_run *run, const struct attn_tape_block *block, int n)
{
    char text[32];
    end_list(run);
    for (int b = 0, same = 1; b < n; b++, same++) {
        if (b + 1 < n && strcmp(block[b].name, block[b + 1].name) == 0 &&
            block[b].bytes == block[b + 1].bytes)
            continue;
        fprintf(run->out, "    %-16s %12s  ", block[b].name, attn_cli_bytes(block[b].bytes, text));
        if (same > 1)
            fprintf(run->out, "%d times: ", same);
        fprintf(run->out, "%s\n", block[b].maker);
        same = 0;
    }
}

/* A quantity that would not come out without any of these that is larger than the tolerance. */
static void add_up(struct attn_tape *tape, const char *name, enum attn_study_label label,
                   double published, double got, double tolerance,
                   const struct attn_tape_block *block, int n)
{
    struct attn_study_run *run = run_of(tape->owner);
    for (int b = 0; b < n; b++)
        if (block[b].entry >= 0 && (double)block[b].bytes > tolerance && label != ATTN_INFERRED)
            run->entry[block[b].entry].matters = 1;
    if (!run->as_json && !tape->is_brief)
        print_live(run, block, n);
    record(run, name, label, published, got, "B", tolerance, block, n);
}

void attn_study_peak(struct attn_tape *tape, const char *name, enum attn_study_label label,
                     double published, double tolerance)
{
    add_up(tape, name, label, published, (double)tape->ledger.peak, tolerance, tape->at_peak,
           tape->n_at_peak);
}

void attn_study_live(struct attn_tape *tape, const char *name, enum attn_study_label label,
                     double published, double tolerance)
{
    add_up(tape, name, label, published, (double)tape->ledger.now, tolerance, tape->block, tape->n);
}

void attn_study_same(const char *name, const struct attn_pair *pair)
{
    const struct attn_tape *real = &pair->real, *counted = &pair->counted;
    struct attn_study_run *run = run_of(real->owner);
    int same = real->n_at_peak == counted->n_at_peak;
    for (int b = 0; b < counted->n_at_peak; b++) {
        const struct attn_tape_block *block = &counted->at_peak[b];
        if (block->entry >= 0 && block->bytes > 0)
            run->entry[block->entry].matters = 1;
        same = same && strcmp(real->at_peak[b].name, block->name) == 0 &&
               real->at_peak[b].bytes == block->bytes;
    }
    record(run, name, ATTN_DERIVED, same ? (double)counted->ledger.peak : (double)NAN,
           (double)real->ledger.peak, "B", 0, NULL, 0);
}

void attn_study_fill(float *x, int64_t n, int64_t prime)
{
    for (int64_t e = 0; e < n; e++)
        x[e] = (float)(e * prime % 101) / 50 - 1;
}

void attn_study_softmax(const float *q, const float *k, int64_t n, int64_t dim, float scale,
                        float *scores, float *probs)
{
    float most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        float score = 0;
        for (int64_t c = 0; c < dim; c++)
            score += scale * q[c] * k[j * dim + c];
        scores[j] = score;
        most = fmaxf(most, score);
    }
    for (int64_t j = 0; j < n; j++)
        sum += probs[j] = expf(scores[j] - most);
    for (int64_t j = 0; j < n; j++)
        probs[j] /= sum;
}

void attn_study_sum(const float *probs, const float *v, int64_t n, int64_t dim, float *o)
{
    for (int64_t c = 0; c < dim; c++)
        o[c] = 0;
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < dim; c++)
            o[c] += probs[j] * v[j * dim + c];
}
