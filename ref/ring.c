/* ring-textbook: every rank keeps its queries, and the keys of all ranks travel past them.
 *
 *      Q_r stays on rank r.  At hop s it meets K_J, V_J of rank J = (r - s) mod R:
 *
 *          hop          rank 0      rank 1      rank 2      (R = 3)
 *           0            K_0         K_1         K_2
 *           1            K_2         K_0         K_1         each pair has gone one rank on
 *           2            K_1         K_2         K_0
 *
 * Exact attention: what a query gets from one block of keys is a pair (O_J, LSE_J), and pairs merge
 * (ref/merge.h).  Beside its own a rank never has more than two blocks of keys: one that it passes
 * on, and one that comes.
 *
 * Memory   of a rank, beside its own part of each tensor (R > 1):
 *          forward    2 pairs (K, V) of other ranks, 1 where R = 2; O_J and LSE_J of one head
 *          backward   as many pairs (K, V); 2 pairs (dK, dV); dQ_J of one head
 *          both       the tiles of ref/tiled.c.  All else falls as 1/R.
 * Sent     forward R-1 pairs (K, V); backward these and R pairs (dK, dV); all to the next rank.
 * Flops    those of tiled-textbook, shared out.  Under a causal mask rank 0 has least to do and
 *          rank R-1 most.  optimized/parallel/ring.c can deal out tokens in an order that mends it.
 * Source   Liu, Zaharia, Abbeel 2023 (Ring Attention), algorithm 1; backward: Dao 2023,
 *          FlashAttention-2, algorithm 2, one block of keys a hop.
 * Caveats  R divides Lq and Lk.  K and V of a block that a mask hides travel all the same.
 */
#include "ref/merge.h"
#include "ref/rank_part.h"
#include "ref/real.h"
#include "ref/sink.h"

/* K and V of some rank, or their gradients: what travels together. */
struct ring_pair {
    void *k, *v;
};

/* In one block of memory: K [B,G,n_key,d], and behind it V [B,G,n_key,dv]. */
static struct ring_pair ring_pair_at(const struct attn_rank_part *x, void *data)
{
    const struct attn_problem *p = x->whole;
    int64_t k_bytes = p->batch * p->kv_heads * x->n_key * p->d_key * x->size;
    return (struct ring_pair){data, data == NULL ? NULL : (char *)data + k_bytes};
}

/* Q_r against the keys of hop s, as a problem of its own.  Its origin says which tokens of the
 * whole these are: a mask and ALiBi go by the places in the whole. */
static struct attn_problem ring_block(const struct attn_rank_part *x, int s)
{
    struct attn_problem block = *x->whole;
    int r = x->transport->rank, R = x->transport->size, J = (r - s + R) % R;
    block.n_query = x->n_query;
    block.n_key = x->n_key;
    block.origin.query.first = r * x->n_query;
    block.origin.key.first = J * x->n_key;
    return block;
}

/* ---- a hop --------------------------------------------------------------------------------- */

/* A pair on its way to the next rank, and one that comes from the previous rank. */
struct ring_hop {
    struct attn_piece piece[2];
    struct attn_message send[2], receive[2];
    struct attn_post post;
};

/* Begin hop s: `leaves` goes to the next rank, `comes` is filled by the previous one.  k and v say
 * which tensors these are.  MPI reads *hop until attn_wait returns, so the caller keeps it. */
static enum attn_status ring_post(const struct attn_rank_part *x, struct ring_hop *hop,
                                  enum attn_tag_kind k, enum attn_tag_kind v, int s,
                                  struct ring_pair leaves, struct ring_pair comes)
{
    const struct attn_problem *p = x->whole;
    struct attn_transport *t = x->transport;
    int64_t rows = p->batch * p->kv_heads * x->n_key;
    hop->piece[0] = attn_piece_whole(rows * p->d_key * x->size);
    hop->piece[1] = attn_piece_whole(rows * p->d_value * x->size);
    for (int m = 0; m < 2; m++) {
        int tag = attn_tag(m == 0 ? k : v, s);
        hop->send[m] = (struct attn_message){.peer = (t->rank + 1) % t->size,
                                             .tag = tag,
                                             .data = m == 0 ? leaves.k : leaves.v,
                                             .piece = &hop->piece[m],
                                             .pieces = 1,
                                             .dtype = p->dtype};
        hop->receive[m] = hop->send[m];
        hop->receive[m].peer = (t->rank + t->size - 1) % t->size;
        hop->receive[m].data = m == 0 ? comes.k : comes.v;
    }
    hop->post = (struct attn_post){hop->send, 2, hop->receive, 2, 0};
    return attn_post(t, &hop->post, x->error);
}

