/* Rules on the coordinates of a grid: the kind of spatial, temporal, skiparse, dilated, local2d,
 * local3d, and of both parts of axial2d.
 *
 * Tokens of a video are numbered (t H + h) W + w.  Each coordinate is a digit of the token's
 * number, token / stride % extent, and a query sees a key when every digit of the key is one that
 * the query's digit sees.  So a row is a product of small sets, one an axis:
 *
 *      spatial(T,H,W)    t: the same          hw: every      one run of H W keys
 *      temporal(T,H,W)   t: every             hw: the same   T runs of one key
 *      local3d           t, h, w: near                       runs of one stretch of w
 *      skiparse(group,k) n: every, m: the same, r: every     runs of k keys, k^2 apart
 *
 * and pairs of a rectangle of rows and columns are counted digit by digit, like numbers below a
 * number: with corner(i, j) the pairs of rows below i and columns below j, i = x stride + i',
 *
 *      corner(i, j) =  |x' < x, y' < y|  corner'(stride, stride)
 *                    + |x' < x, y' = y|  corner'(stride, j')
 *                    + |x' = x, y' < y|  corner'(i', stride)
 *                    + |x' = x, y' = y|  corner'(i', j')            corner' on the axes behind
 *
 * where |...| counts pairs of digits that see each other, in closed form for each kind of axis. */
#include "ref/mask/grid.h"

/* ---- one axis ----------------------------------------------------------------------------- */

/* The largest w with w^2 <= n. */
static int64_t root(int64_t n)
{
    int64_t w = 0;
    for (int64_t bit = (int64_t)1 << 31; bit > 0; bit /= 2)
        if ((w + bit) * (w + bit) <= n)
            w += bit;
    return w;
}

/* Axis a for a pair that is `apart` on the axis before: with a norm, what the radius leaves. */
static struct mask_axis axis_at(const struct mask_grid *grid, int a, int64_t apart)
{
    struct mask_axis axis = grid->axis[a];
    int64_t r = grid->radius;
    if (r > 0 && a == 1) {
        axis.most = grid->norm == 1 ? r - 1 - (apart < 0 ? -apart : apart)
                                    : root(r * r - 1 - apart * apart);
        axis.least = -axis.most;
    }
    return axis;
}

static int axis_sees(const struct mask_axis *axis, int64_t x, int64_t y)
{
    return axis->least <= y - x && y - x <= axis->most && (y - x) % axis->step == 0;
}

/* The y that x sees: *lo, *lo + step, ... below *hi; x itself is one of them. */
static void axis_range(const struct mask_axis *axis, int64_t x, int64_t *lo, int64_t *hi)
{
    *lo = mask_max(x + axis->least, 0);
    *lo = x - (x - *lo) / axis->step * axis->step;
    *hi = mask_min(x + axis->most + 1, axis->extent);
}

/* Pairs x < a, y < b that see each other. */
static int64_t axis_pairs(const struct mask_axis *axis, int64_t a, int64_t b)
{
    int64_t k = axis->step;
    if (k > 1) { /* residues below a % k occur a / k + 1 times, the others a / k times */
        int64_t all_a = a / k, all_b = b / k, more_a = a % k, more_b = b % k;
        return k * all_a * all_b + all_a * more_b + all_b * more_a + mask_min(more_a, more_b);
    }
    return attn_mask_staircase(0, a, axis->most + 1, b) - attn_mask_staircase(0, a, axis->least, b);
}

static int axis_is_open(const struct mask_axis *axis)
{
    return axis->least <= -axis->extent && axis->most >= axis->extent && axis->step == 1;
}

/* Axes from a on let everything through. */
static int is_open(const struct mask_grid *grid, int a)
{
    for (; a < grid->n_axes; a++)
        if (!axis_is_open(&grid->axis[a]) || grid->radius > 0)
            return 0;
    return 1;
}

/* ---- the definition ----------------------------------------------------------------------- */

static int in_grid(const struct mask_view *v, int64_t i, int64_t j)
{
    const struct mask_grid *grid = v->node->own;
    int64_t apart = 0;
    for (int a = 0; a < grid->n_axes; a++) {
        struct mask_axis axis = axis_at(grid, a, apart);
        int64_t x = i / axis.stride % axis.extent, y = j / axis.stride % axis.extent;
        if (!axis_sees(&axis, x, y))
            return 0;
        apart = y - x;
    }
    return 1;
}

