/* See registry.h. */
#include "optimized/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimized/simd/isa.h"
#include "ref/nearest.h"

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

static void implementation_names(char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < attn_impl_count(); i++) {
        append(text, size, i > 0 ? ", " : "");
        append(text, size, list[i]->name);
    }
}

/* ---- parsing ------------------------------------------------------------------------------ */

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

static enum attn_status parse_local(struct attn_spec *spec, const char *value, size_t length,
                                    struct attn_error *err)
{
    char name[64], names[300];
    snprintf(name, sizeof name, "%.*s", (int)length, value);
    const struct attn_impl *local = attn_impl_find(name);
    if (local != NULL && local->ranks == NULL) {
        spec->options.local = local;
        return ATTN_OK;
    }
    names[0] = '\0';
    for (int i = 0; i < attn_impl_count(); i++)
        if (list[i]->ranks == NULL) {
            append(names, sizeof names, names[0] != '\0' ? ", " : "");
            append(names, sizeof names, list[i]->name);
        }
    return attn_fail(err, ATTN_EINVAL, "%s:local=%s: the work of one rank is done by one of: %s",
                     spec->impl->name, name, names);
}

static enum attn_status parse_value(struct attn_spec *spec, int o, const char *value, size_t length,
                                    struct attn_error *err)
{
    const struct attn_option *option = &spec->impl->options[o];
    if (option->choices != NULL && option->choices[0] == '@')
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
        if (spec->impl->options[o].choices != NULL && spec->impl->options[o].choices[0] == '@')
            spec->options.local = attn_impl_find(spec->impl->options[o].choices + 1);
}

/* The name of an instruction set, up to the end of the spec. */
static enum attn_status parse_isa(struct attn_spec *spec, const char *name, struct attn_error *err)
{
    const struct attn_impl *local = spec->options.local;
    struct attn_error own;
    if (!spec->impl->simd && (local == NULL || !local->simd))
        return attn_fail(err, ATTN_EINVAL,
                         "%s%s%s@%.40s: %s has no kernels for instruction sets, so that there is "
                         "nothing to choose; leave out the @",
                         spec->impl->name, local != NULL ? ":local=" : "",
                         local != NULL ? local->name : "", name,
                         local != NULL ? local->name : spec->impl->name);
    spec->options.isa = attn_isa_find(name, strlen(name), &own);
    if (spec->options.isa == NULL)
        return attn_fail(err, own.status, "%s%s", spec->impl->name, own.text);
    return ATTN_OK;
}

enum attn_status attn_spec_parse(const char *text, struct attn_spec *spec, struct attn_error *err)
{
    char name[64], names[300], meant[64];
    size_t length = strcspn(text, ":@");
    snprintf(name, sizeof name, "%.*s", length < 63 ? (int)length : 63, text);
    memset(spec, 0, sizeof *spec);
    spec->impl = attn_impl_find(name);
    if (spec->impl == NULL) {
        struct attn_nearest nearest = attn_nearest_begin(text, length);
        for (int i = 0; i < attn_impl_count(); i++)
            attn_nearest_offer(&nearest, list[i]->name);
        implementation_names(names, sizeof names);
        return attn_fail(err, ATTN_EINVAL, "no implementation is called '%s'%s; there are: %s",
                         name, attn_nearest_text(&nearest, meant), names);
    }
    attn_options_preset(spec->impl, &spec->options);
    preset_local(spec);
    if (text[length] == '\0')
        return ATTN_OK;
    if (text[length] == '@')
        return parse_isa(spec, text + length + 1, err);
    unsigned seen = 0;
    for (const char *at = text + length + 1;; at++) {
        size_t n = strcspn(at, ",@");
        enum attn_status status = parse_option(spec, at, n, &seen, err);
        if (status != ATTN_OK)
            return status;
        at += n;
        if (*at == '\0')
            return ATTN_OK;
        if (*at == '@')
            return parse_isa(spec, at + 1, err);
    }
}

/* ---- printing ----------------------------------------------------------------------------- */

int attn_spec_print(const struct attn_spec *spec, char *text, size_t size)
{
    char all[512], value[80];
    int n = 0;
    snprintf(all, sizeof all, "%s", spec->impl->name);
    for (int o = 0; spec->impl->options != NULL && spec->impl->options[o].name != NULL; o++) {
        const struct attn_option *option = &spec->impl->options[o];
        int local = option->choices != NULL && option->choices[0] == '@';
        if (local ? spec->options.local == attn_impl_find(option->choices + 1)
                  : spec->options.value[o] == option->preset)
            continue;
        if (local)
            snprintf(value, sizeof value, "%s", spec->options.local->name);
        else if (option->choices != NULL) {
            int length;
            const char *word = word_at(option->choices, spec->options.value[o], &length);
            snprintf(value, sizeof value, "%.*s", length, word);
        } else
            snprintf(value, sizeof value, "%lld", (long long)spec->options.value[o]);
        append(all, sizeof all, n++ == 0 ? ":" : ",");
        append(all, sizeof all, option->name);
        append(all, sizeof all, "=");
        append(all, sizeof all, value);
    }
    if (spec->options.isa != NULL) {
        append(all, sizeof all, "@");
        append(all, sizeof all, spec->options.isa->name);
    }
    return snprintf(text, size, "%s", all);
}
