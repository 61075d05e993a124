/* See mutants.h. */
#include "tests/mutants/mutants.h"

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/harness/base/process.h"
#include "tests/harness/cases/factors.h"
#include "tests/harness/diagnosis/bugs.h"
#include "tests/harness/diagnosis/diagnose.h"

/* ---- the lists ------------------------------------------------------------------------------ */

static int begins_mutant(const char *line)
{
    return line[0] >= 'A' && line[0] <= 'Z';
}

/* A line of mutants.def, of the mutant that began last. */
static void take_line(struct mutant *m, const char *line)
{
    if (strncmp(line, "  # ", 4) == 0)
        snprintf(m->why, sizeof m->why, "%.250s", line + 4);
    else if (strncmp(line, "  ! ", 4) == 0)
        snprintf(m->kind, sizeof m->kind, "%.15s", line + 4);
    else if (strncmp(line, "  = ", 4) == 0)
        snprintf(m->proof, sizeof m->proof, "%.250s", line + 4);
    else if (strncmp(line, "  ~ ", 4) == 0)
        snprintf(m->lives, sizeof m->lives, "%.15s", line + 4);
    if (!begins_mutant(line))
        return;
    if (sscanf(line, "%15s %63s %63s %63s", m->id, m->spec, m->unit, m->where) < 4)
        memcpy(m->where, m->unit, sizeof m->where);
    memcpy(m->bug, m->id, sizeof m->bug);
    size_t n = strlen(m->bug);
    if (n > 0 && m->bug[n - 1] >= 'a' && m->bug[n - 1] <= 'z')
        m->bug[n - 1] = '\0';
}

int mutants_read(struct mutant **list, int *equivalent)
{
    char line[1200];
    int n = 0;
    FILE *file = fopen("tests/mutants/mutants.def", "r");
    *list = NULL;
    if (file == NULL)
        return -1;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (begins_mutant(line)) {
            struct mutant *more = realloc(*list, (size_t)(n + 1) * sizeof *more);
            if (more == NULL)
                break;
            *list = more;
            more[n++] = (struct mutant){.id = ""};
        }
        if (n > 0)
            take_line(&(*list)[n - 1], line);
    }
    fclose(file);
    for (*equivalent = 0; *equivalent < n && (*list)[n - 1 - *equivalent].proof[0] != '\0';)
        ++*equivalent;
    return n;
}

int mutant_is_numeric(const struct mutant *m)
{
    return m->proof[0] == '\0' && m->kind[0] == '\0';
}

const struct family mutant_families[MUTANT_FAMILIES] = {
#define MUTANT_FAMILY(name, ids, words) {name, ids, words},
#include "tests/mutants/families.def"
};

/* 1: `ids`, separated by blanks, has this word; 0: it has not. */
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