/* ---- runs --------------------------------------------------------------------------------- */

/* Of the axes from a on, with i and from counted within one step of the axis before. */
static int next_behind(const struct mask_grid *grid, int a, int64_t apart, int64_t i, int64_t from,
                       int64_t *lo, int64_t *hi)
{
    struct mask_axis axis = axis_at(grid, a, apart);
    int64_t x = i / axis.stride, at = from / axis.stride, y, end;
    axis_range(&axis, x, &y, &end);
    if (y < at)
        y += (at - y + axis.step - 1) / axis.step * axis.step;
    if (a + 1 >= MASK_AXES || is_open(grid, a + 1)) {
        *lo = mask_max(y * axis.stride, from);
        *hi = (axis.step == 1 ? end : y + 1) * axis.stride;
        return y < end;
    }
    for (; y < end; y += axis.step) { /* a second step finds what the first does not */
        int64_t begin = y == at ? from % axis.stride : 0;
        if (next_behind(grid, a + 1, y - x, i % axis.stride, begin, lo, hi)) {
            *lo += y * axis.stride;
            *hi += y * axis.stride;
            return 1;
        }
    }
    return 0;
}

static int next_in_grid(const struct mask_view *v, int64_t i, int64_t from, int64_t until,
                        int64_t *lo, int64_t *hi)
{
    int found = next_behind(v->node->own, 0, 0, i, from, lo, hi);
    *hi = mask_min(*hi, v->mask->shape.n_key);
    return found && *lo < until;
}

static int span_of_grid(const struct mask_view *v, int64_t i, int64_t *lo, int64_t *hi)
{
    const struct mask_grid *grid = v->node->own;
    int64_t base = 0, apart = 0;
    for (int a = 0; a < grid->n_axes; a++) {
        struct mask_axis axis = axis_at(grid, a, apart);
        int64_t x = i / axis.stride % axis.extent, first, end;
        axis_range(&axis, x, &first, &end);
        int is_single = end - first <= axis.step;
        if (is_open(grid, a + 1)) {
            *lo = base + first * axis.stride;
            *hi =
                mask_min(base + (is_single ? first + 1 : end) * axis.stride, v->mask->shape.n_key);
            return is_single || axis.step == 1;
        }
        if (!is_single)
            return 0;
        base += first * axis.stride;
        apart = first - x;
    }
    return 0;
}

/* ---- pairs -------------------------------------------------------------------------------- */

static int64_t corner(const struct mask_grid *grid, int a, int64_t i, int64_t j)
{
    if (a == grid->n_axes)
        return i * j;
    const struct mask_axis *axis = &grid->axis[a];
    int64_t stride = axis->stride, x = i / stride, y = j / stride;
    int64_t rest_i = i % stride, rest_j = j % stride;
    int64_t all = axis_pairs(axis, x, y), sum = 0;
    if (all > 0)
        sum += all * corner(grid, a + 1, stride, stride);
    if (x > 0 && rest_j > 0)
        sum += (axis_pairs(axis, x, y + 1) - all) * corner(grid, a + 1, stride, rest_j);
    if (rest_i > 0 && y > 0)
        sum += (axis_pairs(axis, x + 1, y) - all) * corner(grid, a + 1, rest_i, stride);
    if (rest_i > 0 && rest_j > 0 && axis_sees(axis, x, y))
        sum += corner(grid, a + 1, rest_i, rest_j);
    return sum;
}

static int64_t rectangle(const struct mask_grid *grid, int64_t i0, int64_t i1, int64_t j0,
                         int64_t j1)
{
    return (corner(grid, 0, i1, j1) - corner(grid, 0, i0, j1)) -
           (corner(grid, 0, i1, j0) - corner(grid, 0, i0, j0));
}

