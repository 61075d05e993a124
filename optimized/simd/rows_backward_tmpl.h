/* Sparse attention, backward, by recomputation from LSE.
 *
 *      forward   S_ij  = scale q_i . k_j (softcap, bias)      P_ij = exp(S_ij - LSE_i)
 *                O_i   = sum_j P_ij v_j
 *      backward  dP_ij = dO_i . v_j      D_i = dO_i . O_i - dLSE_i      dS_ij = P_ij (dP_ij - D_i)
 *                dQ_i  = scale sum_j dS_ij k_j    dK_j = scale sum_i dS_ij q_i
 *                                                 dV_j = sum_i P_ij dO_i
 *
 * Two kernels that are each other's mirror image: a query walks over the keys of its row, a key
 * over the queries of its column (the same pattern, transposed).  Each makes P and dS for
 * itself, from two gathers of dot products: seven products where five would do, but the
 * alternative is to hand P and dS over through memory, two numbers a pair written in one order
 * and read in another, and that costs as much time and memory that grows with the pairs. */

/* What a thread works in: near rows are those that walk, far rows those that they meet. */
struct FN(back_room) {
    REAL *near[2];                      /* [rows][d], [rows][dv]: q and dO, or k and v    */
    REAL *grad[2];                      /* [rows][d], [rows][dv]: dQ, -; or dK and dV     */
    REAL *S, *dP, *slope, *lse, *delta; /* [ATTN_ROW_KEYS] */
    INT *done;                          /* [rows]                                         */
    REAL *stage;                        /* [GROUP][d or dv]                               */
};

static int64_t FN(back_numbers)(int64_t rows, int64_t d, int64_t dv)
{
    int64_t wide = FN(round_up)(d), wide_v = FN(round_up)(dv);
    return 2 * FN(whole)(rows * wide) + 2 * FN(whole)(rows * wide_v) + 5 * ATTN_ROW_KEYS +
           FN(whole)(rows) + GROUP * (wide > wide_v ? wide : wide_v);
}

static struct FN(back_room) FN(back_layout)(const struct attn_row_backward *job)
{
    int64_t rows = job->end - job->start, wide = FN(round_up)(job->p->d_key);
    int64_t wide_v = FN(round_up)(job->p->d_value);
    REAL *at = job->room;
    struct FN(back_room) x;
    x.S = at, at += ATTN_ROW_KEYS;
    x.dP = at, at += ATTN_ROW_KEYS;
    x.slope = at, at += ATTN_ROW_KEYS;
    x.lse = at, at += ATTN_ROW_KEYS;
    x.delta = at, at += ATTN_ROW_KEYS;
    for (int n = 0; n < 2; n++) {
        x.near[n] = at, at += FN(whole)(rows * (n == 0 ? wide : wide_v));
        x.grad[n] = at, at += FN(whole)(rows * (n == 0 ? wide : wide_v));
    }
    x.done = (INT *)at, at += FN(whole)(rows);
    x.stage = at;
    return x;
}

/* S becomes P and dP becomes dS = P (dP - D), for n pairs: lse (to base 2) and delta of each. */
static void FN(back_scores)(REAL *S, REAL *dP, int n, const REAL *lse, const REAL *delta)
{
    for (int e = 0; e < n; e += LANES) {
        VEC p = FN(exp2)(FN(load)(S + e) - FN(load)(lse + e));
        FN(store)(S + e, p);
        FN(store)(dP + e, p * (FN(load)(dP + e) - FN(load)(delta + e)));
    }
}

/* dS is the gradient of the bias; times the slope of the softcap, of the raw score. */
static void FN(back_edit)(const struct attn_row_backward *job, int64_t i, const int32_t *key, int n,
                          REAL *dS, const REAL *slope)
{
    if (i >= 0 && job->t->dbias.data != NULL)
        for (int e = 0; e < n; e++)
            attn_view_add(&job->t->dbias, job->b, job->h, i, key[e], (double)dS[e]);
    for (int e = 0; job->p->softcap > 0 && e < n; e++)
        dS[e] *= slope[e];
}

/* grad[r] * factor, to the tensor. */
static void FN(back_emit)(const struct attn_view *to, int64_t b, int64_t h, int64_t i, int64_t n,
                          REAL *grad, double factor)
{
    for (int64_t c = 0; c < n; c++)
        grad[c] = (REAL)((double)grad[c] * factor);
    FN(emit)(to, b, h, i, n, grad);
}

