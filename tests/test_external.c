/* Plug-ins: those that behave, misbehave, and declare what they do not do. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/relations/relations.h"
#include "tests/suites.h"

static const char naive[] = "docs/examples/plugin_naive.c";

/* The naive example, misbehaving. */
static const char *build_bad(const char *how)
{
    char flags[200];
    snprintf(flags, sizeof flags,
             "-DBAD=%s -Dattn_plugin_get=naive_get -include docs/examples/plugin_naive.c", how);
    return fixture_build("tests/external/plugin_bad.c", flags);
}

/* The library's own dense behind the plug-in interface; the archive is linked into it. */
static const char *build_full(const char *flags)
{
    char source[1024];
    int asan = strstr(test_build(), "asan") != NULL;
    snprintf(source, sizeof source,
             "tests/external/plugin_full.c %s/libattn.a -Wl,-Bsymbolic -pthread%s", test_build(),
             asan ? " -fsanitize=address,undefined" : "");
    return fixture_build(source, flags);
}

/* ---- plug-ins that are right ----------------------------------------------------------------- */

START_TEST(naive_passes)
{
    char output[65536];
    const char *path = fixture_build(naive, "");
    int status = scratch_attnlab(output, sizeof output, "check --plugin '%s'", path);
    ck_assert_msg(status == 0, "exit status %d:\n%s", status, output);
    ck_assert_msg(strstr(output, "claims f32 gqa cross dv scale dense") != NULL, "%s", output);
    ck_assert_msg(strstr(output, " 0 fail, ") != NULL, "%s", output);
    ck_assert_int_ge(fixture_count(output, "pass"), 40);
    ck_assert_int_ge(fixture_count(output, "refused"), 100);
    ck_assert_msg(strstr(output, "VmHWM") != NULL, "%s", output);
}
END_TEST

/* Every convention that can be declared, followed as declared, several of them in one plug-in where
 * they do not meet: nothing may fail, and what is claimed must be judged. */
static const struct {
    const char *flags;
    int passes; /* at least */
} honest[] = {
    {"", 20},
    {"-DSAYS_LSE=2 '-DCLAIMS=(ATTN_PLUGIN_F32|ATTN_PLUGIN_BACKWARD|ATTN_PLUGIN_CROSS|"
     "ATTN_PLUGIN_DENSE)'",
     8},
    {"-DSAYS_EMPTY=1 -DSAYS_LSE=1", 20},
    {"-DSAYS_WINDOW=1 -DSAYS_BYTE=1 -DSAYS_CAUSAL=1 -DDOES_CAUSAL=1", 20},
    {"-DSAYS_LAYOUT=1 -DSTRIDES=0 -DSAYS_CAUSAL=2 -DDOES_CAUSAL=2", 20},
};

START_TEST(declared_conventions_pass)
{
    char output[65536];
    const char *path = build_full(honest[_i].flags);
    int status =
        scratch_attnlab(output, sizeof output, "check --plugin '%s'%s", path, fixture_some_cases());
    ck_assert_msg(status == 0, "%s: exit status %d:\n%s", honest[_i].flags, status, output);
    ck_assert_int_ge(fixture_count(output, "pass"), honest[_i].passes);
}
END_TEST

/* Causal code that knows no window is asked for none, and by numbers: with the alignment mistaken
 * it fails, although it claims bytes too.  What is declined is refused and counted. */
