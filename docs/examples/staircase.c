/* staircase(size): j < (floor(i / size) + 1) * size.  A query sees its own block of `size` tokens
 * and all earlier ones: block diffusion, and video models that make one block of frames after
 * another.
 *
 * The example of docs/adding.md: a mask in one file, and one line in kinds.def. */
#include "ref/mask/kind.h"

struct staircase {
    int64_t size;
};

static int in_staircase(const struct mask_view *v, int64_t i, int64_t j)
{
    const struct staircase *x = v->node->own;
    return j < (i / x->size + 1) * x->size;
}

/* The queries of a block see the same keys: one stretch. */
static int cell_of_staircase(const struct mask_view *v, int64_t i, struct mask_cell *cell)
{
    const struct staircase *x = v->node->own;
    int64_t q0 = i / x->size * x->size;
    *cell = (struct mask_cell){q0, q0 + x->size, 0, q0 + x->size};
    return 1;
}

static void read_staircase(struct mask_parser *p, struct mask_node *node)
{
    static const struct mask_least block = {1, "blocks have 1 token or more"};
    struct staircase x = {attn_mask_number(p, &block)};
    attn_mask_keep(p, node, &x, sizeof x);
}

const struct mask_kind attn_mask_kind_staircase = {
    MASK_CALL("staircase", read_staircase, "the size of a block: staircase(16)",
              "staircase(size)          its own block of tokens, and all earlier ones"),
    .allows = in_staircase, .cell = cell_of_staircase};
