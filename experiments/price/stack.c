#include "experiments/price/stack.h"

#include <stdio.h>
#include <string.h>

#include "ref/problem.h"

static const char *const save_name[ATTN_SAVES] = {"probs", "rows", "inputs"};

const char *attn_stack_save_name(enum attn_stack_save save)
{
    return save_name[save];
}

enum attn_status attn_stack_save_find(const char *name, enum attn_stack_save *save,
                                      struct attn_error *err)
{
    for (int s = 0; s < ATTN_SAVES; s++)
        if (strcmp(name, save_name[s]) == 0) {
            *save = (enum attn_stack_save)s;
            return ATTN_OK;
        }
    return attn_fail(err, ATTN_EINVAL, "save '%.40s': there are probs|rows|inputs", name);
}

static const char *const add_name[] = {"mask", "softmax", "expanded", "f32"};
enum { ADDS = sizeof add_name / sizeof *add_name };

enum attn_status attn_stack_save_parse(const char *text, struct attn_stack *stack,
                                       struct attn_error *err)
{
    char word[16];
    stack->adds = 0;
    for (const char *at = text; at != NULL;
         at = strchr(at, '+') != NULL ? strchr(at, '+') + 1 : NULL) {
        int n = (int)strcspn(at, "+"), add = 0;
        snprintf(word, sizeof word, "%.*s", n, at);
        while (at != text && add < ADDS && strcmp(word, add_name[add]) != 0)
            add++;
        if (add == ADDS)
            return attn_fail(err, ATTN_EINVAL, "save '%.40s': there are +mask|softmax|expanded|f32",
                             text);
        stack->adds |= at != text ? 1 << add : 0;
        if (at == text && attn_stack_save_find(word, &stack->save, err) != ATTN_OK)
            return err->status;
    }
    return ATTN_OK;
}

int attn_stack_equal(const struct attn_stack *a, const struct attn_stack *b)
{
    return a->n == b->n &&
           (a->n == 0 || (a->save == b->save && a->hidden == b->hidden && a->adds == b->adds));
}

const char *attn_stack_print(const struct attn_stack *stack, char text[ATTN_STACK_TEXT])
{
    char width[40] = "";
    text[0] = '\0';
    if (stack->hidden > 0)
        snprintf(width, sizeof width, " of hidden %lld", (long long)stack->hidden);
    if (stack->n > 0)
        snprintf(text, ATTN_STACK_TEXT, "%lld layers%s, save %s", (long long)stack->n, width,
                 attn_stack_save_name(stack->save));
    for (int a = 0; a < ADDS && stack->n > 0; a++)
        if (stack->adds & 1 << a)
            snprintf(text + strlen(text), ATTN_STACK_TEXT - strlen(text), "+%s", add_name[a]);
    return text;
}

/* ---- tensors --------------------------------------------------------------------------------- */

const char *attn_stack_tensor_name(enum attn_stack_tensor tensor)
{
    static const char *const name[ATTN_STACK_TENSORS] = {
        "layer.q",  "layer.k",  "layer.v",  "layer.o",  "layer.lse",
        "layer.do", "layer.dq", "layer.dk", "layer.dv", "x",
        "wqkv",     "wo",       "dx",       "dwqkv",    "dwo"};
    return name[tensor];
}

/* Of those that a hidden width brings. */
static int64_t hidden_bytes(const struct attn_problem *p, int64_t hidden,
                            enum attn_stack_tensor tensor)
{
    int64_t rows = attn_product(p->batch, p->n_query);
    if (tensor == ATTN_STACK_WQKV || tensor == ATTN_STACK_DWQKV)
        rows = (p->heads + p->kv_heads) * p->d_key + p->kv_heads * p->d_value;
    if (tensor == ATTN_STACK_WO || tensor == ATTN_STACK_DWO)
        rows = p->heads * p->d_value;
    return attn_product(attn_product(rows, hidden), (int64_t)attn_dtype_size(p->dtype));
}

