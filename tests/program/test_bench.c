/* attnlab bench: the arithmetic of fractions, pairs and rows; limits count known work, within their
 * memory; and what a user meets.  Nothing here asks how long anything takes. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/bench/bench.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(bench, .seconds = 120, .open = scratch_open, .close = scratch_close);

/* ---- arithmetic --------------------------------------------------------------------------- */

/* An entry of 1e9 flops whose sample s takes seconds[s], by a P of 1e10. */
static void make_entry(struct attn_bench_entry *e, const double *seconds, int n)
{
    memset(e, 0, sizeof *e);
    e->state = ATTN_BENCH_TIMED;
    e->threads = 1;
    e->work.flops = 1e9;
    e->work.bytes = 1e8;
    for (e->n = 0; e->n < n; e->n++)
        e->sample[e->n] = (struct attn_bench_sample){seconds[e->n], 1e10, 1e9};
}

static const double steady[] = {0.2, 0.2, 0.2, 0.2, 0.2}, slower[] = {0.4, 0.4, 0.4, 0.4, 0.4};
static const double one[] = {0.2, 0.25, 0.5, 0.2, 10}, two[] = {0.4, 0.25, 0.4, 0.6, 1};

TEST(figures)
{
    struct attn_bench_entry a, b;
    struct attn_bench_figure x;
    make_entry(&a, one, 4);
    x = attn_bench_figure(&a, NULL, ATTN_BENCH_PEAK); /* 1e9 / (s 1e10): 0.5 0.4 0.2 0.5 */
    ck_assert_int_eq(x.spread.n, 4);
    ck_assert_double_eq_tol(x.spread.median, 0.45, 1e-12);
    ck_assert_double_eq_tol(x.spread.min, 0.2, 1e-12);
    ck_assert_double_eq_tol(x.spread.max, 0.5, 1e-12);
    ck_assert_double_eq_tol(attn_bench_median(&a, ATTN_BENCH_SECONDS), 0.225, 1e-12);
    x = attn_bench_figure(&a, NULL, ATTN_BENCH_FLOPS);
    ck_assert_double_eq_tol(x.spread.max, 5e9, 1);
    x = attn_bench_figure(&a, NULL, ATTN_BENCH_READ); /* 1e8 / (s 1e9) */
    ck_assert_double_eq_tol(x.spread.max, 0.5, 1e-12);
    make_entry(&a, one, 5);
    make_entry(&b, two, 4);
    x = attn_bench_figure(&a, &b, ATTN_BENCH_STEP); /* b over a: 2, 1, 0.8, 3: rounds of both */
    ck_assert_int_eq(x.spread.n, 4);
    ck_assert_double_eq_tol(x.spread.median, 1.5, 1e-12);
    ck_assert(x.interval.low >= 0.8 && x.interval.low <= 1.5);
    ck_assert(x.interval.high >= 1.5 && x.interval.high <= 3);
    b.n = 3; /* only rounds that both have */
    x = attn_bench_figure(&a, &b, ATTN_BENCH_STEP);
    ck_assert_int_eq(x.spread.n, 3);
}

/* ---- limits: known work ------------------------------------------------------------------- */

enum { NUMBERS = 512 }; /* a multiple of 8 vectors of any width, and of three times as many */

