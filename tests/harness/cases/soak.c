/* Random cases. */
#include "tests/harness/cases/soak.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/base/fill.h"
#include "tests/harness/cases/tiers.h"

/* A stream of random numbers, and what they may choose from. */
struct dice {
    uint64_t seed, number, rolls;
    const struct attn_claims *claims;
    enum attn_route route;
};

static uint64_t roll(struct dice *d, uint64_t n)
{
    return attn_hash(d->seed, d->number, d->rolls++) % n;
}

/* 1 in n. */
static int rarely(struct dice *d, uint64_t n)
{
    return roll(d, n) == 0;
}

static int claims(const struct dice *d, unsigned all_of)
{
    return (d->claims->bits & all_of) == all_of;
}

/* A value of a factor that is a number. */
static double value_of(struct dice *d, int factor)
{
    const char *text;
    char *end;
    double value;
    do {
        text = attn_factor[factor].value[roll(d, (uint64_t)attn_factor[factor].n)];
        value = strtod(text, &end);
    } while (end == text);
    return value;
}

/* An extent: small, a value of the table, or anything; once in a while 0. */
static int64_t extent(struct dice *d, int factor)
{
    if (rarely(d, 40) && claims(d, ATTN_CAP_EMPTY))
        return 0;
    switch (roll(d, 3)) {
    case 0:
        return 1 + (int64_t)roll(d, 12);
    case 1:
        return (int64_t)value_of(d, factor);
    default:
        return 1 + (int64_t)roll(d, 80);
    }
}

/* ---- masks -----------------------------------------------------------------------------------
 */

static const char *alignment(struct dice *d, char text[16])
{
    uint64_t kind = roll(d, 4);
    int only = claims(d, ATTN_CAP_DENSE) ? ATTN_PLUGIN_CAUSAL_ANY : d->claims->causal;
    if (only != ATTN_PLUGIN_CAUSAL_ANY)
        return only == ATTN_PLUGIN_CAUSAL_TL ? "tl" : "br";
    if (kind < 2 || !(d->claims->bits & (ATTN_CAP_BAND | ATTN_CAP_DENSE)))
        kind %= 2;
    if (kind < 2)
        return kind == 0 ? "br" : "tl";
    snprintf(text, 16, "%c%d", kind == 2 ? '+' : '-', (int)roll(d, 20));
    return text;
}

/* -1 (no bound), 0, up to 40, or a value of the table. */
static int reach(struct dice *d)
{
    if (rarely(d, 3))
        return (int)value_of(d, ATTN_FACTOR_WINDOW);
    return rarely(d, 4) ? (int)roll(d, 2) - 1 : (int)roll(d, 41);
}

/* Documents whose lengths sum to Lq x Lk: cuts at random places, some of them equal. */
static void documents(struct dice *d, const struct attn_case *c, char *mask)
{
    int64_t q = 0, k = 0;
    attn_append(mask, ATTN_CASE_MASK, "documents(");
    for (int n = (int)roll(d, 5); n > 0; n--) {
        int64_t dq = (int64_t)roll(d, (uint64_t)(c->n_query - q) + 1);
        int64_t dk = (int64_t)roll(d, (uint64_t)(c->n_key - k) + 1);
        attn_append(mask, ATTN_CASE_MASK, "%lldx%lld,", (long long)dq, (long long)dk);
        q += dq;
        k += dk;
    }
    attn_append(mask, ATTN_CASE_MASK, "%lldx%lld)", (long long)(c->n_query - q),
                (long long)(c->n_key - k));
}

static void lengths(struct dice *d, const struct attn_case *c, char *mask)
{
    attn_append(mask, ATTN_CASE_MASK, "keys(");
    for (int64_t b = 0; b < (c->batch > 0 ? c->batch : 1); b++)
        attn_append(mask, ATTN_CASE_MASK, "%s%d", b > 0 ? "," : "",
                    (int)roll(d, (uint64_t)c->n_key + 1));
    attn_append(mask, ATTN_CASE_MASK, ")");
}

static void pattern(struct dice *d, char *mask)
{
    attn_append(mask, ATTN_CASE_MASK, "keys(x");
    for (int n = 1 + (int)roll(d, 9); n > 0; n--)
        attn_append(mask, ATTN_CASE_MASK, "%d", (int)roll(d, 2));
    attn_append(mask, ATTN_CASE_MASK, ")");
}

