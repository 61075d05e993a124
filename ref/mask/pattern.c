/* Compressed sparse rows: count, add up, fill. */
#include "ref/mask/pattern.h"
#include "ref/impl.h"
#include "ref/problem.h"

#include <limits.h>

/* Patterns of a problem: one, or one for each batch, head, or both. */
struct spread {
    int64_t batches, heads; /* that differ */
};

static struct spread spread_of(const struct attn_problem *p)
{
    struct spread s = {1, 1};
    if (attn_mask_varies_by_batch(p->mask))
        s.batches = p->batch;
    if (attn_mask_varies_by_head(p->mask))
        s.heads = p->heads;
    if (p->batch == 0 || p->heads == 0)
        s.batches = s.heads = 0;
    return s;
}

/* a + b, or -1 when either is -1 or the sum exceeds int64. */
static int64_t sum_or_overflow(int64_t a, int64_t b)
{
    return a < 0 || b < 0 || a > INT64_MAX - b ? -1 : a + b;
}

static enum attn_status check_columns(const struct attn_problem *p, struct attn_error *err)
{
    if (p->n_key > INT32_MAX)
        return attn_fail(err, ATTN_ENOTSUP,
                         "csr of %lld keys: columns are 32 bits wide, so up to %d keys would work",
                         (long long)p->n_key, INT32_MAX);
    return ATTN_OK;
}

static int64_t row_count(const struct attn_problem *p, int64_t b, int64_t h, int64_t i)
{
    return attn_mask_row_count(p->mask, p->origin.batch + b, p->origin.head + h,
                               p->origin.query + i, p->origin.key, p->origin.key + p->n_key);
}

static int64_t row_keys(const struct attn_problem *p, int64_t b, int64_t h, int64_t i,
                        int32_t *column)
{
    return attn_mask_row_keys(p->mask, p->origin.batch + b, p->origin.head + h, p->origin.query + i,
                              p->origin.key, p->origin.key + p->n_key, column);
}

/* The arrays of a mask that is this very pattern, in the types of struct attn_csr and aligned. */
static int is_stored(const struct attn_problem *p, struct attn_mask_tensor *row_start,
                     struct attn_mask_tensor *column)
{
    if (!attn_mask_stored(p->mask, row_start, column))
        return 0;
    const struct attn_mask_shape *of = attn_mask_shape(p->mask);
    const struct attn_origin *at = &p->origin;
    return at->batch == 0 && at->head == 0 && at->query == 0 && at->key == 0 &&
           of->batch == p->batch && of->heads == p->heads && of->n_query == p->n_query &&
           of->n_key == p->n_key && row_start->width == sizeof(int64_t) &&
           column->width == sizeof(int32_t) && (uintptr_t)row_start->data % sizeof(int64_t) == 0 &&
           (uintptr_t)column->data % sizeof(int32_t) == 0;
}

/* csr, of which the steps are known, with the arrays of the mask. */
static void borrow(struct attn_csr *csr, const struct attn_mask_tensor *row_start,
                   const struct attn_mask_tensor *column)
{
    csr->borrowed = 1;
    csr->row_start = (int64_t *)row_start->data;
    csr->column = (int32_t *)column->data;
    csr->nnz = csr->row_start[csr->patterns * csr->n_query];
}

enum attn_status attn_csr_build(const struct attn_problem *problem, struct attn_ledger *ledger,
                                struct attn_csr *csr, struct attn_error *err)
{
    struct spread s = spread_of(problem);
    struct attn_mask_tensor row_start, column;
    *csr = (struct attn_csr){.n_query = problem->n_query, .patterns = s.batches * s.heads};
    csr->head_step = s.heads > 1;
    csr->batch_step = s.batches > 1 ? s.heads : 0;
    enum attn_status status = check_columns(problem, err);
    if (status != ATTN_OK)
        return status;
    if (is_stored(problem, &row_start, &column)) {
        borrow(csr, &row_start, &column);
        return ATTN_OK;
    }

