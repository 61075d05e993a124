/* A rank's part of a call: bring what it computes with, go from stop to stop, take the results
 * home; a portion of heads after the other.  See travel.h. */
#include "optimized/parallel/travel/travel.h"

#include <string.h>

#include "optimized/parallel/parallel.h"
#include "ref/problem.h"

/* ---- where tensors are ----------------------------------------------------------------------- */

/* A tensor that is moved has a buffer of its own, and so has a sum wider than its result. */
static void place_all(struct attn_travel *x)
{
    const enum attn_tag_kind *kinds;
    int inputs, tensors = attn_work_tensors(x->w.pass, &kinds, &inputs);
    enum attn_dtype wide = attn_lse_dtype(x->w.whole);
    char *dk = x->buffer[ATTN_DKV_SUM].data;
    int64_t dk_bytes =
        attn_work_block(&x->w, ATTN_TAG_DK, x->w.rank) * (int64_t)attn_dtype_size(wide);
    char *const wider[ATTN_TAG_KINDS] = {[ATTN_TAG_O] = x->buffer[ATTN_O_SUM].data,
                                         [ATTN_TAG_DQ] = x->buffer[ATTN_DQ_SUM].data,
                                         [ATTN_TAG_DK] = dk,
                                         [ATTN_TAG_DV] = dk != NULL ? dk + dk_bytes : NULL};
    for (int n = 0; n < tensors; n++) {
        enum attn_tag_kind kind = kinds[n];
        struct attn_placed *t = &x->tensor[kind];
        t->own = t->home;
        if (attn_work_moves(&x->w, kind))
            t->own = attn_block_at(&x->w, kind, attn_work_dtype(&x->w, kind), x->w.rank,
                                   x->buffer[kind].data);
        t->sum =
            wider[kind] == NULL ? t->own : attn_block_at(&x->w, kind, wide, x->w.rank, wider[kind]);
    }
}

/* -D of the rows that are at home. */
static void make_delta(struct attn_travel *x)
{
    struct attn_box home = attn_layout_box(&x->w.home, x->w.whole, 0, x->w.rank);
    struct attn_box stored = attn_layout_stored_box(&x->w.home, x->w.whole, 0, x->w.rank);
    struct attn_rows rows = {home.batch, home.heads.n, home.tokens, x->w.whole->d_value};
    struct attn_view *d = &x->tensor[ATTN_TAG_DELTA].home.view, d_lse = *d;
    struct attn_buffer *zeros = &x->buffer[ATTN_ZEROS];
    *d = attn_packed_view(x->buffer[ATTN_DELTA_SHARD].data, attn_lse_dtype(x->w.whole),
                          stored.heads.n, stored.tokens, 1);
    attn_rows_minus_delta(&rows, &x->tensor[ATTN_TAG_O].home.view,
                          &x->tensor[ATTN_TAG_LSE].home.view, &x->tensor[ATTN_TAG_DO].home.view,
                          &d_lse, d);
    if (zeros->numbers > 0)
        memset(zeros->data, 0, (size_t)(zeros->numbers * zeros->size));
}

/* ---- between home and work ------------------------------------------------------------------- */

static enum attn_status move(struct attn_travel *x, enum attn_tag_kind kind, int goes_home)
{
    struct attn_move m = attn_work_move(&x->w, kind, goes_home);
    void *home = x->tensor[kind].home.view.data, *work = x->tensor[kind].own.view.data;
    m.from.data = goes_home ? work : home;
    m.to.data = goes_home ? home : work;
    return attn_move(&m, x->rank->transport, x->buffer[ATTN_MESSAGES].data, x->rank->error);
}

/* The heads that were brought, of those at home, from a sum that is wider. */
static void round_home(struct attn_travel *x, enum attn_tag_kind kind, char *data)
{
    struct attn_box home = attn_layout_box(&x->w.home, x->w.whole, 1, x->w.rank);
    struct attn_box stored = attn_layout_stored_box(&x->w.home, x->w.whole, 1, x->w.rank);
    int64_t width = attn_tag_width(kind, x->w.whole);
    struct attn_tokens heads = attn_work_portions(&x->w) > 1 ? x->w.kv_heads : home.heads;
    struct attn_rows rows = {home.batch, heads.n, home.tokens, width};
    struct attn_block sum = {
        attn_packed_view(data, attn_lse_dtype(x->w.whole), stored.heads.n, stored.tokens, width),
        home.heads.first};
    struct attn_view from = attn_block_from(&sum, heads.first, 0);
    struct attn_view to = attn_block_from(&x->tensor[kind].home, heads.first, 0);
    attn_rows_round(&rows, &to, &from);
}

