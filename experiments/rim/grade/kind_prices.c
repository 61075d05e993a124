/* Criterion of closed forms: a submission gets problems, a line of JSON each, and prints bytes.  A
 * shared object is asked by a process of this program, so that both kinds are one. */
#include <dlfcn.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/grade/grading.h"
#include "experiments/rim/grade/prices.h"
#include "tests/harness/base/ending.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/folder.h"
#include "tests/harness/base/process.h"
#include "tests/harness/subject/exec.h"
#include "tests/harness/subject/plugin.h"

enum { SECONDS = 10, LINE = 1000 };

/* The numbers of struct price_problem, all of them. */
/* clang-format off */
#define PRICE_NUMBERS(X) \
    X(backward) X(batch) X(heads) X(kv_heads) X(n_query) X(n_key) X(d_key) X(d_value) X(has_mask) \
    X(pairs) X(bytes) X(tile_query) X(tile_key) X(ranks) X(is_first) X(flush) X(workspace)
/* clang-format on */

#define X(name) +1
_Static_assert(sizeof(struct price_problem) ==
                   sizeof(char *) + (PRICE_NUMBERS(X)) * sizeof(int64_t),
               "a number has no key");
#undef X

/* ---- the line of a problem ------------------------------------------------------------------- */

static void print_problem(const struct price_problem *p, char *text, size_t size)
{
    snprintf(text, size, "{\"of\": \"%s\"", p->of);
#define X(name) attn_append(text, size, ", \"%s\": %lld", #name, (long long)p->name);
    PRICE_NUMBERS(X)
#undef X
    attn_append(text, size, "}");
}

/* ---- a submission in C ----------------------------------------------------------------------- */

