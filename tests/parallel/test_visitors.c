/* A schedule that no scheme of the library has: queries, and keys, visit a rank whose own tokens
 * are two stretches.  What a visitor gets is then a sum of two products, which must not lie where
 * the second product leaves its result. */
#include <stdio.h>
#include <string.h>

#include "optimized/parallel/parallel.h"
#include "optimized/parallel/sent.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/harness/subject/runner.h"
#include "tests/suites.h"

SUITE(parallel, .seconds = 60);

enum { OPTION_MERGING = ATTN_PARALLEL_OPTIONS, OPTION_PARTIALS };
typedef int64_t row_bytes(const struct attn_problem *p, enum attn_tag_kind kind);

static const struct attn_option options_of[] = {
    ATTN_OPTIONS_OF_ALL, [OPTION_MERGING] = ATTN_OPTIONS_OF_MERGING, {0}};

static struct attn_layout zigzag_of(const struct attn_problem *whole,
                                    const struct attn_options *options)
{
    struct attn_layout layout = attn_layout_of_tokens(whole, options);
    layout.order = ATTN_ZIGZAG;
    return layout;
}

static int stops(const struct attn_options *options)
{
    return attn_parallel_ranks(options) == 1 ? 1 : 3;
}

/* Of two ranks the second multiplies all: the first one's queries visit it, and then its keys. */
static struct attn_stop stop(const struct attn_work *w, int n)
{
    const int queries = n == 1;
    const enum attn_travels travels = queries ? ATTN_QUERIES_TRAVEL : ATTN_KEYS_TRAVEL;
    if (w->rank == 0)
        return (struct attn_stop){travels, 1, -1, -1, -1};
    return (struct attn_stop){travels, -1, 0, queries ? 0 : 1, queries ? 1 : 0};
}

static int has_visitors(const struct attn_options *options, int rank)
{
    return rank == 1 && attn_parallel_ranks(options) > 1;
}

static struct attn_sent sent(const struct attn_work *w)
{
    const struct attn_problem *p = &w->stored.whole;
    const int back = w->pass == ATTN_BACKWARD, is_last = w->rank == 1;
    int64_t rows = p->batch * p->heads * attn_layout_box(&w->stored.work, p, 0, 0).tokens;
    int64_t keys = p->batch * p->kv_heads * attn_layout_box(&w->stored.work, p, 1, 0).tokens;
    int64_t lse = attn_row_bytes(p, ATTN_TAG_LSE);
    row_bytes *part = w->options->value[OPTION_PARTIALS] ? attn_row_bytes : attn_sum_row_bytes;
    if (w->work.ranks == 1)
        return (struct attn_sent){0, 0};
    if (!is_last)
        return (struct attn_sent){
            rows * (attn_row_bytes(p, ATTN_TAG_Q) +
                    (back ? attn_row_bytes(p, ATTN_TAG_DO) + 2 * lse : 0)) +
                keys * (attn_row_bytes(p, ATTN_TAG_K) + attn_row_bytes(p, ATTN_TAG_V)),
            back ? 6 : 3};
    if (!back)
        return (struct attn_sent){rows * (part(p, ATTN_TAG_O) + lse), 2};
    return (struct attn_sent){
        rows * part(p, ATTN_TAG_DQ) + keys * (part(p, ATTN_TAG_DK) + part(p, ATTN_TAG_DV)), 3};
}

static const struct attn_scheme visits = {.home = zigzag_of,
                                          .work = zigzag_of,
                                          .stops = stops,
                                          .stop = stop,
                                          .has_visitors = has_visitors,
                                          .merging = OPTION_MERGING,
                                          .sent = sent};

ATTN_SCHEME(visits, visits, options_of, "queries visit a rank of two stretches")

/* Every merge and type of partial results; the forward pass is judged too. */
TEST_EACH(what_visits_has_room, 3 * 2 * 3)
{
    static const char *const dtype[] = {"f64", "f32", "bf16"};
    struct attn_spec spec = {.impl = &attn_impl_visits};
    char text[ATTN_CASE_TEXT];
    struct attn_result r;
    attn_options_preset(spec.impl, &spec.options);
    spec.options.value[ATTN_OPTION_RANKS] = 2;
    spec.options.value[OPTION_MERGING] = _i % 3;
    spec.options.value[OPTION_PARTIALS] = _i / 3 % 2;
    snprintf(text, sizeof text, "h4g2q23k21d8:causal(br):%s:normal:s1:pass=bwd", dtype[_i / 6]);
    struct attn_case c = case_of(text);
    attn_run_case(&spec, &c, &r);
    if (_i / 6 == 2 && spec.options.value[OPTION_PARTIALS]) /* a sum is not narrow */
        ck_assert_msg(r.verdict == ATTN_REFUSED && strstr(r.text, "partials=wide would work"), "%s",
                      r.text);
    else
        ck_passed(&spec, &c, &r, 0);
}