/* ---- forward ------------------------------------------------------------------------------- *
 *
 *  O = 0, LSE = -inf: nothing has been seen; of a sink LSE = z      ring_begin
 *  for s = 0 .. R-1:                                                J = (r - s) mod R
 *      post: K_J, V_J to rank r+1; the next pair from rank r-1      ring_post
 *      (O_J, LSE_J) = attention of Q_r over K_J, V_J                tiled_forward
 *      (O, LSE) = (O, LSE) merged with (O_J, LSE_J)                 attn_merge
 *      wait for the pairs
 */

/* A sink is a partial result of one key whose value is 0: (0, z).  It comes in once, before the
 * blocks: a rank that counted it in each block would have it R times. */
static void ring_begin(const struct attn_rank_part *x)
{
    const struct attn_problem *p = x->whole;
    int64_t n = x->n_query, rows = p->batch * p->heads * n;
    for (int64_t i = 0; i < rows; i++)
        ((real *)x->mine[ATTN_TAG_LSE])[i] = (real)attn_sink_of(p, i / n % p->heads);
    set_zero(x->mine[ATTN_TAG_O], rows * p->d_value);
}

static int64_t ring_kv_head(const struct attn_problem *p, int64_t h)
{
    return h / (p->heads / p->kv_heads);
}

/* The part of head h of batch b that tiled sees at hop s: its rows of Q_r, and those of its kv head
 * in K_J and V_J. */
static struct attn_head ring_head(const struct attn_rank_part *x, const struct attn_problem *block,
                                  int s, struct ring_pair keys, int64_t b, int64_t h)
{
    const struct attn_problem *p = x->whole;
    int64_t g = ring_kv_head(p, h), n = x->n_query, d = p->d_key, dv = p->d_value;
    struct attn_head head = {.problem = block,
                             .b = b,
                             .h = h,
                             .n_query = n,
                             .n_key = x->n_key,
                             .d = d,
                             .dv = dv,
                             .Q = attn_rank_head(x, x->mine[ATTN_TAG_Q], p->heads, b, h, n, d),
                             .O = attn_rank_head(x, x->mine[ATTN_TAG_O], p->heads, b, h, n, dv),
                             .lse = attn_rank_head(x, x->mine[ATTN_TAG_LSE], p->heads, b, h, n, 1),
                             .K = attn_rank_head(x, keys.k, p->kv_heads, b, g, x->n_key, d),
                             .V = attn_rank_head(x, keys.v, p->kv_heads, b, g, x->n_key, dv)};
    head.tracer = x->tracer, head.rank = x->transport->rank, head.hop = s;
    TRACE(&head, "ring.block", 0, 0, MATRIX("K_J", head.K, x->n_key, d),
          MATRIX("V_J", head.V, x->n_key, dv));
    return head;
}

/* Query i: (O_J, LSE_J), which the head has, into what all blocks so far gave. */
static void ring_merge_row(const struct attn_head *x, int64_t i, real *O, real *lse)
{
    real w[2], *O_J = row(x->O, i), lse_J = *row(x->lse, i);
    REAL_NAME(merge_by)(O, lse, O_J, lse_J, x->dv, w);
    TRACE(x, "ring.merge", i, 0, ROW("O_J", O_J, x->dv), NUMBER("LSE_J", lse_J),
          ROW("alpha alpha_J", w, 2), ROW("O", O, x->dv), ROW("LSE", lse, 1));
}

static void ring_attend(const struct attn_rank_part *x, int s, struct ring_pair keys)
{
    const struct attn_problem block = ring_block(x, s);
    for (int64_t b = 0; b < block.batch; b++)
        for (int64_t h = 0; h < block.heads; h++) {
            struct attn_head head = ring_head(x, &block, s, keys, b, h);
            struct attn_matrix O = head.O, lse = head.lse;            /* of all blocks so far */
            head.O = (struct attn_matrix){x->o_block, block.d_value}; /* O_J and LSE_J go here */
            head.lse = (struct attn_matrix){x->lse_block, 1};
            tiled_forward(&head, &x->tile);
            for (int64_t i = 0; i < x->n_query; i++)
                ring_merge_row(&head, i, row(O, i), row(lse, i));
        }
}

enum attn_status ring_forward(const struct attn_rank_part *x)
{
    int R = x->transport->size;
    int computes = !attn_transport_counts(x->transport); /* 0: messages are only counted */
    struct ring_pair here = {x->mine[ATTN_TAG_K], x->mine[ATTN_TAG_V]};
    enum attn_status status = ATTN_OK;
    if (computes)
        ring_begin(x);
    for (int s = 0; s < R && status == ATTN_OK; s++) {
        struct ring_hop hop;
        struct ring_pair next = ring_pair_at(x, x->pair[s % 2]); /* not where `here` is */
        int travels = s < R - 1; /* the last pair has nowhere to go */
        if (travels)
            status = ring_post(x, &hop, ATTN_TAG_K, ATTN_TAG_V, s, here, next);
        if (computes && status == ATTN_OK)
            ring_attend(x, s, here);
        if (travels && status == ATTN_OK)
            status = attn_wait(x->transport, &hop.post, x->error);
        here = next;
    }
    return status;
}

