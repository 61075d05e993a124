/* See kill.h. */
#include "tests/mutants/kill.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mutants_read(struct mutant **list)
{
    char line[1024];
    int n = 0;
    FILE *file = fopen("tests/mutants/mutants.def", "r");
    *list = NULL;
    if (file == NULL)
        return -1;
    while (fgets(line, sizeof line, file) != NULL) {
        char unit[64], changed[64];
        line[strcspn(line, "\n")] = '\0';
        if (line[0] >= 'A' && line[0] <= 'Z') {
            struct mutant *more = realloc(*list, (size_t)(n + 1) * sizeof *more);
            if (more == NULL)
                break;
            *list = more;
            memset(&more[n], 0, sizeof more[n]);
            int words =
                sscanf(line, "%15s %63s %63s %63s", more[n].id, more[n].spec, unit, changed);
            snprintf(more[n].where, sizeof more[n].where, "%s", words == 4 ? changed : unit);
            n++;
        } else if (n > 0 && strncmp(line, "  # ", 4) == 0)
            snprintf((*list)[n - 1].why, sizeof(*list)[n - 1].why, "%.250s", line + 4);
    }
    fclose(file);
    return n;
}

static int is_numeric(const struct attn_result *r)
{
    return r->verdict == ATTN_FAILED && (r->failure == ATTN_F_FINITE ||
                                         r->failure == ATTN_F_EXACT || r->failure == ATTN_F_BOUND);
}

static void run_battery(const struct attn_spec *spec, struct kill *kill)
{
    for (int i = 0; i < attn_battery_count() && kill->killer == NULL; i++) {
        const struct attn_battery_case *battery = attn_battery_at(i);
        struct attn_case c;
        struct attn_error err = {0};
        if (attn_case_parse(battery->text, &c, &err) != ATTN_OK)
            continue; /* test_cases.c says so */
        attn_run_case(spec, &c, &kill->result);
        kill->cases++;
        if (is_numeric(&kill->result))
            kill->killer = battery;
        else if (kill->result.verdict == ATTN_FAILED && kill->other == NULL)
            kill->other = battery;
    }
}

void mutant_kill(const struct mutant *mutant, const char *folder, struct kill *kill)
{
    char path[512];
    struct attn_spec spec;
    struct attn_error err = {0};
    memset(kill, 0, sizeof *kill);
    snprintf(path, sizeof path, "%s/%s.so", folder, mutant->id);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    enum attn_status (*parse)(const char *, struct attn_spec *, struct attn_error *) = NULL;
    if (library != NULL) /* ISO C has no cast from object to function pointers */
        *(void **)&parse = dlsym(library, "attn_spec_parse");
    if (parse == NULL) {
        snprintf(kill->error, sizeof kill->error, "%.250s", dlerror());
        return;
    }
    if (parse(mutant->spec, &spec, &err) != ATTN_OK) {
        snprintf(kill->error, sizeof kill->error, "%.250s", err.text);
        return;
    }
    run_battery(&spec, kill);
}
