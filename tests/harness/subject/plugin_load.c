/* See plugin.h: loading. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/harness/base/environment.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/subject/plugin.h"

/* dlerror() begins with the path, and so do we. */
static void not_loaded(const char *path, struct attn_error *err)
{
    const char *theirs = dlerror();
    size_t n = strlen(path);
    if (theirs != NULL && strncmp(theirs, path, n) == 0 && strncmp(theirs + n, ": ", 2) == 0)
        theirs += n + 2;
    int lacks = theirs != NULL && strstr(theirs, strerror(ENOMEM)) != NULL;
    attn_fault(err, lacks ? ATTN_ENOMEM : ATTN_EINVAL, path, "%s",
               theirs != NULL ? theirs : "cannot be loaded");
}

void *attn_plugin_open(const char *path, struct attn_error *err)
{
    char name[4096];
    struct stat about;
    void *library = NULL;
    /* Without a slash, dlopen looks through the system's folders instead of this one. */
    if ((size_t)snprintf(name, sizeof name, "%s%s", strchr(path, '/') != NULL ? "" : "./", path) >=
        sizeof name)
        attn_fault(err, ATTN_EINVAL, path, "the path is too long");
    else if (stat(name, &about) == 0 && !S_ISREG(about.st_mode))
        attn_fault(err, ATTN_EINVAL, path, "is not a regular file"); /* a FIFO would wait */
    else if (strlen(path) > 2 && strcmp(path + strlen(path) - 2, ".c") == 0)
        attn_fault(err, ATTN_EINVAL, path,
                   "is source: cc -O2 -shared -fPIC -I. -o %.*s.so %s makes a plug-in of it",
                   (int)strlen(path) - 2, path, path);
    else if ((library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) == NULL)
        not_loaded(name, err);
    return library;
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
    memset(plugin, 0, sizeof *plugin);
    attn_environment_save(&environment);
    void *library = attn_plugin_open(path, err);
    if (library != NULL)
        *(void **)&get = dlsym(library, "attn_plugin_get");
    if (get != NULL)
        theirs = get();
    if (attn_environment_restore(&environment, plugin->load_environment,
                                 sizeof plugin->load_environment) == 0)
        plugin->load_environment[0] = '\0';
    if (library == NULL)
        return err->status;
    if (get == NULL)
        return attn_fault(err, ATTN_EINVAL, path,
                          "has no attn_plugin_get(): see ref/attn_plugin.h");
    enum attn_status status = read_declaration(path, theirs, plugin, err);
    if (status != ATTN_OK)
        return status;
    attn_plugin_make_impl(plugin);
    return ATTN_OK;
}
