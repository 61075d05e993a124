/* From records to figures and page: what is folded, what is drawn, what is left out, and that
 * nothing in a record can break out of its place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point_work.h"
#include "experiments/report/page.h"
#include "experiments/table/document.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/report_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(report, .open = scratch_open, .close = scratch_close);

/* ---- folding ------------------------------------------------------------------------------- */

TEST(rounds_are_folded)
{
    const char *text = "q256d64:none:f32:normal:s1";
    fixture_n_points = 0;
    for (int round = 0; round < 3; round++) {
        struct attn_point *p = fixture_add("length-x", "dense", text, round);
        p->n_warm = 3;
        p->warm_s[0] = 9; /* of each round the median counts: 1, 2, 3 */
        p->warm_s[1] = 1 + round;
        p->warm_s[2] = 0.5;
        p->judged.worst = p->judged.output[ATTN_LSE] = 0.1 * (round + 1);
        p->resident_bytes = INT64_MAX; /* a median of doubles, which is no int64_t */
    }
    fixture_fold(NULL);
    ck_assert_int_eq(fixture_summary.n, 1);
    const struct attn_row *row = &fixture_summary.row[0];
    ck_assert_int_eq(row->rounds, 3);
    ck_assert_int_eq(row->good, 3);
    ck_assert_int_eq(row->resident, INT64_MAX);
    ck_assert_double_eq(row->time.median, 2);
    ck_assert_double_eq(row->time.min, 1);
    ck_assert_double_eq(row->time.max, 3);
    ck_assert_double_eq_tol(row->output[ATTN_LSE], 0.3, 1e-15);
    ck_assert(isnan(row->output[ATTN_DQ]));
}

/* One wrong round makes the row wrong and takes its time away; a NaN ratio is the worst. */
TEST(a_wrong_round_has_no_time)
{
    const char *text = "q256d64:none:f32:normal:s1";
    fixture_n_points = 0;
    fixture_add("length-x", "dense", text, 0);
    struct attn_point *p = fixture_add("length-x", "dense", text, 1);
    p->status = ATTN_POINT_WRONG;
    p->judged.worst = (double)NAN;
    fixture_fold(NULL);
    ck_assert_int_eq(fixture_summary.n, 1);
    ck_assert_int_eq(fixture_summary.row[0].status, ATTN_POINT_WRONG);
    ck_assert_int_eq(fixture_summary.row[0].time.n, 0);
    ck_assert(isinf(fixture_summary.row[0].worst));
}

TEST(simulated_ranks_have_cpu_time)
{
    fixture_n_points = 0;
    struct attn_point *p = fixture_add("ranks", "ring:ranks=2", "q256d64:none:f32:normal:s1", 0);
    p->ranks = 2;
    p->warm_s[0] = 100; /* wall time of threads that share the cores: not shown */
    p->warm_cpu_max_s = 3;
    fixture_fold(NULL);
    ck_assert_double_eq(fixture_summary.row[0].time.median, 3);
}

/* Processes have the wall time of their record where each has a core, and elsewhere none, which the
 * page says; neither is a time of simulated ranks. */
TEST(processes_have_wall_time)
{
    fixture_n_points = 0;
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
        char spec[32];
        (void)snprintf(spec, sizeof spec, "ring:ranks=%d", ranks);
        struct attn_point *p = fixture_add("ranks", spec, "q256d64:none:f32:normal:s1", 0);
        p->ranks = ranks;
        p->n_processes = ranks > 1 ? ranks : 0; /* one rank is measured as any process is */
        p->ranks_per_core = ranks / 4.0;
        p->warm_s[0] = 8.0 / ranks;
        p->warm_cpu_max_s = 100;
    }
    fixture_fold(NULL);
    const struct attn_figure *figure = fixture_draw("process-time", 0);
    ck_assert_int_eq(figure->n, 3);
    for (int64_t s = 0; s < 3; s++) {
        ck_assert(fixture_number(figure, s, "process_median_s") == 8 / figure->point[s].x);
        ck_assert(isnan(fixture_number(figure, s, "rank_median_s")));
    }
    ck_assert_ptr_null(fixture_draw("rank-time", 0));
    fixture_expect_page(0, WORDS("Measured, without a time, as ranks share cores: ring from R=8"));
}

/* A row without warm calls has its first calls, apart; no time of one kind is in a median or in a
 * column of the other. */
