/* See diagnose.h.  Suspects are asked in the order of their plausibility: conventions first. */
#include "tests/harness/faults/diagnose.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ref/problem.h"

static const double max_work = 8e6;
static const double log2_e = 1.44269504088896340736, ln_2 = 0.69314718055994530942;

int attn_hypothesis(struct attn_hypotheses *x, const struct attn_fault_model *model,
                    const char *format, ...)
{
    va_list args;
    if (!attn_fault_fits(x->failed, model))
        return 0;
    va_start(args, format);
    int n = vsnprintf(x->text, x->size, format, args);
    va_end(args);
    if (x->failed->backward && n > 0 && (size_t)n < x->size)
        snprintf(x->text + n, x->size - (size_t)n, " (in the backward)");
    return 1;
}

/* ---- conventions ----------------------------------------------------------------------------- */

static int try_lse(struct attn_hypotheses *x)
{
    struct attn_fault_model t;
    attn_fault_none(x->setup, &t);
    t.lse_factor = log2_e;
    if (attn_hypothesis(x, &t, "fits if LSE is base 2"))
        return 1;
    t.empty = ATTN_MODEL_EMPTY_PLUS;
    if (attn_hypothesis(x, &t, "fits if LSE is base 2, and +inf for an empty row"))
        return 1;
    t.lse_factor = 1;
    if (attn_hypothesis(x, &t, "fits if LSE is +inf for an empty row"))
        return 1;
    t.empty = ATTN_MODEL_EMPTY_NULL;
    if (attn_hypothesis(x, &t, "fits if LSE is 0 for an empty row"))
        return 1;
    attn_fault_none(x->setup, &t);
    t.lse_factor = ln_2;
    if (attn_hypothesis(x, &t, "fits if LSE is converted from base 2 once too often"))
        return 1;
    t.lse_factor = -1;
    if (attn_hypothesis(x, &t, "fits if LSE has the wrong sign"))
        return 1;
    attn_fault_none(x->setup, &t);
    t.lse_without_m = 1;
    if (attn_hypothesis(x, &t, "fits if LSE lacks the maximum (ln l alone)"))
        return 1;
    t.lse_without_m = 0, t.lse_is_l = 1;
    if (attn_hypothesis(x, &t, "fits if LSE is l, not its logarithm"))
        return 1;
    t.lse_is_l = 0, t.lse_no_log = 1;
    if (attn_hypothesis(x, &t, "fits if LSE is m + l, without the logarithm"))
        return 1;
    t.lse_no_log = 0, t.lse_is_m = 1;
    return attn_hypothesis(x, &t, "fits if LSE is the maximum alone");
}

/* ---- heads, batches, rows -------------------------------------------------------------------- */

static int try_heads(struct attn_hypotheses *x)
{
    static const char *const words[] = {"",
                                        "h mod G",
                                        "h / G",
                                        "always to kv head 0",
                                        "to the next kv head",
                                        "min(h, G - 1)",
                                        "by the group's size as modulus and stride"};
    static const char *const of[] = {"", " for K", " for V"};
    const struct attn_problem *p = &x->setup->problem;
    struct attn_fault_model t;
    attn_fault_none(x->setup, &t);
    for (int n = 0; n < 3; n++) {
        t.of = (enum attn_model_of)n;
        for (int map = ATTN_MODEL_MODULO; map <= ATTN_MODEL_STRIDED && p->kv_heads > 1; map++) {
            t.heads = (enum attn_model_heads)map;
            if (attn_hypothesis(x, &t, "fits heads mapped %s%s", words[map], of[n]))
                return 1;
        }
        t.heads = ATTN_MODEL_GROUPED;
        t.kv_batch_0 = 1;
        if (p->batch > 1 && attn_hypothesis(x, &t, "fits batch 0 in place of every batch%s",
                                            n == 0 ? " in K and V" : of[n]))
            return 1;
        t.kv_batch_0 = 0;
    }
    if (x->failed->backward)
        return 0;
    attn_fault_none(x->setup, &t);
    t.shift_heads = 1;
    if (p->heads > 1 && attn_hypothesis(x, &t, "fits the output of the neighbouring head"))
        return 1;
    t.shift_heads = 0;
    t.shift_rows = 1;
    if (p->n_query > 1 && attn_hypothesis(x, &t, "fits rows moved by one"))
        return 1;
    attn_fault_none(x->setup, &t);
    t.keys_repeated = p->heads / p->kv_heads;
    return t.keys_repeated > 1 &&
           attn_hypothesis(x, &t, "fits V repeated along the keys, not along the heads");
}

