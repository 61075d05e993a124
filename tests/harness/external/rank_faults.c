#include "tests/harness/external/rank_steps.h"
void attn_rank_diagnose(const struct attn_rank_steps *x, const struct attn_rank_held *held,
                        enum attn_pass pass, const struct attn_setup *piece,
                        const struct attn_truth *truth, struct attn_diagnosis *diagnosis)
{ (void)x;(void)held;(void)pass;(void)piece;(void)truth;(void)diagnosis; }