static void stored(struct dice *d, char *mask)
{
    static const char *const axes[] = {"keys(k",    "keys(bk",    "dense(qk", "dense(bqk",
                                       "dense(hqk", "dense(bhqk", "csr(qk",   "csr(bhqk"};
    attn_append(mask, ATTN_CASE_MASK, "%s%d)", axes[roll(d, 8)], (int)roll(d, 101));
}

/* Rows as long as the smallest divisor of the length from a random one on; where there is no grid,
 * Skiparse, which takes any length. */
static void grid(struct dice *d, const struct attn_case *c, char *mask)
{
    long long n = (long long)c->n_query, row = 1 + (long long)roll(d, 12);
    if (c->n_query != c->n_key || n == 0) {
        attn_append(mask, ATTN_CASE_MASK, "skiparse(%s,%d)", rarely(d, 2) ? "group" : "single",
                    1 + (int)roll(d, 8));
        return;
    }
    while (row < n && n % row != 0)
        row++;
    row = row < n ? row : n;
    int a = (int)roll(d, 4) - 1, b = (int)roll(d, 4);
    static const char *const call[] = {"spatial(%lld,1,%lld)", "temporal(%lld,%lld,1)",
                                       "axial2d(%lld,%lld)"};
    int kind = (int)roll(d, 6);
    if (kind < 3)
        attn_append(mask, ATTN_CASE_MASK, call[kind], n / row, row);
    else if (kind == 3)
        attn_append(mask, ATTN_CASE_MASK, "dilated(%lld,%lld,%d)", n / row, row, b + 1);
    else if (kind == 4)
        attn_append(mask, ATTN_CASE_MASK, "local2d(%lld,%lld,%d,l%d)", n / row, row, b + 1,
                    1 + (int)roll(d, 2));
    else
        attn_append(mask, ATTN_CASE_MASK, "local3d(%lld,1,%lld,%d,-1,%d)", n / row, row, a, b);
}

static void one_call(struct dice *d, const struct attn_case *c, char *mask)
{
    char a[16];
    switch (roll(d, 11)) {
    case 0:
        attn_append(mask, ATTN_CASE_MASK, "causal(%s)", alignment(d, a));
        return;
    case 1: {
        int left = reach(d), right = reach(d);
        attn_append(mask, ATTN_CASE_MASK, "window(%d,%d,%s)", left, right, alignment(d, a));
        return;
    }
    case 2:
        attn_append(mask, ATTN_CASE_MASK, "prefix(%d)", (int)roll(d, (uint64_t)c->n_key + 1));
        return;
    case 3:
        attn_append(mask, ATTN_CASE_MASK, "global(%d)", (int)roll(d, (uint64_t)c->n_key + 1));
        return;
    case 4:
        lengths(d, c, mask);
        return;
    case 5:
        pattern(d, mask);
        return;
    case 6:
        documents(d, c, mask);
        return;
    case 7:
        attn_append(mask, ATTN_CASE_MASK, "random(0.%02d,%d%s)", (int)roll(d, 100),
                    (int)roll(d, 100), rarely(d, 2) ? ",heads" : "");
        return;
    case 8:
        grid(d, c, mask);
        return;
    case 9:
        attn_append(mask, ATTN_CASE_MASK, "blocks(%d,0.%02d,%d)", 1 + (int)roll(d, 20),
                    (int)roll(d, 100), (int)roll(d, 100));
        return;
    default:
        stored(d, mask);
    }
}

/* Where masks come as numbers alone: causal, a window, both under one alignment. */
static void random_band(struct dice *d, char *mask)
{
    char a[16];
    const char *at = alignment(d, a);
    int causal = !claims(d, ATTN_CAP_BAND) || rarely(d, 2);
    if (causal)
        attn_append(mask, ATTN_CASE_MASK, "causal(%s)", at);
    if (claims(d, ATTN_CAP_BAND) && (!causal || rarely(d, 2))) {
        int left = reach(d), right = reach(d);
        attn_append(mask, ATTN_CASE_MASK, "%swindow(%d,%d,%s)", causal ? "&" : "", left, right, at);
    }
}

