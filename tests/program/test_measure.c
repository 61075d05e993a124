/* attnlab measure, as a user meets it: whatever becomes of a point is a record, and a file of
 * records can be gone on with. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixtures/curve_fixture.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/report_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(measure, .open = scratch_open, .close = scratch_close);

/* Exit status of `attnlab measure ARGS --out r.jsonl`, without its words. */
static int measure(const char *before, const char *args)
{
    return fixture_shell("exec >/dev/null 2>&1; (%s '%s/attnlab' measure %s --out '%s')", before,
                         test_build(), args, scratch_path("r.jsonl"));
}

/* The records; there must be `want`. */
static const struct attn_point *read_all(int64_t want)
{
    fixture_read_curve();
    ck_assert_int_eq(fixture_curve_n, want);
    return fixture_curve;
}

static int lines(void)
{
    int n = 0;
    char *text = scratch_read(scratch_path("r.jsonl"));
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        n++;
    free(text);
    return n;
}

#define SMALL "dense tiled-textbook ring:ranks=2 --length 32,64 --rounds 2 --repeat 2 "

TEST(good_points)
{
    ck_assert_int_eq(measure("", SMALL "--pass fwd,bwd"), 0);
    const struct attn_point *p = read_all(3 * 2 * 2 * 2);
    for (int64_t i = 0; i < fixture_curve_n; i++) {
        ck_assert_msg(p[i].status == ATTN_POINT_OK, "%s %s: %s", p[i].spec, p[i].text,
                      p[i].message);
        ck_assert(p[i].first_s > 0);
        ck_assert_int_ge(p[i].n_warm, 1);
        ck_assert(p[i].judged.worst <= 1); /* also: not NaN */
        ck_assert_int_eq(p[i].price.peak, p[i].ledger_bytes);
        ck_assert_int_gt(p[i].floor_bytes, 0);
        ck_assert_str_eq(p[i].judged.verified, p[i].round == 0 ? "all" : "same bits as round 0");
        ck_assert(p[i].ranks == 1 || p[i].price.sent > 0);
    }
}

/* Again: nothing to do.  Torn and incomplete: what is missing is measured, nothing twice. */
TEST(goes_on)
{
    ck_assert_int_eq(measure("", SMALL), 0);
    int whole = lines();
    ck_assert_int_eq(measure("", SMALL), 0);
    ck_assert_int_eq(lines(), whole);
    char path[512]; /* the last three lines go, the one before them is torn */
    snprintf(path, sizeof path, "%s", scratch_path("r.jsonl"));
    ck_assert_int_eq(fixture_shell("head -n %d '%s' | head -c -30 > '%s.new' && mv '%s.new' '%s'",
                                   whole - 3, path, path, path, path),
                     0);
    ck_assert_int_eq(measure("", SMALL), 0);
    read_all(12);
}

/* Killed at any moment, not even asked: the same command ends with the same records as an
 * undisturbed one, and no line is there twice.  Points that differ in layers or in what they save
 * alone are different points. */
TEST(killed_and_gone_on)
{
    static const char *const after_s[] = {"0.05", "0.15", "0.25", "0.35", "0.5"};
    static const char plan[] = "rounds = 2\nrepeat = 2\n"
                               "group table-a\nspec = dense ring:ranks=2\nlength = 32\n"
                               "group table-b\nspec = tiled\nlength = 32\nlayers = 2 3\n"
                               "group table-c\nspec = tiled\nlength = 32\nlayers = 4\n"
                               "save = rows inputs\n";
    char before[64], args[512];
    int status = -1, layers[5] = {0}, inputs = 0;
    snprintf(args, sizeof args, "--plan '%s'", scratch_put("killed.plan", plan, sizeof plan - 1));
    for (int turn = 0; turn < 40 && status != 0; turn++) {
        snprintf(before, sizeof before, "timeout -s KILL %s", after_s[turn % 5]);
        status = measure(turn < 30 ? before : "", args);
    }
    ck_assert_int_eq(status, 0);
    const struct attn_point *p = read_all(12);
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(p[i].status, ATTN_POINT_OK);
        layers[p[i].stack.n]++;
        inputs += p[i].stack.save == ATTN_SAVE_INPUTS;
    }
    ck_assert(layers[0] == 4 && layers[2] == 2 && layers[3] == 2 && layers[4] == 4 && inputs == 2);
    ck_assert_int_eq(fixture_shell("test $(grep -c '\"record\":\"point\"' '%s') -eq 12",
                                   scratch_path("r.jsonl")),
                     0);
}

