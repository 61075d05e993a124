/* `attnlab run` as a program: two real inputs under an implementation of each family, and the same
 * numbers by every road into it.  test_refusals.c has its refusals. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/rim/files/tests/small_input.h"
#include "optimized/registry.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/base/files.h"
#include "tests/harness/base/fill.h"
#include "tests/suites.h"

SUITE(run, .open = scratch_open, .close = scratch_close);

static struct attn_error err;

static int times(const char *word)
{
    int n = 0;
    for (const char *at = scratch_output; (at = strstr(at, word)) != NULL; at += strlen(word))
        n++;
    return n;
}

static void open_file(struct attn_file *file, const char *path)
{
    ck_assert_msg(attn_file_open(path, file, &err) == ATTN_OK, "%s", err.text);
    for (int t = 0; t < file->n_tensors; t++)
        ck_assert_msg(attn_file_load(file, &file->tensor[t], &err) == ATTN_OK, "%s", err.text);
}

static const struct attn_file_tensor *tensor(const struct attn_file *file, const char *name)
{
    const struct attn_file_tensor *t = attn_file_find(file, name);
    ck_assert_msg(t != NULL, "%s has no %s", file->path, name);
    return t;
}

/* ---- the real inputs ---------------------------------------------------------------------- */

static const char *const real[2] = {"tests/data/gpt-causal.safetensors",
                                    "tests/data/video-padded.safetensors"};
static const char *const result[5] = {"o", "lse", "dq", "dk", "dv"};

/* The written results are the judged ones: near the file's own results, which the bounds judged
 * too. */
static void check_written(const char *path, const char *input)
{
    struct attn_file file, whole;
    open_file(&file, path);
    open_file(&whole, input);
    for (int r = 0; r < 5; r++) {
        const struct attn_file_tensor *x = tensor(&file, result[r]), *y = tensor(&whole, result[r]);
        const float *a = x->data, *b = y->data;
        ck_assert_int_eq((int)x->dtype, ATTN_FILE_F32);
        ck_assert_int_eq(x->n_axes, y->n_axes);
        ck_assert_int_eq(memcmp(x->extent, y->extent, sizeof x->extent), 0);
        for (int64_t e = 0; e < x->bytes / 4; e++)
            ck_assert_msg(fabsf(a[e] - b[e]) <= 1e-4f, "%s %s[%lld]: %g, not %g", input, result[r],
                          (long long)e, (double)a[e], (double)b[e]);
    }
    ck_assert_ptr_nonnull(attn_file_metadata(&file, "spec"));
    attn_file_close(&file);
    attn_file_close(&whole);
}

/* Is it the first of its family?  The battery judges every implementation. */
static int is_asked(int which)
{
    int first = 0;
    while (strcmp(attn_impl_at(first)->family, attn_impl_at(which)->family) != 0)
        first++;
    return first == which || getenv("ATTN_FULL") != NULL;
}

/* Loop: an implementation of each family on the first, one on the second too, which takes four
 * times as long; in test-full every one on both. */
TEST_EACH(real_inputs, 2 * attn_impl_count())
{
    const struct attn_impl *impl = attn_impl_at(_i / 2);
    const char *input = real[_i % 2], *out = scratch_path("out");
    if (!is_asked(_i / 2) || (_i % 2 == 1 && _i > 1 && getenv("ATTN_FULL") == NULL))
        return;
    scratch_expect(0, _i % 2 == 0 ? "causal(br)" : "keys(key_mask)",
                   "run '%s%s' --input %s --out %s --compare", impl->name,
                   impl->ranks != NULL ? ":ranks=2" : "", input, out);
    ck_assert_msg(times(" ok ") == 10 && times("the file ") == 5, "%s", scratch_output);
    check_written(scratch_path("out/result.safetensors"), input);
}

/* A result in the file that the pass does not compute is not judged: no success, unless it was left
 * aside by name. */