static void random_mask(struct dice *d, struct attn_case *c)
{
    int bytes = claims(d, ATTN_CAP_DENSE);
    c->mask[0] = '\0';
    if (rarely(d, 6) || (!bytes && !claims(d, ATTN_CAP_CAUSAL))) {
        attn_append(c->mask, ATTN_CASE_MASK, "none");
        return;
    }
    if (!bytes) {
        random_band(d, c->mask);
        return;
    }
    int calls = 1 + (rarely(d, 2) ? (int)roll(d, 3) : 0), open = 0;
    for (int n = 0; n < calls; n++) {
        if (n + 1 < calls && rarely(d, 3) && !open) {
            attn_append(c->mask, ATTN_CASE_MASK, "(");
            open = 1;
        }
        one_call(d, c, c->mask);
        if (open && (n + 1 == calls || rarely(d, 2))) {
            attn_append(c->mask, ATTN_CASE_MASK, ")");
            open = 0;
        }
        if (n + 1 < calls)
            attn_append(c->mask, ATTN_CASE_MASK, "%s", rarely(d, 2) ? "&" : "|");
    }
}

/* ---- the rest --------------------------------------------------------------------------------
 */

static void draw_shape(struct dice *d, struct attn_case *c)
{
    int empty = claims(d, ATTN_CAP_EMPTY);
    c->batch = rarely(d, 40) && empty ? 0 : (int64_t)value_of(d, ATTN_FACTOR_BATCH);
    int64_t group = rarely(d, 2) ? 1 : (int64_t)value_of(d, ATTN_FACTOR_GROUP);
    c->heads = (int64_t)value_of(d, ATTN_FACTOR_HEADS);
    c->kv_heads = c->heads % group == 0 ? c->heads / group : c->heads;
    c->n_query = extent(d, ATTN_FACTOR_QUERIES);
    c->n_key = rarely(d, 3) ? c->n_query : extent(d, ATTN_FACTOR_KEYS);
    c->d_key = rarely(d, 2) ? 8 : extent(d, ATTN_FACTOR_D);
    c->d_value = rarely(d, 2) ? c->d_key : extent(d, ATTN_FACTOR_DV);
    if (rarely(d, 3)) { /* what ranks can share */
        c->kv_heads = c->heads = 4;
        c->n_query = (c->n_query + 3) / 4 * 4;
        c->n_key = (c->n_key + 3) / 4 * 4;
    }
}

/* Most cases are small, so that there are many: the first draw of little work, or the least. */
static void random_shape(struct dice *d, struct attn_case *c)
{
    enum { DRAWS = 100 };
    double most = rarely(d, 12) ? 3e6 : 1.5e5, least = HUGE_VAL;
    struct attn_case drawn = *c;
    for (int n = 0; n < DRAWS && least > most; n++) {
        draw_shape(d, &drawn);
        attn_case_reshape(d->claims, &drawn);
        double work = attn_case_work(&drawn);
        if (work < least) {
            *c = drawn;
            least = work;
        }
    }
}

static enum attn_case_bias random_bias(struct dice *d)
{
    enum attn_case_bias bias = (enum attn_case_bias)roll(d, ATTN_CASE_BIAS_NAN + 1);
    return bias == ATTN_CASE_BIAS_NONE ||
                   !claims(d, bias == ATTN_CASE_BIAS_ALIBI ? ATTN_CAP_ALIBI : ATTN_CAP_BIAS)
               ? ATTN_CASE_BIAS_NONE
               : bias;
}

/* Fields that only our own are asked. */
static void own_fields(struct dice *d, struct attn_case *c)
{
    if (c->bias > ATTN_CASE_BIAS_ALIBI && rarely(d, 4) && c->dtype == ATTN_F32)
        c->bias_type = ATTN_BIAS_TYPE_F64;
    if (rarely(d, 6))
        c->threads = 2 + (int)roll(d, 3);
    if (c->dtype == ATTN_BF16 || c->dtype == ATTN_F16)
        c->wide = rarely(d, 2);
}