int64_t attn_stack_tensor_bytes(const struct attn_problem *p, int64_t hidden,
                                enum attn_stack_tensor tensor)
{
    if (tensor >= ATTN_STACK_X)
        return hidden_bytes(p, hidden, tensor);
    int of_keys = tensor == ATTN_STACK_K || tensor == ATTN_STACK_V || tensor == ATTN_STACK_DK ||
                  tensor == ATTN_STACK_DV;
    int of_scores = tensor == ATTN_STACK_Q || tensor == ATTN_STACK_K || tensor == ATTN_STACK_DQ ||
                    tensor == ATTN_STACK_DK;
    int is_result = tensor == ATTN_STACK_O || tensor >= ATTN_STACK_DQ;
    enum attn_dtype dtype = is_result ? attn_result_dtype(p) : p->dtype;
    int64_t width = of_scores ? p->d_key : of_keys && p->kv_shared ? 0 : p->d_value;
    if (tensor == ATTN_STACK_LSE) {
        dtype = attn_lse_dtype(p);
        width = 1;
    }
    int64_t rows =
        of_keys ? attn_product(p->kv_heads, p->n_key) : attn_product(p->heads, p->n_query);
    return attn_product(attn_product(attn_product(p->batch, rows), width),
                        (int64_t)attn_dtype_size(dtype));
}

/* ---- the schedule ---------------------------------------------------------------------------- */

/* A reader, and whether it has failed: what comes after a failure is not read. */
struct reading {
    const struct attn_stack_reader *by;
    enum attn_status status;
};

/* Tensors first to last, of one layer. */
static void take(struct reading *r, int64_t layer, enum attn_stack_tensor first,
                 enum attn_stack_tensor last)
{
    for (int t = (int)first; t <= (int)last && r->status == ATTN_OK; t++)
        r->status = r->by->take(r->by->arg, layer, (enum attn_stack_tensor)t);
}

static void give(struct reading *r, int64_t layer, enum attn_stack_tensor first,
                 enum attn_stack_tensor last)
{
    for (int t = (int)first; t <= (int)last && r->status == ATTN_OK; t++)
        r->by->give(r->by->arg, layer, (enum attn_stack_tensor)t);
}

static void call(struct reading *r, int64_t layer, enum attn_stack_call call, int saves)
{
    if (r->status == ATTN_OK)
        r->status = r->by->call(r->by->arg, layer, call, saves);
    if (r->status == ATTN_OK && call == ATTN_STACK_BACKWARD)
        r->by->drop(r->by->arg, layer);
}

static void read_forward(const struct attn_stack *layers, struct reading *r)
{
    for (int64_t i = 0; i < layers->n; i++) {
        take(r, i, ATTN_STACK_Q, ATTN_STACK_LSE);
        call(r, i, ATTN_STACK_FORWARD, layers->save == ATTN_SAVE_PROBS);
        if (layers->save == ATTN_SAVE_INPUTS)
            give(r, i, ATTN_STACK_O, ATTN_STACK_LSE);
    }
}

static void read_backward(const struct attn_stack *layers, struct reading *r)
{
    for (int64_t i = layers->n - 1; i >= 0; i--) {
        take(r, i, ATTN_STACK_DO, ATTN_STACK_DO);
        if (layers->save == ATTN_SAVE_INPUTS) {
            take(r, i, ATTN_STACK_O, ATTN_STACK_LSE);
            call(r, i, ATTN_STACK_AGAIN, 1);
        }
        take(r, i, ATTN_STACK_DQ, ATTN_STACK_DV);
        call(r, i, ATTN_STACK_BACKWARD, 0);
        give(r, i, ATTN_STACK_Q, ATTN_STACK_DV);
    }
}

/* With a hidden width: one layer's y is the next one's x. */
static void read_forward_hidden(const struct attn_stack *layers, struct reading *r)
{
    for (int64_t i = 0; i < layers->n; i++)
        take(r, i, ATTN_STACK_WQKV, ATTN_STACK_WO);
    take(r, 0, ATTN_STACK_X, ATTN_STACK_X);
    for (int64_t i = 0; i < layers->n; i++) {
        call(r, i, ATTN_STACK_FORWARD, layers->save == ATTN_SAVE_PROBS);
        take(r, i + 1, ATTN_STACK_X, ATTN_STACK_X);
        call(r, i, ATTN_STACK_Y, 0);
    }
    give(r, layers->n, ATTN_STACK_X, ATTN_STACK_X);
}

