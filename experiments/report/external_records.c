#include "experiments/report/external_records.h"

#include <ctype.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "optimized/registry.h"
#include "tests/harness/files/fileio.h"

enum { WORD = 64, COLUMNS = 64, BYTES_MOST = 1 << 24 };

/* Numbers that are not there are NaN. */
struct attn_external_row {
    char backend[WORD], dtype[WORD], mask[WORD], dir[WORD], status[WORD];
    double n_key, batch, heads, dim, bytes, ms; /* "L", "B", ... */
    int line, place;                            /* place: of its backend, as first met */
    char label[4 * WORD];
};

#define PLACE(member) offsetof(struct attn_external_row, member)
static const struct column {
    const char *key;
    int is_number, is_needed;
    size_t place;
} columns[] = {{"backend", 0, 1, PLACE(backend)},
               {"dtype", 0, 0, PLACE(dtype)},
               {"mask", 0, 0, PLACE(mask)},
               {"dir", 0, 0, PLACE(dir)},
               {"status", 0, 0, PLACE(status)},
               {"L", 1, 1, PLACE(n_key)},
               {"B", 1, 0, PLACE(batch)},
               {"H", 1, 0, PLACE(heads)},
               {"d", 1, 0, PLACE(dim)},
               {"peak_extra_bytes", 1, 0, PLACE(bytes)},
               {"ms", 1, 0, PLACE(ms)}};
enum { KNOWN = sizeof columns / sizeof *columns };

static const char *const panels[][2] = {
    {"fwd", "forward"}, {"bwd", "backward"}, {"fwd+bwd", "forward_and_backward"}, {"", "recorded"}};
enum { PANELS = sizeof panels / sizeof *panels };

/* ---- reading --------------------------------------------------------------------------------- */

/* A field of CSV, or the value of a key. */
static enum attn_status take(struct attn_external_row *row, const char *key, const char *value,
                             struct attn_error *err)
{
    if (strncmp(key, "priced", 6) == 0 || strncmp(key, "ledger", 6) == 0)
        return attn_fail(err, ATTN_EINVAL,
                         "%.40s: external records have no price and no ledger; records of attnlab "
                         "go to --from",
                         key);
    for (int k = 0; k < KNOWN; k++) {
        void *to = (char *)row + columns[k].place;
        if (strcmp(columns[k].key, key) != 0)
            continue;
        if (!columns[k].is_number && strlen(value) >= WORD)
            return attn_fail(err, ATTN_EINVAL, "%s is longer than %d bytes", key, WORD - 1);
        if (!columns[k].is_number)
            strcpy(to, value);
        else if (value[0] != '\0' &&
                 (!attn_cli_double(value, to) || !isfinite(*(double *)to) || *(double *)to < 0))
            return attn_fail(err, ATTN_EINVAL, "%s = '%.40s' is not a number from 0 up", key,
                             value);
    }
    return ATTN_OK;
}

/* Commas cut a line; quotes are not read. */
static int cut(char *line, const char *field[COLUMNS])
{
    int n = 0;
    for (char *rest = line; rest != NULL && n < COLUMNS;)
        field[n++] = strsep(&rest, ",");
    return n;
}

static enum attn_status take_header(char *line, const char *name[COLUMNS], int *n,
                                    struct attn_error *err)
{
    *n = cut(line, name);
    int n_numbers = 0;
    for (int k = 0; k < KNOWN; k++) {
        int found = 0;
        for (int f = 0; f < *n; f++)
            found += strcmp(name[f], columns[k].key) == 0;
        n_numbers +=
            found > 0 && (columns[k].place == PLACE(bytes) || columns[k].place == PLACE(ms));
        if (found > 1 || (found == 0 && columns[k].is_needed))
            return attn_fail(err, ATTN_EINVAL, "column %s is %s", columns[k].key,
                             found > 1 ? "there twice" : "missing");
    }
    return n_numbers > 0 ? ATTN_OK
                         : attn_fail(err, ATTN_EINVAL,
                                     "there is neither peak_extra_bytes nor ms: nothing to draw");
}

