#include "experiments/bench/bench_flags.h"

#include <stdio.h>

#include "experiments/cli/cli.h"

#define PLACE(member) offsetof(struct attn_bench_flags, member)

const struct attn_flag_use attn_bench_uses[] = {
    ATTN_CLI_SHAPE_FLAGS(PLACE(shapes)),
    {.flag = ATTN_FLAG_CASE, PLACE(given), .help = "a case string; may be given several times"},
    {.flag = ATTN_FLAG_TITLE, .help = "How it is timed:"},
    {.flag = ATTN_FLAG_THREADS, PLACE(threads), "1"},
    {.flag = ATTN_FLAG_ROUNDS, PLACE(rounds), "7", .help = "samples of each"},
    {.flag = ATTN_FLAG_AGAINST, PLACE(against)},
    {.flag = ATTN_FLAG_SAMPLE, PLACE(sample_s), "0.01"},
    {.flag = ATTN_FLAG_PATIENCE, PLACE(patience_s), "20"},
    {.flag = ATTN_FLAG_NO_VERIFY, PLACE(no_verify)},
    {.flag = ATTN_FLAG_LIMITS, PLACE(limits)},
    {.flag = ATTN_FLAG_PRESET, PLACE(preset)},
    {.flag = ATTN_FLAG_ROWS, PLACE(rows)},
    {.flag = ATTN_FLAG_BLAS, PLACE(blas), "auto"},
    {.flag = ATTN_FLAG_FORMAT,
     PLACE(format),
     "text",
     .value = "text|json|line",
     .help = "line: one for each, with \"median X s\", for scripts"},
    {.flag = ATTN_FLAG_OUT,
     PLACE(out),
     .help = "bench.json and the roofline figure, with --preset also table.md"},
    {.flag = ATTN_FLAG_END}};

static int add_case(struct attn_bench_flags *f, const char *text)
{
    struct attn_case c;
    struct attn_error err = {ATTN_OK, ""};
    if (f->n_cases == ATTN_BENCH_CASES)
        return attn_cli_fail("bench", ATTN_EXIT_USAGE, "more than %d cases", ATTN_BENCH_CASES);
    if (attn_case_parse(text, &c, &err) != ATTN_OK)
        return attn_cli_fail("bench", ATTN_EXIT_USAGE, "%s", err.text);
    attn_case_print(&c, f->text[f->n_cases++]);
    return ATTN_EXIT_GOOD;
}

static int make_cases(struct attn_bench_flags *f)
{
    int status = ATTN_EXIT_GOOD;
    char shape_text[ATTN_CASE_TEXT], text[ATTN_CASE_TEXT + 32];
    for (int c = 0; c < f->given.n && status == ATTN_EXIT_GOOD; c++)
        status = add_case(f, f->given.at[c].value);
    for (int s = 0; s < attn_cli_shape_count(&f->shapes) && status == ATTN_EXIT_GOOD; s++) {
        const struct attn_cli_shape shape = attn_cli_shape_at(&f->shapes, s);
        attn_cli_shape_print(&shape, shape_text, sizeof shape_text);
        snprintf(text, sizeof text, "%s:normal:s1%s", shape_text,
                 shape.pass == ATTN_BACKWARD ? ":pass=bwd" : "");
        status = add_case(f, text);
    }
    return status;
}

/* Is there something to do, and only one thing? */
static int check(const struct attn_bench_flags *f)
{
    int cases = f->given.n > 0 || f->shapes.lengths.n > 0,
        preset = f->preset != ATTN_BENCH_NO_PRESET;
    if (f->rows != NULL && !preset)
        return attn_cli_fail("bench", ATTN_EXIT_USAGE,
                             "--rows %s: of which table? --preset table --rows %s", f->rows,
                             f->rows);
    if (f->rounds > ATTN_BENCH_ROUNDS)
        return attn_cli_fail("bench", ATTN_EXIT_USAGE, "--rounds %lld: at most %d",
                             (long long)f->rounds, ATTN_BENCH_ROUNDS);
    for (int t = 0; t < f->threads.n; t++)
        if (f->threads.at[t] > ATTN_BENCH_THREADS)
            return attn_cli_fail("bench", ATTN_EXIT_USAGE, "--threads %lld: at most %d",
                                 (long long)f->threads.at[t], ATTN_BENCH_THREADS);
    if (f->limits || preset) {
        if (f->n_specs > 0 || cases || f->against != NULL || (f->limits && preset))
            return attn_cli_fail("bench", ATTN_EXIT_USAGE, "--%s stands alone: no SPEC, no cases",
                                 f->limits ? "limits" : "preset");
        return ATTN_EXIT_GOOD;
    }
    if (f->n_specs > 0 && cases)
        return ATTN_EXIT_GOOD;
    return attn_cli_fail("bench", ATTN_EXIT_USAGE,
                         "a SPEC and --case or --length are needed (or --preset table, or "
                         "--limits): attnlab bench dense --length 512");
}

int attn_bench_flags_read(int argc, char **argv, struct attn_bench_flags *f)
{
    *f = (struct attn_bench_flags){.shapes = ATTN_CLI_SHAPES_OPEN, .preset = ATTN_BENCH_NO_PRESET};
    int status = attn_cli_read(&attn_cmd_bench, argc, argv, f, &f->n_specs);
    if (status >= 0)
        return status;
    f->spec = argv + 1;
    status = check(f);
    if (status == ATTN_EXIT_GOOD)
        status = make_cases(f);
    return status == ATTN_EXIT_GOOD ? -1 : status;
}
