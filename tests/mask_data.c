#include "tests/mask_data.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/fill.h"

/* ---- tensors by name ---------------------------------------------------------------------- */

static int coin(uint64_t stream, int64_t index)
{
    return (int)(attn_hash(7, stream, (uint64_t)index) % 3 == 0);
}

void mask_data_fill(struct mask_data *d, const struct attn_mask_shape *s)
{
    int64_t plane = s->n_query * s->n_key, nnz = 0, nnz_all = 0;
    memset(d, 0, sizeof *d);
    d->shape = *s;
    for (int64_t n = 0; n < s->batch * s->n_key; n++)
        d->pad[n] = (int8_t)(coin(1, n) ? -1 : 0);
    for (int64_t j = 0; j < s->n_key; j++)
        d->pad_all[j] = coin(2, j) ? 0 : INT64_C(1) << 40; /* non-zero, with a zero low half */
    for (int64_t n = 0; n < plane; n++)
        d->flat[n] = coin(3, n) ? 1 << 16 : 0;
    for (int64_t n = 0; n < s->batch * plane; n++)
        d->by_batch[n] = (int8_t)coin(4, n);
    for (int64_t n = 0; n < s->heads * plane; n++)
        d->by_head[n] = (int8_t)coin(5, n);
    for (int64_t n = 0; n < s->batch * s->heads * plane; n++)
        d->full[n] = (int8_t)coin(6, n);
    for (int64_t b = 0; b < s->batch; b++)
        d->used[b] = (int32_t)(attn_hash(7, 10, (uint64_t)b) % (uint64_t)(s->n_key + 1));
    for (int64_t row = 0; row < s->batch * s->heads * s->n_query; row++) {
        for (int64_t j = 0; j < s->n_key; j++)
            if (coin(8, row * s->n_key + j))
                d->column[nnz++] = (int32_t)j;
        d->start[row + 1] = nnz;
    }
    for (int64_t i = 0; i < s->n_query; i++) {
        for (int64_t j = 0; j < s->n_key; j++)
            if (coin(9, i * s->n_key + j))
                d->column_all[nnz_all++] = j;
        d->start_all[i + 1] = (int32_t)nnz_all;
    }
}

static enum attn_status data_find(void *arg, const char *name, const char *part,
                                  struct attn_mask_tensor *t, struct attn_error *err)
{
    struct mask_data *d = arg;
    const struct attn_mask_shape *s = &d->shape;
    int64_t rows = s->batch * s->heads * s->n_query;
    const struct {
        const char *name, *part;
        struct attn_mask_tensor tensor;
    } all[] = {
        {"pad", "", {d->pad, 1, 2, {s->batch, s->n_key}}},
        {"pad_all", "", {d->pad_all, 8, 1, {s->n_key}}},
        {"used", "", {d->used, 4, 1, {s->batch}}},
        {"flat", "", {d->flat, 4, 2, {s->n_query, s->n_key}}},
        {"by_batch", "", {d->by_batch, 1, 4, {s->batch, 1, s->n_query, s->n_key}}},
        {"by_head", "", {d->by_head, 1, 4, {1, s->heads, s->n_query, s->n_key}}},
        {"full", "", {d->full, 1, 4, {s->batch, s->heads, s->n_query, s->n_key}}},
        {"each", "row_start", {d->start, 8, 1, {rows + 1}}},
        {"each", "column", {d->column, 4, 1, {d->start[rows]}}},
        {"all", "row_start", {d->start_all, 4, 1, {s->n_query + 1}}},
        {"all", "column", {d->column_all, 8, 1, {d->start_all[s->n_query]}}},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (strcmp(all[n].name, name) == 0 && strcmp(all[n].part, part) == 0) {
            *t = all[n].tensor;
            return ATTN_OK;
        }
    return attn_fail(err, ATTN_EINVAL, "no tensor %s", name);
}

struct attn_mask *mask_data_parse(const char *text, struct mask_data *d)
{
    struct attn_mask_source source = {data_find, d};
    struct attn_error err = {0};
    struct attn_mask *mask;
    if (attn_mask_parse(text, &d->shape, &source, &mask, &err) != ATTN_OK)
        ck_abort_msg("%s: %s", text, err.text);
    return mask;
}

/* ---- texts ------------------------------------------------------------------------------- */

const struct attn_mask_shape mask_shapes[] = {{2, 2, 7, 7}, {2, 3, 5, 9},  {3, 2, 9, 5},
                                              {2, 2, 1, 8}, {1, 1, 8, 1},  {1, 2, 0, 4},
                                              {2, 1, 4, 0}, {1, 1, 11, 15}};
const int mask_n_shapes = sizeof mask_shapes / sizeof *mask_shapes;

const char *const mask_singles[] = {"none",
                                    "causal(tl)",
                                    "causal(br)",
                                    "causal(+3)",
                                    "causal(-2)",
                                    "causal(-40)",
                                    "causal(+40)",
                                    "causal(ends,%n)",
                                    "causal(ends,%B)",
                                    "causal(ends,used)",
                                    "window(2,1,ends,%B)",
                                    "window(-1,0,ends,used)",
                                    "window(2,1,tl)",
                                    "window(2,1,br)",
                                    "window(0,0,br)",
                                    "window(-1,2,tl)",
                                    "window(3,-1,br)",
                                    "window(-1,-1,tl)",
                                    "window(1,0,-3)",
                                    "window(0,4,+30)",
                                    "prefix(0)",
                                    "prefix(3)",
                                    "prefix(99)",
                                    "global(0)",
                                    "global(2)",
                                    "global(6)",
                                    "global(99)",
                                    "keys(%n)",
                                    "keys(%B)",
                                    "keys(x0)",
                                    "keys(x1)",
                                    "keys(x01101)",
                                    "keys(%P)",
                                    "keys(pad)",
                                    "keys(pad_all)",
                                    "documents(%D)",
                                    "documents(%E)",
                                    "random(0,1)",
                                    "random(1,1)",
                                    "random(0.1,3)",
                                    "random(0.3,5)",
                                    "random(0.8,2)",
                                    "random(0.5,9,heads)",
                                    "csr(all)",
                                    "csr(each)",
                                    "dense(flat)",
                                    "dense(by_batch)",
                                    "dense(by_head)",
                                    "dense(full)"};
const int mask_n_singles = sizeof mask_singles / sizeof *mask_singles;

const char *const mask_compositions[] = {
    "causal(br)&window(2,0,br)",
    "causal(tl)|prefix(3)",
    "window(1,1,br)|global(2)",
    "window(1,1,br)|global(1)|random(0.3,4)",
    "(causal(br)|prefix(2))&keys(%B)",
    "causal(br)&keys(pad)",
    "window(3,2,ends,%B)&keys(%B)|csr(each)",
    "(causal(ends,%B)|prefix(1))&causal(ends,used)",
    "causal(br)&keys(x0110)&keys(%P)",
    "documents(%D)&causal(tl)",
    "documents(%E)&window(2,2,tl)|global(1)",
    "documents(%D)|documents(%E)",
    "documents(%D)&documents(%E)",
    "random(0.4,1)&random(0.5,2)",
    "random(0.4,1)|random(0.5,2,heads)",
    "random(0.4,1)&causal(tl)",
    "random(0.4,1)|causal(br)",
    "(random(0.4,1)|causal(br))&window(3,1,br)",
    "csr(all)&causal(br)",
    "csr(each)|window(0,0,tl)",
    "dense(flat)&keys(pad)|csr(all)",
    "none|causal(tl)",
    "none&random(0.2,1)",
    "none&none",
    "global(1)&global(3)&causal(tl)",
    "(global(1)|prefix(2))&(causal(br)|keys(%n))",
    "keys(pad)|keys(pad_all)|causal(-3)",
    "window(4,-1,tl)&window(1,-1,br)|csr(each)&random(0.6,3)",
    "((window(2,0,tl)|random(0.2,8))&keys(pad)|prefix(1))&(dense(by_head)|causal(br))"};
const int mask_n_compositions = sizeof mask_compositions / sizeof *mask_compositions;

static void add(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, size - used, format, list);
    va_end(list);
}

