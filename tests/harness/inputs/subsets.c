/* See subsets.h. */
#include "tests/harness/inputs/subsets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/mask/mask.h"
#include "ref/problem.h"
#include "tests/harness/base/fill.h"
#include "tests/harness/inputs/subsets_cut.h"

enum { FEW = 8, MOST_BITS = 17, NO_SET = ATTN_NO_SUBSET };

struct attn_subsets {
    uint64_t seed;
    int64_t batch, group, n_query, n_key, d, dv;
    int bits, offsets; /* m, and the powers of two in it */
    int is_large;
    int64_t marks; /* features behind the offsets that keys mark in turn */
    double w, sign, unit, unit_grad;
    double alone; /* in q: makes the score of a key that is alone 2 to 4, or as much below 0 */
    int n_layouts;
    struct attn_subset_layout *layout; /* [batch] room */
    int *layout_of;                    /* [batch] */
};

/* ---- opening --------------------------------------------------------------------------------- */

static enum attn_status check(const struct attn_problem *p, struct attn_error *err)
{
    double size = fabs(p->scale);
    if (p->softcap > 0 || p->bias.kind != ATTN_BIAS_NONE)
        return attn_fail(err, ATTN_EINVAL,
                         "fill subsets with %s: scores would no longer be 0 or below -200; any "
                         "other fill would work, or neither softcap nor bias",
                         p->softcap > 0 ? "a softcap" : "a bias");
    if (!(size >= 0x1p-10 && size <= 0x1p10))
        return attn_fail(err, ATTN_EINVAL,
                         "fill subsets with scale=%g: no gap of 200 fits; 2^-10 to 2^10 would work",
                         p->scale);
    if (p->d_key < 3 || p->d_value < 1 || p->n_query < 1 || p->n_key < 1 || p->batch < 1 ||
        p->heads < 1)
        return attn_fail(err, ATTN_EINVAL,
                         "fill subsets: d is %lld and dv %lld: a code, its offset and a mark need "
                         "d=3 or more, and no extent may be 0",
                         (long long)p->d_key, (long long)p->d_value);
    return ATTN_OK;
}

/* w: for one query scores go below -5e4, but in f16, where products would pass its largest number
 * if they are stored. */
static void choose_numbers(const struct attn_problem *p, struct attn_subsets *s)
{
    int far = p->n_query == 1 && (p->dtype == ATTN_F32 || p->dtype == ATTN_BF16);
    double gap = p->dtype == ATTN_F64 ? 800 : far ? 0x1p16 : 200;
    int64_t largest = 1, all = s->d - s->bits - s->offsets;
    for (int n = 0; n < s->n_layouts; n++)
        for (int t = 0; t < s->layout[n].n; t++)
            largest = s->layout[n].set[t].n > largest ? s->layout[n].set[t].n : largest;
    for (s->alone = 0x1p-9; s->alone * fabs(p->scale) < 2;)
        s->alone *= 2;
    for (s->w = 0x1p-8; 2 * s->w * s->w * fabs(p->scale) < gap + 4;)
        s->w *= 2;
    s->marks = largest / 16 > FEW ? largest / 16 : FEW; /* 16 keys each, or fewer */
    s->marks = s->marks < all && s->is_large ? s->marks : all;
    s->sign = p->scale < 0 ? -1 : 1;
    s->unit = s->unit_grad = 1;
    while (4 * s->unit / (double)largest < 0x1p-13) /* o and dV stay normal numbers of f16 */
        s->unit *= 2;
    while (s->unit_grad / (double)largest < 0x1p-13)
        s->unit_grad *= 2;
}

