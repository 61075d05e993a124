#include "experiments/report/sources.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"

/* ---- names ----------------------------------------------------------------------------------- */

/* A processor's name without what many have: "AMD EPYC 7B13 64-Core Processor" is "AMD EPYC 7B13",
 * "Intel(R) Xeon(R) CPU @ 2.80GHz" is "Intel Xeon". */
static void put_processor(const char *name, char *text, size_t size)
{
    for (size_t n; *(name += strspn(name, " ")) != '\0' && *name != '@'; name += n) {
        n = strcspn(name, " ");
        const char *core = strstr(name, "-Core");
        int is_noise = strncmp(name, "CPU", n) == 0 || strncmp(name, "Processor", n) == 0 ||
                       (core != NULL && core < name + n);
        if (!is_noise)
            attn_append(text, size, "%s%.*s", text[0] != '\0' ? " " : "", (int)strcspn(name, " ("),
                        name);
    }
}

/* A fact of the machine line, in the words of a legend. */
static void put_fact(const json_t *machine, const char *key, char *text, size_t size)
{
    char number[32];
    const json_t *value = json_object_get(machine, key);
    const char *word = json_string_value(value);
    json_int_t n = json_integer_value(value);
    if (strcmp(key, "cpu") == 0 && word != NULL)
        put_processor(word, text, size);
    else if (strcmp(key, "cores_online") == 0 && json_is_integer(value))
        attn_append(text, size, "%lld core%s", (long long)n, n == 1 ? "" : "s");
    else if (strcmp(key, "memory_total_bytes") == 0 && json_is_integer(value))
        attn_append(text, size, "%s", attn_cli_bytes(n, number));
    else
        attn_append(text, size, "%.40s", word != NULL ? word : "unknown");
}

int attn_sources_differ(const struct attn_sources *s, const char *key)
{
    for (int f = 1; f < s->n; f++) {
        const json_t *a = json_object_get(s->machine[0], key);
        const json_t *b = json_object_get(s->machine[f], key);
        if (a != b && !json_equal(a, b))
            return 1;
    }
    return 0;
}

static int has_equal_names(const struct attn_sources *s)
{
    for (int f = 0; f < s->n; f++)
        for (int g = 0; g < f; g++)
            if (strcmp(s->name[f], s->name[g]) == 0)
                return 1;
    return 0;
}

/* Add a fact to all names; a comma would end the spec in a legend. */
static void add_fact(struct attn_sources *s, const char *key)
{
    for (int f = 0; f < s->n; f++) {
        char fact[ATTN_SOURCE_NAME] = "";
        put_fact(s->machine[f], key, fact, sizeof fact);
        attn_append(s->name[f], sizeof s->name[f], "%s%s", s->name[f][0] != '\0' ? " / " : "",
                    fact);
    }
}

/* The machine if it differs, the program if it does; where that is not enough, the file. */
static void name_files(struct attn_sources *s)
{
    static const char *const facts[] = {"cpu", "cores_online", "memory_total_bytes"}; /* machine */
    for (size_t f = 0; f < sizeof facts / sizeof *facts; f++)
        if (attn_sources_differ(s, facts[f])) {
            s->all.machines_differ = 1;
            if (has_equal_names(s))
                add_fact(s, facts[f]);
        }
    const char *program = attn_sources_differ(s, "version") ? "version" : "build";
    if (attn_sources_differ(s, program))
        add_fact(s, program);
    for (int with_folder = 0; with_folder < 2 && has_equal_names(s); with_folder++)
        for (int f = 0; f < s->n; f++) {
            const char *slash = with_folder ? NULL : strrchr(s->path[f], '/');
            const char *file = slash != NULL ? slash + 1 : s->path[f];
            size_t most = sizeof s->name[f] / 2, n = strlen(file);
            attn_append(s->name[f], sizeof s->name[f], "%s%s", s->name[f][0] != '\0' ? " / " : "",
                        n < most ? file : file + n - most);
        }
    for (int f = 0; f < s->n && has_equal_names(s); f++) /* long paths with the same ends */
        (void)snprintf(s->name[f], sizeof s->name[f], "file %d", f + 1);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Move the points and lines of a file behind those of the others. */
static enum attn_status join(struct attn_sources *s, struct attn_records *r, const char *origin,
                             struct attn_error *err)
{
    struct attn_records *all = &s->all;
    all->point = attn_cli_need(
        realloc(all->point, ((size_t)all->n + (size_t)r->n + 1) * sizeof *all->point));
    for (int64_t i = 0; i < r->n; i++) {
        all->point[all->n] = r->point[i];
        all->point[all->n++].origin = origin;
    }
    if (all->calibration == NULL) {
        all->calibration = json_array();
        all->figures = json_array();
    }
    int failed = json_array_extend(all->calibration, r->calibration) != 0 ||
                 json_array_extend(all->figures, r->figures) != 0;
    all->machines_differ |= r->machines_differ;
    json_decref(all->machine);
    all->machine = json_incref(r->machine);
    s->machine[s->n++] = json_incref(r->machine);
    attn_records_free(r);
    return failed ? attn_fail(err, ATTN_ENOMEM, "no memory for records") : ATTN_OK;
}

enum attn_status attn_sources_read(const char *const *path, int n, struct attn_sources *s,
                                   struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    memset(s, 0, sizeof *s);
    if (n > ATTN_SOURCES_MOST)
        return attn_fail(err, ATTN_EINVAL, "%d files of records: at most %d stand side by side", n,
                         ATTN_SOURCES_MOST);
    for (int f = 0; f < n; f++)
        for (int g = 0; g < f; g++)
            if (strcmp(path[f], path[g]) == 0)
                return attn_fail(err, ATTN_EINVAL, "%s is given twice", path[f]);
    for (int f = 0; f < n && status == ATTN_OK; f++) {
        struct attn_records one;
        s->path[f] = path[f];
        status = attn_record_read(path[f], &one, err);
        if (status == ATTN_OK)
            status = join(s, &one, n > 1 ? s->name[f] : NULL, err);
    }
    if (status != ATTN_OK)
        attn_sources_free(s);
    else if (n > 1)
        name_files(s);
    return status;
}

void attn_sources_free(struct attn_sources *s)
{
    for (int f = 0; f < s->n; f++)
        json_decref(s->machine[f]);
    attn_records_free(&s->all);
    memset(s, 0, sizeof *s);
}
