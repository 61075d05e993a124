/* attnlab compare: two files or folders in, a verdict out. */
#include "tests/suites.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fixtures/scratch.h"
#include "tests/harness/base/files.h"

SUITE(compare, .open = scratch_open, .close = scratch_close);

/* Compare in the scratch folder: status and a piece of what is said. */
static void compares(int status, const char *says, const char *arguments)
{
    /* the program by its full path, the files by their names */
    scratch_shell(status, says, "cd '%s' && '%s/attnlab' compare %s", scratch_path(""),
                  scratch_full_path(test_build()), arguments);
}

static void put(const char *name, const struct attn_file_tensor *tensor, int n)
{
    struct attn_error err = {0};
    size_t length = strlen(name);
    int npy = length > 4 && strcmp(name + length - 4, ".npy") == 0;
    enum attn_status status =
        npy ? attn_npy_write(scratch_path(name), tensor, &err)
            : attn_safetensors_write(scratch_path(name), tensor, n, NULL, 0, &err);
    ck_assert_msg(status == ATTN_OK, "%s", err.text);
}

static struct attn_file_tensor tensor(const char *name, enum attn_file_dtype dtype, int64_t rows,
                                      int64_t columns, void *data)
{
    struct attn_file_tensor t = {
        .name = name, .dtype = dtype, .n_axes = 2, .extent = {rows, columns}, .data = data};
    t.bytes = rows * columns * attn_file_dtype_size(dtype);
    return t;
}

/* want: a [2,3] F32, n [1,3] I64, and variations of it. */
static void put_variations(void)
{
    float a[6] = {1, 2, -INFINITY, 4, 5, 100}, b[6];
    int64_t n[3] = {7, 8, (int64_t)1 << 60}, m[3] = {7, 8, ((int64_t)1 << 60) + 1};
    double wide[6] = {1, 2, -(double)INFINITY, 4, 5, 100};
    struct attn_file_tensor t[3] = {tensor("a", ATTN_FILE_F32, 2, 3, a),
                                    tensor("n", ATTN_FILE_I64, 1, 3, n)};
    put("want.st", t, 2);
    put("same.st", t, 2);
    put("only_a.st", t, 1);
    put("a.npy", t, 1);
    t[0].data = memcpy(b, a, sizeof a);
    b[4] = 5.0001f;
    put("off.st", t, 2);
    put("b.npy", t, 1);
    b[4] = NAN;
    put("nan.st", t, 2);
    b[4] = 5, b[2] = INFINITY;
    put("inf.st", t, 2);
    t[0] = tensor("a", ATTN_FILE_F32, 3, 2, a);
    put("turned.st", t, 2);
    t[0] = tensor("a", ATTN_FILE_F64, 2, 3, wide);
    put("wide.st", t, 2);
    t[0] = tensor("a", ATTN_FILE_F32, 2, 3, a);
    t[1].data = m;
    put("counted.st", t, 2);
    t[2] = tensor("z", ATTN_FILE_F32, 2, 3, a);
    t[1].data = n;
    put("more.st", t, 3);
    ck_assert_int_eq(mkdir(scratch_path("folder"), 0777), 0);
    put("folder/a.npy", &t[0], 1);
    put("folder/n.npy", &t[1], 1);
    put("folder/notes.txt", &t[1], 1); /* not a file of tensors by its name: left alone */
    ck_assert_int_eq(mkdir(scratch_path("empty"), 0777), 0);
    ck_assert_int_eq(mkdir(scratch_path("twice"), 0777), 0);
    put("twice/a.npy", &t[0], 1);
    put("twice/all.safetensors", t, 2);
}