TEST(half_compared)
{
    scratch_expect(2, "tensor 'do' of", "run dense --input %s --compare --pass fwd", real[0]);
    ck_assert_int_eq(times(" is not used"), 1);
    ck_assert_int_eq(times("the file not judged: a gradient, under --pass fwd\n"), 3);
    ck_assert_int_eq(times(" ok "), 4);
    scratch_expect(0, " ok ", "run dense --input %s --compare --pass fwd --only o,lse", real[0]);
    scratch_expect(2, "dq     the file", "run dense --input %s --compare --pass fwd --only o,dq",
                   real[0]);
    scratch_expect(2, "neither given nor computed", "run dense --input %s --compare --only dbias",
                   real[0]);
}

/* ---- a small problem by every road -------------------------------------------------------- */

/* Integers for a mask, in place of the floats of small_add(). */
static void set_bytes(struct attn_file_tensor *t, const char *digits)
{
    t->dtype = ATTN_FILE_U8;
    for (int e = 0; digits[e] != '\0'; e++)
        ((char *)t->data)[e] = (char)(digits[e] - '0');
}

static void set_i32(struct attn_file_tensor *t, int n, const int32_t *value)
{
    t->dtype = ATTN_FILE_I32;
    memcpy(t->data, value, (size_t)n * sizeof *value);
}

/* Two results hold the same bits, whatever shape they are in. */
static void same_results(const char *one, const char *two)
{
    struct attn_file a, b;
    open_file(&a, one);
    open_file(&b, two);
    for (int r = 0; r < 5; r++) {
        const struct attn_file_tensor *x = tensor(&a, result[r]), *y = tensor(&b, result[r]);
        ck_assert_int_eq(x->bytes, y->bytes);
        ck_assert_msg(memcmp(x->data, y->data, (size_t)x->bytes) == 0, "%s differs", result[r]);
    }
    attn_file_close(&a);
    attn_file_close(&b);
}

/* Loop over spellings of one mask that can be named by tensors: all give the same bits. */
TEST(masks_by_name)
{
    static const int32_t row_start[] = {0, 1, 3, 6, 10, 15, 21};
    int32_t column[21], n = 0;
    struct small s;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j <= i; j++)
            column[n++] = j;
    small_make(&s, 6);
    small_say(&s, "mask", "causal");
    set_i32(small_add(&s, "tri.row_start", 1, 0, 0, 0, 7), 7, row_start);
    set_i32(small_add(&s, "tri.column", 1, 0, 0, 0, 21), 21, column);
    set_bytes(small_add(&s, "low", 2, 0, 0, 6, 6), "100000110000111000111100111110111111");
    set_bytes(small_add(&s, "\33[31m", 1, 0, 0, 0, 1), "1"); /* no result: a note is enough */
    const char *in = small_save(&s), *one = scratch_path("one"), *two = scratch_path("two");
    scratch_expect(0, "'tri.column' of", "run csr-textbook --input %s --out %s", in, one);
    scratch_expect(0, "csr(tri)",
                   "run csr-textbook --input %s --out %s --compare --mask 'csr(tri)'", in, two);
    same_results(scratch_path("one/result.safetensors"), scratch_path("two/result.safetensors"));
    scratch_expect(0, "ok",
                   "run csr-textbook --input %s --out %s --compare --mask 'dense(low)&none'", in,
                   two);
    same_results(scratch_path("one/result.safetensors"), scratch_path("two/result.safetensors"));
    scratch_expect(2, "'low.row_start'", "run csr-textbook --input %s --compare --mask 'csr(low)'",
                   in);
    scratch_expect(2, "stored as F32", "run csr-textbook --input %s --compare --mask 'keys(q)'",
                   in);
    scratch_expect(2, "'missing'", "run csr-textbook --input %s --compare --mask 'keys(missing)'",
                   in);
}

