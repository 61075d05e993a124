/* Packed batches, [T,H,d] and cu_seqlens: an external implementation's, by numpy, and `attnlab
 * run`'s own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/rim/files/tests/small_input.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(packed, .open = scratch_open, .close = scratch_close);

static struct attn_error err;

/* ---- by numpy ------------------------------------------------------------------------------- */

TEST(numpy_example)
{
    if (!fixture_python("numpy"))
        return;
    scratch_expect(0, "layout thd",
                   "check --exec '/usr/bin/python3 docs/examples/numpy_packed.py' "
                   "--claims docs/examples/numpy_packed.json%s",
                   fixture_some_cases());
    ck_assert_int_ge(fixture_count(scratch_output, "pass"), 20);
}

/* The same with its documents run together, with its band counted from the wrong end, and with lse
 * the other way round: a packed battery sees all three. */
TEST_EACH(numpy_mistakes, 3)
{
    static const struct {
        const char *edit, *says, *cases; /* NULL: some */
    } mistake[] = {
        {"s/zip(cu_.*)/zip(cu_seqlens_q[:1], cu_seqlens_q[-1:], cu_seqlens_k[:1], "
         "cu_seqlens_k[-1:])/",
         "FAIL(bound)", "--case mask-documents --case ranks-documents"},
        {"s/offset=offset/offset=-offset/", "FAIL(finite)", NULL},
        {"s/return o, lse/return o, lse.T/", "lse has shape [", "--case length-15-17"},
    };
    if (!fixture_python("numpy"))
        return;
    scratch_shell(0, "", "cp docs/examples/numpy_attention.py '%s'", scratch_path(""));
    scratch_shell(0, "", "sed '%s' docs/examples/numpy_packed.py >'%s'", mistake[_i].edit,
                  scratch_path("packed.py"));
    ck_assert_int_ne(
        fixture_shell("cmp -s docs/examples/numpy_packed.py '%s'", scratch_path("packed.py")), 0);
    scratch_expect(1, mistake[_i].says,
                   "check --exec '/usr/bin/python3 %s' "
                   "--claims docs/examples/numpy_packed.json %s",
                   scratch_path("packed.py"),
                   mistake[_i].cases != NULL ? mistake[_i].cases : fixture_some_cases());
}

/* ---- by attnlab run ------------------------------------------------------------------------- */

enum { TOKENS = 7, HEADS = 2, WIDTH = 4 };

/* q, k, v, do of seven tokens, and where documents begin. */
static void make(struct small *s, int n, const int32_t *starts)
{
    static const char *const name[] = {"q", "k", "v", "do"};
    memset(s, 0, sizeof *s);
    for (int t = 0; t < 4; t++)
        small_add(s, name[t], 3, 0, TOKENS, HEADS, WIDTH);
    small_say(s, "scale", "0.5");
    if (n == 0)
        return;
    struct attn_file_tensor *x = small_add(s, "cu_seqlens_q", 1, 0, 0, 0, n);
    x->dtype = ATTN_FILE_I32;
    memcpy(x->data, starts, (size_t)n * sizeof *starts);
}

static const float *load(struct attn_file *file, const char *path, const char *name)
{
    ck_assert_msg(attn_file_open(path, file, &err) == ATTN_OK, "%s", err.text);
    struct attn_file_tensor *t = attn_file_find(file, name);
    ck_assert_ptr_nonnull(t);
    ck_assert_int_eq(attn_file_load(file, t, &err), ATTN_OK);
    return t->data;
}

