/* See work_buffers.h. */
#include "optimized/parallel/travel/work_buffers.h"

#include <string.h>

#include "optimized/integers.h"
#include "optimized/parallel/travel/work_mask.h"
#include "ref/problem.h"

/* ---- moves ----------------------------------------------------------------------------------- */

int attn_work_tensors(enum attn_pass pass, const enum attn_tag_kind **kinds, int *inputs)
{
    static const enum attn_tag_kind of_forward[] = {ATTN_TAG_Q, ATTN_TAG_K, ATTN_TAG_V, ATTN_TAG_O,
                                                    ATTN_TAG_LSE};
    static const enum attn_tag_kind of_backward[] = {ATTN_TAG_Q,  ATTN_TAG_K,   ATTN_TAG_V,
                                                     ATTN_TAG_DO, ATTN_TAG_LSE, ATTN_TAG_DELTA,
                                                     ATTN_TAG_DQ, ATTN_TAG_DK,  ATTN_TAG_DV};
    *kinds = pass == ATTN_FORWARD ? of_forward : of_backward;
    *inputs = pass == ATTN_FORWARD ? 3 : 6;
    return pass == ATTN_FORWARD ? 5 : 9;
}

struct attn_move attn_work_move(const struct attn_work *w, enum attn_tag_kind kind, int goes_home)
{
    struct attn_end home = {.layout = &w->home}, work = {.layout = &w->work};
    work.is_cut = attn_work_portions(w) > 1;
    work.heads = w->kv_heads;
    return (struct attn_move){.whole = w->whole,
                              .kind = kind,
                              .dtype = attn_work_dtype(w, kind),
                              .step = goes_home,
                              .from = goes_home ? work : home,
                              .to = goes_home ? home : work};
}

/* ---- buffers of moves ------------------------------------------------------------------------ */

/* Kept for the backward pass, which does not bring it again. */
static int keeps(const struct attn_work *w, enum attn_tag_kind kind)
{
    return (kind == ATTN_TAG_K || kind == ATTN_TAG_V) && w->scheme->saves_keys != NULL &&
           w->scheme->saves_keys(w->options);
}

/* A buffer's name for each kind of tensor. */
#define NAMES(OF)                                                                                \
    {                                                                                            \
        "q" OF, "k" OF, "v" OF, "o" OF, "lse" OF, "do" OF, "delta" OF, "dq" OF, "dk" OF, "dv" OF \
    }

static struct attn_buffer moved(const struct attn_work *w, enum attn_tag_kind kind)
{
    static const char *const name[3][ATTN_TAG_KINDS] = {NAMES(".heads"), NAMES(".axis"),
                                                        NAMES(".all")};
    int which = w->work.all_keys ? 2 : w->work.frames > 0;
    if (!attn_work_moves(w, kind))
        return (struct attn_buffer){0};
    return attn_buffer_of(keeps(w, kind) ? ATTN_SAVED_NAME : name[which][kind], 1,
                          attn_work_block(w, kind, w->rank),
                          (int64_t)attn_dtype_size(attn_work_dtype(w, kind)));
}

int64_t attn_work_saved(const struct attn_work *w)
{
    struct attn_buffer k = moved(w, ATTN_TAG_K), v = moved(w, ATTN_TAG_V);
    return keeps(w, ATTN_TAG_K) ? k.numbers * k.size + v.numbers * v.size : 0;
}

static void move_buffers(const struct attn_work *w, struct attn_buffer *buffer)
{
    const enum attn_tag_kind *kinds;
    int inputs, moves = 0, tensors = attn_work_tensors(w->pass, &kinds, &inputs);
    for (int n = 0; n < tensors; n++) {
        enum attn_tag_kind kind = kinds[n];
        buffer[kind] = moved(w, kind);
        moves |= attn_work_moves(w, kind);
    }
    if (moves)
        buffer[ATTN_MESSAGES] = attn_move_lists(&w->home, &w->work);
}

void attn_work_copies(const struct attn_work *w, enum attn_tag_kind kind,
                      struct attn_buffer copies[2])
{
    memset(copies, 0, 2 * sizeof *copies);
    if (!attn_work_is_summed(w, kind))
        return;
    struct attn_move m = attn_work_move(w, kind, 1);
    struct attn_box home = attn_layout_stored_box(&w->home, w->whole, 1, w->rank);
    copies[0] = attn_move_copies(&m, w->rank);
    if (attn_work_dtype(w, kind) != w->whole->dtype)
        copies[1] =
            attn_buffer_of("copies.sum", attn_box_rows(&home), attn_tag_width(kind, w->whole),
                           (int64_t)attn_dtype_size(attn_work_dtype(w, kind)));
}

int64_t attn_work_largest_copies(const struct attn_work *w, struct attn_buffer largest[2])
{
    struct attn_buffer of_v[2];
    int64_t additions = 0;
    for (enum attn_tag_kind kind = ATTN_TAG_DK; kind <= ATTN_TAG_DV; kind++) {
        struct attn_move back = attn_work_move(w, kind, 1);
        if (attn_work_is_summed(w, kind))
            additions += attn_move_additions(&back, w->rank);
    }
    attn_work_copies(w, ATTN_TAG_DK, largest);
    attn_work_copies(w, ATTN_TAG_DV, of_v);
    if (attn_buffer_bytes(&of_v[0]) + attn_buffer_bytes(&of_v[1]) >
        attn_buffer_bytes(&largest[0]) + attn_buffer_bytes(&largest[1]))
        memcpy(largest, of_v, sizeof of_v);
    return additions;
}

/* ---- buffers of stops ------------------------------------------------------------------------ */

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
    move_buffers(w, buffer);
    attn_work_mask_buffers(w, buffer);
    stop_buffers(w, buffer);
}
