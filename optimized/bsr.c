/* bsr: block-sparse attention, from a list of the blocks of size queries by size keys in which the
 * mask leaves anything.
 *
 * Blocks    A block is FULL (every pair is visible), PARTIAL (some may be) or not listed.  The mask
 *           is asked once for each stretch of blocks that fare alike (attn_problem_tile), and then
 *           no more, but for the pairs of PARTIAL blocks.  It is never asked for the pairs of all
 *           blocks, and nothing of size L x L exists.
 * Passes    the tiles of `tiled` (tiled.h), which take what they see from the list: forward from
 *           the blocks of a row, backward from those of a row and of a column.  A result has the
 *           same bits as that of `tiled`.
 *
 * Memory    8 bytes a row of blocks and 4 bytes a block: "bsr.row_start", "bsr.column"; backward
 *           the same again for columns: "bsr.column_start", "bsr.row"; and what `tiled` takes.
 * Time      O(blocks listed + rows of blocks * log of columns) questions to the mask, a call.
 * Source    torch.nn.attention.flex_attention, BlockMask (PyTorch 2.5): blocks of 128 by 128, full
 *           ones apart from partial ones, and the transposed lists for the backward pass.
 * Caveats   BlockMask is made once for many calls; here each call makes its list and gives it back.
 *           A composition of masks may list a block in which nothing is visible, or call a block
 *           PARTIAL that is FULL: both cost time, neither changes a bit.
 */
#include <string.h>

#include "optimized/integers.h"
#include "optimized/simd/isa.h"
#include "optimized/tiled.h"
#include "ref/buffers.h"
#include "ref/impl.h"
#include "ref/mask/pattern.h"
#include "ref/problem.h"

enum { OPTION_SIZE };
static const struct attn_option options[] = {
    {"size", 128, 1, 1 << 20, NULL, "queries and keys in a block"}, {0}};

/* A block in a list: twice its number, and 1 more if it is FULL. */
enum { FULL = 1 };

/* Lists of blocks, one for each row of blocks and pattern, and one for each column. */
struct blocks {
    const struct attn_problem *p;
    int64_t size;
    struct attn_csr row, column; /* csr whose queries are rows, or columns, of blocks */
};

static struct blocks blocks_of(const struct attn_problem *p, const struct attn_options *opt)
{
    struct blocks x = {.p = p, .size = opt->value[OPTION_SIZE], .row = attn_csr_patterns(p)};
    x.column = x.row;
    x.row.n_query = ceil_div(p->n_query, x.size);
    x.column.n_query = ceil_div(p->n_key, x.size);
    return x;
}

/* ---- the list of a row ---------------------------------------------------------------------- */

struct row {
    const struct blocks *blocks;
    int64_t b, h, i0, i1;
    int32_t *list; /* NULL: they are counted only */
    int64_t n;
};

static struct row row_of(const struct blocks *x, int64_t pattern, int64_t number, int32_t *list)
{
    int64_t i0 = number * x->size;
    return (struct row){.blocks = x,
                        .b = attn_csr_batch(&x->row, pattern),
                        .h = attn_csr_head(&x->row, pattern),
                        .i0 = i0,
                        .i1 = less(i0 + x->size, x->p->n_query),
                        .list = list};
}

static void append(struct row *row, int64_t first, int64_t end, int full)
{
    for (int64_t n = first; row->list != NULL && n < end; n++)
        row->list[row->n + n - first] = (int32_t)(2 * n + full);
    row->n += end - first;
}

/* The blocks of columns [first,end): a stretch that is cut through is halved. */
static void find(struct row *row, int64_t first, int64_t end)
{
    const struct blocks *x = row->blocks;
    int64_t middle = first + (end - first) / 2;
    switch (attn_problem_tile(x->p, (struct attn_tile_at){row->b, row->h, row->i0, row->i1,
                                                          first * x->size,
                                                          less(end * x->size, x->p->n_key)})) {
    case ATTN_TILE_EMPTY:
        return;
    case ATTN_TILE_FULL:
        append(row, first, end, FULL);
        return;
    case ATTN_TILE_PARTIAL:
        break;
    }
    if (end - first == 1) {
        append(row, first, end, 0);
        return;
    }
    find(row, first, middle);
    find(row, middle, end);
}

/* ---- memory --------------------------------------------------------------------------------- */

enum { ROW_START, COLUMN, COLUMN_START, ROW, BUFFERS };

/* Where lists begin, and where the last one ends; -1 when that exceeds int64. */
static int64_t starts(int64_t patterns, int64_t lists)
{
    int64_t n = attn_product(patterns, lists);
    return n < 0 || n == INT64_MAX ? -1 : n + 1;
}

