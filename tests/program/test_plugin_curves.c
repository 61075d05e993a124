/* attnlab measure --plugin: external implementations are points like ours, with what is known of
 * them; whatever becomes of one is a record, and costs the others nothing. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ref/attn_plugin.h"
#include "tests/fixtures/curve_fixture.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(plugin_curves, .open = scratch_open, .close = scratch_close);

/* ---- plug-ins -------------------------------------------------------------------------------- */

TEST(beside_ours)
{
    char args[2048];
    fixture_plugin("mine.so", "bad", "HONEST");
    snprintf(args, sizeof args,
             "tiled-textbook --plugin '%s' --plugin 'slow=%s' --length 32,64 --mask "
             "'causal(br)' --rounds 2 --repeat 2 --csv '%s'",
             scratch_path("mine.so"), scratch_path("mine.so"), scratch_path("r.csv"));
    fixture_measure(0, "%s", args);
    ck_assert_int_eq(fixture_curve_n, 3 * 2 * 2);
    for (int64_t i = 0; i < fixture_curve_n; i++) {
        const struct attn_point *p = &fixture_curve[i];
        if (strcmp(p->spec, "tiled-textbook") == 0) {
            ck_assert_str_eq(p->route, "");
            ck_assert_str_eq(p->time_source, "calls");
            continue;
        }
        fixture_is_external(p, "plug-in", "calls");
        ck_assert_int_eq(p->mask_bytes, p->c.n_query * p->c.n_query);
        ck_assert_int_eq(p->pairs, p->c.n_query * (p->c.n_query + 1) / 2);
    }
    ck_assert_ptr_nonnull(fixture_curve_point("bad", 64, 1));
    ck_assert_ptr_nonnull(fixture_curve_point("slow", 64, 1));
    ck_assert_int_eq(fixture_shell("grep -q '^length,bad,bad,plug-in,ok,.*,plug-in,/.*,4096' '%s'",
                                   scratch_path("r.csv")),
                     0);
    /* Again: nothing is missing.  Another file of that name: all of it is. */
    fixture_measure(0, "%s", args);
    scratch_has("12 records were there, 0 added");
    fixture_plugin("mine.so", "bad", "SLEEP FROM=64");
    fixture_measure(0, "%s", args);
    scratch_has("4 records were there, 8 added");
    ck_assert_int_eq(fixture_curve_n, 12);
    ck_assert_int_eq(fixture_curve_point("slow", 64, 1)->n_warm, 2);
    for (int t = 0; t < 2; t++)
        ck_assert(fixture_curve_point("slow", 64, 1)->warm_s[t] >= 0.05);
}

/* Everything that can go wrong, in one sweep; ours is measured as ever. */
TEST(misbehaviour_is_a_record)
{
    static const char *const does[] = {"WRONG",   "KILLED",     "QUIT",
                                       "CHATTER", "WRITE_NEAR", "SAYS_NO"};
    char flags[1500] = "";
    for (size_t d = 0; d < sizeof does / sizeof *does; d++) {
        fixture_plugin(does[d], "bad", "%s FROM=64", does[d]);
        snprintf(flags + strlen(flags), sizeof flags - strlen(flags), " --plugin 'x%zu=%s'", d,
                 scratch_path(does[d]));
    }
    fixture_measure(1, "dense %s --length 32,64,96 --rounds 1 --repeat 1", flags);
    fixture_expect("dense", 96, ATTN_POINT_OK);
    for (int x = 0; x < 6; x++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", x);
        fixture_expect(name, 32, ATTN_POINT_OK);
    }
    fixture_expect("x0", 64, ATTN_POINT_WRONG);
    fixture_expect_words("x1", 64, ATTN_POINT_KILLED, "Segmentation fault");
    fixture_expect_words("x1", 96, ATTN_POINT_DROPPED, "length 64 ended as killed");
    fixture_expect_words("x2", 64, ATTN_POINT_ERROR, "without a record");
    fixture_expect("x3", 96, ATTN_POINT_OK);
    fixture_expect_words("x4", 64, ATTN_POINT_WRONG, "red zone");
    fixture_expect_words("x5", 64, ATTN_POINT_ERROR, "forward() returned 7: 64 keys are too many");
}