START_TEST(claims_are_met_and_no_more)
{
    static const struct {
        const char *flags, *args, *says;
        int status;
    } asked[] = {
        {"'-DCLAIMS=(ATTN_PLUGIN_F32|ATTN_PLUGIN_CROSS|ATTN_PLUGIN_CAUSAL|ATTN_PLUGIN_DENSE)' "
         "-DDOES_CAUSAL=1",
         "--case mask-causal-wide --case bias-inf --case length-64-192", "fits causal(tl)", 1},
        {"'-DCLAIMS=(ATTN_PLUGIN_F32|ATTN_PLUGIN_CROSS|ATTN_PLUGIN_CAUSAL)'",
         "--case alone-f32-causal --case alone-f32-band --case alone-f32-dense",
         "1 pass, 0 fail, 2 refused", 0},
        {"-DDECLINES=ATTN_PLUGIN_NAN_BIAS", "--case bias-nan --case alone-f32-bias",
         "by what was declined: nan-bias 1 (1 alone)", 0},
        {"'-DDECLINES=(ATTN_PLUGIN_NAN_Q|ATTN_PLUGIN_NAN_DO)'",
         "--case empty-rows-first --case bias-nan", "nan-q 1 (0 alone), nan-do 1 (0 alone)", 0},
        {"-DDECLINES=8", "--case alone-f32", "it declines 0x8", 2},
    };
    char output[65536];
    const char *path = build_full(asked[_i].flags);
    int status =
        scratch_attnlab(output, sizeof output, "check --plugin '%s' %s", path, asked[_i].args);
    ck_assert_msg(status == asked[_i].status, "%s: exit status %d:\n%s", asked[_i].flags, status,
                  output);
    ck_assert_msg(strstr(output, asked[_i].says) != NULL, "%s does not say '%s':\n%s",
                  asked[_i].flags, asked[_i].says, output);
}
END_TEST

/* ---- plug-ins whose declaration is wrong ----------------------------------------------------- */

static const struct {
    const char *flags, *names;
} wrong[] = {
    {"-DDOES_LSE=1", "fits if LSE is base 2"},
    {"-DSAYS_LSE=1 -DDOES_LSE=0", "fits if LSE is converted from base 2 once too often"},
    {"-DSAYS_EMPTY=1 -DDOES_EMPTY=0", "fits if LSE is +inf for an empty row"},
    {"-DSAYS_BYTE=1 -DDOES_BYTE=0", "fits mask inverted"},
    {"-DSAYS_LAYOUT=1 -DDOES_LAYOUT=0 -DSTRIDES=0", "fits layout B"},
    {"-DDOES_EMPTY=1", "fits if LSE is +inf for an empty row"},
    {"-DDOES_LAYOUT=1 -DSTRIDES=0", "fits layout BLHD"},
    {"-DDOES_BYTE=1", "fits mask inverted"},
    {"-DDOES_CAUSAL=1", "fits causal(tl)"},
    {"-DDOES_CAUSAL=2", "fits causal(br)"},
    {"-DSAYS_CAUSAL=1 -DDOES_CAUSAL=2", "fits causal(br)"},
    {"'-DSCALE(x)=1'", "fits scale missing"},
};

/* Most failing cases must carry the right name. */
START_TEST(wrong_conventions_are_named)
{
    char output[262144];
    int named = 0, diagnosed = 0;
    const char *path = build_full(wrong[_i].flags);
    int status =
        scratch_attnlab(output, sizeof output, "check --plugin '%s'%s", path, fixture_some_cases());
    ck_assert_msg(status == 1, "%s: exit status %d:\n%s", wrong[_i].flags, status, output);
    const char *vote = strstr(output, " diagnosed failures: ");
    ck_assert_msg(vote != NULL && strstr(vote, wrong[_i].names) != NULL,
                  "%s is not named '%s':\n%s", wrong[_i].flags, wrong[_i].names, output);
    while (vote > output && vote[-1] != '\n')
        vote--;
    ck_assert_int_eq(sscanf(vote, "  likely cause, by %d of %d", &named, &diagnosed), 2);
    ck_assert_msg(5 * named >= 3 * diagnosed, "only %d of %d", named, diagnosed);
}
END_TEST

/* Slips of textbook code: in a case, what it looks like; in the whole battery (""), what most
 * failures do.  What no mistake explains is given no name. */
