/* See workspace.h.  P queries in a panel, d and dv features; wide is in whole vectors. */
#include "optimized/simd/workspace.h"

#include <string.h>

#include "optimized/integers.h"
#include "ref/problem.h"

/* ---- the matrix unit: extents in whole 16's, operands of 2 bytes ----------------------------- */

static int64_t whole_16(int64_t n)
{
    return ceil_div(n, 16) * 16;
}

static void matrix_forward_buffers(const struct attn_kernels *kernels, const struct attn_problem *p,
                                   int64_t threads, int64_t panels,
                                   struct attn_buffer ws[ATTN_WORKSPACES])
{
    int64_t P = kernels->panel, d = whole_16(p->d_key), dv = whole_16(p->d_value);
    int64_t keys = ATTN_KEY_BLOCK;
    const struct attn_buffer list[ATTN_WORKSPACES] = {
        [ATTN_WORK_Q] = attn_buffer_of("tile.q", threads, attn_product(panels * P, d), 2),
        [ATTN_WORK_O] = attn_buffer_of("tile.o", threads, attn_product(panels * P, dv), 4),
        [ATTN_WORK_S] = attn_buffer_of("tile.s", threads, keys * P, 4),
        [ATTN_WORK_ML] = attn_buffer_of("tile.ml", threads, 2 * panels * P, 4),
        [ATTN_WORK_KV] = attn_buffer_of("tile.kv", threads, attn_product(2 * keys, d + 2 * dv), 2),
        [ATTN_WORK_ROWS] =
            attn_buffer_of("tile.rows", threads, attn_product(P, greater(d, dv)), 2)};
    memcpy(ws, list, sizeof list);
}

static void matrix_backward_buffers(const struct attn_kernels *kernels,
                                    const struct attn_problem *p, int64_t threads, int64_t keys,
                                    struct attn_buffer ws[ATTN_BACK])
{
    int64_t P = kernels->panel, d = whole_16(p->d_key), dv = whole_16(p->d_value);
    int64_t n = whole_16(keys), wide = d + dv, kv = n * wide + ATTN_KEY_BLOCK * d;
    const struct attn_buffer of_threads[ATTN_BACK] = {
        [ATTN_BACK_S] = attn_buffer_of("tile.s", threads, n * P + n / 2 * P, 4),
        [ATTN_BACK_DP] = attn_buffer_of("tile.dp", threads, 2 * n * P, 4),
        [ATTN_BACK_SLOPE] = attn_buffer_of("tile.slope", threads, p->softcap > 0 ? n * P : 0, 4),
        [ATTN_BACK_KV] = attn_buffer_of("tile.kv", threads, 2 * kv, 2),
        [ATTN_BACK_DKV] = attn_buffer_of("tile.dkv", threads, attn_product(n, wide), 4),
        [ATTN_BACK_ROWS] = attn_buffer_of("tile.rows", threads, attn_product(P + 16, wide), 4)};
    memcpy(ws, of_threads, sizeof of_threads);
}

/* ---- vectors --------------------------------------------------------------------------------- */

void attn_forward_buffers(const struct attn_kernels *kernels, const struct attn_problem *p,
                          int64_t threads, int64_t panels, struct attn_buffer ws[ATTN_WORKSPACES])
{
    if (kernels->is_matrix) {
        matrix_forward_buffers(kernels, p, threads, panels, ws);
        return;
    }
    int64_t P = kernels->panel, e = kernels->bytes, d = p->d_key, dv = p->d_value;
    int64_t wide = attn_whole_vectors(kernels, greater(d, dv));
    const struct attn_buffer list[ATTN_WORKSPACES] = {
        [ATTN_WORK_Q] = attn_buffer_of("tile.q", threads, attn_product(panels * P, d), e),
        [ATTN_WORK_O] = attn_buffer_of("tile.o", threads, attn_product(panels * P, dv), e),
        [ATTN_WORK_S] = attn_buffer_of("tile.s", threads, (ATTN_KEY_BLOCK + 8) * P, e),
        [ATTN_WORK_ML] = attn_buffer_of("tile.ml", threads, 2 * panels * P, e),
        [ATTN_WORK_KV] =
            attn_buffer_of("tile.kv", threads, attn_product(ATTN_KEY_BLOCK, d + dv), e),
        [ATTN_WORK_ROWS] =
            attn_buffer_of("tile.rows", threads, attn_product(kernels->lanes, wide), e)};
    memcpy(ws, list, sizeof list);
}

