/* See storage.h.  Sources are quoted where a block is taken: the call that makes it. */
#include "experiments/rim/storage/storage.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/storage/storage_lists.h"
#include "ref/mask/mask.h"
#include "ref/problem.h"

enum attn_status attn_stored_mask_open(const struct attn_problem *p, struct attn_stored_mask *mask,
                                       struct attn_error *err)
{
    enum {
        MOST_BYTES = 32
    }; /* that any storage has for a pair of a head, and what it is made of */
    struct attn_cost cost = {0};
    double most =
        (double)p->batch * (double)p->heads * ((double)p->n_query + 128) * ((double)p->n_key + 128);
    if (most * MOST_BYTES >= 9e18)
        return attn_fail(
            err, ATTN_EINVAL, "masks of b%lldh%lldq%lldk%lld exceed 64 bits in some storages",
            (long long)p->batch, (long long)p->heads, (long long)p->n_query, (long long)p->n_key);
    mask->problem = p;
    return attn_csr_cost(p, &cost, &mask->pattern, err);
}

enum attn_status attn_stored_text_open(const char *text, const struct attn_mask_shape *shape,
                                       struct attn_stored_text *x, struct attn_error *err)
{
    struct attn_case c = {.batch = shape->batch,
                          .heads = shape->heads,
                          .kv_heads = shape->heads,
                          .n_query = shape->n_query,
                          .n_key = shape->n_key,
                          .d_key = 1,
                          .d_value = 1,
                          .scale = 1,
                          .dtype = ATTN_F32};
    attn_case_set_mask(&c, text);
    enum attn_status status = attn_case_open(&c, NULL, &x->problem, &x->mask, err);
    return status == ATTN_OK ? attn_stored_mask_open(&x->problem, &x->stored, err) : status;
}

void attn_stored_text_close(struct attn_stored_text *x)
{
    attn_mask_free(x->mask);
}

/* 1: element n of [B, heads, Lq, Lk] is visible; 0: it is hidden. */
static int is_visible(const struct attn_stored_mask *mask, int64_t heads, int64_t n)
{
    const struct attn_problem *p = mask->problem;
    int64_t row = n / p->n_key, plane = row / p->n_query;
    return attn_problem_allows(p, plane / heads, plane % heads, row % p->n_query, n % p->n_key);
}

/* ---- dense: [B, 1, Lq, Lk] ------------------------------------------------------------------- */

static const char *one_for_all_heads(const struct attn_stored_mask *mask)
{
    return attn_mask_varies_by_head(mask->problem->mask)
               ? "it has one mask for all heads, and this one differs from head to head"
               : NULL;
}

static int64_t pairs_of(const struct attn_problem *p)
{
    return p->batch * p->n_query * p->n_key;
}

/* Positions by comparing distances, then a mask of keys for each batch. */
static void make_bool(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    const struct attn_problem *p = mask->problem;
    int64_t plane = p->n_query * p->n_key;
    int64_t *distance = attn_tape_take(
        tape, "distance", "torch.arange(Lk)[None, :] - torch.arange(Lq)[:, None]", plane, 8);
    char *positions = attn_tape_take(tape, "positions", "distance <= offset", plane, 1);
    for (int64_t n = 0; positions != NULL && n < plane; n++) {
        distance[n] = n % p->n_key - n / p->n_key;
        positions[n] = 0;
        for (int64_t b = 0; b < p->batch; b++)
            positions[n] |= (char)is_visible(mask, 1, b * plane + n);
    }
    attn_tape_give(tape, "distance");
    char *visible =
        attn_tape_take(tape, "mask", "positions & key_mask[:, None, None, :]", pairs_of(p), 1);
    for (int64_t n = 0; visible != NULL && n < pairs_of(p); n++)
        visible[n] = positions[n % plane] && is_visible(mask, 1, n);
    attn_tape_give(tape, "positions");
}

/* Two objects of int32: keys that any query sees, repeated over queries, and the product with
 * queries. */
static void make_int32(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    const struct attn_problem *p = mask->problem;
    int64_t pairs = pairs_of(p), plane = p->n_query * p->n_key;
    int32_t *repeated =
        attn_tape_take(tape, "repeated", "kv_mask.unsqueeze(1).repeat(1, Sq, 1)", pairs, 4);
    int32_t *product = attn_tape_take(tape, "product", "q_mask.unsqueeze(-1) * repeated", pairs, 4);
    if (product != NULL)
        memset(repeated, 0, (size_t)pairs * sizeof *repeated);
    for (int64_t n = 0; product != NULL && n < pairs; n++)
        repeated[n - n % plane + n % p->n_key] |= is_visible(mask, 1, n); /* of the first query */
    for (int64_t n = 0; product != NULL && n < pairs; n++) {
        repeated[n] = repeated[n - n % plane + n % p->n_key];
        product[n] = repeated[n] * is_visible(mask, 1, n);
    }
    attn_tape_give(tape, "repeated");
}