/* One length or pattern for each batch. */
static void add_batches(char *text, size_t size, char what, const struct attn_mask_shape *s)
{
    for (int64_t b = 0; b < s->batch; b++) {
        uint64_t length = attn_hash(5, 0, (uint64_t)b) % (uint64_t)(s->n_key + 1);
        add(text, size, "%s", b > 0 ? "," : "");
        if (what == 'B')
            add(text, size, "%d", (int)length);
        else
            add(text, size, "%s", b % 2 ? "x1110" : "x010011");
    }
}

/* Documents that fit the shape, empty ones among them; E: other cuts, queries or keys alone. */
static void add_documents(char *text, size_t size, char what, const struct attn_mask_shape *s)
{
    long long q = s->n_query, k = s->n_key;
    if (what == 'D') {
        add(text, size, "%lldx%lld,0x0,", q / 3, k / 4);
        add(text, size, "%lldx%lld", q - q / 3, k - k / 4);
    } else {
        add(text, size, "0x%lld,%lldx0,", k / 3, q / 4);
        add(text, size, "%lldx0,0x%lld,", q / 4, k / 3);
        add(text, size, "%lldx%lld", q - 2 * (q / 4), k - 2 * (k / 3));
    }
}

void mask_data_expand(char *text, size_t size, const char *pattern, const struct attn_mask_shape *s)
{
    text[0] = '\0';
    for (const char *c = pattern; *c != '\0'; c++) {
        if (*c != '%')
            add(text, size, "%c", *c);
        else if (*++c == 'n')
            add(text, size, "%d", (int)s->n_key / 2);
        else if (*c == 'B' || *c == 'P')
            add_batches(text, size, *c, s);
        else
            add_documents(text, size, *c, s);
    }
}

void mask_data_draw(char *text, size_t size, const struct attn_mask_shape *s, uint64_t *draws,
                    int depth)
{
    uint64_t dice = attn_hash(11, 0, (*draws)++);
    if (depth == 0 || dice % 4 == 0) {
        char call[256];
        mask_data_expand(call, sizeof call, mask_singles[dice / 4 % (uint64_t)mask_n_singles], s);
        add(text, size, "%s", call);
        return;
    }
    int parts = 2 + (int)(dice / 4 % 3);
    for (int n = 0; n < parts; n++) {
        add(text, size, "%s%s", n == 0 ? "" : dice & 64 ? "&" : " | ", depth > 1 ? "( " : "");
        mask_data_draw(text, size, s, draws, depth - 1);
        add(text, size, "%s", depth > 1 ? ")" : "");
    }
}
