/* Masks as tensors, from nothing but their names. */
#include "tests/harness/inputs/setup_mask.h"

#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/base/fill.h"

enum { AXES = 4 };
static const char axis_letter[AXES + 1] = "bhqk";

/* The meaning of a name: the extents of its tensor (1 where it is broadcast) and its density. */
struct meaning {
    int has[AXES];
    int64_t extent[AXES];
    unsigned percent;
};

static enum attn_status understand(const struct attn_case *c, const char *name,
                                   struct meaning *meaning, struct attn_error *err)
{
    const int64_t extent[AXES] = {c->batch, c->heads, c->n_query, c->n_key};
    const char *p = name;
    for (int a = 0; a < AXES; a++) {
        meaning->has[a] = *p == axis_letter[a];
        meaning->extent[a] = meaning->has[a] ? extent[a] : 1;
        p += meaning->has[a];
    }
    char *end = NULL;
    unsigned long percent = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : 0;
    if (!meaning->has[3] || end == NULL || *end != '\0' || percent > 100)
        return attn_fail(err, ATTN_EINVAL,
                         "mask tensor '%.40s': a case makes them up from axes out of b h q k (k "
                         "always) and a per cent of visible cells, such as k50, qk10 or bhqk90",
                         name);
    meaning->percent = (unsigned)percent;
    return ATTN_OK;
}

static int is_visible(const struct attn_case *c, const struct meaning *meaning, int64_t cell)
{
    enum { STREAM_MASK = 100 };
    return attn_hash(c->seed, STREAM_MASK, (uint64_t)cell) % 100 < meaning->percent;
}

/* Room for count elements, linked into the maker's list. */
static struct attn_made_tensor *make(struct attn_mask_maker *maker, int64_t count, int width,
                                     struct attn_error *err)
{
    int64_t bytes = attn_product(count, width);
    struct attn_made_tensor *made = NULL;
    if (bytes >= 0 && bytes < INT64_MAX / 2)
        made = calloc(1, sizeof *made + (size_t)bytes);
    if (made == NULL) {
        attn_fail(err, ATTN_ENOMEM, "a mask tensor of %lld x %d bytes found no memory",
                  (long long)count, width);
        return NULL;
    }
    made->tensor.data = made->data;
    made->tensor.width = width;
    made->next = *maker->made;
    *maker->made = made;
    return made;
}

static void store(struct attn_made_tensor *made, int64_t at, int64_t value)
{
    int32_t narrow = (int32_t)value;
    if (made->tensor.width == 8)
        memcpy(made->data + 8 * at, &value, 8);
    else if (made->tensor.width == 4)
        memcpy(made->data + 4 * at, &narrow, 4);
    else
        made->data[at] = (unsigned char)value;
}

/* A tensor of cells.  Visible is 1, 256 or 2^32: a reader of the wrong width sees 0. */
static struct attn_made_tensor *make_cells(struct attn_mask_maker *maker,
                                           const struct meaning *meaning, struct attn_error *err)
{
    int width = meaning->has[0] == meaning->has[1] ? 1 : meaning->has[2] && meaning->has[0] ? 4 : 8;
    int64_t value = width == 1 ? 1 : width == 4 ? 256 : (int64_t)1 << 32;
    const int64_t *e = meaning->extent;
    int64_t count = attn_product(attn_product(e[0], e[1]), attn_product(e[2], e[3]));
    struct attn_made_tensor *made = make(maker, count, width, err);
    if (made == NULL)
        return NULL;
    for (int64_t cell = 0; cell < count; cell++)
        store(made, cell, is_visible(maker->c, meaning, cell) ? value : 0);
    int first = meaning->has[0] || meaning->has[1] ? 0 : 2; /* [Lq,Lk], or all four axes */
    if (!meaning->has[2] && !meaning->has[1]) {             /* keys: [Lk] or [B,Lk]      */
        made->tensor.n_axes = 1 + meaning->has[0];
        made->tensor.extent[0] = e[0];
        made->tensor.extent[meaning->has[0]] = e[3];
        return made;
    }
    made->tensor.n_axes = AXES - first;
    memcpy(made->tensor.extent, e + first, (size_t)(AXES - first) * sizeof *e);
    return made;
}

/* CSR of the same cells: row_start (8 bytes) or column (4 bytes), rows in b h q order. */
static struct attn_made_tensor *make_csr(struct attn_mask_maker *maker,
                                         const struct meaning *meaning, int want_columns,
                                         struct attn_error *err)
{
    const int64_t *e = meaning->extent;
    int64_t rows = attn_product(attn_product(e[0], e[1]), e[2]), count = 0;
    int64_t cells = attn_product(rows, e[3]);
    for (int64_t cell = 0; cell < cells; cell++)
        count += is_visible(maker->c, meaning, cell);
    struct attn_made_tensor *made =
        want_columns ? make(maker, count, 4, err) : make(maker, rows < 0 ? -1 : rows + 1, 8, err);
    if (made == NULL)
        return NULL;
    made->tensor.n_axes = 1;
    made->tensor.extent[0] = want_columns ? count : rows + 1;
    int64_t at = 0;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t j = 0; j < e[3]; j++) {
            if (!is_visible(maker->c, meaning, row * e[3] + j))
                continue;
            if (want_columns)
                store(made, at, j);
            at++;
        }
        if (!want_columns)
            store(made, row + 1, at);
    }
    return made;
}

enum attn_status attn_made_tensor_find(void *arg, const char *name, const char *part,
                                       struct attn_mask_tensor *tensor, struct attn_error *err)
{
    struct attn_mask_maker *maker = arg;
    struct meaning meaning;
    enum attn_status status = understand(maker->c, name, &meaning, err);
    if (status != ATTN_OK)
        return status;
    struct attn_made_tensor *made =
        part[0] == '\0' ? make_cells(maker, &meaning, err)
                        : make_csr(maker, &meaning, strcmp(part, "column") == 0, err);
    if (made == NULL)
        return ATTN_ENOMEM;
    *tensor = made->tensor;
    return ATTN_OK;
}

void attn_made_tensor_free(struct attn_made_tensor *first)
{
    while (first != NULL) {
        struct attn_made_tensor *next = first->next;
        free(first);
        first = next;
    }
}
