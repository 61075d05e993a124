/* The list of implementations, and the spec strings that name them. */
#include "tests/fixtures/case_fixture.h"
#include "tests/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimized/registry.h"
#include "optimized/simple.h"
#include "tests/harness/base/fill.h"

SUITE(registry);

static int n_options(const struct attn_impl *impl)
{
    int n = 0;
    while (impl->options != NULL && impl->options[n].name != NULL)
        n++;
    return n;
}

static int is_local(const struct attn_option *option)
{
    return option->choices != NULL && option->choices[0] == '@';
}

static int n_choices(const struct attn_option *option)
{
    int n = 1;
    for (const char *at = option->choices; *at != '\0'; at++)
        n += *at == ' ';
    return n;
}

/* ---- records -------------------------------------------------------------------------------- */

static int is_word(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n > 0 && text[n] == '\0' && text[0] != '-';
}

TEST_EACH(records, attn_impl_count())
{
    static const char *const family[] = {"dense", "csr",     "block-sparse",
                                         "tiled", "chunked", "sequence-parallel"};
    const struct attn_impl *x = attn_impl_at(_i);
    ck_assert_msg(is_word(x->name), "'%s' cannot stand in a spec", x->name);
    ck_assert_uint_lt(strlen(x->name), 64);
    ck_assert_ptr_eq(attn_impl_find(x->name), x);
    ck_assert_msg(x->summary != NULL && strlen(x->summary) > 10, "%s: no summary", x->name);
    ck_assert_msg(strchr(x->summary, '\n') == NULL, "%s: the summary is one line", x->name);
    int known = 0;
    for (size_t f = 0; f < sizeof family / sizeof *family; f++)
        known |= strcmp(family[f], x->family) == 0;
    ck_assert_msg(known, "%s: family '%s' is not known", x->name, x->family);
    ck_assert(x->cost != NULL && x->forward != NULL);
    for (int other = 0; other < _i; other++) {
        ck_assert_str_ne(attn_impl_at(other)->name, x->name);
        ck_assert_str_ne(attn_impl_at(other)->summary, x->summary);
    }
}

/* Claims that make no sense without each other. */
TEST_EACH(capabilities, attn_impl_count())
{
    const struct attn_impl *x = attn_impl_at(_i);
    const unsigned caps = x->caps;
    ck_assert_uint_eq(caps >> ATTN_CAPS, 0);
    ck_assert((caps & (ATTN_CAP_F64 | ATTN_CAP_F32 | ATTN_CAP_BF16 | ATTN_CAP_F16)) != 0);
    ck_assert_int_eq((caps & ATTN_CAP_BACKWARD) != 0, x->backward != NULL);
    if (caps & (ATTN_CAP_DBIAS | ATTN_CAP_DLSE))
        ck_assert((caps & ATTN_CAP_BACKWARD) != 0);
    if (caps & ATTN_CAP_DBIAS)
        ck_assert((caps & ATTN_CAP_BIAS) != 0);
    if (caps & ATTN_CAP_HARD)
        ck_assert((caps & ATTN_CAP_MASK) != 0);
}

TEST_EACH(options, attn_impl_count())
{
    const struct attn_impl *x = attn_impl_at(_i);
    int n = n_options(x), locals = 0;
    ck_assert_int_le(n, ATTN_MAX_OPTIONS);
    for (int o = 0; o < n; o++) {
        const struct attn_option *option = &x->options[o];
        ck_assert_msg(is_word(option->name), "%s: option '%s'", x->name, option->name);
        ck_assert_msg(option->help != NULL && strlen(option->help) > 3, "%s:%s: no help", x->name,
                      option->name);
        for (int other = 0; other < o; other++)
            ck_assert_str_ne(x->options[other].name, option->name);
        if (is_local(option)) {
            const struct attn_impl *local = attn_impl_find(option->choices + 1);
            ck_assert_msg(local != NULL, "%s:%s: no implementation '%s'", x->name, option->name,
                          option->choices);
            ck_assert_msg(local->ranks == NULL, "%s: %s is parallel itself", x->name, local->name);
            locals++;
            continue;
        }
        int64_t most = option->choices != NULL ? n_choices(option) - 1 : option->max;
        ck_assert_int_le(option->min, option->preset);
        ck_assert_int_le(option->preset, most);
        if (option->choices != NULL) /* an index: the words must be all that there is */
            ck_assert(option->min == 0 && option->max == most);
    }
    ck_assert_int_le(locals, 1); /* struct attn_options has room for one */
    struct attn_options preset;
    attn_options_preset(x, &preset);
    ck_assert_int_ge(attn_ranks(x, &preset), 1);
}