static double number_at(const struct attn_kernels *k, const void *x, int64_t i)
{
    return k->bytes == 8 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* Units that are known beforehand, nothing written outside, and numbers that stay in [0,1]. */
static void limit_counts(const struct attn_kernels *k, const char *isa)
{
    enum { ROUNDS = 3, N = 3 * NUMBERS };
    _Alignas(64) double array[N + 8];
    for (int limit = 0; limit < ATTN_LIMITS; limit++) {
        for (int64_t i = 0; i < N; i++)
            if (k->bytes == 8)
                array[i] = (double)(i % 7) / 7;
            else
                ((float *)array)[i] = (float)(i % 7) / 7;
        char *end = (char *)array + N * k->bytes;
        memset(end, 0xa5, 64);
        double units = k->limit[limit](array, N, ROUNDS);
        double chains = limit == ATTN_LIMIT_FMA ? units / (2.0 * ROUNDS * k->lanes) : 0;
        double want[] = {units, (double)(ROUNDS * N) * k->bytes};
        ck_assert_msg(units == want[limit], "%s: limit %d did %g, not %g", isa, limit, units,
                      want[limit]);
        ck_assert(limit != ATTN_LIMIT_FMA || (chains >= 8 && chains == floor(chains)));
        for (int64_t i = 0; i < N; i++)
            ck_assert_msg(number_at(k, array, i) >= 0 && number_at(k, array, i) <= 1,
                          "%s: limit %d leaves %g", isa, limit, number_at(k, array, i));
        for (int i = 0; i < 64; i++)
            ck_assert_int_eq((unsigned char)end[i], 0xa5);
    }
}

TEST(limits)
{
    for (int i = 0; i < attn_isa_count(); i++)
        for (int type = 0; type < 2 && attn_isa_at(i)->present(); type++)
            limit_counts(attn_isa_at(i)->kernels[type], attn_isa_at(i)->name);
}

TEST(roofs)
{
    struct attn_roofs r;
    struct attn_error err = {ATTN_OK, ""};
    const struct attn_isa *isa = attn_isa_best(&err);
    ck_assert_ptr_nonnull(isa);
    ck_assert_msg(attn_roofs_open(&r, 2, &err) == ATTN_OK, "%s", err.text);
    ck_assert_int_ge(r.bytes, r.l2_bytes);
    for (int roof = 0; roof < ATTN_ROOFS; roof++)
        for (int threads = 1; threads <= 2; threads++) {
            double rate =
                attn_roof_sample(&r, isa->kernels[0], (enum attn_roof)roof, threads, 0.0005);
            ck_assert_msg(rate > 0 && isfinite(rate), "%s", attn_roof_name((enum attn_roof)roof));
        }
    ck_assert(isnan(attn_roof_sample(&r, isa->kernels[0], ATTN_ROOF_FMA, 3, 0.0005)));
    ck_assert(isnan(attn_roof_sample(&r, isa->kernels[0], ATTN_ROOF_FMA, 0, 0.0005)));
    attn_roofs_close(&r);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* _i: preset. */
TEST_EACH(rows_are_sound, ATTN_BENCH_PRESETS)
{
    const struct attn_bench_list *list = &attn_bench_presets[_i];
    ck_assert_int_gt(list->n, 4);
    int targets = 0;
    for (int r = 0; r < list->n; r++) {
        const struct attn_bench_row *row = &list->row[r];
        case_of(row->text);
        ck_assert(row->target >= 0 && row->threads >= 1);
        ck_assert(row->goal != ATTN_BENCH_STEP || row->target == 0);
        targets += row->target > 0;
        ck_assert_msg((row->other_spec != NULL) == attn_bench_about[row->goal].is_pair, "%s",
                      row->what);
        if (row->other_spec != NULL && row->goal != ATTN_BENCH_SGEMM)
            case_of(row->other_text);
        for (int other = 0; other < r; other++) {
            const struct attn_bench_row *x = &list->row[other];
            ck_assert_msg(strcmp(x->block, row->block) != 0 || strcmp(x->what, row->what) != 0,
                          "twice: %s", row->what);
        }
    }
    ck_assert(strcmp(list->name, "table") != 0 || targets > 40);
}

/* Met at the target itself, and not a hair beside it. */
TEST(judging)
{
    struct attn_bench_entry a, b;
    struct attn_bench_outcome x;
    make_entry(&a, steady, 5); /* 0.5 P; twice as fast as b */
    make_entry(&b, slower, 5);
    b.work.flops = 5e8; /* of half the work */
    struct attn_bench_row row = {.what = "?", .goal = ATTN_BENCH_PEAK, .target = 0.5};
    const struct {
        enum attn_bench_quantity goal;
        double value;
    } want[] = {{ATTN_BENCH_PEAK, 0.5}, {ATTN_BENCH_READ, 0.5}, {ATTN_BENCH_SGEMM, 4},
                {ATTN_BENCH_RATE, 4},   {ATTN_BENCH_TIME, 0.5}, {ATTN_BENCH_MEMORY, 3},
                {ATTN_BENCH_STEP, 2}};
    a.point.priced_bytes = 3 << 20;
    for (size_t t = 0; t < sizeof want / sizeof *want; t++) {
        row.goal = want[t].goal;
        for (int beside = -1; beside <= 1; beside++) {
            row.target = want[t].value * (1 + 1e-9 * beside);
            attn_bench_judge(&row, &a, attn_bench_about[row.goal].is_pair ? &b : NULL, &x);
            ck_assert(x.known);
            ck_assert_double_eq_tol(x.figure.spread.median, want[t].value, 1e-12);
            if (beside != 0)
                ck_assert_int_eq(x.met,
                                 attn_bench_about[row.goal].at_least ? beside < 0 : beside > 0);
        }
    }
    make_entry(&a, one, 5); /* 0.5 0.4 0.2 0.5 0.01 P: what the interval covers is not decided */
    const double target[] = {0.005, 0.3, 0.6};
    for (int t = 0; t < 3; t++) {
        row = (struct attn_bench_row){.what = "?", .goal = ATTN_BENCH_PEAK, .target = target[t]};
        attn_bench_judge(&row, &a, NULL, &x);
        ck_assert(x.known && x.figure.spread.n == 5);
        ck_assert_int_eq(x.inconclusive, t == 1);
        ck_assert_int_eq(x.met, t == 0);
    }
    make_entry(&a, steady, 1); /* one sample decides nothing */
    attn_bench_judge(&row, &a, NULL, &x);
    ck_assert(x.known && x.inconclusive && !x.met);
    row.target = 0; /* none: nothing is met */
    attn_bench_judge(&row, &a, NULL, &x);
    ck_assert(x.known && !x.met && x.figure.spread.median > 0);
    b.state = ATTN_BENCH_REFUSED;
    row.goal = ATTN_BENCH_TIME;
    attn_bench_judge(&row, &a, &b, &x);
    ck_assert(!x.known && !x.met);
}

/* ---- verified ----------------------------------------------------------------------------- */

static enum attn_status writes_nothing(struct attn_ctx *ctx, const struct attn_problem *p,
                                       const struct attn_forward *t)
{
    (void)ctx;
    (void)p;
    (void)t;
    return ATTN_OK;
}

/* Two entries share their tensors: the results of the first are none of the second, which leaves
 * them as they are. */
TEST(nothing_is_not_taken_for_a_result)
{
    static struct attn_bench bench = {.rounds = 1, .verify = 1};
    static struct attn_bench_entry entry[2];
    struct attn_error err = {ATTN_OK, ""};
    for (int at = 0; at < 2; at++)
        ck_assert_int_eq(
            attn_bench_entry_init(&entry[at], "dense", "q8d8:none:f32:normal:s1", 1, &err),
            ATTN_OK);
    struct attn_impl lazy = *entry[1].parsed.impl;
    lazy.forward = writes_nothing;
    entry[1].parsed.impl = &lazy;
    ck_assert_int_eq(attn_roofs_open(&bench.roofs, 1, &err), ATTN_OK);
    attn_bench_block(&bench, entry, 2);
    attn_roofs_close(&bench.roofs);
    ck_assert_int_eq(entry[0].state, ATTN_BENCH_TIMED);
    ck_assert_int_eq(entry[1].state, ATTN_BENCH_WRONG);
    ck_assert_ptr_nonnull(strstr(entry[1].point.message, "not written"));
}

/* ---- as a user meets it ------------------------------------------------------------------- */

#define TINY "--rounds 3 --sample 0 "

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

/* What `attnlab bench` prints as JSON; the caller gives it back. */
static json_t *bench_json(const char *args)
{
    json_error_t why;
    scratch_expect(0, "", "bench %s --format json " TINY, args);
    json_t *all = json_loads(scratch_output, 0, &why);
    ck_assert_msg(all != NULL, "line %d: %s", why.line, why.text);
    return all;
}

/* The schema, and the textbook's flops: 4 pairs d and 10 pairs d. */
TEST(schema)
{
    json_t *all = bench_json("dense --length 16 --dim 8 --mask 'causal(br)' --pass both "
                             "--against tiled-textbook");
    ck_assert(number_of(all, "schema") == ATTN_BENCH_SCHEMA);
    ck_assert(json_is_string(json_object_get(json_object_get(all, "machine"), "cpu")));
    ck_assert_int_eq(json_array_size(json_object_get(all, "roofs")), ATTN_ROOFS);
    const json_t *entries = json_object_get(all, "entries");
    ck_assert_int_eq(json_array_size(entries), 4);
    for (size_t at = 0; at < 4; at++) {
        const json_t *e = json_array_get(entries, at);
        ck_assert_str_eq(json_string_value(json_object_get(e, "state")), "timed");
        ck_assert_str_eq(json_string_value(json_object_get(e, "verified")), "all");
        ck_assert(number_of(e, "worst") <= 1);
        ck_assert(number_of(e, "pairs") == 16 * 17 / 2);
        ck_assert(number_of(e, "flops") == (at < 2 ? 4 : 10) * 136 * 8);
        ck_assert(number_of(e, "priced_bytes") == number_of(e, "ledger_bytes"));
        ck_assert(number_of(json_object_get(e, "seconds"), "median") > 0);
        ck_assert(number_of(json_object_get(e, "fraction_of_peak"), "median") > 0);
        const json_t *samples = json_object_get(e, "samples");
        ck_assert_int_ge(json_array_size(samples), 3);
        ck_assert((json_object_get(e, "against") != NULL) == (at % 2 == 1));
    }
    json_decref(all);
}

/* The table of a page, up to the end of the file or an empty line; NULL: there is none. */
static char *table_of(char *page)
{
    char *table = strstr(page, "| what | run as |"),
         *end = table != NULL ? strstr(table, "\n\n") : 0;
    if (end != NULL)
        end[1] = '\0';
    return table;
}

/* What stands in the first two cells of a line, and the line after it. */
static char *cells(char *line, char text[256])
{
    size_t n = 0;
    for (int bars = 0; line[n] != '\n' && line[n] != '\0' && bars < 3; n++)
        bars += line[n] == '|';
    snprintf(text, 256, "%.*s", (int)n, line);
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

/* The tables of the pages are what the program prints: the same head, and the same rows.  Of the
 * columns of numbers docs/kernel.md has those that it speaks of. */
TEST_EACH(pages, ATTN_BENCH_PRESETS)
{
    static const char *const page[] = {"docs/speed.md", "docs/kernel.md"};
    static const char *const preset[] = {"table", "steps"};
    char here[256], there[256];
    scratch_expect(0, "",
                   "bench --preset %s --no-verify --blas none --rounds 1 --sample 0 --rows '%s'",
                   preset[_i], _i == 0 ? "no mask, L=512" : "lazy");
    char *text = scratch_read(page[_i]);
    char *want = table_of(scratch_output), *got = table_of(text);
    ck_assert_msg(want != NULL && got != NULL, "%s: %s", page[_i], scratch_output);
    ck_assert(_i == 1 || strncmp(want, got, strcspn(want, "\n")) == 0);
    const struct attn_bench_list *list = &attn_bench_presets[_i];
    for (int r = -2; r < list->n; r++) {
        got = cells(got, there);
        want = want[0] != '\0' ? cells(want, here) : want;
        if (r < 0)
            ck_assert_str_eq(here, there);
        else
            ck_assert_msg(strstr(there, list->row[r].what) != NULL &&
                              strstr(there, list->row[r].spec) != NULL,
                          "%s: not '%s' but %s", page[_i], list->row[r].what, there);
    }
    ck_assert_str_eq(got, "");
    free(text);
}

TEST(folder)
{
    scratch_expect(0, "", "bench dense --length 16,32 --out '%s' " TINY, scratch_path("bench"));
    const char *const file[] = {"bench/bench.json", "bench/roofline.csv", "bench/roofline.gp",
                                "bench/roofline.svg"};
    for (size_t f = 0; f < sizeof file / sizeof *file; f++) {
        FILE *there = fopen(scratch_path(file[f]), "r");
        ck_assert_msg(there != NULL, "%s", file[f]);
        fclose(there);
    }
    scratch_shell(
        0, "bench.json", /* a folder's name like any other */
        "b=$(realpath '%s') && cd '%s' && OLDPWD=/ \"$b/attnlab\" bench dense --length 16 "
        "--out - " TINY " && ls ./-",
        test_build(), scratch_path(""));
}
