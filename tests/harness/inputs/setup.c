/* See setup.h: mask, tensors in their layouts, data, poison. */
#include "tests/harness/inputs/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/bound/kept.h"
#include "tests/harness/inputs/setup_fill.h"
#include "tests/harness/inputs/setup_mask.h"
#include "tests/harness/inputs/subsets.h"

/* ---- layouts --------------------------------------------------------------------------------- */

enum axis { AXIS_B = 1, AXIS_H = 2, AXIS_I = 4, AXIS_C = 8 }; /* bits of attn_tensor_alloc */

static unsigned broadcast_of(const struct attn_case *c, int slot)
{
    if (slot == ATTN_T_BIAS || slot == ATTN_T_DBIAS)
        return c->bias == ATTN_CASE_BIAS_HEAD  ? AXIS_B
               : c->bias == ATTN_CASE_BIAS_ROW ? AXIS_B | AXIS_H
               : c->bias == ATTN_CASE_BIAS_KEY ? AXIS_H | AXIS_I
                                               : 0;
    if (c->layout != ATTN_LAYOUT_BROADCAST)
        return 0;
    /* The gradient of a plain sum is one number seen through four zero strides. */
    if (slot == ATTN_T_DO && c->fill == ATTN_FILL_ONES)
        return AXIS_B | AXIS_H | AXIS_I | AXIS_C;
    return slot == ATTN_T_K || slot == ATTN_T_V || slot == ATTN_T_DO ? AXIS_B : 0;
}

static enum attn_status open_tensor(struct attn_setup *s, int slot, struct attn_error *err)
{
    const struct attn_case own = attn_slot_case(&s->given, slot), *c = &own;
    struct attn_tensor *t = &s->tensor[slot];
    int64_t extent[4];
    attn_slot_extents(c, slot, extent);
    if (s->part != NULL)
        s->part->extent(s->part, slot, extent);
    enum attn_dtype dtype = c->dtype;
    if (slot >= ATTN_T_O)
        dtype = attn_result_dtype(&s->problem);
    if (slot == ATTN_T_LSE || slot == ATTN_T_DLSE || slot == ATTN_T_BIAS || slot == ATTN_T_DBIAS ||
        attn_slot[slot].rows == ATTN_SLOT_HEADS)
        dtype = c->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    if ((slot == ATTN_T_BIAS || slot == ATTN_T_DBIAS) && c->bias_type != ATTN_BIAS_TYPE_AS_LSE)
        dtype = c->bias_type == ATTN_BIAS_TYPE_F64 ? ATTN_F64 : ATTN_F32;
    int token_major = c->layout == ATTN_LAYOUT_BLHD || c->layout == ATTN_LAYOUT_PACKED;
    const char *order = c->layout == ATTN_LAYOUT_MIXED  ? attn_slot[slot].mixed
                        : c->layout == ATTN_LAYOUT_SBHD ? "ibhc"
                        : token_major                   ? "bihc"
                                                        : "bhic";
    enum { GAP = 5 }; /* odd: rows start at every alignment */
    int padded = c->layout == ATTN_LAYOUT_PADDED;
    enum attn_status status =
        attn_tensor_alloc(t, attn_slot[slot].name, dtype, extent, order, padded ? GAP : 0,
                          c->offset, broadcast_of(c, slot), err);
    if (status == ATTN_OK && (c->layout == ATTN_LAYOUT_NEG || c->layout == ATTN_LAYOUT_FLIP))
        attn_tensor_flip(t,
                         AXIS_B | AXIS_H | AXIS_I | (c->layout == ATTN_LAYOUT_FLIP ? AXIS_C : 0));
    /* The stride of an axis of one means nothing and may be anything. */
    for (int axis = 0; axis < 3 && padded && status == ATTN_OK; axis++)
        if (extent[axis] == 1)
            t->stride[axis] = (int64_t)1 << 33;
    return status;
}

/* Nothing is copied: what is written to one is there in the other. */
static void share_keys(struct attn_setup *s)
{
    struct attn_tensor *v = &s->tensor[ATTN_T_V];
    *v = s->tensor[ATTN_T_K];
    v->name = attn_slot[ATTN_T_V].name;
    v->own = NULL;
    v->shared = 1;
    v->extent[3] = s->given.d_value;
}