/* [H,L,d] is [1,H,L,d]; one head of it is [L,d]; a .npy file of each is that tensor. */
TEST(fewer_axes_and_npy)
{
    static const char *const name[4] = {"q", "k", "v", "do"};
    struct small s;
    struct attn_file file;
    small_make(&s, 6);
    small_say(&s, "mask", "causal(br)");
    small_say(&s, "scale", "0.5");
    const char *four = scratch_path("four"), *three = scratch_path("three");
    scratch_expect(0, "", "run tiled-textbook --input %s --out %s", small_save(&s), four);
    for (int t = 0; t < 4; t++) {
        char npy[16];
        s.t[t].n_axes = 3;
        memmove(s.t[t].extent, s.t[t].extent + 1, 3 * sizeof(int64_t));
        snprintf(npy, sizeof npy, "%s.npy", name[t]);
        ck_assert_int_eq(attn_npy_write(scratch_path(npy), &s.t[t], &err), ATTN_OK);
    }
    scratch_expect(0, "b1h2g2q6k6d4v4", "run tiled-textbook --input %s --out %s --compare",
                   small_save(&s), three);
    same_results(scratch_path("four/result.safetensors"), scratch_path("three/result.safetensors"));
    open_file(&file, scratch_path("three/result.safetensors"));
    ck_assert_int_eq(tensor(&file, "dk")->n_axes, 3);
    ck_assert_int_eq(tensor(&file, "lse")->n_axes, 2);
    char d[600];
    snprintf(d, sizeof d, "%s", scratch_path(""));
    scratch_shell(0, "", "mkdir '%s/each' && mv '%s'/*.npy '%s/each'", d, d, d);
    scratch_expect(0, "",
                   "run tiled-textbook --input %s/each --out %s/n --format npy --mask "
                   "'causal(br)' --scale 0.5",
                   d, d);
    for (int r = 0; r < 5; r++) {
        char npy[16];
        struct attn_file one;
        snprintf(npy, sizeof npy, "n/%s.npy", result[r]);
        open_file(&one, scratch_path(npy));
        ck_assert_int_eq(one.tensor[0].bytes, tensor(&file, result[r])->bytes);
        ck_assert_int_eq(
            memcmp(one.tensor[0].data, tensor(&file, result[r])->data, (size_t)one.tensor[0].bytes),
            0);
        attn_file_close(&one);
    }
    attn_file_close(&file);
}

/* A bias that spells ALiBi out gives what --alibi gives, and neither is without effect. */
TEST(bias_and_alibi)
{
    struct small s;
    struct attn_file a, b, plain;
    small_make(&s, 3);
    small_say(&s, "mask", "causal(br)");
    const char *path = small_save(&s), *one = scratch_path("one"), *two = scratch_path("two");
    scratch_expect(0, "", "run dense --input %s --out %s", path, scratch_path("plain"));
    scratch_expect(0, "ALiBi 0.5,0.25",
                   "run dense --input %s --out %s --alibi 0.5,0.25 --alibi-align br --compare",
                   path, one);
    float *bias = small_add(&s, "bias", 3, 0, 2, 3, 6)->data;
    for (int e = 0; e < 36; e++) /* head, query and key of element e; offset Lk - Lq = 3 */
        bias[e] = (e / 18 == 0 ? -0.5f : -0.25f) * fabsf((float)(e / 6 % 3 + 3 - e % 6));
    scratch_expect(0, "bias tensor", "run dense --input %s --out %s --compare", small_save(&s),
                   two);
    open_file(&a, scratch_path("one/result.safetensors"));
    open_file(&b, scratch_path("two/result.safetensors"));
    open_file(&plain, scratch_path("plain/result.safetensors"));
    ck_assert_str_eq(attn_file_metadata(&a, "alibi-align"), "+3");
    for (int r = 0; r < 5; r++) {
        const struct attn_file_tensor *x = tensor(&a, result[r]), *y = tensor(&b, result[r]);
        ck_assert_int_eq(memcmp(x->data, y->data, (size_t)x->bytes), 0);
        ck_assert_int_ne(memcmp(x->data, tensor(&plain, result[r])->data, (size_t)x->bytes), 0);
    }
    attn_file_close(&a);
    attn_file_close(&b);
    attn_file_close(&plain);
}

/* A mask of keys that lies with the tensors is not left out in silence. */
TEST(key_mask)
{
    struct small s;
    small_make(&s, 6);
    set_bytes(small_add(&s, "key_mask", 2, 0, 0, 1, 6), "110101");
    const char *in = small_save(&s), *one = scratch_path("one");
    scratch_expect(2, "--mask 'keys(key_mask)'", "run dense --input %s --out %s", in, one);
    scratch_expect(0, "'key_mask' of", "run dense --input %s --out %s --mask none", in, one);
    scratch_expect(0, "", "run dense --input %s --out %s --mask 'causal(br)&keys(key_mask)'", in,
                   one);
}

