#include "tests/harness/external/rank_steps.h"
void attn_rank_diagnose(const struct attn_rank_steps *x, const struct attn_rank_held *held,
                        enum attn_pass pass, const struct attn_setup *part,
                        const struct attn_sample *sample, const struct attn_precision *precision,
                        struct attn_diagnosis *diagnosis)
{
    (void)x;
    (void)held;
    (void)pass;
    (void)part;
    (void)sample;
    (void)precision;
    (void)diagnosis;
}
