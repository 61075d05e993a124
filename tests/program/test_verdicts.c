/* The four formats of attnlab check, fed with results that are as awkward as they get. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "experiments/check/check.h"
#include "experiments/check/check_report.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"
#include "tests/wrap.h"

SUITE(verdicts, .open = scratch_open, .close = scratch_close);

/* ---- a stream of results --------------------------------------------------------------------- */

static const char nasty[] = "a<b & \"c\" # 'd' \\ \x01 ]]> \n end";

static struct attn_verdict_entry *file(struct attn_verdict_list *list, const char *name,
                                       const struct attn_result *r)
{
    const struct attn_checked checked = {
        ATTN_CHECK_CASE,
        name,
        "q3k4d5:causal(br)|prefix(2):f32:normal:s1",
        "AL-01",
        nasty,
        "check 'dense' --case 'q3k4d5:causal(br)|prefix(2):f32:normal:s1'",
        NULL};
    return attn_verdicts_add(list, &checked, &(struct attn_answer){.result = *r, .seconds = 0.25});
}

static struct attn_verdict_entry *add(struct attn_verdict_list *list, const char *name,
                                      enum attn_verdict verdict, enum attn_failure failure,
                                      double worst, const char *text)
{
    struct attn_result r = {.verdict = verdict, .failure = failure, .worst = worst};
    r.precision.u = 0x1p-24;
    r.precision.rescales = 5, r.precision.merges = 3, r.precision.exp_ulps = 4;
    if (verdict == ATTN_PASS) {
        r.grade = (struct attn_grade){'A', 0.25, 96, -0.5};
        r.mask = (struct attn_mask_power){40, 12, 0.5};
    }
    r.output[ATTN_O] = (struct attn_agreement){
        .name = "o", .n = 12, .n_bad = failure != ATTN_F_NONE, .ratio = worst};
    snprintf(r.text, sizeof r.text, "%s", text);
    return file(list, name, &r);
}

/* The page of a format for the specs that `fill` makes up, and the number of failures among the
 * first one's checks. */
struct printed {
    struct attn_verdicts v;
    struct attn_report *report;
    int failures;
};
static char *tell(enum attn_format format, int strict, struct attn_report *report,
                  void (*fill)(struct printed *printed), int *failures)
{
    static char *text;
    static size_t size;
    FILE *out = open_memstream(&text, &size);
    struct printed printed = {.failures = -1, .report = report};
    attn_verdicts_open(&printed.v, out);
    printed.v.format = format;
    printed.v.strict = strict;
    printed.v.refusals = 1;
    fill(&printed);
    attn_verdicts_print(&printed.v, NULL);
    fclose(out);
    if (failures != NULL)
        *failures = printed.failures;
    return text;
}

static int end(struct printed *printed, struct attn_verdict_list *list)
{
    int failures = attn_verdicts_tally(&printed->v, list, ATTN_ALL_KINDS).failures;
    attn_verdicts_print(&printed->v, list);
    if (printed->report != NULL)
        attn_report_add(printed->report, &printed->v, list);
    attn_verdicts_free(list);
    printed->failures = printed->failures < 0 ? failures : printed->failures;
    return failures;
}

/* Two specs: one with every verdict, one that is clean. */
static void all_verdicts(struct printed *printed)
{
    struct attn_verdict_list *list = attn_verdicts_begin("ring:ranks=4,local=\"x\"<&>");
    struct attn_verdict_list *clean = attn_verdicts_begin("dense");
    add(clean, "fine", ATTN_PASS, ATTN_F_NONE, 0.3, "");
    add(list, "fine", ATTN_PASS, ATTN_F_NONE, 0.3, "");
    add(list, "slightly-off", ATTN_FAILED, ATTN_F_BOUND, 1.5, nasty);
    add(list, "far-off", ATTN_FAILED, ATTN_F_BOUND, (double)INFINITY, nasty);
    add(list, "outside", ATTN_FAILED, ATTN_F_INTEGRITY, 0, nasty);
    add(list, "absent", ATTN_REFUSED, ATTN_F_NONE, 0, nasty);
    add(list, "weak", ATTN_WEAK, ATTN_F_NONE, 0.1, "zeros would pass");
    add(list, "dead", ATTN_CRASH, ATTN_F_NONE, 0, "signal 11");
    add(list, "", ATTN_ERROR, ATTN_F_NONE, (double)NAN, nasty);
    end(printed, list);
    ck_assert_int_eq(end(printed, clean), 0);
}