static void read_backward_hidden(const struct attn_stack *layers, struct reading *r)
{
    take(r, layers->n, ATTN_STACK_DX, ATTN_STACK_DX);
    for (int64_t i = layers->n - 1; i >= 0; i--) {
        take(r, i, ATTN_STACK_DX, ATTN_STACK_DWO);
        call(r, i, ATTN_STACK_BACKWARD, 0);
        give(r, i + 1, ATTN_STACK_DX, ATTN_STACK_DX);
        give(r, i, ATTN_STACK_X, ATTN_STACK_X);
    }
    for (int64_t i = 0; i < layers->n; i++) {
        give(r, i, ATTN_STACK_WQKV, ATTN_STACK_WO);
        give(r, i, ATTN_STACK_DWQKV, ATTN_STACK_DWO);
    }
    give(r, 0, ATTN_STACK_DX, ATTN_STACK_DX);
}

enum attn_status attn_stack_read(const struct attn_stack *layers, enum attn_pass half,
                                 const struct attn_stack_reader *reader)
{
    static void (*const read[2][2])(const struct attn_stack *, struct reading *) = {
        {read_forward, read_backward}, {read_forward_hidden, read_backward_hidden}};
    struct reading r = {reader, ATTN_OK};
    read[layers->hidden > 0][half](layers, &r);
    return r.status;
}

/* ---- the price ------------------------------------------------------------------------------- */

/* The schedule on paper: a ledger that only counts. */
struct paper {
    const struct attn_problem *p;
    const struct attn_stack *layers;
    struct attn_cost pass[2];   /* of one call */
    double again_flops;         /* of a backward one, what it makes again */
    struct attn_account p_left; /* P that a forward call leaves, if an option says so */
    int holds_p;                /* the layer that is called has a P to read */
    struct attn_ledger ledger;
    struct attn_stack_cost *to;
    struct attn_error *err;
};

static enum attn_status paper_take(void *arg, int64_t layer, enum attn_stack_tensor tensor)
{
    (void)layer;
    struct paper *x = arg;
    return attn_ledger_count(&x->ledger, attn_stack_tensor_name(tensor),
                             attn_stack_tensor_bytes(x->p, x->layers->hidden, tensor), 1, x->err);
}

static void paper_give(void *arg, int64_t layer, enum attn_stack_tensor tensor)
{
    (void)layer;
    struct paper *x = arg;
    attn_ledger_uncount(&x->ledger, attn_stack_tensor_name(tensor),
                        attn_stack_tensor_bytes(x->p, x->layers->hidden, tensor));
}

/* Blocks that a price adds and that are there in a backward call: those that are kept beside P
 * since the forward one, and those of the call.  sign: 1 takes them, -1 gives them back. */
static enum attn_status count_added(struct paper *x, int which, int sign)
{
    const struct attn_problem *p = x->p;
    const int64_t e = (int64_t)attn_dtype_size(p->dtype), B = p->batch,
                  width = p->kv_shared ? p->d_key : p->d_key + p->d_value,
                  pairs =
                      attn_product(attn_product(B, p->heads), attn_product(p->n_query, p->n_key)),
                  keys = attn_product(attn_product(B, p->n_key), width);
    const struct attn_account block[ADDS] = {
        {.name = "dropout.mask", .bytes = pairs},
        {.name = "softmax", .bytes = attn_product(pairs, e)},
        {.name = "dkv.expanded",
         .bytes = p->heads > p->kv_heads ? attn_product(attn_product(keys, p->heads), e) : 0},
        {.name = "dkv.f32", .bytes = attn_product(attn_product(keys, p->kv_heads), 4)}};
    enum attn_status status = ATTN_OK;
    for (int a = 0; a < ADDS && status == ATTN_OK; a++)
        if (!(which & x->layers->adds & 1 << a) || block[a].bytes == 0)
            continue;
        else if (sign > 0)
            status = attn_ledger_count(&x->ledger, block[a].name, block[a].bytes, 1, x->err);
        else
            attn_ledger_uncount(&x->ledger, block[a].name, block[a].bytes);
    return status;
}

enum {
    KEPT = ATTN_STACK_MASK | ATTN_STACK_SOFTMAX,
    IN_CALL = ATTN_STACK_EXPANDED | ATTN_STACK_F32
};