/* The order of points, the first round included, changes no ledger figure at all, and no resident
 * one by more than two runs of one order differ. */
#define ORDERS "dense csr ring:ranks=2 --length 256,512,1024 --mask 'causal(br)' --repeat 0 "
enum { SEEDS = 2, ROUNDS = 3, PLACES = 9 };

static double of_order(const struct attn_point *const *p, double *range)
{
    double low = (double)INFINITY, high = 0, sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double bytes = (double)p[round]->resident_bytes;
        low = fmin(low, bytes);
        high = fmax(high, bytes);
        sum += bytes;
    }
    *range = high - low;
    return sum / ROUNDS;
}

/* A place that differs by more in two orders of a look; -1: none. */
static int differs(int look, char text[200])
{
    static struct attn_point kept[SEEDS][PLACES * ROUNDS];
    const struct attn_point *of[SEEDS][ROUNDS];
    double mean[PLACES][SEEDS], range, noise = 0;
    char args[256];
    for (int seed = 0; seed < SEEDS; seed++) {
        snprintf(args, sizeof args, ORDERS "--rounds %d --seed %d --shuffle 1", ROUNDS,
                 SEEDS * look + seed + 1);
        ck_assert_int_eq(measure("", args), 0);
        memcpy(kept[seed], read_all(PLACES * ROUNDS), sizeof kept[seed]);
        ck_assert_int_eq(unlink(scratch_path("r.jsonl")), 0);
    }
    ck_assert(strcmp(kept[0][0].spec, kept[1][0].spec) != 0 || /* these are other orders */
              strcmp(kept[0][0].text, kept[1][0].text) != 0);
    for (int place = 0; place < PLACES; place++)
        for (int seed = 0; seed < SEEDS; seed++) {
            int n = 0;
            for (int i = 0; i < PLACES * ROUNDS; i++)
                if (strcmp(kept[seed][i].spec, kept[0][place].spec) == 0 &&
                    strcmp(kept[seed][i].text, kept[0][place].text) == 0)
                    of[seed][n++] = &kept[seed][i];
            ck_assert_int_eq(n, ROUNDS);
            for (int round = 0; round < ROUNDS; round++)
                ck_assert_int_eq(of[seed][round]->ledger_bytes, kept[0][place].ledger_bytes);
            mean[place][seed] = of_order(of[seed], &range);
            noise = fmax(noise, range);
        }
    for (int place = 0; place < PLACES; place++)
        if (fixture_memory_is_visible(&kept[0][place]) &&
            !(fabs(mean[place][1] - mean[place][0]) <= noise)) {
            snprintf(text, 200, "%s %s: %.0f and %.0f B, where one order is the same within %.0f B",
                     kept[0][place].spec, kept[0][place].text, mean[place][0], mean[place][1],
                     noise);
            return place;
        }
    return -1;
}

/* Of few runs chance may do it once; an order that matters does it each time. */
TEST(any_order)
{
    char text[200] = "";
    int look = 0;
    while (look < 3 && differs(look, text) >= 0)
        look++;
    ck_assert_msg(look < 3, "%s", text);
}

/* A point that has no result is not tried again, and the sweep lives on.  A limit of one second of
 * CPU time is the kernel's, which ends the child. */
