/* Softcap and bias, on scores that the tiles have made: S[key][PANEL] for one vector of queries.
 * Rows 0 .. n_full-1 are the keys that everyone sees, the rest those of this vector's edge.
 *
 *      S = log2 e * (softcap * tanh(S / softcap) + bias)
 *
 * Q was packed without log2 e then (exponent_factor). */

static int FN(is_edited)(const struct attn_problem *p)
{
    return p->softcap > 0 || p->bias.kind != ATTN_BIAS_NONE;
}

/* The factor that turns q . k into an exponent of 2; or, where scores are edited first, into a
 * score. */
static double FN(exponent_factor)(const struct attn_problem *p)
{
    return FN(is_edited)(p) ? p->scale : p->scale * LOG2_E;
}

/* The bias of queries i0 .. i0 + lanes - 1 with key j, 0 in the other lanes; indices are those of
 * the problem, whose origin is added here as attn_problem_bias does. */
static VEC FN(bias_of)(const struct attn_problem *p, int64_t b, int64_t h, int64_t i0, int lanes,
                       int64_t j)
{
    const struct attn_bias *bias = &p->bias;
    REAL x[LANES];
    VEC all;
    int64_t batch = attn_whole_batch(p, b), head = p->origin.head + h;
    int64_t query = attn_whole_query(p, b, i0), key = attn_whole_key(p, b, j);
    int64_t step = 1 + p->origin.query.skip;
    if (bias->kind == ATTN_BIAS_ALIBI) {
        double slope = bias->slope[head];
        int64_t ahead = query + bias->offset - key;
        for (int t = 0; t < LANES; t++)
            x[t] = (REAL)(-slope * fabs((double)(ahead + step * t)));
    } else {
        const int64_t *stride = bias->tensor.stride;
        int64_t at = attn_offset(stride, batch, head, query) + key * stride[3];
        int wide = bias->tensor.dtype == ATTN_F64;
        for (int t = 0; t < LANES; t++) {
            int64_t of = at + step * t * stride[2];
            x[t] = t >= lanes ? 0
                   : wide     ? (REAL)((const double *)bias->tensor.data)[of]
                              : (REAL)((const float *)bias->tensor.data)[of];
        }
    }
    memcpy(&all, x, sizeof all);
    return all;
}

/* at: from the first query of the vector on, and from the first key of the block on.  slope, if
 * given, receives d softcap(s) / d s, in the layout of S; it is not written where there is no
 * softcap. */
static void FN(edit)(const struct attn_problem *p, struct attn_tile_at at,
                     const struct attn_keys *keys, int u, REAL *S, REAL *slope)
{
    int n = keys->n_full + keys->n_edge[u];
    int lanes = at.i1 - at.i0 < LANES ? (int)(at.i1 - at.i0) : LANES;
    REAL cap = (REAL)p->softcap;
    for (int r = 0; r < n; r++) {
        VEC s = FN(load)(S + r * PANEL);
        if (p->softcap > 0) {
            VEC bent = FN(tanh)(s / cap);
            s = cap * bent;
            if (slope != NULL)
                FN(store)(slope + r * PANEL, 1 - bent * bent);
        }
        if (p->bias.kind != ATTN_BIAS_NONE) {
            int key = r < keys->n_full ? keys->full[r] : keys->edge[u][r - keys->n_full];
            s += FN(bias_of)(p, at.b, at.h, at.i0, lanes, at.j0 + key);
        }
        FN(store)(S + r * PANEL, s * (REAL)LOG2_E);
    }
}
