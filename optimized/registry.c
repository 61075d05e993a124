/* See registry.h. */
#include "optimized/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimized/simd/isa.h"
#include "ref/mask/nearest.h"

#define ATTN_IMPL(x) extern const struct attn_impl attn_impl_##x;
#include "optimized/impls.def"
#undef ATTN_IMPL

/* An implementation that stands in impls.def twice stops the build here. */
enum {
#define ATTN_IMPL(x) attn_impl_stands_twice_##x,
#include "optimized/impls.def"
#undef ATTN_IMPL
};

static const struct attn_impl *const list[] = {
#define ATTN_IMPL(x) &attn_impl_##x,
#include "optimized/impls.def"
#undef ATTN_IMPL
};

int attn_impl_count(void)
{
    return (int)(sizeof list / sizeof *list);
}

int attn_option_find(const struct attn_impl *impl, const char *name)
{
    for (int o = 0; impl->options != NULL && impl->options[o].name != NULL; o++)
        if (strcmp(impl->options[o].name, name) == 0)
            return o;
    return -1;
}

const struct attn_impl *attn_impl_at(int index)
{
    return list[index];
}

const struct attn_impl *attn_impl_find(const char *name)
{
    for (int i = 0; i < attn_impl_count(); i++)
        if (strcmp(list[i]->name, name) == 0)
            return list[i];
    return NULL;
}

/* ---- words -------------------------------------------------------------------------------- */

/* Append to a text of fixed size, cutting what does not fit. */
static void append(char *text, size_t size, const char *word)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", word);
}

/* Position of a word in a blank-separated list; -1 when it is not there. */
static int word_index(const char *choices, const char *word, size_t length)
{
    int index = 0;
    for (const char *at = choices; *at != '\0'; index++) {
        size_t n = strcspn(at, " ");
        if (n == length && memcmp(at, word, n) == 0)
            return index;
        at += n + (at[n] == ' ');
    }
    return -1;
}

/* Word number `index` of a list; length in *length. */
static const char *word_at(const char *choices, int64_t index, int *length)
{
    for (; index > 0; index--)
        choices += strcspn(choices, " ") + 1;
    *length = (int)strcspn(choices, " ");
    return choices;
}

/* The names of all; or of those that may follow local=. */
static void list_names(int is_local, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < attn_impl_count(); i++)
        if (!is_local || list[i]->ranks == NULL) {
            append(text, size, text[0] != '\0' ? ", " : "");
            append(text, size, list[i]->name);
        }
}

/* ---- parsing ------------------------------------------------------------------------------ */

/* Where the part that begins at text[from] ends: before one of `ends` that is in no parentheses. */
static size_t part_end(const char *text, size_t from, size_t n, const char *ends)
{
    int depth = 0;
    for (; from < n && (depth > 0 || strchr(ends, text[from]) == NULL); from++)
        depth += (text[from] == '(') - (text[from] == ')' && depth > 0);
    return from;
}

static enum attn_status unknown_option(const struct attn_impl *impl, const char *name,
                                       size_t length, struct attn_error *err)
{
    char there[200] = "", meant[64];
    struct attn_nearest nearest = attn_nearest_begin(name, length);
    for (int o = 0; impl->options != NULL && impl->options[o].name != NULL; o++) {
        attn_nearest_offer(&nearest, impl->options[o].name);
        append(there, sizeof there, o > 0 ? ", " : "");
        append(there, sizeof there, impl->options[o].name);
    }
    return attn_fail(err, ATTN_EINVAL, "%s has no option '%.*s'%s; it has: %s", impl->name,
                     (int)length, name, attn_nearest_text(&nearest, meant),
                     there[0] != '\0' ? there : "none");
}

static int is_local(const struct attn_option *option)
{
    return option->choices != NULL && option->choices[0] == '@';
}

static enum attn_status parse_plain(const char *text, size_t n, struct attn_spec *spec,
                                    struct attn_error *err);

static enum attn_status not_local(const char *outer, const char *name, struct attn_error *err)
{
    char names[300];
    const char *hint = strchr(name, ':') != NULL   ? "; with options: local=(NAME:...)"
                       : strchr(name, '@') != NULL ? "; an @ISA stands at the end of the whole spec"
                                                   : "";
    list_names(1, names, sizeof names);
    return attn_fail(err, ATTN_EINVAL, "%s:local=%s: the work of one rank is done by one of: %s%s",
                     outer, name, names, hint);
}

