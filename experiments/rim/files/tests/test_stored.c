/* Results stored in another type than their inputs: every input type, every stored type, every
 * tensor, by every way in.  Garbage is never a success, honest rounding always is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/base/files.h"
#include "tests/harness/subject/vector_files.h"
#include "tests/suites.h"

SUITE(stored, .open = scratch_open, .close = scratch_close);

static struct attn_error err;

enum { INPUTS = ATTN_T_O };
static const char *const input_name[INPUTS] = {"q", "k", "v", "bias", "sink", "do", "dlse"};

/* A problem with all outputs, its truth, and files of both. */
struct walk {
    struct attn_setup setup;
    struct attn_truth truth;
    struct attn_file_tensor input[INPUTS], result[ATTN_OUTPUTS];
};

static void ok(enum attn_status status)
{
    ck_assert_msg(status == ATTN_OK, "%s", err.text);
}

/* An empty tensor in C order. */
static struct attn_file_tensor shape(const char *name, enum attn_dtype dtype, int n_axes,
                                     const int64_t *extent)
{
    struct attn_file_tensor t = {
        .name = name, .dtype = attn_file_dtype_of(dtype), .n_axes = n_axes, .bytes = 1};
    for (int a = 0; a < n_axes; a++)
        t.bytes *= t.extent[a] = extent[a];
    t.bytes *= attn_file_dtype_size(t.dtype);
    t.data = calloc((size_t)t.bytes + 1, 1);
    ck_assert_ptr_nonnull(t.data);
    return t;
}

static int64_t count(const struct attn_file_tensor *t)
{
    return t->bytes / attn_file_dtype_size(t->dtype);
}

static void set(struct attn_file_tensor *t, int64_t at, double x)
{
    struct attn_view view = {.data = t->data, .stride = {0, 0, 0, 1}};
    attn_file_dtype_storage(t->dtype, &view.dtype);
    attn_view_set(&view, 0, 0, 0, at, x);
}

static void open_walk(struct walk *x, enum attn_dtype dtype, double size)
{
    const struct attn_spec spec = spec_of("tiled");
    char text[160];
    snprintf(text, sizeof text,
             "b2h4g2q5k7d4v3:causal(br):%s:normal:s1:pass=bwd:bias=full:dbias=1:sink=normal:"
             "dlse=1",
             attn_dtype_name(dtype));
    setup_of(text, &x->setup);
    for (int t = 0; t < INPUTS; t++) {
        struct attn_tensor *from = &x->setup.tensor[t];
        const int64_t *n = from->extent;
        int64_t at[4] = ATTN_START;
        x->input[t] = t == ATTN_T_SINK
                          ? shape(input_name[t], from->dtype, 1, n + 1)
                          : shape(input_name[t], from->dtype, t == ATTN_T_DLSE ? 3 : 4, n);
        for (int64_t e = 0; attn_each(at, n); e++) {
            double value = attn_tensor_get(from, at[0], at[1], at[2], at[3]);
            if (t == ATTN_T_V)
                attn_tensor_set(from, at[0], at[1], at[2], at[3], value *= size);
            set(&x->input[t], e, value);
        }
    }
    truth_of(&x->setup, &spec, NULL, &x->truth);
}

static void close_walk(struct walk *x)
{
    for (int t = 0; t < INPUTS; t++)
        free(x->input[t].data);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        free(x->result[o].data);
    attn_truth_free(&x->truth);
    attn_setup_close(&x->setup);
}

/* The truth as an honest program may store it: at once, or by the problem's own type first. */
static void store_results(struct walk *x, enum attn_dtype stored, int by_way)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_truth_tensor *t = &x->truth.tensor[o];
        free(x->result[o].data);
        x->result[o] = o == ATTN_DSINK ? shape(t->name, stored, 1, t->extent + 1)
                                       : shape(t->name, stored, o == ATTN_LSE ? 3 : 4, t->extent);
        for (int64_t n = 0; n < count(&x->result[o]); n++)
            set(&x->result[o], n, by_way ? attn_dtype_round(t->want[n], t->storage) : t->want[n]);
    }
}

enum { LARGEST_OFF, NOT_A_NUMBER, INFINITE, NEGATED, KINDS };

/* Spoil a result: by 3 % in one place, or grossly. */
static void spoil(struct walk *x, int o, int how)
{
    const double *want = x->truth.tensor[o].want;
    int64_t n = count(&x->result[o]), worst = 0;
    for (int64_t e = 0; e < n; e++)
        worst = fabs(want[e]) > fabs(want[worst]) ? e : worst;
    if (how == NEGATED)
        for (int64_t e = 0; e < n; e++)
            set(&x->result[o], e, -want[e]);
    else
        set(&x->result[o], worst,
            how == LARGEST_OFF ? want[worst] * 1.03
            : how == INFINITE  ? -copysign((double)INFINITY, want[worst])
                               : (double)NAN);
}

/* ---- the ways in ---------------------------------------------------------------------------- */