static const struct {
    const char *slip, *of, *names;
} slips[] = {
    {"NO_MAX", "", "diagnosed failures: fits exp(s) without the maximum"},
    {"NO_MAX_ZERO", "offset-m120",
     "fits exp(s) without the maximum: it leaves the range of exp (a"},
    {"GROUP_MEAN", "gqa-6-2-sum", "fits dK, dV averaged over the 3 heads of a group, not summed"},
    {"GROUP_MEAN", "gqa-8-1-sum", "fits dK, dV averaged over the 8 heads of a group, not summed"},
    {"GROUP_MEAN_K", "gqa-6-2-sum", "fits dK averaged over the 3 heads of a group, not summed"},
    {"ADD_1E9", "mask-causal-back", "fits -1e+09 put or added in place of -inf for hidden scores"},
    {"ADD_1E9 -DLSE=ATTN_PLUGIN_LSE_ABSENT", "q4k3d2v3:causal(-1):f32:reveal:s1",
     "query [0,0,0] sees no key, and o has 0.33"},
    {"NO_LOG", "length-15-17", "fits if LSE is m + l, without the logarithm"},
    {"TURNED", "length-15-17", "fits layout BLHD for the outputs alone"},
    {"TIMES", "length-15-17", "fits o times 1.25"},
    {"ONE_ELEMENT", "length-15-17", "; not recognised: 1 of "},
};

START_TEST(slips_are_named)
{
    char output[65536], flags[80];
    snprintf(flags, sizeof flags, "-DSLIP=%s", slips[_i].slip);
    const char *path = fixture_build("tests/external/plugin_slips.c", flags);
    int status = scratch_attnlab(output, sizeof output, "check --plugin '%s' %s '%s'", path,
                                 slips[_i].of[0] != '\0' ? "--case" : "--tier",
                                 slips[_i].of[0] != '\0' ? slips[_i].of : "quick");
    ck_assert_int_eq(status, 1);
    ck_assert_msg(strstr(output, slips[_i].names) != NULL, "%s is not named '%s':\n%s",
                  slips[_i].slip, slips[_i].names, output);
}
END_TEST

/* A window counted with the query's own key by a plug-in that is told it is not; the reverse. */
START_TEST(wrong_window_is_named)
{
    static const char *const way[][2] = {
        {"-DDOES_WINDOW=1", "fits a window that counts the query's own key on both sides"},
        {"-DSAYS_WINDOW=1 -DDOES_WINDOW=0", "fits a window one key too long on both sides"}};
    char output[65536];
    const char *path = build_full(way[_i][0]);
    int status =
        scratch_attnlab(output, sizeof output, "check --plugin '%s' --case mask-window-tile", path);
    ck_assert_int_eq(status, 1);
    ck_assert_msg(strstr(output, way[_i][1]) != NULL, "%s", output);
}
END_TEST

/* ---- relations and soak ---------------------------------------------------------------------- */

/* Relations run on what is claimed; what is refused says why, in the summary. */
START_TEST(relations_are_run)
{
    char output[65536];
    int passed = -1;
    const char *path = build_full("");
    ck_assert_int_eq(scratch_attnlab(output, sizeof output, "check --plugin '%s'", path), 0);
    const char *count = strstr(output, "relations: ");
    ck_assert_msg(count != NULL && sscanf(count, "relations: %d pass", &passed) == 1, "%s", output);
    ck_assert_msg(passed == attn_relation_count() - 3, "%s", output);
    ck_assert_msg(strstr(output, "refused relations D2: a plug-in starts the threads") != NULL,
                  "%s", output);
    ck_assert_int_eq(
        scratch_attnlab(output, sizeof output, "check --plugin '%s' --relation R7", path), 0);
    ck_assert_msg(strstr(output, "relations: 1 pass") != NULL, "%s", output);
    ck_assert_int_eq(
        scratch_attnlab(output, sizeof output, "check --plugin '%s' --relation R99", path), 2);
}
END_TEST

/* Last bits that change from call to call pass every case, and fail D1 where equal bits are
 * claimed. */
START_TEST(relations_see_what_cases_do_not)
{
    char output[65536];
    const char *path = build_bad("UNSTEADY");
    ck_assert_int_eq(scratch_attnlab(output, sizeof output, "check --plugin '%s'", path), 1);
    ck_assert_msg(strstr(output, " pass, 0 fail,") != NULL, "%s", output);
    ck_assert_msg(strstr(output, "FAIL(exact)  bad  thirty runs have the same bits") != NULL, "%s",
                  output);
    ck_assert_msg(strstr(output, "--relation D1\n") != NULL, "%s", output);
}
END_TEST