static const struct {
    int status;
    const char *says, *arguments;
} lines[] = {
    {0, "agrees", "same.st want.st --rule exact"},
    {0, "exact (integers)", "same.st want.st --rule torch-f32"},
    {0, "agrees", "folder want.st --rule exact"},
    {0, "agrees", "want.st folder --rule 'ulp(0)' --rule nmse --rule cosine"},
    {1, "[1,1]", "off.st want.st --rule exact"},
    {1, "6       1  [1,1]", "off.st want.st --rule numpy"},
    {0, "agrees", "off.st want.st --rule 'allclose(1e-3,0)'"},
    {0, "agrees", "off.st want.st --rule nmse --rule cosine --rule torch-bf16"},
    {1, "5.0001", "off.st want.st --rule nmse --rule ulp"},
    {1, "6           1  [1,1]", "nan.st want.st --rule nmse"},
    {1, "nan", "nan.st nan.st --rule cosine"},
    {1, "[0,2]", "inf.st want.st --rule 'allclose(1,1e30)'"},
    {1, "[0,2]", "counted.st want.st --rule 'allclose(1,1e30)'"}, /* 2^60 + 1 is another integer */
    {0, "fa2(factor=2,atol=0)", "off.st want.st --rule fa2 --reference off.st"},
    {1, "DIFFERS", "off.st want.st --rule fa2 --reference same.st"},
    {0, "agrees", "a.npy b.npy --rule torch-bf16"}, /* one tensor each: names do not matter */
    {1, "DIFFERS", "a.npy b.npy --rule torch-f32"},
    {0, "agrees", "more.st want.st --rule exact --only a,n"},
    {0, "agrees", "wide.st want.st --rule exact --any-type"},
    {2, "stored as F64; in want.st as F32 (--any-type", "wide.st want.st --rule exact"},
    {2, "'a' is [3,2]; in want.st it is [2,3]", "turned.st want.st --rule exact"},
    {2, "want.st: has no tensor 'z'; more.st has", "more.st want.st --rule exact"},
    {2, "only_a.st: has no tensor 'n'; want.st has", "only_a.st want.st --rule exact"},
    {2, "only_a.st: has no tensor 'n'; want.st has", "only_a.st want.st --rule exact --only n"},
    {2, "no tensor 'q' (--only)", "same.st want.st --rule exact --only a,q"},
    {2, "two tensors are called 'a'", "twice want.st --rule exact"},
    {2, "holds no .safetensors", "empty want.st --rule exact"},
    {2, "nowhere", "nowhere want.st --rule exact"},
    {2, "no q, k and v", "same.st want.st"},
    {2, "no q, k and v", "same.st want.st --rule exact --rule bound"},
    {2, "give that run", "same.st want.st --rule fa2"},
    {2, "has no tensor 'a'", "same.st want.st --rule fa2 --reference folder/n.npy"},
    {2, "there are: bound", "same.st want.st --rule isclose"},
    {2, "an argument is missing: attnlab compare GOT WANT", "want.st --rule exact"},
    {0, "usage:", "--help"},
};

TEST(words_and_status)
{
    put_variations();
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        compares(lines[i].status, lines[i].says, lines[i].arguments);
}

/* 16-bit floats are read as the numbers they are: 1, -2, the largest, a subnormal, an infinity. */
TEST(sixteen_bits)
{
    static uint16_t bf16[5] = {0x3f80, 0xc000, 0x7f7f, 0x0001, 0xff80};
    static uint16_t f16[5] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0xfc00};
    double b[5] = {1, -2, 0x1.fep127, 0x1p-133, -(double)INFINITY};
    double f[5] = {1, -2, 65504, 0x1p-24, -(double)INFINITY};
    struct attn_file_tensor t[2] = {tensor("b", ATTN_FILE_BF16, 1, 5, bf16),
                                    tensor("f", ATTN_FILE_F16, 1, 5, f16)};
    struct attn_file_tensor w[2] = {tensor("b", ATTN_FILE_F64, 1, 5, b),
                                    tensor("f", ATTN_FILE_F64, 1, 5, f)};
    put("half.st", t, 2);
    put("want.st", w, 2);
    compares(0, "agrees", "half.st want.st --any-type --rule exact");
    compares(0, "agrees", "half.st half.st --rule 'ulp(0)'");
    bf16[0]++;
    f16[3]++;
    put("next.st", t, 2);
    compares(0, "agrees", "next.st half.st --rule 'ulp(1)'");
    compares(1, "DIFFERS", "next.st half.st --rule 'ulp(0.5)'");
    f16[1] = 0x7e00;
    put("nan.st", t, 2);
    compares(1, "[0,1]", "nan.st half.st --rule cosine");
}

/* ---- the bound ------------------------------------------------------------------------------ */

enum { OUTPUTS = 5 };
static const char *const output[OUTPUTS] = {"o", "lse", "dq", "dk", "dv"};