/* blocks->row.nnz is known; only the backward pass has lists of columns. */
static void lay_out(const struct blocks *x, int backward, struct attn_buffer buffer[BUFFERS])
{
    int64_t rows = starts(x->row.patterns, x->row.n_query);
    int64_t columns = starts(x->row.patterns, x->column.n_query), back = backward ? 1 : 0;
    const struct attn_buffer list[BUFFERS] = {
        [ROW_START] = attn_buffer_of("bsr.row_start", 1, rows, sizeof(int64_t)),
        [COLUMN] = attn_buffer_of("bsr.column", 1, x->row.nnz, sizeof(int32_t)),
        [COLUMN_START] = attn_buffer_of("bsr.column_start", back, columns, sizeof(int64_t)),
        [ROW] = attn_buffer_of("bsr.row", back, x->row.nnz, sizeof(int32_t))};
    memcpy(buffer, list, sizeof list);
}

/* How many blocks are listed; row_start, if given, is filled in. */
static int64_t count(const struct blocks *x, int64_t *row_start)
{
    int64_t n = 0, rows = x->row.n_query;
    if (row_start != NULL)
        row_start[0] = 0;
    for (int64_t r = 0; r < x->row.patterns * rows; r++) {
        struct row row = row_of(x, r / rows, r % rows, NULL);
        find(&row, 0, x->column.n_query);
        n += row.n;
        if (row_start != NULL)
            row_start[r + 1] = n;
    }
    return n;
}

static void fill(struct blocks *x)
{
    int64_t rows = x->row.n_query;
    for (int64_t r = 0; r < x->row.patterns * rows; r++) {
        struct row row = row_of(x, r / rows, r % rows, x->row.column + x->row.row_start[r]);
        find(&row, 0, x->column.n_query);
    }
}

/* The same blocks by columns: counted, added up, filled in the order of rows. */
static void transpose(struct blocks *x)
{
    int64_t rows = x->row.n_query, columns = x->column.n_query, all = x->row.patterns * columns;
    int64_t *start = x->column.row_start;
    memset(start, 0, (size_t)(all + 1) * sizeof *start);
    for (int64_t r = 0; r < x->row.patterns * rows; r++)
        for (int64_t e = x->row.row_start[r]; e < x->row.row_start[r + 1]; e++)
            start[r / rows * columns + x->row.column[e] / 2 + 1]++;
    for (int64_t c = 0; c < all; c++)
        start[c + 1] += start[c];
    for (int64_t r = 0; r < x->row.patterns * rows; r++)
        for (int64_t e = x->row.row_start[r]; e < x->row.row_start[r + 1]; e++) {
            int32_t block = x->row.column[e];
            int64_t *at = &start[r / rows * columns + block / 2];
            x->column.column[(*at)++] = (int32_t)(2 * (r % rows) + block % 2);
        }
    memmove(start + 1, start, (size_t)all * sizeof *start); /* each has become the next one's */
    start[0] = 0;
}

/* On a failure what was taken is in the buffers, to be given back. */
static enum attn_status build(struct blocks *x, int backward, struct attn_buffer buffer[BUFFERS],
                              struct attn_ctx *ctx)
{
    lay_out(x, backward, buffer);
    enum attn_status status = attn_buffers_take(&buffer[ROW_START], 1, ctx->ledger, ctx->error);
    if (status != ATTN_OK)
        return status;
    x->row.row_start = (void *)buffer[ROW_START].data;
    x->row.nnz = count(x, x->row.row_start);
    struct attn_buffer taken = buffer[ROW_START];
    lay_out(x, backward, buffer);
    buffer[ROW_START] = taken;
    status = attn_buffers_take(&buffer[COLUMN], BUFFERS - COLUMN, ctx->ledger, ctx->error);
    if (status != ATTN_OK)
        return status;
    x->row.column = (void *)buffer[COLUMN].data;
    x->column.row_start = (void *)buffer[COLUMN_START].data;
    x->column.column = (void *)buffer[ROW].data;
    fill(x);
    if (backward)
        transpose(x);
    return ATTN_OK;
}

/* ---- what queries see ------------------------------------------------------------------------ */

