/* One line of JSON for each record.  A table says which member of struct attn_point has which
 * name in the line, so that writing and reading cannot drift apart. */
#include "experiments/measure/record.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/record_index.h"
#include "experiments/measure/stats.h"
#include "tests/harness/files/fileio.h"

enum kind {
    TEXT,  /* char[size]                       */
    INT,   /* int                              */
    COUNT, /* int64_t                          */
    BYTES, /* int64_t; -1 is null              */
    REAL   /* double; what is no number is null */
};

#define FIELD(kind, name)                                                                      \
    {                                                                                          \
#name, kind, offsetof(struct attn_point, name), sizeof(((struct attn_point *)0)->name) \
    }
#define OUTPUT(key, output)                                                               \
    {                                                                                     \
        key, REAL, offsetof(struct attn_point, output_worst) + (output) * sizeof(double), \
            sizeof(double)                                                                \
    }
static const struct field {
    const char *key;
    enum kind kind;
    size_t offset, size;
} field_table[] = {
    FIELD(TEXT, group),
    FIELD(TEXT, spec),
    FIELD(TEXT, impl),
    FIELD(TEXT, family),
    {"case", TEXT, offsetof(struct attn_point, text), ATTN_CASE_TEXT},
    FIELD(INT, round),
    FIELD(TEXT, build),
    FIELD(TEXT, session),
    FIELD(TEXT, message),
    FIELD(COUNT, pairs),
    FIELD(REAL, density),
    FIELD(INT, ranks),
    FIELD(REAL, first_s),
    FIELD(REAL, unknown_s),
    FIELD(REAL, first_cpu_max_s),
    FIELD(REAL, first_cpu_sum_s),
    FIELD(REAL, warm_cpu_max_s),
    FIELD(REAL, warm_cpu_sum_s),
    FIELD(BYTES, priced_bytes),
    FIELD(BYTES, ledger_bytes),
    FIELD(BYTES, process_ledger_bytes),
    FIELD(BYTES, floor_bytes),
    FIELD(BYTES, baseline_bytes),
    FIELD(BYTES, hwm_bytes),
    FIELD(BYTES, resident_bytes),
    FIELD(INT, hwm_reset),
    FIELD(COUNT, minor_faults),
    FIELD(COUNT, major_faults),
    FIELD(REAL, flops),
    FIELD(BYTES, bytes_sent),
    FIELD(COUNT, messages),
    FIELD(TEXT, verified),
    FIELD(TEXT, verdict),
    FIELD(REAL, worst),
    FIELD(TEXT, worst_output),
    OUTPUT("worst_o", ATTN_O),
    OUTPUT("worst_lse", ATTN_LSE),
    OUTPUT("worst_dq", ATTN_DQ),
    OUTPUT("worst_dk", ATTN_DK),
    OUTPUT("worst_dv", ATTN_DV),
    OUTPUT("worst_dbias", ATTN_DBIAS),
    FIELD(TEXT, digest),
    FIELD(REAL, setup_s),
    FIELD(REAL, verify_s),
    FIELD(REAL, wall_s),
    FIELD(REAL, load),
    FIELD(REAL, steal_s),
    FIELD(TEXT, time_source),
    FIELD(TEXT, route),
    FIELD(TEXT, source),
    FIELD(TEXT, source_digest),
    FIELD(BYTES, mask_bytes),
    FIELD(BYTES, saved_bytes),
};
enum { FIELDS = sizeof field_table / sizeof field_table[0] };

static const char *const status_name[] = {"ok",      "wrong",  "refused", "too-big", "dropped",
                                          "timeout", "killed", "priced",  "error"};
enum { STATUSES = sizeof status_name / sizeof status_name[0] };

const char *attn_point_status_name(enum attn_point_status status)
{
    return (int)status >= 0 && (int)status < STATUSES ? status_name[status] : "?";
}

const char *attn_call_name(enum attn_call call)
{
    static const char *const name[] = {"warm", "first", "unknown"};
    return (int)call >= 0 && call < ATTN_CALLS ? name[call] : "";
}

