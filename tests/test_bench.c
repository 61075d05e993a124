/* attnlab bench: the arithmetic of fractions, pairs and rows, and what a user meets.  Nothing here
 * asks how long anything takes. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/bench/bench_table.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

/* ---- arithmetic --------------------------------------------------------------------------- */

/* An entry of 1e9 flops whose sample s takes seconds[s], by a P of 1e10. */
static void make_entry(struct attn_bench_entry *e, const double *seconds, int n)
{
    memset(e, 0, sizeof *e);
    e->state = ATTN_BENCH_TIMED;
    e->threads = 1;
    e->work.flops = 1e9;
    e->work.bytes = 1e8;
    for (e->n = 0; e->n < n; e->n++) {
        e->sample[e->n] = (struct attn_bench_sample){.s = seconds[e->n], .peak = 1e10, .read = 1e9};
    }
}

static const double steady[] = {0.2, 0.2, 0.2, 0.2, 0.2}, slower[] = {0.4, 0.4, 0.4, 0.4, 0.4};
static const double one[] = {0.2, 0.25, 0.5, 0.2, 10}, two[] = {0.4, 0.25, 0.4, 0.6, 1};

START_TEST(fractions)
{
    struct attn_bench_entry e;
    struct attn_spread x;
    make_entry(&e, one, 4);
    attn_bench_spread(&e, ATTN_BENCH_FRACTION, &x); /* 1e9 / (s 1e10): 0.5 0.4 0.2 0.5 */
    ck_assert_int_eq(x.n, 4);
    ck_assert_double_eq_tol(x.median, 0.45, 1e-12);
    ck_assert_double_eq_tol(x.min, 0.2, 1e-12);
    ck_assert_double_eq_tol(x.max, 0.5, 1e-12);
    attn_bench_spread(&e, ATTN_BENCH_RATE, &x);
    ck_assert_double_eq_tol(x.max, 5e9, 1);
    attn_bench_spread(&e, ATTN_BENCH_READ, &x); /* 1e8 / (s 1e9) */
    ck_assert_double_eq_tol(x.max, 0.5, 1e-12);
}
END_TEST

START_TEST(ratios)
{
    struct attn_bench_entry a, b;
    struct attn_bench_ratio r;
    make_entry(&a, one, 5);
    make_entry(&b, two, 4);
    attn_bench_compare(&a, &b, &r); /* b over a: 2, 1, 0.8, 3: rounds of both */
    ck_assert_int_eq(r.n, 4);
    ck_assert_int_eq(r.faster, 2);
    ck_assert_double_eq_tol(r.spread.median, 1.5, 1e-12);
    ck_assert(r.interval.low >= 0.8 && r.interval.low <= 1.5);
    ck_assert(r.interval.high >= 1.5 && r.interval.high <= 3);
    b.n = 3; /* only rounds that both have */
    attn_bench_compare(&a, &b, &r);
    ck_assert_int_eq(r.n, 3);
}
END_TEST

START_TEST(ceilings)
{
    static struct attn_bench bench;
    static struct attn_kernels kernels;
    const double rate[ATTN_ROOFS] = {1e10, 1e9, 1e9, 1e9, 1e10, 1e10, 1e9, 1e8, 1e10};
    struct attn_bench_ceiling c;
    struct attn_bench_entry e = {.threads = 1, .kernels = &kernels};
    bench.roofs.l2_bytes = 1000;
    for (int r = 0; r < ATTN_ROOFS; r++)
        bench.roof[bench.n_roofs++] = (struct attn_bench_roof){
            .roof = (enum attn_roof)r, .kernels = &kernels, .threads = 1, .spread.median = rate[r]};
    const struct {
        struct attn_bench_work work;
        double fraction;
        const char *binds;
    } want[] = {{{1, 9e9, 1e8, 1e8, 0}, 0.9, "fma"},      /* 0.9 + 0.1 s; 0.1 s of memory        */
                {{1, 1e9, 4e8, 1e8, 0}, 0.2, "exp"},      /* 0.1 + 0.4; 0.1                       */
                {{1, 1e9, 1e8, 1e9, 0}, 0.1, "memory"},   /* 0.1 + 0.1; 1                         */
                {{1, 1e9, 1e8, 1e8, 1e9}, 0.1, "gather"}, /* 1 s of random rows, from L2  */
                {{1, 1e3, 1e1, 1000, 0}, 1e-7 / 1.1e-7, "fma"}}; /* from L2: ten times as fast   */
    for (size_t t = 0; t < sizeof want / sizeof *want; t++) {
        e.work = want[t].work;
        attn_bench_ceiling(&bench, &e, &c);
        ck_assert_double_eq_tol(c.fraction, want[t].fraction, 1e-9);
        ck_assert_str_eq(c.binds, want[t].binds);
    }
    e.threads = 2; /* was not measured */
    attn_bench_ceiling(&bench, &e, &c);
    ck_assert(isnan(c.fraction));
}
END_TEST

