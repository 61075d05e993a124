/* attnlab measure --exec, and how reports draw what is not ours. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/curve_fixture.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/report_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(command_curves, .open = scratch_open, .close = scratch_close);

/* ---- commands -------------------------------------------------------------------------------- */

TEST(commands_and_their_clocks)
{
    char args[2048];
    fixture_build_command("report", "REPORT");
    fixture_build_command("sleep", "SLEEP");
    snprintf(args, sizeof args,
             "dense --exec '%s' --claims '%s' --exec 'sleep=%s' --claims '%s' "
             "--length 64,256 --rounds 2",
             scratch_path("report"), scratch_path("claims.json"), scratch_path("sleep"),
             scratch_path("claims.json"));
    fixture_measure(0, "%s", args);
    ck_assert_int_eq(fixture_curve_n, 12);
    for (int round = 0; round < 2; round++) {
        const struct attn_point *p =
            fixture_curve_point("dense-in-C", 256, round); /* its name in claims */
        ck_assert_ptr_nonnull(p);
        fixture_is_external(p, "command", "reported");
        p = fixture_curve_point("sleep", 256, round);
        ck_assert_ptr_nonnull(p);
        fixture_is_external(p, "command", "command");
        ck_assert(p->first_s > 0.5 && p->first_s < 60); /* the tiny case does not sleep */
        ck_assert_int_eq(p->n_warm, 0);                 /* one whole command is one first call */
    }
    fixture_measure(0, "%s", args);
    scratch_has("12 records were there, 0 added");
    scratch_put("claims.json", "{\"name\": \"dense in C\", \"claims\": [\"f32\" ]}", 42);
    fixture_measure(0, "%s", args);
    scratch_has("4 records were there, 8 added");
}

TEST(commands_that_misbehave)
{
    static const char *const does[] = {"WRONG", "CRASH", "FAIL", "BOAST", "GARBAGE", "MISSING"};
    char flags[1500] = "";
    for (size_t d = 0; d < sizeof does / sizeof *does; d++) {
        fixture_build_command(does[d], does[d]);
        snprintf(flags + strlen(flags), sizeof flags - strlen(flags),
                 " --exec 'x%zu=%s' --claims '%s'", d, scratch_path(does[d]),
                 scratch_path("claims.json"));
    }
    fixture_measure(1, "dense %s --length 32,64 --rounds 1", flags);
    fixture_expect("dense", 64, ATTN_POINT_OK);
    fixture_expect("x0", 32, ATTN_POINT_OK);
    fixture_expect("x0", 64, ATTN_POINT_WRONG);
    fixture_expect_words("x1", 64, ATTN_POINT_KILLED, "the command died (Segmentation fault)");
    fixture_expect_words("x2", 64, ATTN_POINT_ERROR,
                         "ended with status 3; it said: no more of this");
    fixture_expect_words("x3", 64, ATTN_POINT_ERROR, "reports calls of 1000 s");
    fixture_expect_words("x4", 64, ATTN_POINT_ERROR, "something else than positive numbers");
    fixture_expect_words("x5", 64, ATTN_POINT_WRONG, "lse");
}

/* A dead process that is not reaped stays as a zombie. */
static int is_alive(int pid)
{
    return fixture_shell("grep -q '^State:[[:space:]]*[^ZX]' /proc/%d/status 2>/dev/null", pid) ==
           0;
}

/* A command that hangs is killed with all its children, or in a session of its own, and its files
 * are removed. */
TEST_EACH(a_hanging_command_dies, 3)
{
    int pid = 0;
    fixture_build_command("hang", _i == 1 ? "CHILD" : "HANG");
    FILE *file = fopen(scratch_path("wrapped"), "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "#!/bin/sh\n%s'%s' \"$@\"; exit $?\n", _i == 2 ? "setsid -w " : "",
            scratch_path("hang"));
    fclose(file);
    fixture_shell("chmod +x '%s'; mkdir '%s'", scratch_path("wrapped"), scratch_path("tmp"));
    int status = fixture_shell(
        "export PID_FILE='%s' TMPDIR='%s'; '%s/attnlab' measure --exec '%s' "
        "--claims '%s' --length 64 --rounds 1 --timeout 5 --out '%s' >'%s' 2>&1",
        scratch_path("pid"), scratch_path("tmp"), test_build(), scratch_path("wrapped"),
        scratch_path("claims.json"), scratch_path("r.jsonl"), scratch_path("said"));
    ck_assert_int_eq(status, 0);
    fixture_read_curve();
    fixture_expect_words("dense-in-C", 64, ATTN_POINT_TIMEOUT, "time limit of 5 s");
    file = fopen(scratch_path("pid"), "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d", &pid), 1);
    fclose(file);
    for (int wait = 0; wait < 1000 && is_alive(pid); wait++)
        fixture_shell("sleep 0.02");
    ck_assert_msg(!is_alive(pid), "process %d is still there", pid);
    ck_assert_int_eq(fixture_shell("ls '%s' | grep -q .", scratch_path("tmp")), 1);
}

TEST(extra_memory_of_a_command)
{
    fixture_build_command("plain", "NOTHING");
    fixture_build_command("extra", "EXTRA");
    fixture_measure(0,
                    "dense --exec 'plain=%s' --claims '%s' --exec 'extra=%s' --claims '%s' "
                    "--length 2048 --rounds 1 --repeat 1 --verify-all 0",
                    scratch_path("plain"), scratch_path("claims.json"), scratch_path("extra"),
                    scratch_path("claims.json"));
    const struct attn_point *plain = fixture_expect("plain", 2048, ATTN_POINT_OK);
    const struct attn_point *extra = fixture_expect("extra", 2048, ATTN_POINT_OK);
    double ledger = (double)fixture_expect("dense", 2048, ATTN_POINT_OK)->ledger_bytes;
    if (!fixture_memory_is_visible(plain))
        return;
    ck_assert_int_eq(plain->resident_bytes,
                     plain->hwm_bytes - plain->baseline_bytes - plain->floor_bytes);
    fixture_near_bytes("plain", (double)plain->resident_bytes, ledger, 0.75 * FIXTURE_MIB);
    fixture_near_bytes("extra", (double)(extra->resident_bytes - plain->resident_bytes),
                       64 * FIXTURE_MIB, 0.75 * FIXTURE_MIB);
}