static const char *put(const char *name, const struct attn_file_tensor *t, int n)
{
    static const struct attn_file_pair said[] = {{"mask", "causal(br)"}, {"scale", "0.5"}};
    const char *path = scratch_path(name);
    ok(attn_safetensors_write(path, t, n, said, 2, &err));
    return path;
}

/* `attnlab run --compare`, results beside the inputs. */
static int by_run(const struct walk *x)
{
    struct attn_file_tensor all[INPUTS + ATTN_OUTPUTS];
    memcpy(all, x->input, sizeof x->input);
    memcpy(all + INPUTS, x->result, sizeof x->result);
    return scratch_attnlab("run tiled --input '%s' --compare --arithmetic f32",
                           put("all.safetensors", all, INPUTS + ATTN_OUTPUTS));
}

/* `attnlab compare`, rule bound. */
static int by_compare(const struct walk *x)
{
    const char *want = put("in.safetensors", x->input, INPUTS);
    return scratch_attnlab("compare --arithmetic f32 '%s' '%s'",
                           put("out.safetensors", x->result, ATTN_OUTPUTS), want);
}

/* Results in files, by `attnlab check`. */
static int by_check(struct walk *x)
{
    const struct attn_claims claims = {0};
    struct attn_result r = {0};
    mkdir(scratch_path("case"), 0777);
    put("case/result.safetensors", x->result, ATTN_OUTPUTS);
    ok(attn_vector_files_read(scratch_path(""), "case", &claims, &x->setup, &err));
    attn_vector_files_judge(&claims, &x->setup, &r);
    snprintf(scratch_output, sizeof scratch_output, "%s", r.text);
    return r.verdict != ATTN_PASS;
}