static enum attn_status take_csv(char *line, const char *const *name, int n,
                                 struct attn_external_row *row, struct attn_error *err)
{
    const char *field[COLUMNS];
    enum attn_status status = ATTN_OK;
    int found = cut(line, field);
    if (found != n)
        return attn_fail(err, ATTN_EINVAL, "%d fields; the header has %d", found, n);
    for (int f = 0; f < n && status == ATTN_OK; f++)
        status = take(row, name[f], field[f], err);
    return status;
}

static enum attn_status take_json(const char *line, struct attn_external_row *row,
                                  struct attn_error *err)
{
    json_error_t where;
    json_t *json = json_loads(line, 0, &where), *value;
    const char *key;
    enum attn_status status = ATTN_OK;
    if (!json_is_object(json))
        status = attn_fail(err, ATTN_EINVAL, "no JSON object: %s", where.text);
    json_object_foreach(json, key, value)
    {
        char number[32];
        const char *text = json_is_string(value) ? json_string_value(value) : number;
        (void)snprintf(number, sizeof number, "%.17g", json_number_value(value));
        if (status == ATTN_OK && (json_is_string(value) || json_is_number(value)))
            status = take(row, key, text, err);
    }
    json_decref(json);
    return status;
}

static enum attn_status check_row(struct attn_external_row *row, struct attn_error *err)
{
    int p = 0;
    while (p < PANELS && strcmp(panels[p][0], row->dir) != 0)
        p++;
    if (row->backend[0] == '\0')
        return attn_fail(err, ATTN_EINVAL, "backend is missing");
    if (!(row->n_key > 0))
        return attn_fail(err, ATTN_EINVAL, "L is missing, or 0");
    if (p == PANELS)
        return attn_fail(err, ATTN_EINVAL, "dir = '%s': there are fwd, bwd and fwd+bwd", row->dir);
    if (row->status[0] == '\0')
        strcpy(row->status, "ok");
    if (strpbrk(row->status, ",\"") != NULL) /* it is a field of the figure's CSV */
        return attn_fail(err, ATTN_EINVAL, "status '%s' has a comma or a quote", row->status);
    if (strcmp(row->status, "ok") != 0)
        row->bytes = row->ms = (double)NAN;
    return ATTN_OK;
}

