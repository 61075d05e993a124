/* Pieces of a problem: contiguous shards, stripes, and batches that are cut out of one sequence
 * (struct attn_origin).  Every function of a mask must say of a piece what the definition says of
 * the whole at the same tokens: for every call of the language and many compositions. */
#include <stdio.h>
#include <string.h>

#include "optimized/registry.h"
#include "ref/mask/pattern.h"
#include "ref/oracle/oracle.h"
#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/mask_data.h"
#include "tests/harness/base/fill.h"
#include "tests/suites.h"

SUITE(pieces);

/* Positions that fit n tokens of the whole: every skip-th from `first` on, as many as there are;
 * by_batch 1 leaves room for the other batch. */
static int64_t positions(struct attn_positions *at, int64_t whole, int64_t first, int64_t skip,
                         int64_t by_batch)
{
    int64_t left = whole - first - by_batch;
    *at = (struct attn_positions){.first = first, .skip = skip, .by_batch = by_batch};
    return left > 0 ? (left + skip) / (1 + skip) : 0;
}

/* Piece n of a problem with this mask; 0 after the last, which is the second half of everything. */
static int piece_of(const struct attn_mask *mask, int n, struct attn_problem *p)
{
    static const struct {
        int64_t first, skip, by_batch;
    } at[] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {1, 1, 0}, {2, 2, 0}, {0, 2, 1}, {1, 0, 1}};
    enum { PLACES = sizeof at / sizeof *at };
    const struct attn_mask_shape *whole = attn_mask_shape(mask);
    const int q = n % PLACES, k = n / PLACES % PLACES;
    *p = (struct attn_problem){.heads = whole->heads,
                               .kv_heads = whole->heads,
                               .d_key = 2,
                               .d_value = 2,
                               .scale = 1,
                               .dtype = ATTN_F64,
                               .mask = mask};
    if (n == PLACES * PLACES) {
        p->origin = (struct attn_origin){whole->batch / 2,
                                         whole->heads / 2,
                                         {.first = whole->n_query / 2},
                                         {.first = whole->n_key / 2},
                                         0};
        p->batch = whole->batch - p->origin.batch;
        p->heads = p->kv_heads = whole->heads - p->origin.head;
        p->n_query = whole->n_query - p->origin.query.first;
        p->n_key = whole->n_key - p->origin.key.first;
        return 1;
    }
    p->n_query =
        positions(&p->origin.query, whole->n_query, at[q].first, at[q].skip, at[q].by_batch);
    p->n_key = positions(&p->origin.key, whole->n_key, at[k].first, at[k].skip, at[k].by_batch);
    p->origin.one_batch = at[q].by_batch + at[k].by_batch > 0;
    p->batch = p->origin.one_batch ? 2 : whole->batch;
    if (p->n_query == 0)
        p->origin.query = (struct attn_positions){0};
    if (p->n_key == 0)
        p->origin.key = (struct attn_positions){0};
    return n < PLACES * PLACES;
}

/* The definition, written out: what the piece's pair is in the whole. */
static int allows(const struct attn_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attn_positions *q = &p->origin.query, *k = &p->origin.key;
    return attn_mask_allows(p->mask, p->origin.one_batch ? p->origin.batch : p->origin.batch + b,
                            p->origin.head + h, q->first + q->by_batch * b + (q->skip + 1) * i,
                            k->first + k->by_batch * b + (k->skip + 1) * j);
}

/* Runs, span, pattern and count of one row; the visible keys of it. */
static int64_t check_row(const struct attn_problem *p, const struct attn_csr *csr, int64_t b,
                         int64_t h, int64_t i)
{
    int64_t visible = 0, from = 0;
    const int32_t *column;
    int64_t stored = attn_csr_row(csr, b, h, i, &column);
    struct attn_run run = {0, 0};
    for (; attn_problem_next(p, b, h, i, &run); from = run.hi) {
        ck_assert(from <= run.lo && run.lo < run.hi && run.hi <= p->n_key);
        for (int64_t j = from; j < run.hi; j++)
            ck_assert_int_eq(allows(p, b, h, i, j), j >= run.lo);
    }
    for (int64_t j = 0; j < p->n_key; j++) {
        ck_assert_int_eq(attn_problem_allows(p, b, h, i, j), allows(p, b, h, i, j));
        if (!allows(p, b, h, i, j))
            continue;
        ck_assert(j < from && visible < stored && column[visible] == j);
        visible++;
    }
    ck_assert_int_eq(stored, visible);
    if (attn_problem_span(p, b, h, i, &run)) {
        ck_assert_int_eq(run.hi > run.lo ? run.hi - run.lo : 0, visible);
        ck_assert(visible == 0 || (allows(p, b, h, i, run.lo) && allows(p, b, h, i, run.hi - 1)));
    }
    return visible;
}

static void check_tile(const struct attn_problem *p, int64_t b, int64_t h, int64_t i0, int64_t i1)
{
    int64_t j0 = p->n_key / 3, j1 = p->n_key, visible = 0;
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = j0; j < j1; j++)
            visible += allows(p, b, h, i, j);
    enum attn_tile tile = attn_problem_tile(p, (struct attn_tile_at){b, h, i0, i1, j0, j1});
    ck_assert(tile != ATTN_TILE_EMPTY || visible == 0);
    ck_assert(tile != ATTN_TILE_FULL || visible == (i1 - i0) * (j1 - j0));
}

