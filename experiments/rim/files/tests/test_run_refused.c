/* `attnlab run` refuses: usage, contradictions, too little memory, a full disk.  Each refusal says
 * what would work, computes nothing and leaves nothing behind.  And the file of its messages. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/rim/files/tests/small_input.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/message_log.h"
#include "tests/fixtures/obstacles.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(refusals, .open = scratch_open, .close = scratch_close);

static const struct scratch_row usage[] = {
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

TEST(usage_of_run)
{
    struct small s;
    small_make(&s, 3);
    setenv("tensors", small_save(&s), 1);
    setenv("none", scratch_path("none"), 1);
    setenv("fifo", scratch_path("none/fifo"), 1);
    ck_assert_int_eq(mkdir(scratch_path("none"), 0700), 0);
    scratch_rows(usage, COUNT(usage));
    ck_assert_int_eq(mkfifo(scratch_path("none/fifo"), 0600), 0);
    scratch_expect(2, "not a regular file", "run dense --input $fifo --compare");
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

/* Found before the work, which would take hours. */
#define HOURS "ring:ranks=2,local=tiled-textbook --scale 1 --mask none --input $x"
static const char *const out_of[] = {
    "run " HOURS " --out $to",
    "run " HOURS " --out $to --format npy",
    "run " HOURS " --compare --log $to",
};

TEST_EACH(unwritable_results, COUNT(out_of))
{
    setenv("x", million_rows(), 1);
    obstacles_refused(out_of[_i]);
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

/* ---- the file of messages --- */

static const char *const real = "tests/data/gpt-causal.safetensors"; /* h2 q512 d64, causal */

/* run and price write the same file, and its sums are the price. */
TEST_EACH(files_say_the_same, 2)
{
    static const char *const specs[] = {"ring:ranks=3,order=zigzag", "ulysses:ranks=3"};
    struct attn_spec spec = spec_of(specs[_i]);
    struct attn_setup setup;
    struct logged_rank sent[2][8] = {0};
    int ranks = attn_ranks(spec.impl, &spec.options);
    scratch_expect(0, " ok ", "run %s --input %s --compare --log %s", specs[_i], real,
                   scratch_path("run.jsonl"));
    scratch_expect(0, "sends",
                   "price %s --length 512 --heads 2 --mask 'causal(br)' --pass both --log %s",
                   specs[_i], scratch_path("price.jsonl"));
    char *of_run = log_text(scratch_path("run.jsonl"));
    char *of_price = log_text(scratch_path("price.jsonl"));
    ck_assert_str_eq(of_run, of_price);
    log_sum(of_run, ranks, "f32", sent);
    setup_of("b1h2g2q512k512d64v64:causal(br):f32:normal:s1", &setup);
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < ranks; r++) {
            struct attn_cost cost = price_of(&spec, &setup.problem, (enum attn_pass)pass, r);
            ck_assert(cost.messages > 0);
            ck_assert_int_eq(sent[pass][r].messages, cost.messages);
            ck_assert_int_eq(sent[pass][r].bytes, cost.bytes_sent);
        }
    attn_setup_close(&setup);
    free(of_run);
    free(of_price);
}

TEST(log_of_one_process)
{
    scratch_expect(2, "tiled is one process", "run tiled --input %s --compare --log %s", real,
                   scratch_path("log.jsonl"));
    ck_assert_int_eq(scratch_count(), 0);
}

/* A full disk is reported, not ignored. */
TEST(full_disk_of_tensors)
{
    if (access("/dev/full", W_OK) != 0)
        return;
    scratch_expect(3, "No space left", "run dense --input %s --compare >/dev/full", real);
    scratch_expect(3, "No space left", "compare %s %s >/dev/full", real, real);
}
