/* Plug-ins: those that behave, misbehave, and declare what they do not do. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/attn_plugin.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/relations/relations.h"
#include "tests/suites.h"

SUITE(external, .open = scratch_open, .close = scratch_close);

static const char naive[] = "docs/examples/plugin_naive.c";

/* The naive example, misbehaving. */
static const char *build_bad(const char *words)
{
    return fixture_plugin("plugin.so", "bad", "%s", words);
}

static const char *build_plugin(const char *kind, const char *words, unsigned claims)
{
    if (claims == 0)
        return fixture_plugin("plugin.so", kind, "%s", words);
    return fixture_plugin("plugin.so", kind, "%s CLAIMS=%u", words, claims);
}

/* The library's own dense behind the plug-in interface; of these claims, 0: all. */
static const char *build_full(const char *words, unsigned claims)
{
    return build_plugin("full", words, claims);
}

/* ---- plug-ins that are right ----------------------------------------------------------------- */

/* Every convention that can be declared, followed as declared, several of them in one plug-in where
 * they do not meet: nothing may fail, and what is claimed must be judged. */
static const struct {
    const char *words;
    unsigned claims;
    int passes; /* at least */
} honest[] = {
    {"", 0, 20},
    {"SAYS_LSE=2", ATTN_CAP_F32 | ATTN_CAP_BACKWARD | ATTN_CAP_CROSS | ATTN_CAP_DENSE, 8},
    {"SAYS_EMPTY=1 SAYS_LSE=1", 0, 20},
    {"SAYS_WINDOW=1 SAYS_BYTE=1 SAYS_CAUSAL=1 DOES_CAUSAL=1 SAYS_EMPTY=2", 0, 20},
    {"SAYS_LAYOUT=1 NO_STRIDES SAYS_CAUSAL=2 DOES_CAUSAL=2", 0, 20},
    {"SAYS_LAYOUT=2 NO_STRIDES OLD", 0, 20},
    {"ALWAYS OWN_SCALE DECLINES=32", ATTN_CAP_F32 | ATTN_CAP_CROSS | ATTN_CAP_CAUSAL, 20},
    {"CAUSAL_FORWARD DECLINES=64",
     ATTN_CAP_F32 | ATTN_CAP_BACKWARD | ATTN_CAP_CROSS | ATTN_CAP_CAUSAL, 20},
};

TEST_EACH(declared_conventions_pass, COUNT(honest))
{
    const char *path = build_full(honest[_i].words, honest[_i].claims);
    scratch_expect(0, "", "check --plugin '%s'%s", path, fixture_some_cases());
    ck_assert_int_ge(fixture_count(scratch_output, "pass"), honest[_i].passes);
}

/* Ends of sequences, keys that are left out, a page of two sequences, a single key, no mask. */
#define SHARED_PAGE "--case 'b2h2q3k100d8:causal(ends,100,70):f32:normal:s1:layout=broadcast'"
#define PAGED                                                          \
    "--case 'b3h4g2q4k300d16v8:causal(ends,300,40,17):f32:normal:s3' " \
    "--case 'b2h2q3k40d8:keys(40,21):f32:normal:s1' " SHARED_PAGE      \
    " --case 'b2q1k33d8:keys(33,1):f32:normal:s2' --case 'h2q1k7d8:none:f32:normal:s1'"
#define PADDED                                                                                   \
    "--case 'b3q9k14d8v4:none:f32:normal:s3' --case 'h2q20d8:documents(3,1,9,7):f32:normal:s4' " \
    "--case 'b2h4g2q9k14d8v4:causal(br):f32:normal:s5:pass=bwd'"