/* ---- scores ---------------------------------------------------------------------------------- */

static int try_scale(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    double d = (double)(p->d_key > 0 ? p->d_key : 1),
           dv = (double)(p->d_value > 0 ? p->d_value : 1);
    const struct {
        double scale;
        const char *words;
    } list[] = {{1, "scale missing"},
                {p->scale * p->scale, "scale squared (applied twice)"},
                {1 / sqrt(d), "a built-in scale of 1/sqrt(d)"},
                {1 / sqrt(dv), "a scale of 1/sqrt(dv)"},
                {1 / d, "a scale of 1/d"},
                {sqrt(fabs(p->scale)), "the root of the scale"},
                {-p->scale, "a scale of the wrong sign"},
                {p->scale * ln_2, "exp2 in place of exp"},
                {p->scale * log2_e, "a factor log2(e) too much in the scores"},
                {0, "scores of 0: every visible key weighs the same"}};
    struct attn_fault_model t;
    for (size_t n = 0; n < sizeof list / sizeof *list; n++) {
        attn_fault_none(x->setup, &t);
        t.scale = list[n].scale;
        if (t.scale != p->scale && !(t.scale == 0 && x->failed->backward) &&
            attn_hypothesis(x, &t, "fits %s", list[n].words))
            return 1;
    }
    return 0;
}

static int try_cap(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    struct attn_fault_model t;
    if (!(p->softcap > 0))
        return 0;
    attn_fault_none(x->setup, &t);
    t.softcap = 0;
    if (attn_hypothesis(x, &t, "fits softcap missing"))
        return 1;
    attn_fault_none(x->setup, &t);
    t.cap_hidden = 1;
    if (p->mask != NULL && attn_hypothesis(x, &t, "fits softcap after the mask"))
        return 1;
    t.cap_hidden = 0;
    t.cap_last = 1;
    if (p->bias.kind != ATTN_BIAS_NONE && attn_hypothesis(x, &t, "fits softcap after the bias"))
        return 1;
    attn_fault_none(x->setup, &t);
    t.no_cap_slope = 1;
    return x->failed->backward && attn_hypothesis(x, &t, "fits softcap without its derivative");
}

/* ---- empty rows, lost keys ------------------------------------------------------------------- */

static int try_empty(struct attn_hypotheses *x)
{
    struct attn_fault_model t;
    if (x->failed->backward)
        return 0;
    attn_fault_none(x->setup, &t);
    t.empty = ATTN_MODEL_EMPTY_NAN;
    if (attn_hypothesis(x, &t, "fits NaN (0/0) in rows that see no key"))
        return 1;
    t.empty = ATTN_MODEL_EMPTY_NAN_O;
    if (attn_hypothesis(x, &t, "fits NaN (0/0) in O in rows that see no key"))
        return 1;
    t.empty = ATTN_MODEL_EMPTY_MEAN;
    if (attn_hypothesis(x, &t, "fits the mean of all V in rows that see no key"))
        return 1;
    static const double stand_in[] = {-1e9, -1e4,   -(double)FLT_MAX, -1e30, -1e10, -1e6,
                                      -1e5, -65504, -32768,           -5e4,  -1e3,  -100};
    enum { STAND_INS = sizeof stand_in / sizeof *stand_in };
    for (int n = 0; n < 2 * STAND_INS; n++) {
        attn_fault_none(x->setup, &t);
        t.hidden = stand_in[n / 2];
        t.hidden_added = n % 2;
        const char *way = t.hidden < -1e8 ? "put or added" : n % 2 ? "added" : "put";
        if (x->setup->problem.mask != NULL &&
            attn_hypothesis(x, &t, "fits %g %s in place of -inf for hidden scores", t.hidden, way))
            return 1;
    }
    return 0;
}

