/* The arguments of calls that speak of grids, and the axes that they stand for.
 *
 * A grid holds the tokens of the sequence, neither more nor fewer: sizes that do not multiply to
 * Lq = Lk are refused with those that would. */
#include "ref/mask/mask_internal.h"

#include <stdio.h>

/* ---- axes --------------------------------------------------------------------------------- */

static struct mask_axis every(int64_t extent, int64_t stride)
{
    struct mask_axis axis = {extent, stride, -MASK_FAR, MASK_FAR, 1, 0, 0};
    return axis;
}

/* -1: no limit. */
static struct mask_axis within(int64_t extent, int64_t stride, int64_t reach)
{
    struct mask_axis axis = every(extent, stride);
    if (reach >= 0) {
        axis.least = -reach;
        axis.most = reach;
    }
    return axis;
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

/* ---- arguments ---------------------------------------------------------------------------- */

/* -1 or more. */
static enum attn_status next_reach(struct mask_parser *p, int64_t *value)
{
    struct mask_slice arg;
    enum attn_status status = attn_mask_argument(p, &arg);
    if (status == ATTN_OK)
        status = attn_mask_whole(p, arg, value);
    if (status == ATTN_OK && *value < -1)
        return attn_mask_fail_at(p, arg.at, "'%.*s': a reach is 0 or more, or -1 for no limit",
                                 MASK_SLICE(p, arg));
    return status;
}

/* One more of several. */
static enum attn_status need_more(struct mask_parser *p, const char *usage)
{
    if (!p->more)
        return attn_mask_fail_at(p, p->at - 1, "arguments are missing: %s", usage);
    return ATTN_OK;
}

/* Sizes that fit: another first extent where there is one, else the lengths around L. */
static enum attn_status grid_does_not_fit(struct mask_parser *p, int64_t at, int n,
                                          const int64_t *extent, int64_t length)
{
    char sizes[80] = "", remedy[120];
    int used = 0;
    int64_t inner = 1;
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
    else
        snprintf(remedy, sizeof remedy, "the sizes must multiply to the length");
    return attn_mask_fail_at(p, at, "a grid of %s is not the %lld tokens that there are: %s", sizes,
                             (long long)length, remedy);
}

/* n extents, of which the product is Lq = Lk. */
static enum attn_status read_grid(struct mask_parser *p, int n, int64_t *extent, const char *usage)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    int64_t begin = p->at, product = 1;
    for (int a = 0; a < n; a++) {
        struct mask_slice arg;
        enum attn_status status = a > 0 ? need_more(p, usage) : ATTN_OK;
        if (status == ATTN_OK)
            status = attn_mask_argument(p, &arg);
        if (status == ATTN_OK)
            status = attn_mask_natural(p, arg, &extent[a]);
        if (status != ATTN_OK)
            return status;
        if (extent[a] == 0)
            return attn_mask_fail_at(p, arg.at, "extents of a grid start at 1");
        product = product > MASK_NUMBER_MAX / extent[a] ? INT64_MAX : product * extent[a];
    }
    if (s->n_query != s->n_key)
        return attn_mask_fail_at(p, begin,
                                 "queries and keys are the tokens of one grid, so Lq = Lk would "
                                 "work; here %lld and %lld",
                                 (long long)s->n_query, (long long)s->n_key);
    if (product != s->n_key)
        return grid_does_not_fit(p, begin, n, extent, s->n_key);
    return ATTN_OK;
}

/* ---- calls -------------------------------------------------------------------------------- */

enum attn_status attn_mask_args_spatial(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[3];
    enum attn_status status = read_grid(p, 3, n, "spatial(T,H,W)");
    if (status != ATTN_OK)
        return status;
    set_axes(node, 2, (struct mask_axis[]){same(n[0], n[1] * n[2]), every(n[1] * n[2], 1)});
    return attn_mask_no_more(p, "spatial(T,H,W)");
}

enum attn_status attn_mask_args_temporal(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[3];
    enum attn_status status = read_grid(p, 3, n, "temporal(T,H,W)");
    if (status != ATTN_OK)
        return status;
    set_axes(node, 2, (struct mask_axis[]){every(n[0], n[1] * n[2]), same(n[1] * n[2], 1)});
    return attn_mask_no_more(p, "temporal(T,H,W)");
}

