/* See oracle.h. */
#include "ref/oracle/oracle.h"

#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#include "ref/problem.h"

/* The bias of a pair, written out again rather than asked of attn_problem_bias, which the
 * implementations use: a mistake there must not be shared by both sides of the comparison. */
static double true_bias(const struct attn_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attn_origin *at = &p->origin;
    int64_t query = at->query.first + at->query.by_batch * b + at->query.skip * i + i;
    int64_t key = at->key.first + at->key.by_batch * b + at->key.skip * j + j;
    int64_t batch = at->one_batch ? at->batch : at->batch + b, head = at->head + h;
    if (p->bias.kind == ATTN_BIAS_TENSOR)
        return attn_cview_get(&p->bias.tensor, batch, head, query, key);
    if (p->bias.kind == ATTN_BIAS_ALIBI) { /* Press et al. 2022: minus slope times distance */
        int64_t aligned = query + p->bias.offset;
        int64_t distance = aligned > key ? aligned - key : key - aligned;
        return -(p->bias.slope[head] * (double)distance);
    }
    return 0;
}

/* Where the next key or value stands: apart, so that a stretch of keys as wide as a power of two
 * has its columns in different sets of the cache. */
static int64_t stride_of(int64_t width)
{
    return width + 8;
}

/* A row's dQ is 0 where nothing is visible, or only scores of -inf. */
static int has_dq(const struct attn_oracle_row *row)
{
    return !row->without_dq && row->max != -(double)INFINITY;
}

/* Values or their gradients: row->finite says what becomes of those that are not finite. */
static void load_values(const struct attn_oracle_row *row, const struct attn_cview *x, int64_t b,
                        int64_t h, int64_t i, int64_t n, double *to)
{
    attn_cview_row(x, (int64_t[4]){b, h, i, 0}, n, to);
    for (int64_t c = 0; row->finite && c < n; c++)
        to[c] = to[c] - to[c] == 0 ? to[c] : 0;
}

/* Keys and values of one kv head, side by side, kept until another head is asked for. */
static void load_head(const struct attn_problem *p, const struct attn_cview *k,
                      const struct attn_cview *v, int64_t b, int64_t g, struct attn_oracle_row *row)
{
    if (row->cached_batch == b && row->cached_head == g)
        return;
    for (int64_t j = 0; j < p->n_key; j++) {
        attn_cview_row(k, (int64_t[4]){b, g, j, 0}, p->d_key,
                       row->stored_k + j * stride_of(p->d_key));
        load_values(row, v, b, g, j, p->d_value, row->stored_v + j * stride_of(p->d_value));
    }
    row->cached_batch = b, row->cached_head = g;
}

#define WIDE       double
#define WIDE_LANE  attn_lanes
#define WIDE_AT    ATTN_LANES_AT
#define WIDE_ABS   ATTN_LANES_ABS
#define WIDE_KEYS  4
#define FN(name)   name##_double
#define WIDE_LOOPS ATTN_ANY_WIDTH
#include "ref/oracle/oracle_tmpl.h"
#undef WIDE
#undef FN
#undef WIDE_KEYS
#undef WIDE_LANE
#undef WIDE_AT
#undef WIDE_ABS
#undef WIDE_LOOPS
#define WIDE       long double
#define WIDE_KEYS  1
#define WIDE_LANE  long double
#define WIDE_AT(x) ((long double)*(x))
#define WIDE_ABS   fabsl
#define FN(name)   name##_long
#define WIDE_LOOPS
#include "ref/oracle/oracle_tmpl.h"

static int is_wide(const struct attn_problem *p)
{
    return p->dtype == ATTN_F64;
}

/* Hand out the next piece of the block, aligned for any of its types, and apart from the next:
 * pieces as long as a power of two would share their sets of the cache. */
static void *piece(char **at, int64_t n, size_t size)
{
    void *here = *at;
    *at += ((size_t)n * size + 15) / 16 * 16 + 64;
    return here;
}

/* Columns that do not fill a vector are read with others behind them. */
enum { PAD = ATTN_LANES };

/* Lay the arrays of n rows out from `at` on, and the keys and values of one head, which they share;
 * returns the end, so that laying out from NULL measures. */
