/* staircase(size,A): j < (floor((i + off) / size) + 1) * size.  A query sees its own block of
 * `size` tokens and all earlier ones: block diffusion, and video models that make one block of
 * frames after another.
 *
 * The example of docs/adding.md: a mask in one file, and one line in kinds.def. */
#include "ref/mask/kind.h"

struct staircase {
    int64_t size;
    struct mask_alignment at;
};

/* The first key behind the block in which query i stands; before key 0 there is nothing. */
static int64_t end_of_block(const struct mask_view *v, int64_t i)
{
    const struct staircase *x = v->node->own;
    int64_t at = i + attn_mask_offset(v, &x->at);
    return at < 0 ? 0 : (at / x->size + 1) * x->size;
}

static int in_staircase(const struct mask_view *v, int64_t i, int64_t j)
{
    return j < end_of_block(v, i);
}

/* The queries of a block see the same keys: one stretch. */
static int cell_of_staircase(const struct mask_view *v, int64_t i, struct mask_cell *cell)
{
    const struct staircase *x = v->node->own;
    int64_t end = end_of_block(v, i), q1 = end - attn_mask_offset(v, &x->at); /* of the block */
    *cell = (struct mask_cell){end > 0 ? mask_max(q1 - x->size, 0) : 0, q1, 0, end};
    return 1;
}

static void read_staircase(struct mask_parser *p, struct mask_node *node)
{
    static const struct mask_least block = {1, "blocks have 1 token or more"};
    struct staircase x = {.size = attn_mask_number(p, &block)};
    x.at = attn_mask_alignment(p, node);
    attn_mask_keep(p, node, &x, sizeof x);
}

const struct mask_kind attn_mask_kind_staircase = {
    MASK_CALL("staircase", read_staircase, "the size of a block and an alignment: staircase(16,br)",
              "staircase(size,A)        its own block of tokens, and all earlier ones"),
    .allows = in_staircase, .cell = cell_of_staircase};