/* The gradients of copies are added at home. */
static enum attn_status move_sum(struct attn_travel *x, enum attn_tag_kind kind)
{
    struct attn_move m = attn_work_move(&x->w, kind, 1);
    struct attn_buffer copies[2];
    attn_work_copies(&x->w, kind, copies);
    enum attn_status status = attn_buffers_take(copies, 2, x->rank->ledger, x->rank->error);
    m.from.data = x->tensor[kind].own.view.data;
    m.to.data = copies[1].name != NULL ? copies[1].data : x->tensor[kind].home.view.data;
    if (status == ATTN_OK)
        status = attn_move_sum(&m, x->rank->transport, x->buffer[ATTN_MESSAGES].data,
                               copies[0].data, x->rank->error);
    if (status == ATTN_OK && copies[1].name != NULL)
        round_home(x, kind, copies[1].data);
    attn_buffers_give(copies, 2, x->rank->ledger);
    return status;
}

static enum attn_status bring(struct attn_travel *x)
{
    const enum attn_tag_kind *kinds;
    int inputs;
    enum attn_status status = ATTN_OK;
    attn_work_tensors(x->w.pass, &kinds, &inputs);
    place_all(x);
    for (int n = 0; n < inputs && status == ATTN_OK; n++) {
        enum attn_tag_kind kind = kinds[n];
        int is_there = /* of the forward pass, where K and V were saved */
            x->rank->has_brought && (kind == ATTN_TAG_K || kind == ATTN_TAG_V);
        if (attn_work_moves(&x->w, kind) && !is_there)
            status = move(x, kind, 0);
    }
    return status;
}

/* Of a block, from the first head of this portion on, where it may hold others. */
static struct attn_view portion_of(const struct attn_work *w, enum attn_tag_kind kind,
                                   const struct attn_block *block)
{
    int keys = attn_tag_is_of_keys(kind);
    return attn_block_from(block, keys ? w->kv_heads.first : w->heads.first, 0);
}

static enum attn_status take_home(struct attn_travel *x)
{
    const enum attn_tag_kind *kinds;
    int inputs, tensors = attn_work_tensors(x->w.pass, &kinds, &inputs);
    enum attn_status status = ATTN_OK;
    for (int n = inputs; n < tensors && status == ATTN_OK; n++) {
        enum attn_tag_kind kind = kinds[n];
        const struct attn_placed *t = &x->tensor[kind];
        if (t->sum.view.dtype != t->own.view.dtype) {
            struct attn_rows rows = attn_block_rows(&x->w, kind, x->w.rank);
            struct attn_view to = portion_of(&x->w, kind, &t->own);
            attn_rows_round(&rows, &to, &t->sum.view);
        }
        if (attn_work_is_summed(&x->w, kind))
            status = move_sum(x, kind);
        else if (attn_work_moves(&x->w, kind))
            status = move(x, kind, 1);
    }
    return status;
}

/* ---- the call -------------------------------------------------------------------------------- */

/* The buffers of the call.  K and V that are saved lie in a block of the caller's ledger. */
static enum attn_status take_buffers(struct attn_travel *x)
{
    struct attn_buffer *k = &x->buffer[ATTN_TAG_K], *v = &x->buffer[ATTN_TAG_V];
    struct attn_rank *rank = x->rank;
    enum attn_status status = ATTN_OK;
    attn_work_buffers(&x->w, x->buffer);
    if (rank->saved != NULL) {
        k->name = v->name = NULL; /* are not taken */
        k->data = rank->saved;
        v->data = k->data + k->numbers * k->size;
        status = attn_ledger_count(rank->ledger, ATTN_SAVED_NAME, attn_work_saved(&x->w), 1,
                                   rank->error);
    }
    if (status == ATTN_OK)
        status = attn_buffers_take(x->buffer, ATTN_WORK_BUFFERS, rank->ledger, rank->error);
    return status;
}

static enum attn_status run_portion(struct attn_travel *x)
{
    enum attn_status status = bring(x);
    if (status == ATTN_OK)
        status = attn_travel_stops(x);
    return status == ATTN_OK ? take_home(x) : status;
}

enum attn_status attn_travel(struct attn_rank *rank, const struct attn_problem *whole,
                             enum attn_pass pass, const struct attn_view mine[ATTN_TAG_KINDS])
{
    struct attn_travel x = {.rank = rank,
                            .local = attn_rank_local_options(rank->options),
                            .w = attn_work_of(whole, rank->options, pass, rank->transport->rank)};
    for (enum attn_tag_kind kind = 0; kind < ATTN_TAG_KINDS; kind++) {
        struct attn_box box =
            attn_layout_box(&x.w.home, whole, attn_tag_is_of_keys(kind), x.w.rank);
        x.tensor[kind].home = (struct attn_block){mine[kind], box.heads.first};
    }
    enum attn_status status = take_buffers(&x);
    if (status == ATTN_OK && pass == ATTN_BACKWARD)
        make_delta(&x);
    if (status == ATTN_OK)
        status = attn_travel_bring_mask(&x);
    for (int n = 0; n < attn_work_portions(&x.w) && status == ATTN_OK; n++) {
        attn_work_portion(&x.w, n);
        status = run_portion(&x);
    }
    if (rank->saved != NULL)
        attn_ledger_uncount(rank->ledger, ATTN_SAVED_NAME, attn_work_saved(&x.w));
    attn_buffers_give(x.buffer, ATTN_WORK_BUFFERS, rank->ledger);
    return status;
}
