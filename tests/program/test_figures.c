/* Which figures a group has and what stands where in them: every word of the table of groups, the
 * frontier of a trade-off, and records of others. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/stats.h"
#include "tests/fixtures/report_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(figures, .open = scratch_open, .close = scratch_close);

/* ---- every word ------------------------------------------------------------------------------ */

/* Three points that differ in what the word varies: 1, 2 and 4 of it. */
static void add_three(enum attn_group_kind kind)
{
    static const int of[] = {1, 2, 4};
    fixture_n_points = 0;
    for (int i = 0; i < 3; i++) {
        char name[64], spec[64], text[128];
        int n = of[i];
        (void)snprintf(name, sizeof name, "%s-x", attn_group_words[kind].word);
        const char *form = kind == ATTN_GROUP_RANKS ? "ring:ranks=%d" : "dense";
        (void)snprintf(spec, sizeof spec, form, n);
        (void)snprintf(text, sizeof text, "b%dh%dq%dd%d:none:f32:normal:s1",
                       kind == ATTN_GROUP_BATCH ? n : 1, kind == ATTN_GROUP_HEADS ? n : 4,
                       kind == ATTN_GROUP_LENGTH || kind == ATTN_GROUP_SHARE ? n : 256,
                       kind == ATTN_GROUP_DIM ? n : 64);
        struct attn_point *p = fixture_add(name, spec, text, 0);
        p->ranks = kind == ATTN_GROUP_RANKS ? n : 1;
        p->density = n;
        p->peak_flops_s = 1e10;
        if (kind == ATTN_GROUP_SPEED) { /* a forward pass: 4 pairs d flops */
            p->pairs = n;
            p->floor_bytes = 4 * 64;
        }
        p->stack = (struct attn_stack){kind == ATTN_GROUP_LAYERS ? n : 0, ATTN_SAVE_ROWS, 0, 0};
        if (kind == ATTN_GROUP_BALANCE || kind == ATTN_GROUP_TRADE)
            (void)snprintf(p->spec, sizeof p->spec,
                           kind == ATTN_GROUP_TRADE ? "tiled:panels=%d" : "ring:ranks=%d", n);
        p->warm_s[0] = n;
    }
    fixture_fold(NULL);
    ck_assert_int_eq(fixture_groups.n, 1);
}

static const struct {
    const char *name, *groups;
} kinds[] = {
#define FIGURE(name, script, lines, columns, groups, ...) {name, groups},
#include "plots/figures.def"
#undef FIGURE
};

/* The first figure of every word has a curve at 1, 2 and 4, under a name that no other one has. */
TEST(every_word_has_its_x)
{
    char names[4096] = "";
    for (int kind = 0; kind < ATTN_GROUP_OTHER; kind++) {
        const struct attn_group_word *word = &attn_group_words[kind];
        const char *first = NULL;
        if (kind == ATTN_GROUP_BALANCE) /* its x are ranks: test report, work_is_drawn */
            continue;
        add_three((enum attn_group_kind)kind);
        for (size_t k = 0; k < COUNT(kinds); k++) {
            if (!attn_cli_listed(kinds[k].groups, " ", word->word))
                continue;
            const struct attn_figure *figure = fixture_draw(kinds[k].name, 0);
            if (strcmp(kinds[k].name, "rank-time") == 0 ||    /* there are no simulated ranks, */
                strcmp(kinds[k].name, "process-time") == 0 || /* no processes, */
                strcmp(kinds[k].name, "live") == 0)           /* and no live sets */
                continue;
            ck_assert_msg(figure != NULL, "%s: no %s", word->word, kinds[k].name);
            ck_assert_ptr_null(strstr(names, figure->name));
            strcat(strcat(names, figure->name), " ");
            first = first != NULL ? first : kinds[k].name;
        }
        const struct attn_figure *figure = fixture_draw(first, 0);
        ck_assert_msg(figure->omitted[0] == '\0', "%s: %s", word->word, figure->omitted);
        ck_assert_str_eq(figure->x_name, word->x_name);
        ck_assert_int_eq(figure->n_curves, 1);
        for (int64_t i = 0; i < figure->n; i++)
            ck_assert_msg(figure->point[i].x == (double)(1 << i % 3), "%s: %g", word->word,
                          figure->point[i].x);
    }
    ck_assert_ptr_nonnull(strstr(names, "memory-x "));
    ck_assert_ptr_nonnull(strstr(names, "time-heads-x "));
}

/* A setting that varies beside the x makes another curve, and 16 comes after 2. */
TEST(curves_are_of_one_thing)
{
    fixture_n_points = 0;
    for (int h = 16; h >= 1; h /= 4)
        for (int d = 32; d <= 64; d *= 2) {
            char text[128];
            (void)snprintf(text, sizeof text, "h%dq256d%d:none:%s:normal:s1", h, d,
                           h == 1 && d == 32 ? "bf16" : "f32");
            fixture_add("heads", "dense", text, 0);
        }
    fixture_fold(NULL);
    const struct attn_figure *figure = fixture_draw("memory", 0);
    static const char *const want[] = {"dense, d=32, f32", "dense, d=64, f32", "dense, d=32, bf16"};
    ck_assert_int_eq(figure->n_curves, 3);
    for (int c = 0; c < 3; c++)
        ck_assert_int_ge(attn_figure_find(figure, want[c]), 0);
    for (int64_t i = 1; i < figure->n; i++)
        ck_assert(figure->point[i].curve != figure->point[i - 1].curve ||
                  figure->point[i].x > figure->point[i - 1].x);
}

