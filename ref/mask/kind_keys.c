/* Masks of first keys, and of keys that are in use or not.
 *
 *      prefix(n)       j < n
 *      global(n)       i < n or j < n: the first n tokens see and are seen
 *      keys(n1,...)    j < n_b: right padding; one length (0 to Lk) for each batch, or one for all
 *      keys(x01101,..) digit j, cyclically, is 1; one pattern for each batch, or one for all
 *      keys(NAME)      the tensor [B,Lk], [B,1,1,Lk] or [Lk] is not zero there; or lengths, [B],
 *                      of i32 or i64 */
#include "ref/mask/mask_internal.h"

/* ---- prefix, global ----------------------------------------------------------------------- */

struct first {
    int64_t count;
};

static void read_count(struct mask_parser *p, struct mask_node *node)
{
    struct first x = {attn_mask_number(p, &mask_natural)};
    attn_mask_keep(p, node, &x, sizeof x);
}

static int in_prefix(const struct mask_view *v, int64_t i, int64_t j)
{
    const struct first *x = v->node->own;
    (void)i;
    return j < x->count;
}

static int cell_of_prefix(const struct mask_view *v, int64_t i, struct mask_cell *cell)
{
    const struct first *x = v->node->own;
    (void)i;
    *cell = (struct mask_cell){0, v->mask->shape.n_query, 0, x->count};
    return 1;
}

const struct mask_kind attn_mask_kind_prefix = {
    MASK_CALL("prefix", read_count, "a number of keys: prefix(4)",
              "prefix(n)                the first n keys: j < n"),
    .allows = in_prefix, .cell = cell_of_prefix};

static int in_global(const struct mask_view *v, int64_t i, int64_t j)
{
    const struct first *x = v->node->own;
    return i < x->count || j < x->count;
}

static int cell_of_global(const struct mask_view *v, int64_t i, struct mask_cell *cell)
{
    const struct first *x = v->node->own;
    const struct attn_mask_shape *s = &v->mask->shape;
    *cell = i < x->count ? (struct mask_cell){0, x->count, 0, s->n_key}
                         : (struct mask_cell){x->count, s->n_query, 0, x->count};
    return 1;
}

const struct mask_kind attn_mask_kind_global = {
    MASK_CALL("global", read_count, "a number of tokens: global(2)",
              "global(n)                the first n tokens see and are seen: i < n or j < n"),
    .allows = in_global, .cell = cell_of_global};

/* ---- keys --------------------------------------------------------------------------------- */

struct list {
    int64_t first; /* in mask->number: lengths, or pairs of where a pattern begins and its size */
};

static int64_t length_in(const struct mask_view *v)
{
    const struct list *x = v->node->own;
    return v->mask->number[x->first + (v->node->by_batch ? v->b : 0)];
}

static int in_lengths(const struct mask_view *v, int64_t i, int64_t j)
{
    (void)i;
    return j < length_in(v);
}

static int cell_of_lengths(const struct mask_view *v, int64_t i, struct mask_cell *cell)
{
    (void)i;
    *cell = (struct mask_cell){0, v->mask->shape.n_query, 0, length_in(v)};
    return 1;
}

static void numbers_of_lengths(const struct mask_view *v, struct attn_mask_call *call)
{
    call->kind = ATTN_CALL_KEYS;
    call->length = length_in(v);
}

static int in_pattern(const struct mask_view *v, int64_t i, int64_t j)
{
    const struct list *x = v->node->own;
    const int64_t *pattern = v->mask->number + x->first + 2 * (v->node->by_batch ? v->b : 0);
    (void)i;
    return v->mask->text[pattern[0] + j % pattern[1]] == '1';
}

const struct mask_kind attn_mask_kind_keys_pattern = {.allows = in_pattern, .keys_alone = 1};

static int in_tensor(const struct mask_view *v, int64_t i, int64_t j)
{
    (void)i;
    return attn_mask_element(v->node->own,
                             (v->node->by_batch ? v->b : 0) * v->mask->shape.n_key + j) != 0;
}

const struct mask_kind attn_mask_kind_keys_tensor = {.allows = in_tensor, .keys_alone = 1};

