/* attnlab measure, as a user meets it: whatever becomes of a point is a record, and a file of
 * records can be gone on with. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "experiments/measure/record.h"
#include "tests/suites.h"

static char folder[64], path[128];

static void make_folder(void)
{
    strcpy(folder, "/tmp/attn-measure-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/records.jsonl", folder);
}

static void drop_folder(void)
{
    unlink(path);
    rmdir(folder);
}

/* Exit status of `attnlab measure ARGS --out PATH`, without its words. */
static int measure(const char *before, const char *args)
{
    char command[2048];
    snprintf(command, sizeof command, "(%s '%s/attnlab' measure %s --out '%s') >/dev/null 2>&1",
             before, test_build(), args, path);
    int status = system(command);
    ck_assert_msg(WIFEXITED(status), "%s", command);
    return WEXITSTATUS(status);
}

static struct attn_point *read_all(int64_t *n)
{
    struct attn_point *points;
    struct attn_error err = {0};
    ck_assert_msg(attn_record_read(path, &points, n, NULL, &err) == ATTN_OK, "%s", err.text);
    return points;
}

static int lines(void)
{
    int n = 0, c;
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while ((c = getc(file)) != EOF)
        n += c == '\n';
    fclose(file);
    return n;
}

#define SMALL "--spec 'dense;tiled-textbook;ring:ranks=2' --length 32,64 --rounds 2 --repeat 2 "

START_TEST(good_points)
{
    int64_t n;
    ck_assert_int_eq(measure("", SMALL "--pass fwd,bwd"), 0);
    struct attn_point *p = read_all(&n);
    ck_assert_int_eq(n, 3 * 2 * 2 * 2);
    for (int64_t i = 0; i < n; i++) {
        ck_assert_msg(p[i].status == ATTN_POINT_OK, "%s %s: %s", p[i].spec, p[i].text,
                      p[i].message);
        ck_assert(p[i].first_s > 0);
        ck_assert_int_ge(p[i].n_warm, 1);
        ck_assert(p[i].worst <= 1); /* also: not NaN */
        ck_assert_int_eq(p[i].priced_bytes, p[i].ledger_bytes);
        ck_assert_int_gt(p[i].floor_bytes, 0);
        ck_assert_str_eq(p[i].verified, p[i].round == 0 ? "all" : "same bits as round 0");
        ck_assert(p[i].ranks == 1 || p[i].bytes_sent > 0);
    }
    free(p);
}
END_TEST

/* Again: nothing to do.  Torn and incomplete: what is missing is measured, nothing twice. */
START_TEST(goes_on)
{
    int64_t n;
    ck_assert_int_eq(measure("", SMALL), 0);
    int whole = lines();
    ck_assert_int_eq(measure("", SMALL), 0);
    ck_assert_int_eq(lines(), whole);
    char command[1024]; /* the last three lines go, the one before them is torn */
    snprintf(command, sizeof command,
             "head -n %d '%s' | head -c -30 > '%s.new' && mv '%s.new' '%s'", whole - 3, path, path,
             path, path);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(measure("", SMALL), 0);
    free(read_all(&n));
    ck_assert_int_eq(n, 12);
}
END_TEST

START_TEST(too_big)
{
    int64_t n;
    ck_assert_int_eq(measure("", "--spec dense --length 200000 --heads 8 --rounds 1"), 0);
    struct attn_point *p = read_all(&n);
    ck_assert_int_eq(n, 1);
    ck_assert_int_eq(p->status, ATTN_POINT_TOO_BIG);
    ck_assert(p->priced_bytes > INT64_C(1280000000000)); /* the scores alone are 1.28 TB */
    ck_assert_ptr_nonnull(strstr(p->message, "TiB"));
    ck_assert_int_eq(p->n_warm, 0);
    ck_assert_int_eq(p->resident_bytes, -1);
    free(p);
}
END_TEST

START_TEST(over_budget)
{
    int64_t n;
    const char *args = "--spec tiled-textbook --length 64,60000 --rounds 2 --budget 20";
    ck_assert_int_eq(measure("", args), 0);
    struct attn_point *p = read_all(&n);
    ck_assert_int_eq(n, 3); /* two rounds of one, a note about the other */
    for (int64_t i = 0; i < n; i++) {
        int large = p[i].c.n_query == 60000;
        ck_assert_int_eq(p[i].status, large ? ATTN_POINT_DROPPED : ATTN_POINT_OK);
        ck_assert(!large || strstr(p[i].message, "of the budget of 20 s") != NULL);
    }
    free(p);
}
END_TEST

START_TEST(out_of_time)
{
    int64_t n;
    ck_assert_int_eq(measure("", "--spec dense --length 1500 --rounds 3 --timeout 0.01"), 0);
    struct attn_point *p = read_all(&n);
    ck_assert_int_eq(n, 1); /* not tried again */
    ck_assert_int_eq(p->status, ATTN_POINT_TIMEOUT);
    ck_assert_int_eq(p->n_warm, 0);
    free(p);
}
END_TEST

