/* Numbers that a soak has met, in order to print how far its walk has come. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/cases/soak.h"

static void note(unsigned char *met, int64_t n, int64_t most)
{
    if (n >= 0 && n <= most)
        met[n] = 1;
}

void attn_soak_note(const struct attn_claims *claims, const struct attn_case *c,
                    struct attn_soak_walked *x)
{
    struct attn_setup setup;
    struct attn_mask_call call, more;
    if (attn_setup_describe(c, &setup, NULL) != ATTN_OK)
        return;
    const struct attn_mask *mask = setup.problem.mask;
    int is_band = attn_mask_call(mask, 0, 0, &call) && call.kind == ATTN_CALL_BAND;
    int64_t window = is_band && call.left > 0 ? call.left : 0;
    int is_plain = mask == NULL || window >= 7 ||
                   (is_band && call.left < 0 && !attn_mask_call(mask, 0, 1, &more));
    attn_setup_close(&setup);
    if (!is_plain || c->fill != ATTN_FILL_NORMAL || !isnan(c->scale) || c->special != 0 ||
        c->bias != ATTN_CASE_BIAS_NONE || c->n_query < 5 || c->n_key < 5 || c->kv_heads == 0 ||
        c->batch == 0 || (c->pass == ATTN_FORWARD && claims->bits & ATTN_CAP_BACKWARD))
        return;
    note(x->met[ATTN_WALK_D], c->d_key % 8 == 0 ? c->d_key / 8 : 0, 32);
    note(x->met[ATTN_WALK_HEADS], c->heads % 2 == 0 ? c->heads / 2 : 0, 32);
    note(x->met[ATTN_WALK_GROUP], c->heads / c->kv_heads, 16);
    note(x->met[ATTN_WALK_BATCH], c->batch, 16);
    note(x->met[ATTN_WALK_DV], c->d_value != c->d_key ? c->d_value : 0, 128);
    note(x->met[ATTN_WALK_SOFTCAP], (int64_t)(2 * c->softcap), 128);
    note(x->met[ATTN_WALK_WINDOW], window, 128);
    note(x->met[ATTN_WALK_TAIL], c->n_key > 64 ? 1 + c->n_key % 64 : 0, 64);
}

int attn_soak_met(const struct attn_soak_walked *x, enum attn_walk walk)
{
    int n = 0;
    for (int v = 1; v <= 128; v++)
        n += x->met[walk][v];
    return n;
}

void attn_soak_print(const struct attn_soak_walked *x, char *text, size_t size)
{
    static const struct {
        const char *says;
        int of;
    } walk[ATTN_WALKS] = {{"multiples of 8 as d", 32},
                          {"even numbers of heads", 32},
                          {"groups", 16},
                          {"batches", 16},
                          {"tails of keys", 64},
                          {"dv", 0},
                          {"softcaps", 0},
                          {"windows", 0}};
    text[0] = '\0';
    for (int w = 0; w < ATTN_WALKS; w++) {
        attn_append(text, size, "%s%d", w > 0 ? ", " : "", attn_soak_met(x, (enum attn_walk)w));
        if (walk[w].of > 0)
            attn_append(text, size, " of %d", walk[w].of);
        attn_append(text, size, " %s", walk[w].says);
    }
}
