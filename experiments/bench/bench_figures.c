#include "experiments/bench/bench.h"

#include <math.h>

enum { DRAWS = 2000 }; /* resamples of the bootstrap */

double attn_bench_roof_rate(const struct attn_bench *bench, enum attn_roof roof,
                            const struct attn_bench_entry *e)
{
    for (int r = 0; r < bench->n_roofs; r++)
        if (bench->roof[r].roof == roof && bench->roof[r].kernels == e->kernels &&
            bench->roof[r].threads == e->threads)
            return bench->roof[r].spread.median;
    return (double)NAN;
}

static double quantity_of(const struct attn_bench_entry *e, int sample,
                          enum attn_bench_quantity quantity)
{
    const struct attn_bench_sample *s = &e->sample[sample];
    switch (quantity) {
    case ATTN_BENCH_SECONDS:
        return s->s;
    case ATTN_BENCH_RATE:
        return e->work.flops / s->s;
    case ATTN_BENCH_READ:
        return e->work.bytes / (s->s * s->read);
    case ATTN_BENCH_TILES:
        return s->tiles / s->peak;
    case ATTN_BENCH_FRACTION:
        break;
    }
    return e->work.flops / (s->s * s->peak);
}

static int quantities(const struct attn_bench_entry *e, enum attn_bench_quantity quantity,
                      double x[ATTN_BENCH_ROUNDS])
{
    for (int s = 0; s < e->n; s++)
        x[s] = quantity_of(e, s, quantity);
    return e->n;
}

void attn_bench_spread(const struct attn_bench_entry *e, enum attn_bench_quantity quantity,
                       struct attn_spread *spread)
{
    double x[ATTN_BENCH_ROUNDS];
    int n = quantities(e, quantity, x);
    attn_stats_spread(x, n, spread);
}

void attn_bench_interval(const struct attn_bench_entry *e, enum attn_bench_quantity quantity,
                         struct attn_interval *interval)
{
    double x[ATTN_BENCH_ROUNDS];
    int n = quantities(e, quantity, x);
    if (attn_stats_bootstrap_median(x, n, DRAWS, 1, 0.95, interval) !=
        0) /* one sample says nothing */
        *interval = (struct attn_interval){-HUGE_VAL, HUGE_VAL};
}

void attn_bench_compare(const struct attn_bench_entry *e, const struct attn_bench_entry *other,
                        struct attn_bench_ratio *ratio)
{
    double x[ATTN_BENCH_ROUNDS];
    int rounds = e->n < other->n ? e->n : other->n;
    *ratio = (struct attn_bench_ratio){0};
    for (int s = 0; s < rounds; s++) {
        x[ratio->n] = other->sample[s].s / e->sample[s].s;
        ratio->faster += x[ratio->n++] > 1;
    }
    attn_stats_bootstrap_median(x, ratio->n, DRAWS, 1, 0.95, &ratio->interval);
    attn_stats_spread(x, ratio->n, &ratio->spread);
}

void attn_bench_ceiling(const struct attn_bench *bench, const struct attn_bench_entry *e,
                        struct attn_bench_ceiling *ceiling)
{
    double fma = e->work.flops / attn_bench_roof_rate(bench, ATTN_ROOF_FMA, e);
    double exp = e->work.exps / attn_bench_roof_rate(bench, ATTN_ROOF_EXP2, e);
    int cached = e->work.bytes <= (double)(bench->roofs.l2_bytes * e->threads);
    double memory =
        e->work.bytes / attn_bench_roof_rate(bench, cached ? ATTN_ROOF_L2 : ATTN_ROOF_READ, e);
    double gather = 0; /* at best the second-level cache holds what is wanted */
    if (e->work.gathered > 0)
        gather = e->work.gathered / attn_bench_roof_rate(bench, ATTN_ROOF_GATHER_L2, e);
    *ceiling = (struct attn_bench_ceiling){(double)NAN, "", fma, exp, memory, gather};
    if (!(fma + exp + memory > 0)) /* not measured, or nothing to do */
        return;
    ceiling->fraction = fma / fmax(fmax(fma + exp, memory), gather);
    ceiling->binds = memory > fma + exp ? "memory" : exp > fma ? "exp" : "fma";
    if (gather > fmax(fma + exp, memory))
        ceiling->binds = "gather";
}
