/* Commands refuse: usage, files that are none, a full disk.  Each refusal says what would work,
 * computes nothing and leaves nothing behind. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "tests/fixtures/obstacles.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(refusals, .open = scratch_open, .close = scratch_close);

static const struct scratch_row usage[] = {
    {"report --from x --out ''", 2, "--out '' names no folder"},
    {"report dense --from x --out $folder/d", 2, "without --plan and --from it works"},
    {"report --length 5 --out $folder/d", 2, "it goes with --plan or a SPEC"},
    {"price dense --length 0", 0, "note: --length 0: this extent is 0"},
    {"price dense --length 5 --color", 2, "NO_COLOR=1 turns them off"},
    {"price dense --len 5", 2, "did you mean --length?"},
    {"-v", 2, "attnlab --version says it"},
    {"check dense --case tinny", 2, "did you mean tiny?"},
    {"study opensora", 2, "did you mean open-sora-720gb?"},
    {"measure --plan $plan", 2, ":1: unknown key 'lenght' (did you mean length?)"},
};

TEST(usage_errors)
{
    setenv("plan", scratch_path("p.plan"), 1);
    scratch_shell(0, "", "echo 'lenght = 5' > \"$plan\"");
    scratch_rows(usage, COUNT(usage));
    ck_assert_int_eq(scratch_count(), 1);
}

/* An output that cannot be written is the environment's fault, in every command and for every flag.
 * It is found before the work, which would take hours or be seen, and has one line.  Nothing waits
 * for a FIFO. */
#define POINT "dense --length 8 --rounds 1 --repeat 1"
static const char *const out_of[] = {
    "price ring:ranks=2 --length 8 --log $to",
    "vectors $to --case ties",
    "measure " POINT " --out $to",
    "measure " POINT " --out $folder/new.jsonl --csv $to",
    "measure --from $records --csv $to",
    "report --from $records --out $to",
    "report --plan $plan --out $to",
    "check --exec 'echo begun >&2' --claims $claims --out $to",
    "check dense --report $to.md",
    "list masks --mask none --length 2 --out $to.svg",
};

TEST_EACH(unwritable, COUNT(out_of))
{
    static const char claims[] = "{\"name\": \"none\", \"claims\": [\"f32\"]}";
    setenv("claims", scratch_put("claims.json", claims, sizeof claims - 1), 1);
    setenv("records", scratch_path("r.jsonl"), 1);
    if (strstr(out_of[_i], "$records") != NULL)
        scratch_expect(0, "", "measure " POINT " --out %s", scratch_path("r.jsonl"));
    obstacles_refused(out_of[_i]);
}

/* A disk that is full only when gnuplot writes is the environment's fault too. */
static const char *const drawn[] = {"list masks --mask none --length 2 --out m.svg"};

TEST_EACH(no_room_for_a_picture, COUNT(drawn))
{
    scratch_shell(3, "No space left",
                  "b=$(realpath '%s') && cd '%s' && echo 'case $* in *--version) ;; "
                  "*) echo No space left; exit 1; esac' >gnuplot && chmod +x gnuplot && "
                  "PATH=$PWD:$PATH \"$b/attnlab\" %s",
                  test_build(), scratch_path(""), drawn[_i]);
}

/* A FIFO that is to be read is a bad file, at once; a link that the user names is followed, and
 * what is written goes to the file behind it. */
TEST(special_files)
{
    static const char *const reads[] = {
        "measure --plan $fifo --out /dev/null",
        "measure --from $fifo --csv -",
        "report --plan $fifo --out /nowhere",
        "report --from $fifo --out $fifo.d",
        "check --exec true --claims $fifo",
        "check --plugin $fifo",
        "measure --plugin x=$fifo --length 8 --out /dev/null",
    };
    static const char plan[] = "rounds = 1\ngroup length\n  spec = dense\n  length = 8\n";
    struct stat about;
    ck_assert_int_eq(mkfifo(scratch_path("fifo"), 0600), 0);
    setenv("fifo", scratch_path("fifo"), 1);
    for (size_t r = 0; r < sizeof reads / sizeof *reads; r++)
        scratch_expect(2, "not a regular file", "%s", reads[r]);
    scratch_put("plan", plan, sizeof plan - 1);
    scratch_put("table", "old", 3);
    ck_assert_int_eq(symlink("plan", scratch_path("plan-link")), 0);
    ck_assert_int_eq(symlink("table", scratch_path("table-link")), 0);
    scratch_expect(0, "1 points", "measure --plan %s --out %s --csv %s", scratch_path("plan-link"),
                   scratch_path("r.jsonl"), scratch_path("table-link"));
    ck_assert(lstat(scratch_path("table-link"), &about) == 0 && S_ISLNK(about.st_mode));
    ck_assert(stat(scratch_path("table"), &about) == 0 && about.st_size > 100);
}

/* Numbers at the ends of their type, with units that they cannot bear. */
static const char *const too_large[] = {"-9223372036854775808k", "-9223372036854775808",
                                        "9223372036854775807Ki", "-9223372036854775807G"};

TEST_EACH(counts, COUNT(too_large))
{
    scratch_expect(2, "is not an integer from 0 to", "price dense --length %s", too_large[_i]);
    ck_assert_msg(strstr(scratch_output, "runtime error") == NULL, "%s", scratch_output);
}

/* The readers' answers there; with a unit only a count is one. */
TEST(ends_of_integers)
{
    static const struct {
        const char *text;
        int is_count, is_int;
        int64_t value;
    } end[] = {{"-9223372036854775808", 1, 1, INT64_MIN},
               {"9223372036854775807", 1, 1, INT64_MAX},
               {"-9223372036854775809", 0, 0, 0},
               {"9223372036854775808", 0, 0, 0},
               {"9223372036854775k", 1, 0, INT64_MAX - 807},
               {"9223372036854776k", 0, 0, 0},
               {"-8589934592Gi", 1, 0, INT64_MIN},
               {"8589934592Gi", 0, 0, 0},
               {"-0", 1, 1, 0},
               {"-", 0, 0, 0},
               {"k", 0, 0, 0},
               {"1-2", 0, 0, 0}};
    for (int n = 0; n < COUNT(end); n++) {
        int64_t count = 0, whole = 0;
        ck_assert_int_eq(attn_cli_count(end[n].text, INT64_MIN, 0, &count), end[n].is_count);
        ck_assert_int_eq(attn_cli_int(end[n].text, INT64_MIN, INT64_MAX, &whole), end[n].is_int);
        ck_assert(!end[n].is_count || count == end[n].value);
        ck_assert(!end[n].is_int || whole == end[n].value);
    }
}

/* A case of hours says so before it begins. */
TEST(hours)
{
    const char *said = scratch_path("said");
    scratch_shell(0, "has up to 1.8e+13 operations",
                  "'%s/attnlab' check dense --case h65536q1031d64:none:f32:normal:s1 >'%s' 2>&1 & "
                  "until grep -q . '%s' || ! kill -0 $!; do sleep 0.02; done; kill $! && cat '%s'",
                  test_build(), said, said, said);
    scratch_expect(0, "PASS", "check dense --case h1q5d4:none:f32:normal:s1");
    ck_assert_msg(strstr(scratch_output, "operations") == NULL, "%s", scratch_output);
}
