/* What a machine is measured by: limits count known work, within their memory, and every roof has a
 * rate.  Nothing here asks how high it is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/bench/bench_roofs.h"
#include "tests/suites.h"

/* ---- limits: known work ------------------------------------------------------------------- */

enum { NUMBERS = 512 }; /* a multiple of 8 vectors of any width, and of three times as many */

static double number_at(const struct attn_kernels *k, const void *x, int64_t i)
{
    return k->bytes == 8 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* Units that are known beforehand, nothing written outside, and numbers that stay in [0,1]. */
static void limit_counts(const struct attn_kernels *k, const char *isa)
{
    enum { ROUNDS = 3, N = 3 * NUMBERS };
    _Alignas(64) double room[N + 8];
    for (int limit = 0; limit < ATTN_LIMITS; limit++) {
        for (int64_t i = 0; i < N; i++)
            if (k->bytes == 8)
                room[i] = (double)(i % 7) / 7;
            else
                ((float *)room)[i] = (float)(i % 7) / 7;
        char *end = (char *)room + N * k->bytes;
        memset(end, 0xa5, 64);
        double units = k->limit[limit](room, N, ROUNDS);
        int64_t step = 8 * k->lanes, half = N / (2 * step) * step, third = N / (3 * step) * step;
        double chains = limit == ATTN_LIMIT_FMA ? units / (2.0 * ROUNDS * k->lanes) : 0;
        int64_t rows = 2;
        while (2 * rows * 256 <= N * k->bytes)
            rows *= 2;
        double want[] = {units,
                         (double)(ROUNDS * half),
                         (double)(ROUNDS * N) * k->bytes,
                         (double)(ROUNDS * 3 * third) * k->bytes,
                         (double)(ROUNDS * rows * 256),
                         ROUNDS * 64.0};
        ck_assert_msg(units == want[limit], "%s: limit %d did %g, not %g", isa, limit, units,
                      want[limit]);
        ck_assert(limit != ATTN_LIMIT_FMA || (chains >= 8 && chains == floor(chains)));
        for (int64_t i = 0; i < N; i++)
            ck_assert_msg(number_at(k, room, i) >= 0 && number_at(k, room, i) <= 1,
                          "%s: limit %d leaves %g", isa, limit, number_at(k, room, i));
        for (int i = 0; i < 64; i++)
            ck_assert_int_eq((unsigned char)end[i], 0xa5);
    }
}

START_TEST(limits)
{
    for (int i = 0; i < attn_isa_count(); i++)
        for (int type = 0; type < 2 && attn_isa_at(i)->present(); type++)
            limit_counts(attn_isa_at(i)->kernels[type], attn_isa_at(i)->name);
}
END_TEST

/* The tiles do what they count, within their room, and leave numbers that others can work with. */
static void tiles_counts(const struct attn_kernels *kernels, const char *isa)
{
    enum { GUARD = 64, ROUNDS = 3 };
    static const int64_t width[] = {1, 5, 64, 80}, keys[] = {8, 96, ATTN_KEY_BLOCK};
    for (int w = 0; w < 4; w++)
        for (int k = 0; k < 3; k++) {
            int64_t d = width[w], room = kernels->limit_tiles_workspace(d, keys[k]);
            size_t bytes = (size_t)(room + GUARD) * (size_t)kernels->bytes;
            char *x = aligned_alloc(64, (bytes + 63) / 64 * 64);
            ck_assert_ptr_nonnull(x);
            for (int pass = 0; pass < 2; pass++) {
                memset(x, 0x3e, bytes);
                double flops = kernels->limit_tiles[pass](x, d, keys[k], ROUNDS);
                ck_assert_msg(flops == (pass == ATTN_FORWARD ? 4.0 : 10.0) * ROUNDS *
                                           (double)(kernels->panel * keys[k] * d),
                              "%s d=%lld", isa, (long long)d);
                for (size_t g = 0; g < GUARD * (size_t)kernels->bytes; g++)
                    ck_assert_int_eq(x[(size_t)room * (size_t)kernels->bytes + g], 0x3e);
                for (int64_t n = 0; n < room; n++) {
                    double number = number_at(kernels, x, n);
                    ck_assert_msg(number == 0 || isnormal(number), "%s d=%lld number %lld is %g",
                                  isa, (long long)d, (long long)n, number);
                }
            }
            free(x);
        }
}

START_TEST(tiles)
{
    for (int i = 0; i < attn_isa_count(); i++)
        for (int type = 0; type < 2 && attn_isa_at(i)->present(); type++)
            tiles_counts(attn_isa_at(i)->kernels[type], attn_isa_at(i)->name);
}
END_TEST

START_TEST(roofs)
{
    struct attn_roofs r;
    struct attn_error err = {ATTN_OK, ""};
    const struct attn_isa *isa = attn_isa_best(&err);
    ck_assert_ptr_nonnull(isa);
    ck_assert_msg(attn_roofs_open(&r, 2, &err) == ATTN_OK, "%s", err.text);
    ck_assert_int_ge(r.bytes, r.l2_bytes);
    for (int roof = 0; roof < ATTN_ROOFS; roof++)
        for (int threads = 1; threads <= 2; threads++) {
            double rate =
                attn_roof_sample(&r, isa->kernels[0], (enum attn_roof)roof, threads, 0.0005);
            ck_assert_msg(rate > 0 && isfinite(rate), "%s", attn_roof_name((enum attn_roof)roof));
        }
    for (int pass = 0; pass < 2; pass++) {
        struct attn_roof_tiles near = {pass, 64, ATTN_KEY_BLOCK}, huge = {pass, 1 << 30, 8};
        for (int threads = 1; threads <= 2; threads++)
            ck_assert(attn_roof_tiles_sample(&r, isa->kernels[0], &near, threads, 0.0005) > 0);
        ck_assert(isnan(attn_roof_tiles_sample(&r, isa->kernels[0], &near, 3, 0.0005)));
        ck_assert(isnan(attn_roof_tiles_sample(&r, isa->kernels[0], &huge, 1, 0.0005)));
    }
    ck_assert(isnan(attn_roof_sample(&r, isa->kernels[0], ATTN_ROOF_FMA, 3, 0.0005)));
    ck_assert(isnan(attn_roof_sample(&r, isa->kernels[0], ATTN_ROOF_FMA, 0, 0.0005)));
    attn_roofs_close(&r);
}
END_TEST

Suite *suite_roofs(void)
{
    Suite *s = suite_create("roofs");
    TCase *t = tcase_create("roofs");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, limits);
    tcase_add_test(t, tiles);
    tcase_add_test(t, roofs);
    suite_add_tcase(s, t);
    return s;
}
