/* See mask_power.h. */
#include "tests/harness/bound/mask_power.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/mask/mask.h"
#include "ref/oracle/oracle.h"
#include "ref/problem.h"
#include "tests/harness/bound/kept.h"

enum { MOST_PAIRS = 1 << 22, FIRST = 8 * ATTN_LANES /* columns that are looked at first */ };

/* A row of the truth: what the pairs of a row are compared with. */
struct row {
    double lse, lse_bound;
    const double *o_bound;
    double *o, *per_bound; /* whole vectors of them; 1 / o_bound */
    int64_t visible;       /* keys of weight */
};

static int64_t whole_vectors(int64_t width)
{
    return (width + ATTN_LANES - 1) / ATTN_LANES * ATTN_LANES;
}

static double in_bounds(double effect, double bound)
{
    return effect == 0 ? 0 : bound > 0 ? effect / bound : (double)INFINITY;
}

/* About the largest |v - o| / bound of columns c0 to c1, to within a few roundings; infinite where
 * one of them is no number, or enormous. */
ATTN_ANY_WIDTH static double about_farthest(const double *v, const struct row *row, int64_t c0,
                                            int64_t c1)
{
    attn_lanes most = {0};
    attn_lane_bits odd = {0};
    double each[ATTN_LANES], farthest = 0;
    for (int64_t c = c0; c < c1; c += ATTN_LANES) {
        attn_lanes away = ATTN_LANES_AT(v + c) - ATTN_LANES_AT(row->o + c);
        away = ATTN_LANES_ABS(away) * ATTN_LANES_AT(row->per_bound + c);
        attn_lane_bits more = away > most;
        odd |= ~(attn_lane_bits)(away <= 1e200);
        most = (attn_lanes)(((attn_lane_bits)away & more) | ((attn_lane_bits)most & ~more));
    }
    memcpy(each, &most, sizeof each);
    for (int t = 0; t < ATTN_LANES; t++)
        farthest = odd[t] ? (double)INFINITY : fmax(farthest, each[t]);
    return farthest;
}

/* Effect / bound of losing or leaking the key of score s and value v; any effect from `enough` on
 * is as good as the largest.  |ln(1 - p)| >= p and ln(1 + p) >= p / (1 + p): what is enough by
 * these, with room for rounding, needs no logarithm. */
static double effect_of(const struct row *row, double s, int visible, const double *v, int64_t dv,
                        const struct attn_mask_power *x)
{
    double enough = x->pairs == 0 ? (double)INFINITY : fmax(x->weakest, ATTN_POWER_MIN);
    if (isnan(s) || row->visible == 0 || (visible && row->visible == 1))
        return (double)INFINITY; /* a NaN gets in; a row appears, or is emptied */
    double p = exp(s - row->lse);
    double weight = visible ? p / (1 - p) : p < 1e300 ? p / (1 + p) : 1;
    double least = in_bounds(visible ? p : weight, row->lse_bound);
    if (least > 1.001 * enough)
        return least;
    double most = in_bounds(fabs(log1p(visible ? -p : p)), row->lse_bound);
    if (most >= enough)
        return most;
    const int64_t width = whole_vectors(dv), first = width < FIRST ? width : FIRST;
    double about = fmax(most, weight * about_farthest(v, row, 0, first));
    if (isfinite(about) && about > 1.001 * enough)
        return about; /* the first columns do */
    about = fmax(about, weight * about_farthest(v, row, first, width));
    int is_seen = about > 1.001 * enough, is_nothing = about < 0.999 * ATTN_POWER_MIN;
    if (isfinite(about) && (is_seen || (is_nothing && about > 1.001 * x->weakest)))
        return about; /* neither the weakest nor near a limit: it need not be exact */
    for (int64_t c = 0; c < dv && !(most >= enough); c++) {
        double away = fabs(v[c] - row->o[c]);
        double effect = in_bounds(weight * away, row->o_bound[c]);
        if (!(effect <= most)) /* a NaN in a hidden v shows as well */
            most = isnan(effect) ? (double)INFINITY : effect;
    }
    return most;
}

