/* attnlab study: published accounts of memory, worked out again (studies/study.h). */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/rim/studies/study.h"
#include "experiments/table/row_table.h"
#include "ref/mask/nearest.h"
#include "tests/harness/base/folder.h"

struct request {
    int as_json, is_long, overwrite, preset;
    const char *figures, *data;
};

static const struct attn_flag_use flags[] = {
    ATTN_TAKES(LONG, offsetof(struct request, is_long)),
    ATTN_TAKES(INPUT, offsetof(struct request, data), .value = "FILE.csv",
               .help =
                   "of pytorch-h200, training-h100 and h200-ranks: judge the rows of this file, "
                   "such as your own GPU's; columns as in experiments/rim/studies/data"),
    ATTN_TAKES(OUT, offsetof(struct request, figures),
               .help = "the figure of each study as DIR/NAME.csv, .gp, .svg, .png and .pdf, by "
                       "gnuplot"),
    ATTN_TAKES(PRESET, offsetof(struct request, preset), "page"),
    ATTN_TAKES(OVERWRITE, offsetof(struct request, overwrite)),
    ATTN_TAKES(FORMAT, offsetof(struct request, as_json), "text"),
    {.flag = ATTN_FLAG_END}};

static int study(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_study = {
    .name = "study",
    .summary = "published accounts of memory, worked out again",
    .usage = "study NAME... [flags]\n"
             "study list [--format json]\n"
             "study pytorch-h200|training-h100|h200-ranks --input FILE.csv\n"
             "study all [flags]",
    .about =
        "Published accounts of attention's memory, worked out again from named blocks: what\n"
        "the program took, who made it, what was live at the peak.  Each quantity is labelled\n"
        "published, derived or inferred; docs/studies/ has a page for each study, with its figure.",
    .words = "list all "
#define ATTN_STUDY(id, name, ...) name " "
#include "experiments/rim/studies/studies.def"
#undef ATTN_STUDY
    ,
    .flags = flags,
    .more = "  attnlab study list\n"
            "  attnlab study open-sora-720gb",
    .exits = "0 all came out; 1 a published or derived quantity did not; 2 usage; 3 the machine "
             "lacks something.",
    .operands_least = 1,
    .operands_most = -1,
    .computes = 1,
    .size = sizeof(struct request),
    .run = study};

static int list(int as_json)
{
    static const struct attn_column column[] = {
        {"name", "", ATTN_UNIT_WORDS}, {"question", "", ATTN_UNIT_WORDS}, {.key = NULL}};
    json_t *all = json_array();
    for (int s = 0; s < ATTN_STUDIES; s++)
        json_array_append_new(all, json_pack("{s:s, s:s}", "name", attn_studies[s].name, "question",
                                             attn_studies[s].question));
    attn_table_print(stdout, as_json ? ATTN_TABLE_JSON : ATTN_TABLE_TEXT, column, all);
    json_decref(all);
    return ATTN_EXIT_GOOD;
}

static const struct attn_study *find(const char *name) /* NULL: there is none */
{
    for (int s = 0; s < ATTN_STUDIES; s++)
        if (strcmp(attn_studies[s].name, name) == 0)
            return &attn_studies[s];
    return NULL;
}

static void unknown(const char *name)
{
    char meant[64];
    struct attn_nearest nearest = attn_nearest_begin(name, strlen(name));
    for (int s = 0; s < ATTN_STUDIES; s++)
        attn_nearest_offer(&nearest, attn_studies[s].name);
    attn_cli_stop(ATTN_EINVAL, NULL, "no study '%.60s'%s; see attnlab study list", name,
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
                                  .data = request->data,
                                  .leave_out = -1};
    if (request->figures != NULL) {
        attn_study_figure_open(one, &figure);
        figure.preset = attn_figure_preset[request->preset];
        figure.overwrite = request->overwrite;
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

/* Refuses --input where a study takes none. */
static void check_input(int n, char **operand)
{
    for (int i = 0; i < n; i++) {
        const struct attn_study *one = find(operand[i]); /* "all" is none */
        if (one == NULL || !one->takes_input)
            attn_cli_stop(ATTN_EINVAL, NULL,
                          "%s has no --input; pytorch-h200, training-h100 and h200-ranks have",
                          operand[i]);
    }
}

/* Before any is worked out: is there a folder where the figure of each may be written? */
static void check_figures(const struct request *request, int n, char **operand)
{
    struct attn_error err;
    attn_cli_must(attn_folder_make(request->figures, &err), &err);
    for (int i = 0; i < (operand == NULL ? ATTN_STUDIES : n); i++) {
        struct attn_figure figure;
        attn_study_figure_open(operand == NULL ? &attn_studies[i] : find(operand[i]), &figure);
        figure.overwrite = request->overwrite;
        attn_cli_must(attn_figure_check(&figure, request->figures, &err), &err);
        attn_figure_free(&figure);
    }
}

static int study(void *values, int n, char **operand)
{
    const struct request *asked = values;
    int worst = ATTN_EXIT_GOOD, all = n == 1 && strcmp(operand[0], "all") == 0;
    if (n == 1 && strcmp(operand[0], "list") == 0)
        return list(asked->as_json);
    for (int i = 0; i < n && !all; i++)
        if (find(operand[i]) == NULL)
            unknown(operand[i]);
    if (asked->data != NULL)
        check_input(n, operand);
    if (asked->data != NULL && asked->figures != NULL)
        return attn_cli_fail(ATTN_EXIT_USAGE, "--out is of the whole study, without --input");
    if (asked->figures != NULL)
        check_figures(asked, n, all ? NULL : operand);
    for (int i = 0; i < (all ? ATTN_STUDIES : n); i++) {
        const struct attn_study *one = all ? &attn_studies[i] : find(operand[i]);
        int status = carry_out(one, asked);
        if (status == ATTN_EXIT_DISAGREE || worst == ATTN_EXIT_GOOD)
            worst = status;
        if (!asked->as_json && i + 1 < (all ? ATTN_STUDIES : n))
            putchar('\n');
        if (ferror(stdout)) /* the reader has left */
            break;
    }
    return worst;
}
