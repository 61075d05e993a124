/* The list of schemes around the layer, and the specs that name them. */
#include <stdio.h>
#include <string.h>

#include "experiments/rim/layer/schemes/layer_scheme.h"

#define ATTN_LAYER(x) extern const struct attn_layer_scheme attn_layer_scheme_##x;
#include "experiments/rim/layer/schemes/layers.def"
#undef ATTN_LAYER

static const struct attn_layer_scheme *const list[] = {
#define ATTN_LAYER(x) &attn_layer_scheme_##x,
#include "experiments/rim/layer/schemes/layers.def"
#undef ATTN_LAYER
};

int attn_layer_scheme_count(void)
{
    return (int)(sizeof list / sizeof *list);
}

const struct attn_layer_scheme *attn_layer_scheme_at(int index)
{
    return list[index];
}

static void append(char *text, size_t size, const char *name)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", name);
}

static enum attn_status unknown(const char *text, const char *why, struct attn_error *err)
{
    char names[300] = "";
    for (int i = 0; i < attn_layer_scheme_count(); i++)
        append(names, sizeof names, list[i]->record.name);
    for (int i = 0; i < attn_impl_count(); i++)
        if (attn_impl_at(i)->scheme != NULL)
            append(names, sizeof names, attn_impl_at(i)->name);
    return attn_fail(err, ATTN_EINVAL, "%.60s: %s; schemes for a layer are: %s", text, why, names);
}

enum attn_status attn_layer_spec_parse(const char *text, struct attn_layer_spec *spec,
                                       struct attn_error *err)
{
    size_t n = strcspn(text, ":@");
    struct attn_error own = {0};
    *spec = (struct attn_layer_spec){.boundary = ATTN_BOUNDARY_NONE};
    for (int i = 0; i < attn_layer_scheme_count(); i++)
        if (strlen(list[i]->record.name) == n && memcmp(list[i]->record.name, text, n) == 0) {
            spec->scheme = list[i];
            return attn_spec_parse_as(&list[i]->record, text + n, &spec->spec, err);
        }
    enum attn_status status = attn_spec_parse(text, &spec->spec, &own);
    if (spec->spec.impl == NULL)
        return unknown(text, "no scheme is called so", err);
    if (status != ATTN_OK)
        return attn_fail(err, status, "%s", own.text);
    return spec->spec.impl->scheme != NULL ? ATTN_OK
                                           : unknown(text, "has no layouts for a layer", err);
}
