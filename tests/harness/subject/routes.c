/* See external.h: the five routes. */
#include <sys/stat.h>

#include "tests/harness/subject/caller.h"
#include "tests/harness/subject/exec.h"
#include "tests/harness/subject/external.h"
#include "tests/harness/subject/plugin_host.h"

static enum attn_status open_folder(struct attn_external *x, struct attn_error *err)
{
    struct stat info;
    if (stat(x->source, &info) != 0 || !S_ISDIR(info.st_mode))
        return attn_fail(err, ATTN_EINVAL, "%.1000s is not a folder", x->source);
    return ATTN_OK;
}

static enum attn_status ask_folder(struct attn_external *x, struct attn_asked *asked, int n,
                                   struct attn_answer *answer, struct attn_error *err)
{
    (void)err;
    for (int i = 0; i < n; i++)
        attn_external_judge(x, &asked[i], x->source, &answer[i]);
    return ATTN_OK;
}

static enum attn_status open_own(struct attn_external *x, struct attn_error *err)
{
    (void)x, (void)err;
    return ATTN_OK;
}

static void close_nothing(struct attn_external *x)
{
    (void)x;
}

const struct attn_external_route attn_external_route[] = {
    [ATTN_NOT_EXTERNAL] = {"implementation of attnlab", ATTN_ROUTE_OWN, 48, open_own, attn_own_ask,
                           attn_own_relation, NULL, close_nothing},
    [ATTN_EXTERNAL_PLUGIN] = {"plug-in", ATTN_ROUTE_PLUGIN, 1, attn_plugin_open_route,
                              attn_plugin_ask, attn_plugin_relation, attn_plugin_unreached,
                              attn_plugin_close_route},
    [ATTN_EXTERNAL_COMMAND] = {"command", ATTN_ROUTE_FILES, 0, attn_exec_open, attn_exec_ask, NULL,
                               attn_exec_unreached, attn_exec_close},
    [ATTN_EXTERNAL_CALLER] = {"caller", ATTN_ROUTE_FILES, ATTN_CALLER_BATCH, attn_exec_open,
                              attn_caller_ask, attn_caller_relation, attn_exec_unreached,
                              attn_exec_close},
    [ATTN_EXTERNAL_FOLDER] = {"folder of results", ATTN_ROUTE_FILES, 0, open_folder, ask_folder,
                              NULL, NULL, close_nothing},
};
