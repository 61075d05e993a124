/* A point as a line of JSON and as a row of the table.  One list says which member of struct
 * attn_point has which name in both: writing, reading and columns cannot drift apart. */
#include "experiments/measure/record.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/stats.h"
#include "experiments/table/row_table.h"
#include "tests/harness/base/fileio.h"

enum kind {
    TEXT,   /* char[size]                         */
    INT,    /* int                                */
    INT64,  /* int64_t                            */
    BYTES,  /* int64_t; -1 is null                */
    SIZE,   /* the same of a double               */
    REAL,   /* double; what is no number is null  */
    STATUS, /* an enum, by its name               */
    PASS,
    DTYPE,
    SAVE,  /* the same, "" of no stack           */
    TIMES, /* warm_s and n_warm                  */
    LIVE,  /* live_name, live_bytes, n_live      */
    RANKS  /* int64_t[n_processes]               */
};

static const struct field {
    const char *key;
    enum kind kind;
    size_t offset, size;
    const char *column; /* NULL: the key; "": not in the table */
} field_table[] = {
#define PART(key, kind, member, column)                                                      \
    {key, kind, offsetof(struct attn_point, member), sizeof((struct attn_point *)0)->member, \
     column},
#define TEXT(name, capacity) PART(#name, TEXT, name, NULL)
#define INT(name)            PART(#name, INT, name, NULL)
#define INT64(name)          PART(#name, INT64, name, NULL)
#define BYTES(name)          PART(#name, BYTES, name, NULL)
#define REAL(name)           PART(#name, REAL, name, NULL)
#include "experiments/measure/record_fields.def"
};
enum { FIELDS = sizeof field_table / sizeof field_table[0] };

static const void *at(const struct attn_point *point, const struct field *field)
{
    return (const char *)point + field->offset;
}

/* Read from the case string alone. */
static int repeats_case(const struct field *field)
{
    size_t begin = offsetof(struct attn_point, c);
    return field->offset >= begin && field->offset < begin + sizeof(struct attn_case);
}

static const char *const status_name[] = {"ok",      "wrong",   "refused", "too-big",
                                          "dropped", "timeout", "killed",  "out-of-memory",
                                          "priced",  "error"};
enum { STATUSES = sizeof status_name / sizeof status_name[0] };

const char *attn_point_status_name(enum attn_point_status status)
{
    return (int)status >= 0 && (int)status < STATUSES ? status_name[status] : "?";
}

void attn_point_init(struct attn_point *point)
{
    memset(point, 0, sizeof *point);
    for (int f = 0; f < FIELDS; f++) {
        void *place = (char *)point + field_table[f].offset;
        if (field_table[f].kind == BYTES)
            *(int64_t *)place = -1;
        else if (field_table[f].kind == SIZE)
            *(double *)place = -1;
        else if (field_table[f].kind == REAL)
            *(double *)place = (double)NAN;
    }
    point->status = ATTN_POINT_ERROR;
}

void attn_point_untimed(struct attn_point *point)
{
    point->n_warm = 0;
    point->first_s = point->again_s = (double)NAN;
    point->first_cpu_max_s = point->first_cpu_sum_s = (double)NAN;
    point->warm_cpu_max_s = point->warm_cpu_sum_s = (double)NAN;
}

void attn_point_unverified(struct attn_point *point)
{
    struct attn_point fresh;
    attn_point_init(&fresh);
    point->judged = fresh.judged;
}

double attn_point_call_s(const struct attn_point *point, enum attn_call call)
{
    double warm[ATTN_RECORD_TIMES];
    struct attn_spread spread;
    int is_simulated = point->ranks > 1 && point->n_processes == 0;
    if (point->n_processes > 0 && !(point->ranks_per_core <= 1))
        return (double)NAN;
    if (call == ATTN_CALL_FIRST)
        return is_simulated ? point->first_cpu_max_s : point->first_s;
    if (is_simulated)
        return point->warm_cpu_max_s;
    int n = 0;
    for (int t = 0; t < point->n_warm; t++)
        if (isfinite(point->warm_s[t]))
            warm[n++] = point->warm_s[t];
    attn_stats_spread(warm, n, &spread);
    return spread.median;
}

