/* The compressed pattern of a problem: equal to its mask pair by pair, priced to the byte, and
 * clean when memory runs out. */
#include "tests/suites.h"

#include <stdio.h>
#include <string.h>

#include "ref/impl.h"
#include "ref/mask/pattern.h"
#include "ref/problem.h"
#include "tests/fixtures/mask_data.h"
#include "tests/fixtures/memory_data.h"

SUITE(csr, .seconds = 300);

/* The piece of a whole problem that starts at `origin`. */
static struct attn_problem problem_of(const struct attn_mask *mask,
                                      const struct attn_mask_shape *piece,
                                      const struct attn_origin *origin)
{
    return (struct attn_problem){.batch = piece->batch,
                                 .heads = piece->heads,
                                 .kv_heads = piece->heads,
                                 .n_query = piece->n_query,
                                 .n_key = piece->n_key,
                                 .d_key = 1,
                                 .d_value = 1,
                                 .scale = 1,
                                 .dtype = ATTN_F64,
                                 .mask = mask,
                                 .origin = *origin};
}

static void check_rows(const struct attn_csr *csr, const struct attn_problem *p, const char *text)
{
    int64_t pairs = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_query; i++) {
                const int32_t *columns;
                int64_t n = attn_csr_row(csr, b, h, i, &columns), at = 0;
                for (int64_t j = 0; j < p->n_key; j++)
                    if (attn_problem_allows(p, b, h, i, j) && (at >= n || columns[at++] != j))
                        ck_abort_msg("%s: b%d h%d row %d lacks key %d", text, (int)b, (int)h,
                                     (int)i, (int)j);
                if (at != n)
                    ck_abort_msg("%s: b%d h%d row %d has %d keys too many", text, (int)b, (int)h,
                                 (int)i, (int)(n - at));
                pairs += n;
            }
    struct attn_cost cost = {0};
    struct attn_csr priced;
    ck_assert_int_eq(attn_csr_cost(p, &cost, &priced, NULL), ATTN_OK);
    ck_assert_int_eq(priced.nnz, csr->nnz);
    ck_assert_int_eq(priced.patterns, csr->patterns);
    ck_assert_int_eq(attn_csr_pairs(p, &priced), pairs);
}

/* The priced accounts are the ledger's, name by name. */
static void check_price(const struct attn_ledger *ledger, const struct attn_problem *p,
                        const struct attn_csr *csr)
{
    struct attn_cost cost = {0};
    struct attn_csr priced;
    ck_assert_int_eq(attn_csr_cost(p, &cost, &priced, NULL), ATTN_OK);
    int64_t starts = 8 * (csr->patterns * p->n_query + 1), columns = 4 * csr->nnz;
    struct attn_mask_tensor row_start, column;
    int given = attn_mask_stored(p->mask, &row_start, &column) && csr->column == column.data;
    ck_assert_int_eq(csr->borrowed, given);
    if (given) /* nothing is taken, and nothing priced */
        starts = columns = 0;
    ck_assert_int_eq(memory_bytes_of(cost.live, cost.n_live, "csr.row_start"), starts);
    ck_assert_int_eq(memory_bytes_of(cost.live, cost.n_live, "csr.column"), columns);
    ck_assert_int_eq(memory_bytes_of(ledger->account, ledger->n_accounts, "csr.row_start"), starts);
    ck_assert_int_eq(memory_bytes_of(ledger->account, ledger->n_accounts, "csr.column"), columns);
    ck_assert_int_eq(cost.peak_bytes, starts + columns);
    ck_assert_int_eq(ledger->now, starts + columns);
}

static void check_mask(const struct attn_mask *mask, const char *text,
                       const struct attn_mask_shape *piece, const struct attn_origin *origin)
{
    struct attn_problem p = problem_of(mask, piece, origin);
    struct attn_ledger ledger;
    struct attn_error err = {0};
    struct attn_csr csr;
    attn_ledger_init(&ledger, NULL);
    ledger.poison = 1;
    ck_assert_msg(attn_csr_build(&p, &ledger, &csr, &err) == ATTN_OK, "%s: %s", text, err.text);
    check_rows(&csr, &p, text);
    check_price(&ledger, &p, &csr);
    attn_csr_free(&csr, &ledger);
    attn_csr_free(&csr, &ledger); /* freed ones are all zero again */
    ck_assert_int_eq(ledger.damaged, 0);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
}

static void check_text(const char *pattern, struct mask_data *d)
{
    char text[256];
    const struct attn_mask_shape *s = &d->shape;
    mask_data_expand(text, sizeof text, pattern, s);
    struct attn_mask *mask = mask_data_parse(text, d);
    check_mask(mask, text, s, &(struct attn_origin){0});
    /* A shard: the second half of everything. */
    struct attn_origin half = {
        s->batch / 2, s->heads / 2, {.first = s->n_query / 2}, {.first = s->n_key / 2}, 0};
    check_mask(mask, text,
               &(struct attn_mask_shape){s->batch - half.batch, s->heads - half.head,
                                         s->n_query - half.query.first, s->n_key - half.key.first},
               &half);
    attn_mask_free(mask);
}

