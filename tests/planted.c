/* See planted.h. */
#include "tests/planted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/mask.h"
#include "ref/problem.h"

/* ---- conditions ------------------------------------------------------------------------------ */

static const char *mask_text(const struct attn_problem *p)
{
    return p->mask != NULL ? attn_mask_text(p->mask) : "";
}

/* A call of the mask by how it begins: its name, and for what is stored its axes. */
static int calls(const struct attn_problem *p, const char *value)
{
    char begin[32];
    int is_heads = strstr(value, ",heads") != NULL;
    size_t n = strcspn(value, "(");
    n += value[n] == '(';
    if (strncmp(value, "random", 6) != 0 && strncmp(value, "global", 6) != 0)
        n += strspn(value + n, "bhqkx");
    snprintf(begin, sizeof begin, "%.*s", (int)n, value);
    if (strcmp(value, "lengths") == 0) {
        const char *keys = strstr(mask_text(p), "keys(");
        return keys != NULL && keys[5] >= '0' && keys[5] <= '9';
    }
    if (strcmp(begin, "random(") == 0 && is_heads != (strstr(mask_text(p), ",heads") != NULL))
        return 0;
    return strstr(mask_text(p), begin) != NULL;
}

/* No call but causal and window. */
static int is_bare(const struct attn_problem *p)
{
    const struct attn_factor *masks = attn_factor_at(ATTN_FACTOR_MASK);
    for (int v = 1; v < attn_factor_values(ATTN_FACTOR_MASK); v++)
        if (calls(p, masks->value[v]))
            return 0;
    return 1;
}

static int has_call(const struct attn_problem *p, const char *call, const char *value,
                    const char *end)
{
    char text[64];
    if (strcmp(value, "no") == 0)
        snprintf(text, sizeof text, "%s(", call);
    else
        snprintf(text, sizeof text, "%s(%s%s", call, value, end);
    return (strstr(mask_text(p), text) != NULL) != (strcmp(value, "no") == 0);
}

static int hides_a_cell(const struct attn_problem *p)
{
    for (int64_t row = 0; row < p->batch * p->heads * p->n_query; row++)
        for (int64_t j = 0; j < p->n_key; j++)
            if (attn_cview_get(&p->bias.tensor, row / p->n_query / p->heads,
                               row / p->n_query % p->heads, row % p->n_query, j) == -HUGE_VAL)
                return 1;
    return 0;
}

/* A bias tensor is named for the axes on which it is broadcast; `inf` is full and hides cells. */
static int has_bias(const struct attn_problem *p, const char *value)
{
    const int64_t *stride = p->bias.tensor.stride;
    if (p->bias.kind != ATTN_BIAS_TENSOR)
        return strcmp(value, p->bias.kind == ATTN_BIAS_ALIBI ? "alibi" : "none") == 0;
    const char *name = stride[2] == 0    ? "key"
                       : stride[1] == 0  ? "row"
                       : stride[0] == 0  ? "head"
                       : hides_a_cell(p) ? "inf"
                                         : "full";
    return strcmp(value, name) == 0;
}

int planted_holds(int factor, int value, const struct attn_problem *p,
                  const struct attn_backward *backward)
{
    const char *text = attn_factor_at(factor)->value[value];
    double number = strtod(text, NULL), usual = 1 / sqrt((double)p->d_key);
    switch ((enum attn_factor_id)factor) {
    case ATTN_FACTOR_D:
        return (double)p->d_key == number;
    case ATTN_FACTOR_DV:
        return *text == '=' ? p->d_value == p->d_key
                            : (double)p->d_value == number && p->d_value != p->d_key;
    case ATTN_FACTOR_HEADS:
        return (double)p->heads == number;
    case ATTN_FACTOR_GROUP:
        return p->kv_heads > 0 && (double)(p->heads / p->kv_heads) == number;
    case ATTN_FACTOR_BATCH:
        return (double)p->batch == number;
    case ATTN_FACTOR_QUERIES:
        return (double)p->n_query == number;
    case ATTN_FACTOR_KEYS:
        return (double)p->n_key == number;
    case ATTN_FACTOR_CAUSAL:
        return has_call(p, "causal", text, ")");
    case ATTN_FACTOR_MASK:
        return value == 0 ? is_bare(p) : calls(p, text);
    case ATTN_FACTOR_WINDOW:
        return has_call(p, "window", text, ",");
    case ATTN_FACTOR_SCALE:
        return fabs(p->scale - (value == 0 ? usual : number)) < 1e-12 &&
               (value == 0 || fabs(p->scale - usual) > 1e-12);
    case ATTN_FACTOR_SOFTCAP:
        return p->softcap == number;
    case ATTN_FACTOR_BIAS:
        return has_bias(p, text);
    case ATTN_FACTOR_DBIAS:
        return backward != NULL && (backward->dbias.data != NULL) == value;
    case ATTN_FACTOR_DLSE:
        return backward != NULL && (backward->d_lse.data != NULL) == value;
    case ATTN_FACTOR_DTYPE:
        return strcmp(attn_dtype_name(p->dtype), text) == 0;
    case ATTN_FACTOR_PASS:
        return (backward != NULL) == value;
    case ATTN_FACTORS:
        break;
    }
    return 0;
}

