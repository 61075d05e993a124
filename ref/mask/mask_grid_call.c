/* The arguments of calls that speak of grids, and the axes that they stand for.
 *
 * A grid holds the tokens of the sequence, neither more nor fewer: sizes that do not multiply to
 * Lq = Lk are refused with those that would. */
#include "ref/mask/mask_internal.h"

#include <stdio.h>

/* ---- axes --------------------------------------------------------------------------------- */

/* Within a reach; -1: no limit. */
static struct mask_axis within(int64_t extent, int64_t stride, int64_t reach)
{
    int64_t most = reach < 0 ? MASK_FAR : reach;
    return (struct mask_axis){extent, stride, -most, most, 1, 0, 0};
}

static struct mask_axis every(int64_t extent, int64_t stride)
{
    return within(extent, stride, -1);
}

static struct mask_axis same(int64_t extent, int64_t stride)
{
    return within(extent, stride, 0);
}

static void set_axes(struct mask_node *node, int n, const struct mask_axis *axis)
{
    node->kind = MASK_GRID;
    node->n_axes = n;
    for (int a = 0; a < n; a++)
        node->axis[a] = axis[a];
}

static void set_two(struct mask_node *node, struct mask_axis outer, struct mask_axis inner)
{
    set_axes(node, 2, (struct mask_axis[]){outer, inner});
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

void attn_mask_read_spatial(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[3];
    read_grid(p, 3, n);
    set_two(node, same(n[0], n[1] * n[2]), every(n[1] * n[2], 1));
}

void attn_mask_read_temporal(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[3];
    read_grid(p, 3, n);
    set_two(node, every(n[0], n[1] * n[2]), same(n[1] * n[2], 1));
}

/* Open-Sora-Plan v1.3 writes token i = n k^2 + m k + r: the single mode compares r, the group mode
 * m.  It pads to a multiple of k^2 and cuts the padding off again, so any length has a meaning.
 * An axis that would hold all tokens in one step is left out, and k need not exceed the length. */
void attn_mask_read_skiparse(struct mask_parser *p, struct mask_node *node)
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
    if (!is_group)
        set_two(node, every(blocks, k), same(k, 1));
    else if (k < blocks)
        set_axes(node, 3,
                 (struct mask_axis[]){every((blocks - 1) / k + 1, k * k), same(k, k), every(k, 1)});
    else
        set_two(node, same(blocks, k), every(k, 1));
}

void attn_mask_read_dilated(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[2];
    read_grid(p, 2, n);
    set_two(node, every(n[0], n[1]), every(n[1], 1));
    node->axis[0].step = node->axis[1].step = attn_mask_number(p, &modulus);
}

/* The row of a token, or its column. */
void attn_mask_read_axial2d(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[2];
    read_grid(p, 2, n);
    p->parts = 2;
    set_two(&node[0], same(n[0], n[1]), every(n[1], 1));
    set_two(&node[1], every(n[0], n[1]), same(n[1], 1));
}

/* d and its norm, when the last argument is a word. */
static void set_distance(struct mask_parser *p, struct mask_node *node, int64_t d,
                         struct mask_slice word)
{
    node->norm = attn_mask_slice_is(word, "l1") ? 1 : 2;
    if (node->norm == 2 && !attn_mask_slice_is(word, "l2"))
        attn_mask_fail_at(p, word.text, "'%.*s' is neither a reach nor l1 nor l2",
                          MASK_SLICE(word));
    if (d < 1 || d > (int64_t)1 << 30)
        attn_mask_fail_at(p, word.text, "tokens nearer than %lld: 1 to 2^30 would work",
                          (long long)d);
    node->radius = d;
    node->axis[0].least = 1 - d;
    node->axis[0].most = d - 1;
}

void attn_mask_read_local2d(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[2];
    read_grid(p, 2, n);
    int64_t rows = attn_mask_number(p, &reach);
    struct mask_slice last = attn_mask_argument(p);
    int is_word = attn_mask_is_letter(*last.text);
    int64_t columns = is_word ? 0 : attn_mask_number_of(p, last, &reach);
    set_two(node, within(n[0], n[1], rows), within(n[1], 1, columns));
    if (is_word)
        set_distance(p, node, rows, last);
}

void attn_mask_read_local3d(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[3], r[3];
    read_grid(p, 3, n);
    for (int a = 0; a < 3; a++)
        r[a] = attn_mask_number(p, &reach);
    set_axes(node, 3,
             (struct mask_axis[]){within(n[0], n[1] * n[2], r[0]), within(n[1], n[2], r[1]),
                                  within(n[2], 1, r[2])});
}

void attn_mask_read_swin(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[2];
    read_grid(p, 2, n);
    const char *begin = p->at;
    int64_t window = attn_mask_number(p, &mask_natural), shift = attn_mask_number(p, &mask_natural);
    if (window == 0 || n[0] % window != 0 || n[1] % window != 0)
        attn_mask_fail_at(p, begin,
                          "windows of %lld do not fill a grid of %lld*%lld: a number that "
                          "divides both would work",
                          (long long)window, (long long)n[0], (long long)n[1]);
    if (shift >= window)
        attn_mask_fail_at(p, begin, "a shift of %lld; 0 to %lld would work", (long long)shift,
                          (long long)window - 1);
    set_two(node, every(n[0], n[1]), every(n[1], 1));
    node->axis[0].cell = node->axis[1].cell = window;
    node->axis[0].shift = node->axis[1].shift = shift > 0 ? window - shift : 0;
}

void attn_mask_window_of_blocks(const struct mask_parser *p, struct mask_node *node, int64_t size,
                                int64_t blocks)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    int64_t length = mask_max(mask_max(s->n_query, s->n_key), 1);
    size = mask_min(size, length);
    set_two(node, within((length - 1) / size + 1, size, blocks), every(size, 1));
}