/* O(1); with a norm, O(radius). */
static int64_t pairs_of_grid(const struct mask_view *v, const struct attn_tokens *queries,
                             const struct attn_tokens *keys)
{
    const struct mask_grid *grid = v->node->own;
    int64_t i0 = queries->first, i1 = i0 + queries->n, j0 = keys->first, j1 = j0 + keys->n;
    if (queries->step != 1 || keys->step != 1)
        return -1;
    if (grid->radius == 0)
        return rectangle(grid, i0, i1, j0, j1);
    /* Each distance on the first axis leaves one reach on the second: a sum of products. */
    int64_t sum = 0, far = mask_min(grid->radius, grid->axis[0].extent) - 1;
    struct mask_grid one = *grid;
    one.radius = 0;
    for (int64_t apart = -far; apart <= far; apart++) {
        one.axis[0].least = one.axis[0].most = apart;
        one.axis[1] = axis_at(grid, 1, apart);
        sum += rectangle(&one, i0, i1, j0, j1);
    }
    return sum;
}

/* ---- what else is known ------------------------------------------------------------------- */

/* Stretches of adjacent tokens, each of which sees one stretch: the first axis decides alone. */
static int cell_of_grid(const struct mask_view *v, int64_t i, struct mask_cell *cell)
{
    const struct mask_grid *grid = v->node->own;
    struct mask_axis axis = axis_at(grid, 0, 0);
    if (axis.step != 1 || !is_open(grid, 1) || grid->radius > 0)
        return 0;
    int64_t stride = axis.stride, x = i / stride, lo, hi;
    axis_range(&axis, x, &lo, &hi);
    *cell = (struct mask_cell){x * stride, (x + 1) * stride, lo * stride, hi * stride};
    return 1;
}

const struct mask_kind attn_mask_kind_grid = {.allows = in_grid,
                                              .cell = cell_of_grid,
                                              .span = span_of_grid,
                                              .next = next_in_grid,
                                              .pairs = pairs_of_grid};

static int is_same(const struct mask_axis *axis)
{
    return axis->least == 0 && axis->most == 0;
}

void attn_mask_set_grid(struct mask_parser *p, struct mask_node *node, const struct mask_grid *grid)
{
    const struct mask_axis *axis = grid->axis;
    int is_one = grid->n_axes == 2 && axis_is_open(&axis[0]) && grid->radius == 0;
    node->kind = MASK_grid;
    node->modulus = is_one && is_same(&axis[1]) ? axis[1].extent : 0;
    attn_mask_keep(p, node, grid, sizeof *grid);
}

/* ---- frames and places -------------------------------------------------------------------- */

/* A grid that every visible pair obeys: the mask itself, if it is a grid of which `is` says yes, or
 * the first part of an & that is; NULL: there is none. */
static const struct mask_grid *find_grid(const struct attn_mask *mask,
                                         int (*is)(const struct attn_mask *mask,
                                                   const struct mask_grid *grid))
{
    if (mask == NULL)
        return NULL;
    const struct mask_node *root = &mask->node[mask->root];
    if (root->kind != MASK_all_of)
        return root->kind == MASK_grid && is(mask, root->own) ? root->own : NULL;
    for (int64_t c = root->child; c >= 0; c = mask->node[c].next)
        if (mask->node[c].kind == MASK_grid && is(mask, mask->node[c].own))
            return mask->node[c].own;
    return NULL;
}

/* The axis of which a query sees its own coordinate alone; -1: there is none. */
static int same_axis(const struct mask_grid *grid)
{
    for (int a = 0; a < grid->n_axes && grid->radius == 0; a++)
        if (is_same(&grid->axis[a]))
            return a;
    return -1;
}

/* The last group of skiparse may be shorter: that is no video. */
static int is_video(const struct attn_mask *mask, const struct mask_grid *grid)
{
    const struct mask_axis *axis = grid->axis;
    return grid->n_axes == 2 && same_axis(grid) >= 0 &&
           axis[0].stride == axis[1].extent * axis[1].stride &&
           axis[0].extent * axis[0].stride == mask->shape.n_key;
}

enum attn_video attn_mask_video(const struct attn_mask *mask, int64_t *frames)
{
    const struct mask_grid *grid = find_grid(mask, is_video);
    *frames = 1;
    if (grid == NULL || mask->shape.n_query != mask->shape.n_key)
        return ATTN_NO_VIDEO;
    *frames = grid->axis[0].extent;
    return same_axis(grid) == 0 ? ATTN_SAME_FRAME : ATTN_SAME_PLACE;
}