/* Element n of float32 (size 4), or of bfloat16, its upper half. */
static void put(void *to, int64_t size, int64_t n, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (size == 4)
        ((float *)to)[n] = x;
    else
        ((uint16_t *)to)[n] = (uint16_t)(bits >> 16);
}

static float get(const void *from, int64_t size, int64_t n)
{
    uint32_t bits = size == 4 ? 0 : (uint32_t)((const uint16_t *)from)[n] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return size == 4 ? ((const float *)from)[n] : x;
}

/* The name of a kept block says how its numbers are read. */
static const char FILLED[] = "filled", COPIES[] = "copies";

/* Additive: 0 where a pair is visible, the least finite number elsewhere; to: its cast. */
static void make_added(struct attn_tape *tape, const struct attn_stored_mask *mask, const char *to,
                       int64_t size)
{
    int64_t pairs = pairs_of(mask->problem);
    make_int32(tape, mask);
    const int32_t *product = attn_tape_data(tape, "product");
    void *cast = attn_tape_take(tape, "cast", to, pairs, size);
    void *inverse = attn_tape_take(tape, "inverse", "1.0 - mask", pairs, size);
    char *hidden = attn_tape_take(tape, "hidden", "inverse.to(torch.bool)", pairs, 1);
    void *filled = attn_tape_take(tape, FILLED, "inverse.masked_fill(hidden, min)", pairs, size);
    for (int64_t n = 0; filled != NULL && n < pairs; n++) {
        put(cast, size, n, (float)product[n]);
        put(inverse, size, n, 1 - get(cast, size, n));
        hidden[n] = get(inverse, size, n) != 0;
        put(filled, size, n, hidden[n] ? -FLT_MAX : get(inverse, size, n));
    }
    attn_tape_give(tape, "hidden");
    attn_tape_give(tape, "inverse");
    attn_tape_give(tape, "cast");
    attn_tape_give(tape, "product");
}

static void make_float32(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    make_added(tape, mask, "mask.to(torch.float32)", 4);
}

static void make_bf16(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    make_added(tape, mask, "mask.to(torch.bfloat16)", 2);
}

/* ---- dense: [B, H, Lq, Lk] ------------------------------------------------------------------- */

/* A mask of one head, copied for each; what differs from head to head is written into the copy. */
static void make_heads(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    int64_t heads = mask->problem->heads, all = heads * pairs_of(mask->problem);
    make_bool(tape, mask);
    char *copy = attn_tape_take(tape, COPIES, "mask.expand(-1, H, -1, -1).contiguous()", all, 1);
    for (int64_t n = 0; copy != NULL && n < all; n++)
        copy[n] = (char)is_visible(mask, heads, n);
    attn_tape_give(tape, "mask");
}

/* A dense storage keeps one block: of bytes or int32, 1 where a pair is visible, or of numbers to
 * be added. */
static int allows_dense(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                        struct attn_pair_place at)
{
    const struct attn_problem *p = mask->problem;
    const struct attn_tape_block *kept = &tape->block[0];
    int of_heads = kept->name == COPIES;
    int64_t size = kept->bytes / (pairs_of(p) * (of_heads ? p->heads : 1));
    int64_t plane = of_heads ? at.b * p->heads + at.h : at.b;
    int64_t n = (plane * p->n_query + at.i) * p->n_key + at.j;
    if (kept->name == FILLED)
        return get(kept->data, size, n) == 0;
    return size == 1 ? ((const char *)kept->data)[n] : ((const int32_t *)kept->data)[n];
}

/* ---- vectors --------------------------------------------------------------------------------- */

/* The inside of a mask that is this one call; NULL: it is not. */
static const char *only_call(const struct attn_stored_mask *mask, const char *name)
{
    const char *text = mask->problem->mask != NULL ? attn_mask_text(mask->problem->mask) : "";
    size_t n = strlen(name);
    const char *end = strchr(text, ')');
    return strncmp(text, name, n) == 0 && text[n] == '(' && end != NULL && end[1] == '\0'
               ? text + n + 1
               : NULL;
}

static const char *only_keys(const struct attn_stored_mask *mask)
{
    return only_call(mask, "keys") != NULL ? NULL : "only keys(...) by itself is such a product";
}

static void make_vectors(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    const struct attn_problem *p = mask->problem;
    int32_t *q = attn_tape_take(tape, "q_mask", "pad_sequences()", p->batch * p->n_query, 4);
    int32_t *kv = attn_tape_take(tape, "kv_mask", "pad_sequences()", p->batch * p->n_key, 4);
    for (int64_t n = 0; kv != NULL && n < p->batch * p->n_query; n++)
        q[n] = 1;
    for (int64_t n = 0; kv != NULL && n < p->batch * p->n_key; n++)
        kv[n] = p->n_query > 0 && attn_problem_allows(p, n / p->n_key, 0, 0, n % p->n_key);
}

