/* See steps.h. */
#include "experiments/rim/explain/steps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/base/fileio.h"

/* ---- which ----------------------------------------------------------------------------------- */

static int is_shown(const struct attn_show *show, const struct attn_traced_step *step)
{
    const char *name = step->kind->name, *from = show->only;
    if (from == NULL)
        return !(show->has_ranks && step->kind->flags & ATTN_STEP_INNER);
    for (size_t n; *from != '\0'; from += n + (from[n] == ',')) {
        n = strcspn(from, ",");
        if (n > 0 && strncmp(name, from, n) == 0)
            return 1;
    }
    return 0;
}

static int same_place(const struct attn_traced_step *a, const struct attn_traced_step *b)
{
    return a->pass == b->pass && a->at.hop == b->at.hop && a->at.rank == b->at.rank &&
           a->at.batch == b->at.batch && a->at.head == b->at.head;
}

/* Where the part of step `first` ends. */
static int64_t end_of_part(const struct attn_trace *trace, int64_t first)
{
    int64_t s = first + 1;
    while (s < trace->n && same_place(&trace->step[first], &trace->step[s]) &&
           !(trace->step[s].kind->flags & ATTN_STEP_OPENS))
        s++;
    return s;
}

/* ---- one table: all steps [first, end) of the kind of the first one -------------------------- */

struct group {
    const struct attn_traced_step *first, *end;
};

static const struct attn_traced_step *next_of(const struct group *g,
                                              const struct attn_traced_step *s)
{
    do
        s++;
    while (s < g->end && s->kind != g->first->kind);
    return s;
}

/* The largest finite number of matrix m. */
static double most_of(const struct group *g, int m)
{
    double most = 0;
    for (const struct attn_traced_step *s = g->first; s < g->end; s = next_of(g, s))
        for (int64_t e = 0; e < s->matrix[m].rows * s->matrix[m].columns; e++)
            if (isfinite(s->matrix[m].value[e]))
                most = fmax(most, fabs(s->matrix[m].value[e]));
    return most;
}

/* "name[c]" of several columns; a name of several words has one for each. */
static void head_of(const struct attn_traced_matrix *x, int64_t c, int64_t first, char *head)
{
    const char *word = x->name;
    for (int64_t n = 0; n < c && strchr(word, ' ') != NULL; n++)
        word = strchr(word, ' ') + 1;
    if (strchr(x->name, ' ') != NULL)
        snprintf(head, ATTN_CELL, "%.*s", (int)strcspn(word, " "), word);
    else if (x->columns > 1)
        snprintf(head, ATTN_CELL, "%s[%lld]", x->name, (long long)(first + c));
    else
        snprintf(head, ATTN_CELL, "%s", x->name);
}

/* Labels of row r of what a step shows. */
static void label(const struct attn_table *t, const struct attn_traced_step *s, int64_t row,
                  int64_t r)
{
    int64_t value[2] = {s->at.query + r, s->at.key + r};
    if (s->kind->rows == ATTN_ROWS_KEYS)
        value[0] = value[1];
    if (s->kind->rows == ATTN_ROWS_ELEMENTS) {
        value[0] = s->at.key + r;
        value[1] = s->at.query;
    }
    for (int c = 0; c < t->labels; c++)
        snprintf(attn_table_cell(t, row, c), ATTN_CELL, "%lld", (long long)value[c]);
}

static const char *const labels[][3] = {[ATTN_ROWS_QUERIES] = {"i"},
                                        [ATTN_ROWS_KEYS] = {"j"},
                                        [ATTN_ROWS_ELEMENTS] = {"e", "i"},
                                        [ATTN_ROWS_PAIRS] = {"i", "j"},
                                        [ATTN_ROWS_GRID] = {"i"}};

static void open_table(struct attn_table *t, enum attn_rows_of of, int64_t rows, int64_t columns)
{
    int n = 0;
    while (labels[of][n] != NULL)
        n++;
    attn_table_open(t, rows, n + columns, n);
    for (int c = 0; c < n; c++)
        strcpy(attn_table_cell(t, -1, c), labels[of][c]);
}

/* Rows below rows. */
static void stack(const struct group *g, struct attn_table *t)
{
    const struct attn_traced_step *first = g->first;
    int64_t rows = 0, columns = 0, row = 0;
    for (int m = 0; m < first->n; m++)
        columns += first->matrix[m].columns;
    for (const struct attn_traced_step *s = first; s < g->end; s = next_of(g, s))
        rows += s->matrix[0].rows;
    open_table(t, first->kind->rows, rows, columns);
    for (const struct attn_traced_step *s = first; s < g->end; s = next_of(g, s)) {
        for (int64_t r = 0; r < s->matrix[0].rows; r++)
            label(t, s, row + r, r);
        int64_t at = t->labels;
        for (int m = 0; m < first->n; at += first->matrix[m++].columns) {
            const struct attn_traced_matrix *x = &s->matrix[m];
            double most = most_of(g, m);
            t->part[at] = 1;
            for (int64_t c = 0; c < first->matrix[m].columns; c++) {
                head_of(x, c, s->kind->flags & ATTN_STEP_BY_KEY ? s->at.key : 0,
                        attn_table_cell(t, -1, at + c));
                for (int64_t r = 0; r < x->rows; r++)
                    attn_table_number(attn_table_cell(t, row + r, at + c),
                                      x->value[r * x->columns + c], most, x->is_whole);
            }
        }
        row += s->matrix[0].rows;
    }
}