TEST(first_calls_stand_apart)
{
    fixture_add_curves();
    for (int i = 0; i < 3; i++)
        fixture_points[i].n_warm = 0;
    fixture_points[2].first_s = (double)NAN; /* no time at all */
    fixture_fold(NULL);
    int warm = 0, single = 0, n_warm = 0, n_single = 0;
    for (int64_t r = 0; r < 8; r++) {
        const struct attn_row *row = &fixture_summary.row[r];
        double square = (double)row->point->c.n_query * (double)row->point->c.n_query;
        ck_assert(row->time.n == 0 || (row->single.n == 0 && row->time.median == 1e-9 * square));
        ck_assert(row->single.n == 0 || row->single.median == 5e-9 * square);
        warm += row->time.n;
        single += row->single.n;
    }
    ck_assert_int_eq(warm, 5);
    ck_assert_int_eq(single, 2);
    const struct attn_figure *figure = fixture_draw("time", 0);
    for (int64_t s = 0; s < figure->n; s++) {
        n_warm += !isnan(fixture_number(figure, s, "median_s"));
        n_single += !isnan(fixture_number(figure, s, "single_s"));
    }
    ck_assert_int_eq(n_warm, warm);
    ck_assert_int_eq(n_single, single);
    ck_assert_int_eq(figure->n, warm + single);
    char text[200];
    attn_group_not_run(&fixture_groups.group[0], text, sizeof text);
    ck_assert_str_eq(text, "Measured, without a time: dense from 512 (forward)");
}

/* Two rounds of five that were short enough for a warm call do not speak for the row; three do. */
TEST(a_kind_needs_half_of_the_rounds)
{
    for (int warm = 2; warm <= 3; warm++) {
        fixture_n_points = 0;
        for (int round = 0; round < 5; round++)
            fixture_add("length-x", "dense", "q256d64:none:f32:normal:s1", round)->n_warm =
                round < warm;
        fixture_fold(NULL);
        const struct attn_row *row = &fixture_summary.row[0];
        ck_assert_int_eq(row->time.n, warm == 3 ? 3 : 0);
        ck_assert_int_eq(row->single.n, warm == 3 ? 0 : 5);
        ck_assert(row->single.n == 0 || row->single.min == row->single.max);
    }
}

TEST(ranks_leave_the_spec)
{
    static const char *const pair[][2] = {{"ring", "ring"},
                                          {"ring:ranks=4", "ring"},
                                          {"ring:ranks=4,local=dense", "ring:local=dense"},
                                          {"ring:local=dense,ranks=16", "ring:local=dense"},
                                          {"a:x=1,ranks=2,y=3", "a:x=1,y=3"}};
    for (size_t s = 0; s < sizeof pair / sizeof pair[0]; s++) {
        char text[128];
        attn_spec_without_ranks(pair[s][0], text);
        ck_assert_str_eq(text, pair[s][1]);
    }
}

/* ---- figures as data ------------------------------------------------------------------------- */

/* One round of it: resident memory and times are that much more than at the median. */
static void add_break_even(int round, double more)
{
    static const double density[] = {0.1, 0.2, 0.4, 0.5, 1};
    const double mib = 1024 * 1024;
    for (int s = 0; s < 5; s++) {
        char text[128];
        (void)snprintf(text, sizeof text, "q1024d64:random(%g,1):f32:normal:s1", density[s]);
        struct attn_point *p = fixture_add("density", "csr-textbook", text, round);
        p->density = density[s];
        p->price.peak = p->ledger_bytes = (int64_t)(20 * density[s] * mib);
        p->resident_bytes = (int64_t)(more * 20 * density[s] * mib);
        p->warm_s[0] = more * density[s];
    }
    struct attn_point *dense =
        fixture_add("density", "dense", "q1024d64:random(0.1,1):f32:normal:s1", round);
    dense->density = 0.1; /* at one density only: the line goes on */
    dense->price.peak = dense->ledger_bytes = dense->resident_bytes = (int64_t)(9 * mib);
    dense->warm_s[0] = 0.25;
}

/* The numbers behind these words of a figure's finding. */
static void expect_interval(const struct attn_figure *figure, const char *words, double median)
{
    double low, high;
    const char *at = strstr(figure->finding, words);
    ck_assert_msg(at != NULL, "%s", figure->finding);
    ck_assert_msg(sscanf(at + strlen(words), " (95 %%: %lf to %lf)", &low, &high) == 2, "%s", at);
    ck_assert_msg(low >= 0.999 * median / 1.05 && low < 0.98 * median, "%s", at);
    ck_assert_msg(high <= 1.001 * median / 0.95 && high > 1.02 * median, "%s", at);
}

/* CSR of 20 bytes a pair against dense of 9: they meet at a density of 0.45, and where a call
 * takes 1/4 s. */