TEST(hang_and_refusal)
{
    fixture_plugin("HANG", "bad", "HANG FROM=64");
    fixture_measure(0,
                    "tiled-textbook --plugin '%s' --length 32,64 --pass fwd,bwd --rounds 1 "
                    "--timeout 5",
                    scratch_path("HANG"));
    ck_assert_int_eq(fixture_curve_n, 8);
    for (int64_t i = 0; i < fixture_curve_n; i++) {
        const struct attn_point *p = &fixture_curve[i];
        int theirs = strcmp(p->spec, "bad") == 0, refused = p->c.pass == ATTN_BACKWARD;
        ck_assert_int_eq(p->status, !theirs              ? ATTN_POINT_OK
                                    : refused            ? ATTN_POINT_REFUSED
                                    : p->c.n_query == 64 ? ATTN_POINT_TIMEOUT
                                                         : ATTN_POINT_OK);
        ck_assert_msg(!theirs || !refused || strstr(p->message, "not claimed: backward") != NULL,
                      "%s", p->message);
    }
}

/* A plug-in that holds 64 MiB more shows 64 MiB more, and a mask given as bytes is not its
 * memory. */
TEST(extra_memory_of_a_plugin)
{
    fixture_plugin("plain.so", "bad", "HONEST");
    fixture_plugin("extra.so", "bad", "EXTRA FROM=64");
    fixture_measure(0,
                    "--plugin 'plain=%s' --plugin 'extra=%s' --length 1024 --mask "
                    "'none;causal(br)' --rounds 1 --repeat 1",
                    scratch_path("plain.so"), scratch_path("extra.so"));
    double of[2][2] = {{0}};
    for (int64_t i = 0; i < fixture_curve_n; i++) {
        const struct attn_point *p = &fixture_curve[i];
        ck_assert_msg(p->status == ATTN_POINT_OK, "%s", p->message);
        if (!fixture_memory_is_visible(p))
            return;
        of[strcmp(p->spec, "extra") == 0][p->mask_bytes > 0] = (double)p->resident_bytes;
    }
    for (int masked = 0; masked < 2; masked++)
        fixture_near_bytes("extra", of[1][masked] - of[0][masked], 64 * FIXTURE_MIB,
                           0.25 * FIXTURE_MIB);
    fixture_near_bytes("mask", of[0][1] - of[0][0], 0, 0.25 * FIXTURE_MIB);
}

/* The library's own dense as a plug-in, in conventions that are not ours: what attnlab does to
 * follow them is not on its curve, so that it lies on our own ledger. */
static const struct {
    const char *words;
    unsigned claims;
} convention[] = {{"NO_STRIDES SAYS_LAYOUT=1 SAYS_LSE=1", 0},
                  {"SAYS_LSE=2", ATTN_CAP_F32 | ATTN_CAP_BACKWARD | ATTN_CAP_DENSE}};

TEST_EACH(conventions_cost_nothing, COUNT(convention))
{
    const char *words = convention[_i].words;
    char claims[32] = "";
    if (convention[_i].claims != 0)
        snprintf(claims, sizeof claims, "CLAIMS=%u", convention[_i].claims);
    fixture_measure(0,
                    "dense --plugin 'full=%s' --length 1100 --pass fwd,bwd --rounds 1 "
                    "--repeat 1 --verify-all 0",
                    fixture_plugin("full.so", "full", "%s %s", words, claims));
    ck_assert_int_eq(fixture_curve_n, 4);
    for (int64_t i = 0; i < fixture_curve_n; i++) {
        const struct attn_point *p = &fixture_curve[i];
        ck_assert_msg(p->status == ATTN_POINT_OK, "%s", p->message);
        for (int64_t j = 0; j < fixture_curve_n; j++) {
            const struct attn_point *q = &fixture_curve[j];
            if (p->c.pass == q->c.pass && strcmp(p->spec, "full") == 0 &&
                strcmp(q->spec, "dense") == 0 && fixture_memory_is_visible(p))
                fixture_near_bytes(words, (double)p->resident_bytes, (double)q->ledger_bytes,
                                   0.5 * FIXTURE_MIB);
        }
    }
}

