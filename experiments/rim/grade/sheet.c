/* See grading.h: what is said of a submission, and of a class. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/grade/grading.h"
#include "experiments/table/rows.h"

static int most_points(const struct attn_sheet *sheet)
{
    int n = 0;
    for (int c = 0; c < sheet->n; c++)
        n += sheet->outcome[c].points;
    return n;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void put_line(FILE *out, const char *what, const char *text)
{
    if (text[0] != '\0')
        fprintf(out, "           %-8s %s\n", what, text);
}

static void put_outcome(FILE *out, const struct attn_outcome *o)
{
    if (o->points > 0)
        fprintf(out, "%4d of %2d  %s", o->earned, o->points, o->name);
    else
        fprintf(out, "%10s  %s", "", o->name);
    if (o->points == 0 || o->found[0] != '\0')
        fprintf(out, ": %s", o->found[0] != '\0' ? o->found : "not measured");
    else if (o->asked > 1)
        fprintf(out, ": %d of %d", o->passed, o->asked);
    fputc('\n', out);
    if (o->why[0] == '\0' || o->points == 0)
        return;
    put_line(out, "first", o->why);
    put_line(out, "likely", o->cause);
    put_line(out, "again", o->again);
    put_line(out, "read", o->read);
}

static void put_text(FILE *out, const struct attn_sheet *sheet)
{
    fprintf(out, "%s: lab %s%s%s: %d of %d\n", sheet->name, sheet->lab,
            sheet->seed[0] != '\0' ? ", the task of " : "", sheet->seed, sheet->total,
            most_points(sheet));
    if (sheet->zero[0] != '\0')
        fprintf(out, "  worth nothing: %s\n", sheet->zero);
    for (int n = 0; n < sheet->n && sheet->zero[0] == '\0'; n++)
        put_outcome(out, &sheet->outcome[n]);
}

/* ---- for other programs ---------------------------------------------------------------------- */

static void put_json(FILE *out, const struct attn_sheet *sheet)
{
    json_t *of = json_array();
    for (int n = 0; n < sheet->n; n++) {
        const struct attn_outcome *o = &sheet->outcome[n];
        json_array_append_new(
            of, json_pack("{s:s,s:i,s:i,s:i,s:i,s:s,s:s,s:s,s:s,s:s}", "criterion", o->name,
                          "points", o->points, "earned", sheet->zero[0] == '\0' ? o->earned : 0,
                          "asked", o->asked, "passed", o->passed, "found", o->found, "first",
                          o->why, "likely", o->cause, "again", o->again, "read", o->read));
    }
    json_t *all = attn_cli_need(json_pack("{s:s,s:s,s:s,s:i,s:i,s:s,s:f,s:o}", "lab", sheet->lab,
                                          "name", sheet->name, "seed", sheet->seed, "total",
                                          sheet->total, "of", most_points(sheet), "worth_nothing",
                                          sheet->zero, "seconds", sheet->seconds, "criteria", of));
    json_dumpf(all, out, JSON_COMPACT);
    fputc('\n', out);
    json_decref(all);
}

static void put_csv(FILE *out, const struct attn_sheet *sheet)
{
    for (int n = 0; n < sheet->n; n++) {
        const struct attn_outcome *o = &sheet->outcome[n];
        const char *const text[] = {sheet->lab, sheet->name, o->name};
        for (int t = 0; t < 3; t++) {
            attn_csv_text(out, text[t]);
            fputc(',', out);
        }
        fprintf(out, "%d,%d,%d,%d,", sheet->zero[0] == '\0' ? o->earned : 0, o->points, o->passed,
                o->asked);
        attn_csv_text(out, sheet->zero[0] != '\0' ? sheet->zero : o->why);
        fputc(',', out);
        attn_csv_text(out, o->cause);
        fputc('\n', out);
    }
}

void attn_sheet_print(const struct attn_sheet *sheet, enum attn_sheet_format format, FILE *out)
{
    if (format == ATTN_SHEET_JSON)
        put_json(out, sheet);
    else if (format == ATTN_SHEET_CSV)
        put_csv(out, sheet);
    else
        put_text(out, sheet);
}

void attn_sheet_head(const struct attn_lab *lab, enum attn_sheet_format format, FILE *out)
{
    const struct attn_criterion *c;
    if (format == ATTN_SHEET_CSV)
        fprintf(out, "lab,name,criterion,earned,points,passed,asked,first,likely\n");
    if (format != ATTN_SHEET_TEXT)
        return;
    for (int n = 0; (c = attn_lab_criterion(lab, n)) != NULL; n++)
        if (c->points > 0)
            fprintf(out, "%c %3d  %s\n", 'a' + n, c->points, c->name);
    fprintf(out, "\n%-20s %5s", "", "total");
    for (int n = 0; (c = attn_lab_criterion(lab, n)) != NULL; n++)
        if (c->points > 0)
            fprintf(out, " %3c", 'a' + n);
    fprintf(out, "\n");
}

void attn_sheet_line(const struct attn_sheet *sheet, FILE *out)
{
    const char *why = sheet->zero;
    fprintf(out, "%-20s %5d", sheet->name, sheet->total);
    for (int n = 0; n < sheet->n; n++) {
        const struct attn_outcome *o = &sheet->outcome[n];
        if (o->points > 0)
            fprintf(out, " %3d", sheet->zero[0] == '\0' ? o->earned : 0);
        if (why[0] == '\0' && o->points > o->earned)
            why = o->cause[0] != '\0' ? o->cause : o->why;
    }
    fprintf(out, "%s%.160s\n", why[0] != '\0' ? "  " : "", why);
}