static int try_part(struct attn_hypotheses *x, int64_t lo, int64_t hi, const char *words)
{
    struct attn_fault_model t;
    attn_fault_none(x->setup, &t);
    t.lost_lo = lo, t.lost_hi = hi;
    if (attn_hypothesis(x, &t, "fits keys %lld to %lld lost: %s", (long long)lo, (long long)hi - 1,
                        words))
        return 1;
    attn_fault_none(x->setup, &t);
    t.twice_lo = lo, t.twice_hi = hi;
    return !x->failed->backward &&
           attn_hypothesis(x, &t, "fits keys %lld to %lld counted twice: %s", (long long)lo,
                           (long long)hi - 1, words);
}

static int try_keys(struct attn_hypotheses *x)
{
    int64_t n = x->setup->problem.n_key;
    char words[48];
    if (n > 1 && try_part(x, 0, n, "all"))
        return 1;
    if (n > 0 && (try_part(x, n - 1, n, "the last") || try_part(x, 0, 1, "the first")))
        return 1;
    for (int64_t tile = 4; tile <= 256; tile *= 2) {
        if (n % tile == 0 || n < tile)
            continue;
        snprintf(words, sizeof words, "the tail of a tile of %lld", (long long)tile);
        if (try_part(x, n - n % tile, n, words))
            return 1;
        struct attn_fault_model t;
        attn_fault_none(x->setup, &t);
        t.zero_keys = tile - n % tile;
        if (!x->failed->backward &&
            attn_hypothesis(x, &t,
                            "fits %lld keys of score 0 behind the last: a tile of %lld padded",
                            (long long)t.zero_keys, (long long)tile))
            return 1;
    }
    for (int64_t most = 128; most < n; most *= 2)
        if (try_part(x, most, n, "all beyond a largest block"))
            return 1;
    for (int64_t ranks = 2; ranks <= 8 && ranks <= n; ranks++)
        for (int64_t r = 0; r < ranks; r++) {
            snprintf(words, sizeof words, "shard %lld of %lld", (long long)r, (long long)ranks);
            if (n % ranks == 0 && try_part(x, r * n / ranks, (r + 1) * n / ranks, words))
                return 1;
        }
    for (int64_t tile = 16; tile <= 128; tile *= 2)
        for (int64_t j = 0; j + tile < n; j += tile) {
            snprintf(words, sizeof words, "a tile of %lld", (long long)tile);
            if (try_part(x, j, j + tile, words))
                return 1;
        }
    return 0;
}

/* ---- the running softmax --------------------------------------------------------------------- */

static int try_running(struct attn_hypotheses *x)
{
    static const char *const what[] = {"", "O", "l", "O and l"};
    struct attn_fault_model t;
    if (x->failed->backward)
        return 0;
    attn_fault_none(x->setup, &t);
    t.unnormalised = 1;
    if (attn_hypothesis(x, &t, "fits O not divided by l"))
        return 1;
    for (int64_t tile = 1; tile <= 128; tile = tile == 1 ? 4 : 2 * tile)
        for (int stale = ATTN_MODEL_STALE_O; stale <= ATTN_MODEL_STALE_BOTH; stale++) {
            attn_fault_none(x->setup, &t);
            t.tile = tile;
            t.stale = (enum attn_model_stale)stale;
            if (attn_hypothesis(x, &t,
                                "fits %s not rescaled when the maximum grows (tiles of %lld)",
                                what[stale], (long long)tile))
                return 1;
        }
    return 0;
}

/* ---- precision ------------------------------------------------------------------------------- */

/* The truth itself fits once tolerances are wide: nothing is wrong but the digits. */
static int try_precision(struct attn_hypotheses *x)
{
    static const struct {
        double loose;
        const char *words;
    } list[] = {{1e-9, "errors near the bound: declare the arithmetic (u, block) as it is"},
                {3e-5, "errors of some units of f32: declare u, u_p or block as they are"},
                {4e-3, "errors as of low-precision accumulation in f16 or tf32 (u 4.9e-4)"},
                {4e-2, "errors as of low-precision accumulation in bf16 (u 3.9e-3)"}};
    int wide = x->setup->problem.dtype == ATTN_F64;
    for (size_t n = wide ? 0 : 1; n < sizeof list / sizeof *list; n++) {
        struct attn_failed_run loose = *x->failed;
        loose.loose = list[n].loose;
        if (attn_truth_is_near(&loose)) {
            snprintf(x->text, x->size, "%s", wide && n == 1 ? "arithmetic in f32" : list[n].words);
            return 1;
        }
    }
    return 0;
}

