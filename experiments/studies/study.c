#include "experiments/studies/study.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/need.h"
#include "experiments/measure/stack.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/process.h"

const struct attn_study attn_studies[] = {
#define ATTN_STUDY(id, name, takes, question, ...) \
    {name, question, attn_study_run_##id, takes, {__VA_ARGS__}},
#include "experiments/studies/studies.def"
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

int attn_study_carry_out(const struct attn_study *study, struct attn_study_run *run)
{
    run->study = study;
    run->curve = NULL;
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

/* ---- tapes ----------------------------------------------------------------------------------- */

static void mark_peak(struct attn_tape *tape)
{
    tape->n_at_peak = tape->n;
    memcpy(tape->at_peak, tape->block, sizeof tape->block);
}

/* What a counted tape takes is an entry of the run, which a test may leave out. */
static int enter(struct attn_study_run *run, const char *name, int64_t *bytes)
{
    if (run == NULL)
        return -1;
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
    return enter(run, name, &bytes);
}

/* A real tape that memory was lacking for. */
static void *cut(struct attn_tape *tape, const struct attn_error *err)
{
    tape->is_cut = 1;
    if (tape->run != NULL) {
        tape->run->lacks = err->status;
        attn_study_say(tape->run, "%s", err->text);
    }
    return NULL;
}

void *attn_tape_take(struct attn_tape *tape, const char *name, const char *maker, int64_t count,
                     int64_t size)
{
    struct attn_error err = {ATTN_OK, ""};
    struct attn_block block = {name, maker, count * size, -1, NULL};
    int64_t peak = tape->ledger.peak;
    if (tape->n == ATTN_TAPE_BLOCKS)
        attn_cli_need(NULL);
    if (tape->is_cut)
        return NULL;
    if (tape->is_real) {
        block.data = attn_ledger_take(&tape->ledger, name, count, size, &err);
        if (block.data == NULL)
            return cut(tape, &err);
    } else {
        block.entry = enter(tape->run, name, &block.bytes);
        attn_cli_must(attn_ledger_count(&tape->ledger, name, block.bytes, 1, &err), &err);
    }
    tape->block[tape->n++] = block;
    if (tape->ledger.peak > peak)
        mark_peak(tape);
    return block.data;
}

/* The last block of a name; -1: it was not to be had, or never taken. */
static int find_block(const struct attn_tape *tape, const char *name)
{
    int b = tape->n - 1;
    while (b >= 0 && (tape->block[b].name[0] != name[0] || strcmp(tape->block[b].name, name) != 0))
        b--; /* asked for each pair: most names differ where they begin */
    return b;
}

void attn_tape_give(struct attn_tape *tape, const char *name)
{
    int b = find_block(tape, name);
    if (b < 0)
        return;
    if (tape->is_real)
        attn_ledger_give(&tape->ledger, tape->block[b].data);
    else
        attn_ledger_uncount(&tape->ledger, name, tape->block[b].bytes);
    memmove(&tape->block[b], &tape->block[b + 1], (size_t)(--tape->n - b) * sizeof tape->block[0]);
}

void *attn_tape_data(const struct attn_tape *tape, const char *name)
{
    int b = find_block(tape, name);
    return b >= 0 ? tape->block[b].data : NULL;
}

void attn_tape_rename(struct attn_tape *tape, const char *name, const char *to)
{
    struct attn_error err;
    int b = find_block(tape, name);
    if (b < 0)
        return;
    tape->block[b].name = to;
    if (tape->is_real)
        return;
    attn_ledger_uncount(&tape->ledger, name, tape->block[b].bytes);
    attn_cli_must(attn_ledger_count(&tape->ledger, to, tape->block[b].bytes, 1, &err), &err);
}

void attn_tape_restart(struct attn_tape *tape)
{
    mark_peak(tape);
    attn_ledger_restart(&tape->ledger);
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
    if (!ok || (label == ATTN_PUBLISHED && got != published)) {
        fputs("; the account says ", run->out);
        print_amount(run->out, published, unit);
    }
    fputc('\n', run->out);
    run->in_list = 1;
}

json_t *attn_tape_json(const struct attn_block *block, int n)
{
    json_t *live = json_array();
    for (int b = 0; b < n; b++)
        json_array_append_new(live, json_pack("{s:s, s:s, s:I}", "name", block[b].name, "by",
                                              block[b].maker, "bytes", (json_int_t)block[b].bytes));
    return live;
}

/* block: the live set of which the quantity is the sum, or NULL. */
static void record(struct attn_study_run *run, const char *name, enum attn_study_label label,
                   double published, double got, const char *unit, double tolerance,
                   const struct attn_block *block, int n_blocks)
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

static void print_live(struct attn_study_run *run, const struct attn_block *block, int n)
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
                   double published, double got, double tolerance, const struct attn_block *block,
                   int n)
{
    struct attn_study_run *run = tape->run;
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

void attn_pair_open(struct attn_pair *pair, struct attn_study_run *run)
{
    pair->real = (struct attn_tape){.run = run, .is_real = 1};
    attn_ledger_init(&pair->real.ledger, NULL);
    pair->counted = (struct attn_tape){.run = run};
}

void attn_pair_close(struct attn_pair *pair)
{
    attn_ledger_clear(&pair->real.ledger);
}

void attn_study_same(const char *name, const struct attn_pair *pair)
{
    const struct attn_tape *real = &pair->real, *counted = &pair->counted;
    struct attn_study_run *run = real->run;
    int same = real->n_at_peak == counted->n_at_peak;
    for (int b = 0; b < counted->n_at_peak; b++) {
        const struct attn_block *block = &counted->at_peak[b];
        if (block->entry >= 0 && block->bytes > 0)
            run->entry[block->entry].matters = 1;
        same = same && strcmp(real->at_peak[b].name, block->name) == 0 &&
               real->at_peak[b].bytes == block->bytes;
    }
    record(run, name, ATTN_DERIVED, same ? (double)counted->ledger.peak : (double)NAN,
           (double)real->ledger.peak, "B", 0, NULL, 0);
}

json_t *attn_study_rows(struct attn_study_run *run, const char *csv, const char *const *columns)
{
    enum { BYTES_MOST = 64 << 20 };
    struct attn_error why = {ATTN_OK, ""};
    int line;
    char *text = NULL;
    if (run->data == NULL)
        text = attn_cli_need(strdup(csv));
    else if (attn_read_text(run->data, ATTN_READ_GIVEN, BYTES_MOST, &text, &run->bad) != ATTN_OK)
        return NULL;
    json_t *rows = attn_table_read(text, columns, &line, &why);
    if (rows == NULL)
        attn_fail(&run->bad, why.status, "%s:%d: %s", run->data, line, why.text);
    free(text);
    return rows;
}

/* Of several bad fields the first is said. */
static void say_bad(struct attn_study_run *run, const json_t *row, const char *column,
                    const char *would_work)
{
    if (run->bad.status == ATTN_OK)
        attn_fail(&run->bad, ATTN_EINVAL, "%s:%d: %s '%.40s': %s would work",
                  run->data != NULL ? run->data : run->study->name,
                  (int)json_integer_value(json_object_get(row, ATTN_TABLE_LINE)), column,
                  attn_table_field(row, column), would_work);
}

int64_t attn_study_number(struct attn_study_run *run, const json_t *row, const char *column,
                          int64_t least, int64_t most)
{
    int64_t x;
    if (attn_cli_int(attn_table_field(row, column), least, most, &x))
        return x;
    say_bad(run, row, column,
            attn_study_text(run, "a whole number from %lld to %lld", (long long)least,
                            (long long)most));
    return least;
}

int attn_study_word(struct attn_study_run *run, const json_t *row, const char *column,
                    const char *words)
{
    const char *word = attn_table_field(row, column);
    size_t n = strlen(word);
    int place = 0;
    for (const char *at = words; *at != '\0'; place++) {
        size_t length = strcspn(at, "|");
        if (length == n && strncmp(at, word, n) == 0)
            return place;
        at += length + (at[length] == '|');
    }
    say_bad(run, row, column, words);
    return 0;
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

/* ---- attnlab's own implementations ----------------------------------------------------------- */

/* Something that the study needs and did not get. */
static int fail(struct attn_study_run *run, const char *spec, const char *why)
{
    attn_study_quantity(run, attn_study_text(run, "%s: %s", spec, why), ATTN_DERIVED, 1, 0, "done",
                        0);
    return 0;
}

static enum attn_status price(const char *spec_text, const char *text, struct attn_point *point,
                              struct attn_error *err)
{
    struct attn_spec spec;
    int64_t need;
    attn_point_init(point);
    enum attn_status status = attn_spec_parse(spec_text, &spec, err);
    if (status == ATTN_OK)
        status = attn_case_parse(text, &point->c, err);
    return status == ATTN_OK ? attn_preflight_case(&spec, &point->c, point, &need, err) : status;
}

struct attn_point attn_study_price(const char *spec, const char *text)
{
    struct attn_point point;
    struct attn_error err;
    attn_cli_must(price(spec, text, &point, &err), &err);
    return point;
}

/* What one call costs, or a stack of layers that saves something. */
static struct attn_cost cost_of(const char *spec_text, const char *text, int64_t layers,
                                const char *save)
{
    static struct attn_point point;
    struct attn_error err;
    struct attn_stack stack = {.n = layers};
    struct attn_problem problem;
    struct attn_spec spec;
    struct attn_stack_cost cost;
    int64_t need;
    attn_cli_must(attn_spec_parse(spec_text, &spec, &err), &err);
    attn_cli_must(attn_stack_save_find(save, &stack.save, &err), &err);
    attn_cli_must(attn_case_parse(text, &point.c, &err), &err);
    attn_cli_must(attn_preflight_open(&point.c, &problem, &point, &need, &err), &err);
    attn_cli_must(layers > 0 ? attn_stack_price(&stack, &spec, &problem, ATTN_FORWARD, &cost, &err)
                             : attn_price(spec.impl, &spec.options, &problem, point.c.pass, 0,
                                          &cost.cost, &err),
                  &err);
    attn_preflight_close(&problem);
    return cost.cost;
}

int64_t attn_study_buffer(const char *spec, const char *text, const char *buffer)
{
    const struct attn_cost cost = cost_of(spec, text, 0, "rows");
    int64_t bytes = 0;
    for (int a = 0; a < cost.n_live; a++)
        if (strncmp(cost.live[a].name, buffer, strlen(buffer)) == 0)
            bytes += cost.live[a].bytes;
    return bytes;
}

double attn_study_saved(const char *spec, const char *text, int64_t layers, const char *save)
{
    return (double)cost_of(spec, text, layers, save).saved_bytes;
}

int attn_study_accepts(const char *spec, const char *text)
{
    static struct attn_point point;
    struct attn_error err = {ATTN_OK, ""};
    return price(spec, text, &point, &err) == ATTN_OK;
}

/* On a terminal, each second of what takes long. */
static void show_seconds(double seconds)
{
    static double shown;
    if (seconds < shown)
        shown = 0; /* another process */
    if (seconds < shown + 1)
        return;
    shown = seconds;
    fprintf(stderr, "\r  %.0f s ", seconds);
}

int attn_study_measure(struct attn_study_run *run, const char *spec, const char *text,
                       struct attn_point *point)
{
    static char line[1 << 16];
    const char *repeat = run->is_long ? "0" : "3"; /* the first call of minutes is enough */
    const char *const args[] = {"point",    "--spec", spec,           "--case", text,
                                "--repeat", repeat,   "--verify-all", "2048",   NULL};
    struct attn_process child = {.out = line, .room = sizeof line};
    struct attn_error err = {ATTN_OK, ""};
    struct attn_point own;
    point = point != NULL ? point : &own;
    if (run->leave_out >= 0)
        return 0;
    if (run->is_long && isatty(STDERR_FILENO))
        child.waits = show_seconds;
    int started = attn_process_attnlab(args, (double)INFINITY, &child) == 0;
    if (child.waits != NULL)
        fputs("\r          \r", stderr);
    if (!started)
        return fail(run, spec, "no process could be started");
    if (attn_record_parse_point(child.out, child.n_out, point, &err) != ATTN_OK)
        return fail(run, spec, child.last_line[0] != '\0' ? child.last_line : err.text);
    if (point->status == ATTN_POINT_OUT_OF_MEMORY)
        run->lacks = ATTN_ENOMEM;
    if (point->status != ATTN_POINT_OK)
        return fail(run, spec, point->message);
    attn_study_quantity(
        run,
        attn_study_text(run, "%s %s agrees with the oracle, largest error / bound", spec, text),
        ATTN_DERIVED, 0, point->worst, "", 1);
    attn_study_quantity(run, "its ledger, which must be its price", ATTN_DERIVED,
                        (double)point->priced_bytes, (double)point->ledger_bytes, "B", 0);
    return 1;
}

void attn_study_measure_long(struct attn_study_run *run, const char *spec, const char *text)
{
    char bytes[32];
    struct attn_point point;
    if (!run->is_long)
        return;
    fflush(run->out);
    if (attn_study_measure(run, spec, text, &point))
        attn_study_say(run, "%s took %.1f s for it, and its resident set grew by %s.", spec,
                       point.first_s, attn_cli_bytes(point.resident_bytes, bytes));
}
