/* ulysses-textbook: change what is cut.  A head needs all tokens but no other head, so one
 * all-to-all turns parts of the sequence into whole heads, and another turns the result back:
 *
 *      rank r has        [B, H, L/R, d]      all heads, its own tokens
 *      all-to-all        [B, H/R, L, d]      its own heads, all tokens
 *      attention         [B, H/R, L, dv]     as on one process: no message
 *      all-to-all back   [B, H, L/R, dv]
 *
 * Memory   a rank, forward: q k v o lse of its heads; backward: q k v dO lse D dQ dK dV of them,
 *          and -D of its tokens; and the tiles of ref/tiled.c.
 * Sent     of each of these (R-1)/R of a rank's part, in R-1 messages: to each other rank what is
 *          at once one's own token and its head.
 * Flops    those of tiled-textbook, shared out by heads: under any mask the same on each rank.
 * Source   Jacobs et al. 2023 (DeepSpeed-Ulysses), section 3.1.
 * Caveats  R divides Lq, Lk and H, and there are as many kv heads as heads: R is bounded by their
 *          number.  The engine's ulysses has neither condition.
 */
#include "ref/rank_part.h"
#include "ref/real.h"
#include "ref/sink.h"

/* ---- the all-to-all ------------------------------------------------------------------------ */

/* A tensor of n tokens a rank, [B,H,n,width] before and [B,H/R,R n,width] after it. */
struct ulysses_tensor {
    enum attn_tag_kind kind;
    int64_t n, width;
    void *by_tokens, *by_heads;
};

/* Where the part of two ranks lies: n tokens of one, H/R heads of the other.  In a tensor of all
 * heads and one's own tokens, these heads ... */
static struct attn_piece ulysses_by_tokens(const struct attn_rank_part *x,
                                           const struct ulysses_tensor *t, int heads_of)
{
    int64_t heads = x->whole->heads / x->transport->size, bytes = t->width * x->size;
    return (struct attn_piece){heads_of * heads * t->n * bytes,
                               {x->whole->batch, heads, t->n},
                               {x->whole->heads * t->n * bytes, t->n * bytes, bytes},
                               bytes};
}

/* ... and in one of one's own heads and all tokens, these tokens. */
static struct attn_piece ulysses_by_heads(const struct attn_rank_part *x,
                                          const struct ulysses_tensor *t, int tokens_of)
{
    int64_t R = x->transport->size, heads = x->whole->heads / R, bytes = t->width * x->size;
    return (struct attn_piece){tokens_of * t->n * bytes,
                               {x->whole->batch, heads, t->n},
                               {heads * R * t->n * bytes, R * t->n * bytes, bytes},
                               bytes};
}

/* Pairwise: at step s each rank r sends to rank r+s and receives from rank r-s; what a rank has for
 * itself is copied.  MPI_Alltoallw does the same in one call. */
static enum attn_status ulysses_exchange(const struct attn_rank_part *x,
                                         const struct ulysses_tensor *t, int to_heads)
{
    int R = x->transport->size, r = x->transport->rank;
    void *from = to_heads ? t->by_tokens : t->by_heads, *to = to_heads ? t->by_heads : t->by_tokens;
    enum attn_status status = ATTN_OK;
    for (int s = 0; s < R && status == ATTN_OK; s++) {
        int next = (r + s) % R, previous = (r - s + R) % R;
        struct attn_piece leaves =
            to_heads ? ulysses_by_tokens(x, t, next) : ulysses_by_heads(x, t, next);
        struct attn_piece comes =
            to_heads ? ulysses_by_heads(x, t, previous) : ulysses_by_tokens(x, t, previous);
        struct attn_message send = {.peer = next,
                                    .tag = attn_tag(t->kind, s),
                                    .data = from,
                                    .piece = &leaves,
                                    .pieces = 1,
                                    .dtype = x->whole->dtype};
        struct attn_message receive = send;
        receive.peer = previous;
        receive.data = to;
        receive.piece = &comes;
        if (s > 0)
            status = attn_exchange(x->transport, &send, 1, &receive, 1, x->error);
        else if (!attn_transport_counts(x->transport))
            attn_piece_copy(to, &comes, from, &leaves);
    }
    return status;
}