TEST(break_even_is_found)
{
    fixture_n_points = 0;
    add_break_even(0, 1);
    for (int rounds = 1; rounds <= 3; rounds += 2) {
        fixture_fold(NULL);
        ck_assert_int_eq(fixture_groups.n, 1);
        const struct attn_figure *figure = fixture_draw("csr-density", 0);
        int marks = 0;
        for (int64_t i = 0; i < figure->n; i++)
            if (!isnan(fixture_number(figure, i, "crossing_density"))) {
                ck_assert_double_eq_tol(fixture_number(figure, i, "crossing_density"), 0.45, 1e-6);
                marks++;
            }
        ck_assert_int_eq(marks, 1);
        ck_assert_ptr_nonnull(strstr(figure->finding, "at density 0.450 ("));
        if (rounds == 1)
            ck_assert_ptr_nonnull(
                strstr(figure->finding, "resident at 0.450 (of one round: interval unknown)"));
        else
            expect_interval(figure, "resident at 0.450", 0.45);
        figure = fixture_draw("density-time", 0);
        if (rounds == 1)
            ck_assert_str_eq(figure->finding,
                             "csr-textbook takes as long as dense at density 0.250 "
                             "(of one round: interval unknown)");
        else
            expect_interval(figure, "csr-textbook takes as long as dense at density 0.250", 0.25);
        add_break_even(1, 0.95);
        add_break_even(2, 1.05);
    }
}

/* Records of a machine that does not say what is resident, and curves that do not meet. */
TEST(break_even_of_no_sample)
{
    fixture_n_points = 0;
    add_break_even(0, 1);
    add_break_even(1, 1);
    for (int s = 0; s < fixture_n_points; s++) {
        fixture_points[s].resident_bytes = -1;
        fixture_points[s].warm_s[0] = strcmp(fixture_points[s].spec, "dense") == 0 ? 2 : 0.5;
    }
    fixture_fold(NULL);
    ck_assert_ptr_null(strstr(fixture_draw("csr-density", 0)->finding, "resident"));
    ck_assert_str_eq(fixture_draw("density-time", 0)->finding,
                     "csr-textbook never crosses dense and takes less");
}

TEST(masks_make_groups)
{
    fixture_n_points = 0;
    fixture_add("length-two", "dense", "q256d64:none:f32:normal:s1", 0);
    fixture_add("length-two", "dense", "q512d64:none:f32:normal:s1", 0);
    fixture_add("length-two", "dense", "q256d64:causal(br):f32:normal:s1", 0);
    fixture_add("length-two", "dense", "q512d64:causal(br):f32:normal:s1", 0);
    /* A mask that changes with the length is one curve, not many points. */
    fixture_add("length-docs", "dense", "q256d64:documents(100,156):f32:normal:s1", 0);
    fixture_add("length-docs", "dense", "q512d64:documents(200,312):f32:normal:s1", 0);
    fixture_fold(NULL);
    ck_assert_int_eq(fixture_groups.n, 3);
    ck_assert_str_eq(fixture_groups.group[0].tag, "two");
    ck_assert_str_eq(fixture_groups.group[1].tag, "two-2");
    ck_assert_str_eq(fixture_groups.group[2].tag, "docs");
    ck_assert_int_eq(fixture_groups.group[2].n, 2);
}

/* Of seven curves five stand out: the first of each family, then in order; each of the others has a
 * grey of its own. */
TEST(five_curves_stand_out)
{
    static const char *const spec[] = {"dense", "tiled-textbook", "tiled",       "chunked",
                                       "csr",   "gemm",           "ring:ranks=2"};
    fixture_n_points = 0;
    for (int s = 0; s < 7; s++)
        for (int l = 0; l < 2; l++)
            fixture_add("length-a", spec[s],
                        l == 0 ? "q256d64:none:f32:normal:s1" : "q512d64:none:f32:normal:s1", 0);
    fixture_fold(NULL);
    const struct attn_figure *figure = fixture_draw("memory", 0);
    ck_assert_int_eq(figure->n_curves, 7);
    for (int c = 0; c < 7; c++) {
        const struct attn_figure_curve *curve = &figure->curve[c];
        int is_grey = strcmp(curve->label, "tiled") == 0 || strcmp(curve->label, "gemm") == 0;
        ck_assert_msg((curve->width < 1) == is_grey, "%s: %s", curve->label, curve->colour);
        for (int b = 0; b < c; b++)
            ck_assert_str_ne(curve->colour, figure->curve[b].colour);
    }
}

/* SPECs and lengths are a plan of one group. */
TEST(report_of_specs)
{
    const char *out = scratch_path("specs");
    scratch_expect(0, "index.html",
                   "report tiled dense --length 16,32 --rounds 1 --budget 60 --out '%s'", out);
    scratch_shell(0, "", "test -s '%s'/figures/memory.svg", out);
    scratch_shell(
        0, "",
        "grep -q '^<pre>.*attnlab measure --length 16,32 .* tiled dense --out' '%s'/index.html",
        out);
}