/* ---- the interface --------------------------------------------------------------------------- */

static void note_failing(const struct attn_result *r, struct attn_failed_run *q)
{
    int forward = 0;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        q->compared[o] = r->output[o].n > 0;
        q->failing[o] = r->output[o].n_bad > 0;
    }
    if (r->failure == ATTN_F_EXACT)
        q->failing[ATTN_O] = 1;
    forward = q->failing[ATTN_O] || q->failing[ATTN_LSE];
    q->backward = !forward;
}

static const struct {
    int (*ask)(struct attn_hypotheses *x);
    enum attn_fault fault;
} hypotheses[] = {{try_lse, ATTN_FAULT_LSE},
                  {attn_hypothesis_layout, ATTN_FAULT_LAYOUT},
                  {attn_hypothesis_numbers, ATTN_FAULT_SCORES},
                  {attn_hypothesis_masks, ATTN_FAULT_KEYS},
                  {attn_hypothesis_strides, ATTN_FAULT_LAYOUT},
                  {try_heads, ATTN_FAULT_HEADS},
                  {try_scale, ATTN_FAULT_SCORES},
                  {try_cap, ATTN_FAULT_SCORES},
                  {attn_hypothesis_bias, ATTN_FAULT_SCORES},
                  {try_empty, ATTN_FAULT_EMPTY},
                  {attn_hypothesis_start, ATTN_FAULT_SOFTMAX},
                  {try_running, ATTN_FAULT_SOFTMAX},
                  {attn_hypothesis_backward, ATTN_FAULT_GRADIENTS},
                  {try_keys, ATTN_FAULT_KEYS},
                  {attn_hypothesis_ranks, ATTN_FAULT_RANKS},
                  {attn_hypothesis_blocks, ATTN_FAULT_HEADS},
                  {attn_hypothesis_places, ATTN_FAULT_LAYOUT},
                  {attn_hypothesis_seen, ATTN_FAULT_KEYS},
                  {attn_hypothesis_delta, ATTN_FAULT_GRADIENTS},
                  {attn_hypothesis_lines, ATTN_FAULT_FACTOR},
                  {try_precision, ATTN_FAULT_PRECISION}};
enum { SUSPECTS = sizeof hypotheses / sizeof *hypotheses };

/* What cannot be wrong with one output alone: keys that O has not seen are not in LSE either. */
static int shows_in_all(enum attn_fault fault, int output)
{
    int of_keys = fault == ATTN_FAULT_KEYS || fault == ATTN_FAULT_RANKS;
    return fault == ATTN_FAULT_PRECISION || (of_keys && output == ATTN_O);
}

static int ask(struct attn_hypotheses *x, struct attn_diagnosis *d)
{
    for (int n = 0; n < SUSPECTS; n++)
        if (hypotheses[n].ask(x)) {
            d->fault = hypotheses[n].fault;
            return ATTN_WHAT;
        }
    /* Nothing explains all outputs: perhaps something explains one of them. */
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        struct attn_failed_run one = *x->failed;
        char text[256] = "";
        struct attn_hypotheses own = {x->setup, &one, text, sizeof text};
        if (!one.failing[o] || (o >= ATTN_DQ) != one.backward)
            continue;
        for (int other = 0; other < ATTN_OUTPUTS; other++)
            one.failing[other] = one.compared[other] = other == o;
        for (int n = 0; n < SUSPECTS; n++)
            if (!shows_in_all(hypotheses[n].fault, o) && hypotheses[n].ask(&own)) {
                d->fault = hypotheses[n].fault;
                snprintf(x->text, x->size, "%s alone %s", attn_output_name((enum attn_output)o),
                         text);
                return ATTN_WHAT;
            }
    }
    return attn_describe_pattern(x->failed, d) ? ATTN_WHERE : 0;
}

/* Multiplications of one model; what is larger is not diagnosed. */
static double work_of(const struct attn_setup *s)
{
    const struct attn_problem *p = &s->problem;
    return (double)(p->batch * p->heads * p->n_query) * (double)p->n_key *
           (double)(p->d_key + p->d_value + 4);
}

