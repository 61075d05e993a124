/* The forward pass of one block of queries on the matrix unit (matrix_tmpl.h).  The walk, the
 * masks and the running maximum are those of forward_tmpl.h; here the products are in bf16, so
 * that Q is scaled after its product, P is rounded, and keys are copied in whole 16's. */

struct matrix_workspace {
    uint32_t *Q;                          /* [panels][d / 2][PANEL] pairs of features     */
    float *S;                             /* [ATTN_KEY_BLOCK][PANEL], then P in its place: pairs
                                              of keys, each where the first of the two was  */
    struct matrix_keys block, some;       /* all keys of a block; those that a panel sees  */
    struct forward_workspace_f32 softmax; /* O, m, l and rows, as in forward_tmpl.h        */
};

static struct matrix_workspace matrix_layout(const struct attn_tile_forward *job, int64_t panels)
{
    int64_t d = job->p->d_key, dv = job->p->d_value;
    struct matrix_workspace x = {.Q = job->ws[ATTN_WORK_Q], .S = job->ws[ATTN_WORK_S]};
    uint16_t *kv = job->ws[ATTN_WORK_KV];
    x.block = matrix_keys_at(kv, d, dv, ATTN_KEY_BLOCK, 0);
    x.some = matrix_keys_at(kv + ATTN_KEY_BLOCK * (x.block.d + 2 * x.block.dv), d, dv,
                            ATTN_KEY_BLOCK, 0);
    x.softmax = forward_layout_f32(job->ws, panels, d, dv);
    x.softmax.o_rows = x.block.dv;
    return x;
}

/* S of one vector of queries and n keys becomes P = 2^(factor S - m), in pairs of keys and in whole
 * 16's: a pair lies where the first of its scores lay.  Returns the sums, of what P is before it is
 * rounded. */
static vec_f32 matrix_exponentiate(float *S, int n, float factor, vec_f32 m)
{
    vec_f32 l = {0}, zero = {0};
    int j = 0;
    for (; j + 2 <= n; j += 2) {
        float *at = S + j * PANEL;
        vec_f32 even = exp2_f32(load_f32(at) * factor - m);
        vec_f32 odd = exp2_f32(load_f32(at + PANEL) * factor - m);
        store_f32(at, (vec_f32)MATRIX_PAIR(even, odd));
        l += even + odd;
    }
    for (; j < matrix_round(n); j += 2) {
        float *at = S + j * PANEL;
        vec_f32 even = j < n ? exp2_f32(load_f32(at) * factor - m) : zero;
        store_f32(at, (vec_f32)MATRIX_PAIR(even, zero));
        l += even;
    }
    return l;
}

/* One vector of queries meets the n keys of its panel: u and the pointers are its own. */
static void matrix_softmax(const struct attn_tile_forward *job, struct matrix_workspace *x,
                           const struct attn_keys *keys, float factor, int u, int64_t panel)
{
    int n = keys->n_full, e = u * LANES;
    const struct panel_f32 all = {.dv = job->p->d_value,
                                  .O = x->softmax.O + panel * x->block.dv * PANEL,
                                  .S = x->S,
                                  .m = x->softmax.m + panel * PANEL,
                                  .l = x->softmax.l + panel * PANEL};
    float *m = all.m + e, *l = all.l + e, *S = all.S + e;
    vec_f32 max = largest_f32(S, n, all_f32(-INFINITY)) * factor; /* factor is positive */
    max = VEC_MAX(max, load_f32(m));
    online_softmax_f32(&all, u, 0, 0, max, (float)job->rescale_at);
    vec_f32 base = load_f32(m);
    base = choose_f32(base > all_f32(-INFINITY), base, all_f32(0)); /* -inf - -inf is NaN */
    store_f32(l, load_f32(l) + matrix_exponentiate(S, n, factor, base));
}

