/* See kill.h. */
#include "tests/mutants/kill.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/bugs.h"

/* ---- the list ------------------------------------------------------------------------------- */

static void read_head(const char *line, struct mutant *m)
{
    memset(m, 0, sizeof *m);
    int words = sscanf(line, "%15s %63s %63s %63s", m->id, m->spec, m->unit, m->where);
    if (words < 4)
        memcpy(m->where, m->unit, sizeof m->where);
    memcpy(m->bug, m->id, sizeof m->bug);
    size_t n = strlen(m->bug);
    if (n > 0 && m->bug[n - 1] >= 'a' && m->bug[n - 1] <= 'z')
        m->bug[n - 1] = '\0';
}

int mutants_read(struct mutant **list)
{
    char line[1024];
    int n = 0;
    FILE *file = fopen("tests/mutants/mutants.def", "r");
    *list = NULL;
    if (file == NULL)
        return -1;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] >= 'A' && line[0] <= 'Z') {
            struct mutant *more = realloc(*list, (size_t)(n + 1) * sizeof *more);
            if (more == NULL)
                break;
            *list = more;
            read_head(line, &more[n++]);
        } else if (n > 0 && strncmp(line, "  # ", 4) == 0)
            snprintf((*list)[n - 1].why, sizeof(*list)[n - 1].why, "%.250s", line + 4);
        else if (n > 0 && strncmp(line, "  ! ", 4) == 0)
            snprintf((*list)[n - 1].kind, sizeof(*list)[n - 1].kind, "%.15s", line + 4);
        else if (n > 0 && strncmp(line, "  = ", 4) == 0)
            snprintf((*list)[n - 1].proof, sizeof(*list)[n - 1].proof, "%.250s", line + 4);
    }
    fclose(file);
    return n;
}

/* ---- one mutant, in a child ----------------------------------------------------------------- */

/* What parent and child share.  `at` is where the child is: twice through the battery, first the
 * cases that name the bug, then the others. */
struct shared {
    int at, late;
    struct kill kill;
};

/* Every case keeps the books: none names the bugs of memory, and any will do. */
static int is_own(const struct mutant *mutant, const struct attn_battery_case *c)
{
    return strcmp(mutant->kind, "memory") == 0 || attn_bug_is_named(c->ids, mutant->bug);
}

/* Numbers kill those that have no kind, their kind the others. */
static int kills(const struct mutant *mutant, const char *how)
{
    if (mutant->kind[0] != '\0')
        return strcmp(how, mutant->kind) == 0;
    return strcmp(how, attn_failure_name(ATTN_F_FINITE)) == 0 ||
           strcmp(how, attn_failure_name(ATTN_F_EXACT)) == 0 ||
           strcmp(how, attn_failure_name(ATTN_F_BOUND)) == 0;
}

static void note(const struct mutant *mutant, const struct attn_battery_case *battery,
                 const char *how, struct kill *kill)
{
    if (kills(mutant, how)) {
        kill->killer = battery;
        kill->own = is_own(mutant, battery);
        snprintf(kill->how, sizeof kill->how, "%s", how);
    } else if (kill->other == NULL) {
        kill->other = battery;
        snprintf(kill->other_how, sizeof kill->other_how, "%s", how);
    }
}

static void run_one(const struct mutant *mutant, const struct attn_spec *spec,
                    const struct attn_battery_case *battery, struct kill *kill)
{
    struct attn_case c;
    struct attn_error err = {0};
    if (attn_case_parse(battery->text, &c, &err) != ATTN_OK)
        return; /* test_cases.c says so */
    alarm(MUTANT_SECONDS);
    attn_run_case(spec, &c, &kill->result);
    alarm(0);
    kill->cases++;
    if (kill->result.verdict == ATTN_FAILED)
        note(mutant, battery, attn_failure_name(kill->result.failure), kill);
}

static void run_battery(const struct mutant *mutant, const struct attn_spec *spec,
                        struct shared *shared)
{
    int n = attn_battery_count();
    for (; shared->at < 2 * n && shared->kill.killer == NULL; shared->at++) {
        const struct attn_battery_case *battery = attn_battery_at(shared->at % n);
        if (is_own(mutant, battery) == (shared->at < n))
            run_one(mutant, spec, battery, &shared->kill);
    }
}

static void run_child(const struct mutant *mutant, const char *folder, struct shared *shared)
{
    char path[512];
    struct attn_spec spec;
    struct attn_error err = {0};
    snprintf(path, sizeof path, "%s/%s.so", folder, mutant->id);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    enum attn_status (*parse)(const char *, struct attn_spec *, struct attn_error *) = NULL;
    if (library != NULL) /* ISO C has no cast from object to function pointers */
        *(void **)&parse = dlsym(library, "attn_spec_parse");
    if (parse == NULL)
        snprintf(shared->kill.error, sizeof shared->kill.error, "%.250s", dlerror());
    else if (parse(mutant->spec, &spec, &err) != ATTN_OK)
        snprintf(shared->kill.error, sizeof shared->kill.error, "%.250s", err.text);
    else
        run_battery(mutant, &spec, shared);
}

/* Run a child from shared->at on.  Returns whether there is nothing left to run. */
static int run_once(const struct mutant *mutant, const char *folder, struct shared *shared)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        run_child(mutant, folder, shared);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        snprintf(shared->kill.error, sizeof shared->kill.error, "no child process");
        return 1;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 1;
    int late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    shared->late += late;
    note(mutant, attn_battery_at(shared->at % attn_battery_count()), late ? "time limit" : "crash",
         &shared->kill);
    shared->at++;
    return shared->kill.killer != NULL || shared->late > 1;
}

void mutant_kill(const struct mutant *mutant, const char *folder, struct kill *kill)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(kill, 0, sizeof *kill);
    if (shared == MAP_FAILED) {
        snprintf(kill->error, sizeof kill->error, "no memory to share with a child");
        return;
    }
    while (!run_once(mutant, folder, shared))
        ;
    *kill = shared->kill;
    for (int i = 0; i < attn_battery_count(); i++)
        kill->own_cases += is_own(mutant, attn_battery_at(i));
    munmap(shared, sizeof *shared);
}