enum {
    CAUSAL = ATTN_CAP_F32 | ATTN_CAP_CROSS | ATTN_CAP_CAUSAL,
    DOCUMENTS = CAUSAL | ATTN_CAP_GQA | ATTN_CAP_DV | ATTN_CAP_BACKWARD
};
static const struct {
    const char *words, *args, *says;
    unsigned claims;
    int status;
} asked[] = {
    {"DOES_CAUSAL=1", "--case mask-causal-wide --case bias-inf --case length-64-192",
     "fits causal(tl)", CAUSAL | ATTN_CAP_DENSE, 1},
    {"", "--case alone-f32-causal --case alone-f32-band --case alone-f32-dense",
     "1 pass, 0 fail, 2 refused", CAUSAL, 0},
    {"", "--case kv-shared --case kv-shared-all", "2 pass, 0 fail", 0, 0},
    {"NO_STRIDES", "--case kv-shared --case kv-shared-all", "2 pass, 0 fail", 0, 0},
    {"DECLINES=1", "--case bias-nan --case alone-f32-bias",
     "by what was declined: nan-bias 1 (1 alone)", 0, 0},
    {"DECLINES=6", "--case empty-rows-first --case bias-nan",
     "nan-q 1 (0 alone), nan-do 1 (0 alone)", 0, 0},
    {"DECLINES=16", "--case special-v-nan --case alone-f32",
     "by what was declined: nonfinite 1 (1 alone)", 0, 0},
    {"DECLINES=256", "--case alone-f32", "it declines 0x100", 0, 2},
    {"ALWAYS", "--case alone-f32-cross", "fits causal(", CAUSAL, 1},
    {"CAUSAL_FORWARD", "--case alone-f32-causal-backward", "backward() returned 1",
     CAUSAL | ATTN_CAP_BACKWARD, 1},
    {"OWN_SCALE", "--case alone-f32-scale", "0 pass, 1 fail", CAUSAL | ATTN_CAP_SCALE, 1},
    {"DOES_WINDOW=1", "--case mask-window-tile",
     "fits a window that counts the query's own key on both sides", 0, 1},
    {"SAYS_WINDOW=1 DOES_WINDOW=0", "--case mask-window-tile",
     "fits a window one key too long on both sides", 0, 1},
    {"LAYOUT=5", PAGED " --case alone-f32", "6 pass, 0 fail, 0 refused", 0, 0},
    {"LAYOUT=5", "--relation R16", "1 pass", 0, 0},
    {"LAYOUT=5 SIZE_16 PAGE=16", PAGED, "5 pass, 0 fail", 0, 0},
    {"LAYOUT=5 PAST", PAGED, "by 5 of 5 diagnosed failures: fits keys past the length read", 0, 1},
    {"LAYOUT=5 FIRST_TABLE", PAGED, "fits batch 0 in place of every batch in K and V", 0, 1},
    {"LAYOUT=5 NO_TABLE", PAGED, "fits keys past the length read, or a wrong page", 0, 1},
    {"LAYOUT=5 WRITES", SHARED_PAGE, "k: an input, or what lies around it, was changed", 0, 1},
    {"LAYOUT=3", PADDED, "3 pass, 0 fail, 0 refused", DOCUMENTS, 0},
    {"LAYOUT=4", PADDED, "3 pass, 0 fail, 0 refused", DOCUMENTS, 0},
    {"LAYOUT=4 UNPADDED", PADDED, "by 2 of 2 diagnosed failures: fits padding read", 0, 1},
    {"LAYOUT=5", "", "layout \"paged\" has no gradients", 2 | ATTN_CAP_BACKWARD, 2},
    {"LAYOUT=3", "", "have one order: do not claim strides", 2 | ATTN_CAP_STRIDES, 2},
    {"LAYOUT=4 PAGE=16", "", "\"page\" belongs to layout \"paged\"", 0, 2},
    {"LAYOUT=6", "", "its convention layout is 6, which does not exist", 0, 2},
};

/* Causal code that knows no window is asked for none, and by numbers: with the alignment mistaken
 * it fails, although it claims bytes too.  Declined cases are refused and counted.  A window is
 * counted with the query's own key by a plug-in that must not do so, and the reverse.  K and V come
 * in pages, and documents with padding between them, to plug-ins that read both right and wrong. */
TEST_EACH(claims_are_met_and_no_more, COUNT(asked))
{
    int is_placed = strncmp(asked[_i].words, "LAYOUT", 6) == 0;
    const char *path =
        build_plugin(is_placed ? "places" : "full", asked[_i].words, asked[_i].claims);
    scratch_expect(asked[_i].status, asked[_i].says, "check --plugin '%s' --refusals %s", path,
                   asked[_i].args);
}

/* ---- plug-ins whose declaration is wrong ----------------------------------------------------- */

static const struct {
    const char *words, *names;
} wrong[] = {
    {"DOES_LSE=1", "LSE is in base 2"},
    {"SAYS_LSE=1 DOES_LSE=0", "LSE is converted from base 2 once too often"},
    {"SAYS_EMPTY=1 DOES_EMPTY=0", "LSE is +inf for an empty row"},
    {"SAYS_BYTE=1 DOES_BYTE=0", "fits mask inverted"},
    {"SAYS_LAYOUT=1 DOES_LAYOUT=0 NO_STRIDES", "fits layout B"},

    {"DOES_EMPTY=1", "LSE is +inf for an empty row"},
    {"DOES_LAYOUT=1 NO_STRIDES", "fits layout BLHD"},
    {"DOES_BYTE=1", "fits mask inverted"},
    {"DOES_CAUSAL=1", "fits causal(tl)"},
    {"DOES_CAUSAL=2", "fits causal(br)"},
    {"SAYS_CAUSAL=1 DOES_CAUSAL=2", "fits causal(br)"},
    {"NO_SCALE", "fits scale missing"},
};