int mutant_lives_in(const struct mutant *m, enum attn_dtype type)
{
    const char *name = attn_dtype_name(type);
    return m->proof[0] != '\0' || lists(m->lives, name, strlen(name));
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
    char word[64];
    for (const char *at = family->words; *at != '\0'; at += *at == '|') {
        size_t n = strcspn(at, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        if (n > 0 && strstr(diagnosis, word) != NULL)
            return 1;
        at += n;
    }
    return 0;
}

/* ---- a run ---------------------------------------------------------------------------------- */

/* Seconds of the processor in a case, which a loaded machine does not shorten; and of the clock,
 * for what waits for ever and uses none.  Unless all is asked for: the most work of a case that is
 * diagnosed, which takes as long as a hundred runs of it, and of how many cases one is asked of
 * several mutants. */
enum {
    CASE_SECONDS = 20,
    STUCK_SECONDS = 600,
    DEATHS = 3,
    DIAGNOSED_WORK = 300000,
    SEVERAL_EVERY = 4
};

static int asks_all(void)
{
    return getenv("ATTN_FULL") != NULL;
}

static void limit_case(int is_on)
{
    const struct itimerval processor = {.it_value.tv_sec = is_on ? CASE_SECONDS : 0};
    setitimer(ITIMER_VIRTUAL, &processor, NULL);
    alarm(is_on ? STUCK_SECONDS : 0);
}

/* Twice through the battery: first the cases that name the bug, then the others.  In memory that
 * is shared with the child, which goes on where the one before it died. */
struct run {
    const struct mutant *mutant; /* n of them, side by side: the truth of a case serves them all */
    int n, now;
    const char *folder;
    int at, most;
    int type; /* as mutants_run has it */
    struct fate fate[MUTANTS_AT_ONCE];
};

/* Every case keeps the books: none names the bugs of memory, and any will do. */
static int is_own(const struct mutant *mutant, const struct attn_battery_case *c)
{
    return strcmp(mutant->kind, "memory") == 0 || attn_bug_is_named(c->ids, mutant->bug);
}

static const struct attn_battery_case *case_of_turn(const struct run *x)
{
    return attn_battery_at(x->at % attn_battery_count(ATTN_TIER_QUICK));
}

/* A failure: of its kind it kills. */
static void note(struct run *x, const char *how, int numeric)
{
    struct fate *fate = &x->fate[x->now];
    const struct mutant *mutant = &x->mutant[x->now];
    const struct attn_battery_case *battery = case_of_turn(x);
    int by_number = mutant->kind[0] == '\0' || x->type != MUTANTS_AS_WRITTEN;
    int kills = (by_number && numeric) || strcmp(how, mutant->kind) == 0;
    if (kills && fate->killer == NULL) {
        fate->killer = battery;
        fate->own = is_own(mutant, battery);
        snprintf(fate->how, sizeof fate->how, "%s", how);
    } else if (!kills && fate->other == NULL) {
        fate->other = battery;
        snprintf(fate->other_how, sizeof fate->other_how, "%s", how);
    }
}

/* 1: one of them needs the next case; 0: none does. */
static int goes_on(const struct run *x)
{
    int cases = attn_battery_count(ATTN_TIER_QUICK), least = x->at < cases ? x->most : x->most > 0;
    int wanted = 0;
    for (int m = 0; m < x->n; m++)
        wanted |= x->fate[m].killer == NULL || x->fate[m].n < least;
    return x->at < 2 * cases && wanted;
}

/* How near a case that it passed came to killing it; not where its results are those of the library
 * itself. */
static void measure(struct run *x, struct attn_setup *setup, const struct attn_result *r)
{
    struct fate *fate = &x->fate[x->now];
    struct attn_result honest;
    struct attn_spec spec;
    if (attn_spec_parse(x->mutant[x->now].spec, &spec, NULL) != ATTN_OK)
        return;
    attn_run_setup(&spec, setup, NULL, &honest);
    if (honest.digest == r->digest)
        return;
    fate->strikes++;
    if (r->worst > fate->worst)
        fate->worst = r->worst, fate->nearest = case_of_turn(x);
}

static void run_case(struct run *x, const struct attn_spec *spec, struct attn_setup *setup)
{
    struct fate *fate = &x->fate[x->now];
    const struct attn_case c = setup->given;
    struct attn_result r;
    struct attn_diagnosis diagnosis;
    limit_case(1);
    attn_run_setup(spec, setup, NULL, &r);
    limit_case(0);
    fate->cases++;
    if (r.verdict == ATTN_PASS && x->type != MUTANTS_AS_WRITTEN)
        measure(x, setup, &r);
    if (r.verdict != ATTN_FAILED)
        return;
    int last = x->type == MUTANTS_AS_WRITTEN ? ATTN_F_BOUND : ATTN_F_BIAS;
    int numeric = (int)r.failure >= ATTN_F_FINITE && (int)r.failure <= last;
    note(x, attn_failure_name(r.failure), numeric);
    if (!numeric || fate->n >= x->most)
        return;
    if (!asks_all() && attn_case_work(&c) > DIAGNOSED_WORK) {
        x->most = 0;
        return;
    }
    fate->battery[fate->n] = case_of_turn(x);
    limit_case(1);
    attn_diagnose_case(spec, NULL, &c, &r, &diagnosis);
    limit_case(0);
    memcpy(fate->text[fate->n++], diagnosis.text, sizeof fate->text[0]);
}

/* Declares the arithmetic of a kernel of 16 bits. */
static void declare_fused_16(const struct attn_problem *p, struct attn_precision *x)
{
    attn_arithmetic_declare(attn_arithmetic_find("fused-16"), p, x);
    attn_precision_complete(p, x);
}

/* A case of the battery; 0 when it cannot be asked in the type. */
static int open_case(const struct run *x, const char *text, struct attn_setup *setup)
{
    int alone = x->type != MUTANTS_AS_WRITTEN;
    struct attn_case c;
    if (attn_case_parse(text, &c, NULL) != ATTN_OK || (alone && c.wide && (int)c.dtype != x->type))
        return 0; /* wide: its point is its own type */
    if (alone)
        c.dtype = (enum attn_dtype)x->type;
    if (attn_setup_open(&c, setup, NULL) != ATTN_OK) /* in its own type: test_cases.c says so */
        return 0;
    if (x->type == ATTN_BF16 || x->type == ATTN_F16)
        setup->declare = declare_fused_16;
    setup->unweighed = 1;
    if (x->n > 1 || alone)
        attn_setup_keep(setup);
    return 1;
}

static void try_case(struct run *x, const struct attn_spec *spec)
{
    const struct attn_battery_case *battery = case_of_turn(x);
    struct attn_setup setup;
    if (is_own(x->mutant, battery) != (x->at < attn_battery_count(ATTN_TIER_QUICK)) ||
        (x->n > 1 && !asks_all() && x->at % SEVERAL_EVERY != 0) ||
        !open_case(x, battery->text, &setup))
        return;
    for (x->now = 0; x->now < x->n; x->now++)
        run_case(x, &spec[x->now], &setup);
    attn_setup_close(&setup);
}

/* The spec of one, from its library; 0, and why, when that cannot be. */
static int load(const char *folder, const struct mutant *mutant, struct attn_spec *spec,
                char error[256])
{
    char path[512];
    struct attn_error err = {0};
    enum attn_status (*parse)(const char *, struct attn_spec *, struct attn_error *) = NULL;
    snprintf(path, sizeof path, "%s/%s.so", folder, mutant->id);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) /* ISO C has no cast from object to function pointers */
        *(void **)&parse = dlsym(library, "attn_spec_parse");
    if (parse == NULL)
        snprintf(error, 256, "%.250s", dlerror());
    else if (parse(mutant->spec, spec, &err) != ATTN_OK)
        snprintf(error, 256, "%.250s", err.text);
    return error[0] == '\0';
}

