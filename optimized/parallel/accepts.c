/* Problems that sequence-parallel schemes accept, and counts that bounds need.  See parallel.h.
 *
 * R ranks have R^2 products, but few kinds of them: a rank of a causal ring has products that are
 * all visible, one that is cut, and some that are hidden, with blocks of two sizes.  So accepts
 * looks at the shortest and the longest blocks, and rescales and merges at the first of
 * many stops that are equal (attn_work_round). */
#include <stdio.h>
#include <string.h>

#include "optimized/integers.h"
#include "optimized/parallel/parallel.h"
#include "optimized/parallel/travel/products.h"
#include "optimized/parallel/travel/work_mask.h"
#include "ref/precision.h"
#include "ref/problem.h"

/* ---- what ranks must divide ------------------------------------------------------------------ */

static int divides_all(int64_t ranks, int64_t of, const struct attn_divisible *x, int n)
{
    for (int e = 0; e < n; e++)
        if (x[e].by == of && x[e].value % ranks != 0)
            return 0;
    return 1;
}

static void list_extents(const struct attn_divisible *x, int n, int64_t of, char *text, size_t size)
{
    int count = 0, named = 0;
    for (int e = 0; e < n; e++)
        count += x[e].by == of;
    for (int e = 0; e < n; e++)
        if (x[e].by == of) {
            size_t used = strlen(text);
            named++;
            snprintf(text + used, size - used, "%s%s %lld",
                     named == 1       ? ""
                     : named == count ? " and "
                                      : ", ",
                     x[e].name, (long long)x[e].value);
        }
}

/* The numbers that do divide them, of those that an option may have. */
static void list_divisors(const struct attn_divisible *x, int n, int64_t of, char *text,
                          size_t size)
{
    for (int64_t r = 1; r <= ATTN_MAX_RANKS && strlen(text) + 12 < size; r++)
        if (divides_all(r, of, x, n)) {
            size_t used = strlen(text);
            snprintf(text + used, size - used, "%s%lld", r > 1 ? ", " : "", (long long)r);
        }
}

enum attn_status attn_check_divisible(const struct attn_options *options, const char *with,
                                      const struct attn_divisible *x, int n, const char *other,
                                      struct attn_error *err)
{
    for (int e = 0; e < n; e++) {
        char needs[200] = "", works[200] = "";
        if (x[e].by == 1 || x[e].value % x[e].by == 0)
            continue;
        list_extents(x, n, x[e].by, needs, sizeof needs);
        list_divisors(x, n, x[e].by, works, sizeof works);
        return attn_fail(err, ATTN_ENOTSUP, "%s:ranks=%d%s needs ranks that divide %s: %s, or %s",
                         options->impl->name, attn_parallel_ranks(options), with, needs, works,
                         other);
    }
    return ATTN_OK;
}

static enum attn_status check_strict(const struct attn_problem *p,
                                     const struct attn_options *options, struct attn_error *err)
{
    struct attn_work w = attn_work_of(p, options, ATTN_FORWARD, 0);
    struct attn_layout home = w.home, work = w.work;
    int64_t places = (int64_t)attn_axis_parts(&home.tokens) * attn_axis_parts(&home.runs);
    int64_t members = attn_axis_parts(&work.heads);
    int64_t frames = home.order == ATTN_FRAMES ? places : 1;
    int64_t in_frame = home.order == ATTN_PLACES ? places : 1;
    int64_t tokens = home.frames > 0 ? 1 : places, size = p->n_key / greater(home.frames, 1);
    const struct attn_divisible x[] = {
        {"heads", p->heads, members},    {"kv heads", p->kv_heads, members},
        {"queries", p->n_query, tokens}, {"keys", p->n_key, tokens},
        {"frames", home.frames, frames}, {"places", size, in_frame}};
    if (options->value[ATTN_OPTION_SIZES] != ATTN_SIZES_STRICT)
        return ATTN_OK;
    return attn_check_divisible(options, ",sizes=strict", x, sizeof x / sizeof *x, "sizes=uneven",
                                err);
}

/* ---- what the local implementation must be able to do ---------------------------------------- */

/* Storage types are not asked for here: a price may be of one that the local implementation lacks,
 * and before it runs ref/run.c asks. */
static enum attn_status check_piece(const struct attn_problem *p,
                                    const struct attn_options *options, struct attn_error *err)
{
    const struct attn_impl *local = attn_rank_local(options);
    const struct attn_options preset = attn_rank_local_options(options);
    unsigned needs = attn_problem_needs(p) & ~(unsigned)ATTN_CAPS_STORAGE;
    enum attn_status status = attn_check_local(options, needs | ATTN_CAP_HARD, err);
    return status == ATTN_OK && local->accepts != NULL ? local->accepts(p, &preset, err) : status;
}

/* The shortest and the longest stretch of all ranks: of the first and the last place. */
static void range_of(const struct attn_layout *layout, const struct attn_problem *p, int is_of_keys,
                     int64_t range[2])
{
    range[0] = INT64_MAX;
    range[1] = 0;
    for (int place = 0; place < 2; place++) {
        int last = (attn_axis_parts(&layout->tokens) - 1) * layout->tokens.stride;
        struct attn_box box = attn_layout_box(layout, p, is_of_keys, place * last);
        for (int s = 0; s < box.stretches; s++) {
            range[0] = less(range[0], box.stretch[s].n);
            range[1] = greater(range[1], box.stretch[s].n);
        }
    }
}