static int diagnose(const struct attn_setup *s, const struct attn_result *r, int ranks,
                    struct attn_diagnosis *d)
{
    struct attn_failed_run q = {
        .setup = s, .ranks = ranks, .loose = s->problem.dtype == ATTN_F64 ? 1e-11 : 2e-5};
    struct attn_error err = {0};
    *d = (struct attn_diagnosis){.fault = ATTN_FAULT_NONE};
    note_failing(r, &q);
    int numeric =
        r->failure == ATTN_F_FINITE || r->failure == ATTN_F_EXACT || r->failure == ATTN_F_BOUND;
    if (r->verdict != ATTN_FAILED || !numeric || !(r->precision.u > 0) || work_of(s) > max_work)
        return 0;
    struct attn_inputs in = attn_setup_inputs(s, s->given.pass);
    if (attn_truth_compute(&s->problem, &in, &r->precision, NULL, &q.truth, &err) != ATTN_OK)
        return 0;
    struct attn_hypotheses x = {s, &q, d->text, sizeof d->text};
    int found = ask(&x, d);
    attn_truth_free(&q.truth);
    return found;
}

int attn_diagnose(const struct attn_setup *s, const struct attn_result *r, struct attn_diagnosis *d)
{
    return diagnose(s, r, 1, d);
}

/* No model fits: other runs may say more than where the failing elements are. */
static void look_further(const struct attn_spec *spec, const struct attn_claims *claims,
                         const struct attn_case *c, const struct attn_result *r,
                         struct attn_diagnosis *d)
{
    char part[3][200] = {"", "", ""}, whole[3 * sizeof part[0]] = "";
    enum attn_fault fault[3] = {ATTN_FAULT_STATE, d->fault, ATTN_FAULT_FEATURE};
    attn_hypothesis_again(spec, c, r, part[0], sizeof part[0]);
    if (d->fault != ATTN_FAULT_NONE)
        snprintf(part[1], sizeof part[1], "%.199s", d->text);
    attn_hypothesis_feature(spec, claims, c, part[2], sizeof part[2]);
    for (int n = 2; n >= 0; n--)
        d->fault = part[n][0] != '\0' ? fault[n] : d->fault;
    for (int n = 0; n < 3; n++) {
        size_t used = strlen(whole);
        if (part[n][0] != '\0')
            snprintf(whole + used, sizeof whole - used, "%s%.199s", used > 0 ? "; " : "", part[n]);
    }
    if (whole[0] != '\0')
        snprintf(d->text, sizeof d->text, "%.255s", whole);
}

int attn_diagnose_case(const struct attn_spec *spec, const struct attn_claims *claims,
                       const struct attn_case *c, const struct attn_result *r,
                       struct attn_diagnosis *d)
{
    struct attn_setup setup;
    struct attn_ledger ledger;
    struct attn_error err = {0};
    struct attn_case own = *c;
    int found = 0;
    *d = (struct attn_diagnosis){.fault = ATTN_FAULT_NONE};
    if (claims != NULL && claims->layout == ATTN_PLUGIN_BLHD && c->layout == ATTN_LAYOUT_BHLD)
        own.layout = ATTN_LAYOUT_BLHD; /* so that nobody copies: hypotheses read what it has read */
    if (attn_setup_open(&own, &setup, &err) != ATTN_OK)
        return 0;
    struct attn_saved saved = {0};
    struct attn_ctx ctx = {
        .ledger = &ledger, .options = &spec->options, .error = &err, .saved = &saved};
    struct attn_forward f = attn_setup_forward(&setup);
    attn_ledger_init(&ledger, NULL);
    ledger.poison = 1; /* as when the case failed */
    enum attn_status status = attn_run_forward(spec->impl, &ctx, &setup.problem, &f);
    if (status == ATTN_OK && c->pass == ATTN_BACKWARD) {
        struct attn_backward b = attn_setup_backward(&setup);
        status = attn_run_backward(spec->impl, &ctx, &setup.problem, &b);
    }
    attn_ledger_clear(&ledger);
    if (status == ATTN_OK)
        found = diagnose(&setup, r, spec->impl->ranks != NULL ? 2 : claims != NULL, d);
    attn_setup_close(&setup);
    if (found == ATTN_WHERE)
        look_further(spec, claims, c, r, d);
    return found != 0;
}