/* A tensor of the call: of queries or keys, with its numbers a token. */
static struct ulysses_tensor ulysses_tensor(const struct attn_rank_part *x, enum attn_tag_kind kind)
{
    const struct attn_problem *p = x->whole;
    int of_keys =
        kind == ATTN_TAG_K || kind == ATTN_TAG_V || kind == ATTN_TAG_DK || kind == ATTN_TAG_DV;
    int64_t width =
        kind == ATTN_TAG_LSE || kind == ATTN_TAG_DELTA ? 1
        : kind == ATTN_TAG_V || kind == ATTN_TAG_O || kind == ATTN_TAG_DO || kind == ATTN_TAG_DV
            ? p->d_value
            : p->d_key;
    return (struct ulysses_tensor){kind, of_keys ? x->n_key : x->n_query, width,
                                   kind == ATTN_TAG_DELTA ? x->minus_d : x->mine[kind],
                                   x->heads[kind]};
}

static enum attn_status ulysses_move(const struct attn_rank_part *x, const enum attn_tag_kind *kind,
                                     int kinds, int to_heads)
{
    enum attn_status status = ATTN_OK;
    for (int k = 0; k < kinds && status == ATTN_OK; k++) {
        const struct ulysses_tensor t = ulysses_tensor(x, kind[k]);
        status = ulysses_exchange(x, &t, to_heads);
    }
    return status;
}

/* ---- between two all-to-alls --------------------------------------------------------------- */

/* The rank's heads, as a problem of one process: the origin says which heads they are. */
static struct attn_problem ulysses_heads(const struct attn_rank_part *x)
{
    struct attn_problem heads = *x->whole;
    heads.heads /= x->transport->size;
    heads.kv_heads = heads.heads;
    heads.origin.head = x->transport->rank * heads.heads;
    return heads;
}

static struct attn_matrix ulysses_matrix(const struct attn_rank_part *x,
                                         const struct attn_head *head, enum attn_tag_kind kind)
{
    const struct ulysses_tensor t = ulysses_tensor(x, kind);
    int64_t R = x->transport->size;
    return attn_rank_head(x, t.by_heads, x->whole->heads / R, head->b, head->h, R * t.n, t.width);
}

static struct attn_head ulysses_head(const struct attn_rank_part *x, const struct attn_problem *p,
                                     int64_t b, int64_t h)
{
    struct attn_head head = {.problem = p,
                             .tracer = x->tracer,
                             .rank = x->transport->rank,
                             .hop = 1,
                             .b = b,
                             .h = h,
                             .n_query = p->n_query,
                             .n_key = p->n_key,
                             .d = p->d_key,
                             .dv = p->d_value};
    head.Q = ulysses_matrix(x, &head, ATTN_TAG_Q);
    head.K = ulysses_matrix(x, &head, ATTN_TAG_K);
    head.V = ulysses_matrix(x, &head, ATTN_TAG_V);
    head.lse = ulysses_matrix(x, &head, ATTN_TAG_LSE);
    TRACE(&head, "ulysses.queries", 0, 0, MATRIX("Q", head.Q, head.n_query, head.d));
    TRACE(&head, "ulysses.keys", 0, 0, MATRIX("K", head.K, head.n_key, head.d),
          MATRIX("V", head.V, head.n_key, head.dv));
    return head;
}

/* ---- forward ------------------------------------------------------------------------------- *
 *
 *  q, k, v: tokens -> heads                                         all-to-all
 *  (O, LSE) = attention of the rank's heads                         tiled_forward
 *  O, LSE: heads -> tokens                                          all-to-all
 */
enum attn_status ulysses_forward(const struct attn_rank_part *x)
{
    static const enum attn_tag_kind there[] = {ATTN_TAG_Q, ATTN_TAG_K, ATTN_TAG_V};
    static const enum attn_tag_kind back[] = {ATTN_TAG_O, ATTN_TAG_LSE};
    const struct attn_problem heads = ulysses_heads(x);
    enum attn_status status = ulysses_move(x, there, 3, 1);
    int computes = status == ATTN_OK && !attn_transport_counts(x->transport);
    for (int64_t b = 0; b < heads.batch && computes; b++)
        for (int64_t h = 0; h < heads.heads; h++) {
            struct attn_head head = ulysses_head(x, &heads, b, h);
            const double z = attn_sink_of(&heads, h);
            head.sink = heads.sink.given ? &z : NULL;
            head.O = ulysses_matrix(x, &head, ATTN_TAG_O);
            tiled_forward(&head, &x->tile);
            TRACE(&head, "ulysses.output", 0, 0, MATRIX("O", head.O, head.n_query, head.dv),
                  MATRIX("LSE", head.lse, head.n_query, 1));
        }
    return status == ATTN_OK ? ulysses_move(x, back, 2, 0) : status;
}