void attn_backward_buffers(const struct attn_kernels *kernels, const struct attn_problem *p,
                           int64_t panels, int64_t threads, int64_t keys,
                           struct attn_buffer state[ATTN_STATES], struct attn_buffer ws[ATTN_BACK])
{
    int64_t P = kernels->panel, e = kernels->bytes;
    int64_t d = kernels->is_matrix ? whole_16(p->d_key) : p->d_key;
    int64_t dv = kernels->is_matrix ? whole_16(p->d_value) : p->d_value;
    int64_t wide = attn_whole_vectors(kernels, d) + attn_whole_vectors(kernels, dv);
    const struct attn_buffer of_panels[ATTN_STATES] = {
        [ATTN_STATE_Q] = attn_buffer_of("q.packed", panels, attn_product(P, d), e),
        [ATTN_STATE_DO] = attn_buffer_of("do.packed", panels, attn_product(P, dv), e),
        [ATTN_STATE_DQ] = attn_buffer_of("dq", panels, attn_product(P, d), e),
        [ATTN_STATE_LSE] = attn_buffer_of("lse", panels, P, e),
        [ATTN_STATE_DELTA] = attn_buffer_of("delta", panels, P, e)};
    memcpy(state, of_panels, sizeof of_panels);
    if (kernels->is_matrix) {
        matrix_backward_buffers(kernels, p, threads, keys, ws);
        return;
    }
    const struct attn_buffer of_threads[ATTN_BACK] = {
        [ATTN_BACK_S] = attn_buffer_of("tile.s", threads, (keys + 8) * P, e),
        [ATTN_BACK_DP] = attn_buffer_of("tile.dp", threads, (keys + 8) * P, e),
        [ATTN_BACK_SLOPE] =
            attn_buffer_of("tile.slope", threads, p->softcap > 0 ? (keys + 8) * P : 0, e),
        [ATTN_BACK_KV] = attn_buffer_of("tile.kv", threads, attn_product(keys, d + dv), e),
        [ATTN_BACK_DKV] = attn_buffer_of("tile.dkv", threads, attn_product(keys + 1, wide), e),
        [ATTN_BACK_ROWS] = attn_buffer_of("tile.rows", threads, attn_product(P + 1, wide), e)};
    memcpy(ws, of_threads, sizeof of_threads);
}

void attn_split_buffers(const struct attn_kernels *kernels, const struct attn_problem *p,
                        int64_t threads, int64_t rows, struct attn_buffer ws[ATTN_SPLIT_WORKSPACES])
{
    int64_t e = kernels->bytes, wide = attn_whole_vectors(kernels, p->d_key);
    int64_t wide_v = attn_whole_vectors(kernels, p->d_value);
    const struct attn_buffer list[ATTN_SPLIT_WORKSPACES] = {
        [ATTN_SPLIT_Q] = attn_buffer_of("row.q", threads, attn_product(rows, wide), e),
        [ATTN_SPLIT_O] = attn_buffer_of("row.o", threads, attn_product(rows, wide_v), e),
        [ATTN_SPLIT_S] = attn_buffer_of("row.s", threads, rows * ATTN_SPLIT_KEYS, e),
        [ATTN_SPLIT_KV] =
            attn_buffer_of("row.kv", threads, attn_product(ATTN_SPLIT_KEYS, wide + wide_v), e)};
    memcpy(ws, list, sizeof list);
}

int64_t attn_row_numbers(const struct attn_kernels *kernels, const struct attn_problem *p,
                         int64_t rows)
{
    int64_t w = attn_whole_vectors(kernels, p->d_key), wv = attn_whole_vectors(kernels, p->d_value);
    int64_t steps = ATTN_ROW_STEPS * ATTN_ROW_STEP_BYTES / kernels->bytes;
    int64_t stage = greater(kernels->lanes, 8) * greater(w, wv);
    return whole_16(ATTN_ROW_BATCH + steps + whole_16(rows * w) + whole_16(rows * wv) +
                    3 * whole_16(rows) + stage);
}

int64_t attn_row_backward_numbers(const struct attn_kernels *kernels, const struct attn_problem *p,
                                  int64_t keys)
{
    int64_t w = attn_whole_vectors(kernels, p->d_key), wv = attn_whole_vectors(kernels, p->d_value);
    return whole_16(whole_16(attn_product(keys, 2 * (w + wv))) + 3 * (ATTN_BACK_STEP + 16) +
                    whole_16(w) + 2 * whole_16(wv));
}
