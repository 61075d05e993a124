/* See storage.h.  Sources are quoted where a block is taken: the call that makes it. */
#include "experiments/studies/storage.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "optimized/integers.h"
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
    x->mask = NULL;
    enum attn_status status = attn_mask_parse(text, shape, NULL, &x->mask, err);
    x->problem = (struct attn_problem){.batch = shape->batch,
                                       .heads = shape->heads,
                                       .kv_heads = shape->heads,
                                       .n_query = shape->n_query,
                                       .n_key = shape->n_key,
                                       .d_key = 1,
                                       .d_value = 1,
                                       .scale = 1,
                                       .dtype = ATTN_F32,
                                       .mask = x->mask};
    return status == ATTN_OK ? attn_stored_mask_open(&x->problem, &x->stored, err) : status;
}

void attn_stored_text_close(struct attn_stored_text *x)
{
    attn_mask_free(x->mask);
}

/* Whether element n of [B, heads, Lq, Lk] is visible. */
static int is_visible(const struct attn_stored_mask *mask, int64_t heads, int64_t n)
{
    const struct attn_problem *p = mask->problem;
    int64_t row = n / p->n_key, plane = row / p->n_query;
    return attn_problem_allows(p, plane / heads, plane % heads, row % p->n_query, n % p->n_key);
}

/* Whether query i of a pattern sees key j. */
static int pattern_sees(const struct attn_stored_mask *mask, int64_t pattern, int64_t i, int64_t j)
{
    return attn_problem_allows(mask->problem, attn_csr_batch(&mask->pattern, pattern),
                               attn_csr_head(&mask->pattern, pattern), i, j);
}

static int64_t pattern_of(const struct attn_stored_mask *mask, struct attn_pair_place at)
{
    return at.b * mask->pattern.batch_step + at.h * mask->pattern.head_step;
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

/* What the numbers of a kept block say goes by its name. */
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
    const struct attn_block *kept = &tape->block[0];
    int of_heads = kept->name == COPIES;
    int64_t size = kept->bytes / (pairs_of(p) * (of_heads ? p->heads : 1));
    int64_t plane = of_heads ? at.b * p->heads + at.h : at.b;
    int64_t n = (plane * p->n_query + at.i) * p->n_key + at.j;
    if (kept->name == FILLED)
        return get(kept->data, size, n) == 0;
    return size == 1 ? ((const char *)kept->data)[n] : ((const int32_t *)kept->data)[n];
}

/* ---- sparse: visible pairs ------------------------------------------------------------------- */

static void make_csr(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    int64_t n = 0, n_query = mask->problem->n_query, rows = mask->pattern.patterns * n_query;
    int64_t *start = attn_tape_take(tape, "row_start", "count the keys of each row", rows + 1, 8);
    int32_t *column = attn_tape_take(tape, "column", "list them", mask->pattern.nnz, 4);
    for (int64_t r = 0; column != NULL && r <= rows; r++) {
        start[r] = n;
        for (int64_t j = 0; r < rows && j < mask->problem->n_key; j++)
            if (pattern_sees(mask, r / n_query, r % n_query, j))
                column[n++] = (int32_t)j;
    }
}

static int allows_csr(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                      struct attn_pair_place at)
{
    const int64_t *start = attn_tape_data(tape, "row_start");
    const int32_t *column = attn_tape_data(tape, "column");
    int64_t r = pattern_of(mask, at) * mask->problem->n_query + at.i;
    for (int64_t e = start[r]; e < start[r + 1]; e++)
        if (column[e] == at.j)
            return 1;
    return 0;
}

static const char *one_for_all(const struct attn_stored_mask *mask)
{
    return mask->pattern.patterns > 1
               ? "it has one pattern for all, and this mask differs from batch to batch or head to "
                 "head"
               : NULL;
}

