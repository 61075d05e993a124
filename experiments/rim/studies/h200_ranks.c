/* Ranks on real GPUs, row by row of experiments/rim/studies/data/h200_schemes.csv: Ulysses and a
 * contiguous ring on 2 and 4 NVIDIA H200, forward, PyTorch's flash kernel, bfloat16.
 *
 * Time is what `attnlab cluster experiments/rim/cluster/h200.cluster` says.  Its rate is fitted to
 * rows of one rank, its link to h200_collectives.csv, and nothing to a row that is judged.  Bytes
 * are a list of tensors, as in pytorch_h200.c. */
#include <gsl/gsl_multifit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/cluster/cluster.h"
#include "experiments/rim/studies/cuda_cache.h"
#include "experiments/rim/studies/study.h"
#include "experiments/rim/studies/table_file.h"
#include "optimized/integers.h"
#include "optimized/parallel/scheme.h"
#include "ref/mask/mask.h"

ATTN_STUDY_DATA(h200_schemes, "studies/data/h200_schemes.csv")
ATTN_STUDY_DATA(h200_collectives, "studies/data/h200_collectives.csv")
ATTN_STUDY_DATA(h200, "cluster/h200.cluster")

enum { ULYSSES = 1, RING = 2, EITHER = ULYSSES | RING };
static const char *const scheme_name[] = {"", "ulysses", "ring"};

/* Rows shorter than this are shown and not judged: what a host does between calls shows there. */
enum { JUDGED = 32768 };
static const double TIME_TOLERANCE = 0.15, BYTES_TOLERANCE = 0.02;

struct row {
    int scheme, ranks, causal;
    int64_t B, H, L, d;
    double seconds, bytes; /* measured */
    double predicted;      /* seconds */
};

/* ---- the tensors of one rank ----------------------------------------------------------------- */

/* Their shape on a rank, in elements: */
enum shape {
    TOKENS, /* B H L/R d, or B H/R L d: as many */
    BLOCKS, /* K and V, one behind the other */
    COMING, /* K and V of other ranks: of two more than one is here, of more two */
    LSE,    /* B H L/R, or B H/R L */
    SCALARS
};

/* A ring's peak is a merge, o = exp(lse - new) o + exp(lse_n - new) o_n, when o is made. */
static const struct entry {
    const char *name, *maker;
    int scheme, from, to; /* ranks: at least, at most (0: any) */
    enum shape shape;
    int64_t bytes; /* of an element, or of all SCALARS */
} entries[] = {
    {"q heads", "all_to_all_single, made [H/R, L, d]", ULYSSES, 2, 0, TOKENS, 2},
    {"k heads", "all_to_all_single", ULYSSES, 2, 0, TOKENS, 2},
    {"v heads", "all_to_all_single", ULYSSES, 2, 0, TOKENS, 2},
    {"o", "the flash kernel", EITHER, 1, 0, TOKENS, 2},
    {"lse", "the flash kernel", EITHER, 1, 0, LSE, 4},
    {"random state", "of dropout, unused", ULYSSES, 1, 0, SCALARS, 1024},

    {"own K, V", "stacked, to be sent", RING, 2, 0, BLOCKS, 2},
    {"coming K, V", "irecv, while the last ones are multiplied", RING, 2, 0, COMING, 2},
    {"o so far", "float32", RING, 2, 0, TOKENS, 4},
    {"o so far, scaled", "exp(lse - new) o", RING, 2, 0, TOKENS, 4},
    {"o_n, scaled", "exp(lse_n - new) o_n", RING, 2, 0, TOKENS, 4},
    {"o merged", "their sum", RING, 2, 0, TOKENS, 4},
    {"lse so far", "float32", RING, 2, 0, LSE, 4},
    {"lse merged", "logaddexp", RING, 2, 0, LSE, 4},
    {"weight", "exp(lse_n - new)", RING, 2, 0, LSE, 4},
};