static enum attn_status open_tensors(struct attn_setup *s, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    int packed = s->given.layout == ATTN_LAYOUT_PACKED;
    if (packed) {
        int64_t extent[3][4];
        for (int slot = ATTN_T_Q; slot <= ATTN_T_V; slot++)
            attn_slot_extents(&s->given, slot, extent[slot]);
        status = attn_tensor_pack(&s->tensor[ATTN_T_Q], &s->tensor[ATTN_T_K], &s->tensor[ATTN_T_V],
                                  s->given.dtype, extent[ATTN_T_Q], extent[ATTN_T_K],
                                  extent[ATTN_T_V], s->given.offset, err);
    }
    for (int slot = packed ? ATTN_T_BIAS : ATTN_T_Q; slot < ATTN_SLOTS && status == ATTN_OK; slot++)
        if (slot == ATTN_T_V && s->given.kv_shared)
            share_keys(s);
        else if (attn_case_has(&s->given, slot))
            status = open_tensor(s, slot, err);
    return status;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Number of distinct indices along an axis: one where the stride is 0. */
static int64_t distinct(const struct attn_tensor *t, int axis)
{
    return t->extent[axis] > 1 && t->stride[axis] == 0 ? 1 : t->extent[axis];
}

/* Every input, once for each distinct element; one that the case does not have has none. */
static void fill_tensors(struct attn_setup *s, struct attn_recipe *r)
{
    for (int slot = ATTN_T_Q; slot < ATTN_T_O; slot++) {
        const struct attn_tensor *t = &s->tensor[slot];
        if (slot == ATTN_T_V && s->given.kv_shared)
            continue;
        const int64_t extent[4] = {distinct(t, 0), distinct(t, 1), distinct(t, 2), distinct(t, 3)};
        attn_recipe_fill(r, s->part, (enum attn_slot)slot, extent, t);
    }
}

/* bias=nan: in every fifth row one cell that the row sees. */
static void fill_nan(struct attn_setup *s, const struct attn_recipe *r)
{
    const int64_t rows[4] = {s->problem.batch, s->problem.heads, s->problem.n_query, 1};
    for (int64_t at[4] = ATTN_START; attn_each(at, rows);) {
        int64_t j =
            (at[0] + at[1] + at[2]) % 5 == 2 ? attn_recipe_target(r, at[0], at[1], at[2]) : -1;
        if (j >= 0)
            attn_tensor_set(&s->tensor[ATTN_T_BIAS], at[0], at[1], at[2], j, (double)NAN);
    }
}

/* special=: two rows of a tensor, in every head whose number and batch add up to an even one. */
static void fill_special(struct attn_setup *s)
{
    enum attn_case_special special = s->given.special;
    enum { STREAM_ROW = 64, STREAM_FEATURE };
    static const struct {
        enum attn_slot slot;
        double first, second;
    } what[] = {[ATTN_SPECIAL_Q_NAN] = {ATTN_T_Q, (double)NAN, (double)NAN},
                [ATTN_SPECIAL_K_NAN] = {ATTN_T_K, (double)NAN, (double)NAN},
                [ATTN_SPECIAL_V_NAN] = {ATTN_T_V, (double)NAN, (double)NAN},
                [ATTN_SPECIAL_DO_NAN] = {ATTN_T_DO, (double)NAN, (double)NAN},
                [ATTN_SPECIAL_Q_INF] = {ATTN_T_Q, (double)INFINITY, -(double)INFINITY},
                [ATTN_SPECIAL_K_INF] = {ATTN_T_K, (double)INFINITY, -(double)INFINITY},
                [ATTN_SPECIAL_V_INF] = {ATTN_T_V, (double)INFINITY, -(double)INFINITY},
                [ATTN_SPECIAL_DO_INF] = {ATTN_T_DO, (double)INFINITY, -(double)INFINITY},
                [ATTN_SPECIAL_K_HUGE] = {ATTN_T_K, 0, 0}};
    /* times a q of 2 or 3, the domain is left; times one of 8, so is the type */
    static const double huge[ATTN_DTYPES] = {0x1p1023, 0x1p127, 0x1p127, 0x1p15};
    struct attn_tensor *t = &s->tensor[what[special].slot];
    uint64_t seed = s->given.seed, at = 0;
    for (int64_t b = 0; b < distinct(t, 0); b++)
        for (int64_t h = b % 2; h < distinct(t, 1); h += 2)
            for (int n = 0; n < 2 && t->extent[2] > 0 && t->extent[3] > 0; n++, at++) {
                int64_t i = (int64_t)(attn_hash(seed, STREAM_ROW, at) % (uint64_t)t->extent[2]);
                int64_t c = (int64_t)(attn_hash(seed, STREAM_FEATURE, at) % (uint64_t)t->extent[3]);
                double x = n == 0 ? what[special].first : what[special].second;
                if (special == ATTN_SPECIAL_K_HUGE)
                    x = copysign(huge[s->given.dtype], attn_tensor_get(t, b, h, i, c));
                attn_tensor_set(t, b, h, i, c, x);
            }
}

/* ---- poison ---------------------------------------------------------------------------------- */

int attn_setup_sees(const struct attn_setup *s, int64_t b, int64_t h, int64_t i)
{
    struct attn_run run = {0, 0};
    return attn_problem_next(&s->problem, b, h, i, &run);
}

/* Returns 1 if a query in one of `batches` batches, from b on, sees row j of kv head g. */
static int key_is_seen(const struct attn_problem *p, int64_t b, int64_t batches, int64_t g,
                       int64_t j)
{
    const int64_t group = p->heads / p->kv_heads, rows[4] = {batches, group, p->n_query, 1};
    for (int64_t at[4] = ATTN_START; attn_each(at, rows);)
        if (attn_problem_allows(p, b + at[0], g * group + at[1], at[2], j))
            return 1;
    return 0;
}

static void poison_row(struct attn_tensor *t, const int64_t at[4], double x)
{
    for (int64_t c = 0; c < t->extent[3]; c++)
        attn_tensor_set(t, at[0], at[1], at[2], c, x);
}

/* One batch of K and V may serve all. */
static void poison_keys(struct attn_setup *s, double x)
{
    const struct attn_problem *p = &s->problem;
    int is_shared = s->given.layout == ATTN_LAYOUT_BROADCAST && p->batch > 0;
    const int64_t rows[4] = {is_shared ? 1 : p->batch, p->kv_heads, p->n_key, 1};
    for (int64_t at[4] = ATTN_START; attn_each(at, rows);)
        if (!key_is_seen(p, at[0], is_shared ? p->batch : 1, at[1], at[2])) {
            poison_row(&s->tensor[ATTN_T_K], at, x);
            poison_row(&s->tensor[ATTN_T_V], at, x);
        }
}

/* q and dO of rows that see nothing; a dO shared by batches is left alone. */
static void poison_queries(struct attn_setup *s, double x)
{
    const struct attn_problem *p = &s->problem;
    const int64_t rows[4] = {p->batch, p->heads, p->n_query, 1};
    for (int64_t at[4] = ATTN_START; attn_each(at, rows);) {
        if (attn_setup_sees(s, at[0], at[1], at[2]))
            continue;
        poison_row(&s->tensor[ATTN_T_Q], at, x);
        if (s->given.pass == ATTN_BACKWARD && s->given.layout != ATTN_LAYOUT_BROADCAST)
            poison_row(&s->tensor[ATTN_T_DO], at, x);
    }
}

/* A hidden cell's bias must not matter as long as it is finite: in 16 bits a number of the type,
 * with room for a score beside it. */
static void poison_bias(struct attn_setup *s)
{
    static const double big[ATTN_DTYPES] = {1e30, 1e30, 0x1p100, 0x1p15};
    const struct attn_problem *p = &s->problem;
    if (s->given.bias != ATTN_CASE_BIAS_FULL && s->given.bias != ATTN_CASE_BIAS_INF &&
        s->given.bias != ATTN_CASE_BIAS_NAN)
        return;
    struct attn_tensor *bias = &s->tensor[ATTN_T_BIAS];
    int64_t at[4] = ATTN_START;
    while (attn_each(at, bias->extent))
        if (!attn_problem_allows(p, at[0], at[1], at[2], at[3]))
            attn_tensor_set(bias, at[0], at[1], at[2], at[3], big[s->given.dtype]);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void set_scattered(struct attn_setup *s)
{
    struct attn_forward f = attn_setup_forward(s);
    struct attn_backward b = attn_setup_backward(s);
    s->problem.scattered = s->given.pass == ATTN_BACKWARD ? attn_scattered_backward(&s->problem, &b)
                                                          : attn_scattered_forward(&s->problem, &f);
}

/* The problem with its mask. */
static enum attn_status open_problem(struct attn_setup *s, struct attn_error *err)
{
    struct attn_mask_maker maker = {&s->given, &s->made};
    const struct attn_mask_source source = {attn_made_tensor_find, &maker};
    enum attn_status status = attn_case_open(&s->given, &source, &s->problem, &s->mask, err);
    if (attn_mask_is_none(s->mask))
        s->problem.mask = NULL;
    return status;
}

static enum attn_status open_bias(struct attn_setup *s, struct attn_error *err)
{
    struct attn_problem *p = &s->problem;
    if (attn_case_has(&s->given, ATTN_T_BIAS))
        p->bias.kind = ATTN_BIAS_TENSOR;
    p->sink.given = attn_case_has(&s->given, ATTN_T_SINK);
    p->sink.tensor.dtype = attn_lse_dtype(p);
    if (s->given.bias != ATTN_CASE_BIAS_ALIBI)
        return ATTN_OK;
    s->slope = calloc((size_t)p->heads + 1, sizeof *s->slope);
    if (s->slope == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %lld slopes", (long long)p->heads);
    for (int64_t h = 0; h < p->heads; h++)
        s->slope[h] = attn_recipe_slope(&s->given, h);
    p->bias.kind = ATTN_BIAS_ALIBI;
    p->bias.slope = s->slope;
    p->bias.offset = s->given.has_alibi_offset ? s->given.alibi_offset : p->n_key - p->n_query;
    return ATTN_OK;
}

static void load(struct attn_setup *s, struct attn_recipe *recipe)
{
    fill_tensors(s, recipe);
    if (s->given.bias == ATTN_CASE_BIAS_NAN)
        fill_nan(s, recipe);
    if (s->given.special != ATTN_SPECIAL_NONE)
        fill_special(s);
    if (s->given.poison != ATTN_POISON_NONE) {
        double big = s->given.dtype == ATTN_F16 ? 65504 : 1e30; /* finite in its type */
        double x = s->given.poison == ATTN_POISON_NAN ? (double)NAN : big;
        poison_keys(s, x);
        poison_queries(s, x);
        poison_bias(s);
    }
    attn_setup_poison(s);
    attn_setup_remember(s, ATTN_FORWARD);
}

void attn_setup_poison(struct attn_setup *s)
{
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS; slot++)
        if (s->tensor[slot].map != NULL)
            attn_tensor_poison(&s->tensor[slot]);
}

void attn_setup_remember(struct attn_setup *s, enum attn_pass pass)
{
    int first = pass == ATTN_BACKWARD ? ATTN_T_O : 0;
    for (int slot = first; slot < (pass == ATTN_BACKWARD ? ATTN_T_DQ : ATTN_T_O); slot++)
        attn_tensor_remember(&s->tensor[slot]);
}

static enum attn_status open_subsets(struct attn_setup *s, struct attn_error *err)
{
    const struct attn_case *c = &s->given;
    if (c->d_lse || c->special != ATTN_SPECIAL_NONE || c->layout == ATTN_LAYOUT_BROADCAST)
        return attn_fail(err, ATTN_EINVAL,
                         "fill subsets with dlse, special= or layout=broadcast: its answer would "
                         "be another; any other fill would work, or none of these");
    return attn_subsets_open(&s->problem, c->seed, &s->subsets, err);
}

enum attn_status attn_setup_describe(const struct attn_case *c, struct attn_setup *s,
                                     struct attn_error *err)
{
    memset(s, 0, sizeof *s);
    s->given = *c;
    struct attn_recipe recipe;
    enum attn_status status = open_problem(s, err);
    if (status == ATTN_OK)
        status = attn_recipe_open(&s->given, &s->problem, &recipe, err);
    if (status == ATTN_OK)
        status = open_bias(s, err);
    if (status == ATTN_OK && c->fill == ATTN_FILL_SUBSETS)
        status = open_subsets(s, err);
    if (status != ATTN_OK)
        attn_setup_close(s);
    return status;
}

enum attn_status attn_setup_open_part(const struct attn_case *c, const struct attn_setup_part *part,
                                      struct attn_setup *s, struct attn_error *err)
{
    struct attn_recipe recipe;
    enum attn_status status = attn_setup_describe(c, s, err);
    s->part = part;
    if (status == ATTN_OK && part != NULL)
        status = attn_recipe_is_all(c, err);
    if (status == ATTN_OK)
        status = open_tensors(s, err);
    if (status == ATTN_OK) {
        set_scattered(s);
        if (s->problem.bias.kind == ATTN_BIAS_TENSOR)
            s->problem.bias.tensor = attn_tensor_cview(&s->tensor[ATTN_T_BIAS]);
        if (s->problem.sink.given)
            s->problem.sink.tensor = attn_tensor_cview(&s->tensor[ATTN_T_SINK]);
        status = attn_problem_check(&s->problem, err);
    }
    if (status == ATTN_OK)
        status = attn_recipe_open(&s->given, &s->problem, &recipe, err);
    recipe.subsets = s->subsets;
    if (status == ATTN_OK)
        load(s, &recipe);
    else
        attn_setup_close(s);
    s->part = NULL;
    return status;
}

void attn_setup_close(struct attn_setup *s)
{
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        attn_tensor_free(&s->tensor[slot]);
    attn_mask_free(s->mask);
    attn_made_tensor_free(s->made);
    free(s->slope);
    attn_subsets_close(s->subsets);
    if (s->kept != NULL)
        attn_kept_close(s->kept);
    free(s->kept);
    memset(s, 0, sizeof *s);
}

void attn_setup_keep(struct attn_setup *s)
{
    if (s->kept == NULL && (s->kept = malloc(sizeof *s->kept)) != NULL)
        attn_kept_open(&s->problem, 1, s->kept);
}

/* ---- views and digests ----------------------------------------------------------------------- */

struct attn_forward attn_setup_forward(const struct attn_setup *s)
{
    const struct attn_tensor *t = s->tensor;
    return (struct attn_forward){.q = attn_tensor_cview(&t[ATTN_T_Q]),
                                 .k = attn_tensor_cview(&t[ATTN_T_K]),
                                 .v = attn_tensor_cview(&t[ATTN_T_V]),
                                 .o = attn_tensor_view(&t[ATTN_T_O]),
                                 .lse = attn_tensor_view(&t[ATTN_T_LSE])};
}

struct attn_backward attn_setup_backward(const struct attn_setup *s)
{
    const struct attn_tensor *t = s->tensor;
    const struct attn_tensor *dv = &t[s->given.kv_shared ? ATTN_T_DK : ATTN_T_DV];
    return (struct attn_backward){.q = attn_tensor_cview(&t[ATTN_T_Q]),
                                  .k = attn_tensor_cview(&t[ATTN_T_K]),
                                  .v = attn_tensor_cview(&t[ATTN_T_V]),
                                  .o = attn_tensor_cview(&t[ATTN_T_O]),
                                  .lse = attn_tensor_cview(&t[ATTN_T_LSE]),
                                  .d_o = attn_tensor_cview(&t[ATTN_T_DO]),
                                  .d_lse = attn_tensor_cview(&t[ATTN_T_DLSE]),
                                  .dq = attn_tensor_view(&t[ATTN_T_DQ]),
                                  .dk = attn_tensor_view(&t[ATTN_T_DK]),
                                  .dv = attn_tensor_view(dv),
                                  .dbias = attn_tensor_view(&t[ATTN_T_DBIAS]),
                                  .dsink = attn_tensor_view(&t[ATTN_T_DSINK])};
}

enum attn_status attn_setup_call(const struct attn_setup *s, const struct attn_impl *impl,
                                 struct attn_ctx *ctx, enum attn_pass pass)
{
    if (pass == ATTN_FORWARD) {
        struct attn_forward t = attn_setup_forward(s);
        return attn_run_forward(impl, ctx, &s->problem, &t);
    }
    struct attn_backward t = attn_setup_backward(s);
    return attn_run_backward(impl, ctx, &s->problem, &t);
}

struct attn_inputs attn_setup_inputs(const struct attn_setup *s, enum attn_pass pass)
{
    const struct attn_tensor *t = s->tensor;
    struct attn_inputs in = {.q = attn_tensor_cview(&t[ATTN_T_Q]),
                             .k = attn_tensor_cview(&t[ATTN_T_K]),
                             .v = attn_tensor_cview(&t[ATTN_T_V]),
                             .has_stored = 1,
                             .keys = s->subsets != NULL ? attn_subsets_keys : NULL,
                             .keys_arg = s->subsets,
                             .kept = s->kept};
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        in.stored[o] = t[ATTN_T_O + o].stored;
    if (pass != ATTN_BACKWARD)
        return in;
    in.d_o = attn_tensor_cview(&t[ATTN_T_DO]);
    if (t[ATTN_T_DLSE].data != NULL)
        in.d_lse = attn_tensor_cview(&t[ATTN_T_DLSE]);
    in.want_d_bias = t[ATTN_T_DBIAS].data != NULL;
    in.want_d_sink = t[ATTN_T_DSINK].data != NULL;
    return in;
}

int64_t attn_setup_bytes(const struct attn_setup *s)
{
    int64_t bytes = 0;
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        if (!s->tensor[slot].shared)
            bytes += s->tensor[slot].span * (int64_t)attn_dtype_size(s->tensor[slot].dtype);
    return bytes;
}

static void seal_all(void *arg, int sealed)
{
    struct attn_setup *s = arg;
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        if (slot != ATTN_T_BIAS && slot != ATTN_T_DBIAS && attn_slot[slot].rows != ATTN_SLOT_HEADS)
            attn_tensor_seal(&s->tensor[slot], sealed);
}

struct attn_seal attn_setup_seal(struct attn_setup *s)
{
    return (struct attn_seal){seal_all, s};
}

/* Row `at` of a tensor, which is row `whole` of the whole one. */
static uint64_t row_hash(const struct attn_setup *s, int slot, const int64_t at[4],
                         const int64_t whole[4])
{
    const int64_t place[] = {slot, whole[0], whole[1], whole[2]};
    uint64_t hash = 0xcbf29ce484222325u;
    for (int n = 0; n < 4; n++)
        hash = (hash ^ (uint64_t)place[n]) * 0x100000001b3u;
    hash = attn_tensor_row_digest(&s->tensor[slot], at, hash);
    hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u; /* or sums of like rows would be alike */
    return hash ^ hash >> 29;
}

uint64_t attn_setup_digest(const struct attn_setup *s, const struct attn_setup_part *part,
                           enum attn_pass pass)
{
    uint64_t digest = 0;
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS; slot++) {
        const int64_t *extent = s->tensor[slot].extent;
        const int64_t rows[4] = {extent[0], extent[1], extent[2], extent[3] > 0};
        if (pass != ATTN_BACKWARD && slot > ATTN_T_LSE)
            break;
        for (int64_t at[4] = ATTN_START; attn_each(at, rows);) {
            int64_t whole[4] = {at[0], at[1], at[2], 0};
            if (part != NULL)
                part->whole(part, slot, whole);
            digest += whole[0] < 0 ? 0 : row_hash(s, slot, at, whole); /* < 0: a pad */
        }
    }
    return digest;
}
