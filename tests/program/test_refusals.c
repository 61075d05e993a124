/* `attnlab run` refuses: usage, contradictions, too little memory, a full disk.  Each refusal says
 * what would work, computes nothing and leaves nothing behind. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "tests/fixtures/scratch.h"
#include "tests/fixtures/small_input.h"
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
    {"run", 2, "an argument is missing: attnlab run SPEC"},
    {"run dense", 2, "tensors are missing"},
    {"run dense tiled-textbook --input $tensors --compare", 2, "'tiled-textbook' is left over"},
    {"run dense --input $tensors", 2, "--out DIR"},
    {"run dense --input $folder/absent --compare", 2, "No such file"},
    {"run dense --input $none --compare", 2, "the folder holds no"},
    {"run dense --input $tensors --compare --format png", 2, "safetensors or npy would work"},
    {"run dense --input $tensors --compare --layout HBLD", 2,
     "BHLD, BLHD, SBHD, BLE and THD exist"},
    {"run dense --input $tensors --compare --pass back", 2, "fwd, bwd or both would work"},
    {"run dense --input $tensors --compare --scale inf", 2, "finite number"},
    {"run dense --input $tensors --compare --softcap -1", 2, "softcap"},
    {"run dense --input $tensors --compare --mask causal", 2, "tl"},
    {"run dense --input $tensors --compare --mask 'causal(br)&'", 2, "mask"},
    {"run dense --input $tensors --compare --alibi 1", 2, "one for each of 2 heads"},
    {"run dense --input $tensors --compare --alibi 1,2,3", 2, "one for each of 2 heads"},
    {"run dense --input $tensors --compare --alibi 1,", 2, "not a finite slope"},
    {"run dense --input $tensors --compare --alibi 1,2", 2, "say --alibi-align"},
    {"run dense --input $tensors --compare --alibi 1,2 --alibi-align 3", 2, "signed offset"},
    {"run dense --input $tensors --compare --alibi-align br", 2, "without alibi"},
    {"run ring:ranks=2,sizes=strict --input $tensors --compare --mask none", 2,
     "ranks that divide"},
};

TEST(usage_errors)
{
    struct small s;
    small_make(&s, 3);
    setenv("tensors", small_save(&s), 1);
    setenv("none", scratch_path("none"), 1);
    setenv("plan", scratch_path("none/p.plan"), 1);
    ck_assert_int_eq(mkdir(scratch_path("none"), 0700), 0);
    scratch_shell(0, "", "echo 'lenght = 5' > \"$plan\"");
    scratch_rows(usage, COUNT(usage));
    ck_assert_int_eq(scratch_count(), 2);
}

/* A folder of q, k and v of zeros, which are holes in the files. */
static const char *million_rows(void)
{
    static const char *const name[] = {"x/q.npy", "x/k.npy", "x/v.npy"};
    ck_assert_int_eq(mkdir(scratch_path("x"), 0700), 0);
    for (int t = 0; t < 3; t++) {
        char header[128] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1)}";
        const char *x = scratch_npy(name[t], header, "", 0);
        ck_assert_int_eq(truncate(x, (off_t)(10 + strlen(header)) + 4000000), 0);
    }
    return scratch_path("x");
}

/* An output that cannot be written is the environment's fault, in every command and for every flag.
 * It is found before the work, which would take hours or be seen, and has one line.  Nothing waits
 * for a FIFO. */
