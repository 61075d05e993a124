/* A file of records: read whole, or opened by the one process that appends to it. */
#include "experiments/measure/record.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"

/* ---- reading ------------------------------------------------------------------------------ */

static enum attn_status take_point(struct attn_records *r, const json_t *json,
                                   struct attn_error *err)
{
    if ((r->n & (r->n - 1)) == 0) /* the capacity doubles at every power of two */
        r->point =
            attn_cli_need(realloc(r->point, (r->n == 0 ? 1 : 2 * (size_t)r->n) * sizeof *r->point));
    return attn_record_point(json, &r->point[r->n++], err);
}

static int same_machine(const json_t *a, const json_t *b)
{
    static const char *const facts[] = {"cpu", "cores_online", "memory_total_bytes"};
    for (size_t f = 0; f < sizeof facts / sizeof *facts; f++)
        if (!json_equal(json_object_get(a, facts[f]), json_object_get(b, facts[f])))
            return 0;
    return 1;
}

static enum attn_status take_line(struct attn_records *r, json_t *json, const char *kind,
                                  struct attn_error *err)
{
    if (strcmp(kind, "point") == 0)
        return take_point(r, json, err);
    if (strcmp(kind, "machine") == 0) {
        r->machines_differ |= r->machine != NULL && !same_machine(r->machine, json);
        json_decref(r->machine);
        r->machine = json_incref(json);
    }
    if (strcmp(kind, "calibration") == 0)
        json_array_append(r->calibration, json);
    if (strcmp(kind, "figure") == 0)
        json_array_append(r->labels, json);
    return ATTN_OK;
}

/* Of each point and round the last record goes to the place of the first; the others go. */
static void keep_latest(struct attn_records *r)
{
    char name[ATTN_POINT_NAME], key[ATTN_POINT_NAME + 16];
    json_t *place = json_object();
    int64_t n = 0;
    for (int64_t i = 0; i < r->n; i++) {
        attn_point_name(&r->point[i], name);
        snprintf(key, sizeof key, "%s\n%d", name, r->point[i].round);
        const json_t *first = json_object_get(place, key);
        if (first == NULL)
            json_object_set_new_nocheck(place, key, json_integer(n));
        r->point[first != NULL ? json_integer_value(first) : n++] = r->point[i];
    }
    r->n = n;
    json_decref(place);
}

static enum attn_status read_lines(FILE *file, const char *path, struct attn_records *r,
                                   struct attn_error *err)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    enum attn_status status = ATTN_OK;
    for (int64_t number = 1; status == ATTN_OK && (size = getline(&line, &capacity, file)) > 0;
         number++) {
        struct attn_error why = {0};
        const char *kind;
        if (line[size - 1] != '\n') /* torn: the writer died in the middle */
            break;
        json_t *json = attn_record_line(line, (size_t)size, &kind, &why);
        status = json == NULL   ? ATTN_EINVAL
                 : kind != NULL ? take_line(r, json, kind, &why)
                                : ATTN_OK;
        json_decref(json);
        if (status != ATTN_OK)
            attn_fail(err, status, "%s:%lld: %s", path, (long long)number, why.text);
    }
    if (status == ATTN_OK && !feof(file) && size < 0)
        status = attn_fail(err, attn_read_errno(errno), "records %s: %s", path, strerror(errno));
    free(line);
    return status;
}

enum attn_status attn_record_read(const char *path, struct attn_records *r, struct attn_error *err)
{
    struct attn_error why = {0};
    *r = (struct attn_records){0};
    FILE *file = attn_read_stream(path, ATTN_READ_GIVEN, &why);
    if (file == NULL)
        return attn_fail(err, why.status, "records %s", why.text);
    r->calibration = json_array();
    r->labels = json_array();
    enum attn_status status = read_lines(file, path, r, err);
    fclose(file);
    if (status == ATTN_OK)
        keep_latest(r);
    else
        attn_records_free(r);
    return status;
}

void attn_records_free(struct attn_records *r)
{
    free(r->point);
    json_decref(r->machine);
    json_decref(r->calibration);
    json_decref(r->labels);
    *r = (struct attn_records){0};
}

/* ---- appending: the one place that ever shortens such a file --------------------------------- */

static const char foreign[] = "not a file of records";

/* Cut off a torn last line.  A file of another program must not lose it: ours begin with
 * `head`. */
static const char *cut_torn_line(int fd, size_t size)
{
    static const char head[] = "{\"schema\":";
    const char *all = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (all == MAP_FAILED)
        return strerror(errno);
    const char *last = memrchr(all, '\n', size);
    size_t end = last != NULL ? (size_t)(last + 1 - all) : 0;
    int is_ours = memcmp(all, head, size < sizeof head - 1 ? size : sizeof head - 1) == 0;
    munmap((void *)(uintptr_t)all, size);
    if (!is_ours)
        return foreign;
    return end < size && ftruncate(fd, (off_t)end) != 0 ? strerror(errno) : NULL;
}

/* Lock it and cut off a torn line: why that cannot be done, or NULL. */
static const char *prepare(int fd)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return strerror(errno);
    if (S_ISCHR(about.st_mode)) /* such as /dev/null */
        return NULL;
    if (!S_ISREG(about.st_mode))
        return "not a file";
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return "another measurement is writing to it";
    return about.st_size > 0 ? cut_torn_line(fd, (size_t)about.st_size) : NULL;
}

FILE *attn_record_append(const char *path, struct attn_error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
    const char *why = fd < 0 ? strerror(errno) : prepare(fd);
    FILE *file = why == NULL ? fdopen(fd, "a") : NULL;
    if (file != NULL) {
        setvbuf(file, NULL, _IOFBF, 1 << 16); /* a line goes out in one piece */
        return file;
    }
    if (why == foreign)
        attn_fail(err, ATTN_EINVAL, "%s exists and is not a file of records: name another file",
                  path);
    else
        attn_fault(err, ATTN_ENOMEM, path, "records cannot be added: %s",
                   why != NULL ? why : strerror(errno));
    if (fd >= 0)
        close(fd);
    return NULL;
}
