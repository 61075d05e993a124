/* See work_buffers.h. */
#include "optimized/parallel/travel/work_buffers.h"

#include <string.h>

#include "optimized/integers.h"
#include "optimized/parallel/travel/work_mask.h"
#include "ref/problem.h"

int attn_work_is_even(const struct attn_work *w)
{
    return attn_layout_most(&w->work, w->whole, 1) * attn_axis_parts(&w->work.tokens) ==
           w->stored.whole.n_key;
}

static struct attn_buffer when(int is_needed, const char *name, int64_t parts, int64_t numbers,
                               int64_t size)
{
    return is_needed ? attn_buffer_of(name, parts, numbers, size) : (struct attn_buffer){0};
}

/* The result of a product of two blocks is partial where a query (cuts_q) or a key (cuts_k) is in
 * several products: it needs a place of its own, and is summed as f32 where tensors are narrower.
 * Blocks that travel lie beside the rank's own, as large as the largest block of any rank.
 *
 * Sizes are of all heads that the rank computes with, as blocks are stored: rows count queries,
 * numbers of keys count K and V (dK and dV) together. */
static void stop_buffers(const struct attn_work *w, struct attn_buffer *buffer)
{
    const struct attn_problem *p = w->whole;
    int back = w->pass == ATTN_BACKWARD, forward = !back, travels = w->stops > 1;
    int cuts_q = attn_work_cuts(w, 0), cuts_k = back && attn_work_cuts(w, 1);
    int partial_o = forward && cuts_q;

    int64_t dk = p->d_key, dv = p->d_value, stored = (int64_t)attn_dtype_size(p->dtype);
    int64_t wide = (int64_t)attn_dtype_size(attn_lse_dtype(p));
    int widens = wide > stored;

    struct attn_box home = attn_layout_stored_box(&w->home, p, 0, w->rank);
    struct attn_box q = attn_work_stored_box(w, 0, w->rank),
                    k = attn_work_stored_box(w, 1, w->rank);
    int64_t heads = p->batch * q.heads.n,
            token = p->batch * k.heads.n * (dk + attn_tag_width(ATTN_TAG_V, p));
    int64_t own = heads * q.tokens, rows = heads * q.stretch[0].n; /* of a product */
    int64_t own_kv = token * k.tokens, block = token * attn_layout_most(&w->work, p, 1);
    int64_t stretch = token * attn_layout_stored_box(&w->work, p, 1, 0).stretch[0].n;
    struct attn_buffer *x = buffer;

    x[ATTN_ZEROS] = when(back, "zeros", 1, dv, stored);
    x[ATTN_DELTA_SHARD] = when(back, "delta.shard", p->batch * home.heads.n, home.tokens, wide);
    x[ATTN_KV_TRAVEL] = when(travels, "kv.travel", less(w->stops - 1, 2), block, stored);
    x[ATTN_O_SUM] = when(forward && cuts_q && widens, "o.sum", own, dv, wide);
    x[ATTN_O_PARTIAL] = when(partial_o, "o.partial", 1, rows * dv, wide);
    x[ATTN_LSE_PARTIAL] = when(partial_o, "lse.partial", 1, rows, wide);
    x[ATTN_DQ_SUM] = when(back && cuts_q && widens, "dq.sum", own, dk, wide);
    x[ATTN_DQ_PARTIAL] = when(back && cuts_q, "dq.partial", 1, rows * dk, wide);
    x[ATTN_DKV_SUM] =
        when(cuts_k && widens && !attn_work_is_summed(w, ATTN_TAG_DK), "dkv.sum", 1, own_kv, wide);
    x[ATTN_DKV_TRAVEL] =
        when(back && travels, "dkv.travel", attn_work_is_even(w) ? 1 : 2, block, wide);
    x[ATTN_DKV_PARTIAL] = when(cuts_k, "dkv.partial", 1, stretch, wide);
}

void attn_work_buffers(const struct attn_work *w, struct attn_buffer buffer[ATTN_WORK_BUFFERS])
{
    memset(buffer, 0, ATTN_WORK_BUFFERS * sizeof *buffer);
    attn_work_move_buffers(w, buffer);
    attn_work_mask_buffers(w, buffer);
    stop_buffers(w, buffer);
}