double attn_point_products(const struct attn_point *p)
{
    double d = (double)p->c.d_key, dv = (double)p->c.d_value;
    double products = p->c.pass == ATTN_FORWARD ? d + dv : 3 * d + 2 * dv;
    if (p->c.pass == ATTN_BACKWARD && p->price.saved > 0) /* scores are not made again */
        products -= d;
    return 2 * (double)p->pairs * products;
}

double attn_point_traffic(const struct attn_point *p)
{
    const int64_t CACHE = 1 << 20;
    return (double)p->floor_bytes + (p->price.peak > CACHE ? 2 * (double)p->price.peak : 0);
}

void attn_point_not_ours(struct attn_point *point)
{
    struct attn_point fresh;
    attn_point_init(&fresh);
    point->price = fresh.price;
    point->ledger_bytes = point->process_ledger_bytes = -1;
    point->n_live = 0;
}

void attn_point_name(const struct attn_point *p, char name[ATTN_POINT_NAME])
{
    char stack[ATTN_STACK_TEXT];
    snprintf(name, ATTN_POINT_NAME, "%s\n%s\n%s\n%s", p->group, p->spec, p->text,
             attn_stack_print(&p->stack, stack));
}

/* ---- writing ------------------------------------------------------------------------------ */

/* The words of a field; NULL: it is a number, or several. */
static const char *words_of(const struct field *field, const struct attn_point *point)
{
    switch (field->kind) {
    case TEXT:
        return at(point, field);
    case STATUS:
        return attn_point_status_name(point->status);
    case PASS:
        return attn_pass_name(point->c.pass);
    case DTYPE:
        return attn_dtype_name(point->c.dtype);
    case SAVE:
        return point->stack.n > 0 ? attn_stack_save_name(point->stack.save) : "";
    default:
        return NULL;
    }
}

static int64_t integer_of(const struct field *field, const struct attn_point *point)
{
    return field->kind == INT    ? *(const int *)at(point, field)
           : field->kind == SIZE ? attn_cli_to_bytes(*(const double *)at(point, field))
                                 : *(const int64_t *)at(point, field);
}

static json_t *field_value(const struct field *field, const struct attn_point *point)
{
    json_t *list;
    if (words_of(field, point) != NULL)
        return attn_cli_words(words_of(field, point));
    if (field->kind == REAL)
        return attn_cli_real(*(const double *)at(point, field));
    if (field->kind == TIMES) {
        list = json_array();
        for (int t = 0; t < point->n_warm; t++)
            json_array_append_new(list, attn_cli_real(point->warm_s[t]));
        return list;
    }
    if (field->kind == LIVE) {
        list = json_object();
        for (int a = 0; a < point->n_live; a++)
            json_object_set_new(list, point->live_name[a], json_integer(point->live_bytes[a]));
        return list;
    }
    if (field->kind == RANKS) {
        list = json_array();
        for (int r = 0; r < point->n_processes; r++)
            json_array_append_new(list, json_integer(((const int64_t *)at(point, field))[r]));
        return list;
    }
    int64_t integer = integer_of(field, point);
    return (field->kind == BYTES || field->kind == SIZE) && integer < 0 ? json_null()
                                                                        : json_integer(integer);
}

/* The line is made first: one that is refused memory on the way leaves nothing in the file. */
int attn_record_write_json(FILE *file, json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);
    int failed = text == NULL || fprintf(file, "%s\n", text) < 0;
    failed |= fflush(file) != 0;
    int error = text == NULL ? ENOMEM : errno;
    json_decref(json);
    free(text);
    errno = error;
    return -failed;
}

json_t *attn_record_of(const struct attn_point *point)
{
    json_t *line = json_pack("{s:i, s:s}", "schema", ATTN_RECORD_SCHEMA, "record", "point");
    for (int f = 0; f < FIELDS; f++)
        if (field_table[f].kind != RANKS || point->n_processes > 0)
            json_object_set_new(line, field_table[f].key, field_value(&field_table[f], point));
    return line;
}