/* ---- round trips ---------------------------------------------------------------------------- */

static void check_round_trip(const struct attn_spec *spec)
{
    char text[512], again[512];
    ck_assert_int_eq(attn_spec_print(spec, text, sizeof text), (int)strlen(text));
    struct attn_spec back = spec_of(text);
    ck_assert_ptr_eq(back.impl, spec->impl);
    ck_assert_ptr_eq(back.options.local, spec->options.local);
    ck_assert_msg(memcmp(back.options.value, spec->options.value, sizeof back.options.value) == 0,
                  "%s", text);
    ck_assert_msg(memcmp(back.options.local_value, spec->options.local_value,
                         sizeof back.options.local_value) == 0,
                  "%s", text);
    attn_spec_print(&back, again, sizeof again);
    ck_assert_str_eq(again, text);
}

/* The i-th implementation that may be local to a rank. */
static const struct attn_impl *some_local(uint64_t i)
{
    for (uint64_t at = i;; at++) {
        const struct attn_impl *x = attn_impl_at((int)(at % (uint64_t)attn_impl_count()));
        if (x->ranks == NULL)
            return x;
    }
}

static int64_t some_value(const struct attn_option *option, uint64_t draw, int o)
{
    uint64_t n = option->choices != NULL ? (uint64_t)n_choices(option)
                                         : (uint64_t)(option->max - option->min) + 1;
    return option->min + (int64_t)(attn_hash(draw, (uint64_t)o, 1) % n);
}

TEST_EACH(round_trips, attn_impl_count())
{
    char text[64];
    struct attn_spec spec = spec_of(attn_impl_at(_i)->name);
    attn_spec_print(&spec, text, sizeof text);
    ck_assert_str_eq(text, attn_impl_at(_i)->name); /* presets are left out */
    for (uint64_t draw = 0; draw < 500; draw++) {
        for (int o = 0; o < n_options(spec.impl); o++) {
            const struct attn_impl *local = some_local(draw);
            if (!is_local(&spec.impl->options[o])) {
                spec.options.value[o] = some_value(&spec.impl->options[o], draw, o);
                continue;
            }
            attn_options_set_local(&spec.options, local);
            for (int l = 0; draw % 3 > 0 && l < n_options(local); l++)
                spec.options.local_value[l] = some_value(&local->options[l], draw, o + l + 1);
        }
        check_round_trip(&spec);
    }
}

/* A written spec, and its printed form: in the list's order, without presets. */
static const struct {
    const char *text, *printed;
} meant[] = {
    {"dense:mask=int32", "dense:mask=int32"},
    {"tiled-textbook:bc=16,br=1", "tiled-textbook:br=1,bc=16"},
    {"tiled-textbook:br=64,bc=16", "tiled-textbook:bc=16"},
    {"ring:local=dense,ranks=2", "ring:ranks=2,local=dense"},
    {"ring:local=tiled", "ring"},
    {"ring:local=(tiled:few=8),ranks=4", "ring"},
    {"ring:local=(chunked:k=4096,q=32),ranks=8@portable",
     "ring:ranks=8,local=(chunked:q=32)@portable"},
};