/* Most failing cases must carry the right name. */
TEST_EACH(wrong_conventions_are_named, COUNT(wrong))
{
    int named = 0, diagnosed = 0;
    const char *path = build_full(wrong[_i].words, 0);
    scratch_expect(1, "", "check --plugin '%s'%s", path, fixture_some_cases());
    const char *vote = strstr(scratch_output, " diagnosed failures: ");
    ck_assert_msg(vote != NULL && strstr(vote, wrong[_i].names) != NULL,
                  "%s is not named '%s':\n%s", wrong[_i].words, wrong[_i].names, scratch_output);
    while (vote > scratch_output && vote[-1] != '\n')
        vote--;
    ck_assert_int_eq(sscanf(vote, "  likely cause, by %d of %d", &named, &diagnosed), 2);
    ck_assert_msg(5 * named >= 3 * diagnosed, "only %d of %d", named, diagnosed);
}

/* Slips of textbook code, with the name that the diagnosis gives to a case, or in many cases ("")
 * to most failures.  A failure that no mistake explains gets no name. */
static const struct {
    const char *slip, *of, *names;
} slips[] = {
    {"NO_MAX", "", "diagnosed failures: fits exp(s) without the maximum"},
    {"NO_MAX_ZERO", "offset-m120",
     "fits exp(s) without the maximum, or a running maximum that starts at 0 or above, not at "
     "-inf (a sum of 0"},
    {"GROUP_MEAN", "gqa-6-2-sum",
     "and dv times 0.3333 (averaged over the 3 heads of a group, not summed)"},
    {"GROUP_MEAN", "gqa-8-1-sum",
     "and dv times 0.125 (averaged over the 8 heads of a group, not summed)"},
    {"GROUP_MEAN_K", "gqa-6-2-sum",
     "fits dk times 0.3333 (averaged over the 3 heads of a group, not summed)"},
    {"ADD_1E9", "mask-causal-back", "fits a finite number in place of -inf for hidden scores"},
    {"ADD_1E9 NO_LSE", "q4k3d2v3:causal(-1):f32:reveal:s1",
     "query [0,0,0] sees no key, and o has 0.33"},
    {"NO_LOG", "length-15-17", "LSE is m + l, without the logarithm"},
    {"TURNED", "length-15-17", "fits layout BLHD for the outputs alone"},
    {"TIMES", "length-15-17", "fits o times 1.25"},
    {"ONE_ELEMENT", "length-15-17", "; not recognised: 1 of "},
    {"TWO_KEYS",
     "b2h2q10k45d8:none:f32:normal:s1' --case 'q33k50d8:none:f32:normal:s2' --case "
     "'q33k60d8:none:f32:normal:s3",
     "by 3 of 3 diagnosed failures: fits keys 43 to 44 lost: the last 2\n"},
    {"FILL_30 TWO_KEYS", "", "list masks --mask MASK\n  likely cause, by "},
    {"FILL_30", "mask-causal-back", "fits -30 put in place of -inf for hidden scores"},
    {"MAX_1E4", "offset-m32k", "maximum that starts at -10000 or above"},
    {"MAX_1E4", "offset-m3e5-decode", "maximum that starts at -"},
    {"STEPS_DV", "decode-uneven", "fails only with dv other than d, one query"},
    {"DIAGONAL", "q40k45d8:causal(br):f32:normal:s1:pass=bwd",
     "fits of each 8 keys at the diagonal the first 2 alone seen (in the backward)"},
    {"TWICE", "q140k45d8:none:f32:normal:s1:pass=bwd",
     "fits queries 64 to 127 counted twice in dQ and dK"},
    {"HIDDEN_MAX", "stairs-up-causal", "fits the maximum taken over hidden keys too"},
    {"MASK_LATE", "reveal-batch-mask", "fits the mask applied behind the softmax"},
    {"MASK_BATCH", "reveal-batch-mask", "fits the mask of batch (b H + h) mod B"},
    {"CLAMP", "offset-m120", "fits scores clamped to +-50"},
    {"SCALE_INVERTED", "length-15-17", "fits a scale of 1 / scale: inverted"},
    {"SCALE_LATE NO_LSE", "length-15-17", "fits the scale applied to O, behind the softmax"},
    {"OVER_QUERIES NO_LSE", "length-15-17", "fits a softmax over the queries of a key"},
    {"OVER_HEADS NO_LSE", "length-15-17", "fits a softmax over the heads of a pair"},
    {"PADDED", "length-15-17", "fits 239 keys of score 0 behind the last: a tile of 256 padded"},
    {"PADDED", "b2h2g1q21k78d256:causal(br):f32:normal:s75",
     "behind the last: a tile of 256 padded"},
    {"INTERLEAVED", "gqa-6-2-sum", "fits heads interleaved in all tensors"},
    {"MEAN_K", "length-15-17", "LSE lacks scale q . mean(K)"},
    {"WIDE_ROWS", "width-40-33", "fits rows of O that are d numbers apart"},
    {"ZEROS", "length-15-17", "fits 0 in every element of o, lse"},
    {"LAST_FEATURE", "gqa-6-2-sum", "elements of dv are 0, feature 6 only (the last)"},
    {"LAST_FEATURE", "b2h4g2q128k256d16:none:f32:normal:s1:pass=bwd",
     "; too large for fault models: dv fails, feature 15 only (the last)"},
    {"LSE_BASE", "gqa-6-2-sum", "fits a backward that takes LSE in another base"},
    {"CACHED", "width-1-1' --case 'length-15-17", "what earlier calls left (a cache, a static)"},
    {"FIRST_CALL", "length-15-17", "right when it is run again: a race, or state that is kept"},
    {"FLUSH_Q", "faint-q", "beyond their bound"},
    {"MINUS_ZERO", "faint-q", "keys 0 to 20 lost: all"},
    {"EXP_FLOOR", "spike-first", "fits the exponent s - m clamped to at least -5"},
    {"EXP_FLOOR", "offset-m120", "fits the exponent s - LSE clamped to at least -5"},
    {"EXP_1E4", "length-15-17",
     "errors of about 1e-4 in all rows: low-precision products, or an exp"},
    {"EXP_1E4", "faint-q", "errors of about 1e-4 in all rows"},
    {"EXP_ADDS", "length-15-17", "fits an exp that is 1e-4 too large, whatever its argument"},
    {"F16_SUMS", "length-15-17", "fits sums of P V kept in f16, key by key"},
    {"NOT_LAST", "spike-last", "FAIL"},
    {"NO_TIES", "level-scores", "beyond their bound"},
    {"SPREAD", "level-scores", "are not finite where they should be"},
    {"ALIGNED", "layout-offset-1", "FAIL"},
    {"ALIGNED", "layout-offset-2", "FAIL"},
    {"DIFFERENCE", "special-v-inf", "FAIL"},
    {"LEAK", "", "bytes are lost in every call"},
};