int attn_record_write_point(FILE *file, const struct attn_point *point)
{
    return attn_record_write_json(file, attn_record_of(point));
}

/* ---- reading ------------------------------------------------------------------------------ */

static double real_of(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void read_times(const json_t *array, struct attn_point *point)
{
    for (size_t t = 0; t < json_array_size(array) && point->n_warm < ATTN_RECORD_TIMES; t++)
        point->warm_s[point->n_warm++] = real_of(json_array_get(array, t));
}

static int read_ranks(const json_t *array, int64_t *to)
{
    int n = 0;
    for (; n < (int)json_array_size(array) && n < ATTN_RECORD_RANKS; n++)
        to[n] = json_integer_value(json_array_get(array, (size_t)n));
    return n;
}

static void read_live(const json_t *object, struct attn_point *point)
{
    json_t *value;
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (point->n_live == ATTN_MAX_ACCOUNTS)
            return;
        snprintf(point->live_name[point->n_live], sizeof point->live_name[0], "%s", name);
        point->live_bytes[point->n_live++] = json_integer_value(value);
    }
}

static enum attn_status read_text(const struct field *field, const json_t *value, char *to,
                                  struct attn_error *err)
{
    size_t n = json_string_length(value);
    if (n >= field->size && strcmp(field->key, "message") != 0)
        return attn_fail(err, ATTN_EINVAL, "\"%s\" is longer than %zu bytes", field->key,
                         field->size - 1);
    n = n < field->size ? n : field->size - 1;
    memcpy(to, json_string_value(value), n);
    to[n] = '\0';
    return ATTN_OK;
}

/* A field that is null or absent stays unknown, as attn_point_init left it. */
static enum attn_status read_field(const json_t *line, const struct field *field,
                                   struct attn_point *point, struct attn_error *err)
{
    const json_t *value = json_object_get(line, field->key);
    void *to = (char *)point + field->offset;
    if (value == NULL || json_is_null(value) || repeats_case(field) || field->kind == STATUS)
        return ATTN_OK;
    int fits = field->kind == TEXT || field->kind == SAVE     ? json_is_string(value)
               : field->kind == REAL                          ? json_is_number(value)
               : field->kind == TIMES || field->kind == RANKS ? json_is_array(value)
               : field->kind == LIVE                          ? json_is_object(value)
                                                              : json_is_integer(value);
    if (!fits)
        return attn_fail(err, ATTN_EINVAL, "\"%s\" has the wrong type", field->key);
    int64_t integer = json_integer_value(value);
    if (field->kind == INT && (integer < INT_MIN || integer > INT_MAX))
        return attn_fail(err, ATTN_EINVAL, "\"%s\" is beyond %d", field->key, INT_MAX);
    if (field->kind == TEXT)
        return read_text(field, value, to, err);
    if (field->kind == SAVE && json_string_length(value) > 0)
        return attn_stack_save_find(json_string_value(value), &point->stack.save, err);
    if (field->kind == TIMES)
        read_times(value, point);
    else if (field->kind == LIVE)
        read_live(value, point);
    else if (field->kind == RANKS)
        point->n_processes = read_ranks(value, to);
    else if (field->kind == REAL)
        *(double *)to = json_number_value(value);
    else if (field->kind == SIZE)
        *(double *)to = (double)integer;
    else if (field->kind == INT)
        *(int *)to = (int)integer;
    else if (field->kind != SAVE)
        *(int64_t *)to = integer;
    return ATTN_OK;
}