/* Each document by itself, in a file of its own, has the same results bit for bit. */
static void check_document(const struct small *s, int64_t from, int64_t to, const char *mask)
{
    static const char *const result[] = {"o", "dq", "dk", "dv"};
    struct small one;
    struct attn_file all, alone;
    make(&one, 0, NULL);
    for (int t = 0; t < 4; t++) {
        one.t[t].extent[0] = to - from;
        memcpy(one.t[t].data, (const float *)s->t[t].data + from * HEADS * WIDTH,
               (size_t)(to - from) * HEADS * WIDTH * sizeof(float));
    }
    scratch_expect(0, "", "run dense --input %s --out %s --layout BLHD --mask '%s'",
                   small_save(&one), scratch_path("one"), mask);
    for (int r = 0; r < 4; r++) {
        const float *x = load(&all, scratch_path("all/result.safetensors"), result[r]);
        const float *y = load(&alone, scratch_path("one/result.safetensors"), result[r]);
        for (int64_t e = 0; e < (to - from) * HEADS * WIDTH; e++)
            ck_assert_msg(x[from * HEADS * WIDTH + e] == y[e], "%s of tokens %d to %d", result[r],
                          (int)from, (int)to);
        attn_file_close(&all);
        attn_file_close(&alone);
    }
    const float *x = load(&all, scratch_path("all/result.safetensors"), "lse");
    const float *y = load(&alone, scratch_path("one/result.safetensors"), "lse");
    ck_assert_int_eq(attn_file_find(&all, "lse")->n_axes, 2);
    ck_assert_int_eq(attn_file_find(&all, "lse")->extent[0], HEADS);
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = from; i < to; i++)
            ck_assert(x[h * TOKENS + i] == y[h * (to - from) + i - from]);
    attn_file_close(&all);
    attn_file_close(&alone);
}