/* The priced accounts of a pattern are the ledger's, name by name; what the mask has stored is
 * borrowed, not taken, and not priced. */
static void check_price(const struct attn_problem *p, const struct attn_ledger *ledger,
                        const struct attn_csr *csr, int64_t pairs)
{
    struct attn_cost cost = {0};
    struct attn_csr priced;
    struct attn_mask_tensor row_start, column;
    int given = attn_mask_stored(p->mask, &row_start, &column) && csr->column == column.data;
    int64_t starts = given ? 0 : 8 * (csr->patterns * p->n_query + 1);
    int64_t columns = given ? 0 : 4 * csr->nnz;
    ck_assert_int_eq(attn_csr_cost(p, &cost, &priced, NULL), ATTN_OK);
    ck_assert(priced.nnz == csr->nnz && priced.patterns == csr->patterns);
    ck_assert_int_eq(attn_csr_pairs(p, &priced), pairs);
    ck_assert_int_eq(csr->borrowed, given);
    ck_priced("csr", &cost, ledger->at_peak, ledger->n_at_peak, ledger->now);
    ck_assert_int_eq(live_of(cost.live, cost.n_live, "csr.row_start"), starts);
    ck_assert_int_eq(live_of(cost.live, cost.n_live, "csr.column"), columns);
    ck_assert_int_eq(cost.peak_bytes, starts + columns);
}

static void check_piece(const struct attn_problem *p, const char *text)
{
    struct attn_ledger ledger;
    struct attn_error err = {0};
    struct attn_csr csr;
    int64_t all = 0;
    int counted = 0;
    attn_ledger_init(&ledger, NULL);
    ledger.poison = 1;
    ck_assert_msg(attn_problem_check(p, &err) == ATTN_OK, "%s: %s", text, err.text);
    ck_assert_int_eq(attn_csr_build(p, &ledger, &csr, &err), ATTN_OK);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++) {
            int64_t pairs = 0;
            for (int64_t i = 0; i < p->n_query; i++)
                pairs += check_row(p, &csr, b, h, i);
            ck_assert_msg(attn_problem_pairs(p, b, h, &counted) == pairs, "%s: b%d h%d", text,
                          (int)b, (int)h);
            check_tile(p, b, h, 0, p->n_query / 2);
            check_tile(p, b, h, p->n_query / 2, p->n_query);
            all += pairs;
        }
    ck_assert_int_eq(attn_problem_all_pairs(p, &counted), all);
    check_price(p, &ledger, &csr, all);
    attn_csr_free(&csr, &ledger);
    attn_csr_free(&csr, &ledger); /* freed ones are all zero again */
    ck_assert_int_eq(ledger.damaged, 0);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
}

TEST_EACH(definition, mask_texts)
{
    static struct mask_data d;
    struct attn_problem p;
    char text[400];
    for (int s = 0; mask_data_text(_i, s, &d, text, sizeof text) != MASK_NO_SHAPE; s++) {
        struct attn_mask *mask = mask_data_parse(text, &d);
        for (int n = 0; piece_of(mask, n, &p); n++)
            check_piece(&p, text);
        piece_of(mask, 0, &p);
        p.mask = NULL;
        check_piece(&p, "no mask");
        attn_mask_free(mask);
    }
}

/* Bands, limits and documents keep their closed count between stretches of one step, at any size.
 * Striped attention: rank r of P and the keys of rank c: a causal mask of L/P tokens, with its
 * diagonal where c <= r. */
TEST(counts_of_stripes)
{
    static const char *const text[] = {"causal(tl)", "window(-1,0,br)&prefix(1048576)",
                                       "causal(br)&documents(1048576)"};
    const int64_t n = (1 << 20) / 8;
    for (size_t t = 0; t < sizeof text / sizeof *text; t++) {
        struct attn_mask *mask = mask_of(text[t], (struct attn_mask_shape){1, 1, 1 << 20, 1 << 20});
        for (int64_t r = 0; r < 8; r++)
            for (int64_t c = 0; c < 8; c++) {
                const struct attn_tokens queries = {r, 8, n}, keys = {c, 8, n};
                int counted = 0;
                ck_assert_int_eq(attn_mask_pairs(mask, 0, 0, &queries, &keys, &counted),
                                 c <= r ? n * (n + 1) / 2 : n * (n - 1) / 2);
                const struct attn_tokens one = {r + 8 * 5, 1, 1}; /* one token has any step */
                ck_assert_int_eq(attn_mask_pairs(mask, 0, 0, &one, &keys, &counted), 5 + (c <= r));
                ck_assert_int_eq(attn_mask_pairs(mask, 0, 0, &queries, &one, &counted), n - 5);
                ck_assert_int_eq(counted, 0);
            }
        attn_mask_free(mask);
    }
}

