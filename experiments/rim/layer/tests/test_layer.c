/* The layer around attention (schemes/layer.h): right against loops in a wider type, priced to the
 * byte, and the same whether it kept or computes again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/rim/layer/tests/layer_fixture.h"
#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

SUITE(layer);

/* ---- one process ----------------------------------------------------------------------------- */

/* One pass, its price against its ledger. */
static void run_pass(struct layer_fixture *f, const struct attn_spec *spec, enum attn_pass pass,
                     int keeps, struct attn_ledger *ledger, struct attn_layer_saved *saved)
{
    struct attn_error err = {0};
    struct attn_ctx ctx = {.ledger = ledger, .options = &spec->options, .error = &err};
    struct attn_cost cost;
    attn_ledger_restart(ledger);
    enum attn_status status =
        pass == ATTN_FORWARD
            ? attn_layer_run_forward(spec->impl, &ctx, &f->layer, &f->forward, keeps ? saved : NULL)
            : attn_layer_run_backward(spec->impl, &ctx, &f->layer, &f->backward,
                                      keeps ? saved : NULL);
    ck_assert_msg(status == ATTN_OK, "%s", err.text);
    status = attn_layer_cost(&f->layer, spec->impl, &spec->options, pass, keeps, &cost, &err);
    ck_assert_msg(status == ATTN_OK, "%s", err.text);
    ck_priced(spec->impl->name, &cost, ledger->at_peak, ledger->n_at_peak, ledger->peak);
}

static void check_small(const int64_t n[7], const char *mask, enum attn_dtype dtype,
                        const char *spec_text, int keeps)
{
    struct attn_spec spec = spec_of(spec_text);
    struct layer_fixture f;
    struct attn_ledger ledger;
    struct attn_layer_saved saved = {0};
    attn_ledger_init(&ledger, NULL);
    ledger.poison = 1;
    layer_open(&f, n, mask, dtype, 7);
    run_pass(&f, &spec, ATTN_FORWARD, keeps, &ledger, &saved);
    run_pass(&f, &spec, ATTN_BACKWARD, keeps, &ledger, &saved);
    attn_layer_drop(&saved, &ledger);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
    ck_assert_int_eq(ledger.damaged, 0);
    layer_compare(&f, spec_text, ATTN_LAYER_Y, ATTN_LAYER_DWO);
    layer_close(&f);
}

TEST_EACH(agrees_with_loops, LAYERS_SMALL)
{
    static const char *const specs[] = {"dense", "tiled", "csr-textbook",
                                        "tiled-textbook:br=3,bc=2"};
    for (int n = 0; n < 4 * 4; n++)
        check_small(layers_small[_i].n, layers_small[_i].mask, n / 2 % 2 ? ATTN_F32 : ATTN_F64,
                    specs[n / 4], n % 2);
}

/* By hand: B=1, L=4, C=8, H=2, G=1, d=dv=4, f64.  Kept are q 32, k 16, v 16, o 32 and lse 8 numbers
 * of 8 bytes; a backward pass has the gradients of the first four beside them. */
TEST(price_by_hand)
{
    struct attn_spec spec = spec_of("tiled-textbook");
    const struct attn_layer layer = {1, 4, 8, 2, 1, 4, 4, 0.5, ATTN_F64, NULL};
    struct attn_error err = {0};
    struct attn_cost cost;
    int64_t named = 0;
    ck_assert(attn_layer_cost(&layer, spec.impl, &spec.options, ATTN_BACKWARD, 1, &cost, &err) ==
              ATTN_OK);
    ck_assert_int_eq(cost.saved_bytes, 8 * (32 + 16 + 16 + 32 + 8));
    for (int a = 0; a < cost.n_live; a++)
        named += strncmp(cost.live[a].name, "layer.", 6) == 0 ? cost.live[a].bytes : 0;
    ck_assert_int_eq(named, cost.saved_bytes + 8 * (32 + 16 + 16 + 32));
    ck_assert(cost.shard_bytes == 8.0 * (3 * 32 + 2 * (8 * 16 + 8 * 8)));
}

TEST(refuses)
{
    struct attn_spec spec = spec_of("tiled");
    struct attn_layer layer = {1, 4, 8, 2, 1, 4, 4, 0.5, ATTN_BF16, NULL};
    struct attn_error err = {0};
    struct attn_cost cost;
    ck_assert(attn_layer_check(&layer, &err) == ATTN_ENOTSUP); /* it has a price, and cannot run */
    ck_assert(attn_layer_cost(&layer, spec.impl, &spec.options, ATTN_FORWARD, 0, &cost, &err) ==
              ATTN_OK);
    ck_assert_str_eq(cost.lacks, "a layer");
    layer.dtype = ATTN_F32;
    layer.hidden = INT64_MAX / 2;
    ck_assert(attn_layer_check(&layer, &err) == ATTN_EINVAL);
    layer.hidden = -1;
    ck_assert(attn_layer_check(&layer, &err) == ATTN_EINVAL);
    layer.hidden = 8;
    layer.heads = 3;
    layer.kv_heads = 2;
    ck_assert(attn_layer_check(&layer, &err) == ATTN_EINVAL);
}