static char *say(enum attn_format format, int strict, int *failures)
{
    return tell(format, strict, NULL, all_verdicts, failures);
}

/* ---- text ------------------------------------------------------------------------------------ */

static long position(const char *text, const char *what)
{
    const char *at = strstr(text, what);
    ck_assert_msg(at != NULL, "'%s' is missing in:\n%s", what, text);
    return at - text;
}

TEST(text_has_the_worst_first)
{
    int failures;
    char *text = say(ATTN_FORMAT_TEXT, 0, &failures);
    ck_assert_int_eq(failures, 5);
    long error = position(text, "\n  ERROR"), crash = position(text, "\n  CRASH");
    long integrity = position(text, "\n  FAIL(integrity)"), far = position(text, "  far-off  ");
    ck_assert(error < crash && crash < integrity && integrity < far);
    ck_assert_int_lt(far, position(text, "\nFAIL(bound)  ring")); /* the smallest in full */
    position(text, "case slightly-off");
    ck_assert_int_lt(position(text, "FAIL: 1 pass"), position(text, "  again: "));
    ck_assert_ptr_null(strstr(text, "  weak  "));
    position(text, "FAIL: 1 pass, 3 fail, 1 refused, 1 weak, 1 crash, 1 error");
    position(text, "dense                        PASS: 1 pass, 0 fail");
    position(text, "  again: attnlab check 'dense' --case 'q3k4d5:");
    free(text);
    text = say(ATTN_FORMAT_TEXT, 1, &failures);
    ck_assert_int_eq(failures, 6);
    position(text, "  weak  ");
    free(text);
}

/* Hundreds of failures stay readable. */
static void hundreds(struct printed *printed)
{
    struct attn_verdict_list *list = attn_verdicts_begin("dense");
    for (int n = 0; n < 500; n++) {
        char name[32];
        snprintf(name, sizeof name, "case-%d", n);
        add(list, name, ATTN_FAILED, ATTN_F_BOUND, n, "off");
    }
    end(printed, list);
}

TEST(text_is_short)
{
    int failures, lines = 0;
    char *text = tell(ATTN_FORMAT_TEXT, 0, NULL, hundreds, &failures);
    ck_assert_int_eq(failures, 500);
    for (const char *p = text; *p != '\0'; p++)
        lines += *p == '\n';
    ck_assert_msg(lines < 40, "%d lines", lines);
    ck_assert_int_lt(position(text, "  case-499  "), position(text, "  case-498  "));
    position(text, "and 491 more");
    free(text);
}

/* Grade, bias, mask and precisions stand in every format. */
static void two_passes(struct printed *printed)
{
    struct attn_verdict_list *list = attn_verdicts_begin("dense");
    add(list, "fine", ATTN_PASS, ATTN_F_NONE, 0.3, "");
    add(list, "good", ATTN_PASS, ATTN_F_NONE, 0.2, "");
    end(printed, list);
}

