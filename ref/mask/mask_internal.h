/* Private to ref/mask: functions that its files share, but for those of the kinds.
 *
 * A mask is a tree of nodes in one array.  Leaves are calls, each of a kind (kind.h); & and | are
 * the kinds of the inner nodes.  They have any number of children, so `a|b|c|...` is flat however
 * long it is, and depth comes from parentheses only, which the parser limits.  Recursion over a
 * tree is therefore bounded.
 *
 *      mask_parse.c      the language: text to tree; words, numbers, names, tensors, of which the
 *                        readers of calls are made
 *      kinds.def         the kinds, each in a kind_*.c
 *      mask.c            what a mask says, from its kinds
 *      mask_parts.c      the kinds & and |
 *      mask_row.c        the keys of one row
 *      mask_count.c      how many pairs, in closed form or by rows; what a block is
 */
#ifndef REF_MASK_MASK_INTERNAL_H
#define REF_MASK_MASK_INTERNAL_H

#include "ref/mask/kind.h"

/* ---- mask_parse.c ---- */

/* A whole number with or without a sign. */
int64_t attn_mask_whole(struct mask_parser *p, struct mask_slice arg);

/* Read the last argument, the name of a tensor, into p->name.  One argument more is a failure. */
void attn_mask_name(struct mask_parser *p, struct mask_slice arg);

/* A failure whose message is written already; of the tensor: "CALL(NAME): ..." */
void attn_mask_stop(struct mask_parser *p, enum attn_status status);
#define MASK_FAIL_TENSOR(p, ...) attn_mask_stop(p, attn_fail((p)->err, ATTN_EINVAL, __VA_ARGS__))

/* Find p->name and check that it is what a file can hold; 0: a failure. */
int attn_mask_find(struct mask_parser *p, const char *part, struct attn_mask_tensor *tensor);

/* "[1,4,8]", of any number of axes. */
const char *attn_mask_extents(const struct attn_mask_tensor *t, char text[96]);

/* Element of a named tensor, widened.  Files guarantee no alignment. */
static inline int64_t attn_mask_element(const struct attn_mask_tensor *tensor, int64_t index)
{
    const unsigned char *at = (const unsigned char *)tensor->data + index * tensor->width;
    int64_t wide;
    int32_t narrow;
    if (tensor->width == 1)
        return *at;
    if (tensor->width == 8) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
}

/* ---- mask.c: a node, by what its kind has ---- */

static inline struct mask_view mask_view_of(const struct attn_mask *mask, int64_t b, int64_t h)
{
    return (struct mask_view){mask, &mask->node[mask->root], b, h};
}

/* The same (batch, head) of another node. */
static inline struct mask_view mask_view_at(const struct mask_view *v, const struct mask_node *node)
{
    return (struct mask_view){v->mask, node, v->b, v->h};
}

static inline const struct mask_kind *mask_kind(const struct mask_view *v)
{
    return attn_mask_kinds[v->node->kind];
}

static inline int mask_allows(const struct mask_view *v, int64_t i, int64_t j)
{
    return mask_kind(v)->allows(v, i, j);
}

static inline int mask_band(const struct mask_view *v, int64_t *least, int64_t *most)
{
    return mask_kind(v)->band != NULL && mask_kind(v)->band(v, least, most);
}

static inline int mask_cell(const struct mask_view *v, int64_t i, struct mask_cell *cell)
{
    return mask_kind(v)->cell != NULL && mask_kind(v)->cell(v, i, cell);
}

/* Returns 1 and the run [*lo, *hi) if row i is known to be one run. */
int attn_mask_view_span(const struct mask_view *v, int64_t i, int64_t *lo, int64_t *hi);

/* The first run of row i at or after key `from` that starts before `until`. */
int attn_mask_view_next(const struct mask_view *v, int64_t i, int64_t from, int64_t until,
                        int64_t *lo, int64_t *hi);

/* ---- mask_count.c ---- */

/* sum over i in [i0,i1) of clamp(i + shift, 0, width): the pairs under a staircase. */
int64_t attn_mask_staircase(int64_t i0, int64_t i1, int64_t shift, int64_t width);

/* ---- mask_row.c ---- */

/* How many of these keys row i sees. */
int64_t attn_mask_view_count_keys(const struct mask_view *v, int64_t i,
                                  const struct attn_tokens *keys);

#endif
