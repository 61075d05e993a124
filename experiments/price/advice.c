#include "experiments/price/advice.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

/* ---- the changes ----------------------------------------------------------------------------- */

/* Each says what its n-th change makes of `to`, which is as it was asked for: 1; that there is no
 * such thing here: 0; or that there are no more: -1. */
typedef int change(const struct attn_price_asked *asked, int n, struct attn_advice *to);

static int is_parallel(const struct attn_impl *impl)
{
    return impl->ranks != NULL;
}

/* Place of an option among an implementation's; -1: it has none. */
static int find_option(const struct attn_impl *impl, const char *name)
{
    for (int o = 0; impl->options != NULL && impl->options[o].name != NULL; o++)
        if (strcmp(impl->options[o].name, name) == 0)
            return o;
    return -1;
}

/* What does the work of one process, and its options: of ranks, the local one. */
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
    int o = find_option(impl, name);
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
    if (n == NUMBERS * (is_parallel(is->impl) ? 1 : 2))
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
    int o = find_option(to->spec.impl, "ranks");
    int64_t ranks = (int64_t)2 << n % NUMBERS;
    snprintf(to->what, sizeof to->what, "%s on %lld ranks", to->spec.impl->name, (long long)ranks);
    if (is_parallel(is->impl) && is->options.value[o] == ranks)
        return 0;
    to->spec.options.value[o] = ranks;
    return 1;
}

/* What a layer keeps between the passes. */
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
    if (n > 0 || asked->shape->batch <= 1)
        return -1;
    to->shape.batch = 1;
    snprintf(to->what, sizeof to->what, "one of the batch at a time, %lld times",
             (long long)asked->shape->batch);
    return 1;
}

/* f16 takes what bf16 takes. */
static int narrower_storage(const struct attn_price_asked *asked, int n, struct attn_advice *to)
{
    if (n > (int)ATTN_BF16)
        return -1;
    to->shape.dtype = (enum attn_dtype)n;
    snprintf(to->what, sizeof to->what, "stored as %s%s", attn_dtype_name(to->shape.dtype),
             to->shape.dtype == ATTN_BF16 ? " or f16" : "");
    return attn_dtype_size(to->shape.dtype) < attn_dtype_size(asked->shape->dtype);
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
    if (n > 0 || asked->shape->n_key <= 1024)
        return -1;
    int is_none = strcmp(asked->shape->mask, "none") == 0;
    int needs = snprintf(to->mask, sizeof to->mask, is_none ? "%s" : "(%s)&%s",
                         is_none ? "window(1023,0,br)" : asked->shape->mask, "window(1023,0,br)");
    snprintf(to->what, sizeof to->what, "a window of 1024 keys");
    return needs < (int)sizeof to->mask;
}

static const struct {
    change *make;
    int changes_result;
} changes[] = {{other_implementation, 0}, {other_word, 0},       {other_word_of_ranks, 0},
               {other_number, 0},         {on_ranks, 0},         {other_save, 0},
               {one_of_batch, 0},         {narrower_storage, 1}, {fewer_layers, 1},
               {in_a_window, 1}};

/* ---- their prices ---------------------------------------------------------------------------- */

static struct attn_price_asked with(const struct attn_price_asked *asked, struct attn_advice *x)
{
    if (x->mask[0] != '\0') /* which moved with its advice */
        x->shape.mask = x->mask;
    return (struct attn_price_asked){&x->spec, &x->stack, &x->shape, asked->pass, asked->memory};
}

/* How long it may become; -1 where prices of longer ones take long. */
static int64_t longest_of(const struct attn_price_asked *asked)
{
    static const double PATIENCE = 0.1; /* s */
    struct attn_error err;
    double bytes[2];
    int64_t length = -1;
    if (isinf(asked->memory->bytes) ||
        attn_need_longest(asked->spec, asked->stack, asked->shape, asked->pass, asked->memory,
                          PATIENCE, &length, bytes, &err) != ATTN_OK)
        return -1;
    return length;
}

static void price(const struct attn_price_asked *asked, double now, struct attn_advice *x)
{
    struct attn_need need;
    const struct attn_price_asked changed = with(asked, x);
    x->refused.status =
        attn_need_of_shape(&x->spec, &x->stack, &x->shape, asked->pass, &need, &x->refused);
    if (x->refused.status != ATTN_OK)
        return;
    x->lacks = need.lacks;
    x->bytes = attn_need_in(&need, asked->memory);
    x->brings = now - x->bytes;
    x->longest = longest_of(&changed);
}