static void run_child(void *arg)
{
    struct run *x = arg;
    struct attn_spec spec[MUTANTS_AT_ONCE];
    int loaded = 1;
    signal(SIGALRM, SIG_DFL); /* Check's own would end the whole test */
    for (int m = 0; m < x->n; m++)
        loaded &= load(x->folder, &x->mutant[m], &spec[m], x->fate[m].error);
    for (; loaded && goes_on(x); x->at++)
        try_case(x, spec);
}

void mutants_run(int type, const struct mutant *mutant, int n, const char *folder, int most,
                 struct fate *fate)
{
    struct run *x =
        mmap(NULL, sizeof *x, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int m = 0; m < n; m++)
        fate[m] = (struct fate){.error = "no memory to share with a child"};
    if (x == MAP_FAILED || n > MUTANTS_AT_ONCE)
        return;
    *x = (struct run){.mutant = mutant,
                      .n = n,
                      .folder = folder,
                      .type = type,
                      .most = most < FATE_CASES ? most : FATE_CASES};
    for (int deaths = 0; deaths <= DEATHS && goes_on(x); x->at++) {
        struct attn_process p = {0};
        if (attn_process_fork(run_child, x, (double)INFINITY, &p) != 0) {
            snprintf(x->fate[0].error, sizeof x->fate[0].error, "no child process");
            break;
        }
        if (p.exit_status == 0)
            break;
        note(x, p.signal == SIGALRM || p.signal == SIGVTALRM ? "time limit" : "crash", 0);
        deaths++;
    }
    for (int m = 0; m < n; m++) {
        for (int i = 0; i < attn_battery_count(ATTN_TIER_QUICK); i++)
            x->fate[m].own_cases += is_own(&mutant[m], attn_battery_at(i));
        fate[m] = x->fate[m];
    }
    munmap(x, sizeof *x);
}