/* ---- rows: dQ ------------------------------------------------------------------------------ */

/* LSE to base 2 and D of query i; where it sees nothing, or nothing but -inf: +inf and 0, which
 * makes every P exactly 0.  dO is left in near[1]. */
static void FN(back_query)(const struct attn_row_backward *job, const struct FN(back_room) * room,
                           int r, int seen, REAL *lse, REAL *delta)
{
    const struct attn_backward *t = job->t;
    int64_t i = job->start + r, dv = job->p->d_value, wide = FN(round_up)(job->p->d_key);
    int64_t wide_v = FN(round_up)(dv);
    REAL *dO = room->near[1] + r * wide_v, *O = room->stage, sum = 0;
    *lse = (REAL)INFINITY, *delta = 0;
    if (!seen)
        return;
    REAL of_i = ((const REAL *)t->lse.data)[attn_offset(t->lse.stride, job->b, job->h, i)];
    if (of_i == (REAL)-INFINITY)
        return;
    FN(fetch_scaled)(job->p, &t->q, job->b, job->h, i, room->near[0] + r * wide);
    FN(fetch_padded)(&t->d_o, job->b, job->h, i, dv, dO);
    FN(fetch_padded)(&t->o, job->b, job->h, i, dv, O);
    VEC D = {0};
    for (int64_t c = 0; c < wide_v; c += LANES)
        D = VEC_FMA(FN(load)(dO + c), FN(load)(O + c), D);
    sum = FN(sum)(D)[0];
    if (t->d_lse.data != NULL)
        sum -= ((const REAL *)t->d_lse.data)[attn_offset(t->d_lse.stride, job->b, job->h, i)];
    *lse = of_i * (REAL)LOG2_E;
    *delta = sum;
}

static void FN(row_backward)(const struct attn_row_backward *job)
{
    const struct attn_problem *p = job->p;
    struct FN(back_room) room = FN(back_layout)(job);
    int64_t g = job->h / (p->heads / p->kv_heads), heads = job->b * p->heads + job->h;
    REAL *lse = (REAL *)job->lse + heads * p->n_query + job->start;
    REAL *delta = (REAL *)job->delta + heads * p->n_query + job->start;
    struct FN(source) k = FN(row_source)(job->far[0], &job->t->k, job->b, g, p->d_key, room.stage);
    struct FN(source) v =
        FN(row_source)(job->far[1], &job->t->v, job->b, g, p->d_value, room.stage);
    struct FN(walk) walk;
    FN(walk_start)
    (&walk, job->csr, job->b, job->h, job->start, job->end, p->n_key, job->chunk, room.done);
    for (int r = 0; r < walk.rows; r++)
        FN(back_query)(job, &room, r, walk.start[r + 1] > walk.start[r], &lse[r], &delta[r]);
    memset(room.grad[0], 0, (size_t)(walk.rows * k.width) * sizeof(REAL));
    while (FN(walk_next)(&walk)) {
        int r = walk.row, n = walk.n;
        if (lse[r] == (REAL)INFINITY)
            continue;
        FN(row_dots)(&k, walk.key, n, room.near[0] + r * k.width, room.S);
        FN(row_edit)
        (p, job->b, job->h, job->start + r, 0, 0, walk.key, n, room.S, room.slope);
        FN(row_dots)(&v, walk.key, n, room.near[1] + r * v.width, room.dP);
        for (int e = 0; e < n; e += LANES) {
            FN(store)(room.lse + e, FN(all)(lse[r]));
            FN(store)(room.delta + e, FN(all)(delta[r]));
        }
        FN(back_scores)(room.S, room.dP, n, room.lse, room.delta);
        FN(back_edit)(job, job->start + r, walk.key, n, room.dP, room.slope);
        FN(row_sums)(&k, walk.key, n, room.dP, 1, room.grad[0] + r * k.width);
    }
    for (int r = 0; r < walk.rows; r++)
        FN(back_emit)
    (&job->t->dq, job->b, job->h, job->start + r, p->d_key, room.grad[0] + r * k.width, p->scale);
}

/* ---- columns: dK and dV -------------------------------------------------------------------- */

