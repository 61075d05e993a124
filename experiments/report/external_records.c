#include "experiments/report/external_records.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/report/table_file.h"
#include "optimized/registry.h"
#include "tests/harness/base/fileio.h"

enum { BYTES_MOST = 1 << 24 };

struct attn_external_row {
    json_t *object; /* its keys; those of numbers are numbers, or not there */
    const char *backend, *mask, *dir, *status;
    double n_key, bytes, ms; /* NaN: not there */
    int line, place;         /* place: of its backend, as first met */
    char label[256];
};

static const char *const words[] = {"backend", "mask", "dir", "status", "dtype", NULL};
static const char *const numbers[] = {"L", "B", "H", "d", "peak_extra_bytes", "ms", NULL};

/* Of the problem: the legend has what varies, the subtitle what does not. */
static const char *const sizes[] = {"dtype", "B", "H", "d", NULL};

static const char *const panels[][2] = {
    {"fwd", "forward"}, {"bwd", "backward"}, {"fwd+bwd", "forward_and_backward"}, {"", "recorded"}};
enum { PANELS = sizeof panels / sizeof *panels };

/* ---- reading --------------------------------------------------------------------------------- */

/* A field of CSV, or a value of JSON, as the number that it says; an empty one is none. */
static enum attn_status read_number(json_t *object, const char *key, struct attn_error *err)
{
    const json_t *value = json_object_get(object, key);
    char plain[32] = "";
    double x = json_number_value(value);
    if (json_is_number(value))
        (void)snprintf(plain, sizeof plain, "%.17g", x);
    const char *said = json_is_string(value) ? json_string_value(value) : plain;
    if (said[0] != '\0' && (!attn_cli_double(said, &x) || !isfinite(x) || x < 0))
        return attn_fail(err, ATTN_EINVAL, "%s = '%.40s' is not a number from 0 up", key, said);
    if (said[0] == '\0')
        json_object_del(object, key);
    else
        json_object_set_new(object, key, json_real(x));
    return ATTN_OK;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value != NULL ? json_real_value(value) : (double)NAN;
}

static enum attn_status check_row(const struct attn_external_row *row, struct attn_error *err)
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
    if (strpbrk(row->status, ",\"") != NULL) /* it is a field of the figure's CSV */
        return attn_fail(err, ATTN_EINVAL, "status '%s' has a comma or a quote", row->status);
    return ATTN_OK;
}

static enum attn_status read_row(json_t *object, struct attn_external_row *row,
                                 struct attn_error *err)
{
    const char *key;
    json_t *value;
    enum { LONGEST = 63 };
    row->object = json_incref(object);
    row->line = (int)json_integer_value(json_object_get(object, ATTN_TABLE_LINE));
    row->place = -1;
    json_object_foreach(object, key, value) if (
        strncmp(key, "priced", 6) == 0 ||
        strncmp(key, "ledger", 6) ==
            0) return attn_fail(err, ATTN_EINVAL,
                                "%.40s: external records have no price and no ledger; records of "
                                "attnlab go to --from",
                                key);
    for (int w = 0; words[w] != NULL; w++) {
        value = json_object_get(object, words[w]);
        if (json_is_number(value))
            json_object_set_new(object, words[w], json_sprintf("%.17g", json_number_value(value)));
        else if (!json_is_string(value))
            json_object_del(object, words[w]);
        if (strlen(attn_table_field(object, words[w])) > LONGEST)
            return attn_fail(err, ATTN_EINVAL, "%s is longer than %d bytes", words[w], LONGEST);
    }
    for (int n = 0; numbers[n] != NULL; n++)
        if (read_number(object, numbers[n], err) != ATTN_OK)
            return ATTN_EINVAL;
    row->backend = attn_table_field(object, "backend");
    row->mask = attn_table_field(object, "mask");
    row->dir = attn_table_field(object, "dir");
    row->status = attn_table_field(object, "status");
    row->status = row->status[0] != '\0' ? row->status : "ok";
    int ok = strcmp(row->status, "ok") == 0;
    row->n_key = number(object, "L");
    row->bytes = ok ? number(object, "peak_extra_bytes") : (double)NAN;
    row->ms = ok ? number(object, "ms") : (double)NAN;
    return check_row(row, err);
}