static void random_fields(struct dice *d, struct attn_case *c)
{
    int strides = claims(d, ATTN_CAP_STRIDES) && d->route != ATTN_ROUTE_FILES;
    c->pass = rarely(d, 3) || !claims(d, ATTN_CAP_BACKWARD) ? ATTN_FORWARD : ATTN_BACKWARD;
    c->scale =
        rarely(d, 5) && claims(d, ATTN_CAP_SCALE) ? value_of(d, ATTN_FACTOR_SCALE) : (double)NAN;
    c->softcap = rarely(d, 4) && claims(d, ATTN_CAP_SOFTCAP) ? value_of(d, ATTN_FACTOR_SOFTCAP) : 0;
    if (rarely(d, 3))
        c->bias = random_bias(d);
    if (c->bias == ATTN_CASE_BIAS_ALIBI) {
        c->slopes = (enum attn_case_slopes)roll(d, 2);
        c->has_alibi_offset = (int)roll(d, 2);
        c->alibi_offset = c->has_alibi_offset ? (int64_t)roll(d, 40) - 20 : 0;
    }
    if (rarely(d, 3) && strides)
        c->layout = (enum attn_case_layout)roll(d, ATTN_LAYOUT_FLIP + 1);
    if (rarely(d, 4) && strides)
        c->offset = (int)roll(d, 16);
    if (rarely(d, 3) && claims(d, ATTN_CAP_HARD))
        c->poison = (enum attn_case_poison)roll(d, ATTN_POISON_BIG + 1);
    if (rarely(d, 8))
        c->special = (enum attn_case_special)roll(d, ATTN_SPECIAL_K_HUGE + 1);
    if (c->pass == ATTN_FORWARD && attn_case_special_is_backward(c->special))
        c->special = ATTN_SPECIAL_NONE;
    if (c->pass == ATTN_BACKWARD) {
        c->d_lse = rarely(d, 4) && claims(d, ATTN_CAP_DLSE);
        c->d_bias = c->bias > ATTN_CASE_BIAS_ALIBI && rarely(d, 2) && claims(d, ATTN_CAP_DBIAS);
    }
    if (claims(d, ATTN_CAP_SINK) && rarely(d, 4))
        c->sink = (enum attn_case_sink)roll(d, ATTN_CASE_SINK_LARGE + 1);
    if (d->route == ATTN_ROUTE_OWN)
        own_fields(d, c);
}

/* f32 in three of four where it is claimed. */
static enum attn_dtype random_type(struct dice *d)
{
    enum attn_dtype type = ATTN_F32;
    if ((d->claims->bits & 15u) == 0 || (!rarely(d, 4) && claims(d, ATTN_CAP_F32)))
        return type;
    do
        type = (enum attn_dtype)roll(d, ATTN_DTYPES);
    while (!claims(d, 1u << type));
    return type;
}

/* ---- in turn ---------------------------------------------------------------------------------
 */

static const int widths_v[] = {96, 17, 64, 128, 1, 48}, windows[] = {100, 64, 17, 16, 15, 8, 7};
static const double caps[] = {50, 30, 0.5, 0};

/* A number of the table, one after the other. */
#define IN_TURN(table, n) ((table)[(n) % (sizeof(table) / sizeof *(table))])

/* Every second case: one extent goes through its numbers, the rest is small and plain, so that an
 * error shows in each output.  Widths; heads and groups; batches; then lengths, each of which
 * leaves another tail of 64. */
static void walk(struct dice *d, struct attn_case *c)
{
    const uint64_t turn = d->number / 8;
    const int kind = (int)(d->number / 2 % 4), cross = claims(d, ATTN_CAP_CROSS);
    const int64_t i = (int64_t)turn, tail = i % 64;
    c->batch = kind == 2 ? 1 + i % 16 : 1;
    c->kv_heads = kind == 1 ? (i % 2 == 0 ? 1 + i / 2 % 32 : 1 + i / 32 % 2) : 1;
    c->heads = c->kv_heads * (kind != 1 ? 2 : i % 2 == 0 ? 2 : 1 + i / 2 % 16);
    c->d_key = kind == 0 ? 8 * (1 + i % 32) : 8 + 8 * (i % 3);
    c->d_value = kind == 2 && claims(d, ATTN_CAP_DV) ? IN_TURN(widths_v, i) : c->d_key;
    c->n_query = kind < 3 ? 9 + i % 11 : cross ? 17 + i % 5 : 128 + tail;
    c->n_key = !cross ? c->n_query : kind < 3 ? 9 + i % 13 : 64 * (2 + i / 64 * 5 % 15) + tail;
    attn_case_reshape(d->claims, c);
    c->softcap = kind == 2 && claims(d, ATTN_CAP_SOFTCAP) ? IN_TURN(caps, i) : 0;
    c->pass = claims(d, ATTN_CAP_BACKWARD) ? ATTN_BACKWARD : ATTN_FORWARD;
    c->dtype = random_type(d);
    c->seed = roll(d, 1000000);
    const char *end = d->claims->causal == ATTN_PLUGIN_CAUSAL_TL ? "tl" : "br";
    if (kind == 3 && claims(d, ATTN_CAP_BAND))
        attn_append(c->mask, ATTN_CASE_MASK, "window(%d,%d,%s)", IN_TURN(windows, i),
                    IN_TURN(windows, i), end);
    else if ((kind + i / 2) % 2 == 0 && claims(d, ATTN_CAP_CAUSAL) && c->n_query <= c->n_key)
        attn_append(c->mask, ATTN_CASE_MASK, "causal(%s)", end);
    else
        attn_append(c->mask, ATTN_CASE_MASK, "none");
}