TEST_EACH(slips_are_named, COUNT(slips))
{
    char one[200];
    snprintf(one, sizeof one, " --case '%s'", slips[_i].of);
    scratch_expect(1, slips[_i].names, "check --plugin '%s'%s",
                   fixture_plugin("plugin.so", "slips", "%s", slips[_i].slip),
                   slips[_i].of[0] != '\0' ? one : fixture_some_cases());
}

/* The faults of ADD_1E9 and DIFFERENCE above are none where they are declared. */
TEST(additive_masks_and_the_usual_merge_are_declared)
{
    scratch_expect(0, "1 pass, 0 fail, 1 refused",
                   "check --plugin '%s' --case special-v-inf --case length-15-17",
                   fixture_plugin("merge.so", "slips", "DIFFERENCE DECLINES=16"));
    scratch_expect(0, " 0 fail, ", "check --plugin '%s'%s",
                   fixture_plugin("plugin.so", "slips", "ADD_1E9 HIDDEN=900000000"),
                   fixture_some_cases());
    ck_assert_int_ge(fixture_count(scratch_output, "pass"), 20);
}

/* ---- relations and soak ---------------------------------------------------------------------- */

/* Relations run on what is claimed; what is refused says why, in the summary. */
TEST(relations_are_run)
{
    int passed = -1;
    const char *path = build_full("", 0);
    scratch_expect(0, "", "check --plugin '%s' --relation all --refusals", path);
    const char *count = strstr(scratch_output, "relations: ");
    ck_assert_msg(count != NULL && sscanf(count, "relations: %d pass", &passed) == 1, "%s",
                  scratch_output);
    ck_assert_msg(passed == ATTN_RELATION_COUNT - 3, "%s", scratch_output);
    ck_assert_msg(strstr(scratch_output, "refused relations D2: a plug-in starts the threads") !=
                      NULL,
                  "%s", scratch_output);
    scratch_expect(0, "relations: 1 pass", "check --plugin '%s' --relation R7", path);
    scratch_expect(2, "", "check --plugin '%s' --relation R99", path);
}