/* NAME, or "(" and ")" around NAME and its options. */
static enum attn_status parse_local(struct attn_spec *spec, const char *value, size_t length,
                                    struct attn_error *err)
{
    const char *outer = spec->impl->name;
    int opens = length > 0 && value[0] == '(';
    struct attn_spec local;
    struct attn_error own;
    char name[64];
    if (opens && value[length - 1] != ')')
        return attn_fail(err, ATTN_EINVAL, "%s:local=%.*s: a ')' is missing at the end", outer,
                         length < 60 ? (int)length : 60, value);
    value += opens, length -= opens ? 2 : 0;
    size_t n = opens ? part_end(value, 0, length, ":") : length;
    snprintf(name, sizeof name, "%.*s", n < 63 ? (int)n : 63, value);
    const struct attn_impl *impl = attn_impl_find(name);
    if (impl == NULL || impl->ranks != NULL)
        return not_local(outer, name, err);
    enum attn_status status = parse_plain(value, length, &local, &own);
    if (status != ATTN_OK)
        return attn_fail(err, status, "%s:local=(...): %s", outer, own.text);
    spec->options.local = impl;
    memcpy(spec->options.local_value, local.options.value, sizeof local.options.value);
    return ATTN_OK;
}

static enum attn_status parse_value(struct attn_spec *spec, int o, const char *value, size_t length,
                                    struct attn_error *err)
{
    const struct attn_option *option = &spec->impl->options[o];
    if (is_local(option))
        return parse_local(spec, value, length, err);
    if (option->choices != NULL) {
        int index = word_index(option->choices, value, length);
        if (index < 0)
            return attn_fail(err, ATTN_EINVAL, "%s:%s=%.*s: one of these would work: %s",
                             spec->impl->name, option->name, length < 40 ? (int)length : 40, value,
                             option->choices);
        spec->options.value[o] = index;
        return ATTN_OK;
    }
    char digits[32] = "", *end = digits;
    if (length < sizeof digits)
        memcpy(digits, value, length);
    errno = 0;
    long long number = strtoll(digits, &end, 10);
    if (length == 0 || length >= sizeof digits || strchr("-0123456789", digits[0]) == NULL ||
        *end != '\0' || errno != 0 || number < option->min || number > option->max)
        return attn_fail(err, ATTN_EINVAL, "%s:%s=%.*s: a whole number from %lld to %lld is needed",
                         spec->impl->name, option->name, length < 40 ? (int)length : 40, value,
                         (long long)option->min, (long long)option->max);
    spec->options.value[o] = number;
    return ATTN_OK;
}

/* One "name=value" of length n. */
static enum attn_status parse_option(struct attn_spec *spec, const char *text, size_t n,
                                     unsigned *seen, struct attn_error *err)
{
    const char *equals = memchr(text, '=', n);
    if (equals == NULL)
        return attn_fail(err, ATTN_EINVAL, "spec option '%.*s': NAME=VALUE is needed",
                         n < 60 ? (int)n : 60, text);
    size_t length = (size_t)(equals - text);
    for (int o = 0; spec->impl->options != NULL && spec->impl->options[o].name != NULL; o++) {
        const char *name = spec->impl->options[o].name;
        if (strlen(name) != length || memcmp(name, text, length) != 0)
            continue;
        if (*seen & 1u << o)
            return attn_fail(err, ATTN_EINVAL, "%s:%s is given twice", spec->impl->name, name);
        *seen |= 1u << o;
        return parse_value(spec, o, equals + 1, n - length - 1, err);
    }
    return unknown_option(spec->impl, text, length < 60 ? length : 60, err);
}

/* An "@NAME" option starts at the implementation NAME. */
static void preset_local(struct attn_spec *spec)
{
    for (int o = 0; spec->impl->options != NULL && spec->impl->options[o].name != NULL; o++)
        if (is_local(&spec->impl->options[o]))
            attn_options_set_local(&spec->options,
                                   attn_impl_find(spec->impl->options[o].choices + 1));
}

/* The kernels that work: those of the implementation, or of the one that does a rank's work. */
static const struct attn_impl *worker(const struct attn_spec *spec)
{
    const struct attn_option *option = spec->impl->options;
    if (spec->options.local != NULL)
        return spec->options.local;
    while (option != NULL && option->name != NULL && !is_local(option))
        option++;
    return option != NULL && option->name != NULL ? attn_impl_find(option->choices + 1)
                                                  : spec->impl;
}

const struct attn_isa *attn_spec_isa(const struct attn_spec *spec)
{
    struct attn_error own;
    if (!worker(spec)->simd)
        return NULL;
    return spec->options.isa != NULL ? spec->options.isa : attn_isa_best(&own);
}

/* The name of an instruction set, up to the end of the spec. */
static enum attn_status parse_isa(struct attn_spec *spec, const char *name, struct attn_error *err)
{
    const struct attn_impl *does = worker(spec);
    int other = does != spec->impl;
    struct attn_error own;
    if (!does->simd)
        return attn_fail(err, ATTN_EINVAL,
                         "%s%s%s@%.40s: %s has no kernels for instruction sets, so that there is "
                         "nothing to choose; leave out the @",
                         spec->impl->name, other ? ":local=" : "", other ? does->name : "", name,
                         does->name);
    spec->options.isa = attn_isa_find(name, strlen(name), &own);
    if (spec->options.isa == NULL)
        return attn_fail(err, own.status, "%s%s", spec->impl->name, own.text);
    return ATTN_OK;
}

