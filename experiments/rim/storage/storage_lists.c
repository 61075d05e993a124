/* See storage_lists.h. */
#include "experiments/rim/storage/storage_lists.h"

#include <string.h>

#include "optimized/integers.h"
#include "ref/problem.h"

/* 1: query i of a pattern sees key j; 0: it does not. */
static int pattern_sees(const struct attn_stored_mask *mask, int64_t pattern, int64_t i, int64_t j)
{
    return attn_problem_allows(mask->problem, attn_csr_batch(&mask->pattern, pattern),
                               attn_csr_head(&mask->pattern, pattern), i, j);
}

static int64_t pattern_of(const struct attn_stored_mask *mask, struct attn_pair_place at)
{
    return at.b * mask->pattern.batch_step + at.h * mask->pattern.head_step;
}

/* ---- sparse: visible pairs ------------------------------------------------------------------- */

void attn_storage_make_csr(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    int64_t n = 0, n_query = mask->problem->n_query, rows = mask->pattern.patterns * n_query;
    int64_t *start = attn_tape_take(tape, "row_start", "count the keys of each row", rows + 1, 8);
    int32_t *column = attn_tape_take(tape, "column", "list them", mask->pattern.nnz, 4);
    for (int64_t r = 0; column != NULL && r <= rows; r++) {
        start[r] = n;
        for (int64_t j = 0; r < rows && j < mask->problem->n_key; j++)
            if (pattern_sees(mask, r / n_query, r % n_query, j))
                column[n++] = (int32_t)j;
    }
}

int attn_storage_allows_csr(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                            struct attn_pair_place at)
{
    const int64_t *start = attn_tape_data(tape, "row_start");
    const int32_t *column = attn_tape_data(tape, "column");
    int64_t r = pattern_of(mask, at) * mask->problem->n_query + at.i;
    for (int64_t e = start[r]; e < start[r + 1]; e++)
        if (column[e] == at.j)
            return 1;
    return 0;
}

const char *attn_storage_one_for_all(const struct attn_stored_mask *mask)
{
    return mask->pattern.patterns > 1
               ? "it has one pattern for all, and this mask differs from batch to batch or head to "
                 "head"
               : NULL;
}

/* Rows by their lengths, longest first. */
static void sort_rows(const int32_t *offset, int64_t n, int32_t *order)
{
    for (int64_t r = 0; r < n; r++) {
        int64_t at = r;
        for (; at > 0 &&
               offset[order[at - 1] + 1] - offset[order[at - 1]] < offset[r + 1] - offset[r];
             at--)
            order[at] = order[at - 1];
        order[at] = (int32_t)r;
    }
}

/* The entries in the order of key, those of one key in the order in which they stand: where each of
 * n keys begins, the keys, and which entry it was. */
static void sort_entries(const int32_t *key, int64_t n_entries, int64_t n, int32_t *offset,
                         int32_t *sorted, int64_t *perm)
{
    memset(offset, 0, (size_t)(n + 1) * sizeof *offset);
    for (int64_t e = 0; e < n_entries; e++)
        offset[key[e] + 1]++;
    for (int64_t r = 0; r < n; r++)
        offset[r + 1] += offset[r];
    for (int64_t e = 0; e < n_entries; e++) {
        int32_t at = offset[key[e]]++;
        sorted[at] = key[e];
        perm[at] = e;
    }
    memmove(offset + 1, offset, (size_t)n * sizeof *offset); /* each stands at the next key's */
    offset[0] = 0;
}