/* ---- rows --------------------------------------------------------------------------------- */

static int has_other(enum attn_bench_goal goal)
{
    return goal == ATTN_GOAL_SGEMM || goal == ATTN_GOAL_RATE || goal == ATTN_GOAL_TIME ||
           goal == ATTN_GOAL_STEP;
}

/* _i: list. */
START_TEST(rows_are_sound)
{
    const struct attn_bench_list *list = attn_bench_list_at(_i);
    ck_assert_ptr_eq(attn_bench_list_find(list->name), list);
    ck_assert_int_gt(list->n, 4);
    int targets = 0;
    for (int r = 0; r < list->n; r++) {
        const struct attn_bench_row *row = &list->row[r];
        struct attn_case c;
        struct attn_error err = {ATTN_OK, ""};
        ck_assert_msg(attn_case_parse(row->text, &c, &err) == ATTN_OK, "%s: %s", row->what,
                      err.text);
        ck_assert(row->target >= 0 && row->threads >= 1);
        ck_assert(row->goal != ATTN_GOAL_STEP || row->target == 0);
        targets += row->target > 0;
        ck_assert_msg((row->other_spec != NULL) == has_other(row->goal), "%s", row->what);
        if (row->other_spec != NULL && row->goal != ATTN_GOAL_SGEMM)
            ck_assert_msg(attn_case_parse(row->other_text, &c, &err) == ATTN_OK, "%s", err.text);
        for (int other = 0; other < r; other++) {
            const struct attn_bench_row *x = &list->row[other];
            ck_assert_msg(strcmp(x->block, row->block) != 0 || strcmp(x->what, row->what) != 0,
                          "twice: %s", row->what);
        }
    }
    ck_assert(strcmp(list->name, "table") != 0 || targets > 40);
}
END_TEST

/* Met at the target itself, and not a hair beside it. */
START_TEST(judging)
{
    struct attn_bench_entry a, b;
    struct attn_bench_outcome x;
    make_entry(&a, steady, 5); /* 0.5 P; twice as fast as b */
    make_entry(&b, slower, 5);
    b.work.flops = 5e8; /* of half the work */
    struct attn_bench_row row = {.what = "?", .goal = ATTN_GOAL_PEAK, .target = 0.5};
    const struct {
        enum attn_bench_goal goal;
        double value;
    } want[] = {{ATTN_GOAL_PEAK, 0.5}, {ATTN_GOAL_READ, 0.5}, {ATTN_GOAL_SGEMM, 4},
                {ATTN_GOAL_RATE, 4},   {ATTN_GOAL_TIME, 0.5}, {ATTN_GOAL_MEMORY, 3},
                {ATTN_GOAL_STEP, 2}};
    a.priced_bytes = 3 << 20;
    for (size_t t = 0; t < sizeof want / sizeof *want; t++) {
        row.goal = want[t].goal;
        for (int beside = -1; beside <= 1; beside++) {
            row.target = want[t].value * (1 + 1e-9 * beside);
            attn_bench_judge(&row, &a, has_other(row.goal) ? &b : NULL, &x);
            ck_assert(x.known);
            ck_assert_double_eq_tol(x.spread.median, want[t].value, 1e-12);
            if (beside != 0)
                ck_assert_int_eq(x.met,
                                 attn_bench_goal_at_least(row.goal) ? beside < 0 : beside > 0);
        }
    }
    make_entry(&a, one, 5); /* 0.5 0.4 0.2 0.5 0.01 P: what the interval covers is not decided */
    const double target[] = {0.005, 0.3, 0.6};
    for (int t = 0; t < 3; t++) {
        row = (struct attn_bench_row){.what = "?", .goal = ATTN_GOAL_PEAK, .target = target[t]};
        attn_bench_judge(&row, &a, NULL, &x);
        ck_assert(x.known && x.n == 5);
        ck_assert_int_eq(x.inconclusive, t == 1);
        ck_assert_int_eq(x.met, t == 0);
    }
    make_entry(&a, steady, 1); /* one sample decides nothing */
    attn_bench_judge(&row, &a, NULL, &x);
    ck_assert(x.known && x.inconclusive && !x.met);
    row.target = 0; /* none: nothing is met */
    attn_bench_judge(&row, &a, NULL, &x);
    ck_assert(x.known && !x.met && x.spread.median > 0);
    b.state = ATTN_BENCH_REFUSED;
    row.goal = ATTN_GOAL_TIME;
    attn_bench_judge(&row, &a, &b, &x);
    ck_assert(!x.known && !x.met);
}
END_TEST