TEST(refusals)
{
    struct attn_mask *mask = mask_of("causal(br)", (struct attn_mask_shape){2, 1, 12, 12});
    struct attn_error err;
    struct attn_problem p = problem_of("b3q4d1:none:f32:normal:s1", mask);
    p.origin.one_batch = 1;
    p.origin.query = p.origin.key = (struct attn_positions){0, 2, 1}; /* the last is 11 */
    ck_assert_int_eq(attn_problem_check(&p, &err), ATTN_OK);
    static const struct attn_positions wrong[] = {{1, 2, 1}, {.skip = INT64_MAX}, {.by_batch = -1}};
    for (int n = 0; n < COUNT(wrong); n++) {
        p.origin.key = wrong[n];
        ck_assert_int_eq(attn_problem_check(&p, &err), ATTN_EINVAL);
    }
    ck_assert_ptr_nonnull(strstr(err.text, "must not be negative"));
    attn_mask_free(mask);
}

/* ---- every implementation, on pieces --------------------------------------------------------- */

enum { TOKENS = 39, WIDTH = 4, HEADS = 2, BATCH = 2, ROWS = BATCH * HEADS * TOKENS };

static void ck_row(const struct attn_problem *p, const struct attn_forward *t,
                   struct attn_oracle_row *row, int64_t r, const char *name)
{
    const struct attn_cview q = t->q, k = t->k, v = t->v;
    const int64_t b = r / TOKENS / HEADS, h = r / TOKENS % HEADS, i = r % TOKENS;
    attn_oracle_row_forward(p, &q, &k, &v, b, h, i, row);
    double lse = attn_view_get(&t->lse, b, h, i, 0);
    ck_assert_msg(row->n == 0 ? lse == -HUGE_VAL : fabs(lse - row->lse) < 1e-12,
                  "%s: lse of (%d,%d,%d) is %.17g, not %.17g", name, (int)b, (int)h, (int)i, lse,
                  row->lse);
    for (int64_t c = 0; c < WIDTH; c++)
        ck_assert(fabs(attn_view_get(&t->o, b, h, i, c) - row->o[c]) < 1e-12);
}

/* Batches cut out of one sequence, with a bias of the whole or ALiBi: the kernels add the origin by
 * themselves.  Stripes, with ALiBi: what ranks compute (test_parallel.c). */
TEST_EACH(batches_of_one_sequence, attn_impl_count())
{
    static double qkv[3][ROWS * WIDTH], o[ROWS * WIDTH], lse[ROWS],
        bias[HEADS * 4 * TOKENS * TOKENS * 2];
    static const double slope[HEADS] = {0.25, 0.0625};
    const struct attn_impl *impl = attn_impl_at(_i);
    const int64_t whole = 2 * (TOKENS + 1);
    struct attn_options options;
    struct attn_ledger ledger;
    struct attn_error err = {0};
    struct attn_oracle_row row = {0};
    if (impl->ranks != NULL)
        return;
    for (uint64_t n = 0; n < 3 * ROWS * WIDTH; n++)
        qkv[n % 3][n / 3] = attn_hash_normal(3, 1, n);
    for (uint64_t n = 0; n < sizeof bias / sizeof *bias; n++)
        bias[n] = attn_hash_normal(4, 1, n);
    struct attn_mask *mask =
        mask_of("window(9,0,br)", (struct attn_mask_shape){BATCH, HEADS, whole, whole});
    struct attn_problem p = problem_of("b2h2q39d4:none:f64:normal:s1", mask);
    p.bias = (struct attn_bias){.kind = ATTN_BIAS_ALIBI, .slope = slope, .offset = 0};
    if (impl->caps & ATTN_CAP_BIAS)
        p.bias = (struct attn_bias){.kind = ATTN_BIAS_TENSOR,
                                    .tensor = {bias, ATTN_F64, {0, whole * whole, whole, 1}}};
    p.origin.one_batch = 1;
    p.origin.query = p.origin.key = (struct attn_positions){.skip = 1, .by_batch = 1};
    struct attn_forward t = {attn_packed_cview(qkv[0], ATTN_F64, HEADS, TOKENS, WIDTH),
                             attn_packed_cview(qkv[1], ATTN_F64, HEADS, TOKENS, WIDTH),
                             attn_packed_cview(qkv[2], ATTN_F64, HEADS, TOKENS, WIDTH),
                             attn_packed_view(o, ATTN_F64, HEADS, TOKENS, WIDTH),
                             attn_packed_view(lse, ATTN_F64, HEADS, TOKENS, 1)};
    attn_options_preset(impl, &options);
    attn_ledger_init(&ledger, NULL);
    struct attn_ctx ctx = {.ledger = &ledger, .options = &options, .error = &err};
    ck_assert_msg(attn_run_forward(impl, &ctx, &p, &t) == ATTN_OK, "%s", err.text);
    ck_assert_int_eq(attn_oracle_row_alloc(&p, &row, &err), ATTN_OK);
    for (int64_t r = 0; r < ROWS; r++)
        ck_row(&p, &t, &row, r, impl->name);
    attn_oracle_row_free(&row);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
    attn_mask_free(mask);
}