/* The transpose of what stands on the tape, and the same arrays of it. */
static void make_transpose(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    const struct attn_problem *p = mask->problem;
    int64_t nnz = mask->pattern.nnz, m = p->n_query, n = p->n_key;
    const int32_t *offset = attn_tape_data(tape, "row_offsets");
    const int32_t *column = attn_tape_data(tape, "column_indices");
    int32_t *row = attn_tape_take(tape, "row_coo", "_csr_to_coo", nnz, 4);
    int32_t *sorted = attn_tape_take(tape, "sorted", "column_indices.sort(stable=True)", nnz, 4);
    int64_t *perm = attn_tape_take(tape, "perm", "the same", nnz, 8);
    int32_t *row_t = attn_tape_take(tape, "column_indices_t", "row_coo[perm]", nnz, 4);
    int32_t *offset_t = attn_tape_take(tape, "row_offsets_t", "_coo_to_csr", n + 1, 4);
    int32_t *order_t = attn_tape_take(tape, "row_indices_t", "_diffsort(row_offsets_t)", n, 4);
    for (int64_t i = 0; order_t != NULL && i < m; i++)
        for (int32_t e = offset[i]; e < offset[i + 1]; e++)
            row[e] = (int32_t)i;
    if (order_t != NULL) {
        sort_entries(column, nnz, n, offset_t, sorted, perm);
        for (int64_t e = 0; e < nnz; e++)
            row_t[e] = row[perm[e]];
        sort_rows(offset_t, n, order_t);
    }
    attn_tape_give(tape, "sorted");
    attn_tape_give(tape, "row_coo");
}

/* Made from a dense matrix of bool, which its caller holds. */
void attn_storage_make_xformers(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    const struct attn_problem *p = mask->problem;
    int64_t nnz = mask->pattern.nnz, m = p->n_query, n = p->n_key, at = 0;
    char *dense = attn_tape_take(tape, "dense", "the pattern, bool [Lq, Lk]", m * n, 1);
    int32_t *offset = attn_tape_take(tape, "row_offsets", "mask.sum(-1).cumsum(-1)", m + 1, 4);
    int32_t *order = attn_tape_take(tape, "row_indices", "_diffsort(row_offsets)", m, 4);
    int64_t *found = attn_tape_take(tape, "nonzero", "torch.where(mask)", 2 * nnz, 8);
    int32_t *column =
        attn_tape_take(tape, "column_indices", "torch.where(mask)[1].to(torch.int32)", nnz, 4);
    char *values = attn_tape_take(tape, "values", "mask[mask]", nnz, 1);
    if (values != NULL)
        memset(offset, 0, (size_t)(m + 1) * sizeof *offset);
    for (int64_t e = 0; values != NULL && e < m * n; e++) {
        dense[e] = (char)pattern_sees(mask, 0, e / n, e % n);
        if (dense[e]) {
            found[at] = e / n, found[nnz + at] = e % n;
            column[at] = (int32_t)(e % n);
            values[at++] = 1;
        }
        offset[e / n + 1] = (int32_t)at;
    }
    if (values != NULL)
        sort_rows(offset, m, order);
    attn_tape_give(tape, "nonzero");
    make_transpose(tape, mask);
    attn_tape_give(tape, "dense");
}

/* Both lists must have it, and the permutation lead from one to the other. */
int attn_storage_allows_xformers(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                                 struct attn_pair_place at)
{
    const int32_t *offset = attn_tape_data(tape, "row_offsets");
    const int32_t *offset_t = attn_tape_data(tape, "row_offsets_t");
    const int32_t *column = attn_tape_data(tape, "column_indices");
    const int32_t *row = attn_tape_data(tape, "column_indices_t");
    const int64_t *perm = attn_tape_data(tape, "perm");
    int64_t e = offset[at.i], t = offset_t[at.j];
    (void)mask;
    while (e < offset[at.i + 1] && column[e] != at.j)
        e++;
    while (t < offset_t[at.j + 1] && row[t] != at.i)
        t++;
    int there = e < offset[at.i + 1], back = t < offset_t[at.j + 1];
    if (there != back || (there && perm[t] != e))
        return -1;
    return there;
}

/* ---- blocks: torch.nn.attention.flex_attention.BlockMask ------------------------------------- */

enum { BLOCK = 128 };

