#include "experiments/bench/bench_json.h"

#include <math.h>

#include "experiments/measure/machine.h"

/* JSON has no NaN: what is not known is null. */
static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *spread_of(const struct attn_spread *s)
{
    return json_pack("{s:i,s:o,s:o,s:o,s:o,s:o}", "n", s->n, "min", real(s->min), "quarter",
                     real(s->quarter), "median", real(s->median), "three_quarters",
                     real(s->three_quarters), "max", real(s->max));
}

static json_t *roofs_of(const struct attn_bench *bench)
{
    json_t *roofs = json_array();
    for (int r = 0; r < bench->n_roofs; r++) {
        const struct attn_bench_roof *x = &bench->roof[r];
        json_array_append_new(roofs, json_pack("{s:s,s:s,s:s,s:i,s:s,s:o}", "roof",
                                               attn_roof_name(x->roof), "isa", x->isa, "arithmetic",
                                               x->kernels->bytes == 8 ? "f64" : "f32", "threads",
                                               x->threads, "unit", attn_roof_unit(x->roof),
                                               "per_second", spread_of(&x->spread)));
    }
    return roofs;
}

json_t *attn_bench_json(const struct attn_bench *bench)
{
    json_t *blas = json_null();
    if (bench->blas.handle != NULL)
        blas = json_pack("{s:s,s:s,s:s}", "library", bench->blas.name, "kernels",
                         bench->blas.kernels, "doubt", bench->blas.doubt);
    return json_pack("{s:i,s:o,s:i,s:o,s:o,s:s,s:[],s:[]}", "schema", ATTN_BENCH_SCHEMA, "machine",
                     attn_machine_facts(), "rounds", bench->rounds, "roofs", roofs_of(bench),
                     "blas", blas, "no_counters", bench->counters.why_not, "entries", "rows");
}

static json_t *samples_of(const struct attn_bench_entry *e)
{
    json_t *samples = json_array();
    for (int s = 0; s < e->n; s++) {
        const struct attn_bench_sample *x = &e->sample[s];
        json_array_append_new(samples, json_pack("{s:o,s:o,s:o,s:o,s:o}", "s", real(x->s), "peak",
                                                 real(x->peak), "read",
                                                 real(e->pair_read ? x->read : (double)NAN),
                                                 "tiles", real(x->tiles), "cpu_s", real(x->cpu_s)));
    }
    return samples;
}

static void put_figures(json_t *to, const struct attn_bench *bench,
                        const struct attn_bench_entry *e)
{
    struct attn_spread seconds, fraction, tiles;
    struct attn_bench_ceiling ceiling;
    attn_bench_spread(e, ATTN_BENCH_TILES, &tiles);
    attn_bench_spread(e, ATTN_BENCH_SECONDS, &seconds);
    attn_bench_spread(e, ATTN_BENCH_FRACTION, &fraction);
    attn_bench_ceiling(bench, e, &ceiling);
    json_object_set_new(to, "seconds", spread_of(&seconds));
    json_object_set_new(to, "fraction_of_peak", spread_of(&fraction));
    json_object_set_new(to, "tiles_of_peak", spread_of(&tiles));
    json_object_set_new(to, "gflops", real(1e-9 * e->work.flops / seconds.median));
    json_object_set_new(to, "ceiling",
                        json_pack("{s:o,s:s,s:o,s:o,s:o}", "fraction_of_peak",
                                  real(ceiling.fraction), "binds", ceiling.binds, "fma_s",
                                  real(ceiling.fma_s), "exp_s", real(ceiling.exp_s), "memory_s",
                                  real(ceiling.memory_s)));
    json_t *counters = json_object();
    for (int c = 0; c < ATTN_COUNTERS; c++)
        json_object_set_new(counters, attn_counter_name((enum attn_counter)c), real(e->counter[c]));
    json_object_set_new(to, "counters", counters);
}

void attn_bench_json_entry(json_t *all, const struct attn_bench *bench,
                           const struct attn_bench_entry *e, const struct attn_bench_entry *against)
{
    struct attn_bench_ratio r;
    json_t *to =
        json_pack("{s:s,s:s,s:i,s:s,s:s,s:s,s:s,s:o,s:I,s:I,s:o,s:o,s:o,s:I,s:o}", "spec", e->spec,
                  "case", e->text, "threads", e->threads, "isa", e->isa != NULL ? e->isa : "",
                  "state", attn_bench_state_name(e->state), "message", e->message, "verified",
                  e->verified, "worst", real(e->worst), "priced_bytes", (json_int_t)e->priced_bytes,
                  "ledger_bytes", (json_int_t)e->ledger_bytes, "pairs", real(e->work.pairs),
                  "flops", real(e->work.flops), "modelled_bytes", real(e->work.bytes),
                  "calls_a_sample", (json_int_t)e->calls, "samples", samples_of(e));
    if (to != NULL && e->state == ATTN_BENCH_TIMED)
        put_figures(to, bench, e);
    if (to != NULL && against != NULL && against != e && e->n > 0 && against->n > 0) {
        attn_bench_compare(e, against, &r);
        json_object_set_new(to, "against",
                            json_pack("{s:s,s:i,s:i,s:o,s:o,s:o}", "spec", against->spec, "rounds",
                                      r.n, "faster", r.faster, "times_as_fast",
                                      spread_of(&r.spread), "low", real(r.interval.low), "high",
                                      real(r.interval.high)));
    }
    json_array_append_new(json_object_get(all, "entries"), to);
}

void attn_bench_json_outcomes(json_t *all, const struct attn_bench_outcome *outcome, int n)
{
    for (int at = 0; at < n; at++) {
        const struct attn_bench_outcome *x = &outcome[at];
        json_array_append_new(
            json_object_get(all, "rows"),
            json_pack("{s:s,s:s,s:s,s:b,s:o,s:s,s:s,s:i,s:b,s:o,s:o}", "block", x->row->block,
                      "what", x->row->what, "unit", attn_bench_goal_unit(x->row->goal), "at_least",
                      attn_bench_goal_at_least(x->row->goal), "target",
                      x->row->target > 0 ? real(x->row->target) : json_null(), "spec", x->row->spec,
                      "case", x->row->text, "threads", x->row->threads, "known", x->known, "met",
                      x->known && x->row->target > 0 && !x->inconclusive ? json_boolean(x->met)
                                                                         : json_null(),
                      "value", x->known ? spread_of(&x->spread) : json_null()));
    }
}