/* Last bits that change from call to call pass every case, and fail D1 where equal bits are
 * claimed. */
TEST(relations_see_what_cases_do_not)
{
    const char *path = build_bad("UNSTEADY");
    int runs_relations = getenv("ATTN_FULL") != NULL; /* with all cases */
    scratch_expect(runs_relations, " pass, 0 fail,", "check --plugin '%s'%s", path,
                   fixture_some_cases());
    scratch_expect(1, "FAIL(exact)  bad  thirty runs have the same bits",
                   "check --plugin '%s' --relation D1", path);
    scratch_has("--relation D1\n");
}

/* A soak finds a mistake, makes it small, and says what it looks like. */
TEST(soak_shrinks)
{
    const char *path = build_full("NO_SCALE", 0);
    scratch_expect(1, "made small in ", "check --plugin '%s' --soak 2 --seed 3", path);
    scratch_has("looks like: fits scale missing");
    scratch_has("random cases of seed 3");
}

/* ---- failures that come and go --------------------------------------------------------------- */

/* One wrong element in one call of a thousand.  The number of calls decides, not the time: a soak
 * comes to the thousandth after some sixty cases, and ends there. */
TEST(soak_finds_a_race)
{
    const char *path = build_bad("RACE");
    scratch_expect(1, "\nINTERMITTENT(", "check --plugin '%s' --soak 200", path);
    scratch_has(" as found it failed in ");
    scratch_has(", this smaller case in ");
    scratch_has("  found as: ");
    scratch_has("  differs: o: 1 of ");
    scratch_has("FAIL: ");
    scratch_has(" 1 intermittent,");
    scratch_again(1, "INTERMITTENT(");
}

/* Right in a fresh process, wrong in one that has served a while: no smaller case makes a PASS of
 * it, and the report says which calls failed. */
TEST(soak_finds_a_state)
{
    const char *path = build_bad("STALE");
    scratch_expect(1, "\nINTERMITTENT(", "check --plugin '%s' --soak 200", path);
    scratch_has("failed by call ");
}

/* --repeat is a soak of one case, in every format. */
TEST(intermittent_in_every_format)
{
    static const struct {
        const char *format, *says[3];
    } form[] = {
        {"text", {"INTERMITTENT(bound)  bad", "  runs: failed in 1 of 1001", " 1 intermittent, "}},
        {"junit", {"failures=\"1\"", "type=\"INTERMITTENT(bound)\"", "name=\"differs\""}},
        {"json", {"\"verdict\": \"INTERMITTENT\"", "\"of\": 1001", "\"INTERMITTENT\": 1"}},
    };
    const char *path = build_bad("RACE"), *flags = "--case b2h2q9k9d8:none:f32:normal:s1";
    scratch_expect(0, "", "check --plugin '%s' %s --repeat 999", path, flags);
    for (int f = 0; f < COUNT(form); f++) {
        scratch_expect(1, "", "check --plugin '%s' %s --repeat 1001 --format %s", path, flags,
                       form[f].format);
        for (int n = 0; n < 3; n++)
            scratch_has(form[f].says[n]);
    }
}

/* A claim so small that no case of the first 600 is left: no verdict. */
TEST(soak_that_judges_nothing)
{
    static const char claims[] = "{\"name\": \"shy\", \"claims\": [\"f64\"]}";
    const char *path = scratch_put("claims.json", claims, sizeof claims - 1);
    static const char refuse[] = "out=$2; cd \"$1\"; set -- */; cd \"$out\"; mkdir -p \"$@\"; "
                                 "for d; do echo never >$d/refused.txt; done\n";
    const char *command = scratch_put("refuse.sh", refuse, sizeof refuse - 1);
    scratch_expect(2, "not one case could be judged",
                   "check --exec 'sh %s' --claims '%s' --soak 0.01", command, path);
    scratch_has("FAIL: 600 random cases of seed 1: 0 pass, 0 fail");
}

/* ---- plug-ins that misbehave ----------------------------------------------------------------- */