TEST(what_was_not_run_is_named)
{
    char text[512];
    fixture_add_curves();
    struct attn_point *p =
        fixture_add("length-causal", "dense", "q16384d64:causal(br):f32:normal:s1", 0);
    p->status = ATTN_POINT_TOO_BIG;
    p->price.peak = INT64_C(12) << 30;
    p->floor_bytes = 0;
    p = fixture_add("length-causal", "tiled-textbook", "q16384d64:causal(br):f32:normal:s1", 0);
    p->status = ATTN_POINT_DROPPED;
    fixture_fold(NULL);
    attn_group_not_run(&fixture_groups.group[0], text, sizeof text);
    ck_assert_str_eq(text, "Not measured, too big for this machine: dense from 16,384 (forward, "
                           "12.0 GiB); Not measured, dropped by the time budget: tiled-textbook "
                           "from 16,384 (forward)");
    attn_group_not_run(&fixture_groups.group[0], text, 120); /* no room: said, and nothing half */
    ck_assert_str_eq(text, "Not measured, too big for this machine: dense from 16,384 (forward, "
                           "12.0 GiB) ... (the table has all)");
    ck_assert_int_eq(attn_group_common_length(&fixture_groups.group[0], ATTN_FORWARD), 2048);
    ck_assert_int_eq(attn_group_common_length(&fixture_groups.group[0], ATTN_BACKWARD), 0);
}

/* Prices go on behind measured points; P = 1 is not of the curve, and the bytes that a ring sends
 * follow the formula although nothing ran. */
TEST(prices_go_on)
{
    fixture_n_points = 0;
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
        char spec[32];
        (void)snprintf(spec, sizeof spec, "ring:ranks=%d", ranks);
        struct attn_point *p = fixture_add("ranks", spec, "h8q256d64:none:f32:normal:s1", 0);
        p->ranks = ranks;
        p->price.sent = 4096;
        if (ranks > 2)
            p->status = ATTN_POINT_PRICED;
    }
    fixture_fold(NULL);
    const struct attn_figure *figure = fixture_draw("rank-memory", 0);
    ck_assert_int_eq(figure->n_curves, 1);
    ck_assert_int_eq(figure->n, 4);
    static const char *const column[] = {"priced_bytes", "beyond_bytes", "ledger_bytes",
                                         "ideal_bytes", "one_rank_bytes"};
    static const int there[4][5] = {
        {0, 0, 1, 0, 1}, {1, 1, 1, 1, 0}, {0, 1, 0, 1, 0}, {0, 1, 0, 1, 0}};
    for (int i = 0; i < 4; i++)
        for (int c = 0; c < 5; c++)
            ck_assert_msg(isnan(fixture_number(figure, i, column[c])) != there[i][c], "row %d, %s",
                          i, column[c]);
    ck_assert_str_eq(figure->omitted, "");
    figure = fixture_draw("bytes-sent", 0);
    ck_assert_int_eq(figure->n, 3); /* one rank sends nothing */
    ck_assert_double_gt(fixture_number(figure, 2, "sent_beyond_bytes"), 0);
    ck_assert_double_eq(fixture_number(figure, 0, "sent_bytes"), 4096);
}

/* The number of a forward pass at x in the curve of that label; NaN: there is none. */
static double drawn(const struct attn_figure *figure, const char *label, double x,
                    const char *column)
{
    for (int64_t s = 0; s < figure->n; s++) {
        const struct attn_figure_point *p = &figure->point[s];
        if (strcmp(figure->panel[p->panel], "forward") == 0 && p->x == x &&
            strcmp(figure->curve[p->curve].label, label) == 0)
            return fixture_number(figure, s, column);
    }
    return (double)NAN;
}

/* Errors against ranks, by hand: a forward pass has that of O and a backward one that of its worst
 * gradient, the worst round counts, and an output that is 0 everywhere has none. */
TEST(errors_against_ranks)
{
    fixture_n_points = 0;
    for (int n = 0; n < 8; n++) { /* of rounds 0 and 1 forward, then backward; 1 and 2 ranks */
        struct attn_result result = {.verdict = ATTN_PASS};
        struct attn_point *p = fixture_add(
            "ranks", n % 2 ? "ring:ranks=2" : "ring:ranks=1",
            n < 4 ? "q64d8:none:bf16:normal:s1" : "q64d8:none:bf16:normal:s1:pass=bwd", n / 2 % 2);
        p->ranks = 1 + n % 2;
        result.output[ATTN_O] = (struct attn_agreement){.n = 1, .error = 1 + n, .size = 64};
        if (n >= 4) {
            result.output[ATTN_DQ] = (struct attn_agreement){.n = 1, .error = 5, .size = 0};
            result.output[ATTN_DK] = (struct attn_agreement){.n = 1, .error = n, .size = 32};
            result.output[ATTN_DV] = (struct attn_agreement){.n = 1, .error = 3, .size = 32};
        }
        attn_point_keep_verdict(p, &result);
        ck_assert(isnan(p->judged.error[ATTN_DQ]) && isnan(p->judged.error[ATTN_DBIAS]));
    }
    fixture_fold(NULL);
    const struct attn_figure *figure = fixture_draw("rank-error", 0);
    ck_assert_int_eq(figure->n, 4);
    for (int64_t s = 0; s < 4; s++) {
        double o = fixture_number(figure, s, "O_error"), x = figure->point[s].x;
        double gradients = fixture_number(figure, s, "gradients_error");
        int is_forward = strcmp(figure->panel[figure->point[s].panel], "forward") == 0;
        ck_assert(is_forward ? o == (x + 2) / 64 : isnan(o));
        ck_assert(is_forward ? isnan(gradients) : gradients == (x + 5) / 32);
    }
}

