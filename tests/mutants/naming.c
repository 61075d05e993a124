/* See naming.h. */
#include "tests/mutants/naming.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/bugs.h"
#include "tests/harness/faults/diagnose.h"

/* ---- families -------------------------------------------------------------------------------- */

int families_read(struct family **list)
{
    char line[1200];
    int n = 0;
    FILE *file = fopen("tests/mutants/families.def", "r");
    *list = NULL;
    if (file == NULL)
        return -1;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] >= 'a' && line[0] <= 'z') {
            struct family *more = realloc(*list, (size_t)(n + 1) * sizeof *more);
            if (more == NULL)
                break;
            *list = more;
            memset(&more[n], 0, sizeof more[n]);
            sscanf(line, "%31s %511[^\n]", more[n].name, more[n].ids);
            n++;
        } else if (n > 0 && strncmp(line, "  | ", 4) == 0) {
            char *words = (*list)[n - 1].words;
            size_t used = strlen(words);
            snprintf(words + used, NAMING_WORDS - used, "%s%s", used > 0 ? "|" : "", line + 4);
        }
    }
    fclose(file);
    return n;
}

/* Whether `ids`, separated by blanks, has this word. */
static int lists(const char *ids, const char *word, size_t n)
{
    for (const char *at = ids; *at != '\0'; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (length == n && strncmp(at, word, n) == 0)
            return 1;
        at += length;
    }
    return 0;
}

const struct family *family_of(const struct family *list, int n, const struct mutant *m)
{
    const char *const as[] = {m->id, m->bug, m->id};
    const size_t length[] = {strlen(m->id), strlen(m->bug), strcspn(m->id, "-")};
    for (int way = 0; way < 3; way++)
        for (int f = 0; f < n; f++)
            if (lists(list[f].ids, as[way], length[way]))
                return &list[f];
    return NULL;
}

int family_is_named(const struct family *family, const char *diagnosis)
{
    char word[NAMING_WORDS];
    for (const char *at = family->words; *at != '\0'; at += *at == '|') {
        size_t n = strcspn(at, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        if (n > 0 && strstr(diagnosis, word) != NULL)
            return 1;
        at += n;
    }
    return 0;
}

int naming_hits(const struct naming *naming, const struct family *family)
{
    int hits = 0;
    for (int n = 0; n < naming->n; n++)
        hits += family_is_named(family, naming->text[n]);
    return hits;
}

/* ---- one mutant, in a child ------------------------------------------------------------------ */

struct shared {
    int at, died, most;
    struct naming naming;
};

static void diagnose_one(const struct attn_spec *spec, const struct attn_battery_case *battery,
                         struct naming *naming)
{
    struct attn_case c;
    struct attn_result r;
    if (attn_case_parse(battery->text, &c, NULL) != ATTN_OK)
        return; /* test_cases.c says so */
    alarm(MUTANT_SECONDS);
    attn_run_case(spec, &c, &r);
    if (r.verdict == ATTN_FAILED &&
        (r.failure == ATTN_F_FINITE || r.failure == ATTN_F_EXACT || r.failure == ATTN_F_BOUND)) {
        naming->battery[naming->n] = battery;
        struct attn_diagnosis diagnosis;
        attn_diagnose_case(spec, NULL, &c, &r, &diagnosis);
        memcpy(naming->text[naming->n], diagnosis.text, sizeof naming->text[0]);
        naming->n++;
    }
    alarm(0);
}

/* The cases that name the bug, then, unless one of those fails, the others. */
static void diagnose_some(const struct mutant *m, const struct attn_spec *spec, struct shared *s)
{
    int n = attn_battery_count();
    for (; s->at < 2 * n && s->naming.n < s->most; s->at++) {
        const struct attn_battery_case *battery = attn_battery_at(s->at % n);
        if (s->at >= n && s->naming.n > 0)
            return;
        if (attn_bug_is_named(battery->ids, m->bug) == (s->at < n))
            diagnose_one(spec, battery, &s->naming);
    }
}

static void run_child(const struct mutant *m, const char *folder, struct shared *s)
{
    char path[512];
    struct attn_spec spec;
    struct attn_error err = {0};
    signal(SIGALRM, SIG_DFL); /* Check's own would end the whole test */
    snprintf(path, sizeof path, "%s/%s.so", folder, m->id);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    enum attn_status (*parse)(const char *, struct attn_spec *, struct attn_error *) = NULL;
    if (library != NULL) /* ISO C has no cast from object to function pointers */
        *(void **)&parse = dlsym(library, "attn_spec_parse");
    if (parse == NULL)
        snprintf(s->naming.error, sizeof s->naming.error, "%.250s", dlerror());
    else if (parse(m->spec, &spec, &err) != ATTN_OK)
        snprintf(s->naming.error, sizeof s->naming.error, "%.250s", err.text);
    else
        diagnose_some(m, &spec, s);
}

/* Returns whether there is nothing left to run; a case that ends its child is passed over. */
static int run_once(const struct mutant *m, const char *folder, struct shared *s)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        run_child(m, folder, s);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        snprintf(s->naming.error, sizeof s->naming.error, "no child process");
        return 1;
    }
    s->at++;
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0) || ++s->died > 3;
}

void mutant_diagnose(const struct mutant *mutant, const char *folder, int most,
                     struct naming *naming)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(naming, 0, sizeof *naming);
    if (shared == MAP_FAILED) {
        snprintf(naming->error, sizeof naming->error, "no memory to share with a child");
        return;
    }
    shared->most = most < NAMING_CASES ? most : NAMING_CASES;
    while (!run_once(mutant, folder, shared))
        ;
    *naming = shared->naming;
    munmap(shared, sizeof *shared);
}
