/* Relations of memory: layouts, placement, and distances beyond 32 bits (bugs.md R20, F7, F12). */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/relations/relation_fixture.h"

/* ---- P2 -------------------------------------------------------------------------------------- */

/* The tensors of a trial move between inaccessible pages, which they touch at their end or at their
 * beginning.  The system kills, as it should, an implementation that reads or writes one element
 * too far; the outputs must be those of the run without. */
static int fence_in(struct attn_fixture *f, int trial, int at_end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct attn_trial *t = &f->trial[trial];
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        const struct attn_tensor *x = &t->setup.tensor[slot];
        if (x->data == NULL || x->span == 0)
            continue;
        size_t used = (size_t)x->span * attn_dtype_size(x->dtype),
               inside = (used + page - 1) / page * page;
        if (!attn_fixture_move(f, t, (enum attn_slot)slot, inside, at_end ? inside - used : 0,
                               x->stride))
            return 0;
    }
    return 1;
}

static int fences(struct attn_fixture *f)
{
    return fence_in(f, 1, 0) && fence_in(f, 2, 1);
}

/* Few queries, many keys: where splits are. */
static void decode(struct attn_fixture_shape *s, int trial)
{
    (void)trial;
    s->q = 4;
    s->k += 240;
}

/* ---- I1 -------------------------------------------------------------------------------------- */

/* The tensors are small, the distances between their elements are not: mappings without reserve
 * cost address space and the few pages that are touched.  Code that narrows an index to 32 bits
 * reads zeros elsewhere in the mapping, or leaves an output unwritten, and fails by its numbers. */
enum { STRIDES = 2, WAYS = ATTN_SLOTS * 4 * STRIDES }; /* a tensor, an axis of it, a stride */
static const int64_t wide_stride[STRIDES] = {((int64_t)1 << 31) + 3, ((int64_t)1 << 32) + 5};

/* There is room for a negative 32-bit offset in front. */
static int spread(struct attn_fixture *f, enum attn_slot slot, int axis, int64_t step)
{
    const struct attn_tensor *x = &f->trial[1].setup.tensor[slot];
    if (!f->trial[1].open || x->data == NULL || x->extent[axis] < 2)
        return 0;
    const size_t size = attn_dtype_size(x->dtype), margin = 1 << 20,
                 front = (((size_t)1 << 31) + margin) * size,
                 span = (size_t)(step * (x->extent[axis] - 1) + x->span) * size,
                 page = (size_t)sysconf(_SC_PAGESIZE),
                 bytes = (front + span + margin + page - 1) / page * page;
    int64_t stride[4];
    memcpy(stride, x->stride, sizeof stride);
    stride[axis] = step;
    return attn_fixture_move(f, &f->trial[1], slot, bytes, front, stride);
}

static int spread_next(struct attn_fixture *f)
{
    for (int *way = f->arg; ++*way < WAYS;) {
        enum attn_slot slot = (enum attn_slot)(*way / (4 * STRIDES));
        attn_fixture_move_back(&f->trial[1]);
        if (spread(f, slot, *way / STRIDES % 4, wide_stride[*way % STRIDES]))
            return 1;
    }
    return 0;
}

static void wide_strides(struct attn_fixture *f)
{
    static const char *const name[ATTN_SLOTS] = {"q", "k",   "v",  "bias", "do", "dlse",
                                                 "o", "lse", "dq", "dk",   "dv", "dbias"};
    const unsigned caps = f->spec->impl->caps;
    char fields[64];
    int way = -1;
    if (f->shape.q != 16 || !attn_fixture_needs(f, ATTN_CAP_STRIDES)) /* once is enough */
        return;
    f->shape = (struct attn_fixture_shape){2, 4, 4, 4, 8, 2, 3};
    int backward = (caps & ATTN_CAP_BACKWARD) != 0;
    snprintf(fields, sizeof fields, "%s%s%s", caps & ATTN_CAP_BIAS ? ":bias=full" : "",
             backward && (caps & ATTN_CAP_DBIAS) && (caps & ATTN_CAP_BIAS) ? ":dbias=1" : "",
             backward && (caps & ATTN_CAP_DLSE) ? ":dlse=1" : "");
    const struct attn_relation_plan plan = {.pass = ATTN_BACKWARD,
                                            .mask = "causal(br)",
                                            .fill = "normal:s1",
                                            .fields = fields,
                                            .trials = 2,
                                            .next = spread_next};
    f->arg = &way;
    attn_fixture_follow(f, &plan);
    if (f->result->verdict == ATTN_FAILED && way >= 0)
        attn_fixture_explain(f, "%s with stride %lld on axis %d", name[way / (4 * STRIDES)],
                             (long long)wide_stride[way % STRIDES], way / STRIDES % 4);
}