/* ---- backward ------------------------------------------------------------------------------ *
 *
 *  dQ = 0; the travelling (dK_r, dV_r) = 0
 *  for s = 0 .. R-1:                                                J = (r - s) mod R
 *      post: K_J, V_J to rank r+1; the next pair from rank r-1      as in the forward pass
 *      P = exp(S - LSE);  dP = dO_r V_J^T;  dS = P o (dP - D)       tiled_backward
 *      dQ   += dX K_J
 *      dK_J += dX^T Q_r;  dV_J += P^T dO_r
 *      wait for the pairs
 *      dK_J, dV_J to rank r+1; those of the next pair from rank r-1 a sum leaves when it has grown
 *
 * LSE and D = dO . O - dLSE are those of the whole row, so a block needs no other block;
 * tiled_backward makes D again at each hop.  dX is dS times the slope of a score in Q K^T: the
 * scale, and with a softcap what that has.
 * The sums follow their keys: after hop s, dK_J has the terms of ranks J, J+1, .. J+s.  K_J is a
 * copy and ends at rank J-1; dK_J is the only sum, makes one hop more and is at home. */

static void ring_differentiate(const struct attn_rank_part *x, int s, struct ring_pair keys,
                               struct ring_pair sums)
{
    const struct attn_problem block = ring_block(x, s), *p = &block;
    int64_t n = x->n_query;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++) {
            int64_t g = ring_kv_head(p, h);
            struct attn_head head = ring_head(x, p, s, keys, b, h);
            struct attn_matrix dQ =
                attn_rank_head(x, x->mine[ATTN_TAG_DQ], p->heads, b, h, n, p->d_key);
            head.dO = attn_rank_head(x, x->mine[ATTN_TAG_DO], p->heads, b, h, n, p->d_value);
            head.dlse = attn_rank_head(x, x->mine[ATTN_TAG_DELTA], p->heads, b, h, n, 1);
            head.dQ = (struct attn_matrix){x->dq_block, p->d_key};
            head.dK = attn_rank_head(x, sums.k, p->kv_heads, b, g, x->n_key, p->d_key);
            head.dV = attn_rank_head(x, sums.v, p->kv_heads, b, g, x->n_key, p->d_value);
            tiled_backward(&head, &x->tile); /* writes dQ of this block, adds to dK_J and dV_J */
            for (int64_t i = 0; i < n; i++)
                axpy(1, row(head.dQ, i), row(dQ, i), p->d_key);
            TRACE(&head, "ring.sums", 0, 0, MATRIX("dK_J", head.dK, x->n_key, head.d),
                  MATRIX("dV_J", head.dV, x->n_key, head.dv));
            TRACE(&head, "ring.dquery", 0, 0, MATRIX("dQ", dQ, n, head.d));
        }
}

static void ring_clear(const struct attn_rank_part *x, struct ring_pair sums)
{
    const struct attn_problem *p = x->whole;
    int64_t rows = p->batch * p->kv_heads * x->n_key;
    set_zero(x->mine[ATTN_TAG_DQ], p->batch * p->heads * x->n_query * p->d_key);
    set_zero(sums.k, rows * p->d_key);
    set_zero(sums.v, rows * p->d_value);
}

enum attn_status ring_backward(const struct attn_rank_part *x)
{
    struct attn_transport *t = x->transport;
    int R = t->size, computes = !attn_transport_counts(t);
    const struct ring_pair home = {x->mine[ATTN_TAG_DK], x->mine[ATTN_TAG_DV]};
    struct ring_pair here = {x->mine[ATTN_TAG_K], x->mine[ATTN_TAG_V]};
    struct ring_pair sums = R == 1 ? home : ring_pair_at(x, x->gradients[0]); /* then home */
    enum attn_status status = ATTN_OK;
    if (computes)
        ring_clear(x, sums);
    for (int s = 0; s < R && status == ATTN_OK; s++) { /* the last hop brings what goes home */
        struct ring_hop hop, sums_hop;
        int travels = s < R - 1;
        struct ring_pair next = ring_pair_at(x, x->pair[s % 2]);
        struct ring_pair next_sums = travels ? ring_pair_at(x, x->gradients[(s + 1) % 2]) : home;
        if (travels)
            status = ring_post(x, &hop, ATTN_TAG_K, ATTN_TAG_V, s, here, next);
        if (computes && status == ATTN_OK)
            ring_differentiate(x, s, here, sums);
        if (travels && status == ATTN_OK)
            status = attn_wait(t, &hop.post, x->error);
        if (R > 1 && status == ATTN_OK)
            status = ring_post(x, &sums_hop, ATTN_TAG_DK, ATTN_TAG_DV, s, sums, next_sums);
        if (R > 1 && status == ATTN_OK)
            status = attn_wait(t, &sums_hop.post, x->error);
        here = next;
        sums = next_sums;
    }
    return status;
}
