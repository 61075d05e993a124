#include "experiments/rim/advice/advice.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/mask/mask.h"
#include "tests/harness/bound/arithmetic.h"

/* ---- the changes ----------------------------------------------------------------------------- */

/* Each says what its n-th change makes of `to`, which is as it was asked for: 1; that there is no
 * such thing here: 0; or that there are no more: -1. */
typedef int change(const struct attn_price_asked *asked, int n, struct attn_advice *to);

static int is_parallel(const struct attn_impl *impl)
{
    return impl->ranks != NULL;
}

/* The implementation that works in one process: of ranks, the local one. */
static const struct attn_impl *worker(const struct attn_spec *spec)
{
    return is_parallel(spec->impl) ? spec->options.local : spec->impl;
}

static int64_t *worker_options(struct attn_spec *spec)
{
    return is_parallel(spec->impl) ? spec->options.local_value : spec->options.value;
}

/* An instruction set is asked for only of who has kernels for several. */
static void set_worker(struct attn_spec *spec, const struct attn_impl *impl)
{
    const struct attn_options is = spec->options;
    const struct attn_isa *isa = impl->simd ? is.isa : NULL;
    if (is_parallel(spec->impl))
        attn_options_set_local(&spec->options, impl);
    else {
        spec->impl = impl;
        attn_options_preset(impl, &spec->options);
    }
    spec->options.isa = isa;
    spec->options.priced_only = isa != NULL && is.priced_only;
}

/* Another implementation, in one process or on each rank. */
static int other_implementation(const struct attn_price_asked *asked, int n, struct attn_advice *to)
{
    if (n == attn_impl_count())
        return -1;
    const struct attn_impl *impl = attn_impl_at(n);
    if (is_parallel(impl) || impl == worker(asked->spec))
        return 0;
    set_worker(&to->spec, impl);
    snprintf(to->what, sizeof to->what, "%s%s", impl->name,
             is_parallel(to->spec.impl) ? " on each rank" : "");
    return 1;
}

/* The n-th word of all options of words; 0 where it is there already. */
static int choose(const struct attn_impl *impl, int64_t *value, int n, char *what, size_t size)
{
    for (int o = 0; impl->options != NULL && impl->options[o].name != NULL; o++) {
        const struct attn_option *option = &impl->options[o];
        if (option->choices == NULL || option->choices[0] == '@')
            continue;
        int64_t word = 0;
        const char *at = option->choices;
        for (; *at != '\0'; word++, n--) {
            size_t length = strcspn(at, " ");
            if (n == 0 && value[o] == word)
                return 0;
            if (n == 0) {
                snprintf(what, size, "%s=%.*s", option->name, (int)length, at);
                value[o] = word;
                return 1;
            }
            at += length + (at[length] == ' ');
        }
    }
    return -1;
}

/* Another storage of the mask, another way to sum or to send: all words of its options. */
static int other_word(const struct attn_price_asked *asked, int n, struct attn_advice *to)
{
    (void)asked;
    return choose(worker(&to->spec), worker_options(&to->spec), n, to->what, sizeof to->what);
}

static int other_word_of_ranks(const struct attn_price_asked *asked, int n, struct attn_advice *to)
{
    if (!is_parallel(asked->spec->impl))
        return -1;
    return choose(to->spec.impl, to->spec.options.value, n, to->what, sizeof to->what);
}

static int has_value(const struct attn_impl *impl, int64_t *value, const char *name, int64_t x)
{
    int o = attn_option_find(impl, name);
    if (o < 0 || impl->options[o].choices != NULL || value[o] == x || x < impl->options[o].min ||
        x > impl->options[o].max)
        return 0;
    value[o] = x;
    return 1;
}

/* Smaller and larger pieces of what is done at a time. */
static int other_number(const struct attn_price_asked *asked, int n, struct attn_advice *to)
{
    static const struct {
        const char *name;
        int64_t value;
    } number[] = {{"q", 256},   {"q", 64},     {"k", 1024},  {"k", 256},
                  {"br", 16},   {"bc", 16},    {"size", 32}, {"size", 512},
                  {"parts", 1}, {"panels", 1}, {"stride", 1}};
    (void)asked;
    if (n == sizeof number / sizeof *number)
        return -1;
    snprintf(to->what, sizeof to->what, "%s=%lld", number[n].name, (long long)number[n].value);
    return has_value(worker(&to->spec), worker_options(&to->spec), number[n].name,
                     number[n].value) ||
           (is_parallel(to->spec.impl) &&
            has_value(to->spec.impl, to->spec.options.value, number[n].name, number[n].value));
}

