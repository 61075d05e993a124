/* Instruction sets: which there are, how one is chosen, and what the kernels of each do. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "optimized/registry.h"
#include "optimized/simd/isa.h"
#include "ref/ledger.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/isa_fixture.h"
#include "tests/fixtures/refused.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/judge/runner.h"
#include "tests/suites.h"

SUITE(isa, .open = scratch_open, .close = scratch_close);

/* Every so manieth float; ATTN_FULL takes all of them. */
static uint64_t step(void)
{
    return getenv("ATTN_FULL") != NULL ? 1 : 4099;
}

static int absent(int n)
{
    return !attn_isa_at(n)->present();
}

static const struct attn_isa *best(void)
{
    const struct attn_isa *isa = attn_isa_best(NULL);
    ck_assert_ptr_nonnull(isa);
    return isa;
}

/* ---- detection ------------------------------------------------------------------------------- */

/* All words of the processor's flags, as the operating system lists them; 0 when it lists none. */
static int system_says(const char *words)
{
    char line[8192], flags[8192] = "", word[32];
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0)
            snprintf(flags, sizeof flags, "%s ", strchr(line, ':') + 1);
    if (file != NULL)
        fclose(file);
    for (char *at = flags; *at != '\0'; at++)
        if (*at == '\n')
            *at = ' ';
    for (int used; sscanf(words, "%30s%n", word + 1, &used) == 1; words += used) {
        word[0] = ' ';
        strcat(word, " ");
        if (strstr(flags, word) == NULL)
            return 0;
    }
    return 1;
}

TEST(the_list)
{
    static const char *const flags[][2] = {
        {"amx", "amx_tile amx_bf16 avx512_bf16 avx512f avx512bw avx512dq avx512vl avx2 fma f16c"},
        {"avx512", "avx512f avx512bw avx512dq avx512vl avx2 fma f16c"},
        {"avx2", "avx2 fma f16c"},
        {"neon", "asimd"},
        {"portable", ""}};
    int n = attn_isa_count();
    ck_assert_int_ge(n, 1);
    ck_assert_str_eq(attn_isa_at(n - 1)->name, "portable");
    for (int i = 0; i < n; i++) {
        const struct attn_isa *isa = attn_isa_at(i);
        int known = 0;
        for (size_t f = 0; f < sizeof flags / sizeof *flags; f++)
            if (strcmp(isa->name, flags[f][0]) == 0) {
                ck_assert_int_eq(isa->present() != 0, system_says(flags[f][1]));
                known++;
            }
        ck_assert_int_eq(known, 1);
        ck_assert_int_eq(isa->kernels[0]->bytes, 4);
        ck_assert_int_eq(isa->kernels[1]->bytes, 8);
        for (int other = 0; other < i; other++)
            ck_assert_str_ne(isa->name, attn_isa_at(other)->name);
    }
}

static enum attn_status chosen(enum attn_dtype dtype, const struct attn_isa *isa,
                               const struct attn_kernels **kernels)
{
    struct attn_problem p = {.dtype = dtype};
    struct attn_options options = {.isa = isa};
    struct attn_error err = {0};
    *kernels = attn_kernels_for(&p, &options, &err);
    return err.status;
}

TEST(the_environment_narrows)
{
    const struct attn_kernels *k;
    for (int n = 0; n < attn_isa_count(); n++) {
        const struct attn_isa *isa = attn_isa_at(n);
        struct attn_error err = {0};
        setenv("ATTN_ISA", isa->name, 1);
        const struct attn_isa *found = attn_isa_best(&err);
        ck_assert_ptr_eq(found, absent(n) ? NULL : isa);
        if (absent(n)) {
            ck_refusal(err.status, ATTN_ENOTSUP, &err, "ATTN_ISA=");
            continue;
        }
        ck_assert_int_eq(chosen(ATTN_F64, NULL, &k), ATTN_OK);
        ck_assert_ptr_eq(k, isa->kernels[1]);
        for (int t = ATTN_F32; t < ATTN_DTYPES; t++) {
            ck_assert_int_eq(chosen((enum attn_dtype)t, NULL, &k), ATTN_OK);
            ck_assert_ptr_eq(k, isa->kernels[0]);
        }
        unsetenv("ATTN_ISA"); /* what a spec says goes before */
        setenv("ATTN_ISA", "portable", 1);
        ck_assert_int_eq(chosen(ATTN_F32, isa, &k), ATTN_OK);
        ck_assert_ptr_eq(k, isa->kernels[0]);
    }
    unsetenv("ATTN_ISA");
    const struct attn_isa *widest = best();
    for (int n = 0; attn_isa_at(n) != widest; n++)
        ck_assert(absent(n));
    setenv("ATTN_ISA", "", 1);
    ck_assert_ptr_eq(best(), widest);
    setenv("ATTN_ISA", "sse9", 1);
    ck_assert_int_eq(chosen(ATTN_F32, NULL, &k), ATTN_EINVAL);
    ck_assert_ptr_null(k);
}