static char *lay_out(const struct attn_problem *p, int n_rows, struct attn_oracle_row *rows,
                     char *at)
{
    size_t wide = is_wide(p) ? sizeof(long double) : sizeof(double);
    int64_t n = p->n_key;
    double *k = piece(&at, n * stride_of(p->d_key) + PAD, sizeof *k);
    double *v = piece(&at, n * stride_of(p->d_value) + PAD, sizeof *v);
    for (struct attn_oracle_row *row = rows; row < rows + n_rows; row++) {
        double **const list[] = {&row->raw, &row->magnitude, &row->slope, &row->bias,
                                 &row->s,   &row->p,         &row->dp,    &row->dp_magnitude,
                                 &row->ds};
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)
            *list[i] = piece(&at, n, sizeof(double));
        row->key = piece(&at, n, sizeof(int64_t));
        row->o = piece(&at, p->d_value, sizeof(double));
        row->dq = piece(&at, p->d_key, sizeof(double));
        row->wide_s = piece(&at, n, wide);
        row->wide_p = piece(&at, n, wide);
        row->stored_q = piece(&at, p->d_key, sizeof(double));
        row->stored_do = piece(&at, p->d_value, sizeof(double));
        row->wide_sum = piece(&at, 2 * row->width, wide);
        row->stored_k = k;
        row->stored_v = v;
    }
    return at;
}

int attn_oracle_block(const struct attn_problem *p)
{
    int64_t most = p->n_query < ATTN_ORACLE_ROWS ? p->n_query : ATTN_ORACLE_ROWS;
    int64_t fit = p->n_key > 0 ? ((int64_t)1 << 17) / p->n_key : most; /* long ones need memory */
    return (int)(fit < 1 || most < 1 ? 1 : fit < most ? fit : most);
}

enum attn_status attn_oracle_rows_alloc(const struct attn_problem *p, int n_rows,
                                        struct attn_oracle_row *rows, struct attn_error *err)
{
    memset(rows, 0, (size_t)n_rows * sizeof *rows);
    for (int r = 0; r < n_rows; r++) {
        rows[r].width = PAD + (p->d_key > p->d_value ? p->d_key : p->d_value);
        rows[r].cached_batch = rows[r].cached_head = -1;
    }
    char base[1];
    size_t bytes = (size_t)(lay_out(p, n_rows, rows, base) - base);
    rows->block = malloc(bytes + 16);
    if (rows->block == NULL)
        return attn_fail(err, ATTN_ENOMEM,
                         "the oracle needs %zu bytes for one head's keys and values", bytes);
    lay_out(p, n_rows, rows, (char *)rows->block);
    return ATTN_OK;
}

void attn_oracle_rows_free(struct attn_oracle_row *rows)
{
    free(rows->block);
    memset(rows, 0, sizeof *rows);
}

/* The rows' keys, and the kv head that they are of. */
static void begin_rows(const struct attn_problem *p, const struct attn_cview *k,
                       const struct attn_cview *v, int64_t b, int64_t h, const int64_t *i,
                       int n_rows, struct attn_oracle_row *rows)
{
    int64_t g = h / (p->heads / p->kv_heads);
    load_head(p, k, v, b, g, rows);
    for (struct attn_oracle_row *row = rows; row < rows + n_rows; row++, i++) {
        row->z = p->sink.given ? attn_cview_get(&p->sink.tensor, 0, p->origin.head + h, 0, 0)
                               : -(double)INFINITY;
        row->n = row->keys != NULL ? row->keys(row->keys_arg, b, h, *i, row->key) : 0;
        for (int64_t j = 0; row->keys == NULL && j < p->n_key; j++)
            if (p->mask == NULL || attn_problem_allows(p, b, h, *i, j))
                row->key[row->n++] = j;
    }
}

static void forward(const struct attn_problem *p, const struct attn_cview *q,
                    const struct attn_cview *k, const struct attn_cview *v, int64_t b, int64_t h,
                    const int64_t *i, int n_rows, int scores_only, struct attn_oracle_row *rows)
{
    begin_rows(p, k, v, b, h, i, n_rows, rows);
    if (is_wide(p))
        forward_long(p, q, b, h, i, n_rows, scores_only, rows);
    else
        forward_double(p, q, b, h, i, n_rows, scores_only, rows);
}

void attn_oracle_rows_scores(const struct attn_problem *p, const struct attn_cview *q,
                             const struct attn_cview *k, const struct attn_cview *v, int64_t b,
                             int64_t h, const int64_t *i, int n_rows, struct attn_oracle_row *rows)
{
    forward(p, q, k, v, b, h, i, n_rows, 1, rows);
}

void attn_oracle_rows_forward(const struct attn_problem *p, const struct attn_cview *q,
                              const struct attn_cview *k, const struct attn_cview *v, int64_t b,
                              int64_t h, const int64_t *i, int n_rows, struct attn_oracle_row *rows)
{
    forward(p, q, k, v, b, h, i, n_rows, 0, rows);
}

void attn_oracle_rows_backward(const struct attn_problem *p, const struct attn_cview *d_o,
                               const struct attn_cview *d_lse, int64_t b, int64_t h,
                               const int64_t *i, int n_rows, struct attn_oracle_row *rows)
{
    if (is_wide(p))
        backward_long(p, d_o, d_lse, b, h, i, n_rows, rows);
    else
        backward_double(p, d_o, d_lse, b, h, i, n_rows, rows);
}