/* The whole need of a rank is its peak and its share; one process stands beside it at every P, and
 * the guide falls from there. */
TEST(shares_are_drawn)
{
    static const char *const spec[] = {"tiled", "ring:ranks=2", "ring:ranks=8"};
    fixture_n_points = 0;
    for (int n = 0; n < 6; n++) {
        struct attn_point *p =
            fixture_add(n < 3 ? "ranks" : "share", spec[n % 3], "h8q256d64:none:f32:normal:s1", 0);
        p->ranks = n % 3 == 0 ? 1 : n % 3 == 1 ? 2 : 8;
        p->price.peak = p->ledger_bytes = 1000;
        p->price.shard = 8000 / p->ranks;
        p->price.device = (double)p->price.peak + p->price.shard;
    }
    fixture_fold(NULL);
    const struct attn_figure *figure = fixture_draw("rank-memory", 0);
    ck_assert(drawn(figure, "tiled", 1, "total_priced_bytes") == 9000);
    ck_assert(drawn(figure, "tiled", 8, "total_priced_bytes") == 9000);
    ck_assert(drawn(figure, "tiled", 8, "total_ideal_bytes") == 9000.0 / 8);
    ck_assert(drawn(figure, "ring", 2, "total_priced_bytes") == 5000);
    ck_assert(drawn(figure, "ring", 2, "total_ledger_bytes") == 5000);
    ck_assert(isnan(drawn(figure, "ring", 2, "total_ideal_bytes")));
    ck_assert(drawn(figure, "ring", 8, "total_priced_bytes") == 2000);
    ck_assert(drawn(figure, "tiled", 8, "priced_bytes") == 1000);
    ck_assert(drawn(figure, "ring", 8, "priced_bytes") == 1000);
    ck_assert(isnan(drawn(figure, "ring", 8, "ideal_bytes")));
    figure = fixture_draw("share-memory", 1);
    ck_assert_str_eq(figure->name, "share-memory");
    ck_assert(drawn(figure, "tiled", 256, "total_priced_bytes") == 9000);
    ck_assert(drawn(figure, "ring:ranks=8", 256, "total_priced_bytes") == 2000);
    ck_assert(drawn(figure, "ring:ranks=8", 256, "priced_bytes") == 1000);
    ck_assert(isnan(drawn(figure, "ring:ranks=8", 256, "total_ideal_bytes")));
}