/* A soak finds a mistake, makes it small, and says what it looks like. */
START_TEST(soak_shrinks)
{
    char output[65536];
    const char *path = build_full("'-DSCALE(x)=1'");
    int status =
        scratch_attnlab(output, sizeof output, "check --plugin '%s' --soak 2 --seed 3", path);
    ck_assert_msg(status == 1, "exit status %d:\n%s", status, output);
    ck_assert_msg(strstr(output, "made small in ") != NULL, "%s", output);
    ck_assert_msg(strstr(output, "looks like: fits scale missing") != NULL, "%s", output);
    ck_assert_msg(strstr(output, "random cases of seed 3") != NULL, "%s", output);
}
END_TEST

/* ---- failures that come and go --------------------------------------------------------------- */

/* Run the line behind "again: "; its exit status.  What it prints is in repeated[]. */
static int run_again(const char *output, char *repeated, size_t size)
{
    const char *again = strstr(output, "again: ");
    ck_assert_msg(again != NULL, "%s", output);
    again += strlen("again: ");
    int status = fixture_shell("%.*s >'%s' 2>&1", (int)strcspn(again, "\n"), again,
                               scratch_path("repeated"));
    FILE *file = fopen(scratch_path("repeated"), "r");
    ck_assert_ptr_nonnull(file);
    repeated[fread(repeated, 1, size - 1, file)] = '\0';
    fclose(file);
    return status;
}

/* One wrong element in one call of a thousand.  The number of calls decides, not the time: a soak
 * comes to the thousandth after some sixty cases, and ends there. */
START_TEST(soak_finds_a_race)
{
    char output[65536], repeated[65536];
    const char *path = build_bad("RACE");
    int status = scratch_attnlab(output, sizeof output, "check --plugin '%s' --soak 200", path);
    ck_assert_msg(status == 1, "exit status %d:\n%s", status, output);
    ck_assert_msg(strstr(output, "\nINTERMITTENT(") != NULL, "%s", output);
    ck_assert_msg(strstr(output, " as found it failed in ") != NULL, "%s", output);
    ck_assert_msg(strstr(output, ", this smaller case in ") != NULL, "%s", output);
    ck_assert_msg(strstr(output, "  found as: b") != NULL, "%s", output);
    ck_assert_msg(strstr(output, "  differs: o: 1 of ") != NULL, "%s", output);
    ck_assert_msg(strstr(output, "FAIL: ") != NULL && strstr(output, " 1 intermittent,") != NULL,
                  "%s", output);
    status = run_again(output, repeated, sizeof repeated);
    ck_assert_msg(status == 1 && strstr(repeated, "INTERMITTENT(") != NULL, "%s", repeated);
}
END_TEST

/* Right in a fresh process, wrong in one that has served a while: no smaller case makes a PASS of
 * it, and the report says which calls failed. */
START_TEST(soak_finds_a_state)
{
    char output[65536];
    const char *path = build_bad("STALE");
    int status = scratch_attnlab(output, sizeof output, "check --plugin '%s' --soak 200", path);
    ck_assert_msg(status == 1, "exit status %d:\n%s", status, output);
    ck_assert_msg(strstr(output, "\nINTERMITTENT(") != NULL, "%s", output);
    ck_assert_msg(strstr(output, "failed by call ") != NULL, "%s", output);
}
END_TEST

