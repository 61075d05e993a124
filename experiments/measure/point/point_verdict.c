/* The parts of a judgement that a whole result and rows from ranks share: a failure, the rows and
 * keys that are looked at, and a verdict as the record keeps it.  See point_work.h. */
#include <stdio.h>
#include <string.h>

#include "experiments/measure/point/point_work.h"

void attn_point_fail(struct attn_point *p, const struct attn_error *err)
{
    p->status = err->status == ATTN_ENOTSUP ? ATTN_POINT_REFUSED : ATTN_POINT_ERROR;
    snprintf(p->message, sizeof p->message, "%s", err->text);
    attn_point_untimed(p);
}

void attn_point_keep_verdict(struct attn_point *p, const struct attn_result *result)
{
    snprintf(p->judged.verdict, sizeof p->judged.verdict, "%s", attn_verdict_name(result->verdict));
    snprintf(p->message, sizeof p->message, "%s", result->text);
    p->judged.worst = result->worst;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_agreement *a = &result->output[o];
        if (a->n == 0)
            continue;
        p->judged.output[o] = a->ratio;
        if (a->size > 0)
            p->judged.error[o] = a->error / a->size;
        if (!(a->ratio < result->worst))
            snprintf(p->judged.worst_output, sizeof p->judged.worst_output, "%s",
                     attn_output_name((enum attn_output)o));
    }
    if (result->verdict == ATTN_PASS || result->verdict == ATTN_WEAK)
        p->status = ATTN_POINT_OK;
    else if (result->verdict == ATTN_FAILED)
        p->status = ATTN_POINT_WRONG;
    else
        p->status = result->lacks_memory ? ATTN_POINT_OUT_OF_MEMORY : ATTN_POINT_ERROR;
}

struct attn_sample attn_point_sample(struct attn_point *p, int64_t verify_all,
                                     int64_t row[ATTN_SAMPLE_MOST], int64_t key[ATTN_SAMPLE_MOST])
{
    struct attn_sample sample = {-1, -1, row, key};
    strcpy(p->judged.verified, "all");
    if (p->c.n_query <= verify_all && p->c.n_key <= verify_all)
        return sample;
    sample.n_rows = attn_sample_choose(p->c.n_query, ATTN_SAMPLE_MOST, p->c.seed, 1001, row);
    sample.n_keys = attn_sample_choose(p->c.n_key, ATTN_SAMPLE_MOST, p->c.seed, 1002, key);
    int n = snprintf(p->judged.verified, sizeof p->judged.verified, "%d rows", (int)sample.n_rows);
    if (p->c.pass == ATTN_BACKWARD)
        snprintf(p->judged.verified + n, sizeof p->judged.verified - (size_t)n, ", %d keys",
                 (int)sample.n_keys);
    return sample;
}