/* ---- bad input ------------------------------------------------------------------------------- */

#define TRIES(words) "measure dense --length 8 --out $folder/r.jsonl " words
static const struct scratch_row bad[] = {
    {TRIES("--plugin /nowhere.so"), 2, "/nowhere.so: cannot open"},
    {TRIES("--plugin README.md"), 2, "README.md: "},
    {TRIES("--plugin $folder/mine.so --plugin $folder/mine.so"), 2,
     "are both called bad: say --plugin NAME="},
    {TRIES("--plugin dense=$folder/mine.so"), 2, "is called dense, as one of ours is"},
    {TRIES("--plugin ''"), 2, "--plugin ''"},
    {TRIES("--claims $folder/claims.json"), 2, "has no --exec of its own before it"},
    {TRIES("--plugin $folder/mine.so --claims $folder/claims.json"), 2,
     "a plug-in says itself what it claims"},
    {TRIES("--exec true"), 2, "needs --claims FILE after it"},
    {TRIES("--exec true --claims /nowhere.json"), 2, "/nowhere.json"},
    {TRIES("--exec nosuchcommand --claims $folder/claims.json"), 2, "the command cannot be run: "},
    {TRIES("--exec 'A=1 nosuchcommand' --claims $folder/claims.json"), 2,
     "--exec 'A=1 nosuchcommand'"},
    {TRIES("--exec 'exit 3;' --claims $folder/claims.json"), 2, "ended with status 3"},
    {TRIES("--exec true --claims $folder/claims.json"), 2, "made no folder OUT/point"},
    {TRIES("--plugin $folder/slow.so --timeout 1"), 2, "no end after 1 s while it was loaded"},
};

TEST(bad_input)
{
    static const char claims[] = "{\"name\": \"mine\", \"claims\": [\"f32\"]}";
    fixture_plugin("mine.so", "bad", "HONEST");
    fixture_plugin("slow.so", "bad", "SLOW_START");
    scratch_put("claims.json", claims, sizeof claims - 1);
    for (size_t b = 0; b < COUNT(bad); b++) {
        scratch_rows(&bad[b], 1);
        ck_assert_ptr_eq(strchr(scratch_output, '\n'),
                         strrchr(scratch_output, '\n')); /* one line */
    }
    ck_assert_int_ne(access(scratch_path("r.jsonl"), F_OK), 0);
}

/* Names are words of plans: where one stands, and where it does not. */
TEST(names_in_plans)
{
    static const char plan[] = "rounds = 1\ngroup length-a\n spec = dense\n length = 8 16\n"
                               "group length-b\n spec = bad dense\n length = 8 16\n"
                               "limit bad = 8\ngroup ranks\n spec = ring:ranks=2\n length = 8\n";
    fixture_plugin("mine.so", "bad", "HONEST");
    const char *path = scratch_put("p.plan", plan, sizeof plan - 1);
    scratch_expect(2, "bad", "measure --dry-run --plan '%s'", path);
    scratch_expect(0, "", "measure --dry-run --plan '%s' --plugin '%s'", path,
                   scratch_path("mine.so"));
    int in_a = 0, in_b = 0, in_ranks = 0;
    for (char *line = strtok(scratch_output, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strstr(line, " bad ") == NULL)
            continue;
        in_a += strncmp(line, "length-a ", 9) == 0;
        in_b += strncmp(line, "length-b ", 9) == 0;
        in_ranks += strncmp(line, "ranks ", 6) == 0;
    }
    ck_assert_int_eq(in_a, 2);
    ck_assert_int_eq(in_b, 1);
    ck_assert_int_eq(in_ranks, 0);
}