enum attn_status attn_record_point(const struct json_t *line, struct attn_point *point,
                                   struct attn_error *err)
{
    attn_point_init(point);
    const char *status = json_string_value(json_object_get(line, "status"));
    int s = 0;
    while (s < STATUSES && (status == NULL || strcmp(status, status_name[s]) != 0))
        s++;
    if (s == STATUSES)
        return attn_fail(err, ATTN_EINVAL, "no such status: %s", status != NULL ? status : "none");
    point->status = (enum attn_point_status)s;
    if (json_integer_value(json_object_get(line, "hidden")) > 0)
        return attn_fail(err, ATTN_EINVAL, "a stack with a hidden width is priced, not measured");
    for (int f = 0; f < FIELDS; f++)
        if (read_field(line, &field_table[f], point, err) != ATTN_OK)
            return ATTN_EINVAL;
    return attn_case_parse(point->text, &point->c, err);
}

struct json_t *attn_record_line(const char *line, size_t size, const char **kind,
                                struct attn_error *err)
{
    json_error_t where;
    json_t *json = json_loadb(line, size, 0, &where);
    const json_t *schema = json_object_get(json, "schema");
    *kind = json_string_value(json_object_get(json, "record"));
    int64_t version = json_integer_value(schema);
    if (json == NULL)
        attn_fail(err, ATTN_EINVAL, "not JSON: %s", where.text);
    else if (!json_is_integer(schema) || *kind == NULL)
        attn_fail(err, ATTN_EINVAL, "no record: \"schema\" and \"record\" are missing");
    else if (version < ATTN_RECORD_SCHEMA)
        attn_fail(err, ATTN_EINVAL, "of schema %lld, which is not read any more: measure again",
                  (long long)version);
    else {
        *kind = version == ATTN_RECORD_SCHEMA ? *kind : NULL;
        return json;
    }
    json_decref(json);
    return NULL;
}

enum attn_status attn_record_parse_point(const char *line, size_t size, struct attn_point *point,
                                         struct attn_error *err)
{
    const char *kind;
    json_t *json = attn_record_line(line, size, &kind, err);
    if (json == NULL)
        return ATTN_EINVAL;
    enum attn_status status =
        kind != NULL && strcmp(kind, "point") == 0
            ? attn_record_point(json, point, err)
            : attn_fail(err, ATTN_EINVAL, "not a point of schema %d", ATTN_RECORD_SCHEMA);
    json_decref(json);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* No column is of two kinds of call. */
static void add_times(json_t *row, const struct attn_point *p)
{
    double warm[ATTN_RECORD_TIMES];
    struct attn_spread spread;
    memcpy(warm, p->warm_s, sizeof warm);
    attn_stats_spread(warm, p->n_warm, &spread);
    json_object_set_new(row, "warm_samples", json_integer(p->n_warm));
    json_object_set_new(row, "warm_min_s", attn_cli_real(spread.min));
    json_object_set_new(row, "warm_median_s", attn_cli_real(spread.median));
}

void attn_csv_write(FILE *file, const struct attn_point *points, int64_t n)
{
    struct attn_column column[FIELDS + 3] = {{.key = NULL}};
    json_t *rows = json_array();
    int columns = 0;
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(rows, json_object());
    for (int f = 0; f < FIELDS; f++) {
        const struct field *field = &field_table[f];
        const char *key = field->column != NULL ? field->column : field->key;
        if (key[0] == '\0')
            continue;
        for (int64_t i = 0; i < n; i++) {
            json_t *row = json_array_get(rows, (size_t)i);
            if (field->kind == TIMES)
                add_times(row, &points[i]);
            else
                json_object_set_new(row, key, field_value(field, &points[i]));
        }
        if (field->kind == TIMES) {
            column[columns++].key = "warm_samples";
            column[columns++].key = "warm_min_s";
            key = "warm_median_s";
        }
        column[columns++].key = key;
    }
    attn_table_print(file, ATTN_TABLE_CSV, column, rows);
    json_decref(rows);
}

enum attn_status attn_csv_save(const char *path, const struct attn_point *points, int64_t n,
                               struct attn_error *err)
{
    struct attn_save save;
    if (attn_save_open(path, &save, err) != ATTN_OK)
        return ATTN_ENOMEM;
    attn_csv_write(save.stream, points, n);
    return attn_save_close(&save, ATTN_OK, err);
}