static enum attn_status open_batch(const struct attn_problem *p, struct attn_subsets *s, int64_t b,
                                   struct attn_error *err)
{
    struct attn_subset_layout *x = &s->layout[s->n_layouts];
    if (b > 0 && (p->mask == NULL || !attn_mask_varies_by_batch(p->mask))) {
        s->layout_of[b] = 0;
        return ATTN_OK;
    }
    *x = (struct attn_subset_layout){
        .n_query = s->n_query, .n_key = s->n_key, .group = s->group, .d = s->d, .bits = s->bits};
    s->layout_of[b] = s->n_layouts++; /* from here on it is freed with the others */
    enum attn_status status = attn_subset_layout_read(p, b, x, err);
    for (int n = 0; n < s->layout_of[b] && status == ATTN_OK; n++)
        if (memcmp(s->layout[n].lo, x->lo, 2 * (size_t)s->n_query * sizeof *x->lo) == 0) {
            attn_subset_layout_free(x);
            s->n_layouts--;
            s->layout_of[b] = n;
            return ATTN_OK;
        }
    return status == ATTN_OK ? attn_subset_layout_cut(x, err) : status;
}

/* Bits of codes that leave a third of the features, or one, for marks. */
static int most_bits(int64_t d)
{
    int64_t marks = (d - 1) / 3 > 1 ? (d - 1) / 3 : 1;
    int bits = 1;
    while (bits < MOST_BITS && bits + 1 + __builtin_popcount((unsigned)bits + 1) + marks <= d)
        bits++;
    return bits;
}

enum attn_status attn_subsets_open(const struct attn_problem *p, uint64_t seed,
                                   struct attn_subsets **subsets, struct attn_error *err)
{
    enum attn_status status = check(p, err);
    struct attn_subsets *s = status == ATTN_OK ? calloc(1, sizeof *s) : NULL;
    if (status != ATTN_OK)
        return status;
    int most = 1, ok = s != NULL;
    if (ok) {
        *s = (struct attn_subsets){.seed = seed,
                                   .batch = p->batch,
                                   .group = p->heads / p->kv_heads,
                                   .n_query = p->n_query,
                                   .n_key = p->n_key,
                                   .d = p->d_key,
                                   .dv = p->d_value,
                                   .bits = most_bits(p->d_key)};
        s->layout = calloc((size_t)p->batch + 1, sizeof *s->layout);
        s->layout_of = calloc((size_t)p->batch + 1, sizeof *s->layout_of);
        ok = s->layout != NULL && s->layout_of != NULL;
    }
    if (!ok)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for subsets of keys");
    for (int64_t b = 0; b < p->batch && status == ATTN_OK; b++)
        status = open_batch(p, s, b, err);
    if (status != ATTN_OK) {
        attn_subsets_close(s);
        return status;
    }
    for (int n = 0; n < s->n_layouts; n++)
        while (most < s->bits && 1 << most < s->layout[n].n)
            most++;
    s->bits = most; /* no more than they need: the others become marks */
    s->offsets = __builtin_popcount((unsigned)most);
    s->is_large = attn_product(attn_product(p->batch, p->heads), p->n_query) * p->d_key +
                      attn_product(attn_product(p->batch, p->kv_heads), p->n_key) * p->d_value >
                  1 << 18;
    choose_numbers(p, s);
    *subsets = s;
    return ATTN_OK;
}

