#include <math.h>

#include "experiments/bench/bench.h"
#include "experiments/measure/point.h"

static const double OURS = 0.95; /* of the most additions; clocks drift by some hundredths */
static const double PROBE_S = 0.0005, SEARCH_S = 0.25;

double attn_bench_additions(struct attn_bench *bench, const struct attn_bench_entry *e)
{
    double *most = &bench->most_additions[e->threads];
    double additions =
        attn_roof_sample(&bench->roofs, e->kernels, ATTN_ROOF_ISSUE, e->threads, PROBE_S);
    *most = additions > *most ? additions : *most;
    return additions;
}

int attn_bench_core_is_ours(const struct attn_bench *bench, const struct attn_bench_entry *e,
                            double additions)
{
    return !(additions < OURS * bench->most_additions[e->threads]);
}

double attn_bench_await_core(struct attn_bench *bench, const struct attn_bench_entry *e,
                             double peak_s, double *peak)
{
    double start = attn_point_seconds(CLOCK_MONOTONIC), least;
    if (bench->most_additions[e->threads] == 0) /* nobody knows yet what there can be */
        while (attn_point_seconds(CLOCK_MONOTONIC) - start < SEARCH_S)
            attn_bench_additions(bench, e);
    double until = attn_point_seconds(CLOCK_MONOTONIC) + bench->again_s / 5;
    do {
        do
            least = attn_bench_additions(bench, e);
        while (!attn_bench_core_is_ours(bench, e, least) &&
               attn_point_seconds(CLOCK_MONOTONIC) < until);
        *peak = attn_roof_sample(&bench->roofs, e->kernels, ATTN_ROOF_FMA, e->threads, peak_s);
        least = fmin(least, attn_bench_additions(bench, e));
    } while (!attn_bench_core_is_ours(bench, e, least) &&
             attn_point_seconds(CLOCK_MONOTONIC) < until);
    return least;
}

void attn_bench_mark_clean(const struct attn_bench *bench, struct attn_bench_entry *e)
{
    e->n_clean = 0;
    for (int s = 0; s < e->n; s++) {
        struct attn_bench_sample *sample = &e->sample[s];
        sample->core = sample->additions / bench->most_additions[e->threads];
        sample->clean = sample->undisturbed && attn_bench_core_is_ours(bench, e, sample->additions);
        e->n_clean += sample->clean;
    }
}
