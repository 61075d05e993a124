/* Truths as tensors: their names, the types in which they are stored, the rows that are judged. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/base/fill.h"
#include "tests/harness/bound/truth_sum.h"

const char *attn_output_name(enum attn_output output)
{
    static const char *const name[ATTN_OUTPUTS] = {"o", "lse", "dq", "dk", "dv", "dbias", "dsink"};
    return (unsigned)output < ATTN_OUTPUTS ? name[output] : "unknown";
}

/* True where `wide` has every number of `narrow`. */
static int holds(enum attn_dtype wide, enum attn_dtype narrow)
{
    return wide == ATTN_F64 || wide == narrow || (wide == ATTN_F32 && narrow != ATTN_F64);
}

void attn_truth_store(struct attn_truth_tensor *t, enum attn_dtype stored)
{
    int64_t n = t->extent[0] * t->extent[1] * t->extent[2] * t->extent[3];
    double u = attn_dtype_roundoff(stored), tiny = attn_dtype_tiny(stored);
    if (t->want == NULL || holds(stored, t->stored))
        return;
    t->stored = stored;
    t->u = t->u > u ? t->u : u;
    for (int64_t i = 0; i < n; i++) {
        int is_exact = t->bound[i] == 0 && (t->want[i] == 0 || !isfinite(t->want[i]));
        if (!is_exact) /* an empty row, a NaN of the contract's: in any type the same */
            t->bound[i] += u * (fabs(t->want[i]) + t->bound[i]) + tiny;
    }
}

/* Where arithmetic can be off without limit, the derivation multiplies infinities, by 0 among
 * others: that is no bound, not a bound that nothing meets.  Such elements count as powerless. */
static void no_bound_is_infinite(struct attn_truth *truth)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        struct attn_truth_tensor *t = &truth->tensor[o];
        int64_t n = t->extent[0] * t->extent[1] * t->extent[2] * t->extent[3];
        for (int64_t i = 0; t->want != NULL && i < n; i++)
            if (isnan(t->bound[i]) && isfinite(t->want[i]))
                t->bound[i] = (double)INFINITY;
    }
}

/* Keys that have no weight in the truth may have one below the smallest normal number, 2^-126: it
 * adds far less than 2^-100 to a gradient, and that is far below what any key adds that counts. */
static void allow_little_weights(struct attn_truth *truth)
{
    for (int o = ATTN_DQ; o <= ATTN_DV; o++) {
        struct attn_truth_tensor *t = &truth->tensor[o];
        int64_t n = t->extent[0] * t->extent[1] * t->extent[2] * t->extent[3];
        for (int64_t i = 0; t->want != NULL && i < n; i++)
            t->bound[i] = fmax(t->bound[i], 0x1p-100);
    }
}

void attn_truth_settle(struct attn_truth *truth, const struct attn_inputs *inputs)
{
    no_bound_is_infinite(truth);
    if (inputs->keys != NULL)
        allow_little_weights(truth);
    for (int o = 0; inputs->has_stored && o < ATTN_OUTPUTS; o++)
        attn_truth_store(&truth->tensor[o], inputs->stored[o]);
}

int64_t attn_sample_choose(int64_t n, int64_t most, uint64_t seed, uint64_t stream, int64_t *index)
{
    most = n < most ? n : most;
    for (int64_t s = 0; s < most; s++) {
        int64_t from = s * n / most, to = (s + 1) * n / most;
        index[s] = from + (int64_t)(attn_hash(seed, stream, (uint64_t)s) % (uint64_t)(to - from));
    }
    if (most > 0) {
        index[0] = 0;
        index[most - 1] = n - 1;
    }
    return most;
}

void attn_truth_free(struct attn_truth *truth)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        free(truth->tensor[o].want);
        free(truth->tensor[o].bound);
        free(truth->tensor[o].gauge);
        free(truth->tensor[o].right);
    }
    memset(truth, 0, sizeof *truth);
}