static int64_t elements(enum shape shape, const struct row *r)
{
    int64_t rows = r->B * r->H * (r->L / r->ranks);
    switch (shape) {
    case TOKENS:
        return rows * r->d;
    case BLOCKS:
        return 2 * rows * r->d;
    case COMING:
        return less(r->ranks - 1, 2) * 2 * rows * r->d;
    case LSE:
        return rows;
    case SCALARS:
        break;
    }
    return 1;
}

/* Each is the block that PyTorch's allocator gives it. */
static void hold(struct attn_study_run *run, struct attn_tape *tape, const struct row *r)
{
    static struct attn_cuda_cache cache;
    attn_cuda_open(&cache);
    *tape = (struct attn_tape){.owner = &run->owner};
    for (size_t e = 0; e < sizeof entries / sizeof *entries; e++) {
        const struct entry *x = &entries[e];
        if (!(x->scheme & r->scheme) || r->ranks < x->from || (x->to > 0 && r->ranks > x->to))
            continue;
        const struct attn_cuda_block *block =
            attn_cli_need(attn_cuda_take(&cache, x->name, elements(x->shape, r) * x->bytes));
        attn_tape_take(tape, x->name, x->maker, block->bytes, 1);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static const char *const columns[] = {
    "scheme", "ranks", "B", "H", "L", "d", "causal", "seconds", "peak_extra_bytes", NULL};

static struct row read_row(struct attn_study_run *run, const json_t *line)
{
    enum { WIDE = 1024, LONG = 1 << 24 };
    struct row r = {.scheme = 1 + attn_study_word(run, line, "scheme", "ulysses|ring"),
                    .ranks = (int)attn_study_number(run, line, "ranks", 1, ATTN_MAX_RANKS),
                    .B = attn_study_number(run, line, "B", 1, WIDE),
                    .H = attn_study_number(run, line, "H", 1, WIDE)};
    r.L = attn_study_number(run, line, "L", 1, LONG);
    r.d = attn_study_number(run, line, "d", 1, WIDE);
    r.causal = attn_study_word(run, line, "causal", "0|1");
    r.seconds = attn_study_real(run, line, "seconds");
    r.bytes = (double)attn_study_number(run, line, "peak_extra_bytes", 1, INT64_C(1) << 50);
    if (run->bad.status == ATTN_OK &&
        (r.L % r.ranks != 0 || (r.scheme == ULYSSES && r.H % r.ranks != 0)))
        attn_fail(&run->bad, ATTN_EINVAL,
                  "%d ranks do not divide L = %lld and, for ulysses, H = %lld: these programs need "
                  "that",
                  r.ranks, (long long)r.L, (long long)r.H);
    return r;
}

static double flops_of(const struct row *r)
{
    double L = (double)r->L, pairs = r->causal ? L * (L + 1) / 2 : L * L;
    return 4.0 * (double)(r->B * r->H * r->d) * pairs;
}

/* ---- what is fitted -------------------------------------------------------------------------- */

/* A number of the file is that of a fit, to the digits that it has. */
static void fitted(struct attn_study_run *run, const char *name, double file, double fit,
                   const char *unit)
{
    attn_study_quantity(run, attn_study_text(run, "%s of h200.cluster, fitted again", name),
                        ATTN_DERIVED, file, fit, unit, 0.01 * file);
}

/* The rate r that makes sum (flops / r / t - 1)^2 least, over the rows of one rank. */
static double fit_rate(struct attn_study_run *run, const json_t *table, int causal)
{
    const json_t *line;
    size_t l;
    double sum = 0, squares = 0;
    json_array_foreach(table, l, line)
    {
        struct row r = read_row(run, line);
        if (r.ranks > 1 || r.causal != causal || run->bad.status != ATTN_OK)
            continue;
        double rate = flops_of(&r) / r.seconds;
        sum += rate;
        squares += rate * rate;
    }
    return squares / sum;
}

/* exchange or hop + messages latency + bytes / bandwidth = seconds, each row by its seconds. */
static void fit_link(struct attn_study_run *run, const struct attn_cluster *cluster)
{
    enum { EXCHANGE, HOP, LATENCY, BYTES, TERMS };
    static const char *const needed[] = {"op", "ranks", "bytes_sent_per_rank", "seconds", NULL};
    json_t *table = attn_study_rows(run, attn_study_data_h200_collectives, needed);
    const json_t *line;
    size_t l, n = json_array_size(table);
    gsl_matrix *terms = gsl_matrix_alloc(n, TERMS), *covariance = gsl_matrix_alloc(TERMS, TERMS);
    gsl_vector *one = gsl_vector_alloc(n), *fit = gsl_vector_alloc(TERMS);
    gsl_multifit_linear_workspace *work = gsl_multifit_linear_alloc(n, TERMS);
    double squares;
    json_array_foreach(table, l, line)
    {
        int is_shift = attn_study_word(run, line, "op",
                                       "all_to_all|all_gather|reduce_scatter|ring_shift") == 3;
        double peers = (double)attn_study_number(run, line, "ranks", 2, ATTN_MAX_RANKS) - 1;
        double bytes =
            (double)attn_study_number(run, line, "bytes_sent_per_rank", 0, INT64_C(1) << 50);
        double seconds = attn_study_real(run, line, "seconds");
        gsl_matrix_set(terms, l, EXCHANGE, !is_shift / seconds);
        gsl_matrix_set(terms, l, HOP, is_shift / seconds);
        gsl_matrix_set(terms, l, LATENCY, (is_shift ? 1 : peers) / seconds);
        gsl_matrix_set(terms, l, BYTES, bytes / seconds);
        gsl_vector_set(one, l, 1);
    }
    gsl_multifit_linear(terms, one, fit, covariance, &squares, work);
    fitted(run, "exchange", cluster->exchange, gsl_vector_get(fit, EXCHANGE), "s");
    fitted(run, "hop", cluster->hop, gsl_vector_get(fit, HOP), "s");
    fitted(run, "inside-latency", cluster->latency[ATTN_INSIDE], gsl_vector_get(fit, LATENCY), "s");
    fitted(run, "inside-bandwidth", cluster->bandwidth[ATTN_INSIDE], 1 / gsl_vector_get(fit, BYTES),
           "B/s");
    attn_study_say(run, "The link's %zu rows are met within %.2g of each (root mean square).", n,
                   sqrt(squares / (double)n));
    gsl_multifit_linear_free(work);
    gsl_vector_free(fit), gsl_vector_free(one);
    gsl_matrix_free(covariance), gsl_matrix_free(terms);
    json_decref(table);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A priced implementation has the program's schedule; it also brings lse home. */
static void predict(struct attn_study_run *run, const struct attn_cluster *cluster, struct row *r)
{
    struct attn_case c = {.batch = r->B,
                          .heads = r->H,
                          .kv_heads = r->H,
                          .n_query = r->L,
                          .n_key = r->L,
                          .d_key = r->d,
                          .d_value = r->d,
                          .scale = (double)NAN,
                          .dtype = ATTN_BF16};
    struct attn_spec spec;
    struct attn_problem p;
    struct attn_mask *mask = NULL;
    struct attn_replay replay = {0};
    attn_case_set_mask(&c, r->causal ? "causal(br)" : "none");
    enum attn_status status = attn_spec_parse(
        attn_study_text(run, "%s:ranks=%d,local=tiled-textbook", scheme_name[r->scheme], r->ranks),
        &spec, &run->bad);
    if (status == ATTN_OK)
        status = attn_case_open(&c, NULL, &p, &mask, &run->bad);
    if (status == ATTN_OK)
        status = attn_cluster_replay(&spec, &p, ATTN_NEED_FORWARD, cluster, &replay, &run->bad);
    attn_mask_free(mask);
    r->predicted = replay.seconds;
}

/* The furthest first. */
static int by_distance(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    double of_x = fabs(x->predicted / x->seconds - 1), of_y = fabs(y->predicted / y->seconds - 1);
    return (of_x < of_y) - (of_x > of_y);
}

static void judge(struct attn_study_run *run, const struct row *r, int good[2])
{
    struct attn_tape tape;
    enum attn_study_label label = r->L < JUDGED ? ATTN_INFERRED : ATTN_PUBLISHED;
    const char *curve = attn_study_text(run, "%s on %d%s", scheme_name[r->scheme], r->ranks,
                                        r->causal ? ", causal" : "");
    const char *name = attn_study_text(run, "%s L=%lld, time x %.3f", curve, (long long)r->L,
                                       r->predicted / r->seconds);
    if (run->data == NULL)
        attn_study_place(run, curve, (double)r->L);
    attn_study_quantity(run, name, label, 1000 * r->seconds, 1000 * r->predicted, "ms",
                        1000 * TIME_TOLERANCE * r->seconds);
    hold(run, &tape, r);
    tape.is_brief = r->L < 65536 || r->causal;
    double bytes = (double)tape.ledger.peak;
    attn_study_peak(
        &tape,
        attn_study_text(run, "%s L=%lld, bytes x %.4f", curve, (long long)r->L, bytes / r->bytes),
        label, r->bytes, BYTES_TOLERANCE * r->bytes);
    good[0] += label == ATTN_PUBLISHED && fabs(r->predicted / r->seconds - 1) <= TIME_TOLERANCE;
    good[1] += label == ATTN_PUBLISHED && fabs(bytes / r->bytes - 1) <= BYTES_TOLERANCE;
}

static void every_row(struct attn_study_run *run, const json_t *table,
                      const struct attn_cluster *cluster)
{
    struct row *rows = attn_cli_need(calloc(json_array_size(table) + 1, sizeof *rows));
    const json_t *line;
    size_t l;
    int n = 0, judged = 0, good[2] = {0, 0};
    json_array_foreach(table, l, line)
    {
        rows[n] = read_row(run, line);
        if (run->bad.status == ATTN_OK && rows[n].ranks > 1)
            predict(run, cluster, &rows[n++]);
    }
    qsort(rows, (size_t)n, sizeof *rows, by_distance);
    for (int pass = 0; pass < 2 && run->bad.status == ATTN_OK; pass++) {
        for (int r = 0; r < n; r++)
            if ((rows[r].L < JUDGED) == pass) {
                judge(run, &rows[r], good);
                judged += !pass;
            }
        if (pass == 0 && judged < n)
            attn_study_say(run, "Shorter ones, where what a host does between calls shows:");
    }
    if (run->bad.status == ATTN_OK && judged == 0)
        attn_fail(&run->bad, ATTN_EINVAL,
                  "%s: a row of 2 ranks or more and L >= %d would work: others are not judged",
                  run->data, JUDGED);
    attn_study_say(run, "Of %d rows %d are within %g %% in time, %d within %g %% in bytes.", judged,
                   good[0], 100 * TIME_TOLERANCE, good[1], 100 * BYTES_TOLERANCE);
    free(rows);
}

void attn_study_run_h200_ranks(struct attn_study_run *run)
{
    static struct attn_cluster_file file;
    json_t *table = attn_study_rows(run, attn_study_data_h200_schemes, columns);
    if (table == NULL ||
        attn_cluster_parse("h200.cluster", attn_study_data_h200, &file, &run->bad) != ATTN_OK) {
        json_decref(table);
        return;
    }
    if (run->data == NULL) {
        const struct attn_cluster *cluster = &file.cluster;
        attn_study_say(run, "Fitted are the rate of one rank's kernel, and the link.");
        double full = fit_rate(run, table, 0), masked = fit_rate(run, table, 1);
        fitted(run, "flops-bf16", cluster->flops[ATTN_BF16], full, "flop/s");
        fitted(run, "masked", cluster->masked, masked / full, "");
        fit_link(run, cluster);
    }
    attn_study_say(run,
                   "Rows of 2 ranks and more, from %d tokens on, the worst time first:", JUDGED);
    every_row(run, table, &file.cluster);
    json_decref(table);
}
