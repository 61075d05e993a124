/* The matrix unit: products of bf16 numbers with sums in float, `tiled:p=bf16`.
 *
 * A matrix unit multiplies two small matrices in one instruction.  It takes 16-bit numbers two at a
 * time, because two of them fill one 32-bit place; so one operand is stored in pairs:
 *
 *      A  [16 rows][k]            rows as they are: neighbours in memory are neighbours in the sum
 *      B  [k / 2][columns][2]     pairs: elements k and k + 1 of a column lie side by side
 *      C  [16 rows][columns]      float
 *
 *      C[t][n] = sum_k A[t][k] B[k][n]
 *
 * All five products of attention are this one, and each has its sum along what lies side by side in
 * A (docs/kernel.md, "Matrix units"):
 *
 *                                            A, rows             B, pairs of    columns
 *      S[key][query]   = K Q^T               K                   features       queries
 *      O[feature][query] += V^T P            V^T, transposed     keys           queries
 *      dP[key][query]  = V dO^T              V                   features       queries
 *      dV[key][feature] += P dO              P, rounded          queries        features
 *      dK[key][feature] += dS Q              dS, rounded         queries        features
 *      dQ[feature][query] += K^T dS          K^T, transposed     keys           queries
 *
 * So K needs no packing for scores, and V does for values: there the sum runs over keys, which are
 * rows of V.  P and dS are made in float and rounded to bf16 for their products: pairs of keys are
 * two rows of S, one above the other, and no number changes its lane.
 *
 * The text below serves every machine: MATRIX_PRODUCTS is the loop of portable vectors unless the
 * instruction set has a unit and says so (amx.c).
 * Source   Intel SDM, vol. 1, 18 (AMX); Dao 2023 (FlashAttention-2), algorithms 1 and 2. */

enum { MATRIX_ROWS = 16 }; /* of A and C; and k and features come in whole 16's */

static inline int64_t matrix_round(int64_t n)
{
    return (n + MATRIX_ROWS - 1) / MATRIX_ROWS * MATRIX_ROWS;
}

/* ---- the product ----------------------------------------------------------------------------- */

#ifndef MATRIX_PRODUCTS
#define MATRIX_PRODUCTS matrix_products
#define MATRIX_END()

/* C[16][columns] = A B, or += A B. */
static void matrix_product(const uint16_t *A, int64_t a_step, const uint32_t *B, int64_t b_step,
                           int64_t k, float *C, int64_t c_step, int64_t columns, int adds)
{
    for (int64_t n = 0; n < columns; n += LANES)
        for (int t0 = 0; t0 < MATRIX_ROWS; t0 += 4) {
            vec_f32 acc[4] = {{0}};
            for (int64_t c = 0; c < k; c += 2) {
                uvec_f32 pair;
                memcpy(&pair, B + c / 2 * b_step + n, sizeof pair);
                vec_f32 even = (vec_f32)(pair << 16), odd = (vec_f32)(pair & 0xffff0000u);
                for (int t = 0; t < 4; t++) {
                    const uint16_t *a = A + (t0 + t) * a_step + c;
                    acc[t] = VEC_FMA(all_f32(attn_bf16_to_float(a[0])), even, acc[t]);
                    acc[t] = VEC_FMA(all_f32(attn_bf16_to_float(a[1])), odd, acc[t]);
                }
            }
            for (int t = 0; t < 4; t++) {
                float *to = C + (t0 + t) * c_step + n;
                store_f32(to, adds ? load_f32(to) + acc[t] : acc[t]);
            }
        }
}

/* C[rows][columns] = A B, or += A B: rows and k in whole 16's, columns in whole vectors; steps are
 * from row to row, in elements. */
static void matrix_products(const uint16_t *A, int64_t a_step, const uint32_t *B, int64_t b_step,
                            int64_t k, float *C, int64_t c_step, int64_t rows, int64_t columns,
                            int adds)
{
    for (int64_t t = 0; t < rows; t += MATRIX_ROWS)
        matrix_product(A + t * a_step, a_step, B, b_step, k, C + t * c_step, c_step, columns, adds);
}
#endif

#ifndef MATRIX_PAIR
#define MATRIX_PAIR matrix_pair
/* Two vectors of numbers, rounded, as one of pairs. */
static inline uvec_f32 matrix_pair(vec_f32 even, vec_f32 odd)
{
    return __builtin_convertvector(bf16_from_vec(even), uvec_f32) |
           __builtin_convertvector(bf16_from_vec(odd), uvec_f32) << 16;
}
#endif

/* ---- operands -------------------------------------------------------------------------------- */

/* Row (b,h,i) of n bf16 numbers, padded by zeros to whole 16's. */
static void matrix_row(const struct attn_cview *x, int64_t b, int64_t h, int64_t i, int64_t n,
                       uint16_t *to)
{
    const uint16_t *from = n > 0 ? (const uint16_t *)x->data + attn_offset(x->stride, b, h, i) : to;
    if (x->stride[3] == 1 && n > 0)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        for (int64_t c = 0; c < n; c++)
            to[c] = from[c * x->stride[3]];
    memset(to + n, 0, (size_t)(matrix_round(n) - n) * sizeof *to);
}