/* Room to weigh the rows of a problem in: n of them, from i0 on. */
struct room {
    struct attn_oracle_row other[ATTN_ORACLE_ROWS]; /* keys whose score is not kept */
    int64_t n_key, i0;
    int is_kept[ATTN_ORACLE_ROWS]; /* the scores of visible keys are there */
    char *sees;                    /* [rows][n_key] what the mask says */
    double *s;                     /* [rows][n_key] as if every key were visible */
    double *values; /* of a head, then o and per_bound of rows: whole vectors, filled up by 0 */
};

/* Which keys a row sees, and the scores that are known: of the kept row, if there is one. */
static void find_visible(const struct attn_problem *p, const struct attn_kept *kept, int64_t b,
                         int64_t h, int r, struct room *room)
{
    const struct attn_oracle_row *row = attn_kept_row(kept, p, b, h, room->i0 + r, 0);
    char *sees = room->sees + r * p->n_key;
    room->is_kept[r] = row != NULL;
    if (row == NULL) {
        for (int64_t j = 0; j < p->n_key; j++)
            sees[j] = attn_problem_allows(p, b, h, room->i0 + r, j) != 0;
        return;
    }
    double *s = room->s + r * p->n_key;
    const int64_t *key = row->key, keys = row->n;
    memset(sees, 0, (size_t)p->n_key);
    for (int64_t n = 0; n < keys; n++)
        s[key[n]] = row->s[n];
    for (int64_t n = 0; n < keys; n++)
        sees[key[n]] = 1;
}

/* For the oracle: the keys of a row whose scores are not known. */
static int64_t find_unknown(const void *arg, int64_t b, int64_t h, int64_t i, int64_t *key)
{
    const struct room *room = arg;
    const char *sees = room->sees + (i - room->i0) * room->n_key;
    int64_t n = 0;
    (void)b, (void)h;
    for (int64_t j = 0; j < room->n_key; j++)
        if (!room->is_kept[i - room->i0] || !sees[j])
            key[n++] = j;
    return n;
}

/* The scores of n rows that are not known: their bits do not depend on the other keys. */
static void find_scores(const struct attn_problem *p, const struct attn_inputs *in, int64_t b,
                        int64_t h, int n, struct room *room)
{
    int64_t i[ATTN_ORACLE_ROWS];
    int are_known = memchr(room->sees, 0, (size_t)(n * p->n_key)) == NULL;
    for (int r = 0; r < n; r++) {
        i[r] = room->i0 + r;
        are_known &= room->is_kept[r];
    }
    if (are_known)
        return;
    attn_oracle_rows_scores(p, &in->q, &in->k, &in->v, b, h, i, n, room->other);
    for (int r = 0; r < n; r++)
        for (int64_t m = 0; m < room->other[r].n; m++)
            room->s[r * p->n_key + room->other[r].key[m]] = room->other[r].s[m];
}

enum { STRETCH = 64 };

/* s: the row's scores with every key visible, of which those of keys j0 to j0 + STRETCH are
 * weighed; sees: what the mask says of each; values: of the row's head. */
static void weigh_row(const double *s, int64_t n_key, int64_t j0, const char *sees,
                      const double *values, int64_t dv, const struct row *row,
                      struct attn_mask_power *x)
{
    for (int64_t j = j0; j < j0 + STRETCH && j < n_key; j++) {
        if (s[j] == -(double)INFINITY)
            continue;
        double effect = effect_of(row, s[j], sees[j], values + j * whole_vectors(dv), dv, x);
        x->seen += effect >= ATTN_POWER_MIN;
        x->weakest = x->pairs == 0 || effect < x->weakest ? effect : x->weakest;
        x->pairs++;
    }
}

static void load_values(const struct attn_problem *p, const struct attn_cview *v, int64_t b,
                        int64_t g, double *values)
{
    for (int64_t j = 0; j < p->n_key; j++)
        attn_cview_row(v, (int64_t[4]){b, g, j, 0}, p->d_value,
                       values + j * whole_vectors(p->d_value));
}