#define HOURS "ring:ranks=2,local=tiled-textbook --scale 1 --mask none --input $x"
#define POINT "dense --length 8 --rounds 1 --repeat 1"
static const char *const out_of[] = {
    "run " HOURS " --out $to",
    "run " HOURS " --out $to --format npy",
    "run " HOURS " --compare --log $to",
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

/* The obstacles; at the last there is one byte of room. */
#define IN_EACH                                                                 \
    "taken.md taken.svg taken/result.safetensors taken/o.npy taken/index.html " \
    "taken/figures/style.gp taken/manifest.json "                               \
    "taken/cases/manifest.json"
static const struct {
    const char *to, *says, *before;
} in_the_way[] = {
    {"none", "No such file or directory", "to=$to/x"},
    {"/proc", "", "to=$to/x"},
    {"plan", "Not a directory", "to=$to/x"},
    {"fifo", "", "true"},
    {"taken", "Is a directory", "true"},
    {"loop", "Too many levels of symbolic links", "true"},
    {"x-to-the-300th", "File name too long", "to=$folder/$(printf %0300d 0)x-to-the-300th"},
    {"new", "File too large", "ulimit -f 0"},
};

TEST_EACH(unwritable, COUNT(out_of))
{
    static const char claims[] = "{\"name\": \"none\", \"claims\": [\"f32\"]}";
    static const char plan[] = "rounds = 1\ngroup length\n  spec = dense\n  length = 8\n";
    const char *line = out_of[_i];
    setenv("x", million_rows(), 1);
    setenv("folder", scratch_path(""), 1);
    setenv("claims", scratch_put("claims.json", claims, sizeof claims - 1), 1);
    setenv("plan", scratch_put("plan", plan, sizeof plan - 1), 1);
    setenv("records", scratch_path("r.jsonl"), 1);
    scratch_shell(0, "",
                  "cd '%s' && mkfifo fifo fifo.md fifo.svg && mkdir -p " IN_EACH
                  " && for l in loop loop.md loop.svg; do ln -s $l $l; done",
                  scratch_path(""));
    if (strstr(line, "$records") != NULL)
        scratch_expect(0, "", "measure " POINT " --out %s", scratch_path("r.jsonl"));
    for (int t = 0; t < COUNT(in_the_way); t++) {
        const char *to = in_the_way[t].to;
        if (strncmp(line, "report", 6) == 0 && strcmp(to, "none") == 0)
            continue; /* it makes them */
        setenv("to", to[0] == '/' ? to : scratch_path(to), 1);
        scratch_shell(3, to, "%s; timeout 60 '%s/attnlab' %s", in_the_way[t].before, test_build(),
                      line);
        scratch_has(in_the_way[t].says);
        ck_assert_msg(strchr(scratch_output, '\n')[1] == '\0', "%s\n%s", line, scratch_output);
    }
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
        "run dense --input $fifo --compare",
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

/* Files whose metadata or shapes contradict themselves or each other: a pair of metadata, or a
 * tensor added, or one of q, k, v, do in another shape, type or name. */
static const struct {
    const char *says, *key, *value;
    int which; /* of q, k, v, do; 4: it is added */
    const char *name;
    int n_axes;
    int64_t extent[4]; /* all four, of which the last n_axes count */
    enum attn_file_dtype dtype;
} contradiction[] = {
    {.says = "--mask 'causal(tl)'", .key = "mask", .value = "causal"},
    {.says = "--mask 'causal(br)'", .key = "mask", .value = "causal"},
    {.says = "'key_mask'", .key = "mask", .value = "padding"},
    {.says = "finite number", .key = "scale", .value = "\33[31m"},
    {.says = "are understood", .key = "layout", .value = "H,B,L,d"},
    {.says = "softcap = -1", .key = "softcap", .value = "-1"},
    {"o is [1,2,3,3]: [1,2,3,4] would", 0, 0, 4, "o", 4, {1, 2, 3, 3}, ATTN_FILE_F32},
    {"lse is [1,2,4]: [1,2,3] would", 0, 0, 4, "lse", 3, {0, 1, 2, 4}, ATTN_FILE_F32},
    {"bias is [2,6]", 0, 0, 4, "bias", 2, {0, 0, 2, 6}, ATTN_FILE_F32},
    {"needs 4 axes", 0, 0, 1, "k", 3, {0, 1, 2, 6}, ATTN_FILE_F32},
    {"different heads", 0, 0, 2, "v", 4, {1, 1, 6, 4}, ATTN_FILE_F32},
    {"different features", 0, 0, 1, "k", 4, {1, 2, 6, 3}, ATTN_FILE_F32},
    {"has no tensor 'v'", 0, 0, 2, "V", 4, {1, 2, 6, 4}, ATTN_FILE_F32},
    {"stored as I32", 0, 0, 0, "q", 4, {1, 2, 3, 4}, ATTN_FILE_I32},
    {"must be alike", 0, 0, 0, "q", 4, {1, 2, 3, 4}, ATTN_FILE_F16},
};

TEST_EACH(contradictions, COUNT(contradiction))
{
    struct small s;
    small_make(&s, 3);
    if (contradiction[_i].key != NULL) {
        small_say(&s, contradiction[_i].key, contradiction[_i].value);
    } else {
        const int64_t *x = contradiction[_i].extent;
        int n = s.n;
        s.n = contradiction[_i].which;
        small_add(&s, contradiction[_i].name, contradiction[_i].n_axes, x[0], x[1], x[2], x[3])
            ->dtype = contradiction[_i].dtype;
        s.n = n > s.n ? n : s.n;
    }
    scratch_expect(2, contradiction[_i].says, "run dense --input %s --compare", small_save(&s));
}

/* A million tokens: 3.6 TiB of scores, from files of 4 MB that are holes.  Refused at once, with
 * the price; a sparse mask makes it possible, and 64 rows are compared. */
TEST(priced_before_allocated)
{
    const char *x = million_rows();
    scratch_expect(3, "scores 3.64 TiB", "run dense --input %s --compare", x);
    scratch_expect(0, "compared: 64 of 1000000 rows",
                   "run csr-textbook --input %s --compare --mask 'window(1,0,br)'", x);
}
