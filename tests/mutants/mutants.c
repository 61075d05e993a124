/* See mutants.h. */
#include "tests/mutants/mutants.h"

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/bugs.h"
#include "tests/harness/faults/diagnose.h"
#include "tests/harness/process.h"

/* ---- the lists ------------------------------------------------------------------------------ */

static int begins_item(const char *line)
{
    return (line[0] >= 'A' && line[0] <= 'Z') || (line[0] >= 'a' && line[0] <= 'z');
}

/* Items that begin with a letter in the first column, and lines that belong to them. */
static int read_items(const char *path, size_t size, void (*take)(void *item, const char *line),
                      void **list)
{
    char line[1200], *items = NULL;
    int n = 0;
    FILE *file = fopen(path, "r");
    *list = NULL;
    if (file == NULL)
        return -1;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (begins_item(line)) {
            char *more = realloc(items, (size_t)(n + 1) * size);
            if (more == NULL)
                break;
            items = more;
            memset(items + (size_t)n++ * size, 0, size);
        }
        if (n > 0)
            take(items + (size_t)(n - 1) * size, line);
    }
    fclose(file);
    *list = items;
    return n;
}

static void take_mutant(void *item, const char *line)
{
    struct mutant *m = item;
    if (strncmp(line, "  # ", 4) == 0)
        snprintf(m->why, sizeof m->why, "%.250s", line + 4);
    else if (strncmp(line, "  ! ", 4) == 0)
        snprintf(m->kind, sizeof m->kind, "%.15s", line + 4);
    else if (strncmp(line, "  = ", 4) == 0)
        snprintf(m->proof, sizeof m->proof, "%.250s", line + 4);
    if (!begins_item(line))
        return;
    if (sscanf(line, "%15s %63s %63s %63s", m->id, m->spec, m->unit, m->where) < 4)
        memcpy(m->where, m->unit, sizeof m->where);
    memcpy(m->bug, m->id, sizeof m->bug);
    size_t n = strlen(m->bug);
    if (n > 0 && m->bug[n - 1] >= 'a' && m->bug[n - 1] <= 'z')
        m->bug[n - 1] = '\0';
}

int mutants_read(struct mutant **list)
{
    void *items;
    int n = read_items("tests/mutants/mutants.def", sizeof **list, take_mutant, &items);
    *list = items;
    return n;
}

int mutant_is_numeric(const struct mutant *m)
{
    return m->proof[0] == '\0' && m->kind[0] == '\0';
}

static void take_family(void *item, const char *line)
{
    struct family *f = item;
    size_t used = strlen(f->words);
    if (begins_item(line))
        sscanf(line, "%31s %511[^\n]", f->name, f->ids);
    else if (strncmp(line, "  | ", 4) == 0)
        snprintf(f->words + used, NAMING_WORDS - used, "%s%s", used > 0 ? "|" : "", line + 4);
}

