/* See subject.h: which routes there are, and that of a folder of results. */
#include <string.h>
#include <sys/stat.h>

#include "tests/harness/subject/subject.h"

static enum attn_status open_folder(struct attn_subject *x, struct attn_error *err)
{
    struct stat info;
    if (stat(x->source, &info) != 0 || !S_ISDIR(info.st_mode))
        return attn_fail(err, ATTN_EINVAL, "%.1000s is not a folder", x->source);
    return ATTN_OK;
}

static enum attn_status ask_folder(struct attn_subject *x, struct attn_asked *asked, int n,
                                   struct attn_answer *answer, struct attn_error *err)
{
    (void)err;
    for (int i = 0; i < n; i++)
        attn_subject_judge(x, &asked[i], x->source, &answer[i]);
    return ATTN_OK;
}

static void close_nothing(struct attn_subject *x)
{
    (void)x;
}

const struct attn_subject_route attn_folder_route = {.word = "folder of results",
                                                     .flag = "results",
                                                     .route = ATTN_ROUTE_FILES,
                                                     .soak_calls = 1,
                                                     .usual_s = 600,
                                                     .open = open_folder,
                                                     .ask = ask_folder,
                                                     .close = close_nothing,
                                                     .files = attn_subject_one_file};

const struct attn_subject_route *attn_subject_route_of(const char *name)
{
    static const struct attn_subject_route *const all[] = {&attn_own_route, &attn_plugin_route,
                                                           &attn_exec_route, &attn_caller_route,
                                                           &attn_folder_route};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (strcmp(name, all[n]->flag) == 0 || strcmp(name, all[n]->word) == 0)
            return all[n];
    return NULL;
}