TEST_EACH(patterns_equal_their_masks, mask_n_shapes)
{
    static struct mask_data d;
    mask_data_fill(&d, &mask_shapes[_i]);
    for (int n = 0; n < mask_n_singles; n++)
        check_text(mask_singles[n], &d);
    for (int n = 0; n < mask_n_compositions; n++)
        check_text(mask_compositions[n], &d);
    check_mask(NULL, "no mask", &d.shape, &(struct attn_origin){0});
}

/* One pattern serves all batches and heads that share it. */
TEST(patterns_are_shared)
{
    static struct mask_data d;
    static const struct {
        const char *text;
        int64_t patterns;
    } want[] = {{"causal(br)", 1},          {"keys(%B)", 2},
                {"dense(by_batch)", 2},     {"dense(by_head)", 3},
                {"dense(full)", 6},         {"random(0.5,1)", 1},
                {"random(0.5,1,heads)", 6}, {"csr(all)", 1},
                {"csr(each)", 6},           {"keys(pad)|causal(tl)&dense(by_head)", 6}};
    mask_data_fill(&d, &(struct attn_mask_shape){2, 3, 5, 9});
    for (size_t n = 0; n < sizeof want / sizeof *want; n++) {
        char text[256];
        mask_data_expand(text, sizeof text, want[n].text, &d.shape);
        struct attn_mask *mask = mask_data_parse(text, &d);
        struct attn_problem p = problem_of(mask, &d.shape, &(struct attn_origin){0});
        struct attn_ledger ledger;
        struct attn_csr csr;
        attn_ledger_init(&ledger, NULL);
        ck_assert_int_eq(attn_csr_build(&p, &ledger, &csr, NULL), ATTN_OK);
        ck_assert_msg(csr.patterns == want[n].patterns, "%s: %d patterns", text, (int)csr.patterns);
        attn_csr_free(&csr, &ledger);
        attn_mask_free(mask);
    }
}

TEST(memory_that_runs_out_leaves_nothing)
{
    static struct mask_data d;
    mask_data_fill(&d, &mask_shapes[0]);
    struct attn_mask *mask = mask_data_parse("causal(br)&keys(pad)", &d);
    struct attn_problem p = problem_of(mask, &d.shape, &(struct attn_origin){0});
    int failures = 0;
    for (int64_t k = 0;; k++) {
        struct attn_ledger ledger;
        struct attn_error err = {0};
        struct attn_csr csr;
        attn_ledger_init(&ledger, NULL);
        ledger.fail_at = k;
        enum attn_status status = attn_csr_build(&p, &ledger, &csr, &err);
        attn_csr_free(&csr, &ledger);
        ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
        if (status == ATTN_OK)
            break;
        ck_assert_int_eq(status, ATTN_ENOMEM);
        ck_assert_int_eq(err.status, ATTN_ENOMEM);
        failures++;
    }
    ck_assert_int_eq(failures, 2);
    attn_mask_free(mask);
}

/* Prices of lengths that no memory holds; literals: 8 bytes a row, 4 a pair. */
TEST(long_problems_are_priced)
{
    struct attn_mask_shape shape = {2, 8, 200000, 200000};
    struct attn_mask *mask;
    struct attn_cost cost = {0};
    struct attn_csr csr;
    ck_assert_int_eq(attn_mask_parse("causal(br)&window(511,-1,br)", &shape, NULL, &mask, NULL),
                     ATTN_OK);
    struct attn_problem p = problem_of(mask, &shape, &(struct attn_origin){0});
    ck_assert_int_eq(attn_csr_cost(&p, &cost, &csr, NULL), ATTN_OK);
    ck_assert_int_eq(csr.nnz, 102269184);
    ck_assert_int_eq(attn_csr_pairs(&p, &csr), INT64_C(16) * 102269184);
    ck_assert_int_eq(cost.live[0].bytes, 1600008);
    ck_assert_int_eq(cost.live[1].bytes, 409076736);
    ck_assert_int_eq(cost.peak_bytes, 410676744);
    ck_assert_int_eq(cost.counted, 0);
    attn_mask_free(mask);
}

TEST(columns_beyond_32_bits_are_refused)
{
    struct attn_mask_shape shape = {1, 1, 1, INT64_C(1) << 31};
    struct attn_problem p = problem_of(NULL, &shape, &(struct attn_origin){0});
    struct attn_ledger ledger;
    struct attn_csr csr;
    struct attn_cost cost = {0};
    struct attn_error err = {0};
    attn_ledger_init(&ledger, NULL);
    ck_assert_int_eq(attn_csr_build(&p, &ledger, &csr, &err), ATTN_ENOTSUP);
    ck_assert(strstr(err.text, "2147483648 keys") != NULL);
    ck_assert_int_eq(attn_csr_cost(&p, &cost, &csr, &err), ATTN_ENOTSUP);
    p.n_key--;
    ck_assert_int_eq(attn_csr_cost(&p, &cost, &csr, &err), ATTN_OK);
}
