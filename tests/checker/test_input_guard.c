/* An implementation must leave alone its inputs, even where it would write the values that stand
 * there, and the floating-point environment. */
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "optimized/registry.h"
#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/inputs/input_guard.h"
#include "tests/harness/subject/subject.h"
#include "tests/suites.h"

SUITE(input_guard);

enum mischief { NONE, SAME, OTHER, BESIDE, IN_BACKWARD, ROUNDING, FLUSH, MISCHIEFS };
static enum mischief mischief;

/* The textbook, then something that it should not. */
static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    float *k = (float *)(uintptr_t)t->k.data;
    volatile float *at = k + t->k.stride[2] * 2 + 1;
    enum attn_status status = attn_impl_dense.forward(ctx, p, t);
    switch (mischief) {
    case SAME:
        *at = *at + 0;
        break;
    case OTHER:
        *at = 7;
        *(at + 1) = 8; /* and goes on */
        break;
    case BESIDE:
        *(volatile float *)(k - 1) = 7;
        break;
    case ROUNDING:
        fesetround(FE_UPWARD);
        break;
    case FLUSH:
#if defined(__x86_64__)
        _mm_setcsr(_mm_getcsr() | 0x8040);
#else
        fesetround(FE_UPWARD);
#endif
        break;
    default:
        break;
    }
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    enum attn_status status = attn_impl_dense.backward(ctx, p, t);
    if (mischief == IN_BACKWARD) { /* scratch in the forward's LSE */
        volatile float *lse = (float *)(uintptr_t)t->lse.data;
        lse[1] = -lse[1];
        lse[1] = -lse[1];
    }
    return status;
}

static const char *const says[MISCHIEFS] = {
    [NONE] = "",
    [SAME] = "fwd: k, an input, was written to at [0,0,2,1]",
    [OTHER] = "fwd: k, an input, was written to at [0,0,2,1]",
    [BESIDE] = "fwd: k, an input, was written to outside its elements",
    [IN_BACKWARD] = "bwd: lse, an input, was written to at [0,0,1,0]",
    [ROUNDING] = "fwd: left the floating-point environment changed: another rounding",
    [FLUSH] = "fwd: left the floating-point environment changed: ",
};

static void judge(void *arg, int i, struct attn_result *r)
{
    (void)i;
    struct attn_impl meddler = attn_impl_dense;
    struct attn_spec spec = {.impl = &meddler};
    meddler.forward = forward;
    meddler.backward = backward;
    attn_options_preset(&meddler, &spec.options);
    mischief = *(enum mischief *)arg;
    *r = result_of(&spec, "q3k5d4:none:f32:normal:s1:pass=bwd");
}

/* In this process and in one of its own; and the next run is not affected. */
TEST_EACH(meddling_is_named, MISCHIEFS)
{
    struct attn_answer answer;
    enum mischief how = (enum mischief)_i, none = NONE;
    int mode = fegetround();
    for (int apart = 0; apart < 2; apart++) {
        struct attn_result r;
        if (apart) {
            attn_own_judge(&(struct attn_subject){.timeout_s = 20}, judge, &how, 1, &answer);
            r = answer.result;
        } else
            judge(&how, 0, &r);
        ck_assert_msg((r.verdict == ATTN_PASS) == (how == NONE), "%s: %s",
                      attn_verdict_name(r.verdict), r.text);
        if (how != NONE)
            ck_assert_int_eq(r.failure, ATTN_F_INTEGRITY);
        ck_assert_msg(strncmp(r.text, says[how], strlen(says[how])) == 0, "%s", r.text);
        ck_assert_int_eq(fegetround(), mode);
        judge(&none, 0, &r);
        ck_assert_int_eq(r.verdict, ATTN_PASS);
    }
}

#if defined(__x86_64__)
/* ---- flushing, declared and not -------------------------------------------------------------- */

/* The textbook with flush-to-zero and denormals-are-zero, put back afterwards: -ffast-math done
 * politely. */
static enum attn_status flushed_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                        const struct attn_forward *t)
{
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    enum attn_status status = attn_impl_dense.forward(ctx, p, t);
    _mm_setcsr(before);
    return status;
}

static enum attn_status flushed_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                         const struct attn_backward *t)
{
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    enum attn_status status = attn_impl_dense.backward(ctx, p, t);
    _mm_setcsr(before);
    return status;
}

static void flushed_precision(const struct attn_problem *p, const struct attn_options *o,
                              struct attn_precision *x)
{
    (void)o;
    attn_precision_flush(p, x);
}

/* Declared: no case fails it, whatever its fill and type; those of tiles and models, which have no
 * other numbers, with ATTN_FULL.  Not declared: the subnormal ones do. */
TEST(flushing_is_a_declaration)
{
    struct attn_impl flusher = attn_impl_dense;
    struct attn_spec spec = {.impl = &flusher};
    int runs = 0, tiny = 0;
    flusher.forward = flushed_forward;
    flusher.backward = flushed_backward;
    attn_options_preset(&flusher, &spec.options);
    for (int i = 0; i < attn_battery_count(ATTN_TIER_QUICK); i++) {
        struct attn_result r;
        struct attn_setup s;
        const char *name = attn_battery_at(i)->name;
        if (getenv("ATTN_FULL") == NULL &&
            (strncmp(name, "tile-", 5) == 0 || strncmp(name, "shape-", 6) == 0))
            continue;
        setup_of(attn_battery_at(i)->text, &s);
        attn_setup_keep(&s);
        flusher.precision = flushed_precision;
        attn_run_setup(&spec, &s, NULL, &r);
        ck_assert_msg(r.verdict != ATTN_FAILED, "%s: %s", attn_battery_at(i)->text, r.text);
        runs += r.verdict == ATTN_PASS;
        flusher.precision = NULL;
        if (s.given.fill == ATTN_FILL_TINY) {
            attn_run_setup(&spec, &s, NULL, &r);
            tiny += r.verdict == ATTN_FAILED && r.failure == ATTN_F_BOUND;
        }
        attn_setup_close(&s);
    }
    ck_assert_int_ge(runs, 200);
    ck_assert_int_ge(tiny, 1);
}
#endif