int families_read(struct family **list)
{
    void *items;
    int n = read_items("tests/mutants/families.def", sizeof **list, take_family, &items);
    *list = items;
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

/* ---- a walk --------------------------------------------------------------------------------- */

static void run_child(void *arg)
{
    struct mutant_walk *w = arg;
    struct attn_spec spec;
    struct attn_error err = {0};
    enum attn_status (*parse)(const char *, struct attn_spec *, struct attn_error *) =
        attn_spec_parse;
    signal(SIGALRM, SIG_DFL); /* Check's own would end the whole test */
    if (w->shared[0] != '\0') {
        void *library = dlopen(w->shared, RTLD_NOW | RTLD_LOCAL);
        parse = NULL;
        if (library != NULL) /* ISO C has no cast from object to function pointers */
            *(void **)&parse = dlsym(library, "attn_spec_parse");
    }
    if (parse == NULL)
        snprintf(w->error, sizeof w->error, "%.250s", dlerror());
    else if (parse(w->spec, &spec, &err) != ATTN_OK)
        snprintf(w->error, sizeof w->error, "%.250s", err.text);
    else
        while (w->at < w->n && w->visit(w, &spec))
            w->at++;
}

void mutant_walk(struct mutant_walk *walk, size_t size)
{
    struct attn_process p = {.exit_status = -1};
    struct mutant_walk *shared =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int go_on = shared != MAP_FAILED;
    if (go_on)
        memcpy(shared, walk, size);
    else
        snprintf(walk->error, sizeof walk->error, "no memory to share with a child");
    while (go_on) {
        p = (struct attn_process){0};
        if (attn_process_fork(run_child, shared, (double)INFINITY, &p) != 0) {
            snprintf(shared->error, sizeof shared->error, "no child process");
            break;
        }
        if (p.exit_status == 0)
            break;
        go_on = shared->died(shared, p.signal == SIGALRM);
        shared->at++;
    }
    if (shared == MAP_FAILED)
        return;
    memcpy(walk, shared, size);
    munmap(shared, size);
}

int mutant_run_case(const struct attn_spec *spec, const struct attn_battery_case *battery,
                    struct attn_case *c, struct attn_result *result)
{
    struct attn_setup setup;
    if (attn_case_parse(battery->text, c, NULL) != ATTN_OK ||
        attn_setup_open(c, &setup, NULL) != ATTN_OK)
        return 0; /* test_cases.c says so */
    setup.unweighed = 1;
    alarm(MUTANT_SECONDS);
    attn_run_setup(spec, &setup, NULL, result);
    alarm(0);
    attn_setup_close(&setup);
    return 1;
}

/* ---- killing -------------------------------------------------------------------------------- */

/* Twice through the battery: first the cases that name the bug, then the others. */
struct battery_walk {
    struct mutant_walk walk;
    const struct mutant *mutant;
    struct kill kill;
    struct naming naming;
    int late, died, most;
    char shared[512];
};

/* Every case keeps the books: none names the bugs of memory, and any will do. */
static int is_own(const struct mutant *mutant, const struct attn_battery_case *c)
{
    return strcmp(mutant->kind, "memory") == 0 || attn_bug_is_named(c->ids, mutant->bug);
}

/* NULL where the walk passes by a case that comes in the other round. */
static const struct attn_battery_case *case_at(const struct battery_walk *x)
{
    int n = attn_battery_count();
    const struct attn_battery_case *battery = attn_battery_at(x->walk.at % n);
    return is_own(x->mutant, battery) == (x->walk.at < n) ? battery : NULL;
}

static void walk_battery(struct battery_walk *x, const struct mutant *mutant, const char *folder)
{
    snprintf(x->shared, sizeof x->shared, "%s/%s.so", folder, mutant->id);
    x->mutant = mutant;
    x->walk.shared = x->shared;
    x->walk.spec = mutant->spec;
    x->walk.n = 2 * attn_battery_count();
    mutant_walk(&x->walk, sizeof *x);
}

static int is_numeric(enum attn_failure how)
{
    return how == ATTN_F_FINITE || how == ATTN_F_EXACT || how == ATTN_F_BOUND;
}

static void note(struct battery_walk *x, const char *how, int numeric)
{
    struct kill *kill = &x->kill;
    const struct attn_battery_case *battery = attn_battery_at(x->walk.at % attn_battery_count());
    if (x->mutant->kind[0] == '\0' ? numeric : strcmp(how, x->mutant->kind) == 0) {
        kill->killer = battery;
        kill->own = is_own(x->mutant, battery);
        snprintf(kill->how, sizeof kill->how, "%s", how);
    } else if (kill->other == NULL) {
        kill->other = battery;
        snprintf(kill->other_how, sizeof kill->other_how, "%s", how);
    }
}

static int try_to_kill(struct mutant_walk *walk, const struct attn_spec *spec)
{
    struct battery_walk *x = (struct battery_walk *)walk;
    const struct attn_battery_case *battery = case_at(x);
    struct attn_result *r = &x->kill.result;
    struct attn_case c;
    if (battery == NULL || !mutant_run_case(spec, battery, &c, r))
        return 1;
    x->kill.cases++;
    if (r->verdict == ATTN_FAILED)
        note(x, attn_failure_name(r->failure), is_numeric(r->failure));
    return x->kill.killer == NULL;
}

static int note_death(struct mutant_walk *walk, int late)
{
    struct battery_walk *x = (struct battery_walk *)walk;
    x->late += late;
    note(x, late ? "time limit" : "crash", 0);
    return x->kill.killer == NULL && x->late <= 1;
}

void mutant_kill(const struct mutant *mutant, const char *folder, struct kill *kill)
{
    struct battery_walk x = {.walk = {.visit = try_to_kill, .died = note_death}};
    walk_battery(&x, mutant, folder);
    *kill = x.kill;
    memcpy(kill->error, x.walk.error, sizeof kill->error);
    for (int i = 0; i < attn_battery_count(); i++)
        kill->own_cases += is_own(mutant, attn_battery_at(i));
}

/* ---- naming --------------------------------------------------------------------------------- */

/* The cases that name the bug, then, unless one of those fails, the others. */
static int diagnose(struct mutant_walk *walk, const struct attn_spec *spec)
{
    struct battery_walk *x = (struct battery_walk *)walk;
    const struct attn_battery_case *battery = case_at(x);
    struct naming *naming = &x->naming;
    struct attn_diagnosis diagnosis;
    struct attn_case c;
    struct attn_result r;
    if (walk->at >= attn_battery_count() && naming->n > 0)
        return 0;
    if (battery == NULL || !mutant_run_case(spec, battery, &c, &r))
        return 1;
    naming->cases++;
    if (r.verdict != ATTN_FAILED || !is_numeric(r.failure))
        return 1;
    if (naming->killer == NULL)
        naming->killer = battery;
    naming->battery[naming->n] = battery;
    alarm(MUTANT_SECONDS);
    attn_diagnose_case(spec, NULL, &c, &r, &diagnosis);
    alarm(0);
    memcpy(naming->text[naming->n++], diagnosis.text, sizeof naming->text[0]);
    return naming->n < x->most;
}

static int pass_over(struct mutant_walk *walk, int late)
{
    (void)late;
    return ++((struct battery_walk *)walk)->died <= 3;
}

void mutant_diagnose(const struct mutant *mutant, const char *folder, int most,
                     struct naming *naming)
{
    struct battery_walk x = {.walk = {.visit = diagnose, .died = pass_over},
                             .most = most < NAMING_CASES ? most : NAMING_CASES};
    walk_battery(&x, mutant, folder);
    *naming = x.naming;
    memcpy(naming->error, x.walk.error, sizeof naming->error);
}