static const struct {
    const char *before, *args;
    int n; /* records; the last one: */
    enum attn_point_status status;
    const char *says;
} endings[] = {
    {"", "dense --length 200000 --heads 8 --rounds 1", 1, ATTN_POINT_TOO_BIG, "priced at 2.33 TiB"},
    {"", "dense --length 1500 --rounds 3 --timeout 0.01", 1, ATTN_POINT_TIMEOUT, "0.01 s"},
    {"", "tiled-textbook --length 64,60000 --rounds 2 --budget 20", 3, ATTN_POINT_DROPPED,
     "of the budget of 20 s"},
    {"", "tiled-textbook --length 64,60000 --rounds 2 --timeout 9", 3, ATTN_POINT_DROPPED,
     "the time limit is 9 s"},
    {"", "tiled-textbook --length 16384 --rounds 2 --heads 8 --budget 3 --timeout 0", 1,
     ATTN_POINT_DROPPED, "the budget of 3 s is used up"},
    {"", "'ulysses:ranks=4,sizes=strict' --length 64 --heads 2 --rounds 2", 1, ATTN_POINT_REFUSED,
     ""},
    {"ulimit -t 1;",
     "tiled-textbook --length 64,12000 --heads 4 --verify-all 0 --rounds 1 --timeout 0", 2,
     ATTN_POINT_KILLED, "signal"},
    /* what has a price is known to be too big; stacks of threads have none */
    {"ulimit -v 150000;", "dense --length 64,4096 --rounds 2", 3, ATTN_POINT_TOO_BIG,
     "priced at 128 MiB"},
    {"ulimit -v 200000;", "tiled --length 512 --heads 4 --layers 120 --rounds 1", 1,
     ATTN_POINT_TOO_BIG, "priced at 241 MiB"},
    {"ulimit -v 200000;", "ring:ranks=2,local=dense --length 16384 --rounds 1", 1,
     ATTN_POINT_TOO_BIG, "inputs and outputs 1.05 GiB"},
    {"ulimit -v 100000;", "ring:ranks=512 --length 512 --rounds 1", 1, ATTN_POINT_OUT_OF_MEMORY,
     "; priced at"},
};

TEST_EACH(no_result, COUNT(endings))
{
    if (fixture_is_asan() && strstr(endings[_i].before, "ulimit -v") != NULL)
        return;  /* the sanitizer's shadow alone is larger than the limit */
#ifdef __clang__ /* whose OpenMP ends a process that has no memory for one more thread's state */
    if (endings[_i].status == ATTN_POINT_OUT_OF_MEMORY)
        return;
#endif
    int lacks = endings[_i].status == ATTN_POINT_OUT_OF_MEMORY;
    ck_assert_int_eq(measure(endings[_i].before, endings[_i].args), lacks ? 3 : 0);
    const struct attn_point *p = read_all(endings[_i].n), *last = NULL;
    for (int64_t i = 0; i < fixture_curve_n; i++)
        if (p[i].status != ATTN_POINT_OK) {
            ck_assert_ptr_null(last);
            last = &p[i];
        }
    ck_assert_ptr_nonnull(last);
    ck_assert_msg(last->status == endings[_i].status, "%s: %s",
                  attn_point_status_name(last->status), last->message);
    ck_assert_str_ne(last->message, "");
    ck_assert_ptr_nonnull(strstr(last->message, endings[_i].says));
    ck_assert_int_eq(last->n_warm, 0);
    ck_assert(!(last->first_s > 0));
    ck_assert_int_eq(last->resident_bytes, -1);
}

/* The end of the budget stops rounds; the first one of every point comes before all others, and is
 * dropped where a busy machine lets the budget end first.  Then the same command adds the rest. */