int attn_price_serve(const char *path)
{
    int64_t (*price_of)(const struct price_problem *) = NULL;
    char line[LINE];
    struct attn_error err = {0};
    void *library = attn_plugin_open(path, &err);
    if (library != NULL)
        *(void **)&price_of = dlsym(library, "price");
    if (price_of == NULL)
        return attn_cli_fail(ATTN_EXIT_USAGE, "%s",
                             library == NULL ? err.text : "it exports no price()");
    while (fgets(line, sizeof line, stdin) != NULL) {
        json_t *json = json_loads(line, 0, NULL);
        struct price_problem p = {.of = json_string_value(json_object_get(json, "of"))};
#define X(name) p.name = json_integer_value(json_object_get(json, #name));
        PRICE_NUMBERS(X)
#undef X
        if (p.of == NULL)
            return attn_cli_fail(ATTN_EXIT_USAGE, "this line is no problem: %.200s", line);
        printf("%" PRId64 "\n", price_of(&p));
        fflush(stdout);
        json_decref(json);
    }
    return 0;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* The command that reads problems and prints bytes. */
static void command_of(const struct attn_submission *of, char *text, size_t size)
{
    char self[1000] = "", program[1100];
    if (of->x.route == &attn_exec_route) {
        snprintf(text, size, "%s", of->x.source);
        return;
    }
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        self[0] = '\0';
    attn_cli_quote(self, program, sizeof program);
    attn_cli_quote(of->x.source, self, sizeof self);
    snprintf(text, size, "%s grade prices %s", program, self);
}

/* Numbers that it printed, of n; or why there are none. */
static int run(const char *command, const struct attn_priced_problem *asked, int n, int64_t *got,
               struct attn_outcome *o)
{
    char folder[ATTN_FOLDER_PATH], path[ATTN_FOLDER_PATH + 16], line[LINE], script[4096], how[280];
    static char out[1 << 16];
    struct attn_process p = {.out = out, .capacity = sizeof out};
    struct attn_error err = {0};
    int read = 0, is_below = 0;
    if (attn_temporary_open(folder, &err) != ATTN_OK)
        attn_cli_lack("%s", err.text);
    snprintf(path, sizeof path, "%s/problems", folder);
    FILE *file = attn_cli_need(fopen(path, "w"));
    for (int i = 0; i < n; i++) {
        print_problem(&asked[i].problem, line, sizeof line);
        fprintf(file, "%s\n", line);
    }
    fclose(file);
    snprintf(script, sizeof script, "f() {\n%.3900s\n}\nf <", command);
    int failed = attn_process_shell(script, path, "", SECONDS, &p);
    attn_temporary_close(folder);
    for (char *at = out, *end; !failed && read < n; read++, at = end) {
        got[read] = strtoll(at, &end, 10);
        is_below = got[read] < 0;
        if (end == at || is_below)
            break;
    }
    enum attn_verdict end = attn_exec_end(&p, SECONDS, how, sizeof how);
    if (read < n)
        attn_outcome_lose(o, "%d of %d problems were answered: %s", read, n,
                          is_below           ? "a price below 0"
                          : end == ATTN_PASS ? "the command ended"
                                             : how);
    return read;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* The buffers whose size is nearest to what is missing, or too much: all of that size. */
static void name_nearest(const struct attn_priced_problem *x, int64_t more, char *text, size_t size)
{
    int64_t difference = llabs(more), nearest = -1;
    for (int p = 0; p < x->parts; p++)
        if (nearest < 0 || llabs(x->part[p].bytes - difference) < llabs(nearest - difference))
            nearest = x->part[p].bytes;
    snprintf(text, size, "%s",
             nearest != difference ? "about as large is"
             : more > 0            ? "a buffer counted twice:"
                                   : "a buffer left out:");
    for (int p = 0, n = 0; p < x->parts; p++)
        if (x->part[p].bytes == nearest)
            attn_append(text, size, "%s '%s'", n++ > 0 ? " or" : "", x->part[p].name);
    attn_append(text, size, ", %lld B", (long long)nearest);
}

/* The command that asks this problem alone. */
static void ask_again(const struct attn_priced_problem *x, const char *command, char *text,
                      size_t size)
{
    char line[LINE];
    print_problem(&x->problem, line, sizeof line);
    snprintf(text, size, "echo '%s' | %.900s", line, command);
}

static void lose_problem(const struct attn_priced_problem *x, int64_t got, const char *command,
                         struct attn_outcome *o)
{
    int64_t more = got - x->want;
    if (o->why[0] != '\0')
        return;
    attn_outcome_lose(o, "%s%s, %s: %lld B; the ledger has %lld B, which is %lld B %s",
                      x->problem.of, x->problem.backward ? " backward" : "", x->text,
                      (long long)got, (long long)x->want, llabs(more), more > 0 ? "less" : "more");
    name_nearest(x, more, o->cause, sizeof o->cause);
    ask_again(x, command, o->again, sizeof o->again);
}

void attn_grade_prices(struct attn_grading *g, struct attn_outcome *o)
{
    static struct attn_priced_problem asked[ATTN_PRICES];
    char command[2400], seed[320];
    int64_t got[ATTN_PRICES];
    struct attn_error err = {0};
    snprintf(seed, sizeof seed, "%s%.160s", g->task->hidden, g->task->seed);
    for (int n = 0; n < ATTN_PRICES; n++)
        if (attn_price_ask(g->criterion->argument, seed, n, &asked[n], &err) != ATTN_OK) {
            attn_outcome_lose(o, "%s", err.text);
            return;
        }
    command_of(g->of, command, sizeof command);
    int answered = run(command, asked, ATTN_PRICES, got, o);
    o->asked = ATTN_PRICES;
    for (int n = 0; n < answered; n++) {
        o->passed += got[n] == asked[n].want;
        if (got[n] != asked[n].want)
            lose_problem(&asked[n], got[n], command, o);
    }
    if (answered < ATTN_PRICES && o->again[0] == '\0')
        ask_again(&asked[answered], command, o->again, sizeof o->again);
}
