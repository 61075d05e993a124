/* The layer around attention (ref/layer.h): right against loops in a wider type, priced to the
 * byte, and the same whether it kept or computes again. */
#include <stdlib.h>
#include <string.h>

#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/layer_fixture.h"
#include "tests/suites.h"

SUITE(layer, .seconds = 60);

/* ---- one process ----------------------------------------------------------------------------- */

static const struct {
    int64_t n[7]; /* B L C H G d dv */
    const char *mask;
} small[] = {
    {{2, 9, 12, 4, 2, 3, 3}, "causal(br)"},
    {{1, 17, 8, 3, 3, 4, 2}, "none"},
    {{3, 5, 7, 4, 1, 2, 3}, "keys(5,0,3)"},
    {{2, 12, 6, 2, 1, 3, 3}, "spatial(3,2,2)"},
    {{1, 1, 1, 1, 1, 1, 1}, "none"},
    {{0, 4, 5, 2, 1, 3, 3}, "none"},
    {{2, 0, 5, 2, 1, 3, 3}, "none"},
    {{2, 6, 0, 2, 1, 3, 3}, "none"},
    {{2, 6, 5, 2, 1, 0, 3}, "causal(br)"},
    {{2, 6, 5, 2, 1, 3, 0}, "causal(br)"},
    {{1, 40, 16, 8, 2, 2, 2}, "window(3,1,br)"},
};
enum { SMALL = sizeof small / sizeof *small };

static void same_live_set(const char *what, const struct attn_cost *cost,
                          const struct attn_account *live, int n, int64_t peak)
{
    ck_assert_msg(cost->peak_bytes == peak, "%s: priced %lld bytes, ledger has %lld", what,
                  (long long)cost->peak_bytes, (long long)peak);
    for (int a = 0; a < n; a++) {
        int64_t priced = 0;
        for (int c = 0; c < cost->n_live; c++)
            priced += strcmp(cost->live[c].name, live[a].name) == 0 ? cost->live[c].bytes : 0;
        ck_assert_msg(priced == live[a].bytes, "%s: '%s' priced at %lld bytes, ledger has %lld",
                      what, live[a].name, (long long)priced, (long long)live[a].bytes);
    }
}

/* One pass, its price against its ledger. */
static void run_pass(struct layer_fixture *f, const struct attn_spec *spec, enum attn_pass pass,
                     int keeps, struct attn_ledger *ledger, struct attn_layer_saved *saved)
{
    struct attn_error err = {0};
    struct attn_ctx ctx = {.ledger = ledger, .options = &spec->options, .error = &err};
    const struct attn_layer_forward forward = {f->x, f->wqkv, f->wo, f->got[ATTN_LAYER_Y]};
    const struct attn_layer_backward backward = {f->x,
                                                 f->wqkv,
                                                 f->wo,
                                                 f->dy,
                                                 f->got[ATTN_LAYER_DX],
                                                 f->got[ATTN_LAYER_DWQKV],
                                                 f->got[ATTN_LAYER_DWO]};
    struct attn_cost cost;
    attn_ledger_restart(ledger);
    enum attn_status status =
        pass == ATTN_FORWARD
            ? attn_layer_run_forward(spec->impl, &ctx, &f->layer, &forward, keeps ? saved : NULL)
            : attn_layer_run_backward(spec->impl, &ctx, &f->layer, &backward, keeps ? saved : NULL);
    ck_assert_msg(status == ATTN_OK, "%s", err.text);
    status = attn_layer_cost(&f->layer, spec->impl, &spec->options, pass, keeps, &cost, &err);
    ck_assert_msg(status == ATTN_OK, "%s", err.text);
    same_live_set(spec->impl->name, &cost, ledger->at_peak, ledger->n_at_peak, ledger->peak);
}

/* Numbers of a normal distribution in f64, within their bound; integers in f32, where every query
 * sees itself alone: exactly. */
static void check_small(const int64_t n[7], const char *mask, int exact, const char *spec_text,
                        int keeps)
{
    struct attn_spec spec = spec_of(spec_text);
    struct layer_fixture f;
    struct attn_ledger ledger;
    struct attn_layer_saved saved = {0};
    attn_ledger_init(&ledger, NULL);
    ledger.poison = 1;
    layer_open(&f, n, exact ? "window(0,0,tl)" : mask, exact ? ATTN_F32 : ATTN_F64,
               exact ? LAYER_INTEGERS : LAYER_NORMAL, 7);
    run_pass(&f, &spec, ATTN_FORWARD, keeps, &ledger, &saved);
    run_pass(&f, &spec, ATTN_BACKWARD, keeps, &ledger, &saved);
    attn_layer_drop(&saved, &ledger);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
    ck_assert_int_eq(ledger.damaged, 0);
    layer_compare(&f, spec_text, ATTN_LAYER_Y, ATTN_LAYER_DWO, exact ? 0 : 1);
    layer_close(&f);
}

TEST_EACH(agrees_with_loops, SMALL)
{
    static const char *const specs[] = {"dense", "tiled", "csr-textbook",
                                        "tiled-textbook:br=3,bc=2"};
    for (int s = 0; s < 4; s++)
        for (int way = 0; way < 4; way++)
            check_small(small[_i].n, small[_i].mask, way / 2, specs[s], way % 2);
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
    ck_assert(attn_layer_cost(&layer, spec.impl, &spec.options, ATTN_FORWARD, 0, &cost, &err) ==
              ATTN_ENOTSUP);
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