/* Open-Sora-Plan v1.3 writes token i = n k^2 + m k + r: the single mode compares r, the group mode
 * m.  It pads to a multiple of k^2 and cuts the padding off again, so any length has a meaning.
 * An axis that would hold all tokens in one step is left out, and k need not exceed the length. */
enum attn_status attn_mask_args_skiparse(struct mask_parser *p, struct mask_node *node)
{
    static const char usage[] = "skiparse(single|group,k)";
    const struct attn_mask_shape *s = &p->mask->shape;
    int64_t length = mask_max(mask_max(s->n_query, s->n_key), 1), k = 0;
    struct mask_slice mode, arg;
    enum attn_status status = attn_mask_argument(p, &mode);
    if (status != ATTN_OK)
        return status;
    int is_group = attn_mask_slice_is(p, mode, "group");
    if (!is_group && !attn_mask_slice_is(p, mode, "single"))
        return attn_mask_fail_at(p, mode.at, "'%.*s' is neither single nor group: %s",
                                 MASK_SLICE(p, mode), usage);
    status = need_more(p, usage);
    if (status == ATTN_OK)
        status = attn_mask_argument(p, &arg);
    if (status == ATTN_OK)
        status = attn_mask_natural(p, arg, &k);
    if (status == ATTN_OK && k == 0)
        return attn_mask_fail_at(p, arg.at, "k starts at 1, which hides nothing");
    if (status != ATTN_OK)
        return status;
    k = mask_min(k, length);
    int64_t blocks = (length - 1) / k + 1;
    if (!is_group)
        set_axes(node, 2, (struct mask_axis[]){every(blocks, k), same(k, 1)});
    else if (k < blocks)
        set_axes(node, 3,
                 (struct mask_axis[]){every((blocks - 1) / k + 1, k * k), same(k, k), every(k, 1)});
    else
        set_axes(node, 2, (struct mask_axis[]){same(blocks, k), every(k, 1)});
    return attn_mask_no_more(p, usage);
}

enum attn_status attn_mask_args_dilated(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[2], k = 0;
    enum attn_status status = read_grid(p, 2, n, "dilated(H,W,k)");
    if (status == ATTN_OK)
        status = need_more(p, "dilated(H,W,k)");
    if (status == ATTN_OK)
        status = attn_mask_next_natural(p, &k);
    if (status == ATTN_OK && k == 0)
        return attn_mask_fail_at(p, p->at - 2, "k starts at 1, which hides nothing");
    if (status != ATTN_OK)
        return status;
    struct mask_axis axis[] = {every(n[0], n[1]), every(n[1], 1)};
    axis[0].step = axis[1].step = k;
    set_axes(node, 2, axis);
    return attn_mask_no_more(p, "dilated(H,W,k)");
}

/* The row of a token, or its column. */
enum attn_status attn_mask_args_axial2d(struct mask_parser *p, struct mask_node *node)
{
    int64_t n[2];
    enum attn_status status = read_grid(p, 2, n, "axial2d(H,W)");
    if (status != ATTN_OK)
        return status;
    p->parts = 2;
    set_axes(&node[0], 2, (struct mask_axis[]){same(n[0], n[1]), every(n[1], 1)});
    set_axes(&node[1], 2, (struct mask_axis[]){every(n[0], n[1]), same(n[1], 1)});
    return attn_mask_no_more(p, "axial2d(H,W)");
}

/* d and its norm, when the last argument is a word. */
static enum attn_status distance(struct mask_parser *p, struct mask_node *node, int64_t d,
                                 struct mask_slice word)
{
    node->norm = attn_mask_slice_is(p, word, "l1") ? 1 : 2;
    if (node->norm == 2 && !attn_mask_slice_is(p, word, "l2"))
        return attn_mask_fail_at(p, word.at, "'%.*s' is neither a reach nor l1 nor l2",
                                 MASK_SLICE(p, word));
    if (d < 1 || d > (int64_t)1 << 30)
        return attn_mask_fail_at(p, word.at, "tokens nearer than %lld: 1 to 2^30 would work",
                                 (long long)d);
    node->radius = d;
    node->axis[0].least = 1 - d;
    node->axis[0].most = d - 1;
    return ATTN_OK;
}