static const struct {
    const char *mask;
    int n;
    int32_t starts[8];
} batches[] = {
    {"none", 4, {0, 2, 2, 7}},
    {"causal(br)", 4, {0, 3, 4, 7}},
    {"window(1,0,tl)", 3, {0, 5, 7}},
    {"causal(tl)", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
    {"prefix(1)", 2, {0, 7}},
    {"causal(-1)&window(3,3,-1)", 3, {0, 4, 7}},
    {"keys(x10)", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
};

TEST_EACH(documents_by_themselves, COUNT(batches))
{
    struct small s;
    make(&s, batches[_i].n, batches[_i].starts);
    scratch_expect(0, " ok ", "run dense --input %s --out %s --layout THD --mask '%s' --compare",
                   small_save(&s), scratch_path("all"), batches[_i].mask);
    for (int t = 0; t + 1 < batches[_i].n; t++)
        if (batches[_i].starts[t] < batches[_i].starts[t + 1])
            check_document(&s, batches[_i].starts[t], batches[_i].starts[t + 1], batches[_i].mask);
}

/* A folder of numpy's files, a tensor each. */
TEST(a_folder_of_tensors)
{
    static const char *const name[] = {"q", "k", "v", "do", "cu_seqlens_q"};
    static const int32_t starts[] = {0, 3, 7};
    struct small s;
    char folder[512];
    make(&s, 3, starts);
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
    for (int t = 0; t < 5; t++) {
        char path[64];
        snprintf(path, sizeof path, "%s.npy", name[t]);
        ck_assert_int_eq(attn_npy_write(scratch_path(path), &s.t[t], &err), ATTN_OK);
    }
    scratch_shell(0, "", "mkdir '%s/in' && mv '%s'/*.npy '%s/in'", folder, folder, folder);
    scratch_expect(0, "",
                   "run dense --input %s/in --layout THD --out %s/all --mask 'causal(br)' --scale "
                   "0.5",
                   folder, folder);
    check_document(&s, 0, 3, "causal(br)");
    check_document(&s, 3, 7, "causal(br)");
    scratch_expect(0, "documents(3x3,4x4)&causal(br)",
                   "compare %s/all %s/in --layout THD --mask 'causal(br)' "
                   "--scale 0.5",
                   folder, folder);
    scratch_expect(1, "FAIL", "compare %s/all %s/in --layout THD --mask none --scale 0.5", folder,
                   folder);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static const struct {
    const char *flags, *says;
    int n;
    int32_t starts[4];
} bad[] = {
    {"", "say --layout THD", 3, {0, 3, 7}},
    {"--layout THD", "cu_seqlens_q[0] is 1", 3, {1, 3, 7}},
    {"--layout THD", "cu_seqlens_q[1] is -3", 3, {0, -3, 7}},
    {"--layout THD", "cu_seqlens_q[2] is 4", 4, {0, 5, 4, 7}},
    {"--layout THD", "ends at 6, and there are 7 tokens", 3, {0, 3, 6}},
    {"--layout THD", "ends at 2147483647, and", 3, {0, 3, 0x7fffffff}},
    {"--layout THD --mask 'prefix(2)'", "causal and window masks are", 3, {0, 3, 7}},
    {"--layout THD --mask 'dense(no)'", "dense(no) names a tensor", 3, {0, 3, 7}},
    {"--layout THDX", "BHLD, BLHD, SBHD, BLE and THD exist", 3, {0, 3, 7}},
};

TEST_EACH(refused, COUNT(bad))
{
    struct small s;
    make(&s, bad[_i].n, bad[_i].starts);
    scratch_expect(2, bad[_i].says, "run dense --input %s --compare %s", small_save(&s),
                   bad[_i].flags);
}

/* Shapes and types that are none, and lengths that differ. */
TEST(refused_tensors)
{
    static const int32_t starts[] = {0, 3, 7}, more[] = {0, 3, 7, 7}, other[] = {0, 4, 7};
    struct small s;
    make(&s, 3, starts);
    s.t[4].dtype = ATTN_FILE_F32;
    scratch_expect(2, "is F32 [3]", "run dense --input %s --compare --layout THD", small_save(&s));
    s.t[4].dtype = ATTN_FILE_I32;
    s.t[4].extent[0] = 0;
    scratch_expect(2, "is I32 [0]", "run dense --input %s --compare --layout THD", small_save(&s));
    s.t[4].extent[0] = 3;
    s.t[4].name = "cu_seqlens_k";
    scratch_expect(2, "without cu_seqlens_q", "run dense --input %s --compare --layout THD",
                   small_save(&s));
    make(&s, 3, starts);
    struct attn_file_tensor *k = small_add(&s, "cu_seqlens_k", 1, 0, 0, 0, 4);
    k->dtype = ATTN_FILE_I32;
    memcpy(k->data, more, sizeof more);
    scratch_expect(2, "cu_seqlens_q has 2 documents, cu_seqlens_k 3",
                   "run dense --input %s --compare --layout THD", small_save(&s));
    k->extent[0] = 3;
    memcpy(k->data, other, sizeof other);
    scratch_expect(0, "3x4,4x3", "run dense --input %s --compare --layout THD", small_save(&s));
    scratch_expect(2, "as many queries as keys",
                   "run dense --input %s --compare --layout THD --mask 'causal(br)'",
                   small_save(&s));
    scratch_expect(2, "ALiBi with layout THD",
                   "run dense --input %s --compare --layout THD --alibi 1,1 --alibi-align tl",
                   small_save(&s));
    small_add(&s, "bias", 2, 0, 0, TOKENS, TOKENS);
    scratch_expect(2, "a bias tensor with", "run dense --input %s --compare --layout THD",
                   small_save(&s));
    s.t[0].n_axes = 2;
    s.t[0].extent[1] = HEADS * WIDTH;
    scratch_expect(2, "[T,H,d] would fit", "run dense --input %s --compare --layout THD",
                   small_save(&s));
}

/* Bytes over all tokens that show a key of another document contradict cu_seqlens. */
TEST(bytes_across_documents)
{
    static const int32_t starts[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct small s;
    make(&s, 8, starts);
    small_say(&s, "layout", "thd");
    small_say(&s, "mask", "dense");
    struct attn_file_tensor *mask = small_add(&s, "mask", 4, 1, HEADS, TOKENS, TOKENS);
    unsigned char bytes[HEADS * TOKENS * TOKENS] = {0};
    mask->dtype = ATTN_FILE_U8;
    mask->data = bytes;
    for (int e = 0; e < HEADS * TOKENS; e++)
        bytes[e * TOKENS + e % TOKENS] = 1;
    scratch_expect(0, "b7h2g2q1k1", "run dense --input %s --compare", small_save(&s));
    bytes[3] = 1;
    scratch_expect(2, "mask shows query 0 key 3 of another document",
                   "run dense --input %s --compare", small_save(&s));
    mask->extent[1] = 1;
    scratch_expect(2, "U8 or BOOL [1,2,7,7] would fit", "run dense --input %s --compare",
                   small_save(&s));
}

/* A declaration that cannot be kept. */
TEST(no_bias_is_claimed)
{
    static const char claims[] = "{\"claims\": [\"f32\", \"bias\"], \"layout\": \"thd\"}";
    const char *path = scratch_put("claims.json", claims, sizeof claims - 1);
    scratch_expect(2, "layout \"thd\" has no bias tensor", "vectors %s --claims %s",
                   scratch_path("v"), path);
}