/* docs/adding.md says "one script and one row".  The Makefile builds the program with exactly them;
 * it draws the figure, and nothing of C knew it. */
TEST(a_figure_is_a_script_and_a_row)
{
    fixture_add_curves();
    for (int i = 0; i < fixture_n_points; i++)
        fixture_points[i].price.flops = 1e6;
    fixture_write_records("r.jsonl");
    scratch_shell(0, "", "cd '%s' && '%s/figure/attnlab' report --from r.jsonl --out out",
                  scratch_path(""), scratch_full_path(test_build()));
    ck_assert(fixture_is_there("out/figures/rate-causal.svg"));
    fixture_expect_words_of("out/figures/rate-causal.gp",
                            WORDS("Flops a second, causal mask", "\"dense\" \"dense\" #D55E00"));
    fixture_expect_words_of("out/index.html",
                            WORDS("Flops by the price over the median time of a call."));
    fixture_expect_words_of("out/figures/memory-causal.svg", WORDS("</svg>"));
}

/* ---- memory against time --------------------------------------------------------------------- */

#define NONE ((double)NAN)
static const struct {
    double x[5], y[5];
    int best[5];
} frontiers[] = {
    {{1, 2, 3, 4, 5}, {5, 4, 3, 2, 1}, {1, 1, 1, 1, 1}},
    {{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 0, 0, 0, 0}},
    {{3, 1, 2, 2, 3}, {1, 3, 2, 2, 2}, {1, 1, 1, 1, 0}}, /* equal ones beat each other not */
    {{2, 2, 1, 1, 9}, {3, 4, 9, 8, 3}, {1, 0, 0, 1, 0}}, /* equal in one, worse in the other */
    {{NONE, 1, 2, 1, 3}, {0, 2, NONE, NONE, 1}, {0, 1, 0, 0, 1}},
};

TEST_EACH(frontier, COUNT(frontiers))
{
    int best[5];
    attn_stats_frontier(frontiers[_i].x, frontiers[_i].y, 5, best);
    for (int i = 0; i < 5; i++)
        ck_assert_msg(best[i] == frontiers[_i].best[i], "point %d", i);
}

static int64_t of_option(const struct attn_figure *figure, const char *option)
{
    for (int64_t i = 0; i < figure->n; i++)
        if (strcmp(figure->point[i].note, option) == 0)
            return i;
    ck_abort_msg("no point %s", option);
}

/* A curve is an implementation, a point an option; first calls, simulated ranks and others have no
 * part in the frontier. */
TEST(a_trade_off)
{
    static const struct {
        const char *spec, *option;
        double s, bytes;
        int best;
    } point[] = {{"tiled", "tiled", 1, 900, 1},
                 {"chunked:q=64,k=64", "q=64 k=64", 2, 400, 1},
                 {"chunked:q=16,k=64", "q=16 k=64", 3, 500, 0},
                 {"csr:passes=3", "passes=3", 4, 300, 1},
                 {"csr", "csr", 0.5, 1, 0},   /* a first call */
                 {"mine", "mine", 0.1, 1, 0}, /* a plug-in */
                 {"ring:ranks=2", "ranks=2", 0.1, 1, -1} /* simulated */};
    fixture_n_points = 0;
    for (size_t i = 0; i < COUNT(point); i++) {
        struct attn_point *p =
            fixture_add("trade-x", point[i].spec, "q256d64:none:f32:normal:s1", 0);
        p->warm_s[0] = p->first_s = point[i].s;
        p->n_warm = strcmp(point[i].spec, "csr") != 0;
        p->ledger_bytes = p->price.peak = p->resident_bytes = (int64_t)point[i].bytes;
        p->ranks = point[i].best < 0 ? 2 : 1;
        strcpy(p->route, strcmp(point[i].spec, "mine") == 0 ? "plug-in" : "");
    }
    fixture_fold(NULL);
    const struct attn_figure *figure = fixture_draw("trade", 0);
    ck_assert_str_eq(figure->omitted, "");
    ck_assert_int_eq(figure->n, 6);
    ck_assert_int_eq(figure->n_curves, 4); /* tiled, chunked, csr, mine */
    for (size_t i = 0; i < COUNT(point); i++) {
        if (point[i].best < 0)
            continue;
        int64_t line = of_option(figure, point[i].option);
        const char *column = strcmp(point[i].spec, "csr") == 0 ? "first_bytes" : "warm_bytes";
        ck_assert(figure->point[line].x == point[i].s);
        ck_assert(fixture_number(figure, line, column) == point[i].bytes);
        ck_assert_msg(isnan(fixture_number(figure, line, "frontier_bytes")) != point[i].best, "%s",
                      point[i].spec);
    }
    ck_assert_ptr_nonnull(strstr(figure->finding, "3 of 6 points"));
}