TEST_EACH(facts_are_told, 3)
{
    static const char *const want[][5] = {
        [ATTN_FORMAT_TEXT] = {"0 of 2 passes are tests of every key of their mask",
                              "largest bias of 2 0.5, limit 6", "grades: 2 A, 0 B",
                              "declared: u 5.96e-08,", "at most 5 rescales and 3 merges a row"},
        [ATTN_FORMAT_JUNIT] = {"<property name=\"grade\" value=\"A, error/T2 0.25\"/>",
                               "<property name=\"bias\" value=\"-0.5 deviations",
                               "<property name=\"mask\" value=\"one key", "name=\"declared\"",
                               "5 rescales"},
        [ATTN_FORMAT_JSON] = {"\"letter\": \"A\"", "\"deviations\": -0.5", "\"admitted\": false",
                              "\"seen\": 12", "\"rescales\": 5"}};
    char *text = tell((enum attn_format)_i, 0, NULL, two_passes, NULL);
    for (int n = 0; n < 5; n++)
        position(text, want[_i][n]);
    free(text);
}

/* ---- JUnit ----------------------------------------------------------------------------------- */

/* Well formed, with these counts of test cases, failures, errors and skipped ones. */
static void ck_xml(const char *text, const char *counts)
{
    if (!fixture_python("xml"))
        return;
    scratch_shell(0, counts,
                  "/usr/bin/python3 -c 'import sys, xml.etree.ElementTree as x\n"
                  "all = x.parse(sys.argv[1])\n"
                  "print(*[len(all.findall(\".//\" + name)) for name in sys.argv[2:]])' '%s' "
                  "testcase failure error skipped",
                  scratch_put("junit.xml", text, strlen(text)));
}