/* The first of n blocks in a list whose number is at least `least`; n when there is none. */
static int64_t first_at(const int32_t *list, int64_t n, int64_t least)
{
    int64_t lo = 0, hi = n;
    while (lo < hi) {
        int64_t middle = lo + (hi - lo) / 2;
        if (list[middle] / 2 < least)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* A run is a stretch of FULL blocks, or lies in one PARTIAL block. */
static int next_run(const void *arg, int64_t b, int64_t h, int64_t i, struct attn_run *run)
{
    const struct blocks *x = arg;
    const int32_t *list;
    int64_t n = attn_csr_row(&x->row, b, h, i / x->size, &list), n_key = x->p->n_key;
    for (;;) {
        int64_t e = first_at(list, n, run->hi / x->size), last = e;
        if (e == n)
            return 0;
        int64_t j0 = greater(list[e] / 2 * x->size, run->hi);
        if (list[e] % 2 == FULL) {
            while (last + 1 < n && list[last + 1] == list[last] + 2)
                last++;
            *run = (struct attn_run){j0, less((list[last] / 2 + 1) * x->size, n_key)};
            return last + 1 == n ? 2 : 1;
        }
        int64_t j1 = less((list[e] / 2 + 1) * x->size, n_key);
        run->hi = j0;
        if (!attn_problem_next(x->p, b, h, i, run))
            return 0;
        if (run->lo < j1) {
            run->hi = less(run->hi, j1);
            return 1;
        }
        run->hi = run->lo; /* hidden until there, whatever is listed in between */
    }
}

static enum attn_tile tile_of(const void *arg, struct attn_tile_at at)
{
    const struct blocks *x = arg;
    if (at.i0 >= at.i1 || at.j0 >= at.j1)
        return ATTN_TILE_EMPTY;
    int64_t first = at.i0 / x->size, last = (at.i1 - 1) / x->size;
    int any = 0, all = 1;
    for (int64_t c = at.j0 / x->size; c <= (at.j1 - 1) / x->size; c++) {
        const int32_t *list;
        int64_t n = attn_csr_row(&x->column, at.b, at.h, c, &list);
        int64_t e = first_at(list, n, first), met = 0;
        for (; all && e < n && list[e] / 2 <= last; e++, met++) {
            any = 1;
            all = list[e] % 2 == FULL;
        }
        all = all && met == last - first + 1;
        any = any || (e < n && list[e] / 2 <= last);
        if (any && !all)
            return ATTN_TILE_PARTIAL;
    }
    return any ? ATTN_TILE_FULL : ATTN_TILE_EMPTY;
}

static struct attn_runs runs_of(const struct blocks *x)
{
    return (struct attn_runs){next_run, tile_of, x};
}

/* ---- the passes ------------------------------------------------------------------------------ */

/* `tiled` at its presets, on the same threads and instruction set. */
static struct attn_options tiled_options(const struct attn_options *opt)
{
    struct attn_options x;
    attn_options_preset(&attn_impl_tiled, &x);
    x.threads = opt->threads;
    x.isa = opt->isa;
    x.priced_only = opt->priced_only;
    return x;
}

/* A call: its lists, and what `tiled` gets. */
struct call {
    struct blocks blocks;
    struct attn_buffer buffer[BUFFERS];
    struct attn_options options;
    struct attn_ctx tiles;
};

static enum attn_status begin(struct call *x, struct attn_ctx *ctx, const struct attn_problem *p,
                              int backward)
{
    x->blocks = blocks_of(p, ctx->options);
    x->options = tiled_options(ctx->options);
    x->tiles = *ctx;
    x->tiles.options = &x->options;
    return build(&x->blocks, backward, x->buffer, ctx);
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    struct call x;
    enum attn_status status = begin(&x, ctx, p, 0);
    if (status == ATTN_OK)
        status = attn_tiled_forward(&x.tiles, p, runs_of(&x.blocks), t);
    attn_buffers_give(x.buffer, BUFFERS, ctx->ledger);
    return status;
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    struct call x;
    enum attn_status status = begin(&x, ctx, p, 1);
    if (status == ATTN_OK)
        status = attn_tiled_backward(&x.tiles, p, runs_of(&x.blocks), t);
    attn_buffers_give(x.buffer, BUFFERS, ctx->ledger);
    return status;
}

/* ---- the record ------------------------------------------------------------------------------ */

/* A list keeps twice a number in 32 bits. */
static enum attn_status accepts(const struct attn_problem *p, const struct attn_options *opt,
                                struct attn_error *err)
{
    int64_t most = (INT32_MAX / 2) * opt->value[OPTION_SIZE];
    if (p->n_key <= most && p->n_query <= most)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP,
                     "bsr numbers its blocks with 31 bits: %lld queries by %lld keys in blocks of "
                     "%lld are too many, up to %lld of either, or a larger size would work",
                     (long long)p->n_query, (long long)p->n_key, (long long)opt->value[OPTION_SIZE],
                     (long long)most);
}

static enum attn_status cost(const struct attn_problem *p, const struct attn_options *opt,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)rank;
    struct blocks x = blocks_of(p, opt);
    const struct attn_options tiles = tiled_options(opt);
    struct attn_buffer buffer[BUFFERS];
    x.row.nnz = count(&x, NULL);
    lay_out(&x, pass == ATTN_BACKWARD, buffer);
    enum attn_status status = attn_buffers_price(buffer, BUFFERS, cost, err);
    return status != ATTN_OK ? status : attn_impl_tiled.cost(p, &tiles, pass, 0, cost, err);
}

static int64_t rescales(const struct attn_problem *p, const struct attn_options *opt)
{
    const struct attn_options tiles = tiled_options(opt);
    return attn_impl_tiled.rescales(p, &tiles);
}

static int64_t merges(const struct attn_problem *p, const struct attn_options *opt)
{
    const struct attn_options tiles = tiled_options(opt);
    return attn_impl_tiled.merges(p, &tiles);
}

const struct attn_impl attn_impl_bsr = {
    .name = "bsr",
    .summary = "a list of full and partial blocks, on the tiles of `tiled`",
    .family = "block-sparse",
    .caps = ATTN_CAPS_ALL,
    .options = options,
    .rescales = rescales,
    .merges = merges,
    .accepts = accepts,
    .cost = cost,
    .forward = forward,
    .backward = backward,
    .precision = attn_kernels_precision,
    .simd = 1,
};