/* --repeat is a soak of one case, in every format. */
START_TEST(intermittent_in_every_format)
{
    static const struct {
        const char *format, *says[3];
    } form[] = {
        {"text", {"INTERMITTENT(bound)  bad", "  runs: failed in 1 of 1001", " 1 intermittent, "}},
        {"tap", {"not ok 1", "  verdict: \"INTERMITTENT(bound)\"", "  differs: \"o: 1 of "}},
        {"junit", {"failures=\"1\"", "type=\"INTERMITTENT(bound)\"", "name=\"differs\""}},
        {"json", {"\"verdict\": \"INTERMITTENT\"", "\"of\": 1001", "\"INTERMITTENT\": 1"}},
    };
    char output[65536];
    const char *path = build_bad("RACE"), *flags = "--case b2h2q9k9d8:none:f32:normal:s1";
    int status =
        scratch_attnlab(output, sizeof output, "check --plugin '%s' %s --repeat 999", path, flags);
    ck_assert_msg(status == 0, "exit status %d:\n%s", status, output);
    for (int f = 0; f < 4; f++) {
        status = scratch_attnlab(output, sizeof output,
                                 "check --plugin '%s' %s --repeat 1001 --format %s", path, flags,
                                 form[f].format);
        ck_assert_msg(status == 1, "%s: exit status %d:\n%s", form[f].format, status, output);
        for (int n = 0; n < 3; n++)
            ck_assert_msg(strstr(output, form[f].says[n]) != NULL, "%s does not say %s:\n%s",
                          form[f].format, form[f].says[n], output);
    }
}
END_TEST

START_TEST(soak_passes)
{
    char output[65536];
    const char *path = fixture_build(naive, "");
    ck_assert_int_eq(scratch_attnlab(output, sizeof output, "check --plugin '%s' --soak 1", path),
                     0);
    ck_assert_msg(strstr(output, "PASS: ") != NULL, "%s", output);
}
END_TEST

/* ---- plug-ins that misbehave ----------------------------------------------------------------- */

static const struct {
    const char *bad;
    int status;
    const char *says, *and_says; /* and_says: that the rest ran */
} misbehaviour[] = {
    {"CRASH", 1, "Segmentation fault in forward", " 2 crash"},
    {"HANG", 1, "no end after 1 s in forward", " 2 timeout"},
    {"WRITE_NEAR", 1, "o: 1 elements of the red zone overwritten, the nearest 1 past the end",
     "FAIL(integrity)"},
    {"WRITE_FAR", 1, "it touched an address 4096 bytes past the end of o", " 2 crash"},
    {"CHANGE", 1, "k, an input, was written to at [0,0,0,0]", "FAIL(integrity)"},
    {"UNWRITTEN", 1, "elements not written", "FAIL(integrity)"},
    {"LEAK", 1, "bytes are lost in every call", "FAIL(memory)"},
    {"LEAVE", 1, "it left with exit(3) in forward", " 2 crash"},
    {"ABORTS", 1, "Aborted in forward", " 2 crash"},
    {"DEEP", 1, "Segmentation fault in forward", " 2 crash"},
    {"CLOSER", 1, "in forward", " crash"},
    {"CHATTER", 0, "PASS: ", " 0 fail"},
    {"SAYS_NO", 1, "forward() returned 7: 97 keys are too many?for me", " 2 fail"},
    {"OVERCLAIM", 1, "dbias is claimed, but no case", " 1 error"},
    {"OLD_ABI", 2, "speaks plug-in ABI 8, this program speaks 2", ""},
    {"NO_SYMBOL", 2, "has no attn_plugin_get()", ""},
    {"NOTHING", 2, "attn_plugin_get() returned NULL", ""},
    {"ODD_CLAIM", 2, "it claims bit 30", ""},
    {"BAD_START", 2, "Segmentation fault while it was loaded", ""},
    {"SLOW_START", 2, "no end after 1 s while it was loaded", ""},
    {"NO_FORWARD", 2, "it has no forward()", ""},
    {"FORK", 1, "FAIL(integrity)  bad  h2q10k97d8:none:f32:spike:s5\n  it forked, and process",
     " 2 fail,"},
    /* Two cases fork: which child speaks first is the scheduler's choice. */
    {"FORK_LATE", 1, "FAIL(integrity)  bad  h2q10k97d8:none:f32:spike:s",
     "\n  it forked, and process"},
    {"HANG_ALL", 1, "cases and relations were not reached: 3 times it did not end", " 3 timeout,"},
};

