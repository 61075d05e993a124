/* See packed.h. */
#include "tests/harness/cases/packed.h"

#include <stdlib.h>

/* ---- documents ------------------------------------------------------------------------------ */

/* Document after document of one batch entry; returns how many there are.  q and k, where they are
 * not NULL, get the end of each, counted from q[0] and k[0]. */
static int64_t cut(const char *list, const struct attn_problem *p, int32_t *q, int32_t *k)
{
    int64_t n = 0, rows, keys;
    if (list == NULL) {
        if (q != NULL) {
            q[1] = q[0] + (int32_t)p->n_query;
            k[1] = k[0] + (int32_t)p->n_key;
        }
        return 1;
    }
    for (; attn_documents_next(&list, &rows, &keys); n++)
        if (q != NULL) {
            q[n + 1] = q[n] + (int32_t)rows;
            k[n + 1] = k[n] + (int32_t)keys;
        }
    return n;
}

enum attn_status attn_packed_starts(const struct attn_claims *claims, const struct attn_problem *p,
                                    struct attn_file_tensor starts[2], struct attn_error *err)
{
    static const char *const name[2] = {"cu_seqlens_q", "cu_seqlens_k"};
    const char *list = NULL;
    struct attn_band band;
    int is_self;
    if (attn_claims_cuts(claims, p))
        attn_documents_of(p->mask, &band, &list, &is_self);
    if (p->n_query > INT32_MAX / (p->batch + 1) || p->n_key > INT32_MAX / (p->batch + 1))
        return attn_fail(err, ATTN_ENOTSUP,
                         "more tokens than cu_seqlens, which are i32, can count");
    int64_t each = cut(list, p, NULL, NULL), n = each * p->batch;
    for (int t = 0; t < 2; t++) {
        starts[t] = (struct attn_file_tensor){
            .name = name[t], .dtype = ATTN_FILE_I32, .n_axes = 1, .extent = {n + 1}};
        starts[t].bytes = (n + 1) * (int64_t)sizeof(int32_t);
        starts[t].data = calloc((size_t)n + 1, sizeof(int32_t));
    }
    if (starts[0].data == NULL || starts[1].data == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for where %lld documents begin",
                         (long long)n);
    for (int64_t b = 0; b < p->batch; b++)
        cut(list, p, (int32_t *)starts[0].data + b * each, (int32_t *)starts[1].data + b * each);
    return ATTN_OK;
}

enum attn_status attn_packed_bytes(const struct attn_problem *p, unsigned char visible,
                                   struct attn_file_tensor *mask, struct attn_error *err)
{
    int64_t rows = p->batch * p->n_query, keys = p->batch * p->n_key;
    *mask = (struct attn_file_tensor){.name = "mask",
                                      .dtype = ATTN_FILE_U8,
                                      .n_axes = 4,
                                      .extent = {1, p->heads, rows, keys},
                                      .bytes = p->heads * rows * keys};
    unsigned char *byte = malloc((size_t)mask->bytes + 1);
    mask->data = byte;
    if (byte == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to write the mask");
    for (int64_t h = 0; h < p->heads; h++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < keys; j++) {
                int64_t b = i / p->n_query;
                int sees = b == j / p->n_key &&
                           attn_mask_allows(p->mask, b, h, i % p->n_query, j % p->n_key);
                *byte++ = sees ? visible : (unsigned char)(1 - visible);
            }
    return ATTN_OK;
}

/* ---- axes ----------------------------------------------------------------------------------- */

void attn_packed_extents(const struct attn_claims *claims, enum attn_packed_kind kind,
                         const int64_t n[4], struct attn_file_tensor *to)
{
    int packed = claims->layout == ATTN_CLAIMS_THD && kind != ATTN_PACKED_BIAS;
    int token_major = claims->layout != ATTN_PLUGIN_BHLD && kind == ATTN_PACKED_TOKENS;
    int64_t axis[4] = {n[0], token_major ? n[2] : n[1], token_major ? n[1] : n[2], n[3]};
    to->n_axes = 4 - packed - (kind == ATTN_PACKED_LSE);
    if (packed && kind == ATTN_PACKED_LSE) {
        axis[0] = n[1];
        axis[1] = n[0] * n[2];
    } else if (packed) {
        axis[0] = n[0] * n[2];
        axis[1] = n[1];
        axis[2] = n[3];
    }
    for (int a = 0; a < to->n_axes; a++)
        to->extent[a] = axis[a];
}

int64_t attn_packed_row(const struct attn_claims *claims, enum attn_packed_kind kind,
                        const int64_t n[4], int64_t b, int64_t h, int64_t i)
{
    if (kind == ATTN_PACKED_TOKENS && claims->layout != ATTN_PLUGIN_BHLD)
        return (b * n[2] + i) * n[1] + h;
    if (kind == ATTN_PACKED_LSE && claims->layout == ATTN_CLAIMS_THD)
        return (h * n[0] + b) * n[2] + i;
    return (b * n[1] + h) * n[2] + i;
}
