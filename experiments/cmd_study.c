/* attnlab study: published accounts of memory, worked out again (studies/study.h). */
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/studies/study.h"
#include "ref/nearest.h"

struct request {
    int as_json, is_long, is_trap;
    const char *figures;
};

static const struct attn_flag_use flags[] = {
    {.flag = ATTN_FLAG_LONG, offsetof(struct request, is_long)},
    {.flag = ATTN_FLAG_TRAP, offsetof(struct request, is_trap)},
    {.flag = ATTN_FLAG_FIGURES, offsetof(struct request, figures)},
    {.flag = ATTN_FLAG_FORMAT, offsetof(struct request, as_json), "text"},
    {.flag = ATTN_FLAG_END}};

static int study(int argc, char **argv);

const struct attn_cli_command attn_cmd_study = {
    .name = "study",
    .summary = "published accounts of memory, worked out again",
    .usage = "study NAME... [flags]\n"
             "study list\n"
             "study all [flags]",
    .about =
        "Published accounts of attention's memory, worked out again from named blocks: what\n"
        "the program took, who made it, what was live at the peak.  Each quantity is labelled\n"
        "published, derived or inferred; docs/studies/ has a page for each study, with its figure.",
    .flags = flags,
    .more =
        "Exit status: 0 all came out; 1 a published or derived quantity did not; 2 usage; 3 the\n"
        "machine lacks something.",
    .operands_least = 1,
    .operands_most = -1,
    .computes = 1,
    .run = study};

static int list(void)
{
    for (int s = 0; s < attn_study_count(); s++)
        printf("%-24s %s\n", attn_study_at(s)->name, attn_study_at(s)->question);
    return attn_cli_flush();
}

static int unknown(const char *name)
{
    char meant[64];
    struct attn_nearest nearest = attn_nearest_begin(name, strlen(name));
    for (int s = 0; s < attn_study_count(); s++)
        attn_nearest_offer(&nearest, attn_study_at(s)->name);
    return attn_cli_fail(ATTN_EXIT_USAGE, "no study '%.60s'%s; see attnlab study list", name,
                         attn_nearest_text(&nearest, meant));
}

/* One study, and its figure where one is wanted; the exit status it deserves. */
static int carry_out(const struct attn_study *one, const struct request *request)
{
    static struct attn_study_run run;
    struct attn_figure figure;
    struct attn_error err = {ATTN_OK, ""};
    run = (struct attn_study_run){.out = stdout,
                                  .as_json = request->as_json,
                                  .is_long = request->is_long,
                                  .is_trap = request->is_trap,
                                  .leave_out = -1};
    if (request->figures != NULL) {
        attn_study_figure_open(one, &figure);
        run.figure = &figure;
    }
    int status = attn_study_carry_out(one, &run);
    if (request->figures == NULL)
        return status;
    if (attn_study_figure_draw(one, &figure, request->figures, &err) != ATTN_OK && status == 0)
        status = attn_cli_error(&err);
    attn_figure_free(&figure);
    return status;
}

static int study(int argc, char **argv)
{
    struct request request = {0};
    int n, worst = ATTN_EXIT_GOOD;
    int status = attn_cli_read(&attn_cmd_study, argc, argv, &request, &n);
    if (status >= 0)
        return status;
    if (n == 1 && strcmp(argv[1], "list") == 0)
        return list();
    int all = n == 1 && strcmp(argv[1], "all") == 0;
    for (int i = 1; i <= n && !all; i++)
        if (attn_study_find(argv[i]) == NULL)
            return unknown(argv[i]);
    for (int i = 1; i <= n && request.is_trap; i++)
        if (all || !attn_study_find(argv[i])->has_trap)
            return attn_cli_fail(ATTN_EXIT_USAGE, "%s has no --trap; xformers-order has", argv[i]);
    if (request.is_trap && request.figures != NULL)
        return attn_cli_fail(ATTN_EXIT_USAGE, "--figures is of the whole study, without --trap");
    for (int i = 0; i < (all ? attn_study_count() : n); i++) {
        const struct attn_study *one = all ? attn_study_at(i) : attn_study_find(argv[i + 1]);
        status = carry_out(one, &request);
        if (status == ATTN_EXIT_DISAGREE || worst == ATTN_EXIT_GOOD)
            worst = status;
        if (!request.as_json && i + 1 < (all ? attn_study_count() : n))
            putchar('\n');
    }
    status = attn_cli_flush();
    return worst != ATTN_EXIT_GOOD ? worst : status;
}