/* Panel number n meets the keys [j0,j1) of the block. */
static void matrix_panel(const struct attn_tile_forward *job, struct attn_mask_cursor *cursor,
                         int64_t j0, int64_t j1, int n, struct matrix_workspace *x)
{
    int64_t i0 = job->at.i0 + n * PANEL, d = x->block.d, dv = x->block.dv;
    int rows = job->at.i1 - i0 < PANEL ? (int)(job->at.i1 - i0) : PANEL;
    enum attn_tile tile = attn_mask_cursor_tile(cursor, n, j0, j1);
    if (tile == ATTN_TILE_EMPTY)
        return;
    struct matrix_seen seen;
    struct attn_tile_at at = job->at;
    at.i0 = i0, at.j0 = j0;
    attn_keys_seen(cursor, tile, (int)(j1 - j0), &seen.keys, seen.words);
    seen.by = tile == ATTN_TILE_FULL ? NULL : seen.words;
    if (seen.keys.n_full == 0)
        return;
    struct matrix_part part[2];
    int parts = matrix_parts(&x->some, &x->block, &seen.keys, part);
    for (int t = 0; t < parts; t++)
        MATRIX_PRODUCTS(part[t].K, d, x->Q + n * (d / 2) * PANEL, PANEL, d,
                        x->S + part[t].t0 * PANEL, PANEL, part[t].all, PANEL, 0);
    for (int u = 0; u < (rows + LANES - 1) / LANES; u++) {
        float factor = (float)exponent_factor_f32(job->p);
        if (tile != ATTN_TILE_FULL || is_edited_f32(job->p) || !(factor > 0)) {
            matrix_exponents(job->p, at, &seen, u, x->S + u * LANES, NULL);
            factor = 1;
        }
        matrix_softmax(job, x, &seen.keys, factor, u, n);
    }
    for (int t = 0; t < parts; t++)
        MATRIX_PRODUCTS(part[t].turned, ATTN_KEY_BLOCK,
                        (const uint32_t *)(x->S + part[t].t0 * PANEL), 2 * PANEL, part[t].all,
                        x->softmax.O + n * dv * PANEL, PANEL, dv, PANEL, 1);
}

static void matrix_begin(const struct attn_tile_forward *job, int panels,
                         struct matrix_workspace *x)
{
    int64_t d = x->block.d;
    for (int n = 0; n < panels; n++) {
        int64_t i0 = job->at.i0 + n * PANEL;
        int rows = job->at.i1 - i0 < PANEL ? (int)(job->at.i1 - i0) : PANEL;
        uint16_t *row = (uint16_t *)x->softmax.rows;
        for (int r = 0; r < rows; r++)
            matrix_row(&job->t->q, job->at.b, job->at.h, i0 + r, job->p->d_key, row + r * d);
        matrix_feature_pairs(row, rows, d, x->Q + n * (d / 2) * PANEL);
    }
    memset(x->softmax.O, 0, (size_t)(panels * PANEL * x->block.dv) * sizeof *x->softmax.O);
    memset(x->S, 0, (size_t)(ATTN_KEY_BLOCK * PANEL) * sizeof *x->S);
    for (int n = 0; n < panels * PANEL; n++)
        x->softmax.m[n] = -INFINITY, x->softmax.l[n] = 0;
}

static void matrix_forward(const struct attn_tile_forward *job)
{
    const struct attn_problem *p = job->p;
    int64_t g = job->at.h / (p->heads / p->kv_heads);
    int queries = (int)(job->at.i1 - job->at.i0), panels = (queries + PANEL - 1) / PANEL;
    struct matrix_workspace x = matrix_layout(job, panels);
    struct attn_mask_cursor cursor;
    matrix_begin(job, panels, &x);
    attn_mask_cursor_open(&cursor, job->runs, PANEL, job->at);
    for (int64_t j = attn_mask_cursor_first(&cursor, job->at.j0), j1; j < job->at.j1;
         j = attn_mask_cursor_first(&cursor, j1)) {
        int64_t start = j / ATTN_KEY_BLOCK * ATTN_KEY_BLOCK, end = start + ATTN_KEY_BLOCK;
        int64_t j0 = start > job->at.j0 ? start : job->at.j0;
        j1 = end < job->at.j1 ? end : job->at.j1;
        matrix_keys_load(&x.block,
                         (struct attn_tensor_rows){&job->t->k, job->at.b, g, j0, j1, p->d_key},
                         (struct attn_tensor_rows){&job->t->v, job->at.b, g, j0, j1, p->d_value});
        for (int n = 0; n < panels; n++)
            matrix_panel(job, &cursor, j0, j1, n, &x);
    }
    MATRIX_END();
    for (int r = 0; r < queries; r += PANEL)
        forward_finish_f32(job, r, r + PANEL < queries ? r + PANEL : queries, &x.softmax);
}