/* Takes the tensors that a forward call leaves: with a hidden width all that it made. */
static enum attn_status keep(struct paper *x, int64_t layer, int saves)
{
    enum attn_status status = ATTN_OK;
    int last = x->layers->hidden > 0 ? (int)ATTN_STACK_LSE : -1;
    for (int t = ATTN_STACK_Q; t <= last && status == ATTN_OK; t++)
        status = paper_take(x, layer, (enum attn_stack_tensor)t);
    if (status != ATTN_OK || !saves || x->p_left.bytes == 0)
        return status;
    x->holds_p = 1;
    status = attn_ledger_count(&x->ledger, x->p_left.name, x->p_left.bytes, 1, x->err);
    return status == ATTN_OK ? count_added(x, KEPT, 1) : status;
}

/* And who gives it back: y's call where inputs are saved, else the backward one, in whose price it
 * is too. */
static void drop(struct paper *x, int64_t layer, enum attn_stack_call call)
{
    int at_y = x->layers->save == ATTN_SAVE_INPUTS;
    int last = x->layers->hidden > 0 && at_y == (call == ATTN_STACK_Y) ? (int)ATTN_STACK_LSE : -1;
    for (int t = ATTN_STACK_Q; t <= last; t++)
        paper_give(x, layer, (enum attn_stack_tensor)t);
    if (call == ATTN_STACK_BACKWARD && x->holds_p)
        attn_ledger_uncount(&x->ledger, x->p_left.name, x->p_left.bytes);
}

static enum attn_status paper_call(void *arg, int64_t layer, enum attn_stack_call call, int saves)
{
    struct paper *x = arg;
    int is_backward = call == ATTN_STACK_BACKWARD;
    const struct attn_cost *cost = &x->pass[is_backward];
    enum attn_status status = ATTN_OK;
    if (is_backward || call == ATTN_STACK_Y)
        drop(x, layer, call);
    if (call == ATTN_STACK_Y)
        return ATTN_OK;
    const int again = x->layers->hidden > 0 && x->layers->save == ATTN_SAVE_INPUTS ? KEPT : 0;
    if (is_backward) /* what is kept beside P, where the call itself makes P again */
        status = count_added(x, IN_CALL | again, 1);
    for (int a = 0; a < cost->n_live && status == ATTN_OK; a++)
        status = attn_ledger_count(&x->ledger, cost->live[a].name, cost->live[a].bytes, 1, x->err);
    for (int a = 0; a < cost->n_live && status == ATTN_OK; a++)
        attn_ledger_uncount(&x->ledger, cost->live[a].name, cost->live[a].bytes);
    if (is_backward && status == ATTN_OK)
        (void)count_added(x, IN_CALL | KEPT, -1);
    x->to->cost.flops += cost->flops;
    x->to->cost.counted |= cost->counted;
    x->to->cost.lacks = cost->lacks;
    x->to->again_flops += call == ATTN_STACK_AGAIN ? cost->flops : is_backward ? x->again_flops : 0;
    return status != ATTN_OK || is_backward ? status : keep(x, layer, saves);
}

static void dropped_by_call(void *arg, int64_t layer)
{
    (void)arg, (void)layer;
}

/* Refuses a stack that the implementation cannot do. */
static enum attn_status check(const struct attn_stack *layers, const struct attn_spec *spec,
                              int64_t saves, struct attn_error *err)
{
    const char *name = spec->impl->name;
    if (layers->save == ATTN_SAVE_PROBS && saves == 0)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s leaves no P for the backward pass, which save=probs keeps: save=rows "
                         "or inputs would work, or gemm:save=probs",
                         name);
    if (layers->adds & KEPT && saves == 0)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s leaves no P, beside which a mask and the output of the softmax are "
                         "kept: gemm:save=probs would work",
                         name);
    if (layers->save == ATTN_SAVE_ROWS && saves > 0)
        return attn_fail(err, ATTN_ENOTSUP,
                         "this %s leaves P, which save=rows does not keep: save=probs or inputs "
                         "would work, or %s without its option",
                         name, name);
    return ATTN_OK;
}

/* The layer of a stack with a hidden width. */
static enum attn_status layer_of(const struct attn_stack *stack, const struct attn_problem *p,
                                 struct attn_layer *layer, struct attn_error *err)
{
    *layer = (struct attn_layer){.batch = p->batch,
                                 .length = p->n_query,
                                 .hidden = stack->hidden,
                                 .heads = p->heads,
                                 .kv_heads = p->kv_heads,
                                 .d_key = p->d_key,
                                 .d_value = p->d_value,
                                 .scale = p->scale,
                                 .dtype = p->dtype,
                                 .mask = p->mask};
    if (p->softcap > 0 || p->bias.kind != ATTN_BIAS_NONE)
        return attn_fail(err, ATTN_ENOTSUP,
                         "a layer of a hidden width has neither a softcap nor a bias: without them "
                         "it would work");
    if (p->n_query == p->n_key)
        return ATTN_OK;
    return attn_fail(err, ATTN_EINVAL,
                     "a layer of a hidden width attends to itself: %lld queries and %lld keys "
                     "would have to be as many",
                     (long long)p->n_query, (long long)p->n_key);
}