START_TEST(misbehaviour_is_a_verdict)
{
    char output[262144];
    const char *path = build_bad(misbehaviour[_i].bad);
    int is_waited_for = strstr(misbehaviour[_i].bad, "HANG") != NULL ||
                        strstr(misbehaviour[_i].bad, "SLOW") != NULL;
    int whole = strncmp(misbehaviour[_i].bad, "FORK", 4) == 0 ||
                strcmp(misbehaviour[_i].bad, "OVERCLAIM") == 0 ||
                strcmp(misbehaviour[_i].bad, "HANG_ALL") == 0;
    int status = scratch_attnlab(output, sizeof output, "check --plugin '%s' --timeout %d%s", path,
                                 is_waited_for ? 1 : 60, whole ? "" : fixture_some_cases());
    ck_assert_msg(status == misbehaviour[_i].status, "%s: exit status %d, not %d:\n%s",
                  misbehaviour[_i].bad, status, misbehaviour[_i].status, output);
    ck_assert_msg(strstr(output, misbehaviour[_i].says) != NULL, "%s does not say '%s':\n%s",
                  misbehaviour[_i].bad, misbehaviour[_i].says, output);
    ck_assert_msg(strstr(output, misbehaviour[_i].and_says) != NULL, "%s does not say '%s':\n%s",
                  misbehaviour[_i].bad, misbehaviour[_i].and_says, output);
    if (status == 2) /* one line, and nothing else */
        ck_assert_ptr_eq(strchr(output, '\n'), output + strlen(output) - 1);
}
END_TEST

/* Flush-to-zero at load, upward rounding after a call: the same verdicts and figures as without,
 * and a note. */
START_TEST(environment_does_not_leak)
{
    char plain[65536], flushing[65536];
#if !defined(__SSE__)
    fprintf(stderr, "external: skipped: no MXCSR on this machine\n");
    return;
#endif
    const char *worst = "worst error/bound of a pass ";
    const char *path = build_bad("0");
    ck_assert_int_eq(
        scratch_attnlab(plain, sizeof plain, "check --plugin '%s'%s", path, fixture_some_cases()),
        0);
    path = build_bad("FLUSH");
    ck_assert_int_eq(scratch_attnlab(flushing, sizeof flushing, "check --plugin '%s'%s", path,
                                     fixture_some_cases()),
                     0);
    ck_assert_ptr_nonnull(strstr(plain, worst));
    ck_assert_msg(strncmp(strstr(plain, worst), strstr(flushing, worst), strlen(worst) + 8) == 0,
                  "%s%s", plain, flushing);
    ck_assert_msg(strstr(flushing, "loading it changed the floating-point environment "
                                   "(flush-to-zero on, denormals-are-zero on)") != NULL,
                  "%s", flushing);
    ck_assert_msg(
        strstr(flushing, "calls changed the floating-point environment (another rounding") != NULL,
        "%s", flushing);
    ck_assert_ptr_null(strstr(plain, "floating-point environment"));
}
END_TEST