/* to[c][r] = rows[r][c]: n rows in whole 16's, `width` features.  Two features are moved as one
 * 32-bit number, and parted at the end. */
static void matrix_transpose(const uint16_t *rows, int64_t n, int64_t width, uint16_t *to,
                             int64_t to_step)
{
    for (int64_t r0 = 0; r0 < n; r0 += LANES)
        for (int64_t c0 = 0; c0 < width; c0 += 2 * LANES) {
            int64_t left = width - c0 < 2 * LANES ? width - c0 : 2 * LANES;
            vec_f32 square[LANES];
            for (int r = 0; r < LANES; r++)
                if (left == 2 * LANES) {
                    memcpy(&square[r], rows + (r0 + r) * width + c0, sizeof square[r]);
                } else {
                    square[r] = (vec_f32){0};
                    memcpy(&square[r], rows + (r0 + r) * width + c0, (size_t)left * sizeof *rows);
                }
            transpose_f32(square);
            for (int c = 0; 2 * c < left; c++) {
                uvec_f32 pair = (uvec_f32)square[c];
                halves_f32 even = __builtin_convertvector(pair, halves_f32);
                halves_f32 odd = __builtin_convertvector(pair >> 16, halves_f32);
                memcpy(to + (c0 + 2 * c) * to_step + r0, &even, sizeof even);
                memcpy(to + (c0 + 2 * c + 1) * to_step + r0, &odd, sizeof odd);
            }
        }
}

/* A panel of at most PANEL rows, `width` features each, as pairs of features: to[c / 2][r]. */
static void matrix_feature_pairs(const uint16_t *rows, int n, int64_t width, uint32_t *to)
{
    for (int64_t c = 0; c < width; c += 2) {
        uint32_t *pair = to + c / 2 * PANEL;
        for (int r = 0; r < n; r++)
            pair[r] = rows[r * width + c] | (uint32_t)rows[r * width + c + 1] << 16;
        for (int r = n; r < PANEL; r++)
            pair[r] = 0;
    }
}

/* The same panel as pairs of rows: to[r / 2][c]. */
static void matrix_row_pairs(const uint16_t *rows, int n, int64_t width, uint32_t *to)
{
    for (int r = 0; r < PANEL; r += 2)
        for (int64_t c = 0; c < width; c++) {
            uint32_t even = r < n ? rows[r * width + c] : 0;
            uint32_t odd = r + 1 < n ? rows[(r + 1) * width + c] : 0;
            to[r / 2 * width + c] = even | odd << 16;
        }
}

/* Keys as the products take them: rows of K and of V, and one of the two transposed, whose rows are
 * ATTN_KEY_BLOCK numbers apart.  n keys, and zeros up to whole 16's. */
struct matrix_keys {
    int64_t n, d, dv; /* d and dv in whole 16's */
    int turns_k;      /* transposed is K, for dQ; else V, for O */
    uint16_t *K, *V, *turned;
};

static struct matrix_keys matrix_keys_at(uint16_t *ws, int64_t d, int64_t dv, int64_t keys,
                                         int turns_k)
{
    struct matrix_keys x = {.d = matrix_round(d), .dv = matrix_round(dv), .turns_k = turns_k};
    x.K = ws;
    x.V = x.K + keys * x.d;
    x.turned = x.V + keys * x.dv;
    return x;
}

/* After rows 0 .. n-1 are there. */
static void matrix_keys_finish(struct matrix_keys *x, int64_t n)
{
    int64_t all = matrix_round(n);
    x->n = n;
    memset(x->K + n * x->d, 0, (size_t)((all - n) * x->d) * sizeof *x->K);
    memset(x->V + n * x->dv, 0, (size_t)((all - n) * x->dv) * sizeof *x->V);
    matrix_transpose(x->turns_k ? x->K : x->V, all, x->turns_k ? x->d : x->dv, x->turned,
                     ATTN_KEY_BLOCK);
}

/* The same keys of K and of V. */
static void matrix_keys_load(struct matrix_keys *x, struct attn_tensor_rows k,
                             struct attn_tensor_rows v)
{
    for (int64_t j = k.i0; j < k.i1; j++) {
        matrix_row(k.x, k.b, k.h, j, k.n, x->K + (j - k.i0) * x->d);
        matrix_row(v.x, v.b, v.h, j, v.n, x->V + (j - k.i0) * x->dv);
    }
    matrix_keys_finish(x, k.i1 - k.i0);
}