static void reshape(struct attn_file_tensor *t, int n_axes, int64_t a, int64_t b, int64_t c,
                    int64_t d)
{
    const int64_t extent[4] = {a, b, c, d};
    t->n_axes = n_axes;
    memcpy(t->extent, extent, sizeof extent);
}

/* [B,L,H*d] is [B,L,H,d] without a comma; with one kv head, with two, and without B. */
TEST_EACH(folded_heads, 2)
{
    struct small s;
    struct attn_file file;
    const char *one = scratch_path("one"), *two = scratch_path("two");
    int kv = _i + 1;
    small_make(&s, 6);
    small_say(&s, "mask", "causal(br)");
    small_say(&s, "scale", "0.5");
    for (int t = 0; t < 4; t++)
        reshape(&s.t[t], 4, 1, 6, t == 1 || t == 2 ? kv : 2, 4);
    scratch_expect(0, "", "run tiled --input %s --out %s --layout BLHD", small_save(&s), one);
    for (int t = 0; t < 4; t++)
        reshape(&s.t[t], 3, 1, 6, t == 1 || t == 2 ? 4 * kv : 8, 0);
    const char *in = small_save(&s);
    scratch_expect(0, "d4v4",
                   "run tiled --input %s --out %s --layout BLE --heads 2 --kv-heads %d --compare",
                   in, two, kv);
    same_results(scratch_path("one/result.safetensors"), scratch_path("two/result.safetensors"));
    open_file(&file, scratch_path("two/result.safetensors"));
    ck_assert(tensor(&file, "o")->n_axes == 3 && tensor(&file, "o")->extent[2] == 8);
    ck_assert(tensor(&file, "dk")->n_axes == 3 && tensor(&file, "dk")->extent[2] == 4 * kv);
    ck_assert(tensor(&file, "lse")->n_axes == 3 && tensor(&file, "lse")->extent[1] == 2);
    ck_assert_str_eq(attn_file_metadata(&file, "layout"), "B,L,H*d");
    ck_assert_str_eq(attn_file_metadata(&file, "kv_heads"), kv == 1 ? "1" : "2");
    attn_file_close(&file);
    scratch_expect(2, "say --heads", "run tiled --input %s --compare --layout BLE", in);
    scratch_expect(2, "does not fold 3 heads",
                   "run tiled --input %s --compare --layout BLE --heads 3", in);
    scratch_expect(2, "belongs to --layout BLE", "run tiled --input %s --compare --heads 2", in);
    for (int t = 0; t < 4; t++)
        reshape(&s.t[t], 2, 6, t == 1 || t == 2 ? 4 * kv : 8, 0, 0);
    small_say(&s, "layout", "B,L,H*d");
    s.pair[3] = (struct attn_file_pair){"heads", "2"};
    s.n_pairs = 4;
    scratch_expect(0, "", "run tiled --input %s --out %s --kv-heads %d", small_save(&s), two, kv);
    same_results(scratch_path("one/result.safetensors"), scratch_path("two/result.safetensors"));
}

/* Keys in use by batch: the last query stands at the last of them. */
TEST(keys_in_use)
{
    static const int32_t used[] = {6, 4};
    struct small s = {0};
    const char *one = scratch_path("one"), *two = scratch_path("two");
    small_add(&s, "q", 4, 2, 2, 3, 4);
    small_add(&s, "k", 4, 2, 2, 6, 4);
    small_add(&s, "v", 4, 2, 2, 6, 4);
    small_add(&s, "do", 4, 2, 2, 3, 4);
    set_i32(small_add(&s, "used", 1, 0, 0, 0, 2), 2, used);
    set_bytes(small_add(&s, "low", 4, 2, 1, 3, 6), "111100111110111111110000111000111100");
    const char *in = small_save(&s);
    scratch_expect(0, "ok", "run tiled --input %s --out %s --compare --mask 'causal(ends,used)'",
                   in, one);
    scratch_expect(0, "ok", "run tiled --input %s --out %s --compare --mask 'dense(low)'", in, two);
    same_results(scratch_path("one/result.safetensors"), scratch_path("two/result.safetensors"));
    scratch_expect(0, "", "run tiled --input %s --out %s --mask 'causal(ends,6,4)'", in, two);
    same_results(scratch_path("one/result.safetensors"), scratch_path("two/result.safetensors"));
    scratch_expect(2, "lengths of keys", "run tiled --input %s --compare --mask 'causal(ends,low)'",
                   in);
    ((int32_t *)s.t[4].data)[1] = 7;
    scratch_expect(2, "ends,used: [1] is 7, and Lk = 6",
                   "run tiled --input %s --compare --mask 'causal(ends,used)'", small_save(&s));
}