/* Rows by their lengths, longest first. */
static void sort_rows(const int32_t *offset, int64_t n, int32_t *order)
{
    for (int64_t r = 0; r < n; r++) {
        int64_t at = r;
        for (; at > 0 &&
               offset[order[at - 1] + 1] - offset[order[at - 1]] < offset[r + 1] - offset[r];
             at--)
            order[at] = order[at - 1];
        order[at] = (int32_t)r;
    }
}

/* The entries in the order of key, those of one key in the order in which they stand: where each of
 * n keys begins, the keys, and which entry it was. */
static void sort_entries(const int32_t *key, int64_t n_entries, int64_t n, int32_t *offset,
                         int32_t *sorted, int64_t *perm)
{
    memset(offset, 0, (size_t)(n + 1) * sizeof *offset);
    for (int64_t e = 0; e < n_entries; e++)
        offset[key[e] + 1]++;
    for (int64_t r = 0; r < n; r++)
        offset[r + 1] += offset[r];
    for (int64_t e = 0; e < n_entries; e++) {
        int32_t at = offset[key[e]]++;
        sorted[at] = key[e];
        perm[at] = e;
    }
    memmove(offset + 1, offset, (size_t)n * sizeof *offset); /* each stands at the next key's */
    offset[0] = 0;
}

/* The transpose of what stands on the tape, and the same arrays of it. */
static void make_transpose(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    const struct attn_problem *p = mask->problem;
    int64_t nnz = mask->pattern.nnz, m = p->n_query, n = p->n_key;
    const int32_t *offset = attn_tape_data(tape, "row_offsets");
    const int32_t *column = attn_tape_data(tape, "column_indices");
    int32_t *row = attn_tape_take(tape, "row_coo", "_csr_to_coo", nnz, 4);
    int32_t *sorted = attn_tape_take(tape, "sorted", "column_indices.sort(stable=True)", nnz, 4);
    int64_t *perm = attn_tape_take(tape, "perm", "the same", nnz, 8);
    int32_t *row_t = attn_tape_take(tape, "column_indices_t", "row_coo[perm]", nnz, 4);
    int32_t *offset_t = attn_tape_take(tape, "row_offsets_t", "_coo_to_csr", n + 1, 4);
    int32_t *order_t = attn_tape_take(tape, "row_indices_t", "_diffsort(row_offsets_t)", n, 4);
    for (int64_t i = 0; order_t != NULL && i < m; i++)
        for (int32_t e = offset[i]; e < offset[i + 1]; e++)
            row[e] = (int32_t)i;
    if (order_t != NULL) {
        sort_entries(column, nnz, n, offset_t, sorted, perm);
        for (int64_t e = 0; e < nnz; e++)
            row_t[e] = row[perm[e]];
        sort_rows(offset_t, n, order_t);
    }
    attn_tape_give(tape, "sorted");
    attn_tape_give(tape, "row_coo");
}

/* Made from a dense matrix of bool, which its caller holds. */
static void make_xformers(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    const struct attn_problem *p = mask->problem;
    int64_t nnz = mask->pattern.nnz, m = p->n_query, n = p->n_key, at = 0;
    char *dense = attn_tape_take(tape, "dense", "the pattern, bool [Lq, Lk]", m * n, 1);
    int32_t *offset = attn_tape_take(tape, "row_offsets", "mask.sum(-1).cumsum(-1)", m + 1, 4);
    int32_t *order = attn_tape_take(tape, "row_indices", "_diffsort(row_offsets)", m, 4);
    int64_t *found = attn_tape_take(tape, "nonzero", "torch.where(mask)", 2 * nnz, 8);
    int32_t *column =
        attn_tape_take(tape, "column_indices", "torch.where(mask)[1].to(torch.int32)", nnz, 4);
    char *values = attn_tape_take(tape, "values", "mask[mask]", nnz, 1);
    if (values != NULL)
        memset(offset, 0, (size_t)(m + 1) * sizeof *offset);
    for (int64_t e = 0; values != NULL && e < m * n; e++) {
        dense[e] = (char)pattern_sees(mask, 0, e / n, e % n);
        if (dense[e]) {
            found[at] = e / n, found[nnz + at] = e % n;
            column[at] = (int32_t)(e % n);
            values[at++] = 1;
        }
        offset[e / n + 1] = (int32_t)at;
    }
    if (values != NULL)
        sort_rows(offset, m, order);
    attn_tape_give(tape, "nonzero");
    make_transpose(tape, mask);
    attn_tape_give(tape, "dense");
}

