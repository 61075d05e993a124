/* Figures in the prose of pages.  Each is derived here by other code than the page's command, and
 * must stand on the page in these words.
 *
 * Only these find a figure that is wrong in prose: tests/manual.sh compares what commands print. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(facts);

static const double MIB = 1024 * 1024;

/* The page says so, wherever its lines break. */
static void says(const char *page, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void says(const char *page, const char *format, ...)
{
    char words[256];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    char *text = scratch_read(page), *to = text;
    for (const char *at = text; *at != '\0'; at++)
        if (!isspace((unsigned char)*at) || (to > text && to[-1] != ' '))
            *to++ = isspace((unsigned char)*at) ? ' ' : *at;
    *to = '\0';
    ck_assert_msg(strstr(text, words) != NULL, "%s does not say: %s", page, words);
    free(text);
}

/* The number that a line of a shell prints. */
static double number(const char *format, ...) __attribute__((format(printf, 1, 2)));
static double number(const char *format, ...)
{
    char line[1024], *end;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    scratch_shell(0, "", "PATH='%s':$PATH\n%s", test_build(), line);
    double x = strtod(scratch_output, &end);
    ck_assert_msg(end != scratch_output, "%s\nno number: %s", line, scratch_output);
    return x;
}

/* Bytes of `attnlab price` at the peak. */
static double peak(const char *spec, const char *flags)
{
    return number("attnlab price %s --length 512 --heads 2 %s | "
                  "awk '/^  peak/ { gsub(\",\", \"\"); print $2 }'",
                  spec, flags);
}

/* The measured bytes that one layer of 8 heads of 128 saves at L = 8,192, as if at 65,536: neither
 * grows faster than L. */
static double saved(const char *start)
{
    return 8 * number("awk -F, '/^%s,1,1,8,128,8192,/ { print $11 - $10 }' "
                      "experiments/rim/studies/data/training_h100_memory.csv",
                      start);
}

TEST(checkpointed_layers)
{
    double math = saved("math,f32,none,1"), flash = saved("flash,bf16,none,0"),
           least = saved("flash,bf16,none,1");
    says("docs/studies/training-h100.md",
         "puts it below `flash`, which had slope 1 before: at L=65,536 %.0f MiB against %.0f MiB. "
         "Checkpointed `flash` keeps %.0f MiB",
         math / MIB, flash / MIB, least / MIB);
    says("docs/studies/training-h100.md", "flash %.2f-fold", flash / least);
    ck_assert_double_eq_tol(flash / least, 5 + 2.0 / 128, 1e-4);
}

TEST(a_token_reads_a_cache)
{
    /* operations of a call over numbers of k and v: a multiplication and an addition each */
    double flops = number("attnlab price tiled --length 1 --keys 4096 --heads 8 --format json | "
                          "awk '/flops/ { print $2 }'");
    ck_assert_double_eq_tol(flops / (2.0 * 8 * 4096 * 64), 2, 1e-12);
    says("docs/studies/kv-cache.md", "does one multiplication and one addition");
    /* one token of 40 layers, 5,120 features, k and v, 16 bits; four squares of weights for
     * attention, eight for what follows */
    double token = 40.0 * 5120 * 2 * 2, weights = 40.0 * (4 + 8) * 5120 * 5120 * 2;
    says("docs/studies/kv-cache.md", "as many bytes as a cache of %.0f,%.0f tokens",
         floor(weights / token / 1000), fmod(weights / token, 1000));
    says("docs/studies/kv-cache.md", "in units of 1,000 they would be %.0f and %.1f", token / 1e3,
         2048 * token / 1e9);
    says("docs/studies/kv-cache.md", "\"%.0f KB\" and \"%.1f GB\"", token / 1024,
         2048 * token / ldexp(1, 30));
}

/* The rate of h200.cluster is that of one width, forward; one rank sends nothing. */
TEST(a_rate_is_of_one_width)
{
    static const struct {
        int d;
        const char *pass, *says;
    } row[] = {{72, "fwd", "is %.2f of the measured one forward at d = 72"},
               {256, "bwd", "and %.2f backward at d = 256"}};
    for (int n = 0; n < COUNT(row); n++) {
        double model = number("attnlab cluster experiments/rim/cluster/h200.cluster ulysses "
                              "--ranks 1 --length 32Ki --heads 16 --dim %d --dtype bf16 --pass %s "
                              "--format json | awk '/\"seconds\"/ { print $2; exit }'",
                              row[n].d, row[n].pass);
        double measured = number("awk -F, '/^1,16,32768,%d,%s,/ { print $6 }' "
                                 "experiments/rim/studies/data/h200_widths.csv",
                                 row[n].d, row[n].pass);
        says("docs/parallel.md", row[n].says, model / measured);
    }
}

/* Bytes on the ledger of a real call. */
static double ledger(const char *spec, const char *problem)
{
    return number("attnlab point '{\"schema\": 2, \"record\": \"point\", \"status\": \"priced\", "
                  "\"spec\": \"%s\", \"case\": \"%s\", \"repeat\": 0, \"enough_s\": 0, "
                  "\"verify_all\": 0, \"unverified\": true}' | "
                  "sed 's/.*\"ledger_bytes\": *\\([0-9]*\\).*/\\1/'",
                  spec, problem);
}

/* Is csr-textbook below dense where nothing is hidden, it always is. */
TEST(csr_against_dense)
{
    for (int heads = 4; heads <= 5; heads++) {
        char full[64], half[64];
        snprintf(full, sizeof full, "h%dq512d16:keys(512):f32:normal:s1", heads);
        snprintf(half, sizeof half, "h%dq512d16:random(0.5,1):f32:normal:s1", heads);
        double csr = ledger("csr-textbook", full);
        ck_assert_int_eq(csr < ledger("dense", full), heads == 5);
        ck_assert_double_gt(csr, ledger("dense:mask=bool2d", full));
        ck_assert_double_lt(ledger("csr-textbook", half), ledger("dense:mask=bool2d", half));
    }
    says("docs/studies/xformers-order.md", "always needs less from five heads on");
    says("docs/studies/xformers-order.md", "there is a break-even at any number of heads");
}

/* Between two lengths: nothing is added forward, and something for each query backward. */
TEST(tiles_and_length)
{
    static const char *const specs[] = {"tiled-textbook", "tiled@portable"};
    for (int s = 0; s < COUNT(specs); s++) {
        ck_assert_double_eq(ledger(specs[s], "q512d16:none:f32:normal:s1"),
                            ledger(specs[s], "q1024d16:none:f32:normal:s1"));
        ck_assert_double_ge(ledger(specs[s], "q1024d16:none:f32:normal:s1:pass=bwd") -
                                ledger(specs[s], "q512d16:none:f32:normal:s1:pass=bwd"),
                            4 * 512);
    }
    says("docs/memory.md", "tiles for one tile, and backward also something for every query");
    says("docs/attention.md", "forward: does not grow");
    says("README.md", "Tiles need a constant amount forward");
}

/* Eight ranks: each sends its mask in eight copies and receives eight, or sends one. */
TEST(a_mask_that_is_repeated)
{
    says("docs/studies/open-sora-plan-mask.md",
         "%.1f times above the all-gather: %d + %d copies against %d + %d", (8 + 8) / (1 + 8.0), 8,
         8, 1, 8);
}

/* 16 bits of storage change nothing of S and P, in a textbook and a fast one; one head of q, k, v,
 * o and of four gradients in a textbook. */
TEST(sixteen_bits)
{
    static const char *const wide[] = {"--pass fwd", "--pass bwd"};
    static const char *const narrow[] = {"--dtype bf16", "--dtype bf16 --pass bwd"};
    for (int pass = 0; pass < 2; pass++) {
        double more = peak("dense", narrow[pass]) - peak("dense", wide[pass]);
        ck_assert_double_eq(more, (pass == 0 ? 4 : 8) * 4.0 * 512 * 64);
        ck_assert_double_eq(peak("gemm@portable", narrow[pass]), peak("gemm@portable", wide[pass]));
    }
    says("docs/attention.md", "w is still 4: scores and sums are 32-bit floats");
    says("docs/attention.md", "16 L d bytes more forward, 32 L d backward");
}

/* A tensor of 4,096 tokens and 1,152 features changes hands on four ranks: each has a quarter of
 * the tokens and sends all of its features but its own quarter. */
TEST(a_unit_of_split_gather)
{
    double bytes = 4096 / 4 * (1152 - 1152 / 4) * 2.0;
    says("docs/studies/open-sora-split-gather.md", "a unit is %.2f MiB on four ranks", bytes / MIB);
    double eight = number("awk -F, '/^v1.0.*,_,4,/ { print $5 }' "
                          "docs/studies/open-sora-split-gather.csv");
    ck_assert_double_eq_tol(eight, 8 * bytes, 0.01 * 8 * bytes);
}

/* A checkpoint around a layer keeps its input and not the five tensors of the study: L = 4,096. */
TEST(a_layer_keeps_its_input)
{
    double whole = saved("flash,bf16,none,0") / 16, input = saved("flash,bf16,none,1") / 16;
    static const char *const pages[] = {"docs/memory.md", "docs/course/04-training.md"};
    for (int n = 0; n < COUNT(pages); n++)
        says(pages[n], "%.0f MiB in place of %.0f MiB", input / MIB, whole / MIB);
}

/* Outputs of zeros and allclose(atol = 0.01): the mean of n normal values lies within. */
TEST(zeros_that_pass)
{
    says("docs/course/06-proof.md", "zeros pass for %.0f %% of them",
         100 * erf(1e-2 * sqrt(1e4) / sqrt(2)));
    says("docs/course/06-proof.md", "zeros pass for %.2f %%: 10⁻² is %.2f standard deviations",
         100 * erf(1e-2 * sqrt(1e5) / sqrt(2)), 1e-2 * sqrt(1e5));
}

TEST(ways_to_store_a_mask)
{
    ck_assert_double_eq(number("attnlab storage --length 1Mi --mask "
                               "'causal(br)&window(511,0,br)' | grep -c '^[a-z].* [GT]iB '"),
                        8);
    says("docs/course/02-sparsity.md", "stored in eight ways");
}

/* The word that a seed draws, by the page's formula. */
TEST(a_task_is_drawn)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *at = "hal:01-softmax:lse"; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    says("docs/labs/README.md", "upper 32 bits of the FNV-1a hash of `NAME:LAB:KEY`, modulo");
    ck_assert_int_eq((hash >> 32) % 2, 1); /* 2, of the words e and 2 */
    scratch_expect(0, "declare \"lse\": \"2\"", "grade 01 --seed hal");
}

/* All blocks before its own, and half of that. */
TEST(the_slowest_rank_of_a_ring)
{
    double last = number("attnlab price allgather:ranks=16,local=tiled-textbook --length 1024 "
                         "--mask 'causal(br)' | awk '/^  [0-9]/ { n = $(NF-3) } "
                         "END { gsub(\",\", \"\", n); print n }'");
    ck_assert_double_eq(last, 64 * 64 * 15 + 64 * 65 / 2.0);
    says("docs/parallel.md", "the slowest rank computes R − ½ blocks of pairs, where R/2");
}