/* ---- backward ------------------------------------------------------------------------------ *
 *
 *  D_i = dO_i . O_i - dLSE_i of the rank's tokens                   ulysses_delta
 *  q, k, v, dO, LSE, D: tokens -> heads                             all-to-all
 *  dQ, dK, dV of the rank's heads                                   tiled_backward
 *  dQ, dK, dV: heads -> tokens                                      all-to-all
 *
 * The backward pass needs O only for D.  So D travels, one number a query, and O, which has dv of
 * them, stays: tiled_backward gets O = 0 and dLSE = -D, from which it computes 0 - (-D). */

/* -D.  A query that sees no key has LSE = -inf: its O and dO are not read, and its D is 0. */
static void ulysses_delta(const struct attn_rank_part *x)
{
    const struct attn_problem *p = x->whole;
    int64_t rows = p->batch * p->heads * x->n_query;
    const struct attn_head all = {
        .dv = p->d_value,
        .O = {x->mine[ATTN_TAG_O], p->d_value},
        .dO = {x->mine[ATTN_TAG_DO], p->d_value},
        .dlse = {x->mine[ATTN_TAG_DELTA], 1},
    };
    for (int64_t i = 0; i < rows; i++) {
        int seen = ((real *)x->mine[ATTN_TAG_LSE])[i] != MINUS_INF;
        ((real *)x->minus_d)[i] = seen ? -delta(&all, i) : 0;
    }
    set_zero(x->zeros, p->d_value);
}

enum attn_status ulysses_backward(const struct attn_rank_part *x)
{
    static const enum attn_tag_kind there[] = {ATTN_TAG_Q,  ATTN_TAG_K,   ATTN_TAG_V,
                                               ATTN_TAG_DO, ATTN_TAG_LSE, ATTN_TAG_DELTA};
    static const enum attn_tag_kind back[] = {ATTN_TAG_DQ, ATTN_TAG_DK, ATTN_TAG_DV};
    const struct attn_problem heads = ulysses_heads(x);
    int counts = attn_transport_counts(x->transport);
    if (!counts)
        ulysses_delta(x);
    enum attn_status status = ulysses_move(x, there, 6, 1);
    for (int64_t b = 0; b < heads.batch && status == ATTN_OK && !counts; b++)
        for (int64_t h = 0; h < heads.heads; h++) {
            struct attn_head head = ulysses_head(x, &heads, b, h);
            head.O = (struct attn_matrix){x->zeros, 0}; /* each row is the same one */
            head.dO = ulysses_matrix(x, &head, ATTN_TAG_DO);
            head.dlse = ulysses_matrix(x, &head, ATTN_TAG_DELTA);
            head.dQ = ulysses_matrix(x, &head, ATTN_TAG_DQ);
            head.dK = ulysses_matrix(x, &head, ATTN_TAG_DK);
            head.dV = ulysses_matrix(x, &head, ATTN_TAG_DV);
            for (int64_t j = 0; j < heads.n_key; j++) { /* tiled_backward adds to them */
                set_zero(row(head.dK, j), heads.d_key);
                set_zero(row(head.dV, j), heads.d_value);
            }
            TRACE(&head, "ulysses.rows", 0, 0, MATRIX("dO", head.dO, head.n_query, head.dv),
                  MATRIX("LSE", head.lse, head.n_query, 1),
                  MATRIX("-D", head.dlse, head.n_query, 1));
            tiled_backward(&head, &x->tile);
            TRACE(&head, "ulysses.dquery", 0, 0, MATRIX("dQ", head.dQ, head.n_query, head.d));
            TRACE(&head, "ulysses.dkey", 0, 0, MATRIX("dK", head.dK, head.n_key, head.d),
                  MATRIX("dV", head.dV, head.n_key, head.dv));
        }
    return status == ATTN_OK ? ulysses_move(x, back, 3, 0) : status;
}