/* The same on ranks, each of which does its share as it is done now; or on more or fewer ranks. */
static int on_ranks(const struct attn_price_asked *asked, int n, struct attn_advice *to)
{
    static const char *const scheme[] = {"ulysses", "ring"};
    enum { NUMBERS = 3 }; /* 2, 4, 8 */
    const struct attn_spec *is = asked->spec;
    int is_stack = asked->stack->n > 0; /* of which all are refused: said once */
    if (n == (is_stack ? 1 : NUMBERS * (is_parallel(is->impl) ? 1 : 2)))
        return -1;
    if (!is_parallel(is->impl)) {
        struct attn_spec *spec = &to->spec;
        spec->impl = attn_impl_find(scheme[n / NUMBERS]);
        attn_options_preset(spec->impl, &spec->options);
        attn_options_set_local(&spec->options, is->impl);
        memcpy(spec->options.local_value, is->options.value, sizeof is->options.value);
        spec->options.isa = is->options.isa;
        spec->options.priced_only = is->options.priced_only;
    }
    int o = attn_option_find(to->spec.impl, "ranks");
    int64_t ranks = (int64_t)2 << n % NUMBERS;
    snprintf(to->what, sizeof to->what, "%s on %lld ranks", to->spec.impl->name, (long long)ranks);
    if (is_parallel(is->impl) && is->options.value[o] == ranks)
        return 0;
    to->spec.options.value[o] = ranks;
    return 1;
}

/* The change: a layer keeps other tensors between the passes. */
static int other_save(const struct attn_price_asked *asked, int n, struct attn_advice *to)
{
    if (n == ATTN_SAVES || asked->stack->n == 0)
        return -1;
    if ((enum attn_stack_save)n == asked->stack->save)
        return 0;
    to->stack.save = (enum attn_stack_save)n;
    snprintf(to->what, sizeof to->what, "save %s%s", attn_stack_save_name(to->stack.save),
             to->stack.save == ATTN_SAVE_INPUTS ? " (checkpointing)" : "");
    return 1;
}

static int one_of_batch(const struct attn_price_asked *asked, int n, struct attn_advice *to)
{
    if (n > 0 || asked->c->batch <= 1)
        return -1;
    to->c.batch = 1;
    snprintf(to->what, sizeof to->what, "one of the batch at a time, %lld times",
             (long long)asked->c->batch);
    return 1;
}

/* f16 takes what bf16 takes. */
static int narrower_storage(const struct attn_price_asked *asked, int n, struct attn_advice *to)
{
    if (n > (int)ATTN_BF16)
        return -1;
    to->c.dtype = (enum attn_dtype)n;
    snprintf(to->what, sizeof to->what, "stored as %s%s", attn_dtype_name(to->c.dtype),
             to->c.dtype == ATTN_BF16 ? " or f16" : "");
    return attn_dtype_size(to->c.dtype) < attn_dtype_size(asked->c->dtype);
}

static int fewer_layers(const struct attn_price_asked *asked, int n, struct attn_advice *to)
{
    if (n > 0 || asked->stack->n <= 1)
        return -1;
    to->stack.n /= 2;
    snprintf(to->what, sizeof to->what, "%lld layers", (long long)to->stack.n);
    return 1;
}

/* Only 1,024 keys before each query, where there are more. */
static int in_a_window(const struct attn_price_asked *asked, int n, struct attn_advice *to)
{
    if (n > 0 || asked->c->n_key <= 1024)
        return -1;
    const char *mask = attn_case_mask(asked->c);
    int is_none = strcmp(mask, "none") == 0;
    int needs = snprintf(to->c.mask, ATTN_CASE_MASK, is_none ? "%s" : "(%s)&%s",
                         is_none ? "window(1023,0,br)" : mask, "window(1023,0,br)");
    to->c.long_mask = NULL;
    snprintf(to->what, sizeof to->what, "a window of 1024 keys");
    return needs < ATTN_CASE_MASK;
}

static const struct {
    change *make;
    int changes_result;
} changes[] = {{other_implementation, 0}, {other_word, 0},       {other_word_of_ranks, 0},
               {other_number, 0},         {on_ranks, 0},         {other_save, 0},
               {one_of_batch, 0},         {narrower_storage, 1}, {fewer_layers, 1},
               {in_a_window, 1}};

/* ---- their prices ---------------------------------------------------------------------------- */

struct attn_price_asked attn_advice_asked(const struct attn_price_asked *asked,
                                          struct attn_advice *x)
{
    return (struct attn_price_asked){&x->spec, &x->stack, &x->c, asked->pass, asked->memory};
}

/* How long it may become; -1 where prices of longer ones take long. */
static int64_t longest_of(const struct attn_price_asked *asked)
{
    static const double PATIENCE = 0.1; /* s */
    struct attn_error err;
    double bytes[2];
    int64_t length = -1;
    if (isinf(asked->memory->bytes) ||
        attn_need_longest(asked, 0, PATIENCE, &length, bytes, &err) != ATTN_OK)
        return -1;
    return length;
}

static void price(const struct attn_price_asked *asked, double now, struct attn_advice *x)
{
    struct attn_need need;
    const struct attn_price_asked changed = attn_advice_asked(asked, x);
    x->refused.status = attn_need_of_case(&changed, &need, &x->refused);
    if (x->refused.status != ATTN_OK)
        return;
    x->lacks = need.lacks;
    x->bytes = attn_need_in(&need, asked->memory);
    x->brings = now - x->bytes;
    x->longest = longest_of(&changed);
}

/* Refused changes stand last, before them those that change the result; then by bytes, then as
 * found. */
