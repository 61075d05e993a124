/* Masks that look at j - i alone.
 *
 *      none          every pair
 *      causal(A)     j <= i + off
 *      window(l,r,A) i + off - l <= j <= i + off + r; -1 = unbounded on that side
 *
 * A, the alignment, is always written: tl (query 0 at key 0: off = 0), br (the last query at the
 * last key: off = Lk - Lq), a signed offset such as +3 or -2, or ends,n1,n2,... (in batch b the
 * last query at key n_b - 1, the last in use: off = n_b - Lq; one length for each batch, or one for
 * all) or ends,NAME (the same lengths, [B] or [1]). */
#include "ref/mask/mask_internal.h"

struct band {
    int64_t left, right; /* of a window; -1 = unbounded */
    struct mask_alignment at;
};

static int64_t offset_of(const struct mask_view *v)
{
    const struct band *x = v->node->own;
    return attn_mask_offset(v, &x->at);
}

/* ---- alignments --------------------------------------------------------------------------- */

/* Lengths of keys, [B] or [1], become offsets; they are read once, here. */
static void bind_ends(struct mask_parser *p, struct mask_node *node, struct mask_alignment *x)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    struct attn_mask_tensor t;
    char has[96];
    if (!attn_mask_find(p, "", &t))
        return;
    if (t.n_axes != 1 || (t.extent[0] != 1 && t.extent[0] != s->batch))
        MASK_FAIL_TENSOR(p, "ends,%s: lengths of keys, [%lld] or [1], were expected; it has %s",
                         p->name, (long long)s->batch, attn_mask_extents(&t, has));
    for (int64_t b = 0; b < t.extent[0] && p->status == ATTN_OK; b++) {
        int64_t length = attn_mask_element(&t, b);
        x->offset = length - s->n_query;
        attn_mask_push_number(p, x->offset);
        if (length < 0 || length > s->n_key)
            MASK_FAIL_TENSOR(p, "ends,%s: [%lld] is %lld, and Lk = %lld", p->name, (long long)b,
                             (long long)length, (long long)s->n_key);
    }
    node->by_batch = t.extent[0] > 1;
}

/* ends,n1,n2,... or ends,NAME */
static void read_ends(struct mask_parser *p, struct mask_node *node, struct mask_alignment *x)
{
    const char *begin = p->at;
    int64_t n = 0;
    if (!p->more)
        attn_mask_fail_at(p, p->at - 1,
                          "ends needs the keys in use: ends,5,3 (one number for each batch, "
                          "or one for all), or a tensor of them: ends,NAME");
    x->list = p->mask->n_numbers;
    x->is_ends = p->counts_tokens = 1;
    do {
        struct mask_slice arg = attn_mask_argument(p);
        if (n == 0 && attn_mask_is_letter(*arg.text)) {
            attn_mask_name(p, arg);
            bind_ends(p, node, x);
            return;
        }
        x->offset = attn_mask_length_of(p, arg) - p->mask->shape.n_query;
        attn_mask_push_number(p, x->offset);
        n++;
    } while (p->more);
    attn_mask_one_for_each(p, node, n, begin);
}

struct mask_alignment attn_mask_alignment(struct mask_parser *p, struct mask_node *node)
{
    struct mask_alignment x = {0, 0, 0};
    struct mask_slice arg = attn_mask_argument(p);
    const struct attn_mask_shape *s = &p->mask->shape;
    if (attn_mask_slice_is(arg, "br"))
        x.offset = s->n_key - s->n_query;
    else if (attn_mask_slice_is(arg, "ends"))
        read_ends(p, node, &x);
    else if (*arg.text == '+' || *arg.text == '-')
        x.offset = attn_mask_whole(p, arg);
    else if (!attn_mask_slice_is(arg, "tl"))
        attn_mask_fail_at(
            p, arg.text,
            "'%.*s' is not an alignment: tl (first query at first key), br (last query at "
            "last key), a signed offset such as +3, or ends,5,3 (last query at the last key in "
            "use, of each batch)",
            MASK_SLICE(arg));
    return x;
}

int64_t attn_mask_offset(const struct mask_view *v, const struct mask_alignment *at)
{
    return v->node->by_batch ? v->mask->number[at->list + v->b] : at->offset;
}

static void numbers_of_band(const struct mask_view *v, struct attn_mask_call *call)
{
    const struct band *x = v->node->own;
    call->kind = ATTN_CALL_BAND;
    call->left = x->left;
    call->right = x->right;
    call->offset = offset_of(v);
    if (x->at.is_ends)
        call->length = call->offset + v->mask->shape.n_query;
}

/* ---- none --------------------------------------------------------------------------------- */

static int in_none(const struct mask_view *v, int64_t i, int64_t j)
{
    (void)v, (void)i, (void)j;
    return 1;
}

static int band_of_none(const struct mask_view *v, int64_t *least, int64_t *most)
{
    (void)v;
    *least = -MASK_FAR;
    *most = MASK_FAR;
    return 1;
}

const struct mask_kind attn_mask_kind_none = {
    MASK_CALL("none", NULL, "", "none                     every pair"), .allows = in_none,
    .band = band_of_none};

/* ---- causal ------------------------------------------------------------------------------- */

static int in_causal(const struct mask_view *v, int64_t i, int64_t j)
{
    return j <= i + offset_of(v);
}

static int band_of_causal(const struct mask_view *v, int64_t *least, int64_t *most)
{
    int64_t offset = offset_of(v);
    *least = -MASK_FAR;
    *most = offset;
    return 1;
}

static void read_causal(struct mask_parser *p, struct mask_node *node)
{
    const struct band x = {-1, 0, attn_mask_alignment(p, node)};
    attn_mask_keep(p, node, &x, sizeof x);
}

const struct mask_kind attn_mask_kind_causal = {
    MASK_CALL(
        "causal", read_causal, "an alignment: causal(tl), causal(br) or causal(+3)",
        "causal(A)                no later keys: j <= i + off; A is tl, br, +3, or ends,n1,n2,..."),
    .allows = in_causal, .band = band_of_causal, .numbers = numbers_of_band};

/* ---- window ------------------------------------------------------------------------------- */

static int in_window(const struct mask_view *v, int64_t i, int64_t j)
{
    const struct band *x = v->node->own;
    int64_t at = i + offset_of(v); /* where query i stands among the keys */
    return (x->left < 0 || j >= at - x->left) && (x->right < 0 || j <= at + x->right);
}

static int band_of_window(const struct mask_view *v, int64_t *least, int64_t *most)
{
    const struct band *x = v->node->own;
    int64_t offset = offset_of(v);
    *least = x->left < 0 ? -MASK_FAR : offset - x->left;
    *most = x->right < 0 ? MASK_FAR : offset + x->right;
    return 1;
}

static void read_window(struct mask_parser *p, struct mask_node *node)
{
    static const struct mask_least side = {-1,
                                           "a window reaches 0 or more keys, or -1 for all of a "
                                           "side"};
    struct band x = {0};
    x.left = attn_mask_number(p, &side);
    x.right = attn_mask_number(p, &side);
    x.at = attn_mask_alignment(p, node);
    attn_mask_keep(p, node, &x, sizeof x);
}

const struct mask_kind attn_mask_kind_window = {
    MASK_CALL(
        "window", read_window,
        "two sides and an alignment: window(4,0,tl), window(4,0,br) or window(4,0,+3)",
        "window(l,r,A)            i + off - l <= j <= i + off + r; -1 = unbounded on that side"),
    .allows = in_window, .band = band_of_window, .numbers = numbers_of_band};