/* Loop: two spellings of one mask give the same bits. */
TEST(masks_of_other_shapes)
{
    static const char *const same[][2] = {
        {"dense(three)", "dense(four)"}, {"keys(used)", "keys(6,4)"}, {"keys(row)", "keys(6,4)"}};
    static const char *const refused[][2] = {
        {"dense(used)",
         "[3,6] or [1|2,1|1,3,6], or one of these two before the last, was expected"},
        {"keys(three)", "[2,6] or [6] was expected, or lengths [2] in i32 or i64; it has [2,3,6]"},
        {"keys(long)", "keys(long): [1] is 7, and Lk = 6"}};
    static const int32_t used[] = {6, 4, 6, 7};
    static const char bytes[] = "111100111110111111110000111000111100";
    struct small s = {0};
    const char *one = scratch_path("one"), *two = scratch_path("two");
    for (int t = 0; t < 4; t++)
        small_add(&s,
                  t == 0   ? "q"
                  : t == 1 ? "k"
                  : t == 2 ? "v"
                           : "do",
                  4, 2, 1, t % 3 == 0 ? 3 : 6, 4);
    set_bytes(small_add(&s, "three", 3, 0, 2, 3, 6), bytes);
    set_bytes(small_add(&s, "four", 4, 2, 1, 3, 6), bytes);
    set_bytes(small_add(&s, "row", 4, 2, 1, 1, 6), "111111111100");
    set_i32(small_add(&s, "used", 1, 0, 0, 0, 2), 2, used);
    set_i32(small_add(&s, "long", 1, 0, 0, 0, 2), 2, used + 2);
    const char *in = small_save(&s);
    for (int n = 0; n < 3; n++) {
        scratch_expect(0, "ok", "run tiled --input %s --out %s --compare --mask '%s'", in, one,
                       same[n][0]);
        scratch_expect(0, "ok", "run tiled --input %s --out %s --compare --mask '%s'", in, two,
                       same[n][1]);
        same_results(scratch_path("one/result.safetensors"),
                     scratch_path("two/result.safetensors"));
        scratch_expect(2, refused[n][1], "run tiled --input %s --compare --mask '%s'", in,
                       refused[n][0]);
    }
    for (int t = 0; t < 4; t++) /* as many heads, or as many keys, as batch entries */
        s.t[t].extent[1] = 2;
    scratch_expect(2, "[2,3,6] could be of each batch entry or of each head: give it four axes",
                   "run tiled --input %s --compare --mask 'dense(three)'", small_save(&s));
    s.t[1].extent[2] = s.t[2].extent[2] = 2;
    scratch_expect(2, "[2] could be lengths or keys in use: give it two axes, [2,2] or",
                   "run tiled --input %s --compare --mask 'keys(used)'", small_save(&s));
    for (int t = 0; t < 8; t++) /* one batch entry: its length, [1] */
        if (t < 4 || t == 7)
            s.t[t].extent[0] = 1;
    scratch_expect(2, "keys(used): [0] is 6, and Lk = 2",
                   "run tiled --input %s --compare --mask 'keys(used)'", small_save(&s));
}