void attn_subsets_close(struct attn_subsets *s)
{
    if (s == NULL)
        return;
    for (int n = 0; s->layout != NULL && n < s->n_layouts; n++)
        attn_subset_layout_free(&s->layout[n]);
    free(s->layout);
    free(s->layout_of);
    free(s);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const struct attn_subset_layout *layout_of(const struct attn_subsets *s, int64_t b)
{
    return &s->layout[s->layout_of[b]];
}

static int choice_of(const struct attn_subsets *s, int64_t b, int64_t h, int64_t i)
{
    const struct attn_subset_layout *x = layout_of(s, b);
    return x->choice[(x->is_shared ? h % s->group * s->n_query : 0) + i];
}

int64_t attn_subsets_keys(const void *subsets, int64_t b, int64_t h, int64_t i, int64_t *key)
{
    const struct attn_subsets *s = subsets;
    const struct attn_subset_layout *x = layout_of(s, b);
    int t = choice_of(s, b, h, i);
    int64_t n = 0;
    for (int64_t r = 0; t != NO_SET && r < x->set[t].n; r++) {
        int64_t j = x->set[t].first + r * x->set[t].step;
        if (x->lo[i] <= j && j < x->hi[i])
            key[n++] = j;
    }
    return n;
}

/* How many keys of its subset row [b,h,i] sees; *from: the place of the first in the subset. */
static int64_t count(const struct attn_subsets *s, int64_t b, int64_t h, int64_t i, int64_t *from)
{
    const struct attn_subset_layout *x = layout_of(s, b);
    int t = choice_of(s, b, h, i);
    if (t == NO_SET)
        return 0;
    const struct attn_subset *set = &x->set[t];
    int64_t lo = x->lo[i] - set->first, hi = x->hi[i] - set->first;
    int64_t to = hi <= 0 ? 0 : (hi + set->step - 1) / set->step;
    *from = lo <= 0 ? 0 : (lo + set->step - 1) / set->step;
    return (to < set->n ? to : set->n) - *from;
}

int64_t attn_subsets_count(const struct attn_subsets *s, int64_t b, int64_t h, int64_t i)
{
    int64_t from;
    return count(s, b, h, i, &from);
}

void attn_subsets_judged(const struct attn_subsets *s, int64_t *d, int64_t *dv)
{
    *d = s->bits + s->offsets + s->marks;
    *dv = s->is_large && s->dv > FEW ? FEW : s->dv;
}

double attn_subsets_unit(const struct attn_subsets *s)
{
    return s->unit;
}

int64_t attn_subsets_covered(const struct attn_subsets *s, int64_t b, int each_head, int64_t *seen)
{
    const struct attn_subset_layout *x = layout_of(s, b);
    int64_t covered = 0, n = 0;
    for (int t = 0; t < x->n; t++) {
        int64_t heads = x->is_shared ? s->group : 1, by = 0;
        for (int64_t h = 0; h < heads; h++) {
            int64_t i = 0;
            while (i < s->n_query &&
                   !(x->choice[h * s->n_query + i] == t && attn_subset_is_seen(x, i, &x->set[t])))
                i++;
            by += i < s->n_query;
        }
        covered += by >= (each_head ? heads : 1) ? x->set[t].n : 0;
        n += x->set[t].n;
    }
    *seen = n;
    return covered;
}

/* ---- values ---------------------------------------------------------------------------------- */

enum stream { STREAM_CODE = 301, STREAM_SUM, STREAM_TURN, STREAM_GRAD };

/* Of a subset of a kv head. */
static uint64_t hash(const struct attn_subsets *s, enum stream stream, int64_t b, int64_t g, int t,
                     int64_t c)
{
    uint64_t head = ((uint64_t)b << 40) + ((uint64_t)g << 20);
    return attn_hash(s->seed, (uint64_t)stream + ((uint64_t)c << 32), head + (uint64_t)(t + 1));
}

/* A bit for each feature of the code of a subset. */
static uint64_t code(const struct attn_subsets *s, int64_t b, int64_t g, int t)
{
    return (uint64_t)(t + 1) ^ hash(s, STREAM_CODE, b, g, 0, 0);
}

static int64_t grad_feature(const struct attn_subsets *s, int64_t b, int64_t g, int t)
{
    int64_t among = s->is_large && s->dv > FEW ? FEW : s->dv;
    return (int64_t)(hash(s, STREAM_GRAD, b, g, t, 0) % (uint64_t)among);
}

/* S of n values: even or odd as n is.  dS is 0 where all values of the feature of dO are equal:
 * there S is at most n / 2. */
static int64_t sum_of(uint64_t hash, int64_t n, int is_grad)
{
    int64_t top = n / 2 < 16 ? n / 2 : 16, low = top < 4 ? top : 4, size;
    if (n < 3)
        return n == 2 && is_grad ? 0 : hash & 1 ? n : -n;
    size = low + (int64_t)((hash >> 1) % (uint64_t)(top - low + 1));
    if ((size + n) % 2 != 0)
        size += size > low ? -1 : 1;
    return hash & 1 ? size : -size;
}

/* +-1 of the value number r of a subset: (n + S) / 2 of them +1, spread evenly, so that sums over
 * part of the keys stay small too.  place: 5/8 r n mod n, or r. */
static double value(uint64_t of_sum, int64_t n, int64_t place, int is_grad)
{
    int64_t sum = sum_of(of_sum, n, is_grad);
    place += (uint32_t)(of_sum >> 40) % (uint32_t)n;
    return (place < n ? place : place - n) < (n + sum) / 2 ? 1 : -1;
}

/* The power of two number n in m. */
static double power_in(int m, int n)
{
    while (n-- > 0)
        m &= m - 1;
    return m & -m;
}

static void fill_q(const struct attn_subsets *s, const int64_t at[4], int64_t end, double *x)
{
    int t = choice_of(s, at[0], at[1], at[2]);
    uint64_t word = t == NO_SET ? 0 : code(s, at[0], at[1] / s->group, t);
    const int64_t marks = s->bits + s->offsets;
    int64_t from, alone = -1; /* the feature that the only key marks */
    if (count(s, at[0], at[1], at[2], &from) == 1)
        alone = marks + from % s->marks;
    for (int64_t c = at[3], n = 0; c < end; c++, n++)
        x[n] = c == alone                  ? s->alone
               : t == NO_SET || c >= marks ? 0
               : c >= s->bits              ? -s->sign * s->w * power_in(s->bits, (int)c - s->bits)
               : word >> c & 1             ? s->sign * s->w
                                           : -s->sign * s->w;
}

/* A key that no row sees has a code and values like another. */
static void fill_k_or_v(const struct attn_subsets *s, int is_v, const int64_t at[4], int64_t end,
                        double *x)
{
    static const struct attn_subset alone = {0, 1, 1};
    const struct attn_subset_layout *y = layout_of(s, at[0]);
    const int64_t b = at[0], g = at[1], marks = s->bits + s->offsets;
    int t = y->set_of[at[2]];
    const struct attn_subset *set = t == NO_SET ? &alone : &y->set[t];
    int64_t r = t == NO_SET ? 0 : (at[2] - set->first) / set->step, n = set->n;
    int64_t place = ((n & (n - 1)) == 0 ? n * 5 / 8 | 1 : 1) * r % n;
    int64_t grad = grad_feature(s, b, g, t), c = at[3];
    uint64_t word = code(s, b, g, t);
    for (; is_v && c < end; c++)
        *x++ = s->unit * value(hash(s, STREAM_SUM, b, g, t, c), n, place, c == grad);
    for (; c < end; c++)
        *x++ = c < s->bits                 ? word >> c & 1 ? s->w : -s->w
               : c < marks                 ? s->w
               : c - marks != r % s->marks ? 0
                                           : value(hash(s, STREAM_SUM, b, g, t, grad), n, place, 1);
}

static void fill_grad(const struct attn_subsets *s, const int64_t at[4], int64_t end, double *x)
{
    int64_t g = at[1] / s->group;
    int t = choice_of(s, at[0], at[1], at[2]);
    int64_t c = t == NO_SET ? -1 : grad_feature(s, at[0], g, t);
    memset(x, 0, (size_t)(end - at[3]) * sizeof *x);
    if (at[3] <= c && c < end)
        x[c - at[3]] = hash(s, STREAM_TURN, at[0], g, t, 0) & 1 ? s->unit_grad : -s->unit_grad;
}

void attn_subsets_fill(const struct attn_subsets *s, enum attn_slot slot, const int64_t at[4],
                       int64_t end, double *x)
{
    if (slot == ATTN_T_Q)
        fill_q(s, at, end, x);
    else if (slot == ATTN_T_DO)
        fill_grad(s, at, end, x);
    else
        fill_k_or_v(s, slot == ATTN_T_V, at, end, x);
}
