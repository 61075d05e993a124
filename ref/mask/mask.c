/* The answers of a mask: those that its kinds define (kind.h), and those that follow from them
 * where kinds say no more.  All of it is tested against the definition on every pair of many small
 * shapes. */
#include "ref/mask/mask_internal.h"

const struct attn_mask_shape *attn_mask_shape(const struct attn_mask *mask)
{
    return &mask->shape;
}

const char *attn_mask_text(const struct attn_mask *mask)
{
    return mask->text;
}

const char *attn_mask_help(int line)
{
    for (int k = 0; k < MASK_KINDS && line >= 0; k++)
        if (attn_mask_kinds[k]->name != NULL && line-- == 0)
            return attn_mask_kinds[k]->help;
    return NULL;
}

int attn_mask_allows(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i, int64_t j)
{
    if (mask == NULL)
        return 1;
    struct mask_view v = mask_view_of(mask, b, h);
    return mask_allows(&v, i, j);
}

/* ---- facts about the whole ---------------------------------------------------------------- */

static int only_none(const struct attn_mask *mask, const struct mask_node *node)
{
    if (node->child < 0)
        return node->kind == MASK_none;
    for (int64_t c = node->child; c >= 0; c = mask->node[c].next)
        if (!only_none(mask, &mask->node[c]))
            return 0;
    return 1;
}

int attn_mask_is_none(const struct attn_mask *mask)
{
    return mask == NULL || only_none(mask, &mask->node[mask->root]);
}

int attn_mask_varies_by_batch(const struct attn_mask *mask)
{
    return mask != NULL && mask->node[mask->root].by_batch;
}

int attn_mask_varies_by_head(const struct attn_mask *mask)
{
    return mask != NULL && mask->node[mask->root].by_head;
}

int attn_mask_band(const struct attn_mask *mask, int64_t b, int64_t *least, int64_t *most)
{
    *least = -MASK_FAR;
    *most = MASK_FAR;
    if (mask == NULL)
        return 1;
    struct mask_view v = mask_view_of(mask, b, 0);
    return mask_band(&v, least, most);
}

int attn_mask_call(const struct attn_mask *mask, int64_t b, int64_t n, struct attn_mask_call *call)
{
    int64_t at = mask != NULL ? mask->root : -1;
    *call = (struct attn_mask_call){.length = -1};
    if (at >= 0 && mask->node[at].kind == MASK_all_of)
        at = mask->node[at].child;
    while (at >= 0 && n-- > 0)
        at = mask->node[at].next;
    if (at < 0)
        return 0;
    struct mask_view v = {mask, &mask->node[at], b, 0};
    if (mask_kind(&v)->numbers != NULL)
        mask_kind(&v)->numbers(&v, call);
    return 1;
}

int attn_mask_counts_tokens(const struct attn_mask *mask)
{
    return mask != NULL && mask->node[mask->root].counts_tokens;
}

/* ---- runs --------------------------------------------------------------------------------- */

int attn_mask_view_span(const struct mask_view *v, int64_t i, int64_t *lo, int64_t *hi)
{
    const struct mask_kind *kind = mask_kind(v);
    struct mask_cell cell;
    int64_t least, most;
    *hi = v->mask->shape.n_key;
    if (mask_band(v, &least, &most)) {
        *lo = mask_max(i + least, 0);
        *hi = mask_min(i + most + 1, *hi);
        return 1;
    }
    if (mask_cell(v, i, &cell)) {
        *lo = cell.k0;
        *hi = mask_min(cell.k1, *hi);
        return 1;
    }
    return kind->span != NULL && kind->span(v, i, lo, hi);
}

static int next_by_asking(const struct mask_view *v, int64_t i, int64_t from, int64_t until,
                          int64_t *lo, int64_t *hi)
{
    while (from < until && !mask_allows(v, i, from))
        from++;
    if (from >= until)
        return 0;
    *lo = from++;
    while (from < v->mask->shape.n_key && from - *lo < MASK_RUN_CUT && mask_allows(v, i, from))
        from++;
    *hi = from;
    return 1;
}

int attn_mask_view_next(const struct mask_view *v, int64_t i, int64_t from, int64_t until,
                        int64_t *lo, int64_t *hi)
{
    from = mask_max(from, 0);
    until = mask_min(until, v->mask->shape.n_key);
    if (from >= until)
        return 0;
    if (attn_mask_view_span(v, i, lo, hi)) {
        *lo = mask_max(*lo, from);
        return *lo < *hi && *lo < until;
    }
    if (mask_kind(v)->next != NULL)
        return mask_kind(v)->next(v, i, from, until, lo, hi);
    return next_by_asking(v, i, from, until, lo, hi);
}

int attn_mask_span(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                   struct attn_run *run)
{
    *run = (struct attn_run){0, INT64_MAX};
    if (mask == NULL)
        return 1;
    struct mask_view v = mask_view_of(mask, b, h);
    return attn_mask_view_span(&v, i, &run->lo, &run->hi);
}

int attn_mask_next(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                   struct attn_run *run)
{
    int64_t from = run->hi;
    *run = (struct attn_run){from, INT64_MAX};
    if (mask == NULL)
        return 1;
    struct mask_view v = mask_view_of(mask, b, h);
    return attn_mask_view_next(&v, i, from, INT64_MAX, &run->lo, &run->hi);
}
