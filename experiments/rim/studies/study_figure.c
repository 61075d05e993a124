/* The figure of a study (study.h): its quantities as points of plots/study-lines.gp, or its live
 * sets as bars of plots/study-bars.gp. */
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/studies/study.h"
#include "tests/harness/base/fileio.h"

enum { GOT, PUBLISHED }; /* columns of curves */
enum { OF_BYTES = 2 };   /* a column of bars  */

#define PANEL "_" /* the only one, without a title */

void attn_study_figure_open(const struct attn_study *study, struct attn_figure *figure)
{
    static const char *const column[][3] = {
        {"from", "to", "of_bytes"}, {"got_bytes", "published_bytes"}, {"got", "published"}};
    const struct attn_study_figure *is = &study->figure;
    int bars = is->x == NULL;
    *figure = (struct attn_figure){.kind = "study",
                                   .script = bars ? "study-bars" : "study-lines",
                                   .x_name = bars ? "bar" : "x",
                                   .n_columns = bars ? 3 : 2,
                                   .n_about = 2,
                                   .about = {0, 1}};
    memcpy(figure->column, column[bars ? 0 : is->y == NULL ? 1 : 2], sizeof column[0]);
    (void)snprintf(figure->name, sizeof figure->name, "%s", study->name);
    (void)snprintf(figure->title, sizeof figure->title, "%s", is->title);
    (void)snprintf(figure->remark, sizeof figure->remark, "%s", is->remark);
    const int is_joined = is->x != NULL && strncmp(is->x, "ranks", 5) != 0;
    if (bars)
        attn_append(figure->variables, sizeof figure->variables, "bars     = '");
    else
        attn_append(figure->variables, sizeof figure->variables,
                    "got      = '%s'\npublished = '%s'\nlinear   = %d\njoined   = %d\n"
                    "x_label  = '%s'\n"
                    "y_label  = '%s'\n",
                    figure->column[GOT], figure->column[PUBLISHED], is->is_linear, is_joined, is->x,
                    is->y == NULL ? "" : is->y);
}

/* The bar of a live set: its objects from the left, as many of one name and size as one piece. */
static void add_bar(struct attn_study_run *run, double got, const struct attn_tape_block *block,
                    int n)
{
    struct attn_figure *figure = run->figure;
    char *bars = figure->variables;
    double at = 0;
    int bar = 0;
    for (const char *c = bars; *c != '\0'; c++)
        bar += *c == '|';
    attn_append(bars, sizeof figure->variables, "%s|", run->curve);
    for (int b = 0, next; b < n; b = next) {
        double bytes = 0;
        for (next = b; next < n && strcmp(block[next].name, block[b].name) == 0; next++)
            bytes += (double)block[next].bytes;
        struct attn_figure_point *point =
            attn_figure_piece(figure, PANEL, block[b].name, bar, at, at + bytes);
        point->note = block[b].maker;
        point->y[OF_BYTES] = got;
        at += bytes;
    }
}

void attn_study_figure_add(struct attn_study_run *run, enum attn_study_label label,
                           double published, double got, const struct attn_tape_block *block, int n)
{
    struct attn_figure *figure = run->figure;
    if (run->study->figure.x == NULL) {
        add_bar(run, got, block, n);
        return;
    }
    int curve = attn_figure_curve_of(figure, run->curve, figure->n_curves, 1);
    const char *panel = run->panel != NULL ? run->panel : PANEL;
    struct attn_figure_point *point = attn_figure_add(figure, panel, curve, run->x);
    point->y[GOT] = got;
    if (label == ATTN_PUBLISHED)
        point->y[PUBLISHED] = published;
}

/* The points of a curve in the order of x, one curve after the other: a line goes through them. */
static int follows(const void *a, const void *b)
{
    const struct attn_figure_point *p = a, *q = b;
    int apart = p->curve != q->curve ? p->curve - q->curve : p->panel - q->panel;
    return apart != 0 ? apart : (p->x > q->x) - (p->x < q->x);
}

enum attn_status attn_study_figure_draw(const struct attn_study *study, struct attn_figure *figure,
                                        const char *folder, struct attn_error *err)
{
    if (study->figure.x != NULL && figure->n > 0)
        qsort(figure->point, (size_t)figure->n, sizeof *figure->point, follows);
    attn_figure_finish(figure);
    if (study->figure.x == NULL)
        attn_append(figure->variables, sizeof figure->variables, "'\n");
    if (study->figure.x == NULL || study->figure.is_linear)
        figure->y_range = "[0:*]";
    if (study->figure.is_linear)
        figure->x_range = "[0:*]";
    return attn_draw(figure, folder, err);
}