TEST(junit_is_well_formed)
{
    int failures;
    char *text = say(ATTN_FORMAT_JUNIT, 1, &failures);
    ck_assert_int_eq(failures, 5 + 1);
    ck_xml(text, "9 5 1 1\n");
    position(text, "tests=\"8\" failures=\"5\" errors=\"1\" skipped=\"1\"");
    free(text);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

TEST(json_is_well_formed)
{
    int failures;
    json_error_t error;
    char *text = say(ATTN_FORMAT_JSON, 0, &failures);
    json_t *all = json_loads(text, 0, &error);
    ck_assert_msg(all != NULL, "line %d: %s\n%s", error.line, error.text, text);
    json_t *specs = json_object_get(all, "specs");
    ck_assert_str_eq(json_string_value(json_object_get(all, "format")), "attnlab-check");
    ck_assert_int_eq(json_integer_value(json_object_get(all, "version")), 1);
    ck_assert_int_eq((int)json_array_size(specs), 2);
    json_t *ring = json_array_get(specs, 0), *checks = json_object_get(ring, "checks");
    ck_assert_str_eq(json_string_value(json_object_get(ring, "verdict")), "FAIL");
    ck_assert_int_eq((int)json_array_size(checks), 8);
    json_t *counts = json_object_get(ring, "counts");
    ck_assert_int_eq(json_integer_value(json_object_get(counts, "FAIL")), 3);
    ck_assert_int_eq(json_integer_value(json_object_get(counts, "CRASH")), 1);
    json_t *far = json_array_get(checks, 2);
    ck_assert_str_eq(json_string_value(json_object_get(far, "name")), "far-off");
    ck_assert_str_eq(json_string_value(json_object_get(far, "failure")), "bound");
    ck_assert_str_eq(json_string_value(json_object_get(far, "message")),
                     "a<b & \"c\" # 'd' \\ ? ]]> ? end"); /* a line, as everywhere */
    ck_assert(json_is_null(json_object_get(far, "worst")));
    ck_assert(json_is_object(json_object_get(json_object_get(far, "outputs"), "o")));
    json_decref(all);
    free(text);
}

/* The common look of most failures is in the report itself, in every format; a program that stops
 * in many cases does not push it off the page. */
static void one_mistake(struct printed *printed)
{
    struct attn_verdict_list *list = attn_verdicts_begin("mine");
    for (int n = 0; n < 40; n++) {
        char says[80];
        snprintf(says, sizeof says, "the program says: KeyError(%d)", n);
        add(list, "stopped", ATTN_FAILED, ATTN_F_STATUS, 0, says);
    }
    struct attn_result wrong = {.verdict = ATTN_FAILED,
                                .failure = ATTN_F_BOUND,
                                .dtype = ATTN_BF16,
                                .text = "o is off",
                                .diagnosis = {ATTN_FAULT_KEYS, "head 1", "fits <a> & \"b\"", ""},
                                .output[ATTN_O] = {.name = "o", .n = 12, .n_bad = 1}};
    for (int n = 0; n < 3; n++)
        file(list, "wrong", &wrong);
    wrong = (struct attn_result){.dtype = ATTN_F32, .output[ATTN_O].n = 12};
    file(list, "fine", &wrong);
    end(printed, list);
}

TEST_EACH(cause_is_reported, 3)
{
    static const char *const want[][3] = {
        {"  likely cause, by 3 of 3 diagnosed failures: fits <a> & \"b\" (in f64 and bf16, not in "
         "f32)\n",
         "\n  o is off; shows in head 1; looks like: fits <a> & \"b\"\n",
         "\n  what to do: compare with the picture"},
        {"name=\"cause\" value=\"fits &lt;a&gt; &amp; &quot;b&quot;\"",
         "name=\"cause_types\" value=\"in f64 and bf16, not in f32\"",
         "name=\"what_to_do\" value=\"compare"},
        {"\"cause\"", "\"what_to_do\": \"compare",
         "\"message\": \"o is off; shows in head 1; looks like: fits <a> & "}};
    int failures;
    char *text = tell((enum attn_format)_i, 0, NULL, one_mistake, &failures);
    ck_assert_int_eq(failures, 43);
    for (int n = 0; n < 3; n++)
        position(text, want[_i][n]);
    if (_i == ATTN_FORMAT_TEXT) {
        position(text, "more like it: 39");
        position(text, "case wrong");
    }
    if (_i == ATTN_FORMAT_JSON) {
        json_t *all = json_loads(text, 0, NULL), *spec;
        spec = json_array_get(json_object_get(all, "specs"), 0);
        json_t *cause = json_object_get(spec, "cause");
        ck_assert_int_eq(json_integer_value(json_object_get(cause, "failures")), 3);
        json_t *fails = json_object_get(cause, "fails_in");
        json_t *passes = json_object_get(cause, "passes_in");
        ck_assert_str_eq(json_string_value(json_array_get(fails, 1)), "bf16");
        ck_assert_str_eq(json_string_value(json_array_get(passes, 0)), "f32");
        json_decref(all);
    }
    free(text);
}

/* Its own refusals are told from cases that it does not claim; reasons that differ by their numbers
 * are one, shown with the smallest case; with --strict each is a failure. */
static void refused_by_it(struct printed *printed)
{
    static const char *const text[] = {"q30k4d5:none:f32:normal:s1", "q3k4d5:none:f32:normal:s1",
                                       "q9k4d5:none:f32:normal:s1"};
    struct attn_verdict_list *list = attn_verdicts_begin("dense");
    add(list, "fine", ATTN_PASS, ATTN_F_NONE, 0.3, "");
    add(list, "absent", ATTN_REFUSED, ATTN_F_NONE, 0, "not claimed: bf16")->wants.missing =
        ATTN_CAP_BF16;
    for (int n = 0; n < 3; n++) {
        const struct attn_checked checked = {ATTN_CHECK_CASE, "", text[n], "", "", "", NULL};
        struct attn_result r;
        attn_result_refuse(&r, n < 2 ? text[n] : "not claimed: <f16>");
        attn_verdicts_add(list, &checked, &(struct attn_answer){.result = r});
    }
    end(printed, list);
}

TEST_EACH(refusals_by_it_are_told, 6)
{
    static const char *const want[][3] = {
        {"PASS: 1 pass, 0 fail, 4 refused (3 by it), 0 weak",
         "\n    2: q3k4d5:none:f32:normal:s1; q3k4d5:none:f32:normal:s1\n",
         "by the claim that they want: bf16 1 (1 alone): "},
        {"skipped=\"4\"", "<skipped message=\"refused by it: not claimed: &lt;f16&gt;\"/>",
         "failures=\"0\""},
        {"\"refused_by\": \"it\"", "\"refused_by\": \"claims\"", "\"REFUSED\": 4"},
        {"FAIL: 1 pass, 0 fail, 4 refused (3 by it)", "  REFUSED  q30k4d5", "more like it: 1"},
        {"skipped=\"1\"", "failures=\"3\"", "<failure type=\"REFUSED\""},
        {"\"refused_by\": \"it\"", "\"verdict\": \"FAIL\"", "\"refused_by\": \"claims\""},
    };
    int failures, strict = _i >= 3;
    char *text = tell((enum attn_format)(_i % 3), strict, NULL, refused_by_it, &failures);
    ck_assert_int_eq(failures, strict ? 3 : 0);
    for (int n = 0; n < 3; n++)
        position(text, want[_i][n]);
    free(text);
}

/* One that failed in any case has not passed, one that was judged in any is not left out. */
static void models(struct printed *printed)
{
    struct attn_verdict_list *list = attn_verdicts_begin("dense");
    add(list, "shape-gpt-2", ATTN_PASS, ATTN_F_NONE, 0.3, "");
    add(list, "shape-gpt-2-decode", ATTN_FAILED, ATTN_F_BOUND, 3, "");
    add(list, "shape-phi-2", ATTN_PASS, ATTN_F_NONE, 0.3, "");
    add(list, "shape-phi-2-backward", ATTN_REFUSED, ATTN_F_NONE, 0, "");
    add(list, "shape-dit-xl-2", ATTN_REFUSED, ATTN_F_NONE, 0, "not declared: d = 72");
    end(printed, list);
}

TEST(models_by_the_worst_of_their_cases)
{
    int failures;
    char *text = tell(ATTN_FORMAT_TEXT, 0, NULL, models, &failures);
    position(text, "\n  failed at the shapes of: gpt-2\n  judged at the shapes of: phi-2\n"
                   "  shapes that the claims leave out: dit-xl-2 (not declared: d = 72)\n");
    free(text);
}

/* A program that checks nothing still writes whole documents. */
static void nothing(struct printed *printed)
{
    (void)printed;
}

TEST_EACH(nothing_is_well_formed, 3)
{
    static const char *const want[] = {"", NULL, NULL};
    char *text = tell((enum attn_format)_i, 0, NULL, nothing, NULL);
    if (want[_i] != NULL)
        ck_assert_str_eq(text, want[_i]);
    if (_i == ATTN_FORMAT_JUNIT)
        ck_xml(text, "0 0 0 0\n");
    if (_i == ATTN_FORMAT_JSON) {
        json_t *all = json_loads(text, 0, NULL);
        ck_assert_ptr_nonnull(all);
        json_decref(all);
    }
    free(text);
}

/* ---- a soak whose judge is in trouble -------------------------------------------------------- */

/* The judge's answers for cases that can be set up; others it refuses. */
struct trouble {
    int of_fit, memory; /* memory: none is left to look at the case again */
    const char *says;
    int is_filed, asked, met;
};

static int say_trouble(void *arg, const struct attn_case *c, int n,
                       const struct attn_repetition *how, int flags, struct attn_result *r)
{
    enum { CASES = 500, ENDED = 9 };
    struct trouble *t = arg;
    struct attn_setup setup;
    int fits = attn_setup_open(c, &setup, NULL) == ATTN_OK;
    if (fits)
        attn_setup_close(&setup);
    *r = (struct attn_result){.verdict = fits == t->of_fit ? ATTN_ERROR : ATTN_REFUSED};
    snprintf(r->text, sizeof r->text, "%s", t->says);
    if (r->verdict == ATTN_ERROR) {
        t->met++;
        if (t->memory)
            wrap_fail_call(0);
    }
    (void)n, (void)how, (void)flags;
    return ++t->asked == CASES ? ENDED : 0;
}

/* An ERROR is filed and ends the soak, unless the case was not reached. */
TEST_EACH(errors_of_a_soak, 3)
{
    static const struct trouble troubles[] = {
        {1, 0, "no pipe", 1, 0, 0}, {1, 1, "no memory", 1, 0, 0}, {1, 0, "", 0, 0, 0}};
    static const struct attn_check_request request = {.soak = 1000, .seed = 1};
    struct trouble t = troubles[_i];
    struct attn_candidate s = {.request = &request,
                               .x.route = &attn_own_route,
                               .x.claims.bits = ATTN_CAP_F32 | ATTN_CAP_CROSS | ATTN_CAP_BACKWARD,
                               .list = attn_verdicts_begin("toy")};
    const struct attn_soak soak = {say_trouble, &t, 1, 1};
    int status = attn_soak_run(&s, &soak);
    ck_assert_msg(t.is_filed ? t.met == 1 : t.met > 0, "%d errors in %d cases", t.met, t.asked);
    ck_assert_msg((status == 0) == t.is_filed, "status %d after %d cases", status, t.asked);
    ck_assert_int_eq(s.list->n, t.is_filed ? 2 : 0); /* it, and the sum */
    if (t.is_filed)
        ck_assert(s.list->entry[0].result.verdict == ATTN_ERROR &&
                  strcmp(s.list->entry[0].result.text, t.says) == 0);
    attn_verdicts_free(s.list);
}

/* ---- the program ----------------------------------------------------------------------------- */

#if !defined(__SANITIZE_ADDRESS__)
/* Memory that the machine does not have is no verdict on anybody's code: exit status 3. */
TEST_EACH(no_memory_is_the_environments, 2)
{
    static const char *const line[] = {
        "check dense --case 'h4q8000d8:none:f32:normal:s1'",
        "check tiled-textbook --case 'h9q99999d999:none:f32:normal:s1'"};
    scratch_shell(3, "ERROR", "ulimit -v 400000; %s/attnlab %s", test_build(), line[_i]);
}
#endif

/* ---- the page -------------------------------------------------------------------------------- */

/* Words that others wrote are text: no markup, no control character, and every row of a table has
 * the columns of its head. */
TEST_EACH(page_is_safe, 2)
{
    static const char *const name[] = {"page.html", "page.md"};
    const char *path = scratch_path(name[_i]), *hostile = "x`y``|<script>\x1b[31m\xff\xe2\x80\xae";
    struct attn_report *report;
    ck_assert_int_eq(attn_report_open(path, &report, NULL), ATTN_OK);
    int failures, columns = 0;
    const struct attn_subject x = {.route = &attn_plugin_route, .source = hostile};
    const struct attn_report_about about = {&x, hostile, hostile, hostile, NULL};
    attn_report_begin(report, &about);
    free(tell(ATTN_FORMAT_TEXT, 0, report, all_verdicts, &failures));
    ck_assert_int_eq(attn_report_close(report, failures > 0), 1);
    char *page = scratch_read(path);
    for (const char *p = page; *p != '\0'; p++)
        ck_assert_msg((unsigned char)*p >= ' ' || *p == '\n', "control character %d", *p);
    ck_assert_ptr_null(strstr(page, "\xff"));
    ck_assert_ptr_null(strstr(page, "\xe2\x80\xae")); /* turns what follows around */
    position(page, _i == 0
                       ? "<em><strong>FAIL</strong></em>: 7 judged, of which 5 failed; 1 refused."
                       : "***FAIL***: 7 judged, of which 5 failed; 1 refused.");
    position(page, _i == 0 ? "a&lt;b &amp; &quot;c&quot; # 'd' \\ ? ]]&gt;"
                           : "a<b & \"c\" # 'd' \\ ? ]]>");
    position(page, "causal(br)");
    if (_i == 0)
        ck_assert_ptr_null(strstr(page, "<script>?")); /* theirs; the frame has one */
    else
        position(page, "x\\`y\\`\\`\\|\\<script\\>?\\[31m????");
    for (char *line = strtok(page, "\n"); line != NULL && _i == 1; line = strtok(NULL, "\n")) {
        int n = 0;
        for (const char *p = line; line[0] == '|' && *p != '\0'; p++)
            n += *p == '|' && (p == line || p[-1] != '\\');
        ck_assert_msg(columns == 0 || n == 0 || n == columns, "%d columns, not %d: %s", n, columns,
                      line);
        columns = n;
    }
    free(page);
}

/* A reader of a page sees what is wrong before all that shows it. */
TEST(the_cause_comes_first)
{
    const char *path = scratch_path("page.md");
    struct attn_report *report;
    ck_assert_int_eq(attn_report_open(path, &report, NULL), ATTN_OK);
    free(tell(ATTN_FORMAT_TEXT, 0, report, one_mistake, NULL));
    ck_assert_int_eq(attn_report_close(report, 1), 1);
    char *page = scratch_read(path);
    const char *cause =
                   strstr(page, "**Likely cause: fits \\<a\\> \\& \"b\" (in f64 and bf16, not in "
                                "f32).** 3 of 3 diagnosed failures"),
               *verdicts = strstr(page, "### All failures");
    ck_assert_msg(cause != NULL && verdicts != NULL && cause < verdicts, "%.2000s", page);
    free(page);
}

/* A page that cannot be written is never 0, and never half a page. */
TEST(page_that_cannot_be_written)
{
    static const struct {
        const char *prepare, *path, *says;
        int status;
    } row[] = {
        {"true", "page.txt", "a name that ends in .html or .md would work", 2},
        {"printf '#!/bin/sh\\nexit 127\\n' >cmark-gfm && chmod +x cmark-gfm && PATH=.:$PATH",
         "page.html", "page.md, and no HTML: there is no cmark-gfm here", 0},
        {"ln -s /dev/full page.html", "page.html", "No space left", 3},
        {"ulimit -f 1", "page.md", "File too large", 3},
    };
    for (size_t n = 0; n < sizeof row / sizeof *row; n++)
        scratch_shell(row[n].status, row[n].says,
                      "program=$(realpath '%s/attnlab'); cd '%s' && rm -rf page.* && %s && "
                      "\"$program\" check dense --case reveal-all --report %s >text",
                      test_build(), scratch_path(""), row[n].prepare, row[n].path);
    char *page = scratch_read(scratch_path("page.md")); /* of the last */
    ck_assert_str_eq(page, "attnlab check has not ended: there is no verdict here.\n");
    free(page);
}

/* Of a file; of a folder the line that docs/external.md has for it. */
TEST(digests_are_those_of_sha256sum)
{
    char hex[65];
    const char *folder = scratch_path("it's a tree");
    attn_report_digest(scratch_put("a", "a", 1), 0, hex);
    ck_assert_str_eq(hex, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb");
    attn_report_digest(scratch_path("none"), 0, hex);
    ck_assert_str_eq(hex, "not available");
    ck_assert_int_eq(mkdir(folder, 0777), 0);
    scratch_shell(0, "",
                  "cd \"%s\" && mkdir b b.c && echo 1 >b/x && echo 2 >b.c/y && echo 3 >b0 && "
                  "find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-64 | "
                  "tr -d '\\n' >'%s'",
                  folder, scratch_path("sum"));
    char *sum = scratch_read(scratch_path("sum"));
    attn_report_digest(folder, 1, hex);
    ck_assert_str_eq(hex, sum);
    free(sum);
}
