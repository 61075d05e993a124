/* See band.h.  The mask's own text is read: it is short, canonical in its calls, and says what the
 * author meant, which pairs alone do not (a window as wide as the keys is none). */
#include "tests/harness/cases/band.h"

#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/tensor.h"

static int read_number(const char **at, char behind, int64_t *value)
{
    char *end;
    *value = strtoll(*at, &end, 10);
    if (end == *at || *end != behind)
        return 0;
    *at = end + 1;
    return 1;
}

/* Numbers up to the closing parenthesis; a list that was read before must be the same. */
static int read_lengths(const char **at, const char **lengths)
{
    const char *list = *at;
    size_t n = strspn(list, "0123456789,");
    if (n == 0 || list[n] != ')' || (*lengths != NULL && strncmp(*lengths, list, n + 1) != 0))
        return 0;
    *lengths = list;
    *at = list + n + 1;
    return 1;
}

int64_t attn_length_of(const char *lengths, int64_t b)
{
    char *end;
    int64_t length = strtoll(lengths, &end, 10);
    for (; b > 0 && *end == ','; b--)
        length = strtoll(end + 1, &end, 10);
    return length;
}

/* A: tl, br, a signed offset, or ends and lengths, up to the closing parenthesis. */
static int read_alignment(const char **at, const struct attn_mask_shape *shape, int64_t *offset,
                          int *is_ends, const char **lengths)
{
    if (strncmp(*at, "ends,", 5) == 0) {
        *offset = 0;
        *is_ends = 1;
        *at += 5;
        return read_lengths(at, lengths);
    }
    int is_tl = strncmp(*at, "tl)", 3) == 0;
    if (!is_tl && strncmp(*at, "br)", 3) != 0)
        return read_number(at, ')', offset);
    *offset = is_tl ? 0 : shape->n_key - shape->n_query;
    *at += 3;
    return 1;
}

static int read_call(const char **at, const struct attn_mask_shape *shape, struct attn_band *band,
                     int *is_ends, const char **lengths)
{
    if (strncmp(*at, "causal(", 7) == 0) {
        *at += 7;
        band->left = -1;
        band->right = 0;
        return read_alignment(at, shape, &band->offset, is_ends, lengths);
    }
    if (strncmp(*at, "window(", 7) != 0)
        return 0;
    *at += 7;
    return read_number(at, ',', &band->left) && read_number(at, ',', &band->right) &&
           read_alignment(at, shape, &band->offset, is_ends, lengths);
}

static int64_t narrower(int64_t a, int64_t b)
{
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

int attn_documents_next(const char **list, int64_t *n_query, int64_t *n_key)
{
    char *end;
    *n_query = *n_key = strtoll(*list, &end, 10);
    if (end == *list)
        return 0;
    if (*end == 'x')
        *n_key = strtoll(end + 1, &end, 10);
    *list = end + (*end == ',');
    return 1;
}

int attn_chain_of(const struct attn_mask *mask, struct attn_chain *x)
{
    const struct attn_mask_shape *shape = attn_mask_shape(mask);
    const char *at = attn_mask_text(mask);
    int has_keys = 0;
    *x = (struct attn_chain){.is_self = 1};
    for (;; at++) {
        struct attn_band other;
        int is_ends = 0;
        if (strncmp(at, "keys(", 5) == 0) {
            at += 5;
            has_keys = read_lengths(&at, &x->lengths);
            if (!has_keys)
                return 0;
        } else if (x->documents == NULL && strncmp(at, "documents(", 10) == 0) {
            x->documents = at + 10;
            at += strcspn(at, ")") + 1;
        } else if (!read_call(&at, shape, &other, &is_ends, &x->lengths) ||
                   (x->n_bands > 0 && (other.offset != x->band.offset || is_ends != x->is_ends))) {
            return 0;
        } else if (x->n_bands++ == 0) {
            x->band = other;
            x->is_ends = is_ends;
        } else {
            x->band.left = narrower(x->band.left, other.left);
            x->band.right = narrower(x->band.right, other.right);
        }
        if (*at != '&')
            break;
    }
    int64_t n_query, n_key;
    for (const char *list = x->documents;
         list != NULL && attn_documents_next(&list, &n_query, &n_key);)
        x->is_self &= n_query == n_key;
    /* A window may see behind the end that it is aligned to: then that is no length. */
    return *at == '\0' && (!x->is_ends || has_keys || x->band.right == 0);
}

int attn_mask_has_empty_rows(const struct attn_mask *mask, int64_t batch, int64_t heads,
                             int64_t n_query, int64_t n_key)
{
    if (n_key == 0)
        return batch > 0 && heads > 0 && n_query > 0;
    if (mask == NULL)
        return 0;
    for (int64_t b = 0; b < (attn_mask_varies_by_batch(mask) ? batch : batch > 0); b++)
        for (int64_t h = 0; h < (attn_mask_varies_by_head(mask) ? heads : heads > 0); h++)
            for (int64_t i = 0; i < n_query; i++)
                if (!attn_mask_next(mask, b, h, i, &(struct attn_run){0, 0}))
                    return 1;
    return 0;
}

void attn_mask_bytes(const struct attn_mask *mask, const struct attn_mask_shape *shape,
                     unsigned char visible, unsigned char *byte)
{
    const int64_t pairs[4] = {shape->batch, shape->heads, shape->n_query, shape->n_key};
    for (int64_t at[4] = ATTN_START; attn_each(at, pairs);)
        *byte++ = attn_mask_allows(mask, at[0], at[1], at[2], at[3]) ? visible
                                                                     : (unsigned char)(1 - visible);
}
