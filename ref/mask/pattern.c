/* Compressed sparse rows: count, add up, fill. */
#include "ref/mask/pattern.h"
#include "ref/impl.h"
#include "ref/problem.h"

#include <limits.h>

struct attn_csr attn_csr_patterns(const struct attn_problem *p)
{
    int64_t batches = attn_problem_varies_by_batch(p) ? p->batch : 1;
    int64_t heads = attn_mask_varies_by_head(p->mask) ? p->heads : 1;
    if (p->batch == 0 || p->heads == 0)
        batches = heads = 0;
    return (struct attn_csr){.n_query = p->n_query,
                             .batch_step = batches > 1 ? heads : 0,
                             .head_step = heads > 1,
                             .patterns = attn_product(batches, heads)};
}

int64_t attn_csr_batch(const struct attn_csr *csr, int64_t pattern)
{
    return csr->batch_step > 0 ? pattern / csr->batch_step : 0;
}

int64_t attn_csr_head(const struct attn_csr *csr, int64_t pattern)
{
    return csr->batch_step > 0 ? pattern % csr->batch_step : pattern;
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

/* The keys of a row, into column[]; NULL: they are only counted.  Returns how many. */
static int64_t row_keys(const struct attn_problem *p, int64_t b, int64_t h, int64_t i,
                        int32_t *column)
{
    int64_t batch = attn_whole_batch(p, b), head = p->origin.head + h;
    int64_t query = attn_whole_query(p, b, i);
    const struct attn_tokens keys = attn_whole_tokens(&p->origin.key, b, p->n_key);
    if (column == NULL)
        return attn_mask_count_keys(p->mask, batch, head, query, &keys);
    return attn_mask_list_keys(p->mask, batch, head, query, &keys, column);
}

/* The arrays of a mask that is this very pattern, in the types of struct attn_csr and aligned. */
static int is_stored(const struct attn_problem *p, struct attn_mask_tensor *row_start,
                     struct attn_mask_tensor *column)
{
    if (!attn_mask_stored(p->mask, row_start, column))
        return 0;
    const struct attn_mask_shape *of = attn_mask_shape(p->mask);
    return attn_problem_is_whole(p) && of->batch == p->batch && of->heads == p->heads &&
           of->n_query == p->n_query && of->n_key == p->n_key &&
           row_start->width == sizeof(int64_t) && column->width == sizeof(int32_t) &&
           (uintptr_t)row_start->data % sizeof(int64_t) == 0 &&
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
    struct attn_mask_tensor row_start, column;
    *csr = attn_csr_patterns(problem);
    enum attn_status status = check_columns(problem, err);
    if (status != ATTN_OK)
        return status;
    if (is_stored(problem, &row_start, &column)) {
        borrow(csr, &row_start, &column);
        return ATTN_OK;
    }

    int64_t n = csr->n_query, rows = attn_product(csr->patterns, n);
    if (attn_product(sum_or_overflow(rows, 1), (int64_t)sizeof *csr->row_start) < 0)
        return attn_fail(err, ATTN_EINVAL, "csr of %lld patterns of %lld rows exceeds 64 bits",
                         (long long)csr->patterns, (long long)n);
    csr->row_start =
        attn_ledger_take(ledger, "csr.row_start", rows + 1, (int64_t)sizeof *csr->row_start, err);
    if (csr->row_start == NULL)
        return ATTN_ENOMEM;
    csr->row_start[0] = 0;
    for (int64_t r = 0; r < rows; r++)
        csr->row_start[r + 1] =
            csr->row_start[r] +
            row_keys(problem, attn_csr_batch(csr, r / n), attn_csr_head(csr, r / n), r % n, NULL);
    csr->nnz = csr->row_start[rows];

    csr->column =
        attn_ledger_take(ledger, "csr.column", csr->nnz, (int64_t)sizeof *csr->column, err);
    if (csr->column == NULL) {
        attn_csr_free(csr, ledger);
        return ATTN_ENOMEM;
    }
    for (int64_t r = 0; r < rows; r++)
        row_keys(problem, attn_csr_batch(csr, r / n), attn_csr_head(csr, r / n), r % n,
                 csr->column + csr->row_start[r]);
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

int64_t attn_csr_pairs(const struct attn_problem *problem, const struct attn_csr *csr)
{
    int64_t share =
        csr->patterns > 0 ? attn_product(problem->batch, problem->heads) / csr->patterns : 0;
    return attn_product(csr->nnz, share);
}

enum attn_status attn_csr_cost(const struct attn_problem *problem, struct attn_cost *cost,
                               struct attn_csr *csr, struct attn_error *err)
{
    struct attn_mask_tensor row_start, column;
    *csr = attn_csr_patterns(problem);
    enum attn_status status = check_columns(problem, err);
    if (status != ATTN_OK)
        return status;
    for (int64_t n = 0; n < csr->patterns; n++)
        csr->nnz =
            sum_or_overflow(csr->nnz, attn_problem_pairs(problem, attn_csr_batch(csr, n),
                                                         attn_csr_head(csr, n), &cost->counted));
    int64_t rows = sum_or_overflow(attn_product(csr->patterns, problem->n_query), 1);
    if (csr->nnz < 0 || attn_csr_pairs(problem, csr) < 0 || rows < 0)
        return attn_fail(err, ATTN_EINVAL, "csr of b%lldh%lldq%lldk%lld: its pairs exceed 64 bits",
                         (long long)problem->batch, (long long)problem->heads,
                         (long long)problem->n_query, (long long)problem->n_key);
    if (is_stored(problem, &row_start, &column))
        return ATTN_OK;
    status = attn_cost_add(cost, "csr.row_start", 1, rows, (int64_t)sizeof(int64_t), err);
    if (status == ATTN_OK)
        status = attn_cost_add(cost, "csr.column", 1, csr->nnz, (int64_t)sizeof(int32_t), err);
    return status;
}