static const struct {
    const char *bad;
    int status;
    const char *says, *and_says; /* and_says: that the rest ran */
} misbehaviour[] = {
    {"CRASH", 1, "Segmentation fault in forward; looks like: fails only with 97 keys, not 112",
     " 4 crash"},
    {"HANG", 1, "no end after 5 s in forward", " 3 timeout"},
    {"WRITE_NEAR", 1, "o: 1 elements of the red zone overwritten, the nearest 1 past the end",
     "FAIL(integrity)"},
    {"WRITE_FAR", 1, "it touched an address 4096 bytes past the end of o", " 4 crash"},
    {"CHANGE", 1, "k, an input, was written to at [0,0,0,0]", "FAIL(integrity)"},
    {"UNWRITTEN", 1, "elements not written", "FAIL(integrity)"},
    {"LEAK", 1, "bytes are lost in every call", "FAIL(memory)"},
    {"LEAVE", 1, "it left with exit(3) in forward", " 4 crash"},
    {"ABORTS", 1, "Aborted in forward", " 4 crash"},
    {"DEEP", 1, "Segmentation fault in forward", " 4 crash"},
    {"CLOSER", 1, "it left with exit(3) in forward", " crash"},
    {"CHATTER", 0, "PASS: ", " 0 fail"},
    {"SAYS_NO", 1, "forward() returned 7: 97 keys are too many?for me", " 4 fail"},
    {"OVERCLAIM", 1, "dbias is claimed, but no case", " 1 error"},
    {"OLD_ABI", 2, "speaks plug-in ABI 8, this program speaks 2", ""},
    {"NOTHING", 2, "attn_plugin_get() returned NULL", ""},
    {"ODD_CLAIM", 2, "it claims bit 30", ""},
    {"BAD_START", 2, "Segmentation fault while it was loaded", ""},
    {"SLOW_START", 2, "no end after 1 s while it was loaded", ""},
    {"NO_FORWARD", 2, "it has no forward()", ""},
    {"RANKS NO_FORWARD", 2, "it has no rank_forward()", ""},
    {"RANKS BLHD", 2, "ranks have their tensors in layout BHLD alone", ""},
    {"RANKS SKIPS_A_HOP", 1, "rank 1 waits to receive k (step 0): rank 0 has left", " fail"},
    {"RANKS DOES_NOT_WAIT", 1, "ended without waiting for its post to send", " fail"},
    {"RANKS WAITS_TWICE", 1, "waits for post 0, which is not open", " fail"},
    {"RANKS PAST_ITS_PART", 1, "a rank wrote past the end of its part of a tensor", " fail"},
    {"FORK_START FORK_LATE RUBBISH_START RUBBISH", 0, "PASS: ", " 0 fail"},
    {"KILL_PARENT", 1, "it ended the process that had started it", "FAIL(integrity)"},
    {"HANG_ALL", 1, "cases and relations were not reached: 3 times it did not end", " 3 timeout,"},
};

TEST_EACH(misbehaviour_is_a_verdict, COUNT(misbehaviour))
{
    const char *path = build_bad(misbehaviour[_i].bad);
    int never_ends = strcmp(misbehaviour[_i].bad, "HANG_ALL") == 0 ||
                     strcmp(misbehaviour[_i].bad, "SLOW_START") == 0;
    int seconds = never_ends ? 1 : strcmp(misbehaviour[_i].bad, "HANG") == 0 ? 5 : 60;
    int whole = strcmp(misbehaviour[_i].bad, "OVERCLAIM") == 0 ||
                strcmp(misbehaviour[_i].bad, "HANG_ALL") == 0;
    int status = misbehaviour[_i].status;
    /* Descriptor 9 is the user's, and no plug-in's. */
    scratch_expect(misbehaviour[_i].status, misbehaviour[_i].says,
                   "check --plugin '%s' --timeout %d%s 9>'%s'", path, seconds,
                   whole ? "" : fixture_some_cases(), scratch_path("theirs"));
    char *theirs = scratch_read(scratch_path("theirs"));
    ck_assert_str_eq(theirs, "");
    free(theirs);
    scratch_has(misbehaviour[_i].and_says);
    if (status == 2) /* one line, and nothing else */
        ck_assert_ptr_eq(strchr(scratch_output, '\n'), scratch_output + strlen(scratch_output) - 1);
}

/* The largest case leaks, after it has passed: no case is counted twice. */
TEST(one_case_has_one_verdict)
{
    scratch_shell(1, "",
                  "'%s/attnlab' check --plugin '%s'%s --format json 2>&1 | grep '\"text\":' | "
                  "sort | uniq -d | grep .",
                  test_build(), build_bad("LEAK"), fixture_some_cases());
}