void planted_print(const struct planted_fault *fault, char *text, size_t size)
{
    size_t used = 0;
    for (int a = 0; a < fault->n && used < size; a++) {
        const struct attn_factor *factor = attn_factor_at(fault->atom[a].factor);
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s", a > 0 ? " & " : "",
                                 factor->name, factor->value[fault->atom[a].value]);
    }
    if (used < size)
        snprintf(text + used, size - used, ", %s", attn_pass_name(fault->pass));
}

/* ---- the fault ------------------------------------------------------------------------------- */

static struct planted_fault planted;

static int strikes(const struct attn_problem *p, const struct attn_backward *backward)
{
    for (int a = 0; a < planted.n; a++)
        if (!planted_holds(planted.atom[a].factor, planted.atom[a].value, p, backward))
            return 0;
    return planted.pass == (backward != NULL ? ATTN_BACKWARD : ATTN_FORWARD);
}

/* An output of the pass, and the row that holds its largest element. */
struct largest {
    const struct attn_view *x;
    int64_t batch, head, row, width;
    double value;
};

static struct largest largest_of(const struct attn_view *x, int64_t batches, int64_t heads,
                                 int64_t rows, int64_t width)
{
    struct largest found = {x, 0, 0, 0, width, 0};
    for (int64_t n = 0; n < batches * heads * rows; n++)
        for (int64_t c = 0; c < width; c++) {
            int64_t b = n / rows / heads, h = n / rows % heads, i = n % rows;
            double value = fabs(attn_view_get(x, b, h, i, c));
            if (value > found.value)
                found = (struct largest){x, b, h, i, width, value};
        }
    return found;
}

static void enlarge(const struct largest *at)
{
    for (int64_t c = 0; c < at->width && at->value > 0; c++)
        attn_view_set(at->x, at->batch, at->head, at->row, c,
                      1.5 * attn_view_get(at->x, at->batch, at->head, at->row, c));
}

static enum attn_status planted_forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                        const struct attn_forward *t)
{
    enum attn_status status = attn_impl_find("tiled")->forward(ctx, p, t);
    if (status == ATTN_OK && strikes(p, NULL)) {
        struct largest o = largest_of(&t->o, p->batch, p->heads, p->n_query, p->d_value);
        enlarge(&o);
    }
    return status;
}

/* dQ, dK or dV by turns; dV where the others are nothing but rounding: of one key, and where each
 * query sees one key. */
static enum attn_status planted_backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                         const struct attn_backward *t)
{
    int turn = (planted.atom[0].value + planted.atom[planted.n - 1].value) % 3;
    enum attn_status status = attn_impl_find("tiled")->backward(ctx, p, t);
    if (status != ATTN_OK || !strikes(p, t))
        return status;
    struct largest dv = largest_of(&t->dv, p->batch, p->kv_heads, p->n_key, p->d_value), other = dv;
    if (turn == 0)
        other = largest_of(&t->dq, p->batch, p->heads, p->n_query, p->d_key);
    else if (turn == 1)
        other = largest_of(&t->dk, p->batch, p->kv_heads, p->n_key, p->d_key);
    enlarge(p->n_key > 1 && other.value > 1e-3 * dv.value ? &other : &dv);
    return status;
}

struct attn_spec planted_spec(const struct planted_fault *fault)
{
    static struct attn_impl impl;
    struct attn_spec spec = {.impl = attn_impl_find("tiled")};
    attn_options_preset(spec.impl, &spec.options);
    impl = *spec.impl;
    impl.name = "planted";
    impl.forward = planted_forward;
    impl.backward = planted_backward;
    planted = *fault;
    spec.impl = &impl;
    return spec;
}