/* result.safetensors of `attnlab run` on a golden file; then that with one element changed. */
static void put_results(const char *golden, double change)
{
    struct attn_file file;
    struct attn_error err = {0};
    scratch_expect(0, "", "run dense --input %s --out '%s'", golden, scratch_path("out"));
    ck_assert(attn_file_open(scratch_path("out/result.safetensors"), &file, &err) == ATTN_OK);
    for (int t = 0; t < file.n_tensors; t++)
        ck_assert(attn_file_load(&file, &file.tensor[t], &err) == ATTN_OK);
    put("good.st", file.tensor, file.n_tensors);
    float *dk = attn_file_find(&file, "dk")->data;
    dk[7] = (float)((double)dk[7] * change);
    put("bad.st", file.tensor, file.n_tensors);
    attn_file_close(&file);
}

/* The inputs of a golden file, and its results where asked for, each in a .npy of its own. */
static void put_folder(const char *golden, const char *folder, int results)
{
    static const char *const input[] = {"q", "k", "v", "do"};
    struct attn_file file;
    struct attn_error err = {0};
    char path[128];
    ck_assert_int_eq(mkdir(scratch_path(folder), 0777), 0);
    ck_assert(attn_file_open(golden, &file, &err) == ATTN_OK);
    for (int i = 0; i < 4 + (results ? OUTPUTS : 0); i++) {
        const char *name = i < 4 ? input[i] : output[i - 4];
        struct attn_file_tensor *t = attn_file_find(&file, name);
        ck_assert(attn_file_load(&file, t, &err) == ATTN_OK);
        snprintf(path, sizeof path, "%s/%s.npy", folder, name);
        put(path, t, 1);
    }
    attn_file_close(&file);
}

TEST(judged_by_the_oracle)
{
    char cwd[PATH_MAX], text[2 * PATH_MAX + 200];
    const char *golden = "tests/golden/parallel-keys.safetensors";
    strcpy(cwd, scratch_full_path("."));
    put_results(golden, 1.001);
    snprintf(text, sizeof text, "good.st %s/%s", cwd, golden);
    compares(2, "dv.size the file not judged: nothing uses", text);
    snprintf(text, sizeof text, "good.st %s/%s --only o,lse,dq,dk,dv", cwd, golden);
    compares(0, "o       good.st", text);
    snprintf(text, sizeof text, "good.st %s/%s --rule bound --arithmetic f32 --only o,dk", cwd,
             golden);
    compares(0, "rounding, within the bound of f32", text);
    snprintf(text, sizeof text, "bad.st %s/%s --rule bound", cwd, golden);
    compares(1, "dk      bad.st", text);
    snprintf(text, sizeof text, "bad.st %s/%s --only dk --any-type --rule nmse", cwd, golden);
    compares(0, "agrees", text); /* what this rule lets through */
    snprintf(text, sizeof text, "bad.st %s/%s --only dk --any-type --rule nmse --rule bound", cwd,
             golden);
    compares(1, "FAIL", text);
    snprintf(text, sizeof text, "%s/%s bad.st", cwd, golden); /* another user with the inputs */
    compares(1, "dk      bad.st", text);
    snprintf(text, sizeof text, "bad.st %s/%s --arithmetic fused-16", cwd, golden);
    compares(2, "arithmetic 'fused-16' with q in f32: there are f32 tf32", text);
    snprintf(text, sizeof text, "%s/%s %s/%s --only visible --rule exact", cwd, golden, cwd,
             golden);
    compares(0, "agrees", text);
}

TEST(inputs_in_a_folder)
{
    const char *golden = "tests/golden/parallel-keys.safetensors";
    put_results(golden, -1);
    put_folder(golden, "inputs", 0);
    put_folder(golden, "all", 1);
    compares(0, "ok", "good.st inputs --scale 0.45 --mask 'causal(br)|prefix(3)'");
    compares(1, "FAIL", "bad.st inputs --scale 0.45 --mask 'causal(br)|prefix(3)'");
    compares(0, "the file", "good.st all --scale 0.45 --mask 'causal(br)|prefix(3)'");
    compares(1, "FAIL", "good.st all --scale 0.44 --mask 'causal(br)|prefix(3)'");
    compares(2, "that these inputs can judge", "inputs inputs");
    compares(2, "has no tensor 'o'", "inputs all");
}
