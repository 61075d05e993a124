/* See grading.h: what is said of a submission, and of a class. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/grade/grading.h"
#include "experiments/table/row_table.h"

static int most_points(const struct attn_sheet *sheet)
{
    int n = 0;
    for (int c = 0; c < sheet->n; c++)
        n += sheet->outcome[c].points;
    return n;
}

/* A row for each criterion; a sheet that is worth nothing has earned none. */
static json_t *rows_of(const struct attn_sheet *sheet)
{
    json_t *rows = json_array();
    for (int n = 0; n < sheet->n; n++) {
        const struct attn_outcome *o = &sheet->outcome[n];
        json_array_append_new(
            rows, attn_cli_need(json_pack("{s:s,s:i,s:i,s:i,s:i,s:s,s:s,s:s,s:s,s:s}", "criterion",
                                          o->name, "points", o->points, "earned",
                                          sheet->zero[0] == '\0' ? o->earned : 0, "asked", o->asked,
                                          "passed", o->passed, "found", o->found, "first", o->why,
                                          "likely", o->cause, "again", o->again, "read", o->read)));
    }
    return rows;
}

/* The words of a criterion; of what is only measured, that and no reasons. */
static void add_words(json_t *row, const struct attn_outcome *o)
{
    const char *found = o->found[0] != '\0' ? o->found : "not measured";
    json_object_set_new(row, "score",
                        o->points > 0 ? json_sprintf("%d of %d", o->earned, o->points)
                                      : json_string(""));
    json_object_set_new(row, "about",
                        o->points == 0 || o->found[0] != '\0'
                            ? json_sprintf("%s: %s", o->name, found)
                        : o->asked > 1 ? json_sprintf("%s: %d of %d", o->name, o->passed, o->asked)
                                       : json_string(o->name));
    if (o->why[0] == '\0' || o->points == 0)
        for (int k = 0; k < 4; k++)
            json_object_del(row, ((const char *[]){"first", "likely", "again", "read"})[k]);
}

static void put_text(FILE *out, const struct attn_sheet *sheet, json_t *rows)
{
    static const struct attn_column column[] = {
        {"score", "", ATTN_UNIT_REAL},
        {"about", "", ATTN_UNIT_WORDS},
        {"first", "first", ATTN_UNIT_WORDS | ATTN_UNIT_BELOW},
        {"likely", "likely", ATTN_UNIT_WORDS | ATTN_UNIT_BELOW},
        {"again", "again", ATTN_UNIT_WORDS | ATTN_UNIT_BELOW},
        {"read", "read", ATTN_UNIT_WORDS | ATTN_UNIT_BELOW},
        {.key = NULL}};
    fprintf(out, "%s: lab %s%s%s: %d of %d\n", sheet->name, sheet->lab,
            sheet->seed[0] != '\0' ? ", the task of " : "", sheet->seed, sheet->total,
            most_points(sheet));
    if (sheet->zero[0] != '\0') {
        fprintf(out, "  worth nothing: %s\n", sheet->zero);
        return;
    }
    for (int n = 0; n < sheet->n; n++)
        add_words(json_array_get(rows, (size_t)n), &sheet->outcome[n]);
    attn_table_print(out, ATTN_TABLE_TEXT, column, rows);
}

static void put_json(FILE *out, const struct attn_sheet *sheet, json_t *rows)
{
    json_t *all = attn_cli_need(
        json_pack("[{s:s,s:s,s:s,s:i,s:i,s:s,s:f,s:O}]", "lab", sheet->lab, "name", sheet->name,
                  "seed", sheet->seed, "total", sheet->total, "of", most_points(sheet),
                  "worth_nothing", sheet->zero, "seconds", sheet->seconds, "criteria", rows));
    attn_table_print(out, ATTN_TABLE_LINES, NULL, all);
    json_decref(all);
}

/* Why points are lost, in a line; "". */
static const char *reason(const struct attn_sheet *sheet)
{
    const char *why = sheet->zero;
    for (int n = 0; n < sheet->n && why[0] == '\0'; n++)
        why = sheet->outcome[n].end;
    for (int n = 0; n < sheet->n && why[0] == '\0'; n++) {
        const struct attn_outcome *o = &sheet->outcome[n];
        if (o->points > o->earned)
            why = o->cause[0] != '\0' ? o->cause : o->why;
    }
    return why;
}

/* A submission is a line: a column for each criterion that has points. */
static void put_csv_line(FILE *out, const struct attn_lab *lab, const struct attn_sheet *sheet)
{
    struct attn_column column[ATTN_CRITERIA + 6] = {
        {"lab", "", 0}, {"name", "", 0}, {"total", "", 0}, {"of", "", 0}};
    const struct attn_criterion *c;
    json_t *row = json_object();
    int at = 4;
    for (int n = 0; (c = attn_lab_criterion(lab, n)) != NULL; n++) {
        if (c->points == 0)
            continue;
        column[at++].key = c->name;
        if (sheet != NULL)
            json_object_set_new(
                row, c->name, json_integer(sheet->zero[0] == '\0' ? sheet->outcome[n].earned : 0));
    }
    column[at].key = "reason";
    json_t *rows = attn_cli_need(json_pack("[o]", row));
    if (sheet != NULL) {
        json_object_set_new(row, "lab", json_string(sheet->lab));
        json_object_set_new(row, "name", json_string(sheet->name));
        json_object_set_new(row, "total", json_integer(sheet->total));
        json_object_set_new(row, "of", json_integer(most_points(sheet)));
        json_object_set_new(row, "reason", json_string(reason(sheet)));
    }
    attn_table_print(out, sheet != NULL ? ATTN_TABLE_CSV_MORE : ATTN_TABLE_CSV, column,
                     sheet != NULL ? rows : NULL);
    json_decref(rows);
}

void attn_sheet_print(const struct attn_sheet *sheet, enum attn_sheet_format format, FILE *out)
{
    json_t *rows = rows_of(sheet);
    if (format == ATTN_SHEET_JSON)
        put_json(out, sheet, rows);
    else if (format == ATTN_SHEET_CSV)
        put_csv_line(out, attn_lab_find(sheet->lab), sheet);
    else
        put_text(out, sheet, rows);
    json_decref(rows);
}

void attn_sheet_head(const struct attn_lab *lab, enum attn_sheet_format format, FILE *out)
{
    const struct attn_criterion *c;
    if (format == ATTN_SHEET_CSV)
        put_csv_line(out, lab, NULL);
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
    const char *why = reason(sheet);
    fprintf(out, "%-20s %5d", sheet->name, sheet->total);
    for (int n = 0; n < sheet->n; n++) {
        const struct attn_outcome *o = &sheet->outcome[n];
        if (o->points > 0)
            fprintf(out, " %3d", sheet->zero[0] == '\0' ? o->earned : 0);
    }
    fprintf(out, "%s%.160s\n", why[0] != '\0' ? "  " : "", why);
}