/* ---- specs ----------------------------------------------------------------------------------- */

static void check_spec(const char *text, const char *printed, const struct attn_isa *isa)
{
    char back[200];
    struct attn_spec spec = spec_of(text);
    ck_assert_ptr_eq(spec.options.isa, isa);
    attn_spec_print(&spec, back, sizeof back);
    ck_assert_str_eq(back, printed);
}

TEST(specs)
{
    for (int i = 0; i < attn_impl_count(); i++)
        for (int n = 0; n < attn_isa_count(); n++) {
            const struct attn_impl *x = attn_impl_at(i);
            const char *isa = attn_isa_at(n)->name;
            char text[200];
            struct attn_spec spec;
            struct attn_error err = {0};
            snprintf(text, sizeof text, "%s@%s", x->name, isa);
            if (x->scheme != NULL)
                snprintf(text, sizeof text, "%s:ranks=2@%s", x->name, isa);
            else if (!x->simd) {
                ck_refusal(attn_spec_parse(text, &spec, &err), ATTN_EINVAL, &err,
                           "has no kernels for instruction sets");
                continue;
            }
            if (absent(n))
                ck_refusal(attn_spec_parse(text, &spec, &err), ATTN_ENOTSUP, &err, "does not have");
            else
                check_spec(text, text, attn_isa_at(n));
        }
    check_spec("tiled@portable", "tiled@portable", attn_isa_at(attn_isa_count() - 1));
    check_spec("tiled", "tiled", NULL);
}

static void run(const char *text, const char *case_text, struct attn_result *result)
{
    struct attn_spec spec = spec_of(text);
    *result = result_of(&spec, case_text);
}

/* The portable set rounds every product, the others do not: other bits show which one ran. */
TEST(the_choice_reaches_the_kernels)
{
    static const char *const pair[][3] = {
        {"tiled", "tiled@portable", "b1h2q40k50d24:causal(br):f32:normal:s3"},
        {"ring:ranks=2,local=tiled", "ring:ranks=2,local=tiled@portable",
         "b1h2q40k50d24:causal(br):f32:normal:s3"}};
    struct attn_result widest, named, narrowed;
    for (int n = 0; n < 2; n++) {
        setenv("ATTN_ISA", "portable", 1);
        run(pair[n][0], pair[n][2], &narrowed);
        unsetenv("ATTN_ISA"); /* the user's own, too */
        run(pair[n][0], pair[n][2], &widest);
        run(pair[n][1], pair[n][2], &named);
        ck_assert_int_eq(widest.verdict, ATTN_PASS);
        ck_assert_int_eq(named.verdict, ATTN_PASS);
        ck_assert_int_eq(narrowed.verdict, ATTN_PASS);
        ck_assert(named.digest == narrowed.digest);
        ck_assert((named.digest == widest.digest) == (strcmp(best()->name, "portable") == 0));
    }
}

TEST(a_bad_environment_is_said_by_the_program)
{
    setenv("ATTN_ISA", "sse9", 1);
    static const char *const line[] = {"check dense --case q4d8:none:f32:normal:s1",
                                       "price dense --length 64", "measure", "report", "point {}"};
    for (size_t n = 0; n < sizeof line / sizeof *line; n++)
        scratch_expect(3, "sse9", "%s", line[n]);
    scratch_expect(0, "", "env");
    scratch_expect(0, "", "list");
    scratch_expect(0, "", "price --help");
}

/* ---- prices ---------------------------------------------------------------------------------- */

/* All names of implementations, and one whose P is padded. */
static void all_specs(char text[1024])
{
    strcpy(text, "gemm:save=probs");
    for (int i = 0; i < attn_impl_count(); i++) {
        strcat(text, " ");
        strcat(text, attn_impl_at(i)->name);
    }
}

static int64_t peak_of(const char *text, const struct attn_isa *isa)
{
    const struct attn_problem p = problem_of("h32q4096d64:none:f32:normal:s1", NULL);
    struct attn_spec spec = spec_of(text);
    spec.options.isa = isa;
    return price_of(&spec, &p, ATTN_FORWARD, 0).peak_bytes;
}