/* Other names, a bias in 16 bits, a cache [B,G,L,d] beside folded heads: the same bits. */
TEST(as_others_write_it)
{
    static const char *const name[] = {"query", "key", "value"};
    struct small s;
    const char *one = scratch_path("one"), *two = scratch_path("two");
    small_make(&s, 6);
    small_say(&s, "mask", "causal(br)");
    struct attn_file_tensor *bias = small_add(&s, "bias", 2, 0, 0, 6, 6);
    for (int e = 0; e < 36; e++)
        ((float *)bias->data)[e] = 0.25f * (float)(e % 7);
    scratch_expect(0, "compared: 3 of 6 rows of o",
                   "run tiled --input %s --out %s --compare --rows 3", small_save(&s), one);
    for (int e = 0; e < 36; e++)
        ((uint16_t *)bias->data)[e] = (uint16_t)("\0\64\70\72\74\75\76"[e % 7] << 8); /* f16 */
    bias->dtype = ATTN_FILE_F16;
    for (int t = 0; t < 3; t++)
        s.t[t].name = name[t];
    const char *in = small_save(&s);
    scratch_expect(0, "bias tensor",
                   "run tiled --input %s --out %s --compare --names q=query,k=key,v=value", in,
                   two);
    same_results(scratch_path("one/result.safetensors"), scratch_path("two/result.safetensors"));
    scratch_expect(2, "OURS=THEIRS, such as q=query", "run tiled --input %s --compare --names x=q",
                   in);
    scratch_expect(2, "k=keys: there is no tensor of that name",
                   "run tiled --input %s --compare --names k=keys", in);
    scratch_expect(2, "do=query: it has a 'do' as well",
                   "run tiled --input %s --compare --names do=query", in);
    small_make(&s, 6);
    small_say(&s, "mask", "causal(br)");
    scratch_expect(0, "", "run tiled --input %s --out %s --pass fwd", small_save(&s), one);
    float *q = s.t[0].data, old[48]; /* [H,L,d] to [L,H,d] */
    memcpy(old, q, sizeof old);
    for (int e = 0; e < 48; e++)
        q[e] = old[e / 4 % 2 * 24 + e / 8 * 4 + e % 4];
    reshape(&s.t[0], 3, 1, 6, 8, 0);
    s.n = 3; /* no do */
    scratch_expect(0, "ok", "run tiled --input %s --compare --layout BLE --heads 2 --kv-heads 2",
                   small_save(&s));
}

/* ---- results of one's own ------------------------------------------------------------------- */