    int64_t rows = attn_product(csr->patterns, csr->n_query), row = 0;
    if (attn_product(sum_or_overflow(rows, 1), (int64_t)sizeof *csr->row_start) < 0)
        return attn_fail(err, ATTN_EINVAL, "csr of %lld patterns of %lld rows exceeds 64 bits",
                         (long long)csr->patterns, (long long)csr->n_query);
    csr->row_start =
        attn_ledger_take(ledger, "csr.row_start", rows + 1, (int64_t)sizeof *csr->row_start, err);
    if (csr->row_start == NULL)
        return ATTN_ENOMEM;
    csr->row_start[0] = 0;
    for (int64_t b = 0; b < s.batches; b++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < csr->n_query; i++, row++)
                csr->row_start[row + 1] = csr->row_start[row] + row_count(problem, b, h, i);
    csr->nnz = csr->row_start[rows];

    csr->column =
        attn_ledger_take(ledger, "csr.column", csr->nnz, (int64_t)sizeof *csr->column, err);
    if (csr->column == NULL) {
        attn_csr_free(csr, ledger);
        return ATTN_ENOMEM;
    }
    row = 0;
    for (int64_t b = 0; b < s.batches; b++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < csr->n_query; i++, row++)
                row_keys(problem, b, h, i, csr->column + csr->row_start[row]);
    return ATTN_OK;
}

void attn_csr_free(struct attn_csr *csr, struct attn_ledger *ledger)
{
    if (!csr->borrowed) {
        attn_ledger_give(ledger, csr->column);
        attn_ledger_give(ledger, csr->row_start);
    }
    csr->column = NULL;
    csr->row_start = NULL;
}

int64_t attn_csr_row(const struct attn_csr *csr, int64_t b, int64_t h, int64_t i,
                     const int32_t **columns)
{
    int64_t row = (b * csr->batch_step + h * csr->head_step) * csr->n_query + i;
    *columns = csr->column + csr->row_start[row];
    return csr->row_start[row + 1] - csr->row_start[row];
}

enum attn_status attn_csr_cost(const struct attn_problem *problem, struct attn_cost *cost,
                               int64_t *nnz, int64_t *pairs, struct attn_error *err)
{
    struct spread s = spread_of(problem);
    enum attn_status status = check_columns(problem, err);
    if (status != ATTN_OK)
        return status;
    int64_t stored = 0;
    for (int64_t b = 0; b < s.batches; b++)
        for (int64_t h = 0; h < s.heads; h++)
            stored = sum_or_overflow(stored, attn_problem_pairs(problem, b, h, &cost->counted));
    int64_t patterns = attn_product(s.batches, s.heads);
    int64_t share = patterns > 0 ? attn_product(problem->batch, problem->heads) / patterns : 0;
    int64_t all = attn_product(stored, share); /* each pattern serves as many (batch, head)s */
    int64_t rows = sum_or_overflow(attn_product(patterns, problem->n_query), 1);
    if (stored < 0 || all < 0 || rows < 0)
        return attn_fail(err, ATTN_EINVAL, "csr of b%lldh%lldq%lldk%lld: its pairs exceed 64 bits",
                         (long long)problem->batch, (long long)problem->heads,
                         (long long)problem->n_query, (long long)problem->n_key);
    struct attn_mask_tensor row_start, column;
    int stored_already = is_stored(problem, &row_start, &column);
    if (!stored_already)
        status = attn_cost_add(cost, "csr.row_start", rows, (int64_t)sizeof(int64_t), err);
    if (!stored_already && status == ATTN_OK)
        status = attn_cost_add(cost, "csr.column", stored, (int64_t)sizeof(int32_t), err);
    if (nnz != NULL)
        *nnz = stored;
    if (pairs != NULL)
        *pairs = all;
    return status;
}