static int compare(const void *one, const void *other)
{
    const struct attn_advice *a = one, *b = other;
    int refused[2] = {a->refused.status != ATTN_OK, b->refused.status != ATTN_OK};
    if (refused[0] != refused[1])
        return refused[0] - refused[1];
    if (a->changes_result != b->changes_result)
        return a->changes_result - b->changes_result;
    if (!refused[0] && (a->brings < b->brings || a->brings > b->brings))
        return a->brings < b->brings ? 1 : -1;
    return a->order - b->order;
}

/* The coarsest rounding of scores, P and dS that it declares. */
static double roundoff(const struct attn_spec *spec, const struct attn_case *c)
{
    struct attn_problem p;
    struct attn_mask *mask;
    struct attn_precision x = {0};
    if (attn_case_open(c, NULL, &p, &mask, NULL) == ATTN_OK)
        attn_precision_of(spec->impl, &spec->options, &p, &x);
    attn_mask_free(mask);
    return fmax(x.u_s, fmax(x.u_p, x.u_ds));
}

/* The n-th change of a row of the table, as it was asked for but for that, with its price; what its
 * function says. */
static int try(const struct attn_price_asked *asked, size_t row, int n, double now,
               struct attn_advice *x)
{
    *x = (struct attn_advice){.spec = *asked->spec,
                              .stack = *asked->stack,
                              .c = *asked->c,
                              .changes_result = changes[row].changes_result};
    int made = changes[row].make(asked, n, x);
    if (made > 0)
        price(asked, now, x);
    if (made > 0 && x->refused.status == ATTN_OK)
        x->changes_result |= roundoff(&x->spec, &x->c) > roundoff(asked->spec, asked->c);
    return made;
}

static int fits(const struct attn_price_asked *asked, const struct attn_advice *x)
{
    return x->refused.status == ATTN_OK && x->lacks == NULL && x->bytes <= asked->memory->bytes;
}

/* Of two changes that fit together those that bring most stay. */
enum { PAIRS = 8 };
static void keep_pair(struct attn_advices *advices, int singles, const struct attn_advice *x)
{
    int least = singles;
    if (advices->n - singles < PAIRS && advices->n < ATTN_ADVICE_MOST) {
        advices->at[advices->n++] = *x;
        return;
    }
    for (int i = singles; i < advices->n; i++)
        if (advices->at[i].brings < advices->at[least].brings)
            least = i;
    if (least < advices->n && x->brings > advices->at[least].brings)
        advices->at[least] = *x;
}

/* A second change, of a later row, on top of the first: of one that is refused alone too. */
static void try_second(const struct attn_price_asked *asked, size_t row, struct attn_advice *first,
                       struct attn_advices *advices, int singles)
{
    const struct attn_price_asked once = attn_advice_asked(asked, first);
    for (size_t c = row + 1; c < sizeof changes / sizeof *changes; c++)
        for (int n = 0, made = 0; made >= 0 && !changes[c].changes_result; n++) {
            struct attn_advice x;
            char what[161];
            made = try(&once, c, n, advices->bytes, &x);
            if (made <= 0 || !fits(asked, &x))
                continue;
            snprintf(what, sizeof what, "%.160s", x.what);
            snprintf(x.what, sizeof x.what, "%.160s, and %s", first->what, what);
            x.order = INT_MAX - 1;
            keep_pair(advices, singles, &x);
        }
}

static void try_pairs(const struct attn_price_asked *asked, struct attn_advices *advices)
{
    int singles = advices->n;
    for (size_t c = 0; c < sizeof changes / sizeof *changes; c++)
        for (int n = 0, made = 0; made >= 0 && !changes[c].changes_result; n++) {
            struct attn_advice first;
            made = try(asked, c, n, advices->bytes, &first);
            if (made > 0)
                try_second(asked, c, &first, advices, singles);
        }
}

enum attn_status attn_price_advices(const struct attn_price_asked *asked,
                                    struct attn_advices *advices, struct attn_error *err)
{
    struct attn_need need;
    enum attn_status status = attn_need_of_case(asked, &need, err);
    if (status != ATTN_OK)
        return status;
    advices->n = 0;
    advices->bytes = attn_need_in(&need, asked->memory);
    advices->longest = longest_of(asked);
    int fit = advices->bytes <= asked->memory->bytes;
    for (size_t c = 0; c < sizeof changes / sizeof *changes; c++)
        for (int n = 0, made = 0; made >= 0 && advices->n < ATTN_ADVICE_MOST; n++) {
            struct attn_advice *x = &advices->at[advices->n];
            made = try(asked, c, n, advices->bytes, x);
            if (made <= 0)
                continue;
            fit |= fits(asked, x) && !x->changes_result;
            x->order = advices->n++;
        }
    if (!fit && !need.counted) /* where pairs are counted, many prices take minutes */
        try_pairs(asked, advices);
    qsort(advices->at, (size_t)advices->n, sizeof *advices->at, compare);
    for (int i = 0; i < advices->n; i++)
        (void)attn_advice_asked(asked, &advices->at[i]);
    return ATTN_OK;
}
