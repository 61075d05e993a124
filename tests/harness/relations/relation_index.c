/* Relations of index width: strides and offsets beyond 32 bits (bugs.md F12).
 *
 * The tensors are small, the distances between their elements are not: mappings without reserve
 * cost address space and the few pages that are touched.  What narrows an index to 32 bits reads
 * zeros elsewhere in the mapping, or leaves an output unwritten, and fails by its numbers. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/harness/relations/relation_fixture.h"

/* ---- I1 -------------------------------------------------------------------------------------- */

static const struct attn_fixture_shape tiny = {2, 4, 4, 4, 8, 2, 3};

struct sparse {
    void *map;
    size_t bytes;
};

/* Give axis `axis` of a tensor the stride `stride` in a sparse mapping of its own, with room for a
 * negative 32-bit offset in front.  0 when the system has no such address space. */
static int spread(struct attn_tensor *t, int axis, int64_t stride, struct sparse *sparse)
{
    size_t size = attn_dtype_size(t->dtype);
    const size_t front = (((size_t)1 << 31) + (1 << 20)) * size;
    struct attn_tensor old = *t;
    size_t span = (size_t)(stride * (t->extent[axis] - 1) + old.span) * size;
    sparse->bytes = front + span + (1 << 20);
    sparse->map = mmap(NULL, sparse->bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sparse->map == MAP_FAILED)
        return 0;
    t->data = (unsigned char *)sparse->map + front;
    t->map = NULL; /* neither red zones nor a count of its span */
    t->stride[axis] = stride;
    for (int64_t b = 0; b < t->extent[0]; b++)
        for (int64_t h = 0; h < t->extent[1]; h++)
            for (int64_t i = 0; i < t->extent[2]; i++)
                for (int64_t c = 0; c < t->extent[3]; c++)
                    attn_tensor_set(t, b, h, i, c, attn_tensor_get(&old, b, h, i, c));
    return 1;
}

static int on_one_axis(struct attn_fixture *f, const struct attn_trial *x, int slot, int axis,
                       int64_t stride, const char *fields)
{
    struct attn_trial y;
    struct sparse sparse = {MAP_FAILED, 0};
    if (!attn_fixture_open(f, &y, &tiny, "causal(br)", "normal:s1", ATTN_BACKWARD, fields))
        return 0;
    struct attn_tensor kept = y.setup.tensor[slot];
    int there = spread(&y.setup.tensor[slot], axis, stride, &sparse);
    if (slot == ATTN_T_BIAS)
        y.setup.problem.bias.tensor = attn_tensor_cview(&y.setup.tensor[slot]);
    if (!there)
        snprintf(f->refusal, sizeof f->refusal,
                 "the system gives no mapping of %zu bytes without reserve", sparse.bytes);
    else if (attn_fixture_run(f, &y))
        attn_fixture_compare_all(f, x, &y, ATTN_FIXTURE_BOUNDS);
    if (f->result->verdict == ATTN_FAILED && strstr(f->result->text, "stride") == NULL) {
        char text[400];
        snprintf(text, sizeof text, "%.380s", f->result->text);
        snprintf(f->result->text, sizeof f->result->text, "%s with stride %lld on axis %d: %s",
                 kept.name, (long long)stride, axis, text);
    }
    y.setup.tensor[slot] = kept;
    attn_fixture_close(&y);
    if (there)
        munmap(sparse.map, sparse.bytes);
    return there && f->result->verdict == ATTN_PASS;
}