TEST(numpy_has_a_curve)
{
    if (!fixture_python("numpy"))
        return;
    fixture_measure(0, "--exec '/usr/bin/python3 docs/examples/numpy_attention.py' --claims "
                       "docs/examples/numpy_attention.json --length 128,512 --pass fwd,bwd "
                       "--mask 'causal(br)' --heads 2 --kv-heads 1 --rounds 1 --repeat 3 "
                       "--enough 100");
    ck_assert_int_eq(fixture_curve_n, 4);
    for (int64_t i = 0; i < fixture_curve_n; i++) {
        const struct attn_point *p = &fixture_curve[i];
        ck_assert_msg(p->status == ATTN_POINT_OK, "%s", p->message);
        fixture_is_external(p, "command", "reported");
        ck_assert_int_eq(p->n_warm, 3);
        if (p->c.n_query == 512 && fixture_memory_is_visible(p)) /* scores, twice */
            ck_assert_int_gt(p->resident_bytes, 2 * 2 * 4 * 512 * 512);
    }
}

/* ---- figures and pages ----------------------------------------------------------------------- */

static void add_externals(void)
{
    fixture_add_curves();
    int n = fixture_n_points;
    for (int i = 0; i < n; i++) {
        if (strcmp(fixture_points[i].spec, "dense") != 0)
            continue;
        struct attn_point *p = fixture_add("length-causal", "theirs", fixture_points[i].text, 0);
        attn_point_not_ours(p);
        p->resident_bytes = 8 * p->c.n_query * p->c.n_query;
        strcpy(p->route, "command");
        strcpy(p->source, "python3 <theirs>.py");
        strcpy(p->source_digest, "0123456789abcdef");
        strcpy(p->time_source, "reported");
        strcpy(p->session, "20260101T000000Z-1");
    }
}

TEST(figures_draw_what_is_known)
{
    add_externals();
    fixture_fold(NULL);
    const struct attn_figure *figure = fixture_draw("memory", 0);
    int n_theirs = 0;
    ck_assert_str_eq(figure->omitted, "");
    ck_assert_int_eq(figure->n_panels, 1); /* there is no backward row, so no such panel */
    ck_assert_int_eq(figure->n_curves, 3);
    ck_assert_str_eq(figure->curve[0].label, "dense"); /* in the order of the registry */
    ck_assert_ptr_nonnull(strstr(figure->title, "causal mask"));
    ck_assert_str_eq(figure->curve[2].label, "theirs (resident)");
    for (int64_t s = 0; s < figure->n; s++) {
        const struct attn_figure_point *p = &figure->point[s];
        int theirs = p->curve == 2;
        ck_assert_int_eq(isnan(fixture_number(figure, s, "priced_bytes")), theirs);
        ck_assert_int_eq(isnan(fixture_number(figure, s, "ledger_bytes")), theirs);
        ck_assert_int_eq(isnan(fixture_number(figure, s, "only_resident_bytes")), !theirs);
        ck_assert(!theirs || 8 * p->x * p->x >= FIXTURE_MIB);
        ck_assert_double_eq_tol(fixture_number(figure, s, "bytes_exponent"), p->curve == 1 ? 1 : 2,
                                1e-9);
        n_theirs += theirs;
    }
    ck_assert_int_ge(n_theirs, 3);
    figure = fixture_draw("time", 0);
    ck_assert_str_eq(figure->curve[2].label, "theirs (as it reports)");
}

/* Records of another program of the same name (a command, or a build of ours) are older, and do not
 * count; nor do times that were taken in another way. */
TEST_EACH(rounds_of_one_program, 2)
{
    fixture_n_points = 0;
    for (int round = 0; round < 3; round++) {
        struct attn_point *p =
            fixture_add("length-x", "theirs", "q256d64:none:f32:normal:s1", round);
        strcpy(p->route, "command");
        strcpy(p->time_source, round == 2 ? "command" : "reported");
        strcpy(_i == 0 ? p->source_digest : p->build, round == 0 ? "a" : "b");
        strcpy(p->session, round == 0 ? "20260101T000000Z-1" : "20260102T000000Z-1");
        p->warm_s[0] = round + 1;
        p->resident_bytes = 100 * (round + 1);
        p->price.peak = round == 0 ? 9000 : 1000;
    }
    fixture_fold(NULL);
    ck_assert_int_eq(fixture_summary.n, 1);
    ck_assert_int_eq(fixture_summary.row[0].rounds, 2);
    ck_assert_int_eq(fixture_summary.row[0].time.n, 1);
    ck_assert_double_eq(fixture_summary.row[0].time.median, 2);
    ck_assert_int_eq(fixture_summary.row[0].peak, 250);
    ck_assert_int_eq(fixture_summary.row[0].priced, 1000);
}

TEST(the_page_says_so)
{
    add_externals();
    fixture_expect_page(0, WORDS(">External implementations<", "python3 &lt;theirs&gt;.py",
                                 "0123456789abcdef", "But there is no price and"));
    fixture_report(2, "--plan FILE is missing", "--plugin x.so");
}