/* ---- at random -------------------------------------------------------------------------------
 */

/* V becomes a view of K, where the fill and the rest of the case let it. */
static void share_keys(struct dice *d, struct attn_case *c)
{
    struct attn_case shared = *c, parsed;
    char text[ATTN_CASE_TEXT];
    if (!claims(d, ATTN_CAP_KV_SHARED) || !rarely(d, 4))
        return;
    shared.kv_shared = 1;
    shared.d_value = c->d_value < c->d_key ? c->d_value : c->d_key;
    attn_case_print(&shared, text);
    if (attn_case_parse(text, &parsed, NULL) == ATTN_OK)
        *c = parsed;
}

static void draw(struct dice *d, struct attn_case *c)
{
    *c = (struct attn_case){.scale = (double)NAN};
    struct dice few = {d->seed, d->number % ATTN_FEW_SHAPES, 0, d->claims, d->route};
    random_shape(d->claims->declines & ATTN_PLUGIN_FEW_SHAPES ? &few : d, c);
    random_mask(d, c);
    c->dtype = random_type(d);
    c->fill = (enum attn_fill)(rarely(d, 2) ? roll(d, ATTN_FILL_POWERS) : ATTN_FILL_NORMAL);
    c->seed = roll(d, 1000000);
    random_fields(d, c);
    if (c->fill == ATTN_FILL_SELECT || c->fill == ATTN_FILL_REVEAL) { /* exact only without */
        c->softcap = 0;
        c->bias = ATTN_CASE_BIAS_NONE;
        c->sink = ATTN_CASE_SINK_NONE;
        c->bias_type = ATTN_BIAS_TYPE_AS_LSE;
        c->slopes = ATTN_SLOPES_HALVES;
        c->has_alibi_offset = c->d_bias = 0;
        c->alibi_offset = 0;
        c->special = ATTN_SPECIAL_NONE;
        if (c->layout == ATTN_LAYOUT_BROADCAST)
            c->layout = ATTN_LAYOUT_BHLD;
    }
    share_keys(d, c);
}

static int is_allowed(const struct dice *d, const struct attn_case *c)
{
    struct attn_setup setup;
    unsigned needs;
    if (attn_setup_describe(c, &setup, NULL) != ATTN_OK)
        return 0;
    int allowed = attn_claims_allow(d->claims, &setup, d->route, &needs, NULL) == ATTN_OK;
    attn_setup_close(&setup);
    return allowed;
}

void attn_soak_case(const struct attn_soak_source *source, uint64_t number, struct attn_case *c)
{
    enum { DRAWS = 40 };
    struct dice dice = {source->seed, number, 0, source->claims, source->route};
    const int few = (source->claims->declines & ATTN_PLUGIN_FEW_SHAPES) != 0;
    *c = (struct attn_case){.scale = (double)NAN};
    if (number % 2 == 0 && !few) {
        walk(&dice, c);
        attn_case_narrow(source->claims, c);
        if (is_allowed(&dice, c))
            return;
    }
    for (int n = 0; n == 0 || (n < DRAWS && !is_allowed(&dice, c)); n++) {
        draw(&dice, c);
        attn_case_narrow(source->claims, c);
    }
}