/* Visible pairs of 64 tokens on 4 ranks (by hand: 136 392 648 904, and 520 each), of 520. */
TEST(work_is_drawn)
{
    static const char *const spec[] = {"allgather:ranks=4", "allgather:ranks=4,order=zigzag"};
    static const double pairs[] = {136, 392, 648, 904};
    fixture_n_points = 0;
    for (int n = 0; n < 2; n++)
        fixture_add("balance", spec[n], "q64d64:causal(br):f32:normal:s1", 0)->ranks = 4;
    fixture_fold(NULL);
    const struct attn_figure *figure = fixture_draw("balance", 0);
    ck_assert_str_eq(figure->omitted, "");
    ck_assert_int_eq(figure->n, 8);
    for (int rank = 0; rank < 4; rank++) {
        ck_assert_double_eq_tol(drawn(figure, spec[0], rank, "of_mean"), pairs[rank] / 520, 1e-12);
        ck_assert_double_eq_tol(drawn(figure, spec[1], rank, "of_mean"), 1, 1e-12);
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

/* A paragraph ends, also one that begins in a style; of no words there is none. */
TEST(paragraphs_end)
{
    struct attn_document d;
    FILE *out = fopen(scratch_path("d.md"), "w");
    ck_assert_ptr_nonnull(out);
    attn_document_begin(&d, out, "t");
    attn_document_text(&d, "***%s***: x", "bad");
    attn_document_text(&d, "%s", "");
    attn_document_text(&d, "y `%d`", 1);
    ck_assert_int_eq(fclose(out), 0);
    char *text = scratch_read(scratch_path("d.md"));
    ck_assert_str_eq(text, "# t\n\n***bad***: x\n\ny `1`\n\n");
    free(text);
}

/* Links name headings, so that no two have one name; a page without its picture is none. */
TEST(page_names_its_headings)
{
    const char *path = scratch_path("page.html");
    ck_assert_int_eq(attn_page_save(path, "t", "# A & b\n\n## C d_e\n\n## C d_e\n", NULL), ATTN_OK);
    char *page = scratch_read(path);
    ck_assert(strstr(page, "<h1 id=\"a--b\">") != NULL &&
              strstr(page, "<h2 id=\"c-d_e\">") != NULL &&
              strstr(page, "<h2 id=\"c-d_e-1\">") != NULL);
    free(page);
    ck_assert_int_eq(attn_page_save(path, "t", "![a](missing.svg)\n", NULL), ATTN_ENOMEM);
}

TEST(numbers_read_well)
{
    char text[80] = "";
    FILE *file = fmemopen(text, sizeof text - 1, "w");
    ck_assert_ptr_nonnull(file);
    attn_html_text(file, "<a href='x'>\"&\n");
    fclose(file);
    ck_assert_str_eq(text, "&lt;a href=&#39;x&#39;&gt;&quot;&amp; ");
    ck_assert_str_eq(attn_seconds_text(2.5e-5, text), "25 us");
    ck_assert_str_eq(attn_seconds_text(0.001, text), "1 ms");
    ck_assert_str_eq(attn_seconds_text(100, text), "100 s");
    ck_assert_str_eq(attn_cli_grouped(16384, text), "16,384");
    ck_assert_str_eq(attn_cli_grouped(-1000, text), "-1,000");
    static const char *const mask[][2] = {
        {"causal(br)&window(255,0,br)", "window of 256"},
        {"window(3,4,br)", "window of 8"},
        {"causal(br)", "causal mask"},
        {"none", "no mask"},
        {"documents(3,4)", "documents"},
        {"documents(3,4)&causal(br)", "mask documents(3,4)&causal(br)"},
        {"prefix(3)", "mask prefix(3)"},
        {"window(9223372036854775807,1,br)", "mask window(9223372036854775807,1,br)"}};
    for (size_t m = 0; m < sizeof mask / sizeof mask[0]; m++) {
        struct attn_case c = {.batch = 1,
                              .heads = 1,
                              .kv_heads = 1,
                              .n_query = 7,
                              .n_key = 7,
                              .d_key = 1,
                              .d_value = 1};
        attn_case_set_mask(&c, mask[m][0]);
        attn_mask_words(&c, text);
        ck_assert_str_eq(text, mask[m][1]);
    }
}

/* ---- the program ----------------------------------------------------------------------------- */

TEST(a_report_is_whole)
{
    static const char *const files[] = {"records.csv",
                                        "summary.csv",
                                        "figures/memory-causal.csv",
                                        "figures/memory-causal.svg",
                                        "figures/memory-causal.png",
                                        "figures/memory-causal.pdf",
                                        "figures/time-causal.svg",
                                        "figures/error-causal.svg"};
    ck_assert_int_eq(setenv("ATTN_PICTURES", "all", 1), 0);
    fixture_add_curves();
    /* Self-contained: nothing is fetched.  No groups of two kinds: said, not drawn. */
    fixture_expect_page(0, WORDS("</html>", "2.00 ± 0.00", "<svg role=\"img\"",
                                 "<title>dense, L = ", "-showHypertext", "-{{", "-http:", "-https:",
                                 "-<link", "-@import", "-src=", "No group <code>ranks</code>",
                                 "No group <code>density</code>"));
    scratch_has("/out/index.html");
    char path[64];
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        (void)snprintf(path, sizeof path, "out/%s", files[f]);
        ck_assert_msg(fixture_is_there(path), "%s", path);
    }
    /* A reader changes a colour and draws again, with gnuplot alone.  In a locale that is not of
     * UTF-8, such as a container's without LANG, gnuplot 5.4 says that it has no degree sign; and
     * gnuplot 6 names curves without a point. */
    scratch_shell(0, "",
                  "cd '%s' && rm memory-causal.svg memory-causal.png memory-causal.pdf && "
                  "sed -i 's/^\"dense\" \"dense\" #D55E00/\"dense\" \"whole matrix\" "
                  "#123456/' memory-causal.gp && test -z \"$(LC_ALL=C.UTF-8 gnuplot -d "
                  "memory-causal.gp 2>&1 | sed '/no valid points/d')\"",
                  scratch_path("out/figures"));
    ck_assert(fixture_is_there("out/figures/memory-causal.png"));
    ck_assert(fixture_is_there("out/figures/memory-causal.pdf"));
    fixture_expect_words_of("out/figures/memory-causal.svg",
                            WORDS("whole matrix", "rgb( 18,  52,  86)", /* 123456 */
                                  "-strcol"));                          /* titles are words */
}

/* docs/examples/records.py reads the table by its columns: the bytes of dense at 2,048 are those of
 * the fixture, L^2, and a table without a group of lengths is told. */
TEST(records_in_python)
{
    if (!fixture_python("csv"))
        return;
    fixture_add_curves();
    fixture_expect_page(0, WORDS("</html>"));
    scratch_shell(0, "2048 4.1943e+06\n",
                  "/usr/bin/python3 docs/examples/records.py '%s' | grep ' dense fwd:'",
                  scratch_path("out/records.csv"));
    scratch_shell(1, "no group of lengths",
                  "cd '%s' && sed 's/^length-causal/other/' records.csv > r && "
                  "/usr/bin/python3 \"$OLDPWD/docs/examples/records.py\" r 2>&1",
                  scratch_path("out"));
}

/* Labels of a plan without measuring; and of records of two machines and two
 * numbers of heads no figure says that they are of one. */
TEST(a_plan_gives_the_style_of_stored_records)
{
    static const char plan[] =
        "group length-causal\n spec = dense ; length = 8\n label dense = Mine\n";
    static const char machines[] =
        "{\"record\":\"machine\",\"schema\":2,\"cpu\":\"A\",\"cores_online\":2}\n"
        "{\"record\":\"machine\",\"schema\":2,\"cpu\":\"B\",\"cores_online\":2}\n";
    fixture_add_curves();
    fixture_add("length-causal", "dense", "h2q4096d64:causal(br):f32:normal:s1", 0);
    strcpy(fixture_points[1].build, "older");
    char *records = scratch_read(fixture_write_records("r.jsonl")), *all;
    ck_assert_int_gt(asprintf(&all, "%s%s", machines, records), 0);
    char from[1024];
    (void)snprintf(from, sizeof from, "%s", scratch_put("two.jsonl", all, strlen(all)));
    fixture_report(0, "", "--from '%s' --plan '%s'", from,
                   scratch_put("style.plan", plan, strlen(plan)));
    fixture_expect_words_of("out/figures/memory-causal.gp",
                            WORDS("\"dense; H=1\" \"Mine\"", "B=1, H=1 to 2, G=1 to 2, d=64",
                                  "several machines; several builds"));
    free(records);
    free(all);
}

/* No points; one point of each group, which is no curve; groups whose names no figure knows: a page
 * of tables only is not what was asked for. */
TEST(no_figure)
{
    static const char *const group[] = {"length-x", "ranks", "density", "other"};
    fixture_n_points = 0;
    fixture_expect_page(3, WORDS("There are no points in these records"));
    scratch_has("the page has no figure");
    for (int g = 0; g < 4; g++)
        fixture_add(group[g], "dense", "q256d64:none:f32:normal:s1", 0);
    fixture_expect_page(3, WORDS("Omitted: group length-x", "Omitted: group ranks", "Group other"));
    scratch_has("group other is a table and no figure");
    scratch_has("two good points of one implementation; of 4 points: 4 ");
    ck_assert(!fixture_is_there("out/figures/memory-x.svg"));
    fixture_n_points = 0;
    fixture_add("other", "dense", "q256d64:none:f32:normal:s1", 0);
    fixture_add("other", "dense", "q512d64:none:f32:normal:s1", 0);
    fixture_expect_page(2, WORDS("Group other"));
    scratch_has("begin with none of length ranks share balance density trade speed layers heads");
}

/* Quotes, markup, shell and gnuplot commands, paths: in every text of a record. */
TEST(hostile_records)
{
    static const char spec[] = "x'; system('touch owned') #<b>\"`touch owned`";
    static const char group[] = "length-../<i>'`id`";
    fixture_n_points = 0;
    for (int l = 0; l < 4; l++) {
        char text[128];
        (void)snprintf(text, sizeof text, "q%dd64:none:f32:normal:s1", 256 << l);
        struct attn_point *p = fixture_add(group, spec, text, 0);
        strcpy(p->impl, "<script>");
        strcpy(p->family, "de\nnse");
        strcpy(p->message, "</table><script>alert(1)</script>");
        strcpy(p->judged.verified, "<script>");
        p->n_live = 1;
        strcpy(p->live_name[0], "<script>'");
        p->live_bytes[0] = 1;
        p->status = l == 3 ? ATTN_POINT_KILLED : ATTN_POINT_OK;
    }
    fixture_expect_page(0, WORDS("-<script>'", "-<script>alert", "-<i>", "&lt;script&gt;"));
    char *page = scratch_read(scratch_path("out/index.html")), *ours = strstr(page, "<script");
    ck_assert(ours != NULL && strstr(ours + 1, "<script") == NULL); /* the legend's alone */
    free(page);
    ck_assert(fixture_is_there("out/figures/memory-----i---id-.svg"));
    ck_assert(!fixture_is_there("out/figures/owned"));
    ck_assert(access("owned", F_OK) != 0);
}

TEST(a_wrong_point_is_told)
{
    fixture_add_curves();
    fixture_points[3].status = ATTN_POINT_WRONG;
    fixture_points[3].judged.worst = fixture_points[3].judged.output[ATTN_O] = 17;
    /* Paper has what is open: its diagnosis is. */
    fixture_expect_page(
        1, WORDS("WRONG at 1 of 4", "measured points are WRONG", "<details open>", "@media print"));
}

TEST(requests_that_cannot_be_met)
{
    static const char *const args[] = {"--from x", "--what", "--out x --plan x --from x"};
    fixture_add_curves();
    fixture_write_records("r.jsonl");
    for (size_t n = 0; n < sizeof args / sizeof *args; n++)
        scratch_expect(2, "", "report %s", args[n]);
    fixture_report(2, "absent.jsonl", "--from '%s'", scratch_path("absent.jsonl"));
    /* A file where the folder should be. */
    scratch_put("file", "x", 1);
    for (int n = 0; n < 2; n++)
        scratch_expect(3, "", "report --from '%s' --out '%s'", scratch_path("r.jsonl"),
                       scratch_path(n == 0 ? "file" : "file/out"));
    ck_assert_int_eq(setenv("PATH", "/nonexistent", 1), 0); /* no gnuplot */
    fixture_report(3, "gnuplot", "--from '%s'", scratch_path("r.jsonl"));
    ck_assert(!fixture_is_there("out/index.html"));
}

/* A report that cannot be drawn leaves no folder; a plan of stored records may name what they name,
 * and its session belongs to measuring. */
TEST(a_report_that_fails_leaves_nothing)
{
    static const char plan[] = "group length-causal\n spec = dense mine ; length = 256\n"
                               " label mine = My own\n";
    char from[1024], path[1024];
    (void)snprintf(path, sizeof path, "%s", scratch_put("mine.plan", plan, sizeof plan - 1));
    fixture_report(2, "", "--plan '%s'", path); /* mine is not known */
    fixture_report(2, "", "--from '%s'", scratch_put("bad.jsonl", "{\"schema\":2}\n", 13));
    ck_assert_int_ne(access(scratch_path("out"), F_OK), 0);
    fixture_add_curves();
    for (int l = 0; l < 2; l++) {
        const char *text = fixture_points[2 * l].text;
        strcpy(fixture_add("length-causal", "mine", text, 0)->route, "plug-in");
    }
    (void)snprintf(from, sizeof from, "%s", fixture_write_records("r.jsonl"));
    fixture_report(2, "it goes with --plan or a SPEC, without --from", "--from '%s' --budget 3",
                   from);
    fixture_report(0, "", "--from '%s' --plan '%s'", from, path);
    fixture_expect_words_of("out/figures/time-causal.gp", WORDS("\"mine\" \"My own\""));
    static const char label[] = "group length-causal\n label mine = Mine alone\n label none = x\n";
    (void)snprintf(path, sizeof path, "%s", scratch_put("label.plan", label, sizeof label - 1));
    fixture_report(0, "label names 'none', of which it has no record", "--from '%s' --plan '%s'",
                   from, path);
    fixture_expect_words_of("out/figures/time-causal.gp", WORDS("\"mine\" \"Mine alone\""));
    scratch_expect(2, "has no point", "measure --plan '%s' --out '%s'", path,
                   scratch_path("m.jsonl"));
}

/* A folder is one report's at a time.  The first gnuplot that draws waits until it is let go. */
TEST(one_report_a_folder)
{
    static const char gnuplot[] =
        "#!/bin/sh\n[ \"$2\" != --version ] || exit 0\n"
        "if mkdir ../../first 2>/dev/null; then\n"
        "    mkdir ../../first/held; while [ -e ../../first/held ]; do sleep 0.02; done; exit 1\n"
        "fi\nfor f in svg png pdf; do echo '<svg viewBox=\"0\"></svg>' >\"${2%.gp}.$f\"; done\n";
    char path[8192], from[1024];
    ck_assert_int_eq(chmod(scratch_put("gnuplot", gnuplot, sizeof gnuplot - 1), 0755), 0);
    (void)snprintf(path, sizeof path, "%s:%s", scratch_path(""), getenv("PATH"));
    ck_assert_int_eq(setenv("PATH", path, 1), 0);
    fixture_add_curves();
    (void)snprintf(from, sizeof from, "%s", fixture_write_records("r.jsonl"));
    scratch_shell(3, "another report is at work in",
                  "set -- '%s/attnlab' report --from '%s' --out '%s'; \"$@\" >/dev/null 2>&1 & "
                  "p=$!; until [ -e '%s' ] || ! kill -0 $p; do sleep 0.02; done; \"$@\"; s=$?; "
                  "kill -KILL $p; rmdir '%s'; exit $s",
                  test_build(), from, scratch_path("out"), scratch_path("first/held"),
                  scratch_path("first/held"));
    fixture_report(0, "index.html", "--from '%s'", from);
}

TEST(a_full_disk_is_told)
{
    static const char *const file[] = {"out/index.html", "out/records.csv",
                                       "out/figures/memory-causal.csv"};
    fixture_add_curves();
    fixture_expect_page(0, WORDS("</html>"));
    for (int f = 0; f < 3; f++) {
        ck_assert_int_eq(unlink(scratch_path(file[f])), 0);
        ck_assert_int_eq(symlink("/dev/full", scratch_path(file[f])), 0);
        fixture_report(3, "cannot be written", "--from '%s'", scratch_path("r.jsonl"));
        ck_assert_int_eq(unlink(scratch_path(file[f])), 0);
    }
    fixture_expect_page(0, WORDS("</html>"));
}