/* Both lists must have it, and the permutation lead from one to the other. */
static int allows_xformers(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                           struct attn_pair_place at)
{
    const int32_t *offset = attn_tape_data(tape, "row_offsets");
    const int32_t *offset_t = attn_tape_data(tape, "row_offsets_t");
    const int32_t *column = attn_tape_data(tape, "column_indices");
    const int32_t *row = attn_tape_data(tape, "column_indices_t");
    const int64_t *perm = attn_tape_data(tape, "perm");
    int64_t e = offset[at.i], t = offset_t[at.j];
    (void)mask;
    while (e < offset[at.i + 1] && column[e] != at.j)
        e++;
    while (t < offset_t[at.j + 1] && row[t] != at.i)
        t++;
    int there = e < offset[at.i + 1], back = t < offset_t[at.j + 1];
    if (there != back || (there && perm[t] != e))
        return -1;
    return there;
}

/* ---- blocks: torch.nn.attention.flex_attention.BlockMask ------------------------------------- */

enum { BLOCK = 128 };

/* Lists of the blocks that are full, or that are partial: n rows of space for `most`. */
static void list_blocks(const int64_t *sums, int64_t n, int64_t most, int64_t step, int64_t next,
                        int full, int32_t *count, int32_t *index)
{
    for (int64_t r = 0; r < n; r++) {
        int64_t others = most; /* stand behind the listed ones, and nobody reads them */
        count[r] = 0;
        for (int64_t c = 0; c < most; c++) {
            int64_t sum = sums[r * step + c * next];
            if (full ? sum == BLOCK * BLOCK : sum > 0 && sum < BLOCK * BLOCK)
                index[r * most + count[r]++] = (int32_t)c;
            else
                index[r * most + --others] = (int32_t)c;
        }
    }
}

/* How many blocks, and which, of rows and of columns of blocks, partial and full. */
static const char *const lists[2][4] = {
    {"kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"},
    {"q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices"}};

static void take_lists(struct attn_tape *tape, const struct attn_stored_mask *mask, int columns)
{
    int64_t rows = ceil_div(mask->problem->n_query, BLOCK),
            cols = ceil_div(mask->problem->n_key, BLOCK);
    int64_t n = columns ? cols : rows, most = columns ? rows : cols, z = mask->pattern.patterns;
    const int64_t *sums = attn_tape_data(tape, "sums");
    for (int full = 0; full < 2; full++) {
        const char *const *name = &lists[columns][2 * full];
        int32_t *count = attn_tape_take(tape, name[0], "_dense_to_ordered", z * n, 4);
        int32_t *index =
            attn_tape_take(tape, name[1], "the same, dense in blocks", z * n * most, 4);
        for (int64_t p = 0; index != NULL && p < z; p++)
            list_blocks(sums + p * rows * cols, n, most, columns ? 1 : cols, columns ? cols : 1,
                        full, count + p * n, index + p * n * most);
    }
}