/* What is refused last, before it what changes the result; then by bytes, then as it was found. */
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

/* The n-th change of a row of the table, as it was asked for but for that, with its price; what its
 * function says. */
static int try(const struct attn_price_asked *asked, size_t row, int n, double now,
               struct attn_advice *x)
{
    *x = (struct attn_advice){.spec = *asked->spec,
                              .stack = *asked->stack,
                              .shape = *asked->shape,
                              .changes_result = changes[row].changes_result};
    int made = changes[row].make(asked, n, x);
    if (made > 0)
        price(asked, now, x);
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
    const struct attn_price_asked once = with(asked, first);
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
    enum attn_status status =
        attn_need_of_shape(asked->spec, asked->stack, asked->shape, asked->pass, &need, err);
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
    if (!fit && !need.counted) /* where pairs are counted, so many prices take minutes */
        try_pairs(asked, advices);
    qsort(advices->at, (size_t)advices->n, sizeof *advices->at, compare);
    for (int i = 0; i < advices->n; i++)
        (void)with(asked, &advices->at[i]);
    return ATTN_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static void append(char *text, size_t size, const char *flag, const char *value)
{
    char word[1024];
    size_t used = strlen(text);
    attn_cli_quote(value, word, sizeof word);
    snprintf(text + used, size - used, "%s%s%s", flag, flag[0] != '\0' ? " " : "", word);
}

static void append_number(char *text, size_t size, const char *flag, double value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%.0f", value);
    append(text, size, flag, digits);
}

/* Only what differs from what the command takes for granted. */
static void append_shape(char *text, size_t size, const struct attn_cli_shape *s)
{
    const struct {
        const char *flag;
        int64_t value, granted;
    } extent[] = {{" --length", s->n_query, -1},
                  {" --keys", s->n_key, s->n_query},
                  {" --batch", s->batch, 1},
                  {" --heads", s->heads, 1},
                  {" --kv-heads", s->kv_heads, s->heads},
                  {" --dim", s->dim, 64},
                  {" --dv", s->dv, s->dim}};
    for (size_t e = 0; e < sizeof extent / sizeof *extent; e++)
        if (extent[e].value != extent[e].granted)
            append_number(text, size, extent[e].flag, (double)extent[e].value);
    if (strcmp(s->mask, "none") != 0)
        append(text, size, " --mask", s->mask);
    if (s->dtype != ATTN_F32)
        append(text, size, " --dtype", attn_dtype_name(s->dtype));
}

void attn_price_command(const struct attn_price_asked *asked, char *text, size_t size)
{
    char name[512], memory[32], params[64];
    double bytes = asked->memory->bytes;
    const struct attn_stack *stack = asked->stack;
    attn_spec_print(asked->spec, name, sizeof name);
    snprintf(text, size, "%s price ", attn_cli_program());
    append(text, size, "", name);
    append_shape(text, size, asked->shape);
    if (asked->pass != ATTN_NEED_FORWARD)
        append(text, size, " --pass", attn_need_pass_name(asked->pass));
    if (stack->n > 0) {
        append_number(text, size, " --layers", (double)stack->n);
        append(text, size, " --save", attn_stack_save_name(stack->save));
    }
    if (stack->hidden > 0)
        append_number(text, size, " --hidden", (double)stack->hidden);
    snprintf(memory, sizeof memory, "%.0f%s", bytes, bytes < 1 << 20 ? "B" : "");
    if (asked->memory->is_device)
        append(text, size, " --memory", memory);
    snprintf(params, sizeof params, "%lld,%lld", (long long)asked->memory->params,
             (long long)asked->memory->param_bytes);
    if (asked->memory->params > 0)
        append(text, size, " --params", params);
}

/* ---- shown ----------------------------------------------------------------------------------- */

static const char *fits_text(const struct attn_memory *memory, double bytes)
{
    return isinf(memory->bytes) ? "" : bytes <= memory->bytes ? "fits" : "does not fit";
}

static const char *longest_text(int64_t longest, char text[64])
{
    char number[32];
    snprintf(text, 64, "longest %s",
             longest < 0 ? "not looked for" : attn_cli_grouped(longest, number));
    return text;
}

static void print_one(const struct attn_price_asked *asked, struct attn_advice *x)
{
    char brings[32], needs[32], longest[64], command[2048];
    const struct attn_price_asked changed = with(asked, x);
    attn_price_command(&changed, command, sizeof command);
    printf("  %10s less: %10s  %-12s  %-24s  %s", attn_price_bytes(x->brings, brings),
           attn_price_bytes(x->bytes, needs), fits_text(asked->memory, x->bytes),
           longest_text(x->longest, longest), x->what);
    if (x->lacks != NULL)
        printf("; priced only: %s does not run in %s", x->lacks, attn_dtype_name(x->shape.dtype));
    printf("\n      %s\n", command);
}

/* Where a change stands among the text's parts. */
enum part { KEEPS, CHANGES, NOTHING, REFUSED, PARTS };

static enum part part_of(const struct attn_advice *x)
{
    if (x->refused.status != ATTN_OK)
        return REFUSED;
    return x->brings <= 0 ? NOTHING : x->changes_result ? CHANGES : KEEPS;
}

static void print_text(const struct attn_price_asked *asked, struct attn_advices *advices)
{
    static const char *const title[PARTS] = {"with the same result", "with another result",
                                             "what brings nothing", "what is refused"};
    char needs[32], has[32], longest[64];
    const struct attn_memory *memory = asked->memory;
    attn_price_print_asked(asked);
    printf("\n  needs %s", attn_price_bytes(advices->bytes, needs));
    if (!isinf(memory->bytes))
        printf(", %s in %s %s; %s", fits_text(memory, advices->bytes),
               memory->is_device ? "a device of" : "this machine's",
               attn_price_bytes(memory->bytes, has), longest_text(advices->longest, longest));
    attn_price_print_isa(asked->spec, "; ", "");
    putchar('\n');
    attn_price_print_beside(asked);
    for (int part = 0; part < PARTS; part++)
        for (int i = 0, n = 0; i < advices->n; i++) {
            struct attn_advice *x = &advices->at[i];
            if ((int)part_of(x) != part)
                continue;
            if (n++ == 0)
                printf("\n%s:\n", title[part]);
            if (part == REFUSED)
                printf("  %s: %s\n", x->what, x->refused.text);
            else if (part == NOTHING)
                printf("  %s needs %s\n", x->what, attn_price_bytes(x->bytes, needs));
            else
                print_one(asked, x);
        }
}

static json_t *advice_json(const struct attn_price_asked *asked, struct attn_advice *x)
{
    char command[2048];
    const struct attn_price_asked changed = with(asked, x);
    json_t *json = attn_price_asked_json(&changed);
    json_object_set_new(json, "change", json_string(x->what));
    if (x->refused.status != ATTN_OK) {
        json_object_set_new(json, "refused", json_string(x->refused.text));
        return json;
    }
    attn_price_command(&changed, command, sizeof command);
    if (x->lacks != NULL)
        json_object_set_new(
            json, "priced_only",
            json_sprintf("%s does not run in %s", x->lacks, attn_dtype_name(x->shape.dtype)));
    json_object_set_new(json, "changes_result", json_boolean(x->changes_result));
    json_object_set_new(json, "needed_bytes", json_real(x->bytes));
    json_object_set_new(json, "brings_bytes", json_real(x->brings));
    json_object_set_new(
        json, "fits",
        isinf(asked->memory->bytes) ? json_null() : json_boolean(x->bytes <= asked->memory->bytes));
    json_object_set_new(json, "longest", x->longest < 0 ? json_null() : json_integer(x->longest));
    json_object_set_new(json, "command", json_string(command));
    return json;
}

int attn_price_advise(const struct attn_price_asked *asked, json_t *all)
{
    struct attn_error err = {0};
    struct attn_advices *advices = attn_cli_need(calloc(1, sizeof *advices));
    enum attn_status status = attn_price_advices(asked, advices, &err);
    if (status != ATTN_OK)
        attn_price_show_refused(asked, err.text, all);
    else if (all == NULL)
        print_text(asked, advices);
    else {
        json_t *json = attn_price_asked_json(asked), *list = json_array();
        for (int i = 0; i < advices->n; i++)
            json_array_append_new(list, advice_json(asked, &advices->at[i]));
        json_object_set_new(json, "needed_bytes", json_real(advices->bytes));
        json_object_set_new(json, "available_bytes", attn_cli_real(asked->memory->bytes));
        json_object_set_new(json, "longest",
                            advices->longest < 0 ? json_null() : json_integer(advices->longest));
        json_object_set_new(json, "advice", list);
        json_array_append_new(all, json);
    }
    free(advices);
    return attn_cli_status(status);
}