/* The kernel ends the child, by its limit of one second of CPU time; the sweep lives on. */
START_TEST(killed)
{
    int64_t n;
    ck_assert_int_eq(measure("ulimit -t 1;", "--spec tiled-textbook --length 64,12000 --heads 4 "
                                             "--verify-all 0 --rounds 1"),
                     0);
    struct attn_point *p = read_all(&n);
    ck_assert_int_eq(n, 2);
    ck_assert_int_eq(p[0].status, ATTN_POINT_OK);
    ck_assert_msg(p[1].status == ATTN_POINT_KILLED, "%s", p[1].message);
    ck_assert_ptr_nonnull(strstr(p[1].message, "signal"));
    free(p);
}
END_TEST

START_TEST(refused)
{
    int64_t n;
    ck_assert_int_eq(measure("", "--spec 'ulysses:ranks=4' --length 64 --heads 2 --rounds 2"), 0);
    struct attn_point *p = read_all(&n);
    ck_assert_int_eq(n, 1);
    ck_assert_int_eq(p->status, ATTN_POINT_REFUSED);
    ck_assert_str_ne(p->message, "");
    free(p);
}
END_TEST

/* The largest plan there may be: what every point waits for must not look at every other point.
 * (The previous sweep was at point 179 after two minutes.) */
START_TEST(many_points)
{
    char command[256], plan[160];
    int64_t n;
    snprintf(plan, sizeof plan, "%s/many.plan", folder);
    FILE *file = fopen(plan, "w");
    ck_assert_ptr_nonnull(file);
    fputs("rounds = 3\nbudget = 0.01\ngroup a\npass = fwd bwd\n"
          "spec = dense tiled-textbook csr-textbook dense:mask=bool2d dense:mask=float4d\n"
          "length =",
          file);
    for (int length = 1001; length <= 2000; length++)
        fprintf(file, " %d", length);
    fputs("\n", file);
    fclose(file);
    snprintf(command, sizeof command, "--plan '%s'", plan);
    int status = measure("", command);
    unlink(plan);
    ck_assert_int_eq(status, 0);
    struct attn_point *p = read_all(&n);
    ck_assert_int_eq(n, 10000);
    for (int64_t i = 0; i < n; i++)
        ck_assert_int_eq(p[i].status, ATTN_POINT_DROPPED);
    free(p);
}
END_TEST

static const struct {
    const char *args;
    int want;
} usages[] = {
    {"--spec nothing --length 8", 2},
    {"--spec dense", 2},
    {"--spec dense --length 8 --lenght 9", 2},
    {"--plan /nowhere.plan", 2},
    {"--plan experiments/plans/quick.plan --heads 3", 2},
    {"--from /nowhere.jsonl --csv -", 2},
    {"--plan experiments/plans/quick.plan --rounds 1 --rounds 2 --dry-run", 2},
    {"--plan experiments/plans/quick.plan --dry-run --budget 1", 0},
    {"--help", 0},
};

START_TEST(usage)
{
    ck_assert_int_eq(measure("", usages[_i].args), usages[_i].want);
    ck_assert_int_ne(access(path, F_OK), 0); /* nothing was begun */
}
END_TEST

START_TEST(full_disk)
{
    strcpy(path, "/dev/full");
    ck_assert_int_eq(measure("", "--spec dense --length 8 --rounds 1"), 3);
    strcpy(path, "");
}
END_TEST

/* No descriptor is left for the pipes of a child: nothing can be calibrated, so that nothing is
 * measured.  With descriptors the same command goes on, and tries again what ended as an error. */
START_TEST(nothing_worked)
{
    static const char spec[] = "--spec dense --length 8,16 --rounds 1";
    char command[512];
    int64_t n;
    ck_assert_int_eq(measure("ulimit -n 6;", spec), 3);
    free(read_all(&n));
    ck_assert_int_eq(n, 0);
    for (int turn = 0; turn < 2; turn++) {
        ck_assert_int_eq(measure("", spec), 0);
        struct attn_point *p = read_all(&n);
        ck_assert_int_eq(n, 2);
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(p[i].status, ATTN_POINT_OK);
        free(p);
        snprintf(command, sizeof command, "sed -i 's/\"status\":\"ok\"/\"status\":\"error\"/' %s",
                 path);
        ck_assert_int_eq(system(command), 0);
    }
}
END_TEST

/* A limit on the size of a file is a message, not a death; a foreign file is a bad file. */
START_TEST(no_room)
{
    ck_assert_int_eq(measure("ulimit -f 0;", "--spec dense --length 8 --rounds 1"), 3);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("notes", file);
    fclose(file);
    ck_assert_int_eq(measure("", "--spec dense --length 8 --rounds 1"), 2);
}
END_TEST

Suite *suite_measure(void)
{
    Suite *suite = suite_create("measure");
    TCase *tcase = tcase_create("measure");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, make_folder, drop_folder);
    tcase_add_test(tcase, good_points);
    tcase_add_test(tcase, goes_on);
    tcase_add_test(tcase, too_big);
    tcase_add_test(tcase, over_budget);
    tcase_add_test(tcase, out_of_time);
    tcase_add_test(tcase, killed);
    tcase_add_test(tcase, refused);
    tcase_add_test(tcase, many_points);
    tcase_add_loop_test(tcase, usage, 0, sizeof usages / sizeof usages[0]);
    tcase_add_test(tcase, full_disk);
    tcase_add_test(tcase, nothing_worked);
    tcase_add_test(tcase, no_room);
    suite_add_tcase(suite, tcase);
    return suite;
}