static void make_flex(struct attn_tape *tape, const struct attn_stored_mask *mask)
{
    const struct attn_problem *p = mask->problem;
    int64_t rows = ceil_div(p->n_query, BLOCK), cols = ceil_div(p->n_key, BLOCK),
            z = mask->pattern.patterns;
    int64_t keys = cols * BLOCK, plane = rows * BLOCK * keys, blocks = z * rows * cols;
    char *dense =
        attn_tape_take(tape, "dense", "create_mask(mask_mod): bool, whole blocks", z * plane, 1);
    int64_t *sums = attn_tape_take(tape, "sums", "mask.sum(dim=[-2, -1])", blocks, 8);
    if (sums != NULL)
        memset(sums, 0, (size_t)blocks * sizeof *sums);
    for (int64_t n = 0; sums != NULL && n < z * plane; n++) {
        int64_t i = n % plane / keys, j = n % keys;
        dense[n] = i < p->n_query && j < p->n_key && pattern_sees(mask, n / plane, i, j);
        sums[(n / plane * rows + i / BLOCK) * cols + j / BLOCK] += dense[n];
    }
    attn_tape_give(tape, "dense");
    for (int columns = 0; columns < 2; columns++)
        take_lists(tape, mask, columns);
    attn_tape_give(tape, "sums");
}

/* A partial block asks mask_mod.  What rows and columns do not agree in is no answer. */
static int allows_flex(const struct attn_tape *tape, const struct attn_stored_mask *mask,
                       struct attn_pair_place at)
{
    int64_t n[2] = {ceil_div(mask->problem->n_query, BLOCK), ceil_div(mask->problem->n_key, BLOCK)};
    int64_t of[2] = {at.i / BLOCK, at.j / BLOCK};
    int state[2] = {0, 0}; /* 1: partial, 2: full */
    for (int columns = 0; columns < 2; columns++)
        for (int full = 0; full < 2; full++) {
            const int32_t *count = attn_tape_data(tape, lists[columns][2 * full]);
            const int32_t *index = attn_tape_data(tape, lists[columns][2 * full + 1]);
            int64_t row = pattern_of(mask, at) * n[columns] + of[columns];
            for (int32_t e = 0; e < count[row]; e++)
                if (index[row * n[!columns] + e] == of[!columns])
                    state[columns] |= 1 << full;
        }
    if (state[0] != state[1] || state[0] == 3)
        return -1;
    return state[0] == 1 ? pattern_sees(mask, pattern_of(mask, at), at.i, at.j) : state[0] == 2;
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
    {"csr", "int64 rows + 1, int32 nnz", "ref/mask/pattern.h", NULL, make_csr, allows_csr},
    {"csr-transpose", "17 B a pair: both ways, bool values", "xformers 0.0.27, SparseCS",
     one_for_all, make_xformers, allows_xformers},
    {"blocks", "int32 lists of 128 x 128, both ways", "PyTorch 2.5, create_block_mask", NULL,
     make_flex, allows_flex},
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

/* ---- in a study ------------------------------------------------------------------------------ */

/* The texts are the study's own: what is wrong with one is a fault of the program. */
static void open_text(struct attn_stored_text *x, const char *mask,
                      const struct attn_mask_shape *shape)
{
    struct attn_error err = {ATTN_OK, ""};
    if (attn_stored_text_open(mask, shape, x, &err) != ATTN_OK)
        attn_cli_need(NULL);
}

int64_t attn_study_store(struct attn_tape *tape, const char *storage, const char *mask,
                         const struct attn_mask_shape *shape)
{
    struct attn_stored_text x;
    open_text(&x, mask, shape);
    attn_storage_find(storage)->make(tape, &x.stored);
    attn_stored_text_close(&x);
    return x.stored.pattern.nnz;
}

void attn_study_store_both(struct attn_study_run *run, struct attn_pair *pair, const char *name,
                           const char *storage, const char *mask,
                           const struct attn_mask_shape *shape)
{
    const struct attn_storage *made = attn_storage_find(storage);
    struct attn_stored_text x;
    open_text(&x, mask, shape);
    attn_pair_open(pair, run);
    made->make(&pair->real, &x.stored);
    made->make(&pair->counted, &x.stored);
    attn_study_same(name, pair);
    if (!pair->real.is_cut)
        attn_study_quantity(run, "pairs of which it says otherwise than the mask", ATTN_DERIVED, 0,
                            (double)attn_storage_wrong(made, &pair->real, &x.stored), "pairs", 0);
    attn_stored_text_close(&x);
}