/* Lengths, [B]; they are read once, here. */
static void bind_lengths(struct mask_parser *p, struct mask_node *node, struct attn_mask_tensor *t)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    struct list x = {p->mask->n_numbers};
    node->kind = MASK_keys;
    node->by_batch = s->batch > 1;
    if (s->batch == s->n_key && s->n_key > 1)
        MASK_FAIL_TENSOR(p,
                         "keys(%s): [%lld] could be lengths or keys in use: give it two axes, "
                         "[%lld,%lld] or, of lengths, write keys(n1,n2,...)",
                         p->name, (long long)s->batch, (long long)s->batch, (long long)s->n_key);
    for (int64_t b = 0; b < s->batch && p->status == ATTN_OK; b++) {
        int64_t length = attn_mask_element(t, b);
        attn_mask_push_number(p, length);
        if (length < 0 || length > s->n_key)
            MASK_FAIL_TENSOR(p, "keys(%s): [%lld] is %lld, and Lk = %lld", p->name, (long long)b,
                             (long long)length, (long long)s->n_key);
    }
    attn_mask_keep(p, node, &x, sizeof x);
}

static void bind_keys(struct mask_parser *p, struct mask_node *node)
{
    const struct attn_mask_shape *s = &p->mask->shape;
    struct attn_mask_tensor t;
    char has[96];
    if (!attn_mask_find(p, "", &t))
        return;
    int64_t batch = t.n_axes > 1 ? t.extent[0] : 1;
    int between = 1; /* [B,1,1,Lk] */
    for (int a = 1; a + 1 < t.n_axes; a++)
        between &= t.extent[a] == 1;
    if (t.n_axes == 1 && t.extent[0] == s->batch && t.width > 1 && s->batch * s->n_key != 1) {
        bind_lengths(p, node, &t);
        return;
    }
    if (!between || t.extent[t.n_axes - 1] != s->n_key || (batch != 1 && batch != s->batch))
        MASK_FAIL_TENSOR(
            p,
            "keys(%s): [%lld,%lld] or [%lld] was expected, or lengths [%lld] in i32 or "
            "i64; it has %s",
            p->name, (long long)s->batch, (long long)s->n_key, (long long)s->n_key,
            (long long)s->batch, attn_mask_extents(&t, has));
    node->kind = MASK_keys_tensor;
    node->by_batch = batch > 1;
    attn_mask_keep(p, node, &t, sizeof t);
}

/* x and binary digits. */
static int is_pattern(struct mask_slice arg)
{
    return *arg.text == 'x' && arg.size > 1 && (int64_t)strspn(arg.text + 1, "01") == arg.size - 1;
}

static void push_pattern(struct mask_parser *p, struct mask_slice arg)
{
    if (!is_pattern(arg))
        attn_mask_fail_at(p, arg.text, "'%.*s' is not a pattern such as x0110", MASK_SLICE(arg));
    attn_mask_push_number(p, arg.text + 1 - p->mask->text);
    attn_mask_push_number(p, arg.size - 1);
}

static void read_keys(struct mask_parser *p, struct mask_node *node)
{
    struct mask_slice arg = attn_mask_argument(p);
    struct list x = {p->mask->n_numbers};
    const char *begin = arg.text;
    int64_t n = 1;
    p->counts_tokens = 1;
    if (!is_pattern(arg) && strchr("0123456789+-", *begin) == NULL) {
        attn_mask_name(p, arg);
        bind_keys(p, node);
        return;
    }
    node->kind = is_pattern(arg) ? MASK_keys_pattern : MASK_keys;
    for (;; arg = attn_mask_argument(p), n++) {
        if (node->kind == MASK_keys_pattern)
            push_pattern(p, arg);
        else
            attn_mask_push_number(p, attn_mask_length_of(p, arg));
        if (!p->more)
            break;
    }
    attn_mask_one_for_each(p, node, n, begin);
    attn_mask_keep(p, node, &x, sizeof x);
}

const struct mask_kind attn_mask_kind_keys = {
    MASK_CALL("keys", read_keys,
              "lengths, patterns or a name: keys(5,8), keys(x0110) or keys(NAME)",
              "keys(n1,n2,...)          j < n of the batch; also keys(x0110,...) and keys(NAME)"),
    .allows = in_lengths, .cell = cell_of_lengths, .numbers = numbers_of_lengths};
