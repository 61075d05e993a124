/* Is the result right?  Every element is compared, or from --verify-all on a sample of rows and
 * keys. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/measure/point.h"
#include "ref/clock.h"

enum { SAMPLES = 64 };

/* So many different indices below n, ascending: the first, the last, and others by hash. */
static int64_t choose(int64_t index[SAMPLES], int64_t n, uint64_t seed, uint64_t stream)
{
    if (n <= SAMPLES) {
        for (int64_t i = 0; i < n; i++)
            index[i] = i;
        return n;
    }
    /* one of each of SAMPLES equal stretches: different and ascending by construction */
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t from = s * n / SAMPLES, to = (s + 1) * n / SAMPLES;
        index[s] = from + (int64_t)(attn_hash(seed, stream, (uint64_t)s) % (uint64_t)(to - from));
    }
    index[0] = 0;
    index[SAMPLES - 1] = n - 1;
    return SAMPLES;
}

/* Whoever gives no LSE is lent the oracle's when the rest is judged, and nothing before. */
static int has_no_lse(const struct attn_work *work)
{
    return work->claims != NULL && work->claims->lse == ATTN_PLUGIN_LSE_ABSENT;
}

static void blank_lse(struct attn_work *work)
{
    struct attn_tensor *lse = &work->setup.tensor[ATTN_T_LSE];
    for (int64_t b = 0; b < lse->extent[0]; b++)
        for (int64_t h = 0; h < lse->extent[1]; h++)
            for (int64_t i = 0; i < lse->extent[2]; i++)
                attn_tensor_set(lse, b, h, i, 0, 0);
}

/* Overwritten red zones, changed inputs, elements that nobody wrote: 1 when there are none. */
static int is_intact(const struct attn_work *work, char *why, size_t size)
{
    const struct attn_setup *s = &work->setup;
    int last = work->point.c.pass == ATTN_FORWARD ? ATTN_T_LSE : ATTN_T_DBIAS;
    if (work->plugin != NULL && work->plugin->integrity[0] != '\0') {
        snprintf(why, size, "%s", work->plugin->integrity);
        return 0;
    }
    for (int slot = 0; slot <= last; slot++) {
        const struct attn_tensor *t = &s->tensor[slot];
        if (t->data == NULL)
            continue;
        if (attn_tensor_intact(t, why, size) != NULL)
            return 0;
        if (slot < ATTN_T_O ? attn_tensor_unchanged(t, why, size) != NULL
                            : attn_tensor_written(t, why, size) != NULL)
            return 0;
    }
    return 1;
}

static void keep_verdict(struct attn_point *p, const struct attn_result *result)
{
    snprintf(p->verdict, sizeof p->verdict, "%s", attn_verdict_name(result->verdict));
    snprintf(p->message, sizeof p->message, "%s", result->text);
    p->worst = result->worst;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        if (result->output[o].n > 0)
            p->output_worst[o] = result->output[o].ratio;
        if (result->output[o].n > 0 && !(result->output[o].ratio < result->worst))
            snprintf(p->worst_output, sizeof p->worst_output, "%s",
                     attn_output_name((enum attn_output)o));
    }
    if (result->verdict == ATTN_PASS || result->verdict == ATTN_WEAK)
        p->status = ATTN_POINT_OK;
    else
        p->status = result->verdict == ATTN_FAILED ? ATTN_POINT_WRONG : ATTN_POINT_ERROR;
}

static void judge(struct attn_work *work, int64_t verify_all)
{
    struct attn_point *p = &work->point;
    struct attn_precision precision;
    struct attn_result result;
    int64_t row[SAMPLES], key[SAMPLES];
    struct attn_sample sample = {-1, -1, row, key};
    if (work->claims != NULL)
        attn_claims_precision(work->claims, &work->setup.problem, &precision);
    else
        attn_precision_of(work->spec.impl, &work->spec.options, &work->setup.problem, &precision);
    memset(&result, 0, sizeof result);
    strcpy(p->verified, "all");
    if (p->c.n_query > verify_all || p->c.n_key > verify_all) {
        sample.n_rows = choose(row, p->c.n_query, p->c.seed, 1001);
        sample.n_keys = choose(key, p->c.n_key, p->c.seed, 1002);
        int n = snprintf(p->verified, sizeof p->verified, "%d rows", (int)sample.n_rows);
        if (p->c.pass == ATTN_BACKWARD)
            snprintf(p->verified + n, sizeof p->verified - (size_t)n, ", %d keys",
                     (int)sample.n_keys);
    }
    if (has_no_lse(work)) {
        struct attn_error err = {ATTN_OK, ""};
        struct attn_forward t = attn_setup_forward(&work->setup);
        if (attn_claims_fill_lse(&work->setup.problem, &t.q, &t.k, &t.v, &t.lse, &err) != ATTN_OK) {
            attn_point_fail(p, &err);
            return;
        }
    }
    attn_judge(&work->setup, &precision, &sample, p->c.pass, &result);
    if (has_no_lse(work))
        attn_claims_drop_lse(&result);
    keep_verdict(p, &result);
}

/* "DIGEST:VERDICT:WORST:OUTPUT" of an earlier round; 0 when these are other bits. */
static int same_bits(struct attn_point *p, const char *verified)
{
    char digest[24], verdict[16], output[8];
    double worst;
    if (verified == NULL ||
        sscanf(verified, "%23[^:]:%15[^:]:%lf:%7s", digest, verdict, &worst, output) != 4 ||
        strcmp(digest, p->digest) != 0)
        return 0;
    strcpy(p->verdict, verdict);
    strcpy(p->worst_output, output);
    strcpy(p->verified, "same bits as round 0");
    p->worst = worst;
    p->status = ATTN_POINT_OK;
    return 1;
}

void attn_point_verify(struct attn_work *work, const struct attn_point_flags *flags)
{
    struct attn_point *p = &work->point;
    double start = attn_seconds(CLOCK_MONOTONIC);
    if (has_no_lse(work))
        blank_lse(work);
    snprintf(p->digest, sizeof p->digest, "%016" PRIx64,
             attn_setup_digest(&work->setup, p->c.pass));
    if (!is_intact(work, p->message, sizeof p->message)) {
        p->status = ATTN_POINT_WRONG;
        strcpy(p->verdict, attn_verdict_name(ATTN_FAILED));
    } else if (flags->verified != NULL && strcmp(flags->verified, "no") == 0)
        p->status = ATTN_POINT_OK;
    else if (!same_bits(p, flags->verified))
        judge(work, flags->verify_all);
    p->verify_s = attn_seconds(CLOCK_MONOTONIC) - start;
    if (p->status != ATTN_POINT_OK)
        attn_point_untimed(p);
}