/* Lists of the blocks that are full, or that are partial: n rows of space for `most`. */
static void list_blocks(const int64_t *sums, int64_t n, int64_t most, int64_t step, int64_t next,
                        int full, int32_t *count, int32_t *index)
{
    for (int64_t r = 0; r < n; r++) {
        int64_t others = most; /* stand behind the listed ones, and are not read */
        count[r] = 0;
        for (int64_t c = 0; c < most; c++) {
            int64_t sum = sums[r * step + c * next];
            if (full ? sum == BLOCK * BLOCK : sum > 0 && sum < BLOCK * BLOCK)
                index[r * most + count[r]++] = (int32_t)c;
            else
                index[r * most + --others] = (int32_t)c;
        }
    }
}

/* How many blocks, and which, of rows and of columns of blocks, partial and full. */
static const char *const lists[2][4] = {
    {"kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"},
    {"q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices"}};

static void take_lists(struct attn_tape *tape, const struct attn_stored_mask *mask, int columns)
{
    int64_t rows = ceil_div(mask->problem->n_query, BLOCK),
            cols = ceil_div(mask->problem->n_key, BLOCK);
    int64_t n = columns ? cols : rows, most = columns ? rows : cols, z = mask->pattern.patterns;
    const int64_t *sums = attn_tape_data(tape, "sums");
    for (int full = 0; full < 2; full++) {
        const char *const *name = &lists[columns][2 * full];
        int32_t *count = attn_tape_take(tape, name[0], "_dense_to_ordered", z * n, 4);
        int32_t *index =
            attn_tape_take(tape, name[1], "the same, dense in blocks", z * n * most, 4);
        for (int64_t p = 0; index != NULL && p < z; p++)
            list_blocks(sums + p * rows * cols, n, most, columns ? 1 : cols, columns ? cols : 1,
                        full, count + p * n, index + p * n * most);
    }
}

void attn_storage_make_flex(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    const struct attn_problem *p = mask->problem;
    int64_t rows = ceil_div(p->n_query, BLOCK), cols = ceil_div(p->n_key, BLOCK),
            z = mask->pattern.patterns;
    int64_t keys = cols * BLOCK, plane = rows * BLOCK * keys, blocks = z * rows * cols;
    char *dense =
        attn_tape_take(tape, "dense", "create_mask(mask_mod): bool, whole blocks", z * plane, 1);
    int64_t *sums = attn_tape_take(tape, "sums", "mask.sum(dim=[-2, -1])", blocks, 8);
    if (sums != NULL)
        memset(sums, 0, (size_t)blocks * sizeof *sums);
    for (int64_t n = 0; sums != NULL && n < z * plane; n++) {
        int64_t i = n % plane / keys, j = n % keys;
        dense[n] = i < p->n_query && j < p->n_key && pattern_sees(mask, n / plane, i, j);
        sums[(n / plane * rows + i / BLOCK) * cols + j / BLOCK] += dense[n];
    }
    attn_tape_give(tape, "dense");
    for (int columns = 0; columns < 2; columns++)
        take_lists(tape, mask, columns);
    attn_tape_give(tape, "sums");
}

/* A partial block asks mask_mod.  Where rows and columns disagree there is no answer. */
int attn_storage_allows_flex(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                             struct attn_pair_place at)
{
    int64_t n[2] = {ceil_div(mask->problem->n_query, BLOCK), ceil_div(mask->problem->n_key, BLOCK)};
    int64_t of[2] = {at.i / BLOCK, at.j / BLOCK};
    int state[2] = {0, 0}; /* 1: partial, 2: full */
    for (int columns = 0; columns < 2; columns++)
        for (int full = 0; full < 2; full++) {
            const int32_t *count = attn_tape_data(tape, lists[columns][2 * full]);
            const int32_t *index = attn_tape_data(tape, lists[columns][2 * full + 1]);
            int64_t row = pattern_of(mask, at) * n[columns] + of[columns];
            for (int32_t e = 0; e < count[row]; e++)
                if (index[row * n[!columns] + e] == of[!columns])
                    state[columns] |= 1 << full;
        }
    if (state[0] != state[1] || state[0] == 3)
        return -1;
    return state[0] == 1 ? pattern_sees(mask, pattern_of(mask, at), at.i, at.j) : state[0] == 2;
}
