/* See models.h. */
#include "tests/harness/cases/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/impl.h"
#include "ref/mask/nearest.h"
#include "tests/harness/cases/band.h"

const char *const attn_model_flag[ATTN_MODEL_VALUES] = {
    "heads", "kv-heads", "dim", "dv", "keys", "mask", "scale", "softcap", "dtype"};

const struct attn_model attn_models[ATTN_MODELS] = {
#define ATTN_MODEL(name, h, g, d, dv, k, layers, windowed, latent, mask, scale, c, field, source) \
    {name,  source, {#h, #g, #d, #dv, k > 0 ? #k : "", mask, scale, c > 0 ? #c : "", ""},         \
     field, layers, windowed,                                                                     \
     latent},
#include "tests/harness/cases/models.def"
#undef ATTN_MODEL
};

enum attn_status attn_model_find(const char *name, const struct attn_model **model,
                                 struct attn_error *err)
{
    char meant[64];
    struct attn_nearest nearest = attn_nearest_begin(name, strlen(name));
    for (int m = 0; m < ATTN_MODELS; m++) {
        *model = &attn_models[m];
        if (strcmp(name, (*model)->name) == 0)
            return ATTN_OK;
        attn_nearest_offer(&nearest, (*model)->name);
    }
    return attn_fail(err, ATTN_EINVAL, "no model is called '%.60s'%s; attnlab list models has them",
                     name, attn_nearest_text(&nearest, meant));
}

/* Where ":KEY=" begins, behind the last folder; NULL: nowhere. */
static const char *settings_of(const char *text)
{
    const char *colon = strrchr(text, ':'), *slash = strrchr(text, '/');
    if (colon == NULL || (slash != NULL && colon < slash) ||
        colon[1 + strspn(colon + 1, "abcdefghijklmnopqrstuvwxyz")] != '=')
        return NULL;
    return colon;
}

enum attn_status attn_model_open(const char *text, struct attn_model_given *given,
                                 struct attn_error *err)
{
    const char *settings = settings_of(text), *end;
    size_t n = settings != NULL ? (size_t)(settings - text) : strlen(text);
    const struct attn_model *model;
    if (n >= sizeof given->name)
        return attn_fail(err, ATTN_EINVAL, "a name of %zu bytes is too long: 255 would work", n);
    memcpy(given->name, text, n);
    given->name[n] = '\0';
    given->settings = settings != NULL ? settings + 1 : "";
    end = strrchr(given->name, '.');
    if (end != NULL && strcmp(end, ".json") == 0)
        return attn_model_read(given, err);
    struct attn_error why = {ATTN_OK, ""};
    enum attn_status status = attn_model_find(given->name, &model, &why);
    if (status != ATTN_OK)
        return attn_fail(err, status, "%s, or a config.json would work", why.text);
    given->model = *model;
    return ATTN_OK;
}

enum { TILES, PREFILL, DECODE, BACKWARD };
static const char *const suffix[ATTN_MODEL_CASES] = {"", "-prefill", "-decode", "-backward"};

/* Keys to the left of a query; -1: all. */
static int64_t window_of(const char *text)
{
    const struct attn_mask_shape shape = {1, 1, 1, 1};
    struct attn_mask *mask;
    struct attn_chain chain;
    attn_mask_parse(text, &shape, NULL, &mask, NULL);
    int64_t left = attn_chain_of(mask, &chain) ? chain.band.left : -1;
    attn_mask_free(mask);
    return left;
}

/* Lengths differ from model to model, so that tails do.  A window hides something.  The oracle is
 * asked little of subsets: they are the data of a prefill and of many heads, where their answer
 * is exact. */
void attn_model_case(const struct attn_model *model, int index, unsigned claims,
                     struct attn_model_case *c)
{
    const unsigned needs = strncmp(model->field, "sink=", 5) == 0   ? ATTN_CAP_SINK
                           : strcmp(model->field, "kv=shared") == 0 ? ATTN_CAP_KV_SHARED
                                                                    : 0;
    const char *field = needs & ~claims ? "" : model->field;
    static const char *const why[ATTN_MODEL_CASES] = {
        "two tiles of 128 and a tail", "three tiles of 128 and a tail", "one query, 4,099 keys",
        "gradients of two tiles of 128 and a tail"};
    const char *const *v = model->value;
    int number = (int)(model - attn_models), d = atoi(v[ATTN_MODEL_DIM]),
        kv = atoi(v[ATTN_MODEL_KV_HEADS]);
    int group = atoi(v[ATTN_MODEL_HEADS]) / kv < 16 ? atoi(v[ATTN_MODEL_HEADS]) / kv : 16;
    int n_key = index == DECODE ? 4099 : (index == PREFILL ? 385 : 257) + number * 13 % 71;
    int n_query = index == DECODE                 ? 1
                  : d > 256                       ? 8
                  : v[ATTN_MODEL_KEYS][0] != '\0' ? n_key - 101
                                                  : n_key;
    int is_long = index == PREFILL || index == DECODE, is_many = group > 4 && d <= 256;
    int is_exact =
        (index == PREFILL || is_many) && v[ATTN_MODEL_SOFTCAP][0] == '\0' && field[0] == '\0';
    const char *mask =
        window_of(v[ATTN_MODEL_MASK]) >= n_key ? "causal(br)&window(99,0,br)" : v[ATTN_MODEL_MASK];
    kv = kv > 1 ? 2 : 1; /* with one, every head would have the right one */
    snprintf(c->name, sizeof c->name, "shape-%s%s", model->name, suffix[index]);
    snprintf(c->why, sizeof c->why, "the shape of %s: %s", model->name, why[index]);
    snprintf(c->text, sizeof c->text, "h%dg%dq%dk%dd%dv%s:%s:%s:%s:s%d%s%s%s%s%s%s%s", group * kv,
             kv, n_query, n_key, d, v[ATTN_MODEL_DV], mask,
             is_long && claims & ATTN_CAP_BF16 ? "bf16" : "f32", is_exact ? "subsets" : "normal",
             number + 1, v[ATTN_MODEL_SCALE][0] != '\0' ? ":scale=" : "", v[ATTN_MODEL_SCALE],
             v[ATTN_MODEL_SOFTCAP][0] != '\0' ? ":softcap=" : "", v[ATTN_MODEL_SOFTCAP],
             field[0] != '\0' ? ":" : "", field, index == BACKWARD ? ":pass=bwd" : "");
}

int attn_model_of_case(const char *name)
{
    if (strncmp(name, "shape-", 6) != 0)
        return -1;
    for (int m = 0; m < ATTN_MODELS; m++) {
        size_t n = strlen(attn_models[m].name);
        for (int i = 0; i < ATTN_MODEL_CASES && strncmp(name + 6, attn_models[m].name, n) == 0; i++)
            if (strcmp(name + 6 + n, suffix[i]) == 0)
                return m;
    }
    return -1;
}
