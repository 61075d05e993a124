/* `attnlab cluster`: files that are wrong, words that do not go together, and what is said. */
#include <jansson.h>
#include <stdlib.h>

#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(cluster, .open = scratch_open, .close = scratch_close);

#define RING " ring --length 4Ki --dtype bf16 "
#define H200 "experiments/rim/cluster/h200.cluster"

/* A number without a source, or none at all, would be a guess. */
TEST(bad_files)
{
    static const struct {
        const char *edit, *words;
    } files[] = {
        {"/^node/d", "node is missing: node = NUMBER (ranks)"},
        {"s/source node .*//", "node has no source: `source node = TEXT`"},
        {"s/^node = 8/node = 8.5/", ":4: node = '8.5': a number from 1 to 1e+06 (ranks)"},
        {"s/^launch = .*/launch = nan/", "launch = 'nan': a number from 0 to 1 (s)"},
        {"s/^masked = [^;]*/masked = 0/", "masked = '0': a number from 0.001 to 1"},
        {"s/^flops-bf16/flops/", "unknown key 'flops'; there are name node memory"},
        {"s/^name.*/node = 8; node = 8/", ":2: node is set twice"},
        {"s/^name.*/a line/", ":2: 'a line' is neither `KEY = NUMBER` nor"},
        {"/^name/d", "name is missing"},
        {"/flops-bf16/d", "no rate: flops-bf16 = NUMBER"},
        {"s/^name.*/name = x ; source flops-f32 = y/", "flops-f32 is missing"},
    };
    for (size_t f = 0; f < COUNT(files); f++)
        scratch_shell(2, files[f].words,
                      "sed '%s' " H200 " > '%s'; '%s/attnlab' cluster '%s'" RING "2>&1",
                      files[f].edit, scratch_path("c"), test_build(), scratch_path("c"));
}

TEST(words)
{
    static const struct scratch_row rows[] = {
        {"cluster " H200 RING "--ranks 8:32:x2", 0, "fitted, h200_collectives.csv"},
        {"cluster " H200 " ring --length 4Ki --dtype f32", 2, "no flops-f32"},
        {"cluster " H200 " tiled --length 4Ki --dtype bf16 --ranks 8", 2, "tiled is one process"},
        {"cluster " H200 " ring:mask=dense --mask 'causal(br)' --length 4Ki --dtype bf16", 2,
         "mask=described would work"},
        {"cluster " H200 RING "--ranks 8:4", 2, "ranks '8:4': 8, or 8:4096:x2"},
        {"cluster " H200 RING "--ranks 8:4:x2", 2, "8:4096:x2"},
        {"cluster " H200 RING "--ranks 8:16:x1", 2, "8:4096:x2"},
        {"cluster " H200 RING "--ranks 8192", 2, "1 to 4096"},
        {"cluster " H200 RING "--ranks 8x", 2, "8:4096:x2"},
        {"cluster " H200 RING "--ranks 8:9223372036854775808:x2", 2, "8:4096:x2"},
        {"cluster here ring --length 4Ki", 2, "mpirun -n 4 attnlab-mpi cluster here"},
        {"cluster " H200 RING "--memory 80GiB", 2, "no such flag"},
        {"cluster no.cluster" RING, 2, "no.cluster"},
    };
    scratch_rows(rows, COUNT(rows));
}

/* usp is never slower than the rings and the Ulysses among its choices, both passes are the sum of
 * each, and what does not fit is not the best. */
TEST(best_of_usp)
{
    scratch_shell(0, "",
                  "for s in ring usp 'usp:heads=4'; do '%s/attnlab' cluster " H200
                  " \"$s\" --length 256Ki "
                  "--heads 16 --dim 128 --dtype bf16 --mask 'causal(br)' --pass both "
                  "--ranks 32 --format json || exit 1; done > '%s'",
                  test_build(), scratch_path("usp"));
    char *text = scratch_read(scratch_path("usp"));
    json_t *all[3];
    size_t at = 0;
    double seconds[3][3];
    for (int s = 0; s < 3; s++) {
        json_error_t error;
        all[s] = json_loads(text + at, JSON_DISABLE_EOF_CHECK, &error);
        ck_assert_ptr_nonnull(all[s]);
        at += (size_t)error.position;
        for (size_t pass = 0; pass < 3; pass++)
            seconds[s][pass] =
                json_number_value(json_object_get(json_array_get(all[s], pass), "seconds"));
        ck_assert_double_eq_tol(seconds[s][0] + seconds[s][1], seconds[s][2], 1e-9 * seconds[s][2]);
        json_decref(all[s]);
    }
    ck_assert_double_lt(seconds[1][0], seconds[0][0]);
    ck_assert_double_le(seconds[1][0], seconds[2][0]);
    free(text);
}
