/* Sparse attention, forward: a block of queries of one head against the keys that are stored for
 * them, in one pass (online softmax), or in three over stored values. */

/* One query and the keys of one chunk that it sees. */
struct FN(step) {
    const int32_t *key;
    REAL *S, alpha;
    int row, n;
};

/* The workspace of a thread. */
struct FN(row_workspace) {
    REAL *Q, *O, *m, *l;    /* [rows][d], [rows][dv] in whole vectors; [rows] */
    INT *done;              /* [rows]: see walk_tmpl.h                        */
    REAL *S;                /* [ATTN_ROW_BATCH]                               */
    struct FN(step) * step; /* [ATTN_ROW_STEPS]                             */
    REAL *stage;            /* [GROUP][d or dv]: see struct source            */
};

/* n numbers, in whole 64 bytes. */
static int64_t FN(whole)(int64_t n)
{
    return (n + 15) / 16 * 16;
}

static struct FN(row_workspace) FN(row_layout)(const struct attn_row_forward *job)
{
    int64_t rows = job->i1 - job->i0, wide = FN(round_up)(job->p->d_key);
    REAL *at = job->ws;
    struct FN(row_workspace) x;
    x.S = at, at += ATTN_ROW_BATCH;
    x.step = (struct FN(step) *)at;
    at += ATTN_ROW_STEPS * ATTN_ROW_STEP_BYTES / (int64_t)sizeof(REAL);
    x.Q = at, at += FN(whole)(rows * wide);
    x.O = at, at += FN(whole)(rows * FN(round_up)(job->p->d_value));
    x.m = at, at += FN(whole)(rows);
    x.l = at, at += FN(whole)(rows);
    x.done = (INT *)at, at += FN(whole)(rows);
    x.stage = at;
    return x;
}

/* The rows of the job's kv head, n numbers each, of K or V: in their copy, if there is one; else
 * where they are, if that is possible; else through the stage. */
static struct FN(source) FN(row_source)(const struct attn_row_forward *job, const void *copy,
                                        const struct attn_cview *x, int64_t n, REAL *stage)
{
    int64_t g = job->h / (job->p->heads / job->p->kv_heads);
    struct FN(source)
        from = {.width = FN(round_up)(n), .view = x, .b = job->b, .g = g, .n = n, .stage = stage};
    if (copy != NULL || n == 0) {
        from.at = copy != NULL ? copy : stage;
        from.step = from.width;
    } else if (n == from.width && FN(in_place)(x, n)) {
        from.at = FN(at)(x, job->b, g, 0);
        from.step = x->stride[2];
    }
    return from;
}

static struct FN(source) FN(job_keys)(const struct attn_row_forward *job, REAL *stage)
{
    return FN(row_source)(job, job->k, &job->t->k, job->p->d_key, stage);
}

static struct FN(source) FN(job_values)(const struct attn_row_forward *job, REAL *stage)
{
    return FN(row_source)(job, job->v, &job->t->v, job->p->d_value, stage);
}

static struct attn_tile_at FN(job_tile)(const struct attn_row_forward *job)
{
    return (struct attn_tile_at){job->b, job->h, job->i0, job->i1, 0, job->p->n_key};
}

/* Start the walk; queries that see something are fetched, the others are not read. */
static void FN(row_start)(const struct attn_row_forward *job, const struct FN(row_workspace) * ws,
                          struct FN(walk) * walk)
{
    int64_t wide = FN(round_up)(job->p->d_key);
    FN(walk_start)(walk, job->csr, FN(job_tile)(job), job->chunk, ws->done);
    for (int r = 0; r < walk->rows; r++)
        if (walk->start[r + 1] > walk->start[r])
            FN(fetch_scaled)(job->p, &job->t->q, job->b, job->h, job->i0 + r, ws->Q + r * wide);
}

/* o[i] = O * factor */
static void FN(row_emit)(const struct attn_row_forward *job, int r, REAL *O, REAL factor)
{
    for (int64_t c = 0; c < job->p->d_value; c++)
        O[c] *= factor;
    FN(emit)(&job->t->o, job->b, job->h, job->i0 + r, job->p->d_value, O);
}

static void FN(row_emit_lse)(const struct attn_row_forward *job, int r, REAL m, REAL l)
{
    const struct attn_view *lse = &job->t->lse;
    ((REAL *)lse->data)[attn_offset(lse->stride, job->b, job->h, job->i0 + r)] = FN(lse_of)(m, l);
}

/* ---- one pass ------------------------------------------------------------------------------ */

/* Steps are done in batches: the scores of all, the probabilities of all, the sums of all.  So
 * only K, then only V has to share the cache with what a batch writes; and maxima and exponentials,
 * each of which waits for the one before, overlap with those of other steps. */
struct FN(batch) {
    struct FN(step) * step;
    int n;
    int64_t used; /* numbers of S */
};
_Static_assert(sizeof(struct FN(step)) <= ATTN_ROW_STEP_BYTES,
               "a step is as large as its workspace");

/* Probabilities and sums of a batch of which the scores are made. */
static void FN(batch_finish)(struct FN(batch) * batch, const struct FN(source) * v,
                             const struct FN(row_workspace) * ws)
{
    for (int n = 0; n < batch->n; n++) {
        struct FN(step) *x = &batch->step[n];
        x->alpha = FN(row_softmax)(x->S, x->n, &ws->m[x->row], &ws->l[x->row]);
    }
    for (int n = 0; n < batch->n; n++) {
        const struct FN(step) *x = &batch->step[n];
        FN(row_sums)(v, x->key, x->n, x->S, x->alpha, ws->O + x->row * v->width);
    }
    batch->n = 0;
    batch->used = 0;
}

