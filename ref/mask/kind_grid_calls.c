/* The calls that speak of grids, and the axes that they stand for.
 *
 * Of a grid of T frames of H by W tokens, in this order; dt, dh, dw are the distances from i to j
 * in each direction, -1 = unbounded:
 *
 *      spatial(T,H,W)            dt = 0
 *      temporal(T,H,W)           dh = dw = 0
 *      local3d(T,H,W,rt,rh,rw)   dt <= rt and dh <= rh and dw <= rw
 *      local2d(H,W,rh,rw)        dh <= rh and dw <= rw
 *      local2d(H,W,d,l1)         dh + dw < d;  with l2: dh^2 + dw^2 < d^2
 *      axial2d(H,W)              dh = 0 or dw = 0
 *      dilated(H,W,k)            k divides dh and dw
 *      skiparse(single,k)        i = j modulo k
 *      skiparse(group,k)         floor(i / k) = floor(j / k) modulo k
 *
 * A grid holds the tokens of the sequence, neither more nor fewer: sizes that do not multiply to
 * Lq = Lk are refused with those that would. */
#include "ref/mask/grid.h"

#include <stdio.h>

/* ---- axes --------------------------------------------------------------------------------- */

/* Within a reach; -1: no limit. */
static struct mask_axis within(int64_t extent, int64_t stride, int64_t reach)
{
    int64_t most = reach < 0 ? MASK_FAR : reach;
    return (struct mask_axis){extent, stride, -most, most, 1};
}

static struct mask_axis every(int64_t extent, int64_t stride)
{
    return within(extent, stride, -1);
}

static struct mask_axis same(int64_t extent, int64_t stride)
{
    return within(extent, stride, 0);
}

static struct mask_grid two(struct mask_axis outer, struct mask_axis inner)
{
    return (struct mask_grid){.axis = {outer, inner}, .n_axes = 2};
}

static struct mask_grid three(struct mask_axis outer, struct mask_axis middle,
                              struct mask_axis inner)
{
    return (struct mask_grid){.axis = {outer, middle, inner}, .n_axes = 3};
}

/* ---- arguments ---------------------------------------------------------------------------- */

static const struct mask_least extent_of_grid = {1, "extents of a grid start at 1"},
                               modulus = {1, "k starts at 1, which hides nothing"},
                               reach = {-1, "a reach is 0 or more, or -1 for no limit"};

/* Sizes that fit: another first extent where there is one, else the lengths around L. */
static void grid_does_not_fit(struct mask_parser *p, const char *at, int n, const int64_t *extent)
{
    char sizes[80] = "", remedy[120] = "the sizes must multiply to the length";
    int used = 0;
    int64_t inner = 1, length = p->mask->shape.n_key;
    for (int a = 0; a < n; a++) {
        used += snprintf(sizes + used, sizeof sizes - (size_t)used, "%s%lld", a > 0 ? "*" : "",
                         (long long)extent[a]);
        if (a > 0)
            inner = inner > MASK_NUMBER_MAX / extent[a] ? MASK_NUMBER_MAX : inner * extent[a];
    }
    int64_t below = length / inner * inner;
    if (length % inner == 0 && length > 0)
        snprintf(remedy, sizeof remedy, "%lld for the first would work",
                 (long long)(length / inner));
    else if (below > 0)
        snprintf(remedy, sizeof remedy,
                 "%lld (%lld for the first) or %lld (%lld) tokens would work", (long long)below,
                 (long long)(below / inner), (long long)(below + inner),
                 (long long)(below / inner + 1));
    attn_mask_fail_at(p, at, "a grid of %s is not the %lld tokens that there are: %s", sizes,
                      (long long)length, remedy);
}

/* n extents, of which the product is Lq = Lk. */
static void read_grid(struct mask_parser *p, int n, int64_t *extent)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    const char *begin = p->at;
    int64_t product = 1;
    p->counts_tokens = 1;
    for (int a = 0; a < n; a++) {
        extent[a] = attn_mask_number(p, &extent_of_grid);
        product = product > MASK_NUMBER_MAX / extent[a] ? INT64_MAX : product * extent[a];
    }
    if (s->n_query != s->n_key)
        attn_mask_fail_at(p, begin,
                          "queries and keys are the tokens of one grid, so Lq = Lk would "
                          "work; here %lld and %lld",
                          (long long)s->n_query, (long long)s->n_key);
    if (product != s->n_key)
        grid_does_not_fit(p, begin, n, extent);
    for (int a = 0; a < n && p->status != ATTN_OK; a++)
        extent[a] = 1; /* their products are safe */
}

/* ---- calls -------------------------------------------------------------------------------- */

static void read_spatial(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[3];
    read_grid(p, 3, n);
    struct mask_grid grid = two(same(n[0], n[1] * n[2]), every(n[1] * n[2], 1));
    attn_mask_set_grid(p, node, &grid);
}

const struct mask_kind attn_mask_kind_spatial = {
    MASK_CALL("spatial", read_spatial, "a grid: spatial(16,30,40)",
              "spatial(T,H,W)           tokens (t,h,w) in that order: same frame t")};

static void read_temporal(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[3];
    read_grid(p, 3, n);
    struct mask_grid grid = two(every(n[0], n[1] * n[2]), same(n[1] * n[2], 1));
    attn_mask_set_grid(p, node, &grid);
}

