/* See faults.h: which kv head and batch each head has read, learned block by block. */
#include <stdio.h>

#include "tests/harness/diagnosis/faults.h"

static int block_fails(const struct attn_failed_run *run, int64_t block)
{
    int64_t n = run->setup->problem.n_query;
    for (int64_t row = block * n; row < (block + 1) * n; row++)
        for (int o = ATTN_O; o <= ATTN_LSE; o++)
            if (run->failing[o] && !attn_run_row_is_right(run, (enum attn_output)o, row))
                return 1;
    return 0;
}

/* K, V or both (n) are those of kv head g of batch b. */
static void read_other(struct attn_evaluation *x, struct attn_fault_at *at)
{
    const struct attn_fault_model *f = x->f;
    if (f->n == ATTN_OF_K_AND_V || at->of == f->n)
        at->b = f->b, at->g = f->g;
}

/* The kv head and batch with which a block fits; 0: with none. */
static int learn_block(const struct attn_failed_run *run, int64_t block, enum attn_fault_of of,
                       struct attn_fault_model *f)
{
    const struct attn_problem *p = &run->setup->problem;
    struct attn_failed_run one = *run;
    *f = (struct attn_fault_model){ATTN_AT_KEY, read_other, of, 0, 0};
    one.block = 1 + block;
    for (f->b = 0; f->b < p->batch; f->b++)
        for (f->g = 0; f->g < p->kv_heads; f->g++)
            if (attn_fault_fits(&one, f))
                return 1;
    return 0;
}

/* Every failing block has read one kv head, if not its own. */
static int learn_map(struct attn_failed_run *run, enum attn_fault_of of)
{
    static const char *const words[] = {"", " for K", " for V"};
    const struct attn_problem *p = &run->setup->problem;
    int64_t ratio = p->heads / p->kv_heads;
    int batches = 0, blocks = 0;
    char map[120] = "";
    size_t used = 0;
    for (int64_t block = 0; block < p->batch * p->heads; block++) {
        int64_t b = block / p->heads, h = block % p->heads;
        struct attn_fault_model f = {.g = h / ratio};
        if (block_fails(run, block)) {
            if (!learn_block(run, block, of, &f))
                return 0;
            blocks++;
            batches += f.b != b;
        }
        if (b == p->batch - 1 && used + 8 < sizeof map)
            used += (size_t)snprintf(map + used, sizeof map - used, " %lld", (long long)f.g);
    }
    if (batches > 0)
        snprintf(run->text, run->size, "fits K and V of another batch%s in %d of %d blocks",
                 words[of], batches, (int)(p->batch * p->heads));
    else
        snprintf(run->text, run->size, "fits heads mapped%s%s (right: h / %lld)", map, words[of],
                 (long long)ratio);
    return blocks > 0;
}

int attn_learn_heads(struct attn_failed_run *run)
{
    const struct attn_problem *p = &run->setup->problem;
    if (run->backward || p->kv_heads == 0 || p->batch * p->kv_heads < 2)
        return 0;
    for (int of = ATTN_OF_K_AND_V; of <= ATTN_OF_V; of++)
        if (learn_map(run, (enum attn_fault_of)of))
            return 1;
    return 0;
}