static enum attn_status read_lines(char *text, struct attn_external_records *r, int *line,
                                   struct attn_error *err)
{
    const char *name[COLUMNS];
    int n_names = 0, is_json = text[strspn(text, " \t\r\n")] == '{';
    enum attn_status status = ATTN_OK;
    *line = 0;
    for (char *now; status == ATTN_OK && (now = strsep(&text, "\n")) != NULL;) {
        ++*line;
        now[strcspn(now, "\r")] = '\0';
        if (now[0] == '\0' || now[0] == '#')
            continue;
        if (!is_json && n_names == 0) {
            status = take_header(now, name, &n_names, err);
            continue;
        }
        if ((r->n & (r->n - 1)) == 0) /* room doubles at every power of two */
            r->row =
                attn_cli_need(realloc(r->row, (r->n == 0 ? 1 : 2 * (size_t)r->n) * sizeof *r->row));
        struct attn_external_row *row = &r->row[r->n++];
        *row = (struct attn_external_row){.line = *line, .place = -1};
        for (int k = 0; k < KNOWN; k++)
            if (columns[k].is_number)
                *(double *)(void *)((char *)row + columns[k].place) = (double)NAN;
        status = is_json ? take_json(now, row, err) : take_csv(now, name, n_names, row, err);
        if (status == ATTN_OK)
            status = check_row(row, err);
    }
    return status == ATTN_OK && r->n == 0
               ? attn_fail(err, ATTN_EINVAL, "there is no record in this file")
               : status;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* "math, float32": the backend, and what is not the same in all rows. */
static void label_rows(struct attn_external_records *r)
{
    int n_backends = 0;
    for (int64_t i = 0; i < r->n; i++) {
        struct attn_external_row *row = &r->row[i];
        (void)snprintf(row->label, sizeof row->label, "%s", row->backend);
        for (int64_t j = 0; j < i; j++)
            if (strcmp(r->row[j].backend, row->backend) == 0)
                row->place = r->row[j].place;
        row->place = row->place < 0 ? n_backends++ : row->place;
        for (int k = 0; k < KNOWN; k++) {
            const char *key = columns[k].key, *word = (const char *)row + columns[k].place;
            int differ = 0;
            if (strcmp(key, "dtype") != 0 && strcmp(key, "B") != 0 && strcmp(key, "H") != 0 &&
                strcmp(key, "d") != 0)
                continue;
            for (int64_t j = 0; j < r->n; j++) {
                const char *other = (const char *)&r->row[j] + columns[k].place;
                differ |= columns[k].is_number ? memcmp(word, other, sizeof(double)) != 0
                                               : strcmp(word, other) != 0;
            }
            if (differ && columns[k].is_number)
                attn_append(row->label, sizeof row->label, ", %s=%g", key,
                            *(const double *)(const void *)word);
            else if (differ)
                attn_append(row->label, sizeof row->label, ", %s", word);
        }
    }
}

static int compare_rows(const void *a, const void *b)
{
    const struct attn_external_row *p = a, *q = b;
    int order = strcmp(p->mask, q->mask);
    order = order != 0 ? order : p->place - q->place;
    order = order != 0 ? order : strcmp(p->label, q->label);
    order = order != 0 ? order : strcmp(p->dir, q->dir);
    return order != 0 ? order : (p->n_key > q->n_key) - (p->n_key < q->n_key);
}

static enum attn_status check_different(const struct attn_external_records *r, int *line,
                                        struct attn_error *err)
{
    for (int64_t i = 1; i < r->n; i++)
        if (compare_rows(&r->row[i - 1], &r->row[i]) == 0) {
            int other = r->row[i - 1].line < r->row[i].line ? r->row[i - 1].line : r->row[i].line;
            *line = r->row[i - 1].line + r->row[i].line - other;
            return attn_fail(err, ATTN_EINVAL, "the same point as in line %d", other);
        }
    return ATTN_OK;
}

/* Its parts: NAME and FILE, unless all of it is a file. */
static const char *name_source(const char *file, struct attn_external_records *r)
{
    const char *equals = access(file, F_OK) == 0 ? NULL : strchr(file, '=');
    const char *path = equals != NULL ? equals + 1 : file, *slash = strrchr(path, '/');
    size_t n = 0;
    const char *base = slash != NULL ? slash + 1 : path;
    (void)snprintf(r->source, sizeof r->source, "%.*s%s%.100s",
                   equals != NULL && equals - file < 160 ? (int)(equals - file) : 0, file,
                   equals != NULL ? ": " : "", base);
    for (; base[n] != '\0' && base[n] != '.' && n < sizeof r->stem - 8; n++)
        r->stem[n] = isalnum((unsigned char)base[n]) ? base[n] : '-';
    return path;
}

enum attn_status attn_external_records_read(const char *file, struct attn_external_records *r,
                                            struct attn_error *err)
{
    struct attn_error why = {ATTN_OK, ""};
    char *text;
    int line = 0;
    memset(r, 0, sizeof *r);
    const char *path = name_source(file, r);
    enum attn_status status = attn_read_text(path, ATTN_READ_GIVEN, BYTES_MOST, &text, &why);
    if (status != ATTN_OK)
        return attn_fail(err, status, "external records %s", why.text);
    status = read_lines(text, r, &line, &why);
    free(text);
    if (status == ATTN_OK) {
        label_rows(r);
        qsort(r->row, (size_t)r->n, sizeof *r->row, compare_rows);
        status = check_different(r, &line, &why);
    }
    if (status != ATTN_OK) {
        attn_fail(err, status, "%.200s:%d: %.280s", path, line, why.text);
        attn_external_records_free(r);
    }
    return status;
}

void attn_external_records_free(struct attn_external_records *r)
{
    free(r->row);
    memset(r, 0, sizeof *r);
}

/* ---- figures --------------------------------------------------------------------------------- */

/* "B=1, H=8": sizes that all rows [0, n) share. */
static void put_sizes(const struct attn_external_row *row, int64_t n, char *text, size_t size)
{
    for (int k = 0; k < KNOWN; k++) {
        double value = *(const double *)(const void *)((const char *)row + columns[k].place);
        int is_same = columns[k].is_number && columns[k].key[1] == '\0' &&
                      columns[k].key[0] != 'L' && !isnan(value);
        for (int64_t i = 0; i < n && is_same; i++)
            is_same =
                value == *(const double *)(const void *)((const char *)&row[i] + columns[k].place);
        if (is_same)
            attn_append(text, size, "%s%s=%g", text[0] != '\0' ? ", " : "", columns[k].key, value);
    }
}

static void add_point(struct attn_figure *figure, const struct attn_external_row *row, int is_time)
{
    int p = 0, panel = 0;
    while (strcmp(panels[p][0], row->dir) != 0)
        p++;
    while (panel < figure->n_panels && strcmp(figure->panel[panel], panels[p][1]) != 0)
        panel++;
    if (panel == figure->n_panels)
        (void)snprintf(figure->panel[figure->n_panels++], sizeof figure->panel[0], "%s",
                       panels[p][1]);
    int curve = attn_figure_curve_of(figure, row->label, attn_impl_count() + row->place, 0, NULL);
    struct attn_figure_point *point = attn_figure_add(figure, panel, curve, row->n_key);
    double value = is_time ? row->ms / 1000 : row->bytes;
    point->y[0] = value > 0 ? value : (double)NAN; /* 0 has no logarithm */
    point->status = row->status;
    point->note = "external record";
}

/* "external-memory-h200-causal"; numbered where an earlier figure has this name. */
static void name_figure(const struct attn_external_records *r, const char *mask,
                        const struct attn_figures *figures, struct attn_figure *figure)
{
    char tag[13];
    size_t n = 0;
    for (; mask[n] != '\0' && n < sizeof tag - 1; n++)
        tag[n] = isalnum((unsigned char)mask[n]) ? mask[n] : '-';
    tag[n] = '\0';
    for (int nth = 1, taken = 1; taken; nth++) {
        (void)snprintf(figure->name, sizeof figure->name, "%s-%s-%s", figure->kind, r->stem, tag);
        if (nth > 1)
            attn_append(figure->name, sizeof figure->name, "-%d", nth);
        taken = 0;
        for (int f = 0; f < figures->n; f++)
            taken |= strcmp(figures->figure[f].name, figure->name) == 0;
    }
}

/* A figure of the rows [0, n), which have one mask. */
static void draw_rows(const struct attn_external_records *r, const struct attn_external_row *row,
                      int64_t n, int is_time, struct attn_figures *figures)
{
    struct attn_figure *figure = &figures->figure[figures->n];
    const char *quantity = is_time ? "time" : "memory";
    char sizes[100] = "";
    int without = 0;
    *figure = (struct attn_figure){.kind = is_time ? "external-time" : "external-memory",
                                   .script = "external",
                                   .x_name = "L",
                                   .x_label = attn_group_words[ATTN_GROUP_LENGTH].x_label,
                                   .x_base = 2,
                                   .column = {is_time ? "recorded_s" : "recorded_bytes"},
                                   .n_columns = 1,
                                   .n_drawn = 1};
    name_figure(r, row->mask, figures, figure);
    (void)snprintf(figure->title, sizeof figure->title, "External records: %s, mask %s", quantity,
                   row->mask[0] != '\0' ? row->mask : "not said");
    put_sizes(row, n, sizes, sizeof sizes);
    (void)snprintf(figure->subtitle, sizeof figure->subtitle, "Source: %s; %s", r->source, sizes);
    for (int64_t i = 0; i < n; i++) {
        add_point(figure, &row[i], is_time);
        without += isnan(figure->point[i].y[0]);
    }
    (void)snprintf(
        figure->remark, sizeof figure->remark,
        "Recorded elsewhere, by other means: not measured or checked here, without price "
        "and ledger.");
    if (without > 0)
        attn_append(figure->remark, sizeof figure->remark, " %d of %lld rows have no %s.", without,
                    (long long)n, quantity);
    if (without == n)
        (void)snprintf(figure->omitted, sizeof figure->omitted, "%.200s has no %s in it", r->source,
                       quantity);
    attn_figure_finish(figure);
    figures->n++;
}

void attn_external_records_draw(const struct attn_external_records *r, struct attn_figures *figures)
{
    for (int64_t begin = 0, end; begin < r->n; begin = end) {
        for (end = begin; end < r->n && strcmp(r->row[end].mask, r->row[begin].mask) == 0; end++)
            ;
        figures->figure = attn_cli_need(
            realloc(figures->figure, ((size_t)figures->n + 3) * sizeof *figures->figure));
        for (int is_time = 0; is_time < 2; is_time++)
            draw_rows(r, &r->row[begin], end - begin, is_time, figures);
    }
}