/* ---- as a user meets it ------------------------------------------------------------------- */

#define TINY "--rounds 3 --sample 0 "

static const struct {
    const char *args;
    int status;
    const char *says;
} expected[] = {
    {"--help", 0, "--against"},
    {"", 2, "a SPEC and --case or --length are needed"},
    {"dense", 2, "a SPEC and --case or --length are needed"},
    {"--length 8", 2, "a SPEC and --case or --length are needed"},
    {"--preset chair", 2, "--preset 'chair'"},
    {"dense --preset table", 2, "--preset stands alone"},
    {"--preset table --rows chair", 2, "--rows 'chair': no row or block of --preset table"},
    {"--rows d=64 dense --length 8", 2, "--rows d=64: of which table?"},
    {"--preset table --rows 'L=512, d=128' --blas none --no-verify " TINY, 0,
     "causal, L=512, d=128"},
    {"--preset steps --blas none --no-verify " TINY, 0, "lazy rescale"},
    {"--limits --length 8", 2, "--limits stands alone"},
    {"dense --length 8 --threads 0", 2, "--threads '0'"},
    {"dense --length 8 --threads 1,", 2, "--threads '1,'"},
    {"dense --length 8 --rounds 0", 2, "--rounds '0'"},
    {"dense --length 8 --format xml", 2, "--format 'xml'"},
    {"dense --length 8 --pass up", 2, "--pass 'up'"},
    {"dense --length eight", 2, "attnlab bench: "},
    {"dense --case q8", 2, "attnlab bench: "},
    {"dense --length 8 --dtype f32 --dtype f32", 2, "--dtype was given before"},
    {"dense --length 8,", 2, "attnlab bench: "},
    {"nosuch --length 8", 2, "no implementation is called 'nosuch'"},
    {"dense --length 8 --against nosuch", 2, "no implementation is called 'nosuch'"},
    {"dense tiled-textbook --length 16 --dim 4,8 --pass both " TINY, 0, "q16d4:none:f32:normal:s1"},
    {"dense --length 16 --mask 'causal(br);none' " TINY, 0, "q16d64:causal(br)"},
    {"dense --length 16 --against tiled-textbook " TINY, 0, "x as fast as tiled-textbook (95 %"},
    {"dense --length 16 " TINY, 0, "Bytes of the roofline"},
    {"dense --case q9k5d3v2:none:f64:normal:s1 --format line " TINY, 0, "threads 1 median 0."},
    {"dense --length 200000 " TINY, 3, "not attempted"},
    {"dense --length 1024 --patience 1e-9 " TINY, 3, "would take about"},
    {"ring --length 16 --dtype bf16 " TINY, 3, "refused: "},
};