static enum attn_status read_rows(char *text, struct attn_external_records *r, int *line,
                                  struct attn_error *err)
{
    static const char *const needed[] = {"backend", "L", NULL};
    enum attn_status status = ATTN_OK;
    json_t *lines = attn_table_read(text, needed, line, err), *object;
    int has_number = 0;
    size_t i;
    if (lines == NULL)
        return ATTN_EINVAL;
    r->row = attn_cli_need(calloc(json_array_size(lines), sizeof *r->row));
    json_array_foreach(lines, i, object)
    {
        if (status != ATTN_OK)
            break;
        has_number |= json_object_get(object, "peak_extra_bytes") != NULL ||
                      json_object_get(object, "ms") != NULL;
        status = read_row(object, &r->row[r->n], err);
        *line = r->row[r->n++].line;
    }
    json_decref(lines);
    if (status != ATTN_OK || has_number)
        return status;
    *line = 1;
    return attn_fail(err, ATTN_EINVAL, "there is neither peak_extra_bytes nor ms: nothing to draw");
}

/* ---- order ----------------------------------------------------------------------------------- */

/* A size in all rows [0, n): the same? */
static int is_same(const struct attn_external_row *row, int64_t n, const char *key)
{
    const json_t *first = json_object_get(row[0].object, key);
    for (int64_t i = 1; i < n; i++) {
        const json_t *other = json_object_get(row[i].object, key);
        if (first != other && !json_equal(first, other))
            return 0;
    }
    return 1;
}

/* "float32", "B=2": behind what is there. */
static void put_size(const json_t *object, const char *key, char *text, size_t size)
{
    const json_t *value = json_object_get(object, key);
    const char *comma = text[0] != '\0' ? ", " : "";
    if (json_is_real(value))
        attn_append(text, size, "%s%s=%g", comma, key, json_real_value(value));
    else if (value != NULL)
        attn_append(text, size, "%s%s", comma, json_string_value(value));
}

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
        for (int k = 0; sizes[k] != NULL; k++)
            if (!is_same(r->row, r->n, sizes[k]))
                put_size(row->object, sizes[k], row->label, sizeof row->label);
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
    status = read_rows(text, r, &line, &why);
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
    for (int64_t i = 0; i < r->n; i++)
        json_decref(r->row[i].object);
    free(r->row);
    memset(r, 0, sizeof *r);
}

/* ---- figures --------------------------------------------------------------------------------- */

static void add_point(struct attn_figure *figure, const struct attn_external_row *row, int is_time)
{
    int p = 0;
    while (strcmp(panels[p][0], row->dir) != 0)
        p++;
    int curve = attn_figure_curve_of(figure, row->label, attn_impl_count() + row->place, 0, NULL);
    struct attn_figure_point *point = attn_figure_add(figure, panels[p][1], curve, row->n_key);
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
    char shared[100] = "";
    int without = 0;
    *figure = (struct attn_figure){.x_name = "L",
                                   .x_label = attn_group_words[ATTN_GROUP_LENGTH].x_label,
                                   .x_base = 2,
                                   .column = {is_time ? "recorded_s" : "recorded_bytes"},
                                   .n_columns = 1,
                                   .n_about = 1};
    (void)attn_figure_of_kind(is_time ? "external-time" : "external-memory", figure);
    name_figure(r, row->mask, figures, figure);
    attn_append(figure->title, sizeof figure->title, ", mask %s",
                row->mask[0] != '\0' ? row->mask : "not said");
    for (int k = 1; sizes[k] != NULL; k++)
        if (is_same(row, n, sizes[k]))
            put_size(row->object, sizes[k], shared, sizeof shared);
    (void)snprintf(figure->subtitle, sizeof figure->subtitle, "Source: %s; %s", r->source, shared);
    for (int64_t i = 0; i < n; i++) {
        add_point(figure, &row[i], is_time);
        without += isnan(figure->point[i].y[0]);
    }
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