void attn_relation_wide_strides(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    const int64_t stride[] = {((int64_t)1 << 31) + 3, ((int64_t)1 << 32) + 5};
    unsigned caps = f->spec->impl->caps;
    char fields[64];
    struct attn_trial x;
    if (shape->q != 16 || !attn_fixture_needs(f, ATTN_CAP_STRIDES)) /* once is enough */
        return;
    int backward = (caps & ATTN_CAP_BACKWARD) != 0;
    snprintf(fields, sizeof fields, "%s%s%s", caps & ATTN_CAP_BIAS ? ":bias=full" : "",
             backward && (caps & ATTN_CAP_DBIAS) && (caps & ATTN_CAP_BIAS) ? ":dbias=1" : "",
             backward && (caps & ATTN_CAP_DLSE) ? ":dlse=1" : "");
    if (!attn_fixture_open(f, &x, &tiny, "causal(br)", "normal:s1", ATTN_BACKWARD, fields))
        return;
    int go_on = attn_fixture_run(f, &x);
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        for (int axis = 0; axis < 4; axis++)
            for (int n = 0; n < 2 && go_on; n++)
                if (x.setup.tensor[slot].data != NULL && x.setup.tensor[slot].extent[axis] > 1)
                    go_on = on_one_axis(f, &x, slot, axis, stride[n], fields);
    attn_fixture_close(&x);
}

/* ---- I2 -------------------------------------------------------------------------------------- */

/* A stored mask of 70,000 by 70,000 cells, of which the problem is the last few rows and columns:
 * its cells lie past 2^32. */
enum { SIDE = 70000, CORNER = SIDE - 16 };

static enum attn_status find_mask(void *arg, const char *name, const char *part,
                                  struct attn_mask_tensor *tensor, struct attn_error *err)
{
    (void)name;
    (void)part;
    (void)err;
    *tensor = (struct attn_mask_tensor){arg, 1, 2, {SIDE, SIDE, 0, 0}};
    return ATTN_OK;
}

/* Cells of the corner: the pattern of the small mask dense(qk60). */
static void copy_corner(unsigned char *big, const struct attn_trial *x)
{
    const struct attn_problem *p = &x->setup.problem;
    for (int64_t i = 0; i < p->n_query; i++)
        for (int64_t j = 0; j < p->n_key; j++)
            big[(CORNER + i) * SIDE + CORNER + j] =
                (unsigned char)(attn_mask_allows(p->mask, 0, 0, i, j) != 0);
}

/* y is x's problem as a corner of the large one. */
static void corner_run(struct attn_fixture *f, const struct attn_trial *x, struct attn_trial *y,
                       unsigned char *big)
{
    const struct attn_problem *p = &x->setup.problem;
    const struct attn_mask_shape whole = {p->batch, p->heads, SIDE, SIDE};
    const struct attn_mask_source source = {find_mask, big};
    struct attn_mask *mask = NULL;
    struct attn_error err = {0};
    copy_corner(big, x);
    if (attn_mask_parse("dense(big)", &whole, &source, &mask, &err) != ATTN_OK) {
        attn_fixture_fail(f, "%.300s", err.text);
        return;
    }
    y->setup.problem.mask = mask;
    y->setup.problem.origin.query = y->setup.problem.origin.key = CORNER;
    if (attn_fixture_run(f, y))
        attn_fixture_compare_all(f, x, y, ATTN_FIXTURE_BOUNDS);
    y->setup.problem.mask = y->setup.mask;
    attn_mask_free(mask);
}

void attn_relation_wide_mask(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    const size_t bytes = (size_t)SIDE * SIDE;
    struct attn_fixture_shape s = {2, 4, 4, 12, 16, 4, 4};
    struct attn_trial x, y;
    if (shape->q != 16 || !attn_fixture_needs(f, ATTN_CAP_MASK))
        return;
    unsigned char *big = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (big == MAP_FAILED) {
        snprintf(f->refusal, sizeof f->refusal,
                 "the system gives no mapping of %zu bytes without reserve", bytes);
        return;
    }
    if (attn_fixture_open(f, &x, &s, "dense(qk60)", "normal:s2", ATTN_BACKWARD, "")) {
        if (attn_fixture_run(f, &x) &&
            attn_fixture_open(f, &y, &s, "dense(qk60)", "normal:s2", ATTN_BACKWARD, "")) {
            corner_run(f, &x, &y, big);
            attn_fixture_close(&y);
        }
        attn_fixture_close(&x);
    }
    munmap(big, bytes);
}
