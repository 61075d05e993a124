/* The judgement of a point: refused or wrong, intact, and the oracle's verdict (point_work.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "experiments/measure/point/point_work.h"
#include "ref/clock.h"

/* Overwritten red zones, changed inputs, elements that are not written: 1 when there are none, else
 * 0 and p->message. */
static int is_intact(const struct attn_setup *s, struct attn_point *p)
{
    const size_t size = sizeof p->message;
    char *why = p->message;
    int last = p->c.pass == ATTN_FORWARD ? ATTN_T_LSE : ATTN_T_DBIAS;
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

/* A result without an LSE gets the oracle's when the rest is judged, and not before. */
static int has_no_lse(const struct attn_point_work *work)
{
    return work->claims != NULL && work->claims->lse == ATTN_PLUGIN_LSE_ABSENT;
}

static void blank_lse(struct attn_point_work *work)
{
    struct attn_tensor *lse = &work->setup.tensor[ATTN_T_LSE];
    for (int64_t b = 0; b < lse->extent[0]; b++)
        for (int64_t h = 0; h < lse->extent[1]; h++)
            for (int64_t i = 0; i < lse->extent[2]; i++)
                attn_tensor_set(lse, b, h, i, 0, 0);
}

/* The oracle: status, verdict, message, worst errors and `verified` of the point. */
static void judge(struct attn_point_work *work)
{
    struct attn_point *p = work->point;
    const struct attn_setup *setup = &work->setup;
    struct attn_error err = {ATTN_OK, ""};
    struct attn_forward t = attn_setup_forward(setup);
    struct attn_precision precision;
    struct attn_result result;
    int64_t row[ATTN_SAMPLE_MOST], key[ATTN_SAMPLE_MOST];
    struct attn_sample sample = attn_point_sample(p, work->how->verify_all, row, key);
    if (work->claims != NULL)
        attn_claims_precision(work->claims, &setup->problem, &precision);
    else
        attn_precision_of(work->x.spec.impl, &work->x.spec.options, &setup->problem, &precision);
    memset(&result, 0, sizeof result);
    if (has_no_lse(work) &&
        attn_claims_fill_lse(&setup->problem, &t.q, &t.k, &t.v, &t.lse, &err) != ATTN_OK) {
        attn_point_fail(p, &err);
        p->status = err.status == ATTN_ENOMEM ? ATTN_POINT_OUT_OF_MEMORY : p->status;
        return;
    }
    attn_judge(setup, &precision, &sample, p->c.pass, &result);
    if (has_no_lse(work))
        attn_result_drop_lse(&result);
    attn_point_keep_verdict(p, &result);
}

/* 0 when these are other bits than those of the earlier round. */
static int same_bits(const struct attn_point_work *work)
{
    struct attn_point *p = work->point;
    if (work->earlier.verdict[0] == '\0' || strcmp(work->earlier.digest, p->judged.digest) != 0)
        return 0;
    p->judged = work->earlier;
    strcpy(p->judged.verified, "same bits as round 0");
    p->status = ATTN_POINT_OK;
    return 1;
}

void attn_point_verify(struct attn_point_work *work)
{
    struct attn_point *p = work->point;
    double start = attn_seconds(CLOCK_MONOTONIC);
    if (has_no_lse(work))
        blank_lse(work);
    const struct attn_runner *runner = work->x.spec.options.runner;
    uint64_t digest = runner != NULL ? attn_point_rank_digest(work)
                                     : attn_setup_digest(&work->setup, NULL, p->c.pass);
    snprintf(p->judged.digest, sizeof p->judged.digest, "%016" PRIx64, digest);
    const char *damage = work->x.plugin != NULL ? work->x.plugin->notes.integrity : "";
    snprintf(p->message, sizeof p->message, "%s", damage);
    int intact = *damage == '\0' && is_intact(&work->setup, p);
    if (runner != NULL)
        intact = attn_point_all_intact(work, intact);
    if (!intact) {
        p->status = ATTN_POINT_WRONG;
        strcpy(p->judged.verdict, attn_verdict_name(ATTN_FAILED));
    } else if (work->how->unverified)
        p->status = ATTN_POINT_OK;
    else if (!same_bits(work) && runner != NULL)
        attn_point_judge_ranks(work);
    else if (p->judged.verdict[0] == '\0')
        judge(work);
    p->verify_s = attn_seconds(CLOCK_MONOTONIC) - start;
    if (p->status != ATTN_POINT_OK)
        attn_point_untimed(p);
}