TEST(what_specs_mean)
{
    char text[100];
    for (int n = 0; n < COUNT(meant); n++) {
        struct attn_spec spec = spec_of(meant[n].text);
        attn_spec_print(&spec, text, sizeof text);
        ck_assert_str_eq(text, meant[n].printed);
    }
    struct attn_spec spec = spec_of("ring:local=(chunked:k=4096,q=32),ranks=8");
    ck_assert_ptr_eq(spec.options.local, attn_impl_find("chunked"));
    ck_assert_int_eq(spec.options.local_value[0], 32);
    ck_assert_int_eq(spec.options.local_value[1], 4096);
    ck_assert_int_eq(attn_ranks(spec.impl, &spec.options), 8);
    ck_assert_ptr_eq(spec_of("ulysses").options.local, attn_impl_find("tiled"));
}

/* A text that is too long for its place is cut and ended, and its length is returned. */
TEST(short_room)
{
    char text[16];
    struct attn_spec spec = spec_of("tiled-textbook:br=1,bc=16");
    memset(text, 'x', sizeof text);
    ck_assert_int_eq(attn_spec_print(&spec, text, 6), 25);
    ck_assert_str_eq(text, "tiled");
    ck_assert_int_eq(text[6], 'x');
    ck_assert_int_eq(attn_spec_print(&spec, NULL, 0), 25);
}

/* ---- calls of other languages ---------------------------------------------------------------- */

enum { SQ = 2 * 4 * 5 * 3, SK = 2 * 2 * 7 * 3, SV = 2 * 2 * 7 * 2, SO = 2 * 4 * 5 * 2 };
static const struct attn_simple simple = {2, 4, 2, 5, 7, 3, 2, 0};
static float sq[SQ], sk[SK], sv[SV], so[SO], slse[2 * 4 * 5], sdo[SO], sdq[SQ], sdk[SK], sdv[SV];

/* The sum of o d_o: what the gradients are those of. */
static double loss(void)
{
    char error[ATTN_SIMPLE_ERROR];
    double sum = 0;
    int failed = attn_simple_forward("tiled", "causal(br)", &simple, sq, sk, sv, so, slse, error);
    ck_assert_msg(!failed, "%s", error);
    for (int n = 0; n < SO; n++)
        sum += (double)so[n] * (double)sdo[n];
    return sum;
}

/* Every gradient is the difference quotient: no two arguments of a call are exchanged. */
TEST(simple_calls)
{
    static const float step = 0x1p-6f;
    const struct {
        float *x, *dx;
        int n;
    } side[] = {{sq, sdq, SQ}, {sk, sdk, SK}, {sv, sdv, SV}};
    char error[ATTN_SIMPLE_ERROR];
    for (int n = 0; n < SQ; n++)
        sq[n] = (float)(n * 37 % 19) / 8 - 1;
    for (int n = 0; n < SK; n++)
        sk[n] = (float)(n * 29 % 17) / 8 - 1;
    for (int n = 0; n < SV; n++)
        sv[n] = (float)(n * 23 % 13) / 8 - 1;
    for (int n = 0; n < SO; n++)
        sdo[n] = (float)(n * 31 % 11) / 8 - 1;
    loss();
    ck_assert_msg(attn_simple_backward("tiled", "causal(br)", &simple, sq, sk, sv, so, slse, sdo,
                                       sdq, sdk, sdv, error) == 0,
                  "%s", error);
    for (int s = 0; s < 3; s++)
        for (int n = 0; n < side[s].n; n += 5) {
            float was = side[s].x[n];
            side[s].x[n] = was + step;
            double more = loss();
            side[s].x[n] = was - step;
            double less = loss();
            side[s].x[n] = was;
            ck_assert_double_eq_tol((more - less) / (2 * (double)step), (double)side[s].dx[n],
                                    1e-3);
        }
    ck_assert(attn_simple_forward("tilde", "none", &simple, sq, sk, sv, so, slse, error) != 0);
    ck_assert_ptr_nonnull(strstr(error, "did you mean tiled?"));
    ck_assert(attn_simple_forward("dense", "casual", &simple, sq, sk, sv, so, slse, error) != 0);
    ck_assert_ptr_nonnull(strstr(error, "did you mean causal?"));
}