/* A process in a session of its own is ended with the check. */
START_TEST(nothing_lives_on)
{
    char output[262144];
    const char *path = build_bad("DAEMON"), *number = scratch_path("daemon");
    int pid = 0;
    ck_assert_int_eq(setenv("BAD_DAEMON", number, 1), 0);
    int status =
        scratch_attnlab(output, sizeof output, "check --plugin '%s'%s", path, fixture_some_cases());
    ck_assert_msg(status == 0, "exit status %d:\n%s", status, output);
    FILE *file = fopen(number, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d", &pid), 1);
    fclose(file);
    ck_assert_msg(pid > 1 && kill(pid, 0) < 0, "process %d lives on", pid);
    ck_assert_msg(strstr(output, "processes that it had left behind were ended") != NULL, "%s",
                  output);
}
END_TEST

/* The page says who was judged, and its first line of a shell repeats that. */
START_TEST(page_of_a_plugin)
{
    char output[65536];
    const char *path = fixture_build(naive, ""), *page = scratch_path("page.md");
    int status =
        scratch_attnlab(output, sizeof output, "check --plugin '%s' --report '%s'", path, page);
    ck_assert_msg(status == 0, "exit status %d:\n%s", status, output);
    static const char *const want[] = {
        "grep -q \"SHA-256 of it | .$(sha256sum $P | cut -c1-64).\" $R",
        "grep -q '^| claims | f32 gqa cross dv scale dense repeats |$' $R",
        "grep -q '^| judged on | the quick tier, ' $R",
        "grep -q '^| .lse. | [0-9]* | [0-9]* | 0 | 0[.]' $R",
        "grep -q '^| type | f32 ([0-9]*) | bf16' $R",
        "grep -q '^| backward | [0-9]* | [0-9]* |$' $R",
        "sh -c \"$(sed -n 's/^    //p' $R | head -1)\" >/dev/null 2>&1",
    };
    for (size_t n = 0; n < sizeof want / sizeof *want; n++)
        ck_assert_msg(fixture_shell("P='%s' R='%s'; %s", path, page, want[n]) == 0, "%s", want[n]);
    path = build_bad("RACE");
    status = scratch_attnlab(output, sizeof output,
                             "check --plugin '%s' --case b2h2q9k9d8:none:f32:normal:s1 --repeat "
                             "1001 --report '%s'",
                             path, page);
    ck_assert_int_eq(status, 1);
    ck_assert_int_eq(fixture_shell("grep -q '^[*][*]INTERMITTENT(bound)[*][*] case ' '%s'", page),
                     0);
}
END_TEST

START_TEST(not_a_plugin)
{
    static const char *const cases[][2] = {
        {"/nonexistent.so", "cannot open shared object file"},
        {"README.md", "README.md: "},
        {"tests", "tests: "},
        {"", "attnlab check: "},
    };
    char output[4096];
    int status = scratch_attnlab(output, sizeof output, "check --plugin '%s'", cases[_i][0]);
    ck_assert_msg(status == 2, "exit status %d: %s", status, output);
    ck_assert_msg(strstr(output, cases[_i][1]) != NULL, "%s", output);
    ck_assert_ptr_eq(strchr(output, '\n'), output + strlen(output) - 1);
}
END_TEST

/* The line that a failure prints runs that failure again. */
START_TEST(again_runs_again)
{
    char output[65536], repeated[65536];
    const char *path = build_bad("CRASH");
    scratch_attnlab(output, sizeof output, "check --plugin '%s'%s", path, fixture_some_cases());
    ck_assert_int_eq(run_again(output, repeated, sizeof repeated), 1);
    ck_assert_msg(strstr(repeated, "1 crash") != NULL, "%s", repeated);
}
END_TEST

#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

Suite *suite_external(void)
{
    Suite *suite = suite_create("external");
    TCase *cases = tcase_create("external");
    tcase_set_timeout(cases, 300);
    tcase_add_checked_fixture(cases, scratch_open, scratch_close);
    tcase_add_test(cases, naive_passes);
    tcase_add_loop_test(cases, declared_conventions_pass, 0, COUNT(honest));
    tcase_add_loop_test(cases, claims_are_met_and_no_more, 0, 5);
    tcase_add_loop_test(cases, wrong_conventions_are_named, 0, COUNT(wrong));
    tcase_add_loop_test(cases, slips_are_named, 0, COUNT(slips));
    tcase_add_loop_test(cases, wrong_window_is_named, 0, 2);
    tcase_add_test(cases, relations_are_run);
    tcase_add_test(cases, relations_see_what_cases_do_not);
    tcase_add_test(cases, soak_shrinks);
    tcase_add_test(cases, soak_finds_a_race);
    tcase_add_test(cases, soak_finds_a_state);
    tcase_add_test(cases, intermittent_in_every_format);
    tcase_add_test(cases, soak_passes);
    tcase_add_loop_test(cases, misbehaviour_is_a_verdict, 0, COUNT(misbehaviour));
    tcase_add_test(cases, nothing_lives_on);
    tcase_add_test(cases, page_of_a_plugin);
    tcase_add_test(cases, environment_does_not_leak);
    tcase_add_loop_test(cases, not_a_plugin, 0, 4);
    tcase_add_test(cases, again_runs_again);
    suite_add_tcase(suite, cases);
    return suite;
}
