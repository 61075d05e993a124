/* Is the bound sound and of use?  Honest implementations on seeded problems and on every fill: no
 * element may exceed its bound, and somewhere the error must come within two decimal places of
 * it, or the bound would let real bugs pass. */

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/harness/runner.h"
#include "tests/suites.h"

SUITE(agree, .seconds = 240);

static const char *const specs[] = {"dense", "csr-textbook", "tiled-textbook",
                                    "tiled-textbook:br=4,bc=8", "tiled-textbook:br=1,bc=1"};
enum { SPECS = sizeof specs / sizeof *specs, DRAWS = 200 };

struct tally {
    int ran, weak;
    double worst[ATTN_OUTPUTS];
};

static void run(const struct attn_spec *spec, const char *text, struct tally *tally)
{
    struct attn_result r;
    char report[4096];
    struct attn_case c = case_of(text);
    attn_run_case(spec, &c, &r);
    attn_result_print(spec, &c, &r, report, sizeof report);
    ck_assert_msg(r.verdict == ATTN_PASS || r.verdict == ATTN_WEAK, "%s", report);
    tally->ran++;
    tally->weak += r.verdict == ATTN_WEAK;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        ck_assert_msg(r.output[o].ratio <= 1, "%s", report);
        if (r.output[o].ratio > tally->worst[o])
            tally->worst[o] = r.output[o].ratio;
    }
}

static uint64_t draw(uint64_t seed, uint64_t what, uint64_t n)
{
    return attn_hash(seed, what, 77) % n;
}

/* A small problem by number: every extent, mask, fill and extra that fits beside each other. */
static void draw_case(uint64_t n, char *text, size_t size)
{
    static const char *const mask[] = {"none",           "causal(br)",    "causal(tl)",
                                       "window(6,2,br)", "random(0.4,3)", "prefix(3)|causal(br)",
                                       "keys(x1101)",    "dense(bhqk60)", "causal(-2)"};
    static const char *const fill[] = {"normal",    "normal", "normal",  "offset-120", "offset-3e5",
                                       "stairs-up", "spike",  "lowrank", "integer",    "hetero"};
    static const char *const extra[] = {"",
                                        "",
                                        ":softcap=3",
                                        ":bias=full:dbias=1",
                                        ":bias=alibi",
                                        ":dlse=1",
                                        ":softcap=10:bias=row:dbias=1",
                                        ":layout=mixed"};
    uint64_t g = 1 + draw(n, 0, 2), group = 1 + draw(n, 1, 3);
    snprintf(text, size, "b%dh%dg%dq%dk%dd%dv%d:%s:%s:%s:s%d:pass=bwd%s", 1 + (int)draw(n, 2, 2),
             (int)(g * group), (int)g, 1 + (int)draw(n, 3, 24), 1 + (int)draw(n, 4, 48),
             2 + (int)draw(n, 5, 30), 1 + (int)draw(n, 6, 20), mask[draw(n, 7, 9)],
             draw(n, 8, 4) == 0 ? "f64" : "f32", fill[draw(n, 9, 10)], (int)n,
             extra[draw(n, 10, 8)]);
}

TEST_EACH(sound_and_of_use, SPECS)
{
    struct tally tally = {0};
    char text[256];
    struct attn_spec spec = spec_of(specs[_i]);
    for (uint64_t n = 0; n < DRAWS; n++) {
        draw_case(n + 1000 * (uint64_t)_i, text, sizeof text);
        run(&spec, text, &tally);
    }
    for (int fill = 0; fill < ATTN_FILLS; fill++)
        for (int wide = 0; wide < 2; wide++) {
            snprintf(text, sizeof text, "b1h2g1q9k70d16v70:%s:%s:%s:s%d:pass=bwd",
                     fill % 2 ? "none" : "causal(br)", wide ? "f64" : "f32",
                     attn_fill_name((enum attn_fill)fill), 3 + fill);
            run(&spec, text, &tally);
        }
    printf("agree: %s: largest error/bound of %d problems:", specs[_i], tally.ran);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        printf(" %s %.3f", attn_output_name((enum attn_output)o), tally.worst[o]);
    printf("\n");
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        ck_assert_msg(tally.worst[o] >= 0.01, "%s: %s never comes nearer to its bound than %g",
                      specs[_i], attn_output_name((enum attn_output)o), tally.worst[o]);
    ck_assert_int_le(tally.weak, tally.ran / 20);
}

/* The threads of a truth change none of its bits: whole and of a sample. */
TEST_EACH(same_bits_for_any_number_of_threads, 4)
{
    static const char *const text[] = {
        "b2h4g2q200k150d24v40:causal(br):f32:normal:s7:pass=bwd",
        "b1h6g3q260k260d8:window(40,3,br):f64:stairs-up:s8:pass=bwd:softcap=20",
        "b3h2q200d16:random(0.3,5):bf16:spike:s9:pass=bwd:dlse=1",
        "b1h3g3q300d16:causal(br):f32:normal:s1:pass=bwd:bias=row:dbias=1"};
    static const int64_t index[] = {0, 3, 77, 149};
    const struct attn_sample sample = {4, 4, index, index};
    for (int sampled = 0; sampled < 2; sampled++) {
        const struct attn_spec spec = spec_of("tiled");
        struct attn_setup setup;
        struct attn_truth one, many;
        setup_of(text[_i], &setup);
        omp_set_num_threads(1);
        truth_of(&setup, &spec, sampled ? &sample : NULL, &one);
        omp_set_num_threads(3);
        truth_of(&setup, &spec, sampled ? &sample : NULL, &many);
        for (int o = 0; o < ATTN_OUTPUTS; o++) {
            const struct attn_truth_tensor *a = &one.tensor[o], *b = &many.tensor[o];
            size_t n = a->want == NULL ? 0 : 1;
            for (int axis = 0; axis < 4; axis++)
                n *= (size_t)a->extent[axis];
            ck_assert_int_eq(a->want == NULL, b->want == NULL);
            int same = n == 0 || (memcmp(a->want, b->want, n * sizeof *a->want) == 0 &&
                                  memcmp(a->bound, b->bound, n * sizeof *a->bound) == 0 &&
                                  memcmp(a->gauge, b->gauge, n * sizeof *a->gauge) == 0 &&
                                  memcmp(a->right, b->right, n) == 0);
            ck_assert_msg(same, "%s: %s", text[_i], attn_output_name((enum attn_output)o));
        }
        attn_truth_free(&one);
        attn_truth_free(&many);
        attn_setup_close(&setup);
    }
}