static uint16_t bf16(double x)
{
    uint32_t u;
    float f = (float)x;
    memcpy(&u, &f, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static double rounded(double x)
{
    uint32_t u = (uint32_t)bf16(x) << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return (double)f;
}

enum { TOKENS = 48, WIDTH = 16 };
enum own { FLOAT, FUSED, UNFUSED, LAST_KEY, ONE_ROW };

/* Attention in 16-bit storage by the steps of an arithmetic, or with a bug in it. */
static const char *put_own(enum own how)
{
    static double x[3][TOKENS * WIDTH];
    static uint16_t stored[4][TOKENS * WIDTH];
    static const char *const name[] = {"q", "k", "v", "o"};
    const struct attn_file_pair said[] = {{"mask", "none"}, {"scale", "0.25"}};
    struct attn_file_tensor t[4];
    for (int n = 0; n < 3 * TOKENS * WIDTH; n++) {
        double y = 3 * sin(1 + 7.1 * n * n) * (n < TOKENS * WIDTH ? 2 : 1);
        x[n / (TOKENS * WIDTH)][n % (TOKENS * WIDTH)] = rounded(y);
        stored[n / (TOKENS * WIDTH)][n % (TOKENS * WIDTH)] = bf16(y);
    }
    for (int i = 0; i < TOKENS; i++) {
        int keys = TOKENS - (how == LAST_KEY);
        double p[TOKENS], m = -HUGE_VAL, l = 0;
        for (int j = 0; j < keys; j++) {
            p[j] = 0;
            for (int c = 0; c < WIDTH; c++)
                p[j] += x[0][i * WIDTH + c] * x[1][j * WIDTH + c];
            p[j] = how == UNFUSED ? rounded(rounded(p[j]) * 0.25) : p[j] * 0.25;
            m = fmax(m, p[j]);
        }
        for (int j = 0; j < keys; j++)
            l += p[j] = exp(p[j] - m);
        for (int c = 0; c < WIDTH; c++) {
            double o = 0;
            for (int j = 0; j < keys; j++)
                o += (how == FLOAT     ? p[j] / l
                      : how == UNFUSED ? rounded(p[j] / l)
                                       : rounded(p[j]) / l) *
                     x[2][j * WIDTH + c];
            stored[3][i * WIDTH + c] = bf16(how == ONE_ROW && i == 20 ? 1.5 * o : o);
        }
    }
    for (int n = 0; n < 4; n++)
        t[n] = (struct attn_file_tensor){.name = name[n],
                                         .dtype = ATTN_FILE_BF16,
                                         .n_axes = 2,
                                         .extent = {TOKENS, WIDTH},
                                         .data = stored[n],
                                         .bytes = (int64_t)sizeof stored[n]};
    ck_assert_int_eq(attn_safetensors_write(scratch_path("own.st"), t, 4, said, 2, &err), ATTN_OK);
    return scratch_path("own.st");
}

/* Right in three arithmetics, wrong in two ways: one line says which. */
TEST(of_which_arithmetic)
{
    static const struct {
        enum own how;
        int status;
        const char *flags, *says;
    } rows[] = {
        {FLOAT, 0, "", "the file: rounding, within the bound of f32 arithmetic (0."},
        {FUSED, 0, "", " times the bound of f32 arithmetic; within that of fused-16 (0."},
        {FUSED, 0, "", "), the narrowest that allows it; so do fa4 (0."},
        {FUSED, 1, "--arithmetic f32", "the file: a bug"},
        {FUSED, 0, "--arithmetic fused-16", "rounding, within the bound of fused-16 (0."},
        {UNFUSED, 0, "", "within that of unfused-16 (0."},
        {UNFUSED, 1, "--arithmetic fused-16", "; beyond fused-16 are "},
        {UNFUSED, 0, "--claims $folder/claims.json", "claims.json (0."},
        {LAST_KEY, 1, "", "rows of o, batch 0, head 0, query "},
        {LAST_KEY, 1, "", "likely cause: fits keys 47 to 47 lost: the last"},
        {ONE_ROW, 1, "", "1 of 48 rows of o, batch 0, head 0, query 20; no cause is known"},
        {ONE_ROW, 1, "--rows 48", "query 20"},
        {FLOAT, 2, "--arithmetic half", "arithmetic 'half' with q in bf16: there are f32 fused-16"},
        {FLOAT, 2, "--arithmetic f32 --claims x", "--arithmetic and --claims together"},
        {FLOAT, 2, "--claims $folder/absent", "absent"},
    };
    static const char claims[] = "{\"claims\": [\"bf16\"], \"arithmetic\": \"unfused-16\"}";
    scratch_put("claims.json", claims, strlen(claims));
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        const char *own = put_own(rows[n].how);
        scratch_shell(rows[n].status, rows[n].says,
                      "folder='%s'; '%s/attnlab' run dense --input '%s' --compare %s",
                      scratch_path(""), test_build(), own, rows[n].flags);
    }
    scratch_expect(2, "are for --compare", "run dense --input %s --out %s --rows 3",
                   scratch_path("own.st"), scratch_path("out"));
}

/* The gradient of the bias, where it is asked for (a wrong one: test stored, garbage). */
TEST(gradient_of_bias)
{
    struct small s;
    struct attn_file file;
    const char *out = scratch_path("out");
    small_make(&s, 3);
    small_say(&s, "mask", "causal(br)");
    scratch_expect(2, "needs a bias tensor", "run tiled --input %s --out %s --dbias",
                   small_save(&s), out);
    small_add(&s, "bias", 3, 0, 2, 1, 6);
    scratch_expect(0, "bias tensor", "run tiled --input %s --out %s --compare", small_save(&s),
                   out);
    ck_assert_ptr_null(strstr(scratch_output, "dbias"));
    scratch_expect(0, "dbias ", "run tiled --input %s --out %s --compare --dbias", small_save(&s),
                   out);
    open_file(&file, scratch_path("out/result.safetensors"));
    const struct attn_file_tensor *got = tensor(&file, "dbias");
    ck_assert(got->n_axes == 3 && got->extent[0] == 2 && got->extent[1] == 1);
    attn_file_close(&file);
}
