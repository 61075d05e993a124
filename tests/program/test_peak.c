/* How fast the machine can be: loops of known work, within their memory; and the columns that come
 * of them.  Nothing here asks how long anything takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/point/peak.h"
#include "experiments/measure/record.h"
#include "optimized/simd/isa.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(peak, .open = scratch_open, .close = scratch_close);

enum { NUMBERS = 512 }; /* a multiple of 8 vectors of any width, and of three times as many */

static double number_at(const struct attn_kernels *k, const void *x, int64_t i)
{
    return k->bytes == 8 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* Units that are known beforehand, nothing written outside, and numbers that stay in [0,1]. */
static void limit_counts(const struct attn_kernels *k, const char *isa)
{
    enum { ROUNDS = 3, N = 3 * NUMBERS };
    _Alignas(64) double array[N + 8];
    for (int limit = 0; limit < ATTN_LIMITS; limit++) {
        for (int64_t i = 0; i < N; i++)
            if (k->bytes == 8)
                array[i] = (double)(i % 7) / 7;
            else
                ((float *)array)[i] = (float)(i % 7) / 7;
        char *end = (char *)array + N * k->bytes;
        memset(end, 0xa5, 64);
        double units = k->limit[limit](array, N, ROUNDS);
        double chains = limit == ATTN_LIMIT_FMA ? units / (2.0 * ROUNDS * k->lanes) : 0;
        double want[] = {units, (double)(ROUNDS * N) * k->bytes};
        ck_assert_msg(units == want[limit], "%s: limit %d did %g, not %g", isa, limit, units,
                      want[limit]);
        ck_assert(limit != ATTN_LIMIT_FMA || (chains >= 8 && chains == floor(chains)));
        for (int64_t i = 0; i < N; i++)
            ck_assert_msg(number_at(k, array, i) >= 0 && number_at(k, array, i) <= 1,
                          "%s: limit %d leaves %g", isa, limit, number_at(k, array, i));
        for (int i = 0; i < 64; i++)
            ck_assert_int_eq((unsigned char)end[i], 0xa5);
    }
}

TEST(limits)
{
    for (int i = 0; i < attn_isa_count(); i++)
        for (int type = 0; type < 2 && attn_isa_at(i)->present(); type++)
            limit_counts(attn_isa_at(i)->kernels[type], attn_isa_at(i)->name);
}

TEST(samples)
{
    struct attn_error err = {ATTN_OK, ""};
    const struct attn_isa *isa = attn_isa_best(&err);
    ck_assert_ptr_nonnull(isa);
    for (int limit = 0; limit < ATTN_LIMITS; limit++)
        for (int threads = 1; threads <= 2; threads++) {
            double rate =
                attn_peak_sample(isa->kernels[0], (enum attn_limit)limit, threads, 0.0005);
            ck_assert_msg(rate > 0 && isfinite(rate), "limit %d, %d threads", limit, threads);
        }
    ck_assert(isnan(attn_peak_sample(isa->kernels[0], ATTN_LIMIT_FMA, 0, 0.0005)));
    ck_assert(isnan(attn_peak_sample(isa->kernels[0], ATTN_LIMIT_FMA, 65, 0.0005)));
}

/* The textbook's flops: 4 pairs d and 10 pairs d; a backward pass with its scores makes none. */
TEST(work_of_a_call)
{
    struct attn_point p;
    attn_point_init(&p);
    p.c = case_of("q16d8:causal(br):f32:normal:s1");
    p.pairs = 16 * 17 / 2;
    p.floor_bytes = 1000;
    p.price.peak = 2 << 20;
    ck_assert(attn_point_products(&p) == 4 * 136 * 8);
    ck_assert(attn_point_traffic(&p) == 1000 + (4 << 20));
    p.price.peak = 1 << 20; /* a cache holds it */
    ck_assert(attn_point_traffic(&p) == 1000);
    p.c.pass = ATTN_BACKWARD;
    ck_assert(attn_point_products(&p) == 10 * 136 * 8);
    p.price.saved = 1;
    ck_assert(attn_point_products(&p) == 8 * 136 * 8);
}

/* Measured where it is asked for, on the threads of the case; the table is what is not kept. */
TEST(columns)
{
    scratch_expect(0, "",
                   "measure dense tiled --length 16 --threads 1,2 --rounds 1 --peak 1 --out %s",
                   scratch_path("r.jsonl"));
    struct attn_records records;
    struct attn_error err;
    ck_assert_int_eq(attn_record_read(scratch_path("r.jsonl"), &records, &err), ATTN_OK);
    ck_assert_int_eq(records.n, 4);
    for (int64_t i = 0; i < records.n; i++)
        ck_assert_msg(records.point[i].peak_flops_s > 0 && records.point[i].read_bytes_s > 0 &&
                          records.point[i].ledger_bytes == records.point[i].price.peak,
                      "%s", records.point[i].text);
    attn_records_free(&records);
    scratch_expect(0, "spec ", "measure dense --length 16 --rounds 1");
    scratch_has("q16d64:none:f32:normal:s1");
}

/* One figure has all points, of whatever length, under the roofs. */
TEST(roofline)
{
    static const char plan[] = "rounds = 1\npeak = 1\ngroup speed\n  spec = dense tiled\n"
                               "  length = 16 32\n  mask = none causal(br)\n";
    scratch_expect(0, "", "report --plan %s --out %s --quiet",
                   scratch_put("plan", plan, sizeof plan - 1), scratch_path("page"));
    char *script = scratch_read(scratch_path("page/figures/roofline.gp"));
    ck_assert_ptr_nonnull(strstr(script, "peak_gflops"));
    free(script);
}
