/* Loading a plug-in, and the part of struct attn_impl that is not a call. */
#include "tests/harness/external/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/environment.h"
#include "tests/harness/external/plugin_call.h"
#include "tests/harness/files/fileio.h"

const char *attn_plugin_phase_name(enum attn_plugin_phase phase)
{
    static const char *const name[] = {"while it was loaded", "between calls", "in forward",
                                       "in backward", "after the last case"};
    return (unsigned)phase < sizeof name / sizeof *name ? name[phase] : "somewhere";
}

static struct attn_plugin_impl *worker_of(const struct attn_options *options)
{
    return (struct attn_plugin_impl *)(uintptr_t)options->local;
}

/* What an external implementation takes is not on our ledger, so the price of it is nothing. */
static enum attn_status cost(const struct attn_problem *p, const struct attn_options *options,
                             enum attn_pass pass, int rank, struct attn_cost *cost,
                             struct attn_error *err)
{
    (void)p, (void)options, (void)pass, (void)rank, (void)cost, (void)err;
    return ATTN_OK;
}

static void precision(const struct attn_problem *p, const struct attn_options *options,
                      struct attn_precision *x)
{
    attn_claims_precision(&worker_of(options)->claims, p, x);
}

static enum attn_status forward(struct attn_ctx *ctx, const struct attn_problem *p,
                                const struct attn_forward *t)
{
    return attn_plugin_forward(worker_of(ctx->options), p, t, ctx->error);
}

static enum attn_status backward(struct attn_ctx *ctx, const struct attn_problem *p,
                                 const struct attn_backward *t)
{
    return attn_plugin_backward(worker_of(ctx->options), p, t, ctx->error);
}

/* dlerror() begins with the path, and so do we. */
static enum attn_status not_loaded(const char *path, struct attn_error *err)
{
    const char *why = dlerror();
    size_t n = strlen(path);
    if (why != NULL && strncmp(why, path, n) == 0 && strncmp(why + n, ": ", 2) == 0)
        why += n + 2;
    int lacks = why != NULL && strstr(why, strerror(ENOMEM)) != NULL;
    return attn_fault(err, lacks ? ATTN_ENOMEM : ATTN_EINVAL, path, "%s",
                      why != NULL ? why : "cannot be loaded");
}

static enum attn_status read_declaration(const char *path, const struct attn_plugin *theirs,
                                         struct attn_plugin_impl *plugin, struct attn_error *err)
{
    static struct attn_plugin known; /* what a shorter struct lacks is 0 */
    struct attn_error why = {0};
    if (theirs == NULL)
        return attn_fault(err, ATTN_EINVAL, path, "attn_plugin_get() returned NULL");
    if (theirs->abi != ATTN_PLUGIN_ABI)
        return attn_fault(err, ATTN_EINVAL, path,
                          "speaks plug-in ABI %u, this program speaks %d: build it with this "
                          "version's ref/attn_plugin.h",
                          theirs->abi, ATTN_PLUGIN_ABI);
    if (theirs->struct_size < offsetof(struct attn_plugin, forward))
        return attn_fault(err, ATTN_EINVAL, path,
                          "struct_size is %u: it should be sizeof(struct attn_plugin), %zu",
                          theirs->struct_size, sizeof known);
    memset(&known, 0, sizeof known);
    memcpy(&known, theirs, theirs->struct_size < sizeof known ? theirs->struct_size : sizeof known);
    plugin->plugin = &known;
    if (attn_claims_of_plugin(&known, &plugin->claims, &why) != ATTN_OK)
        return attn_fault(err, ATTN_EINVAL, path, "%.300s", why.text);
    attn_clean(plugin->claims.name);
    return ATTN_OK;
}

enum attn_status attn_plugin_load(const char *path, struct attn_plugin_impl *plugin,
                                  struct attn_error *err)
{
    struct attn_environment environment;
    const struct attn_plugin *(*get)(void) = NULL;
    const struct attn_plugin *theirs = NULL;
    char name[4096];
    memset(plugin, 0, sizeof *plugin);
    /* Without a slash, dlopen looks through the system's folders instead of this one. */
    if ((size_t)snprintf(name, sizeof name, "%s%s", strchr(path, '/') != NULL ? "" : "./", path) >=
        sizeof name)
        return attn_fault(err, ATTN_EINVAL, path, "the path is too long");
    attn_environment_save(&environment);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL)
        *(void **)&get = dlsym(library, "attn_plugin_get");
    if (get != NULL)
        theirs = get();
    if (attn_environment_restore(&environment, plugin->load_environment,
                                 sizeof plugin->load_environment) == 0)
        plugin->load_environment[0] = '\0';
    if (library == NULL)
        return not_loaded(name, err);
    if (get == NULL)
        return attn_fault(err, ATTN_EINVAL, path,
                          "has no attn_plugin_get(): see ref/attn_plugin.h");
    enum attn_status status = read_declaration(path, theirs, plugin, err);
    if (status != ATTN_OK)
        return status;
    /* What is not claimed was refused before (attn_claims_allow), so all is claimed here. */
    plugin->impl = (struct attn_impl){.name = plugin->claims.name,
                                      .summary = "a plug-in",
                                      .family = "plug-in",
                                      .caps = (1u << ATTN_CAPS) - 1,
                                      .cost = cost,
                                      .forward = forward,
                                      .backward = backward,
                                      .precision = precision};
    return ATTN_OK;
}

void attn_plugin_spec(const struct attn_plugin_impl *plugin, struct attn_spec *spec)
{
    memset(spec, 0, sizeof *spec);
    spec->impl = &plugin->impl;
    spec->options.local = &plugin->impl;
}
