/* The keys of one row: counted, or listed in increasing order.
 *
 * A row is a stream of runs in increasing order (attn_mask_view_next).  But asking random(...)
 * column by column would cost Lk steps for a handful of keys.  A kind that lists its keys (kind.h,
 * each) does so in any order, so where one is in the mask a row is made in blocks of bits, a bit a
 * key, in constant memory:
 *
 *      A | R     the bits of A and those of R
 *      A & R     the bits of R, of which those go that A does not allow; only where A may see any,
 *                if it is known to be one run */
#include "ref/mask/mask_internal.h"

enum {
    BLOCK = 1 << 15
}; /* keys; parentheses are nested 64 deep, and a rank has 256 KiB of stack */

/* Keys [j0,j1) of row i. */
struct bits {
    int64_t i, j0, j1;
    uint64_t word[BLOCK / 64];
};

static void clear(struct bits *bits, int64_t i, int64_t j0, int64_t j1)
{
    bits->i = i;
    bits->j0 = j0;
    bits->j1 = j1;
    memset(bits->word, 0, (size_t)(j1 - j0 + 63) / 64 * sizeof *bits->word);
}

static void set_run(void *arg, int64_t lo, int64_t hi)
{
    struct bits *bits = arg;
    for (int64_t at = lo - bits->j0, n; lo < hi; at += n, lo += n) {
        n = mask_min(64 - at % 64, hi - lo);
        bits->word[at / 64] |= (n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1) << at % 64;
    }
}

static void each_bit(const struct bits *bits, mask_see *see, void *arg)
{
    for (int64_t w = 0; w < (bits->j1 - bits->j0 + 63) / 64; w++)
        for (uint64_t word = bits->word[w]; word != 0; word &= word - 1) {
            int64_t j = bits->j0 + 64 * w + __builtin_ctzll(word);
            see(arg, j, j + 1);
        }
}

/* A kind that lists its keys is here or below. */
static int lists(const struct mask_view *v)
{
    const struct mask_node *all = v->mask->node;
    int found = mask_kind(v)->each != NULL;
    for (int64_t c = v->node->child; c >= 0 && !found; c = all[c].next) {
        struct mask_view child = mask_view_at(v, &all[c]);
        found = lists(&child);
    }
    return found;
}

static void add_row(struct bits *bits, const struct mask_view *v, int64_t j0, int64_t j1);

/* An & of which one child has listed its keys: those that no other child hides go to the bits. */
struct sieve {
    const struct mask_view *v, *listed;
    struct bits *to;
};

static void sift(void *arg, int64_t j, int64_t end)
{
    const struct sieve *x = arg;
    const struct mask_node *all = x->v->mask->node;
    for (int64_t c = x->v->node->child; c >= 0; c = all[c].next) {
        struct mask_view child = mask_view_at(x->v, &all[c]);
        if (child.node != x->listed->node && !mask_allows(&child, x->to->i, j))
            return;
    }
    set_run(x->to, j, end);
}

static void add_row_of_all(struct bits *bits, const struct mask_view *v, int64_t j0, int64_t j1)
{
    const struct mask_node *all = v->mask->node;
    struct mask_view listed = *v;
    struct bits own;
    for (int64_t c = v->node->child; c >= 0; c = all[c].next) {
        struct mask_view child = mask_view_at(v, &all[c]);
        int64_t lo, hi;
        if (attn_mask_view_span(&child, bits->i, &lo, &hi)) {
            j0 = mask_max(j0, lo);
            j1 = mask_min(j1, hi);
        } else if (listed.node == v->node && lists(&child))
            listed = child;
    }
    if (j0 >= j1)
        return;
    struct sieve sieve = {v, &listed, bits};
    clear(&own, bits->i, j0, j1);
    add_row(&own, &listed, j0, j1);
    each_bit(&own, sift, &sieve);
}

/* The visible keys of [j0,j1), which lie within the bits, join them. */
static void add_row(struct bits *bits, const struct mask_view *v, int64_t j0, int64_t j1)
{
    const struct mask_node *all = v->mask->node;
    int64_t lo, hi;
    if (mask_kind(v)->each != NULL)
        mask_kind(v)->each(v, bits->i, j0, j1, set_run, bits);
    else if (!lists(v))
        for (int64_t from = j0; attn_mask_view_next(v, bits->i, from, j1, &lo, &hi); from = hi)
            set_run(bits, lo, mask_min(hi, j1));
    else if (v->node->kind == MASK_all_of)
        add_row_of_all(bits, v, j0, j1);
    else
        for (int64_t c = v->node->child; c >= 0; c = all[c].next) {
            struct mask_view child = mask_view_at(v, &all[c]);
            add_row(bits, &child, j0, j1);
        }
}

/* ---- counting and listing ----------------------------------------------------------------- */

struct listing {
    const struct attn_tokens *keys;
    int64_t n;
    int32_t *column; /* NULL: only counted */
};

/* Of a run of tokens, those that belong to the keys. */
static void list_run(void *arg, int64_t lo, int64_t hi)
{
    struct listing *list = arg;
    int64_t first = lo - list->keys->first, end = hi - list->keys->first;
    if (list->keys->step > 1) {
        first = attn_tokens_below(list->keys, lo);
        end = attn_tokens_below(list->keys, hi);
    }
    for (int64_t j = first; j < end && list->column != NULL; j++)
        list->column[list->n + j - first] = (int32_t)j;
    list->n += end - first;
}

/* Returns how many of the keys are visible.  column: NULL, or where they are listed. */
static int64_t list_row(const struct mask_view *v, int64_t i, const struct attn_tokens *keys,
                        int32_t *column)
{
    struct listing list = {keys, 0, column};
    int64_t end = keys->n > 0 ? keys->first + keys->step * (keys->n - 1) + 1 : keys->first;
    int64_t j0 = mask_max(keys->first, 0), j1 = mask_min(end, v->mask->shape.n_key), lo, hi;
    struct bits bits;
    if (!lists(v)) {
        for (; attn_mask_view_next(v, i, j0, j1, &lo, &hi); j0 = hi)
            list_run(&list, lo, mask_min(hi, j1));
        return list.n;
    }
    for (; j0 < j1; j0 = bits.j1) {
        clear(&bits, i, j0, mask_min(j0 + BLOCK, j1));
        add_row(&bits, v, j0, bits.j1);
        each_bit(&bits, list_run, &list);
    }
    return list.n;
}

int64_t attn_mask_view_count_keys(const struct mask_view *v, int64_t i,
                                  const struct attn_tokens *keys)
{
    if (mask_kind(v)->count != NULL && keys->step == 1)
        return mask_kind(v)->count(v, i, mask_max(keys->first, 0),
                                   mask_min(keys->first + keys->n, v->mask->shape.n_key));
    return list_row(v, i, keys, NULL);
}

int64_t attn_mask_count_keys(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                             const struct attn_tokens *keys)
{
    if (mask == NULL)
        return keys->n;
    struct mask_view v = mask_view_of(mask, b, h);
    return attn_mask_view_count_keys(&v, i, keys);
}

int64_t attn_mask_list_keys(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i,
                            const struct attn_tokens *keys, int32_t *column)
{
    if (mask == NULL) {
        for (int64_t j = 0; j < keys->n; j++)
            column[j] = (int32_t)j;
        return keys->n;
    }
    struct mask_view v = mask_view_of(mask, b, h);
    return list_row(&v, i, keys, column);
}