static int allows_vectors(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                          struct attn_pair_place at)
{
    const int32_t *q = attn_tape_data(tape, "q_mask"), *kv = attn_tape_data(tape, "kv_mask");
    return q[at.b * mask->problem->n_query + at.i] * kv[at.b * mask->problem->n_key + at.j];
}

static const char *only_documents(const struct attn_stored_mask *mask)
{
    return only_call(mask, "documents") != NULL ? NULL
                                                : "only documents(...) by itself has segments";
}

/* How many documents, and where the queries and keys of each begin, unless NULL. */
static int64_t read_documents(const struct attn_stored_mask *mask, int32_t *q, int32_t *k)
{
    int64_t n = 0, at_q = 0, at_k = 0;
    for (const char *text = only_call(mask, "documents");; n++) {
        char *end;
        if (q != NULL && k != NULL)
            q[n] = (int32_t)at_q, k[n] = (int32_t)at_k;
        if (*text == ')')
            return n;
        int64_t queries = strtoll(text, &end, 10), keys = queries;
        if (*end == 'x')
            keys = strtoll(end + 1, &end, 10);
        at_q += queries, at_k += keys;
        text = strpbrk(end, ",)");
        text += *text == ',';
    }
}

static void make_documents(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    int64_t n = read_documents(mask, NULL, NULL);
    int32_t *q = attn_tape_take(tape, "cu_seqlens_q", "lengths.cumsum(0)", n + 1, 4);
    int32_t *k = attn_tape_take(tape, "cu_seqlens_k", "lengths.cumsum(0)", n + 1, 4);
    (void)read_documents(mask, q, k);
}

static int allows_documents(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                            struct attn_pair_place at)
{
    const int32_t *q = attn_tape_data(tape, "cu_seqlens_q");
    const int32_t *k = attn_tape_data(tape, "cu_seqlens_k");
    int64_t n = read_documents(mask, NULL, NULL);
    for (int64_t d = 0; d < n; d++)
        if (at.i >= q[d] && at.i < q[d + 1])
            return at.j >= k[d] && at.j < k[d + 1];
    return 0;
}

static void make_nothing(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    (void)tape, (void)mask;
}

static int allows_by_definition(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                                struct attn_pair_place at)
{
    (void)tape;
    return attn_problem_allows(mask->problem, at.b, at.h, at.i, at.j);
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct attn_storage attn_storages[] = {
    {"bool", "bool [B,1,Lq,Lk]", "torch: compared positions and padding", one_for_all_heads,
     make_bool, allows_dense},
    {"bool-heads", "bool [B,H,Lq,Lk]", "the same, .expand().contiguous()", NULL, make_heads,
     allows_dense},
    {"int32", "int32 [B,1,Lq,Lk]", "Open-Sora 0a4a0918, expand_mask_4d", one_for_all_heads,
     make_int32, allows_dense},
    {"float32", "float32 [B,1,Lq,Lk], added", "the same, _prepare_mask", one_for_all_heads,
     make_float32, allows_dense},
    {"bf16", "bfloat16 [B,1,Lq,Lk], added", "the same in 16 bits", one_for_all_heads, make_bf16,
     allows_dense},
    {"csr", "int64 rows + 1, int32 nnz", "ref/mask/pattern.h", NULL, attn_storage_make_csr,
     attn_storage_allows_csr},
    {"csr-transpose", "17 B a pair: both ways, bool values", "xformers 0.0.27, SparseCS",
     attn_storage_one_for_all, attn_storage_make_xformers, attn_storage_allows_xformers},
    {"blocks", "int32 lists of 128 x 128, both ways", "PyTorch 2.5, create_block_mask", NULL,
     attn_storage_make_flex, attn_storage_allows_flex},
    {"segments", "int32 [documents + 1], twice", "FlashAttention, cu_seqlens", only_documents,
     make_documents, allows_documents},
    {"vectors", "int32 [B,Lq] and [B,Lk]", "their product is the mask", only_keys, make_vectors,
     allows_vectors},
    {"none", "nothing: computed from positions", "tiled, bsr, chunked, gemm", NULL, make_nothing,
     allows_by_definition},
};

const struct attn_storage *attn_storage_find(const char *name)
{
    for (int s = 0; s < ATTN_STORAGES; s++)
        if (strcmp(attn_storages[s].name, name) == 0)
            return &attn_storages[s];
    return NULL;
}

int64_t attn_storage_wrong(const struct attn_storage *storage, const struct attn_tape *tape,
                           const struct attn_stored_mask *mask)
{
    const struct attn_problem *p = mask->problem;
    int64_t wrong = 0;
    for (int64_t row = 0; row < p->batch * p->heads * p->n_query; row++) {
        int64_t head = row / p->n_query;
        struct attn_pair_place at = {head / p->heads, head % p->heads, row % p->n_query, 0};
        for (; at.j < p->n_key; at.j++)
            wrong +=
                storage->allows(tape, mask, at) != attn_problem_allows(p, at.b, at.h, at.i, at.j);
    }
    return wrong;
}