TEST(budget_ends_rounds)
{
    static const char args[] = "dense tiled --length 32,64 --rounds 400 --repeat 0";
    char with[256];
    snprintf(with, sizeof with, "%s --budget 2", args);
    ck_assert_int_eq(measure("", with), 0);
    fixture_read_curve();
    int64_t n = fixture_curve_n;
    ck_assert(n >= 4 && n < 1600);
    for (int64_t i = 0; i < n; i++) {
        enum attn_point_status status = fixture_curve[i].status;
        ck_assert(status == ATTN_POINT_OK || (status == ATTN_POINT_DROPPED && i < 4));
        ck_assert_int_eq(fixture_curve[i].round == 0, i < 4);
    }
    ck_assert_int_eq(measure("", with), 0);
    fixture_read_curve();
    ck_assert_int_gt(fixture_curve_n, n);
}

/* The largest plan there may be: what every point waits for must not look at every other point.
 * (The previous sweep was at point 179 after two minutes.) */
TEST(many_points)
{
    char args[600];
    FILE *file = fopen(scratch_path("many.plan"), "w");
    ck_assert_ptr_nonnull(file);
    fputs("rounds = 3\nbudget = 0.01\ngroup table-a\npass = fwd bwd\n"
          "spec = dense tiled-textbook csr-textbook dense:mask=bool2d dense:mask=float4d\n"
          "length =",
          file);
    for (int length = 1001; length <= 2000; length++)
        fprintf(file, " %d", length);
    fputs("\n", file);
    fclose(file);
    snprintf(args, sizeof args, "--plan '%s'", scratch_path("many.plan"));
    ck_assert_int_eq(measure("", args), 0);
    const struct attn_point *p = read_all(10000);
    for (int64_t i = 0; i < fixture_curve_n; i++)
        ck_assert_int_eq(p[i].status, ATTN_POINT_DROPPED);
}

static const struct {
    const char *args;
    int want;
} usages[] = {
    {"nothing --length 8", 2},
    {"dense", 2},
    {"dense --length 8 --lenght 9", 2},
    {"--plan /nowhere.plan", 2},
    {"--plan experiments/plans/quick.plan --heads 3", 2},
    {"--from /nowhere.jsonl --csv -", 2},
    {"--plan experiments/plans/quick.plan --rounds 1 --rounds 2 --dry-run", 2},
    {"--plan experiments/plans/quick.plan --dry-run --budget 1", 0},
    {"--help", 0},
};

TEST(usage)
{
    for (size_t u = 0; u < sizeof usages / sizeof *usages; u++) {
        int status = measure("", usages[u].args);
        ck_assert_msg(status == usages[u].want, "%s: status %d", usages[u].args, status);
        ck_assert_int_ne(access(scratch_path("r.jsonl"), F_OK), 0); /* nothing was begun */
    }
}

/* No descriptor is left for the pipes of a child: nothing can be calibrated, so that nothing is
 * measured.  With descriptors the same command goes on, and tries again what ended as an error. */
TEST(nothing_worked)
{
    static const char spec[] = "dense --length 8,16 --rounds 1";
    ck_assert_int_eq(measure("ulimit -n 6;", spec), 3);
    read_all(0);
    for (int turn = 0; turn < 2; turn++) {
        ck_assert_int_eq(measure("", spec), 0);
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(read_all(2)[i].status, ATTN_POINT_OK);
        ck_assert_int_eq(fixture_shell("sed -i 's/\"status\":\"ok\"/\"status\":\"error\"/' '%s'",
                                       scratch_path("r.jsonl")),
                         0);
    }
}

/* A full disk is a message, not a death; a foreign file is a bad file. */
TEST(no_room)
{
    static const char args[] = "dense --length 8 --rounds 1";
    scratch_put("r.jsonl", "notes", 5);
    ck_assert_int_eq(measure("", args), 2);
    ck_assert_int_eq(unlink(scratch_path("r.jsonl")), 0);
    ck_assert_int_eq(symlink("/dev/full", scratch_path("r.jsonl")), 0);
    ck_assert_int_eq(measure("", args), 3);
}