enum attn_status attn_mask_args_local2d(struct mask_parser *p, struct mask_node *node)
{
    static const char usage[] = "local2d(H,W,rh,rw) or local2d(H,W,d,l1|l2)";
    int64_t n[2], reach[2] = {0};
    struct mask_slice last;
    enum attn_status status = read_grid(p, 2, n, usage);
    if (status == ATTN_OK)
        status = need_more(p, usage);
    if (status == ATTN_OK)
        status = next_reach(p, &reach[0]);
    if (status == ATTN_OK)
        status = need_more(p, usage);
    if (status != ATTN_OK)
        return status;
    attn_mask_skip_blanks(p);
    int is_word = attn_mask_is_letter(p->text[p->at]);
    status = is_word ? attn_mask_argument(p, &last) : next_reach(p, &reach[1]);
    if (status != ATTN_OK)
        return status;
    set_axes(node, 2,
             (struct mask_axis[]){within(n[0], n[1], reach[0]), within(n[1], 1, reach[1])});
    status = is_word ? distance(p, node, reach[0], last) : ATTN_OK;
    return status == ATTN_OK ? attn_mask_no_more(p, usage) : status;
}

enum attn_status attn_mask_args_local3d(struct mask_parser *p, struct mask_node *node)
{
    static const char usage[] = "local3d(T,H,W,rt,rh,rw)";
    int64_t n[3], reach[3];
    enum attn_status status = read_grid(p, 3, n, usage);
    for (int a = 0; a < 3 && status == ATTN_OK; a++) {
        status = need_more(p, usage);
        if (status == ATTN_OK)
            status = next_reach(p, &reach[a]);
    }
    if (status != ATTN_OK)
        return status;
    set_axes(node, 3,
             (struct mask_axis[]){within(n[0], n[1] * n[2], reach[0]), within(n[1], n[2], reach[1]),
                                  within(n[2], 1, reach[2])});
    return attn_mask_no_more(p, usage);
}

enum attn_status attn_mask_args_swin(struct mask_parser *p, struct mask_node *node)
{
    static const char usage[] = "swin(H,W,w,shift)";
    int64_t n[2], cut[2]; /* window, shift */
    enum attn_status status = read_grid(p, 2, n, usage);
    int64_t begin = p->at;
    for (int a = 0; a < 2 && status == ATTN_OK; a++) {
        status = need_more(p, usage);
        if (status == ATTN_OK)
            status = attn_mask_next_natural(p, &cut[a]);
    }
    if (status != ATTN_OK)
        return status;
    if (cut[0] == 0 || n[0] % cut[0] != 0 || n[1] % cut[0] != 0)
        return attn_mask_fail_at(p, begin,
                                 "windows of %lld do not fill a grid of %lld*%lld: a number that "
                                 "divides both would work",
                                 (long long)cut[0], (long long)n[0], (long long)n[1]);
    if (cut[1] >= cut[0])
        return attn_mask_fail_at(p, begin, "a shift of %lld; 0 to %lld would work",
                                 (long long)cut[1], (long long)cut[0] - 1);
    struct mask_axis axis[] = {every(n[0], n[1]), every(n[1], 1)};
    axis[0].cell = axis[1].cell = cut[0];
    axis[0].shift = axis[1].shift = cut[1] > 0 ? cut[0] - cut[1] : 0;
    set_axes(node, 2, axis);
    return attn_mask_no_more(p, usage);
}

void attn_mask_window_of_blocks(const struct mask_parser *p, struct mask_node *node, int64_t size,
                                int64_t reach)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    int64_t length = mask_max(mask_max(s->n_query, s->n_key), 1);
    size = mask_min(size, length);
    set_axes(node, 2,
             (struct mask_axis[]){within((length - 1) / size + 1, size, reach), every(size, 1)});
}