static void FN(row_forward)(const struct attn_row_forward *job)
{
    const struct attn_problem *p = job->p;
    struct FN(row_workspace) ws = FN(row_layout)(job);
    struct FN(source) k = FN(job_keys)(job, ws.stage), v = FN(job_values)(job, ws.stage);
    struct FN(batch) batch = {.step = ws.step};
    struct FN(walk) walk;
    FN(row_start)(job, &ws, &walk);
    memset(ws.O, 0, (size_t)(walk.rows * v.width) * sizeof *ws.O);
    for (int r = 0; r < walk.rows; r++)
        ws.m[r] = (REAL)-INFINITY, ws.l[r] = 0;
    while (FN(walk_next)(&walk)) {
        int r = walk.row, n = walk.n;
        if (batch.n == ATTN_ROW_STEPS || batch.used + n > ATTN_ROW_BATCH - 16)
            FN(batch_finish)(&batch, &v, &ws);
        REAL *S = ws.S + batch.used;
        FN(row_dots)(&k, walk.key, n, ws.Q + r * k.width, S);
        FN(row_edit)
        (p, (struct attn_pair_at){job->b, job->h, job->i0 + r, 0}, walk.key, n, S, NULL);
        batch.step[batch.n++] = (struct FN(step)){walk.key, S, 1, r, n};
        batch.used += FN(whole)(n);
    }
    FN(batch_finish)(&batch, &v, &ws);
    for (int r = 0; r < walk.rows; r++) {
        FN(row_emit)(job, r, ws.O + r * v.width, ws.l[r] == 0 ? 0 : 1 / ws.l[r]);
        FN(row_emit_lse)(job, r, ws.m[r], ws.l[r]);
    }
}

/* ---- three passes over the values -------------------------------------------------------------
 *
 * job->values holds one number for each stored pair of this head's pattern. */

/* The values from pair `at` of the CSR on. */
static REAL *FN(row_values)(const struct attn_row_forward *job, int64_t at)
{
    const struct attn_csr *csr = job->csr;
    int64_t pattern = job->b * csr->batch_step + job->h * csr->head_step;
    return (REAL *)job->values + at - csr->row_start[pattern * csr->n_query];
}

/* SDDMM: S = scale q . k, sampled at the stored pairs; with softcap and bias, in units of log2
 * e. */
static void FN(row_sddmm)(const struct attn_row_forward *job)
{
    struct FN(row_workspace) ws = FN(row_layout)(job);
    struct FN(source) k = FN(job_keys)(job, ws.stage);
    struct FN(walk) walk;
    FN(row_start)(job, &ws, &walk);
    while (FN(walk_next)(&walk)) {
        FN(row_dots)(&k, walk.key, walk.n, ws.Q + walk.row * k.width, ws.S);
        const struct attn_pair_at at = {job->b, job->h, job->i0 + walk.row, 0};
        FN(row_edit)(job->p, at, walk.key, walk.n, ws.S, NULL);
        memcpy(FN(row_values)(job, walk.at), ws.S, (size_t)walk.n * sizeof *ws.S);
    }
}

/* Softmax, row by row, in place: P = 2^(S - m) / l. */
static void FN(row_softmax_all)(const struct attn_row_forward *job)
{
    struct FN(row_workspace) ws = FN(row_layout)(job);
    struct FN(walk) walk;
    FN(walk_start)(&walk, job->csr, FN(job_tile)(job), 1, ws.done);
    for (int r = 0; r < walk.rows; r++) {
        int64_t n = walk.start[r + 1] - walk.start[r];
        REAL *S = FN(row_values)(job, walk.start[r]), m = (REAL)-INFINITY, l = 0;
        for (int64_t e = 0; e < n; e++)
            m = S[e] > m ? S[e] : m;
        REAL base = m > (REAL)-INFINITY ? m : 0;
        for (int64_t e = 0; e < n; e += ATTN_ROW_KEYS) {
            int64_t part = n - e < ATTN_ROW_KEYS ? n - e : ATTN_ROW_KEYS;
            memcpy(ws.S, S + e, (size_t)part * sizeof *S);
            l += FN(row_exp2)(ws.S, (int)part, FN(all)(base));
            memcpy(S + e, ws.S, (size_t)part * sizeof *S);
        }
        for (int64_t e = 0; e < n; e++)
            S[e] *= l == 0 ? 0 : 1 / l;
        FN(row_emit_lse)(job, r, m, l);
    }
}

/* SpMM: O = P V. */
static void FN(row_spmm)(const struct attn_row_forward *job)
{
    struct FN(row_workspace) ws = FN(row_layout)(job);
    struct FN(source) v = FN(job_values)(job, ws.stage);
    struct FN(walk) walk;
    FN(walk_start)(&walk, job->csr, FN(job_tile)(job), job->chunk, ws.done);
    memset(ws.O, 0, (size_t)(walk.rows * v.width) * sizeof *ws.O);
    while (FN(walk_next)(&walk))
        FN(row_sums)
    (&v, walk.key, walk.n, FN(row_values)(job, walk.at), 1, ws.O + walk.row * v.width);
    for (int r = 0; r < walk.rows; r++)
        FN(row_emit)(job, r, ws.O + r * v.width, 1);
}