static void expect(int got, int wanted, const struct walk *x, enum attn_dtype stored,
                   const char *what)
{
    ck_assert_msg(got == wanted, "%s inputs, stored as %s, %s: %d, not %d\n%s",
                  attn_dtype_name(x->setup.problem.dtype), attn_dtype_name(stored), what, got,
                  wanted, scratch_output);
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* Loop over input types.  Values as they come; too large and too small for f16. */
TEST_EACH(honest_rounding, ATTN_DTYPES)
{
    static const double size[] = {1, 1e5, 1e-7};
    for (int n = 0; n < (_i == ATTN_F16 ? 1 : 3); n++)
        for (int stored = 0; stored < ATTN_DTYPES; stored++) {
            struct walk x = {0};
            open_walk(&x, (enum attn_dtype)_i, size[n]);
            for (int by_way = 0; by_way < 2; by_way++) {
                store_results(&x, (enum attn_dtype)stored, by_way);
                if (n == 0 || by_way == stored % 2)
                    expect(by_compare(&x), 0, &x, (enum attn_dtype)stored, "honest, compare");
                expect(by_check(&x), 0, &x, (enum attn_dtype)stored, "honest, check");
            }
            if (n == 0)
                expect(by_run(&x), 0, &x, (enum attn_dtype)stored, "honest, run");
            for (int o = 0; o < ATTN_OUTPUTS && n > 0; o++) {
                store_results(&x, (enum attn_dtype)stored, 0);
                spoil(&x, o, NEGATED);
                int zero = o > ATTN_LSE && n == 2 && stored == ATTN_F16; /* they underflow */
                if (!zero)
                    expect(by_check(&x), 1, &x, (enum attn_dtype)stored, "negated");
            }
            close_walk(&x);
        }
}

TEST_EACH(garbage, ATTN_DTYPES)
{
    for (int stored = 0; stored < ATTN_DTYPES; stored++)
        for (int o = 0; o < ATTN_OUTPUTS; o++)
            for (int how = 0; how < KINDS; how++) {
                struct walk x = {0};
                open_walk(&x, (enum attn_dtype)_i, 1);
                store_results(&x, (enum attn_dtype)stored, 1);
                spoil(&x, o, how);
                const char *name = x.result[o].name;
                expect(by_check(&x), 1, &x, (enum attn_dtype)stored, name);
                if (how == (_i + stored + o) % KINDS) /* a program each: one of the two */
                    expect((_i + stored) % 2 ? by_run(&x) : by_compare(&x), 1, &x,
                           (enum attn_dtype)stored, name);
                close_walk(&x);
            }
}

/* No type of results, or an unknown name: 2, and named. */
static const struct {
    int output;
    const char *name;
    enum attn_file_dtype dtype;
    const char *said;
} odd[] = {{ATTN_O, "o", ATTN_FILE_I64, "o is stored as I64"},
           {ATTN_DBIAS, "dbias", ATTN_FILE_U8, "dbias is stored as U8"},
           {ATTN_LSE, "lse", ATTN_FILE_BOOL, "lse is stored as BOOL"},
           {ATTN_DQ, "dQ", ATTN_FILE_F32, "dQ     "},
           {ATTN_O, "out", ATTN_FILE_F16, "out    "}};

TEST_EACH(not_to_be_judged, COUNT(odd))
{
    struct walk x = {0};
    open_walk(&x, ATTN_F32, 1);
    store_results(&x, ATTN_F32, 0);
    struct attn_file_tensor *t = &x.result[odd[_i].output], old = *t;
    char *eight = calloc(8, (size_t)count(t));
    t->name = odd[_i].name;
    t->dtype = odd[_i].dtype;
    t->data = eight;
    t->bytes = count(&old) * attn_file_dtype_size(t->dtype);
    expect(by_run(&x), 2, &x, ATTN_F32, t->name);
    scratch_has(odd[_i].said);
    expect(by_compare(&x), 2, &x, ATTN_F32, t->name);
    scratch_has(odd[_i].said);
    *t = old;
    free(eight);
    close_walk(&x);
}

/* Inputs and results that could not belong together: each is named, and none is a success. */
TEST_EACH(without_their_inputs, 2)
{
    static const struct {
        int input, output;
        const char *said;
    } missing[] = {{ATTN_T_DO, ATTN_DK, "not judged: a gradient, and there is no 'do'"},
                   {ATTN_T_BIAS, ATTN_DBIAS, "not judged: there is no tensor 'bias'"}};
    struct walk x = {0};
    struct attn_file_tensor t[INPUTS + 2];
    int n = 0;
    open_walk(&x, ATTN_F32, 1);
    store_results(&x, ATTN_F32, 0);
    for (int i = 0; i < INPUTS; i++)
        if (i != missing[_i].input)
            t[n++] = x.input[i];
    t[n] = x.result[missing[_i].output];
    put("in.safetensors", t, n + 1);
    scratch_expect(2, missing[_i].said, "run tiled --input '%s' --compare",
                   scratch_path("in.safetensors"));
    const char *folder = scratch_path("in"); /* the same by files of their own */
    mkdir(folder, 0777);
    for (int i = 0; i < n; i++) {
        char name[40];
        snprintf(name, sizeof name, "in/%s.npy", t[i].name);
        ok(attn_npy_write(scratch_path(name), &t[i], &err));
    }
    t[0] = x.result[missing[_i].output];
    t[1] = x.result[ATTN_O];
    scratch_expect(_i == 0 ? 2 : 1, missing[_i].said,
                   "compare '%s' '%s' --mask 'causal(br)' --scale 0.5",
                   put("two.safetensors", t, 2), folder); /* o is of a problem with a bias */
    close_walk(&x);
}

/* Results of a case that no check would read, in files of `attnlab check`. */
TEST_EACH(unread_by_check, 4)
{
    static const char *const said[] = {"lies beside o.npy", "does not ask for it",
                                       "declared \"lse\": \"absent\"", "lies beside result.npz"};
    struct attn_claims claims = {.lse = _i == 2 ? ATTN_PLUGIN_LSE_ABSENT : ATTN_PLUGIN_LSE_E};
    struct attn_setup setup;
    struct walk x = {0};
    open_walk(&x, ATTN_F32, 1);
    store_results(&x, ATTN_F32, 0);
    mkdir(scratch_path("case"), 0777);
    put("case/result.safetensors", x.result, _i == 1 ? ATTN_OUTPUTS : 2);
    if (_i == 0)
        ok(attn_npy_write(scratch_path("case/o.npy"), &x.result[ATTN_O], &err));
    if (_i == 3)
        scratch_put("case/result.npz", "PK", 2);
    setup_of("b2h4g2q5k7d4v3:causal(br):f32:normal:s1:bias=full", &setup);
    ck_assert_int_eq((int)attn_vector_files_read(scratch_path(""), "case", &claims, &setup, &err),
                     ATTN_EINVAL);
    ck_assert_msg(strstr(err.text, said[_i]) != NULL, "%s", err.text);
    attn_setup_close(&setup);
    close_walk(&x);
}

/* Scores so large that honest rounding may pick another key: nothing has been judged. */
TEST(nothing_to_say)
{
    struct walk x = {0};
    open_walk(&x, ATTN_F32, 1);
    for (int t = ATTN_T_Q; t <= ATTN_T_K; t++)
        for (int64_t n = 0; n < count(&x.input[t]); n++)
            ((float *)x.input[t].data)[n] *= 1e4f;
    const char *in = put("in.safetensors", x.input, INPUTS);
    scratch_expect(2, "WEAK", "run tiled --input '%s' --compare", in);
    scratch_expect(0, "", "run tiled --input '%s' --compare --only lse", in);
    ck_assert_msg(strstr(scratch_output, "WEAK") == NULL, "%s", scratch_output);
    close_walk(&x);
}

/* A folder of inputs with a result in it, which is judged too. */
TEST(results_in_the_folder)
{
    struct walk x = {0};
    open_walk(&x, ATTN_F32, 1);
    store_results(&x, ATTN_F32, 0);
    mkdir(scratch_path("case"), 0777);
    put("case/inputs.safetensors", x.input, INPUTS);
    ok(attn_npy_write(scratch_path("case/dv.npy"), &x.result[ATTN_DV], &err));
    const char *in = scratch_path("case");
    scratch_expect(0, "dv      the file  f32     ok", "run tiled --input '%s' --compare", in);
    scratch_expect(0, "", "compare '%s' '%s/inputs.safetensors'", in, in);
    close_walk(&x);
}