/* Parses the options behind the name, from text[at] to text[n]. */
static enum attn_status parse_options(const char *text, size_t at, size_t n, struct attn_spec *spec,
                                      struct attn_error *err)
{
    unsigned seen = 0;
    enum attn_status status = ATTN_OK;
    attn_options_preset(spec->impl, &spec->options);
    preset_local(spec);
    while (at < n && status == ATTN_OK) {
        size_t from = at + 1;
        at = part_end(text, from, n, ",");
        status = parse_option(spec, text + from, at - from, &seen, err);
    }
    return status;
}

/* NAME and options, n bytes without an instruction set. */
static enum attn_status parse_plain(const char *text, size_t n, struct attn_spec *spec,
                                    struct attn_error *err)
{
    char name[64], names[300], meant[64];
    size_t at = part_end(text, 0, n, ":");
    snprintf(name, sizeof name, "%.*s", at < 63 ? (int)at : 63, text);
    memset(spec, 0, sizeof *spec);
    spec->impl = attn_impl_find(name);
    if (spec->impl == NULL && strpbrk(name, "/.") != NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "no implementation is called '%s'; a file is a plug-in: --plugin %s", name,
                         name);
    if (spec->impl == NULL) {
        struct attn_nearest nearest = attn_nearest_begin(text, at);
        for (int i = 0; i < attn_impl_count(); i++)
            attn_nearest_offer(&nearest, list[i]->name);
        list_names(0, names, sizeof names);
        return attn_fail(err, ATTN_EINVAL, "no implementation is called '%s'%s; there are: %s",
                         name, attn_nearest_text(&nearest, meant), names);
    }
    return parse_options(text, at, n, spec, err);
}

enum attn_status attn_spec_parse(const char *text, struct attn_spec *spec, struct attn_error *err)
{
    size_t all = strlen(text), n = part_end(text, 0, all, "@");
    enum attn_status status = parse_plain(text, n, spec, err);
    return status == ATTN_OK && n < all ? parse_isa(spec, text + n + 1, err) : status;
}

enum attn_status attn_spec_parse_priced(const char *text, struct attn_spec *spec,
                                        struct attn_error *err)
{
    enum attn_status status = attn_spec_parse(text, spec, err);
    const char *name = strchr(text, '@') != NULL ? strrchr(text, '@') + 1 : "";
    for (int n = 0; n < attn_isa_count() && status == ATTN_ENOTSUP; n++)
        if (strcmp(attn_isa_at(n)->name, name) == 0) {
            spec->options.isa = attn_isa_at(n);
            spec->options.priced_only = 1;
            return ATTN_OK;
        }
    return status;
}

enum attn_status attn_spec_parse_as(const struct attn_impl *impl, const char *text,
                                    struct attn_spec *spec, struct attn_error *err)
{
    size_t all = strlen(text), n = part_end(text, 0, all, "@");
    *spec = (struct attn_spec){.impl = impl};
    enum attn_status status = parse_options(text, 0, n, spec, err);
    return status == ATTN_OK && n < all ? parse_isa(spec, text + n + 1, err) : status;
}

/* ---- printing ----------------------------------------------------------------------------- */

/* ":name=value,..." of all that is not at its preset. */
static void print_options(const struct attn_impl *impl, const struct attn_options *options,
                          char *text, size_t size)
{
    int n = 0;
    for (int o = 0; impl->options != NULL && impl->options[o].name != NULL; o++) {
        const struct attn_option *option = &impl->options[o];
        char value[300] = "", own[250] = "";
        if (is_local(option) && options->local != NULL) {
            struct attn_options local = {0};
            memcpy(local.value, options->local_value, sizeof local.value);
            print_options(options->local, &local, own, sizeof own);
            if (own[0] != '\0' || options->local != attn_impl_find(option->choices + 1))
                snprintf(value, sizeof value, own[0] != '\0' ? "(%s%s)" : "%s%s",
                         options->local->name, own);
        } else if (is_local(option)) {
            continue;
        } else if (options->value[o] != option->preset && option->choices != NULL) {
            int length;
            const char *word = word_at(option->choices, options->value[o], &length);
            snprintf(value, sizeof value, "%.*s", length, word);
        } else if (options->value[o] != option->preset)
            snprintf(value, sizeof value, "%lld", (long long)options->value[o]);
        if (value[0] == '\0')
            continue;
        append(text, size, n++ == 0 ? ":" : ",");
        append(text, size, option->name);
        append(text, size, "=");
        append(text, size, value);
    }
}

int attn_spec_print(const struct attn_spec *spec, char *text, size_t size)
{
    char all[512];
    snprintf(all, sizeof all, "%s", spec->impl->name);
    print_options(spec->impl, &spec->options, all, sizeof all);
    if (spec->options.isa != NULL) {
        append(all, sizeof all, "@");
        append(all, sizeof all, spec->options.isa->name);
    }
    return snprintf(text, size, "%s", all);
}
