/* See external.h: the five routes. */
#include <sys/stat.h>

#include "tests/harness/subject/external.h"

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

static void close_nothing(struct attn_external *x)
{
    (void)x;
}

static const struct attn_external_route folder = {
    "folder of results", ATTN_ROUTE_FILES, 0, open_folder, ask_folder, NULL, NULL, close_nothing};

const struct attn_external_route *const attn_external_route[] = {
    [ATTN_NOT_EXTERNAL] = &attn_own_route,      [ATTN_EXTERNAL_PLUGIN] = &attn_plugin_route,
    [ATTN_EXTERNAL_COMMAND] = &attn_exec_route, [ATTN_EXTERNAL_CALLER] = &attn_caller_route,
    [ATTN_EXTERNAL_FOLDER] = &folder,
};
