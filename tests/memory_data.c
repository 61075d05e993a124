/* See memory_data.h. */
#include "tests/memory_data.h"

#include <string.h>

/* No ck_assert from here to memory_specs: it is called while suites are put together. */
static void add(struct attn_spec *list, int *n, const struct attn_spec *spec)
{
    if (*n < MEMORY_SPECS)
        list[*n] = *spec;
    ++*n;
}

static int n_words(const char *choices)
{
    int n = 1;
    for (; *choices != '\0'; choices++)
        n += *choices == ' ';
    return n;
}

int memory_specs(struct attn_spec list[MEMORY_SPECS])
{
    int n = 0;
    for (int i = 0; i < attn_impl_count(); i++) {
        struct attn_spec spec;
        if (attn_spec_parse(attn_impl_at(i)->name, &spec, NULL) != ATTN_OK)
            continue; /* the tests of the registry say so; Check knows no failure here */
        const struct attn_option *option = spec.impl->options;
        if (spec.impl->ranks == NULL)
            add(list, &n, &spec);
        for (int o = 0; option != NULL && option[o].name != NULL; o++) {
            struct attn_spec other = spec;
            int by_rank = spec.impl->ranks != NULL && strcmp(option[o].name, "ranks") == 0;
            int words = option[o].choices != NULL && option[o].choices[0] != '@'
                            ? n_words(option[o].choices)
                            : 0;
            for (other.options.value[o] = 1; by_rank && other.options.value[o] <= 4;
                 other.options.value[o] *= 2)
                add(list, &n, &other);
            for (int64_t word = 0; word < words; word++) {
                other.options.value[o] = word;
                if (word != option[o].preset)
                    add(list, &n, &other);
            }
        }
    }
    return n;
}

void memory_open(const char *text, struct attn_setup *s)
{
    struct attn_case c;
    struct attn_error err = {0};
    ck_assert_msg(attn_case_parse(text, &c, &err) == ATTN_OK, "%s: %s", text, err.text);
    ck_assert_msg(attn_setup_open(&c, s, &err) == ATTN_OK, "%s: %s", text, err.text);
}

enum attn_status memory_run(const struct attn_spec *spec, const struct attn_setup *s,
                            enum attn_pass pass, struct attn_ledger *ledger,
                            struct attn_rank_use *use, struct attn_error *err)
{
    struct attn_ctx ctx = {.ledger = ledger, .options = &spec->options, .error = err, .ranks = use};
    if (pass == ATTN_FORWARD) {
        struct attn_forward t = attn_setup_forward(s);
        return attn_run_forward(spec->impl, &ctx, &s->problem, &t);
    }
    struct attn_backward t = attn_setup_backward(s);
    return attn_run_backward(spec->impl, &ctx, &s->problem, &t);
}