void attn_point_init(struct attn_point *point)
{
    memset(point, 0, sizeof *point);
    for (int f = 0; f < FIELDS; f++) {
        char *at = (char *)point + field_table[f].offset;
        if (field_table[f].kind == BYTES)
            *(int64_t *)(void *)at = -1;
        else if (field_table[f].kind == REAL)
            *(double *)(void *)at = (double)NAN;
    }
    point->status = ATTN_POINT_ERROR;
}

void attn_point_untimed(struct attn_point *point)
{
    point->n_warm = 0;
    point->first_s = point->unknown_s = (double)NAN;
    point->first_cpu_max_s = point->first_cpu_sum_s = (double)NAN;
    point->warm_cpu_max_s = point->warm_cpu_sum_s = (double)NAN;
}

double attn_point_call_s(const struct attn_point *point, enum attn_call call)
{
    double warm[ATTN_RECORD_TIMES];
    struct attn_spread spread;
    if (call == ATTN_CALL_FIRST)
        return point->ranks > 1 ? point->first_cpu_max_s : point->first_s;
    if (call == ATTN_CALL_UNKNOWN)
        return point->ranks > 1 ? (double)NAN : point->unknown_s;
    if (point->ranks > 1)
        return point->warm_cpu_max_s;
    int n = 0;
    for (int t = 0; t < point->n_warm; t++)
        if (isfinite(point->warm_s[t]))
            warm[n++] = point->warm_s[t];
    attn_stats_spread(warm, n, &spread);
    return spread.median;
}

void attn_point_not_ours(struct attn_point *point)
{
    point->priced_bytes = point->ledger_bytes = point->process_ledger_bytes = -1;
    point->bytes_sent = point->saved_bytes = -1;
    point->flops = (double)NAN;
    point->n_live = 0;
}

int attn_point_same(const struct attn_point *a, const struct attn_point *b)
{
    return a->round == b->round && strcmp(a->text, b->text) == 0 && strcmp(a->spec, b->spec) == 0 &&
           strcmp(a->group, b->group) == 0;
}

/* ---- writing ------------------------------------------------------------------------------ */