/* Pieces with these heads: all that capabilities look at are extents, and those of stretches differ
 * by one at most. */
static enum attn_status check_heads(const struct attn_product *x, const int64_t queries[2],
                                    const int64_t keys[2], const struct attn_options *options,
                                    struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int n = 0; n < 4 && status == ATTN_OK; n++) {
        struct attn_problem part = x->part;
        part.n_query = queries[n / 2];
        part.n_key = keys[n % 2];
        status = check_piece(&part, options, err);
    }
    return status;
}

enum attn_status attn_parallel_accepts(const struct attn_problem *p,
                                       const struct attn_options *options, struct attn_error *err)
{
    const struct attn_impl *local = attn_rank_local(options);
    struct attn_work first = attn_work_of(p, options, ATTN_FORWARD, 0);
    struct attn_layout work = first.work;
    int64_t queries[2], keys[2], seen[2] = {-1, -1};
    if (local->ranks != NULL)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s:local=%s is parallel itself: a rank runs alone, so a single-process "
                         "implementation such as tiled would work",
                         options->impl->name, local->name);
    const struct attn_scheme *scheme = options->impl->scheme;
    enum attn_status status = scheme->accepts != NULL ? scheme->accepts(p, options, err) : ATTN_OK;
    if (status == ATTN_OK)
        status = check_strict(p, options, err);
    if (status == ATTN_OK)
        status = attn_work_mask_accepts(p, options, err);
    if (status == ATTN_OK &&
        (attn_layout_stretches(&work, 0) > 1 || work.order == ATTN_PLACES || work.pads))
        status = attn_check_local(options, ATTN_CAP_STRIDES, err);
    if (status != ATTN_OK)
        return status;
    int64_t runs = at_least_1(less(attn_axis_parts(&work.heads), p->heads)); /* of heads */
    range_of(&work, p, 0, queries);
    range_of(&work, p, 1, keys);
    for (int run = 0; run < runs && status == ATTN_OK; run++) {
        int r = run * work.heads.stride;
        struct attn_work w = attn_work_of(p, options, ATTN_FORWARD, r);
        struct attn_box box = attn_work_box(&w, 0, r);
        for (int call = 0; call < ATTN_CALLS && status == ATTN_OK; call++) {
            struct attn_product x = attn_work_product(&w, call, 0, 0, 0);
            if (x.heads.n == 0 || (x.heads.n == seen[0] && x.kv_heads.n == seen[1]))
                continue;
            seen[0] = x.heads.n;
            seen[1] = x.kv_heads.n;
            if (w.work.order == ATTN_PLACES) {
                queries[0] = queries[1] = x.part.n_query;
                keys[0] = keys[1] = x.part.n_key;
            }
            if (x.heads.n < box.heads.n) /* a part of the rank's heads */
                status = attn_check_local(options, ATTN_CAP_STRIDES, err);
            if (status == ATTN_OK)
                status = check_heads(&x, queries, keys, options, err);
        }
    }
    return status;
}

/* ---- what bounds ask ------------------------------------------------------------------------- */

typedef int64_t count_of(const struct attn_problem *p, const struct attn_options *options);

/* The largest count of all products; 0 where the local implementation counts none. */
static int64_t most(const struct attn_problem *p, const struct attn_options *options,
                    count_of *count)
{
    const struct attn_options preset = attn_rank_local_options(options);
    int64_t largest = 0;
    for (int r = 0; count != NULL && r < attn_parallel_ranks(options); r++) {
        struct attn_work w = attn_work_of(p, options, ATTN_FORWARD, r);
        struct attn_product x;
        for (int n = 0; n < w.stops; n += attn_work_round(&w, n)) {
            attn_work_go(&w, n);
            while (attn_work_next(&w, &x))
                largest = greater(largest, count(&x.part, &preset));
        }
    }
    return largest;
}

/* A term of a row's sum belongs to one product and is rescaled there. */
int64_t attn_parallel_rescales(const struct attn_problem *p, const struct attn_options *options)
{
    return most(p, options, attn_rank_local(options)->rescales);
}

/* A query meets every stretch of keys, a key every stretch of queries; results after the first are
 * merged, or in the backward added, one by one.  So are the gradients of copies. */
int64_t attn_parallel_merges(const struct attn_problem *p, const struct attn_options *options)
{
    struct attn_layout work = attn_work_of(p, options, ATTN_FORWARD, 0).work;
    return most(p, options, attn_rank_local(options)->merges) + attn_layout_partials(&work) - 1 +
           (attn_layout_copies(&work, p) ? work.ranks - 1 : 0);
}

void attn_parallel_precision(const struct attn_problem *p, const struct attn_options *options,
                             struct attn_precision *precision)
{
    const struct attn_options preset = attn_rank_local_options(options);
    const struct attn_impl *local = attn_rank_local(options);
    if (local->precision != NULL)
        local->precision(p, &preset, precision);
}