/* ---- I2 -------------------------------------------------------------------------------------- */

/* A stored mask of 70,000 by 70,000 cells, of which the problem is the last few rows and columns:
 * its cells lie past 2^32. */
enum { SIDE = 70000, CORNER = SIDE - 16 };

struct corner {
    unsigned char *cells;
    struct attn_mask *mask;
};

static enum attn_status find_mask(void *arg, const char *name, const char *part,
                                  struct attn_mask_tensor *tensor, struct attn_error *err)
{
    (void)name;
    (void)part;
    (void)err;
    *tensor = (struct attn_mask_tensor){arg, 1, 2, {SIDE, SIDE, 0, 0}};
    return ATTN_OK;
}

/* Trial 1 is trial 0's problem as a corner of the large one. */
static int make_corner(struct attn_fixture *f)
{
    struct corner *corner = f->arg;
    struct attn_problem *p = &f->trial[1].setup.problem;
    struct attn_problem whole;
    struct attn_case c = f->trial[1].setup.given;
    const struct attn_mask_source source = {find_mask, corner->cells};
    struct attn_error err = {0};
    if (!f->trial[1].open)
        return 0;
    for (int64_t i = 0; i < p->n_query; i++)
        for (int64_t j = 0; j < p->n_key; j++)
            corner->cells[(CORNER + i) * SIDE + CORNER + j] =
                (unsigned char)(attn_mask_allows(p->mask, 0, 0, i, j) != 0);
    c.n_query = c.n_key = SIDE;
    attn_case_set_mask(&c, "dense(big)");
    if (attn_case_open(&c, &source, &whole, &corner->mask, &err) != ATTN_OK) {
        attn_fixture_fail(f, ATTN_F_BOUND, "%.300s", err.text);
        return 0;
    }
    p->mask = corner->mask;
    p->origin.query.first = p->origin.key.first = CORNER;
    return 1;
}

static void wide_mask(struct attn_fixture *f)
{
    static const struct attn_relation_plan plan = {.needs = ATTN_CAP_MASK,
                                                   .pass = ATTN_BACKWARD,
                                                   .mask = "dense(qk60)",
                                                   .fill = "normal:s2",
                                                   .trials = 2,
                                                   .prepare = make_corner};
    const size_t bytes = (size_t)SIDE * SIDE;
    struct corner corner = {NULL, NULL};
    if (f->shape.q != 16 || !attn_fixture_needs(f, ATTN_CAP_MASK)) /* once is enough */
        return;
    corner.cells = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (corner.cells == MAP_FAILED) {
        snprintf(f->refusal, sizeof f->refusal,
                 "the system gives no mapping of %zu bytes without reserve", bytes);
        return;
    }
    f->arg = &corner;
    f->shape = (struct attn_fixture_shape){2, 4, 4, 12, 16, 4, 4};
    attn_fixture_follow(f, &plan);
    attn_mask_free(corner.mask);
    munmap(corner.cells, bytes);
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct attn_relation_plan attn_relations_of_memory[] = {
    {"R20", .needs = ATTN_CAP_STRIDES, .pass = ATTN_BACKWARD, .mask = "causal(br)",
     .fill = "normal:s4", .trials = 5,
     .own = {[1] = {.fields = ":layout=blhd"},
             [2] = {.fields = ":layout=padded"},
             [3] = {.fields = ":layout=packed"},
             [4] = {.fields = ":layout=mixed"}}},
    {"P1", .pass = ATTN_BACKWARD, .mask = "causal(br)", .fill = "normal:s8", .trials = 5,
     .own = {[1] = {.fields = ":offset=1"},
             [2] = {.fields = ":offset=2"},
             [3] = {.fields = ":offset=3"},
             [4] = {.fields = ":offset=7"}}},
    {"P2", .pass = ATTN_BACKWARD, .mask = "causal(br)", .fill = "normal:s9", .trials = 3,
     .prepare = fences},
    {"P2", .pass = ATTN_BACKWARD, .mask = "causal(br)", .fill = "normal:s9", .trials = 3,
     .shape = decode, .prepare = fences},
    {"I1", .run = wide_strides},
    {"I2", .run = wide_mask},
    {.id = NULL}};