/* Messages may hold any bytes; JSON may not. */
static json_t *text_value(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    char plain[ATTN_CASE_TEXT];
    size_t n = strnlen(text, sizeof plain - 1);
    for (size_t i = 0; i < n; i++)
        plain[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    plain[n] = '\0';
    return json_string(plain);
}

static json_t *real_value(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *field_value(const struct attn_point *point, const struct field *field)
{
    const void *at = (const char *)point + field->offset;
    int64_t integer;
    switch (field->kind) {
    case TEXT:
        return text_value(at);
    case INT:
        return json_integer(*(const int *)at);
    case COUNT:
        return json_integer(*(const int64_t *)at);
    case BYTES:
        integer = *(const int64_t *)at;
        return integer < 0 ? json_null() : json_integer(integer);
    case REAL:
        break;
    }
    return real_value(*(const double *)at);
}

/* Repeats what the case string says, for those who read records without its grammar. */
static void add_problem(json_t *line, const struct attn_case *c)
{
    json_object_set_new(line, "pass", json_string(attn_pass_name(c->pass)));
    json_object_set_new(line, "mask", text_value(c->mask));
    json_object_set_new(line, "dtype", json_string(attn_dtype_name(c->dtype)));
    json_object_set_new(line, "batch", json_integer(c->batch));
    json_object_set_new(line, "heads", json_integer(c->heads));
    json_object_set_new(line, "kv_heads", json_integer(c->kv_heads));
    json_object_set_new(line, "n_query", json_integer(c->n_query));
    json_object_set_new(line, "n_key", json_integer(c->n_key));
    json_object_set_new(line, "d_key", json_integer(c->d_key));
    json_object_set_new(line, "d_value", json_integer(c->d_value));
}

static json_t *point_to_json(const struct attn_point *point)
{
    json_t *line = json_object(), *warm = json_array(), *live = json_object();
    json_object_set_new(line, "schema", json_integer(ATTN_RECORD_SCHEMA));
    json_object_set_new(line, "record", json_string("point"));
    json_object_set_new(line, "status", json_string(attn_point_status_name(point->status)));
    for (int f = 0; f < FIELDS; f++)
        json_object_set_new(line, field_table[f].key, field_value(point, &field_table[f]));
    add_problem(line, &point->c);
    for (int t = 0; t < point->n_warm; t++)
        json_array_append_new(warm, real_value(point->warm_s[t]));
    for (int a = 0; a < point->n_live; a++)
        json_object_set_new(live, point->live_name[a], json_integer(point->live_bytes[a]));
    json_object_set_new(line, "warm_s", warm);
    json_object_set_new(line, "live_bytes", live);
    return line;
}

/* A stream with a descriptor gets the line in one write(); one without (in memory) by stdio. */
static int write_whole(FILE *file, const char *line, size_t size)
{
    int fd = fileno(file);
    if (fflush(file) != 0)
        return -1;
    if (fd < 0)
        return fwrite(line, 1, size, file) == size && fflush(file) == 0 ? 0 : -1;
    ssize_t put;
    do
        put = write(fd, line, size);
    while (put < 0 && errno == EINTR);
    if (put >= 0 && (size_t)put < size)
        errno = ENOSPC;
    return put >= 0 && (size_t)put == size ? 0 : -1;
}

static int write_text(FILE *file, const char *json)
{
    size_t n = strlen(json);
    char *line = malloc(n + 2);
    if (line == NULL)
        return -1;
    memcpy(line, json, n);
    memcpy(line + n, "\n", 2);
    int failed = write_whole(file, line, n + 1);
    int error = errno;
    free(line);
    errno = error;
    return failed;
}

int attn_record_write_json(FILE *file, json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    if (text == NULL) {
        errno = ENOMEM;
        return -1;
    }
    int failed = write_text(file, text);
    int error = errno;
    free(text);
    errno = error;
    return failed;
}

int attn_record_write_point(FILE *file, const struct attn_point *point)
{
    return attn_record_write_json(file, point_to_json(point));
}

/* ---- reading ------------------------------------------------------------------------------ */

static enum attn_status read_field(const json_t *line, const struct field *field,
                                   struct attn_point *point, struct attn_error *err)
{
    const json_t *value = json_object_get(line, field->key);
    void *at = (char *)point + field->offset;
    if (value == NULL || json_is_null(value)) /* unknown: as attn_point_init left it */
        return ATTN_OK;
    int fits = field->kind == TEXT   ? json_is_string(value)
               : field->kind == REAL ? json_is_number(value)
                                     : json_is_integer(value);
    if (!fits)
        return attn_fail(err, ATTN_EINVAL, "\"%s\" has the wrong type", field->key);
    if (field->kind == TEXT) {
        size_t n = json_string_length(value);
        if (n >= field->size && strcmp(field->key, "message") != 0)
            return attn_fail(err, ATTN_EINVAL, "\"%s\" is longer than %zu bytes", field->key,
                             field->size - 1);
        n = n < field->size ? n : field->size - 1;
        memcpy(at, json_string_value(value), n);
        ((char *)at)[n] = '\0';
    } else if (field->kind == REAL)
        *(double *)at = json_number_value(value);
    else if (field->kind == INT &&
             (json_integer_value(value) < INT_MIN || json_integer_value(value) > INT_MAX))
        return attn_fail(err, ATTN_EINVAL, "\"%s\" is beyond %d", field->key, INT_MAX);
    else if (field->kind == INT)
        *(int *)at = (int)json_integer_value(value);
    else
        *(int64_t *)at = json_integer_value(value);
    return ATTN_OK;
}

static double real_of(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void read_times(const json_t *array, struct attn_point *point)
{
    for (size_t t = 0; t < json_array_size(array) && point->n_warm < ATTN_RECORD_TIMES; t++)
        point->warm_s[point->n_warm++] = real_of(json_array_get(array, t));
}

/* Schema 1 had `cold_s`, and `time_s`: the calls after the first, or, where that one was long or
 * the only one, its time once more.  One time that is not the first call's is a call after it; one
 * without a first call beside it may be either. */
static void read_schema_1(const json_t *line, struct attn_point *point)
{
    double cpu_max = real_of(json_object_get(line, "cpu_max_s"));
    double cpu_sum = real_of(json_object_get(line, "cpu_sum_s"));
    point->first_s = real_of(json_object_get(line, "cold_s"));
    read_times(json_object_get(line, "time_s"), point);
    if (point->n_warm > 1 ||
        (point->n_warm == 1 && isfinite(point->first_s) && point->warm_s[0] != point->first_s)) {
        point->warm_cpu_max_s = cpu_max;
        point->warm_cpu_sum_s = cpu_sum;
        return;
    }
    if (point->n_warm == 1 && !isfinite(point->first_s))
        point->unknown_s = point->warm_s[0];
    point->n_warm = 0;
    if (isfinite(point->first_s)) {
        point->first_cpu_max_s = cpu_max;
        point->first_cpu_sum_s = cpu_sum;
    }
}

static void read_lists(json_t *line, struct attn_point *point)
{
    json_t *value;
    const char *name;
    if (json_integer_value(json_object_get(line, "schema")) == 1)
        read_schema_1(line, point);
    else
        read_times(json_object_get(line, "warm_s"), point);
    json_object_foreach(json_object_get(line, "live_bytes"), name,
                        value) if (point->n_live < ATTN_MAX_ACCOUNTS)
    {
        snprintf(point->live_name[point->n_live], sizeof point->live_name[0], "%s", name);
        point->live_bytes[point->n_live++] = json_integer_value(value);
    }
}

static enum attn_status point_from_json(json_t *line, struct attn_point *point,
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
    for (int f = 0; f < FIELDS; f++)
        if (read_field(line, &field_table[f], point, err) != ATTN_OK)
            return ATTN_EINVAL;
    read_lists(line, point);
    return attn_case_parse(point->text, &point->c, err);
}

/* What a line is: its JSON when it is a record of a known schema and of this kind, else NULL with
 * ATTN_OK (another kind, a newer schema) or EINVAL. */
static enum attn_status line_of_kind(const char *line, size_t size, const char *kind, json_t **json,
                                     struct attn_error *err)
{
    json_error_t where;
    json_t *any = json_loadb(line, size, 0, &where);
    *json = NULL;
    if (any == NULL)
        return attn_fail(err, ATTN_EINVAL, "not JSON: %s", where.text);
    const json_t *schema = json_object_get(any, "schema");
    const char *record = json_string_value(json_object_get(any, "record"));
    enum attn_status status = ATTN_OK;
    if (!json_is_integer(schema) || record == NULL)
        status = attn_fail(err, ATTN_EINVAL, "no record: \"schema\" and \"record\" are missing");
    else if (json_integer_value(schema) >= 1 && json_integer_value(schema) <= ATTN_RECORD_SCHEMA &&
             strcmp(record, kind) == 0)
        *json = json_incref(any);
    json_decref(any);
    return status;
}

enum attn_status attn_record_parse_point(const char *line, size_t size, struct attn_point *point,
                                         struct attn_error *err)
{
    json_t *json;
    enum attn_status status = line_of_kind(line, size, "point", &json, err);
    if (status == ATTN_OK && json == NULL)
        status = attn_fail(err, ATTN_EINVAL, "not a point of schema 1 to %d", ATTN_RECORD_SCHEMA);
    if (status == ATTN_OK)
        status = point_from_json(json, point, err);
    json_decref(json);
    return status;
}

/* ---- files -------------------------------------------------------------------------------- */

/* Calls take(arg, json) for every whole line of the kind. */
static enum attn_status each_line(const char *path, const char *kind,
                                  enum attn_status (*take)(void *arg, json_t *json,
                                                           struct attn_error *err),
                                  void *arg, struct attn_error *err)
{
    struct attn_error why = {0};
    FILE *file = attn_read_stream(path, ATTN_READ_GIVEN, &why);
    if (file == NULL)
        return attn_fail(err, why.status, "records %s", why.text);
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    enum attn_status status = ATTN_OK;
    for (int64_t number = 1; status == ATTN_OK && (size = getline(&line, &room, file)) > 0;
         number++) {
        if (line[size - 1] != '\n') /* torn: the writer died in the middle */
            break;
        json_t *json;
        status = line_of_kind(line, (size_t)size, kind, &json, &why);
        if (json != NULL)
            status = take(arg, json, &why);
        json_decref(json);
        if (status != ATTN_OK)
            attn_fail(err, status, "%s:%lld: %s", path, (long long)number, why.text);
    }
    if (status == ATTN_OK && !feof(file) && size < 0)
        status = attn_fail(err, attn_read_errno(errno), "records %s: %s", path, strerror(errno));
    free(line);
    fclose(file);
    return status;
}

struct points {
    struct attn_point *point;
    int64_t n;
    struct attn_record_index index;
};

static enum attn_status take_point(void *arg, json_t *json, struct attn_error *err)
{
    struct points *points = arg;
    if ((points->n & (points->n - 1)) == 0) { /* room doubles at every power of two */
        size_t room = points->n == 0 ? 1 : 2 * (size_t)points->n;
        struct attn_point *more = realloc(points->point, room * sizeof *more);
        if (more == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for %zu records", room);
        points->point = more;
    }
    struct attn_point *point = &points->point[points->n];
    enum attn_status status = point_from_json(json, point, err);
    if (status != ATTN_OK)
        return status;
    int64_t place = attn_record_index_place(&points->index, points->point, points->n);
    if (place < 0)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %lld records", (long long)points->n);
    if (place == points->n)
        points->n++;
    else
        points->point[place] = *point;
    return ATTN_OK;
}

static enum attn_status take_array(void *arg, json_t *json, struct attn_error *err)
{
    return json_array_append(arg, json) == 0 ? ATTN_OK
                                             : attn_fail(err, ATTN_ENOMEM, "no memory for records");
}

/* The lines of a kind as an array; NULL on failure. */
static json_t *lines_of_kind(const char *path, const char *kind, enum attn_status *status,
                             struct attn_error *err)
{
    json_t *array = json_array();
    *status = each_line(path, kind, take_array, array, err);
    if (*status == ATTN_OK)
        return array;
    json_decref(array);
    return NULL;
}

enum attn_status attn_record_read_kind(const char *path, const char *kind, char **array,
                                       struct attn_error *err)
{
    enum attn_status status;
    json_t *lines = lines_of_kind(path, kind, &status, err);
    *array = lines != NULL ? json_dumps(lines, JSON_COMPACT) : NULL;
    json_decref(lines);
    if (status == ATTN_OK && *array == NULL)
        status = attn_fail(err, ATTN_ENOMEM, "no memory for records");
    return status;
}

enum attn_status attn_record_read(const char *path, struct attn_point **points, int64_t *n,
                                  char **machine, struct attn_error *err)
{
    struct points found = {NULL, 0, {NULL, 0, 0}};
    enum attn_status status = each_line(path, "point", take_point, &found, err);
    attn_record_index_free(&found.index);
    *points = NULL;
    *n = 0;
    if (machine != NULL)
        *machine = NULL;
    if (status == ATTN_OK && machine != NULL) {
        json_t *lines = lines_of_kind(path, "machine", &status, err);
        size_t count = json_array_size(lines);
        if (count > 0)
            *machine = json_dumps(json_array_get(lines, count - 1), JSON_INDENT(2));
        json_decref(lines);
    }
    if (status != ATTN_OK) {
        free(found.point);
        return status;
    }
    *points = found.point;
    *n = found.n;
    return ATTN_OK;
}