START_TEST(words)
{
    static char output[1 << 16];
    int status = scratch_attnlab(output, sizeof output, "bench %s", expected[_i].args);
    ck_assert_msg(status == expected[_i].status, "bench %s: status %d, not %d\n%s",
                  expected[_i].args, status, expected[_i].status, output);
    ck_assert_msg(strstr(output, expected[_i].says) != NULL, "bench %s does not say '%s' but\n%s",
                  expected[_i].args, expected[_i].says, output);
}
END_TEST

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

/* What `attnlab bench` prints as JSON; the caller gives it back. */
static json_t *bench_json(const char *args)
{
    static char output[1 << 18];
    json_error_t why;
    int status = scratch_attnlab(output, sizeof output, "bench %s --format json " TINY, args);
    ck_assert_msg(status == 0, "%s", output);
    json_t *all = json_loads(output, 0, &why);
    ck_assert_msg(all != NULL, "line %d: %s", why.line, why.text);
    return all;
}

/* The schema, and the textbook's flops: 4 pairs d and 10 pairs d. */
START_TEST(schema)
{
    json_t *all = bench_json("dense --length 16 --dim 8 --mask 'causal(br)' --pass both "
                             "--against tiled-textbook");
    ck_assert(number_of(all, "schema") == 1);
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
END_TEST

/* What `tiled` is made of is measured next to it; nobody else is made of it, and neither is
 * what goes by rows: decoding, and as many queries as `few` says. */
START_TEST(tiles_beside)
{
    json_t *all = bench_json("tiled tiled:few=64 dense --case q32d8:none:f32:normal:s1 "
                             "--case q1k32d8:none:f32:normal:s1");
    const json_t *entries = json_object_get(all, "entries");
    ck_assert_int_eq(json_array_size(entries), 6);
    for (size_t at = 0; at < 6; at++) {
        const json_t *e = json_array_get(entries, at), *sample = json_object_get(e, "samples");
        const json_t *median = json_object_get(json_object_get(e, "tiles_of_peak"), "median");
        int there = strcmp(json_string_value(json_object_get(e, "spec")), "tiled") == 0 &&
                    strncmp(json_string_value(json_object_get(e, "case")), "q32", 3) == 0;
        ck_assert_int_eq(json_is_number(median), there);
        ck_assert_int_eq(json_is_number(json_object_get(json_array_get(sample, 0), "tiles")),
                         there);
        ck_assert(!there || json_number_value(median) > 0);
    }
    json_decref(all);
}
END_TEST

START_TEST(folder)
{
    static char output[1 << 16];
    int status =
        scratch_attnlab(output, sizeof output, "bench dense --length 16,32 --out '%s' " TINY,
                        scratch_path("bench"));
    ck_assert_msg(status == 0, "%s", output);
    const char *const file[] = {"bench/bench.json", "bench/roofline.csv", "bench/roofline.gp"};
    for (size_t f = 0; f < sizeof file / sizeof *file; f++) {
        FILE *there = fopen(scratch_path(file[f]), "r");
        ck_assert_msg(there != NULL, "%s", file[f]);
        fclose(there);
    }
    status = scratch_attnlab(output, sizeof output, "bench dense --length 16 --out '%s' " TINY,
                             scratch_path("no/such"));
    ck_assert_int_eq(status, 3);
}
END_TEST

Suite *suite_bench(void)
{
    Suite *s = suite_create("bench");
    TCase *t = tcase_create("figures");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, fractions);
    tcase_add_test(t, ratios);
    tcase_add_test(t, ceilings);
    tcase_add_test(t, rows_are_sound);
    tcase_add_test(t, judging);
    suite_add_tcase(s, t);
    TCase *program = tcase_create("program");
    tcase_set_timeout(program, 120);
    tcase_add_checked_fixture(program, scratch_open, scratch_close);
    tcase_add_loop_test(program, words, 0, sizeof expected / sizeof *expected);
    tcase_add_test(program, schema);
    tcase_add_test(program, tiles_beside);
    tcase_add_test(program, folder);
    suite_add_tcase(s, program);
    return s;
}