const struct mask_kind attn_mask_kind_temporal = {
    MASK_CALL("temporal", read_temporal, "a grid: temporal(16,30,40)",
              "temporal(T,H,W)          same place (h,w) in any frame")};

/* Open-Sora-Plan v1.3 writes token i = n k^2 + m k + r: the single mode compares r, the group mode
 * m.  It pads to a multiple of k^2 and cuts the padding off again, so any length has a meaning.
 * An axis that would hold all tokens in one step is left out, and k need not exceed the length. */
static void read_skiparse(struct mask_parser *p, struct mask_node *node)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    int64_t length = mask_max(mask_max(s->n_query, s->n_key), 1);
    struct mask_slice mode = attn_mask_argument(p);
    int is_group = attn_mask_slice_is(mode, "group");
    if (!is_group && !attn_mask_slice_is(mode, "single"))
        attn_mask_fail_at(p, mode.text,
                          "'%.*s' is neither single nor group: skiparse(single|group,k)",
                          MASK_SLICE(mode));
    int64_t k = mask_min(attn_mask_number(p, &modulus), length), blocks = (length - 1) / k + 1;
    struct mask_grid grid;
    if (!is_group)
        grid = two(every(blocks, k), same(k, 1));
    else if (k < blocks)
        grid = three(every((blocks - 1) / k + 1, k * k), same(k, k), every(k, 1));
    else
        grid = two(same(blocks, k), every(k, 1));
    attn_mask_set_grid(p, node, &grid);
}

const struct mask_kind attn_mask_kind_skiparse = {MASK_CALL(
    "skiparse", read_skiparse, "a mode and a number: skiparse(single,4) or skiparse(group,4)",
    "skiparse(single|group,k) i = j (mod k); group: i/k = j/k (mod k)")};

static void read_dilated(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[2];
    read_grid(p, 2, n);
    struct mask_grid grid = two(every(n[0], n[1]), every(n[1], 1));
    grid.axis[0].step = grid.axis[1].step = attn_mask_number(p, &modulus);
    attn_mask_set_grid(p, node, &grid);
}

const struct mask_kind attn_mask_kind_dilated = {
    MASK_CALL("dilated", read_dilated, "a grid and a number: dilated(30,40,2)",
              "dilated(H,W,k)           tokens (h,w): k divides both distances")};

/* The row of a token, or its column. */
static void read_axial2d(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[2];
    read_grid(p, 2, n);
    p->parts = 2;
    struct mask_grid row = two(same(n[0], n[1]), every(n[1], 1));
    struct mask_grid column = two(every(n[0], n[1]), same(n[1], 1));
    attn_mask_set_grid(p, &node[0], &row);
    attn_mask_set_grid(p, &node[1], &column);
}

const struct mask_kind attn_mask_kind_axial2d = {
    MASK_CALL("axial2d", read_axial2d, "a grid: axial2d(30,40)",
              "axial2d(H,W)             same row h or same column w")};

/* d and its norm, when the last argument is a word. */
static void set_distance(struct mask_parser *p, struct mask_grid *grid, int64_t d,
                         struct mask_slice word)
{
    grid->norm = attn_mask_slice_is(word, "l1") ? 1 : 2;
    if (grid->norm == 2 && !attn_mask_slice_is(word, "l2"))
        attn_mask_fail_at(p, word.text, "'%.*s' is neither a reach nor l1 nor l2",
                          MASK_SLICE(word));
    if (d < 1 || d > (int64_t)1 << 30)
        attn_mask_fail_at(p, word.text, "tokens nearer than %lld: 1 to 2^30 would work",
                          (long long)d);
    grid->radius = d;
    grid->axis[0].least = 1 - d;
    grid->axis[0].most = d - 1;
}

static void read_local2d(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[2];
    read_grid(p, 2, n);
    int64_t rows = attn_mask_number(p, &reach);
    struct mask_slice last = attn_mask_argument(p);
    int is_word = attn_mask_is_letter(*last.text);
    int64_t columns = is_word ? 0 : attn_mask_number_of(p, last, &reach);
    struct mask_grid grid = two(within(n[0], n[1], rows), within(n[1], 1, columns));
    if (is_word)
        set_distance(p, &grid, rows, last);
    attn_mask_set_grid(p, node, &grid);
}

const struct mask_kind attn_mask_kind_local2d = {MASK_CALL(
    "local2d", read_local2d, "a grid and what is near: local2d(30,40,2,2) or local2d(30,40,3,l2)",
    "local2d(H,W,rh,rw)       |h| <= rh and |w| <= rw apart; (H,W,d,l1|l2): nearer than d")};

static void read_local3d(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[3], r[3];
    read_grid(p, 3, n);
    for (int a = 0; a < 3; a++)
        r[a] = attn_mask_number(p, &reach);
    struct mask_grid grid =
        three(within(n[0], n[1] * n[2], r[0]), within(n[1], n[2], r[1]), within(n[2], 1, r[2]));
    attn_mask_set_grid(p, node, &grid);
}

const struct mask_kind attn_mask_kind_local3d = {
    MASK_CALL("local3d", read_local3d, "a grid and its reaches: local3d(16,30,40,1,2,2)",
              "local3d(T,H,W,rt,rh,rw)  the same in three directions; -1 = unbounded")};
