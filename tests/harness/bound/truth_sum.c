/* See truth_sum.h. */
#include "tests/harness/bound/truth_sum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/impl.h"
#include "ref/oracle/oracle.h"
#include "ref/problem.h"
#include "tests/harness/bound/classes.h"
#include "tests/harness/bound/kept.h"

void attn_sum_free(struct attn_sum *x)
{
    free(x->lost);
    free(x->error);
    free(x->size);
    free(x->terms);
    free(x->kinds);
}

/* The same output of the truth that was kept last, unless the kinds have spoken of it. */
static const struct attn_truth_tensor *known_sum(const struct attn_inputs *in,
                                                 const struct attn_truth_tensor *t,
                                                 enum attn_output output, size_t n)
{
    if (in->kept == NULL || in->kept->first == NULL)
        return NULL;
    const struct attn_truth_tensor *x = &in->kept->first->truth.tensor[output];
    int same = x->want != NULL && x->sample == t->sample &&
               memcmp(x->extent, t->extent, sizeof x->extent) == 0;
    for (size_t at = 0; same && at < n; at++)
        same = x->right[at] == 0;
    return same ? x : NULL;
}

enum attn_status attn_sum_open(const struct attn_inputs *in, struct attn_truth *truth,
                               enum attn_output output, struct attn_sum *x, struct attn_error *err)
{
    struct attn_truth_tensor *t = &truth->tensor[output];
    size_t rows = (size_t)(t->extent[0] * t->extent[1] * t->extent[2]);
    size_t n = rows * (size_t)t->extent[3];
    *x = (struct attn_sum){t,
                           known_sum(in, t, output, n),
                           calloc(n + 1, sizeof(double)),
                           calloc(n + 1, sizeof(double)),
                           calloc(n + 1, sizeof(double)),
                           calloc(rows + 1, sizeof(int64_t)),
                           malloc(n + 1)};
    if (x->lost == NULL || x->error == NULL || x->size == NULL || x->terms == NULL ||
        x->kinds == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to sum %s (%zu elements)", t->name, n);
    memset(x->kinds, ATTN_KIND_ZERO, n + 1);
    return ATTN_OK;
}

/* One addend of an element's row. */
struct term {
    const double *y;
    double weight, error, both, flushed, gauge;
};

/* The columns of a vector, of an element's row on. */
struct columns {
    double *want, *lost, *gauge, *error, *size;
};

/* They gain these terms of column c0 on.  TwoSum keeps what double would lose. */
static inline __attribute__((always_inline)) void add_columns(const struct columns *x, int64_t c0,
                                                              const struct term *terms, int n_terms,
                                                              int is_known)
{
    attn_lanes want = ATTN_LANES_AT(x->want), lost = ATTN_LANES_AT(x->lost);
    attn_lanes gauge = ATTN_LANES_AT(x->gauge);
    attn_lanes errors = ATTN_LANES_AT(x->error), size = ATTN_LANES_AT(x->size);
    for (const struct term *t = terms; t < terms + n_terms; t++) {
        attn_lanes y = ATTN_LANES_AT(t->y + c0), a = ATTN_LANES_ABS(y);
        if (!is_known) {
            attn_lanes term = t->weight * y, s = want + term, z = s - want;
            lost += (want - (s - z)) + (term - z);
            want = s;
            gauge += t->gauge * a;
        }
        errors += ATTN_LANES_IF(a > 0, t->error * a + t->flushed); /* 0 of an infinite one is 0 */
        size += ATTN_LANES_IF(a > 0, t->both * a);
    }
    memcpy(x->want, &want, sizeof want);
    memcpy(x->lost, &lost, sizeof lost);
    memcpy(x->gauge, &gauge, sizeof gauge);
    memcpy(x->error, &errors, sizeof errors);
    memcpy(x->size, &size, sizeof size);
}

static inline __attribute__((always_inline)) void add_terms(struct attn_sum *x, int64_t place,
                                                            int64_t width, const struct term *terms,
                                                            int n_terms, int is_known)
{
    int64_t at = place * width, c = 0, rest = width % ATTN_LANES;
    for (; c + ATTN_LANES <= width; c += ATTN_LANES) {
        const struct columns own = {x->out->want + at + c, x->lost + at + c, x->out->gauge + at + c,
                                    x->error + at + c, x->size + at + c};
        add_columns(&own, c, terms, n_terms, is_known);
    }
    if (rest == 0)
        return;
    double part[5][ATTN_LANES] = {{0}};
    double *const from[5] = {x->out->want + at + c, x->lost + at + c, x->out->gauge + at + c,
                             x->error + at + c, x->size + at + c};
    for (int t = 0; t < 5; t++)
        memcpy(part[t], from[t], (size_t)rest * sizeof **part);
    add_columns(&(struct columns){part[0], part[1], part[2], part[3], part[4]}, c, terms, n_terms,
                is_known);
    for (int t = 0; t < 5; t++)
        memcpy(from[t], part[t], (size_t)rest * sizeof **part);
}

/* The lowest place to which a row still adds; -1: none does. */
static int64_t lowest(const struct attn_addends *rows, int n_rows, int64_t next[])
{
    int64_t least = -1;
    for (int r = 0; r < n_rows; r++) {
        while (next[r] < rows[r].n && rows[r].place[next[r]] < 0)
            next[r]++;
        if (next[r] < rows[r].n && (least < 0 || rows[r].place[next[r]] < least))
            least = rows[r].place[next[r]];
    }
    return least;
}

ATTN_ANY_WIDTH void attn_sum_add(struct attn_sum *x, int64_t width, const struct attn_addends *rows,
                                 int n_rows)
{
    int64_t next[ATTN_ORACLE_ROWS] = {0}, place;
    while ((place = lowest(rows, n_rows, next)) >= 0) {
        struct term terms[ATTN_ORACLE_ROWS];
        int n_terms = 0;
        for (int r = 0; r < n_rows; r++) {
            const struct attn_addends *row = &rows[r];
            int64_t n = next[r];
            if (n >= row->n || row->place[n] != place)
                continue;
            double weight = row->weight[n], error = row->error[n] + row->more;
            terms[n_terms++] = (struct term){row->y,
                                             weight,
                                             error,
                                             fabs(weight) + error,
                                             fabs(weight) * row->tiny,
                                             row->times * row->gauge[n]};
            next[r]++;
        }
        if (x->known != NULL)
            add_terms(x, place, width, terms, n_terms, 1);
        else
            add_terms(x, place, width, terms, n_terms, 0);
    }
}

void attn_sum_kinds(struct attn_sum *x, int64_t at, int64_t n, const unsigned char *y,
                    unsigned weight)
{
    unsigned char *kinds = x->kinds + at;
    for (int64_t c = 0; c < n; c++)
        kinds[c] = (unsigned char)attn_kinds_plus(kinds[c], attn_kinds_weigh(weight, y[c]));
}

void attn_truth_set_right(struct attn_truth_tensor *t, int64_t at, unsigned kinds)
{
    unsigned right = attn_kinds_classes(kinds);
    t->right[at] = (unsigned char)right;
    if (!(right & ATTN_CLASS_FINITE)) {
        if (!(attn_class_of(t->want[at]) & right))
            t->want[at] = right & ATTN_CLASS_NAN        ? (double)NAN
                          : right & ATTN_CLASS_PLUS_INF ? (double)INFINITY
                                                        : -(double)INFINITY;
        t->bound[at] = t->gauge[at] = 0;
    } else if (kinds & ATTN_KIND_UNKNOWN || !isfinite(t->want[at])) {
        t->bound[at] = (double)INFINITY;
        t->gauge[at] = 0;
    }
}

/* Elements `at` to `end` of a row of n terms: see below. */
ATTN_ANY_WIDTH static void finish_row(const struct attn_sum *x, int64_t at, int64_t end, double n,
                                      double relative, double scale, double tiny,
                                      const struct attn_precision *precision)
{
    const struct attn_precision own = *precision, *a = &own; /* which no store can change */
    const double size_of_scale = fabs(scale), parts = (double)(1 + a->sums);
    const double *size = x->size, *error = x->error, *lost = x->lost;
    double *restrict want = x->out->want, *restrict bound = x->out->bound;
    double *restrict gauge = x->out->gauge;
    const struct attn_truth_tensor *known = x->known;
    for (int64_t c = at; c < end && known == NULL; c++) {
        want[c] = scale * (isnan(lost[c]) ? want[c] : want[c] + lost[c]);
        gauge[c] = size_of_scale * gauge[c];
    }
    if (known != NULL) {
        memcpy(want + at, known->want + at, (size_t)(end - at) * sizeof *want);
        memcpy(gauge + at, known->gauge + at, (size_t)(end - at) * sizeof *gauge);
    }
    for (int64_t c = at; c < end; c++)
        bound[c] = size_of_scale * (error[c] + n * tiny + relative * size[c] + 0x1p-51 * size[c]);
    for (int64_t c = at; c < end && a->u_partial > 0; c++) {
        double partial = attn_partials_error(a, size_of_scale * size[c] + bound[c], parts, scale);
        bound[c] += (1 + relative) * partial;
    }
    for (int64_t c = at; c < end; c++) {
        double e = bound[c], stored = a->u_storage * (fabs(want[c]) + e) + a->tiny_storage;
        bound[c] = n == 0 ? 0 : e + stored + parts * a->tiny + 0x1p-52 * fabs(want[c]);
    }
}

/* The kinds of an element of that row, where not all is finite or something overflows. */
static void open_element(struct attn_sum *x, int64_t at, double n, double relative, double scale,
                         double tiny, const struct attn_precision *a)
{
    const double size_of_scale = fabs(scale), parts = (double)(1 + a->sums), size = x->size[at];
    double e = size_of_scale * (x->error[at] + n * tiny + relative * size + 0x1p-51 * size);
    double partial =
        a->u_partial > 0 ? attn_partials_error(a, size_of_scale * size + e, parts, scale) : 0;
    if (x->kinds[at] & ~(unsigned)ATTN_KINDS_FINITE)
        attn_truth_set_right(x->out, at, attn_kinds_times(attn_kind_of(scale), x->kinds[at]));
    if (isinf(partial) || attn_sum_may_overflow(a, fmax(1, size_of_scale) * size))
        attn_truth_set_right(x->out, at, ATTN_KINDS_ANY);
}

/* 5.4: the sum, of operands rounded to `operand`, is multiplied by `scale` and stored, as `a` says;
 * its parts (a->sums more than one) may each underflow by themselves, and be stored narrower. */
void attn_sum_finish(struct attn_sum *x, double scale, double operand,
                     const struct attn_precision *a)
{
    const double tiny = attn_term_tiny(a, scale);
    int64_t width = x->out->extent[3];
    int64_t rows = x->out->extent[0] * x->out->extent[1] * x->out->extent[2];
    double n = -1, relative = 0; /* the same for all of a row, and often of the next one */
    for (int64_t row = 0; row < rows; row++) {
        if (n != (double)x->terms[row]) {
            n = (double)x->terms[row];
            relative = attn_sum_error(n + 4, attn_sum_roundoff(a), a->lambda);
            relative += operand * (1 + relative);
        }
        finish_row(x, row * width, (row + 1) * width, n, relative, scale, tiny, a);
        for (int64_t at = row * width; at < (row + 1) * width; at++)
            open_element(x, at, n, relative, scale, tiny, a);
    }
}

/* The kinds of number that an element may be as it is stored, before it is added to another. */
static unsigned kinds_of(const struct attn_truth_tensor *t, int64_t at)
{
    unsigned right = t->right[at], kinds = right & ATTN_CLASS_FINITE ? ATTN_KINDS_FINITE : 0;
    if (fabs(t->want[at]) + t->bound[at] >= attn_dtype_overflow(t->storage))
        return ATTN_KINDS_ANY;
    kinds |= right & ATTN_CLASS_PLUS_INF ? ATTN_KIND_PLUS_INF : 0u;
    kinds |= right & ATTN_CLASS_MINUS_INF ? ATTN_KIND_MINUS_INF : 0u;
    kinds |= right & ATTN_CLASS_NAN ? ATTN_KIND_NAN : 0u;
    return right == 0 ? attn_kind_of(t->want[at]) : kinds;
}

/* 5.7: each is stored, then their sum is rounded once in the arithmetic and once as it is stored.
 */
void attn_truth_share(const struct attn_precision *a, struct attn_truth_tensor *dk,
                      struct attn_truth_tensor *dv)
{
    int64_t width = dv->extent[3], rows = dk->extent[0] * dk->extent[1] * dk->extent[2];
    for (int64_t n = 0; n < rows * width; n++) {
        int64_t at = n / width * dk->extent[3] + n % width;
        unsigned of_k = kinds_of(dk, at), of_v = kinds_of(dv, n), both = of_k | of_v;
        double e = dk->bound[at] + dv->bound[n], want = dk->want[at] + dv->want[n];
        int is_exact = e == 0 && (dk->want[at] == 0 || dv->want[n] == 0);
        dk->want[at] = want;
        dk->bound[at] = e;
        if (!is_exact)
            dk->bound[at] += (a->u + a->u_storage) * (fabs(want) + e) + a->tiny + a->tiny_storage;
        dk->gauge[at] += dv->gauge[n];
        if (dk->right[at] != 0 || dv->right[n] != 0 || both & ~(unsigned)ATTN_KINDS_FINITE)
            attn_truth_set_right(dk, at, attn_kinds_plus(of_k, of_v));
    }
    struct attn_truth part = {.tensor = {*dv}};
    attn_truth_free(&part);
    *dv = (struct attn_truth_tensor){.name = dv->name};
}