/* P in the storage type. */
static void store_p(struct paper *x)
{
    const struct attn_problem *p = x->p;
    x->p_left.bytes = attn_product(
        attn_product(attn_product(p->batch, p->heads), attn_product(p->n_query, p->n_key)),
        (int64_t)attn_dtype_size(p->dtype));
    for (int n = 0; n < 2; n++)
        for (int a = 0; a < x->pass[n].n_live; a++)
            if (strcmp(x->pass[n].live[a].name, x->p_left.name) == 0)
                x->pass[n].live[a].bytes = x->p_left.bytes;
}

/* One call of each pass. */
static enum attn_status price_calls(struct paper *x, const struct attn_spec *spec)
{
    struct attn_layer layer;
    struct attn_cost kept;
    enum attn_status status = ATTN_OK;
    for (int n = 0; n < 2 && status == ATTN_OK; n++)
        status =
            attn_price(spec->impl, &spec->options, x->p, (enum attn_pass)n, 0, &x->pass[n], x->err);
    if (status != ATTN_OK)
        return status;
    x->p_left =
        (struct attn_account){.name = x->pass[0].saved_name, .bytes = x->pass[0].saved_bytes};
    if (x->layers->hidden == 0)
        return ATTN_OK;
    int keeps = x->layers->save != ATTN_SAVE_INPUTS;
    status = layer_of(x->layers, x->p, &layer, x->err);
    for (int n = 0; n < 2 && status == ATTN_OK; n++)
        status = attn_layer_cost(&layer, spec->impl, &spec->options, (enum attn_pass)n, keeps,
                                 &x->pass[n], x->err);
    if (status == ATTN_OK)
        status =
            attn_layer_cost(&layer, spec->impl, &spec->options, ATTN_BACKWARD, 1, &kept, x->err);
    if (status == ATTN_OK && !keeps)
        x->again_flops = x->pass[ATTN_BACKWARD].flops - kept.flops;
    return status;
}

enum attn_status attn_stack_price(const struct attn_stack *layers, const struct attn_spec *spec,
                                  const struct attn_problem *p, enum attn_pass half,
                                  struct attn_stack_cost *cost, struct attn_error *err)
{
    struct paper x = {.p = p, .layers = layers, .to = cost, .err = err};
    const struct attn_stack_reader reader = {&x, paper_take, paper_give, paper_call,
                                             dropped_by_call};
    memset(cost, 0, sizeof *cost);
    attn_ledger_init(&x.ledger, NULL);
    if (spec->impl->ranks != NULL)
        return attn_fail(err, ATTN_ENOTSUP,
                         "%s has ranks, and a stack of layers is of one process: %s would work, or "
                         "%s without layers, the price of one",
                         spec->impl->name,
                         spec->options.local != NULL ? spec->options.local->name : "tiled",
                         spec->impl->name);
    enum attn_status status = price_calls(&x, spec);
    if (status == ATTN_OK && layers->adds & ATTN_STACK_SOFTMAX && x.p_left.bytes > 0)
        store_p(&x);
    if (status == ATTN_OK)
        status = check(layers, spec, x.p_left.bytes, err);
    if (status == ATTN_OK)
        status = attn_stack_read(layers, ATTN_FORWARD, &reader);
    int64_t saved = x.ledger.now;
    if (status == ATTN_OK && half == ATTN_BACKWARD) {
        memset(cost, 0, sizeof *cost);
        attn_ledger_restart(&x.ledger);
        status = attn_stack_read(layers, ATTN_BACKWARD, &reader);
    }
    cost->cost.saved_bytes = saved;
    cost->cost.peak_bytes = x.ledger.peak;
    cost->cost.n_live = x.ledger.n_at_peak;
    memcpy(cost->cost.live, x.ledger.at_peak, sizeof cost->cost.live);
    return status;
}