/* A set that is not here is priced, and says so; it is not run, whatever runs it. */
TEST_EACH(what_is_absent_is_priced, attn_isa_count())
{
    static const char *const name[] = {"tiled", "bsr", "ring:ranks=2"};
    static const char text[] = "h2q64d8:none:f32:normal:s1";
    if (!absent(_i))
        return;
    for (size_t s = 0; s < COUNT(name); s++) {
        char spec[64];
        struct attn_spec parsed;
        struct attn_error err = {0};
        snprintf(spec, sizeof spec, "%s@%s", name[s], attn_isa_at(_i)->name);
        scratch_expect(0, "priced only: this machine has no", "price %s --length 64", spec);
        scratch_expect(2, "which this machine does not have", "check %s --case %s", spec, text);
        ck_assert_int_eq(attn_spec_parse_priced(spec, &parsed, &err), ATTN_OK);
        struct attn_setup setup;
        setup_of(text, &setup);
        struct attn_ctx ctx = {.options = &parsed.options, .error = &err};
        ck_refusal(attn_setup_call(&setup, parsed.impl, &ctx, ATTN_FORWARD), ATTN_ENOTSUP, &err,
                   "it can only be priced");
        attn_setup_close(&setup);
    }
    scratch_expect(2, "no instruction set is called so", "price tiled@sse9 --length 64");
}

/* A price says for which set it is, where it depends on it, and what it says is so. */
TEST_EACH(a_price_names_the_instruction_set, attn_isa_count())
{
    const struct attn_isa *isa = attn_isa_at(_i), *portable = attn_isa_at(attn_isa_count() - 1);
    char specs[1024], says[64];
    if (absent(_i))
        return;
    all_specs(specs);
    setenv("ATTN_ISA", isa->name, 1);
    scratch_expect(0, "\"isa\"", "price %s --length 4096 --heads 32 --format json", specs);
    json_t *all = json_loads(scratch_output, 0, NULL), *price;
    size_t n;
    int named = 0;
    json_array_foreach(all, n, price)
    {
        const char *spec = json_string_value(json_object_get(price, "spec"));
        const char *name = json_string_value(json_object_get(price, "isa"));
        int64_t peak = json_integer_value(json_object_get(price, "peak_bytes"));
        if (json_integer_value(json_object_get(price, "rank")) != 0)
            continue;
        named += name != NULL;
        ck_assert_msg(name == NULL || strcmp(name, isa->name) == 0, "%s: %s", spec, name);
        ck_assert_msg(peak == peak_of(spec, isa), "%s is not priced for %s", spec, isa->name);
        ck_assert_msg(name != NULL || peak == peak_of(spec, portable), "%s depends on a set", spec);
    }
    json_decref(all);
    snprintf(says, sizeof says, "priced for %s, ", isa->name);
    scratch_expect(0, says, "price %s --length 4096 --heads 32", specs);
    for (const char *at = scratch_output; (at = strstr(at, says)) != NULL; at++)
        named--;
    ck_assert_int_eq(named, 0);
    scratch_expect(0, says, "price tiled --length 4096 --layers 2");
    snprintf(says, sizeof says, "  %s\n", isa->name); /* under "priced for" */
    scratch_expect(0, says, "price tiled --memory 1GiB --longest");
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Of every instruction set in float and in double. */
TEST_EACH(kernels_do_what_they_must, 2 * attn_isa_count() * ISA_CHECKS)
{
    const struct isa_check *check = &isa_checks[_i % ISA_CHECKS];
    const int n = _i / ISA_CHECKS / 2, is_double = _i / ISA_CHECKS % 2;
    const struct attn_isa *isa = attn_isa_at(n);
    char text[ISA_FIXTURE_TEXT] = "";
    if (absent(n))
        return;
    int holds = check->holds(isa->kernels[is_double], step(), text);
    ck_assert_msg(holds, "%s: %s: %s", isa->name, check->name, text);
    if (text[0] != '\0')
        printf("%s, %s: %s %s\n", isa->name, is_double ? "double" : "float", check->name, text);
}

/* Sequences of the length from which blocks of keys have several parts, on as many threads as want
 * to take part: right, and the same bits. */
static const char *const with_options[] = {"gemm:save=probs", "tiled:p=bf16"};
TEST_EACH(long_backward_on_threads, attn_impl_count() + COUNT(with_options))
{
    static const int threads[] = {1, 2, 5};
    uint64_t digest = 0;
    int n_impls = attn_impl_count();
    const char *name = _i < n_impls ? attn_impl_at(_i)->name : with_options[_i - n_impls];
    struct attn_spec spec = spec_of(name);
    if (!spec.impl->simd)
        return;
    struct attn_case c = case_of("h2q2200d8:window(63,0,br):f32:normal:s1:pass=bwd");
    struct attn_setup setup;
    if (strstr(name, "p=bf16") != NULL)
        c.dtype = ATTN_BF16;
    setup_from(&c, &setup);
    attn_setup_keep(&setup); /* one truth for all */
    for (int n = 0; n < 3; n++) {
        struct attn_result r;
        spec.options.threads = threads[n];
        attn_run_setup(&spec, &setup, NULL, &r);
        ck_assert_msg(r.verdict == ATTN_PASS, "%s, %d threads: %s", name, threads[n], r.text);
        ck_assert_msg(n == 0 || r.digest == digest, "%s: other bits with %d threads", name,
                      threads[n]);
        digest = r.digest;
    }
    attn_setup_close(&setup);
}