/* The end of the budget ends a case at work; what was not reached is named, and is no pass. */
#define SMALL "b2h2q9k9d8:none:f32:normal:s1"
static const struct {
    const char *args, *says[3];
} budget[] = {
    {"--plugin $hang --plugin $hang",
     {" 1 pass, 0 fail, 0 refused, 0 weak, 1 skipped, 1 error",
      "cases and relations were not reached: the budget of ", "not begun: the budget of "}},
    {"--exec 'sleep 1000 #' --claims $claims --format junit",
     {" failures=\"0\" errors=\"1\" skipped=\"2\"", "<skipped message=\"not reached",
      " s is used up"}},
    {"--exec 'sleep 1000 #' --claims $claims --format json",
     {"\"SKIPPED\": 2", "\"name\": \"case-2\"", "\"PASS\": 0"}},
};

TEST_EACH(budget_ends_it, COUNT(budget))
{
    static const char claims[] = "{\"name\": \"c\", \"claims\": [\"f32\", \"cross\"]}";
    setenv("hang", build_bad("HANG"), 1);
    setenv("claims", scratch_put("claims.json", claims, sizeof claims - 1), 1);
    /* a loaded machine may need more than the first budget for the case that passes */
    for (int seconds = 1; seconds < 900; seconds *= 4) {
        ck_assert_int_eq(scratch_attnlab("check %s --budget %d --timeout 1000 --case " SMALL
                                         " --case q10k97d8:none:f32:spike:s5",
                                         budget[_i].args, seconds),
                         3);
        if (strstr(scratch_output, budget[_i].says[0]) != NULL)
            break;
    }
    scratch_has(budget[_i].says[0]);
    scratch_has(budget[_i].says[1]);
    scratch_has(budget[_i].says[2]);
}

/* ---- plug-ins that refuse while they run ----------------------------------------------------- */

/* A refusal is no pass and no failure, but with --strict; a claim that was refused in every case is
 * not verified, and with nothing judged there is no verdict.  Earlier damage counts for more, and
 * so does a result that was given once. */
static const struct {
    const char *kind, *words, *args; /* args NULL: some cases */
    int status;
    const char *says, *and_says;
} refusals[] = {
    {"bad", "REFUSE", NULL, 0, " refused (4 by it), ",
     "\n    4: no kernel for 97 keys?; h2q10k97d8:none:f32:"},
    {"bad", "REFUSE", "--strict --case " SMALL " --case h2q10k97d8:none:f32:spike:s5", 1,
     "REFUSED  bad  h2q10k97d8:none:f32:spike:s5\n  no kernel for 97 keys?\n", "FAIL: 1 pass, "},
    {"bad", "REFUSE FROM=1", "--case " SMALL, 2,
     "not one case could be judged: all were refused, 1", "(1 by it)"},
    {"bad", "REFUSE FROM=1", "--soak 0.1", 2, "not one case could be judged: all were refused,",
     "random cases of seed 1: 0 pass, 0 fail"},
    {"bad", "REFUSE MUTE", NULL, 1, "it refuses, and does not say why", " 4 fail, "},
    {"bad", "REFUSE WRITE_NEAR", NULL, 1, "o: 1 elements of the red zone overwritten", " 4 fail, "},
    {"bad", "TIRED", "--case " SMALL " --repeat 60", 1, "fwd: claimed, and then refused: no kernel",
     "failed in 20 of 60"},
    {"full", "REFUSES=0 CLAIMS=3", "", 1, "f64 is claimed, but it refused every case with it, ",
     " 1 error"},
    {"full", "REFUSES=-1 CLAIMS=18", "", 1,
     "backward is claimed, but it refused every case with it, ", " 1 error"},
    {"full", "REFUSES=1 CLAIMS=2", "--relation all", 2, "all were refused,", "no such kernel; "},
};
#undef SMALL

TEST_EACH(refusals_are_no_passes, COUNT(refusals))
{
    const char *args = refusals[_i].args;
    scratch_expect(refusals[_i].status, refusals[_i].says, "check --plugin '%s' --refusals %s",
                   fixture_plugin("plugin.so", refusals[_i].kind, "%s", refusals[_i].words),
                   args != NULL ? args : fixture_some_cases());
    scratch_has(refusals[_i].and_says);
}

/* Flush-to-zero at load, upward rounding after a call: the same verdicts and figures as without,
 * and a note. */
TEST(environment_does_not_leak)
{
#if !defined(__SSE__)
    fprintf(stderr, "external: skipped: no MXCSR on this machine\n");
    return;
#endif
    char worst[64]; /* the honest one's figure */
    const char *path = build_bad("");
    scratch_expect(0, "worst error/bound of a pass ", "check --plugin '%s'%s", path,
                   fixture_some_cases());
    snprintf(worst, sizeof worst, "%.36s", strstr(scratch_output, "worst error/bound of a pass "));
    ck_assert_ptr_null(strstr(scratch_output, "floating-point environment"));
    path = build_bad("FLUSH");
    scratch_expect(0, worst, "check --plugin '%s'%s", path, fixture_some_cases());
    scratch_has("loading it changed the floating-point environment "
                "(flush-to-zero on, denormals-are-zero on)");
    scratch_has("calls changed the floating-point environment (another rounding");
}