/* Rows t0 and on of the keys that a panel sees, copied from their block. */
static void matrix_keys_select(struct matrix_keys *x, const struct matrix_keys *block,
                               const struct attn_keys *keys, int64_t t0)
{
    for (int64_t t = t0; t < keys->n_full; t++) {
        int64_t j = keys->full[t];
        memcpy(x->K + (t - t0) * x->d, block->K + j * x->d, (size_t)x->d * sizeof *x->K);
        memcpy(x->V + (t - t0) * x->dv, block->V + j * x->dv, (size_t)x->dv * sizeof *x->V);
    }
    matrix_keys_finish(x, keys->n_full - t0);
}

/* The keys that a panel sees, as the products take them: t0 .. t0 + n - 1 of its list. */
struct matrix_part {
    int64_t t0, n, all; /* all: n in whole 16's; beyond n are zeros */
    int64_t first;      /* where they lie in the block, in order; -1: copied, in any order */
    const uint16_t *K, *V, *turned;
};

/* Keys that follow each other are read where they are, in whole 16's; the rest of them, and keys
 * with gaps, are copied: what stands between or behind them is hidden, and may be NaN.  Returns the
 * number of parts. */
static int matrix_parts(struct matrix_keys *some, const struct matrix_keys *block,
                        const struct attn_keys *keys, struct matrix_part part[2])
{
    int64_t n = keys->n_full, first = keys->full[0];
    int in_order = keys->full[n - 1] - first == n - 1;
    int64_t all = n == block->n ? matrix_round(n) : n / MATRIX_ROWS * MATRIX_ROWS;
    int parts = 0;
    if (!in_order)
        all = 0;
    if (all > 0)
        part[parts++] = (struct matrix_part){0,
                                             all < n ? all : n,
                                             all,
                                             first,
                                             block->K + first * block->d,
                                             block->V + first * block->dv,
                                             block->turned + first};
    if (all < n) {
        matrix_keys_select(some, block, keys, all);
        part[parts++] = (struct matrix_part){all,     n - all, matrix_round(n - all), -1,
                                             some->K, some->V, some->turned};
    }
    return parts;
}

/* ---- scores that are not in registers -------------------------------------------------------- */

/* The keys that a panel sees, and which of them each query does. */
struct matrix_seen {
    struct attn_keys keys;
    uint64_t words[ATTN_KEY_BLOCK];
    const uint64_t *by; /* words, or NULL where all see all */
};

/* S = q . k of vector u of a panel becomes an exponent of 2: scaled, edited, -inf where hidden.  S
 * and slope are those of the vector; `at` goes from the panel's first query and the block's first
 * key on. */
static void matrix_exponents(const struct attn_problem *p, struct attn_tile_at at,
                             const struct matrix_seen *x, int u, float *S, float *slope)
{
    vec_f32 hidden = all_f32(-INFINITY);
    float factor = (float)exponent_factor_f32(p);
    int n = x->keys.n_full, edited = is_edited_f32(p);
    const uint64_t *seen = x->by;
    at.i0 += u * LANES;
    for (int j = 0; edited && j < n; j++)
        store_f32(S + j * PANEL, load_f32(S + j * PANEL) * factor);
    if (edited)
        edit_f32(p, at, &x->keys, u, S, slope);
    for (int j = 0; !edited && j < n; j++) {
        vec_f32 s = load_f32(S + j * PANEL) * factor;
        if (seen != NULL)
            s = choose_f32(lanes_of_f32((unsigned)(seen[j] >> u * LANES)), s, hidden);
        store_f32(S + j * PANEL, s);
    }
    for (int j = 0; edited && seen != NULL && j < n; j++) {
        vec_f32 s = load_f32(S + j * PANEL);
        s = choose_f32(lanes_of_f32((unsigned)(seen[j] >> u * LANES)), s, hidden);
        store_f32(S + j * PANEL, s);
    }
}

/* ---- what the unit can do (limits_tmpl.h) ---------------------------------------------------- */

#ifndef MATRIX_PEAK
#define MATRIX_PEAK_BEGIN()
#define MATRIX_PEAK(A, B, C) MATRIX_PRODUCTS(A, 32, B, PANEL, 32, C, PANEL, MATRIX_ROWS, PANEL, 1)
#endif

/* Products of 16 by 32 and 32 by PANEL numbers: on tiles alone where there are tiles. */
static double matrix_limit(void *x, int64_t n, int64_t rounds)
{
    uint16_t A[MATRIX_ROWS * 32];
    uint32_t B[16 * PANEL];
    float C[MATRIX_ROWS * PANEL] = {0};
    (void)n;
    memset(A, 0x3e, sizeof A); /* every number is 0.1855 */
    memset(B, 0x3e, sizeof B);
    MATRIX_PEAK_BEGIN();
    for (int64_t r = 0; r < rounds; r++) {
        MATRIX_PEAK(A, B, C);
        __asm__ volatile("" : : "r"(C) : "memory"); /* or one round would do for all */
    }
    MATRIX_END();
    memcpy(x, C, sizeof *C);
    return 2.0 * MATRIX_ROWS * 32 * PANEL * (double)rounds;
}
