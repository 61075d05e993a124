/* The compressed pattern of a problem: shared where it may be, and of no more keys than it can
 * name.  That it is its mask, and its price the ledger's: test_pieces.c; its bytes by literals:
 * test_storage.c; when memory runs out: memory_failures.c. */
#include "tests/suites.h"

#include "ref/impl.h"
#include "ref/mask/pattern.h"
#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/mask_data.h"
#include "tests/fixtures/refused.h"

SUITE(csr);

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
        struct attn_problem p = problem_of("b2h3q5k9d1:none:f64:normal:s1", mask);
        struct attn_ledger ledger;
        struct attn_csr csr;
        attn_ledger_init(&ledger, NULL);
        ck_assert_int_eq(attn_csr_build(&p, &ledger, &csr, NULL), ATTN_OK);
        ck_assert_msg(csr.patterns == want[n].patterns, "%s: %d patterns", text, (int)csr.patterns);
        attn_csr_free(&csr, &ledger);
        attn_mask_free(mask);
    }
}

TEST(columns_beyond_32_bits_are_refused)
{
    struct attn_problem p = problem_of("q1k2147483648d1:none:f64:normal:s1", NULL);
    struct attn_ledger ledger;
    struct attn_csr csr;
    struct attn_cost cost = {0};
    struct attn_error err = {0};
    attn_ledger_init(&ledger, NULL);
    ck_refusal(attn_csr_build(&p, &ledger, &csr, &err), ATTN_ENOTSUP, &err, "2147483648 keys");
    ck_assert_int_eq(attn_csr_cost(&p, &cost, &csr, &err), ATTN_ENOTSUP);
    p.n_key--;
    ck_assert_int_eq(attn_csr_cost(&p, &cost, &csr, &err), ATTN_OK);
}