/* A process in a session of its own is ended with the check. */
TEST(nothing_lives_on)
{
    const char *path = build_bad("DAEMON"), *number = scratch_path("daemon");
    int pid = 0;
    ck_assert_int_eq(setenv("BAD_DAEMON", number, 1), 0);
    scratch_expect(0, "", "check --plugin '%s'%s", path, fixture_some_cases());
    FILE *file = fopen(number, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d", &pid), 1);
    fclose(file);
    ck_assert_msg(pid > 1 && kill(pid, 0) < 0, "process %d lives on", pid);
    scratch_has("processes that it had left behind were ended");
}

/* The naive example passes the whole tier, but for shared heads, whose models are large (README.md
 * has a mistake in them that the whole tier finds); the page says who was judged and on what. */
TEST(page_of_a_plugin)
{
    const char *own = scratch_path("own.c"), *page = scratch_path("page.md");
    scratch_shell(0, "", "sed 's/ATTN_CAP_GQA | //' %s > '%s'", naive, own);
    const char *path = fixture_build(own);
    scratch_expect(0, "claims f32 cross dv scale dense", "check --plugin '%s' --report '%s'", path,
                   page);
    scratch_has(" 0 fail, ");
    ck_assert_int_ge(fixture_count(scratch_output, "pass"), 40);
    ck_assert_int_ge(fixture_count(scratch_output, "refused"), 100);
    scratch_has("VmHWM");
    static const char *const want[] = {
        "grep -q \"SHA-256 of it | .*$(sha256sum $P | cut -c1-64)\" $R",
        "grep -q '^| claims | f32 cross dv scale dense repeats |$' $R",
        "grep -q '^| judged on | the quick tier of seed 1, ' $R",
        "grep -q '^| .lse. | [0-9]* | [0-9]* | 0 | 0[.]' $R",
        "grep -q '^ *judged at the shapes of: gpt-2, .*, whisper-large, ' $R",
        "grep -q '^ *shapes that the claims leave out: .* gemma-2-9b without gqa softcap, ' $R",
        "grep -q '^ *refused cases, by the claim.* backward [0-9]* ([0-9]* alone)' $R",
    };
    for (size_t n = 0; n < sizeof want / sizeof *want; n++)
        ck_assert_msg(fixture_shell("P='%s' R='%s'; %s", path, page, want[n]) == 0, "%s", want[n]);
    /* The smallest failure is a picture: heads 0, 5, 6 and 11 of 12 read the right one of 4. */
    static const char mistake[] = "sed 's|h / group|h % t->kv_heads|'";
    const char *heads = scratch_path("heads.c");
    scratch_shell(0, "", "%s %s > '%s'", mistake, naive, heads);
    scratch_expect(1, "", "check --plugin '%s' --report '%s' --case h12g4q2k3d4:none:f32:normal:s1",
                   fixture_build(heads), page);
    for (int head = 0; head < 12; head++)
        scratch_shell(0, "", "grep -q '^ *0,%d  %s$' '%s'", head,
                      head == 0 || head == 5 || head == 6 || head == 11 ? "··" : "■■", page);
    /* The line that repeats what was judged does so. */
    path = build_bad("RACE");
    scratch_expect(1, "",
                   "check --plugin '%s' --case b2h2q9k9d8:none:f32:normal:s1 --repeat "
                   "1001 --report '%s'",
                   path, page);
    scratch_shell(0, "", "grep -q '^    INTERMITTENT(bound)  ' '%s'", page);
    scratch_shell(1, " 1 intermittent,",
                  "eval \"$(sed -n '/^The line that repeats it/,$ s/^    //p' '%s' | head -1)\"",
                  page);
}

TEST_EACH(not_a_plugin, 5)
{
    static const char *const cases[][2] = {
        {"%s/libattn.so", "has no attn_plugin_get()"},
        {"/nonexistent.so", "cannot open shared object file"},
        {"README.md", "README.md: "},
        {"tests", "tests: "},
        {"", "attnlab check: "},
    };
    char path[512];
    snprintf(path, sizeof path, cases[_i][0], test_build());
    scratch_expect(2, cases[_i][1], "check --plugin '%s'", path);
    ck_assert_ptr_eq(strchr(scratch_output, '\n'), scratch_output + strlen(scratch_output) - 1);
}