/* The keys of the block against the queries of head h. */
static void FN(column_head)(const struct attn_row_backward *job, const struct FN(back_room) * room,
                            int64_t h)
{
    const struct attn_problem *p = job->p;
    int64_t of_group = h % (p->heads / p->kv_heads), n_query = p->n_query;
    int64_t wide = FN(round_up)(p->d_key), wide_v = FN(round_up)(p->d_value);
    const REAL *lse = (const REAL *)job->lse + (job->b * p->heads + h) * n_query;
    const REAL *delta = (const REAL *)job->delta + (job->b * p->heads + h) * n_query;
    const REAL *copy = job->far[0], *copy_do = job->far[1];
    if (copy != NULL)
        copy += of_group * n_query * wide;
    if (copy_do != NULL)
        copy_do += of_group * n_query * wide_v;
    struct FN(source) q = FN(row_source)(copy, &job->t->q, job->b, h, p->d_key, room->stage);
    struct FN(source) dO =
        FN(row_source)(copy_do, &job->t->d_o, job->b, h, p->d_value, room->stage);
    struct FN(walk) walk;
    FN(walk_start)
    (&walk, job->csr, job->b, h, job->start, job->end, n_query, job->chunk, room->done);
    while (FN(walk_next)(&walk)) {
        int r = walk.row, n = walk.n;
        FN(row_dots)(&q, walk.key, n, room->near[0] + r * wide, room->S);
        FN(row_edit)(p, job->b, h, job->start + r, 1, 0, walk.key, n, room->S, room->slope);
        FN(row_dots)(&dO, walk.key, n, room->near[1] + r * wide_v, room->dP);
        for (int e = 0; e < n; e++) {
            room->lse[e] = lse[walk.key[e]];
            room->delta[e] = delta[walk.key[e]];
        }
        FN(back_scores)(room->S, room->dP, n, room->lse, room->delta);
        FN(row_sums)(&dO, walk.key, n, room->S, 1, room->grad[1] + r * wide_v);
        FN(back_edit)(job, -1, NULL, n, room->dP, room->slope);
        FN(row_sums)(&q, walk.key, n, room->dP, 1, room->grad[0] + r * wide);
    }
}

/* Does any head of the group see key j?  Who is seen by nobody is not read. */
static int FN(column_seen)(const struct attn_row_backward *job, int64_t j)
{
    const struct attn_csr *csr = job->csr;
    int64_t group = job->p->heads / job->p->kv_heads;
    for (int64_t h = job->h * group; h < (job->h + 1) * group; h++) {
        int64_t row = (job->b * csr->batch_step + h * csr->head_step) * csr->n_query + j;
        if (csr->row_start[row + 1] > csr->row_start[row])
            return 1;
    }
    return 0;
}

/* Keys [start,end) of kv head job->h; job->csr is the transpose. */
static void FN(column_backward)(const struct attn_row_backward *job)
{
    const struct attn_problem *p = job->p;
    struct FN(back_room) room = FN(back_layout)(job);
    int64_t wide = FN(round_up)(p->d_key), wide_v = FN(round_up)(p->d_value);
    int64_t rows = job->end - job->start, group = p->heads / p->kv_heads;
    for (int64_t r = 0; r < rows; r++)
        if (FN(column_seen)(job, job->start + r)) {
            int64_t j = job->start + r;
            FN(fetch_scaled)(p, &job->t->k, job->b, job->h, j, room.near[0] + r * wide);
            FN(fetch_padded)(&job->t->v, job->b, job->h, j, p->d_value, room.near[1] + r * wide_v);
        }
    memset(room.grad[0], 0, (size_t)(rows * wide) * sizeof(REAL));
    memset(room.grad[1], 0, (size_t)(rows * wide_v) * sizeof(REAL));
    for (int64_t h = job->h * group; h < (job->h + 1) * group; h++)
        FN(column_head)(job, &room, h);
    for (int64_t r = 0; r < rows; r++) {
        int64_t j = job->start + r;
        FN(back_emit)(&job->t->dk, job->b, job->h, j, p->d_key, room.grad[0] + r * wide, p->scale);
        FN(back_emit)(&job->t->dv, job->b, job->h, j, p->d_value, room.grad[1] + r * wide_v, 1);
    }
}
