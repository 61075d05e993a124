/* See case_pairs.h. */
#include "tests/case_pairs.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness/cases/cases.h"

/* What kernels are built with: the largest usual tile, the usual width of a head. */
enum { LARGEST_TILE = 128, USUAL_WIDTH = 64 };

enum feature {
    F32,
    F64,
    GQA,
    MQA,
    NO_MASK,
    MASK,
    ALIBI,
    FULL,
    HEAD,
    ROW,
    KEY,
    INF,
    NO_DBIAS,
    DBIAS,
    SOFTCAP,
    DLSE,
    MIXED,
    WIDE,
    LONG,
    NEGATIVE,
    D_NOT_DV,
    CROSS,
    BATCHES,
    FEATURES
};

/* Features of a group exclude each other. */
static const struct {
    const char *name, *group;
} feature[FEATURES] = {
    [F32] = {"f32", "type"},
    [F64] = {"f64", "type"},
    [GQA] = {"gqa", "heads"},
    [MQA] = {"mqa", "heads"},
    [NO_MASK] = {"no mask", "mask"},
    [MASK] = {"a mask", "mask"},
    [ALIBI] = {"bias=alibi", "bias"},
    [FULL] = {"bias=full", "bias"},
    [HEAD] = {"bias=head", "bias"},
    [ROW] = {"bias=row", "bias"},
    [KEY] = {"bias=key", "bias"},
    [INF] = {"bias=inf", "bias"},
    [NO_DBIAS] = {"a bias without dbias", "dbias"},
    [DBIAS] = {"dbias=1", "dbias"},
    [SOFTCAP] = {"softcap", ""},
    [DLSE] = {"dlse=1", ""},
    [MIXED] = {"layout=mixed", ""},
    [WIDE] = {"d > 64", ""},
    [LONG] = {"Lq or Lk > 128", ""},
    [NEGATIVE] = {"scale < 0", ""},
    [D_NOT_DV] = {"d != dv", ""},
    [CROSS] = {"Lq != Lk", ""},
    [BATCHES] = {"batch >= 3", ""},
};

static void features_of(const struct attn_case *c, int has[FEATURES])
{
    int bias = c->bias > ATTN_CASE_BIAS_ALIBI;
    has[F32] = c->dtype == ATTN_F32;
    has[F64] = c->dtype == ATTN_F64;
    has[GQA] = c->kv_heads < c->heads && c->kv_heads > 1;
    has[MQA] = c->kv_heads < c->heads && c->kv_heads == 1;
    has[NO_MASK] = strcmp(c->mask, "none") == 0;
    has[MASK] = !has[NO_MASK];
    has[ALIBI] = c->bias == ATTN_CASE_BIAS_ALIBI;
    has[FULL] = c->bias == ATTN_CASE_BIAS_FULL;
    has[HEAD] = c->bias == ATTN_CASE_BIAS_HEAD;
    has[ROW] = c->bias == ATTN_CASE_BIAS_ROW;
    has[KEY] = c->bias == ATTN_CASE_BIAS_KEY;
    has[INF] = c->bias == ATTN_CASE_BIAS_INF;
    has[NO_DBIAS] = bias && !c->d_bias;
    has[DBIAS] = bias && c->d_bias;
    has[SOFTCAP] = c->softcap > 0;
    has[DLSE] = c->d_lse;
    has[MIXED] = c->layout == ATTN_LAYOUT_MIXED;
    has[WIDE] = c->d_key > USUAL_WIDTH;
    has[LONG] = c->n_query > LARGEST_TILE || c->n_key > LARGEST_TILE;
    has[NEGATIVE] = c->scale < 0;
    has[D_NOT_DV] = c->d_key != c->d_value;
    has[CROSS] = c->n_query != c->n_key;
    has[BATCHES] = c->batch >= 3;
}

static int is_tensor_bias(int f)
{
    return f >= FULL && f <= DBIAS;
}

/* Can two features stand in one case? */
static int can_meet(int f, int g)
{
    int alibi_and_tensor = (f == ALIBI && is_tensor_bias(g)) || (g == ALIBI && is_tensor_bias(f));
    int exclusive = feature[f].group[0] != '\0' && strcmp(feature[f].group, feature[g].group) == 0;
    return !exclusive && !alibi_and_tensor;
}

/* Whether a case with these features stands for the pair.  Whoever knows f32 only, or no bias
 * tensor, never runs the cases that need more: those stand for pairs with f64, with a bias. */
static int stands_for(const int has[FEATURES], int f, int g)
{
    int in_f64 = f == F64 || g == F64, in_bias = is_tensor_bias(f) || is_tensor_bias(g);
    int has_bias = has[NO_DBIAS] || has[DBIAS];
    return has[f] && has[g] && (in_f64 || (has[F32] && (in_bias || !has_bias)));
}

/* Gradients of all three are ordinary numbers, so that an error in them shows. */
static int is_telling(const struct attn_case *c)
{
    return c->pass == ATTN_BACKWARD && c->fill != ATTN_FILL_SELECT && c->fill != ATTN_FILL_REVEAL &&
           c->fill != ATTN_FILL_FLAT && c->fill != ATTN_FILL_ONES;
}

static void count_pairs(const struct attn_case *c, int met[FEATURES][FEATURES])
{
    int has[FEATURES];
    features_of(c, has);
    for (int f = 0; f < FEATURES; f++)
        for (int g = 0; g < f; g++)
            met[f][g] += stands_for(has, f, g);
}

int case_pairs_missing(char *text, size_t size)
{
    int met[FEATURES][FEATURES] = {{0}}, missing = 0;
    struct attn_case c;
    text[0] = '\0';
    for (int n = 0; n < attn_battery_count(); n++)
        if (attn_case_parse(attn_battery_at(n)->text, &c, NULL) == ATTN_OK && is_telling(&c))
            count_pairs(&c, met);
    for (int f = 0; f < FEATURES; f++)
        for (int g = 0; g < f; g++)
            if (can_meet(f, g) && met[f][g] == 0) {
                size_t used = strlen(text);
                snprintf(text + used, size - used, "%s%s with %s", missing++ > 0 ? "; " : "",
                         feature[g].name, feature[f].name);
            }
    return missing;
}