/* Pairs, each told by itself: i down, j across, and so for each number. */
static void spread(const struct group *g, struct attn_table *t)
{
    int64_t i[2] = {INT64_MAX, 0}, j[2] = {INT64_MAX, 0};
    for (const struct attn_traced_step *s = g->first; s < g->end; s = next_of(g, s)) {
        i[0] = s->at.query < i[0] ? s->at.query : i[0];
        i[1] = s->at.query >= i[1] ? s->at.query + 1 : i[1];
        j[0] = s->at.key < j[0] ? s->at.key : j[0];
        j[1] = s->at.key >= j[1] ? s->at.key + 1 : j[1];
    }
    open_table(t, ATTN_ROWS_GRID, i[1] - i[0], g->first->n * (j[1] - j[0]));
    for (int64_t r = 0; r < t->rows; r++)
        snprintf(attn_table_cell(t, r, 0), ATTN_CELL, "%lld", (long long)(i[0] + r));
    for (int m = 0; m < g->first->n; m++) {
        int64_t at = t->labels + m * (j[1] - j[0]);
        double most = most_of(g, m);
        t->part[at] = 1;
        for (int64_t key = j[0]; key < j[1]; key++)
            snprintf(attn_table_cell(t, -1, at + key - j[0]), ATTN_CELL, "%s[%lld]",
                     g->first->matrix[m].name, (long long)key);
        for (const struct attn_traced_step *s = g->first; s < g->end; s = next_of(g, s))
            attn_table_number(attn_table_cell(t, s->at.query - i[0], at + s->at.key - j[0]),
                              s->matrix[m].value[0], most, s->matrix[m].is_whole);
    }
}

static int show_group(const struct group *g, struct attn_handout *handout)
{
    struct attn_table t;
    if (g->first->matrix[0].columns == 0) /* such as the mask, where there is none */
        return 0;
    if (handout == NULL)
        return 1;
    if (g->first->kind->rows == ATTN_ROWS_GRID)
        spread(g, &t);
    else
        stack(g, &t);
    char words[256];
    snprintf(words, sizeof words, "%s: %s", g->first->kind->name, g->first->kind->sentence);
    attn_handout_words(handout, words);
    attn_handout_table(handout, &t);
    attn_table_close(&t);
    return 1;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* A heading where the place is another one than that of the step before, NULL: there is none. */
static void show_place(const struct attn_show *show, const struct attn_traced_step *before,
                       const struct attn_traced_step *step, struct attn_handout *handout)
{
    char text[128] = "", hop[32];
    int begins = before == NULL || before->pass != step->pass;
    if (!begins &&
        (same_place(before, step) || !(show->has_ranks || show->has_heads || show->has_batches)))
        return;
    attn_append(text, sizeof text, "%s", step->pass == ATTN_FORWARD ? "Forward" : "Backward");
    snprintf(hop, sizeof hop, "hop %d", step->at.hop);
    if (show->has_ranks)
        attn_append(text, sizeof text, ", %s, rank %d",
                    step->kind->flags & ATTN_STEP_ENDS ? "the end" : hop, step->at.rank);
    if (show->has_batches)
        attn_append(text, sizeof text, ", batch %lld", (long long)step->at.batch);
    if (show->has_heads)
        attn_append(text, sizeof text, ", head %lld", (long long)step->at.head);
    attn_handout_heading(handout, text);
}

int attn_show_steps(const struct attn_show *show, const struct attn_trace *trace,
                    struct attn_handout *handout)
{
    int tables = 0;
    const struct attn_traced_step *before = NULL;
    for (int64_t first = 0, end; first < trace->n; first = end) {
        end = end_of_part(trace, first);
        for (int64_t s = first; s < end; s++) {
            const struct group g = {&trace->step[s], trace->step + end};
            int64_t same = first;
            while (trace->step[same].kind != trace->step[s].kind)
                same++;
            if (same < s || !is_shown(show, &trace->step[s]))
                continue;
            if (handout != NULL)
                show_place(show, before, &trace->step[s], handout);
            before = &trace->step[s];
            tables += show_group(&g, handout);
        }
    }
    return tables;
}