/* Rows i0 to i0 + n of a head, whose values are loaded. */
static void weigh_rows(const struct attn_problem *p, const struct attn_inputs *in,
                       const struct attn_truth *truth, int64_t b, int64_t h, int64_t i0, int n,
                       struct room *room, struct attn_mask_power *x)
{
    const struct attn_truth_tensor *o = &truth->tensor[ATTN_O], *lse = &truth->tensor[ATTN_LSE];
    int64_t dv = p->d_value, wide = whole_vectors(dv);
    struct row rows[ATTN_ORACLE_ROWS];
    room->i0 = i0;
    for (int r = 0; r < n; r++)
        find_visible(p, in->kept, b, h, r, room);
    find_scores(p, in, b, h, n, room);
    for (int r = 0; r < n; r++) {
        int64_t at = (b * p->heads + h) * p->n_query + i0 + r;
        double *own = room->values + (p->n_key + 2 * r) * wide;
        rows[r] =
            (struct row){lse->want[at], lse->bound[at], o->bound + at * dv, own, own + wide, 0};
        for (int64_t c = 0; c < dv; c++) {
            own[c] = o->want[at * dv + c];
            own[wide + c] = 1 / o->bound[at * dv + c];
        }
        for (int64_t j = r * p->n_key; j < (r + 1) * p->n_key; j++)
            rows[r].visible += room->sees[j] && room->s[j] != -(double)INFINITY;
    }
    for (int64_t j0 = 0; j0 < p->n_key; j0 += STRETCH)
        for (int r = 0; r < n; r++)
            if (!isnan(rows[r].lse))
                weigh_row(room->s + r * p->n_key, p->n_key, j0, room->sees + r * p->n_key,
                          room->values, dv, &rows[r], x);
}

enum attn_status attn_mask_power_weigh(const struct attn_problem *p, const struct attn_inputs *in,
                                       const struct attn_truth *truth, struct attn_mask_power *x,
                                       struct attn_error *err)
{
    struct room room;
    *x = (struct attn_mask_power){0};
    int64_t pairs = attn_product(attn_product(p->batch, p->heads), p->n_query * p->n_key);
    if (pairs < 0 || pairs > MOST_PAIRS)
        return ATTN_OK;
    int block = attn_oracle_block(p);
    enum attn_status status = attn_oracle_rows_alloc(p, block, room.other, err);
    size_t keys = (size_t)(p->n_key * block), wide = (size_t)whole_vectors(p->d_value);
    for (int r = 0; r < block; r++) {
        room.other[r].keys = find_unknown;
        room.other[r].keys_arg = &room;
    }
    room.n_key = p->n_key;
    room.sees = malloc(keys + 1);
    room.s = malloc((keys + 1) * sizeof *room.s);
    room.values = calloc(((size_t)p->n_key + 2 * (size_t)block) * wide + 1, sizeof *room.values);
    if (status == ATTN_OK && (room.sees == NULL || room.s == NULL || room.values == NULL))
        status = attn_fail(err, ATTN_ENOMEM, "no memory for %lld keys", (long long)p->n_key);
    for (int64_t n = 0; status == ATTN_OK && n < p->batch * p->heads; n++) {
        int64_t b = n / p->heads, h = n % p->heads, group = p->heads / p->kv_heads;
        if (h % group == 0)
            load_values(p, &in->v, b, h / group, room.values);
        for (int64_t i = 0; i < p->n_query; i += block)
            weigh_rows(p, in, truth, b, h, i,
                       (int)(p->n_query - i < block ? p->n_query - i : block), &room, x);
    }
    free(room.sees);
    free(room.s);
    free(room.values);
    attn_oracle_rows_free(room.other);
    return status;
}

const char *attn_mask_power_words(const struct attn_mask_power *x, char text[64])
{
    text[0] = '\0';
    if (x->pairs > 0 && x->seen == x->pairs)
        snprintf(text, 64, "every key");
    else if (x->pairs > 0 && x->seen == 0)
        snprintf(text, 64, "no key");
    else if (x->pairs > 0)
        snprintf(text, 64, "%lld of %lld pairs", (long long)x->seen, (long long)x->pairs);
    return text;
}
