/* Prints the mutant tables as Markdown: what was planted, which case killed it, and how. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mutants/kill.h"

enum { FAMILIES = 24 };

static const char *const kind[] = {"finite",    "exact",  "bound", "memory",
                                   "integrity", "status", "crash"};
enum { KINDS = sizeof kind / sizeof *kind };

/* Counts of one family (the letters of its ids), or of all. */
struct tally {
    char family[8];
    int planted, killed, own, by[KINDS];
};

static struct tally *find_family(struct tally *family, int *n, const struct mutant *m)
{
    char letters[sizeof family->family];
    snprintf(letters, sizeof letters, "%.*s", (int)strcspn(m->id, "-"), m->id);
    for (int f = 0; f < *n; f++)
        if (strcmp(family[f].family, letters) == 0)
            return &family[f];
    *n += *n < FAMILIES;
    memcpy(family[*n - 1].family, letters, sizeof letters);
    return &family[*n - 1];
}

static void count(struct tally *t, const struct kill *kill)
{
    t->planted++;
    t->killed += kill->killer != NULL;
    t->own += kill->own;
    for (int k = 0; k < KINDS; k++)
        t->by[k] += strcmp(kind[k], kill->how) == 0;
}

static void print_tally(const struct tally *t)
{
    printf("| %s | %d | %d | %d |", t->family, t->planted, t->killed, t->own);
    for (int k = 0; k < KINDS; k++)
        printf(" %d |", t->by[k]);
    printf("\n");
}

static void print_tallies(const struct tally *family, int n, const struct tally *all)
{
    puts("# Mutants\n\n"
         "Each is the library with one line changed, after a bug that somebody shipped "
         "([bugs.md](bugs.md)).  The quick\nbattery must kill it by its numbers (finite, exact, "
         "bound) or, where no number can tell, in the way that the bug\nfails; *own* kills are by "
         "a case that names the bug.\n");
    printf("| family | planted | killed | own |");
    for (int k = 0; k < KINDS; k++)
        printf(" %s |", kind[k]);
    printf("\n| --- | --- | --- | --- |");
    for (int k = 0; k < KINDS; k++)
        printf(" --- |");
    printf("\n");
    for (int f = 0; f < n; f++)
        print_tally(&family[f]);
    print_tally(all);
}

static void print_kill(const struct mutant *m, const struct kill *kill)
{
    const char *verdict = kill->error[0] != '\0' ? kill->error
                          : kill->killer != NULL ? kill->how
                                                 : "**survives**";
    printf("| %s | `%s`, %s | %s | %s | %s | ", m->id, m->spec, m->where,
           kill->killer != NULL ? kill->killer->name : "", kill->own ? "yes" : "no", verdict);
    if (kill->killer != NULL && m->kind[0] == '\0')
        printf("%.3g ", kill->result.worst);
    else if (kill->killer == NULL && kill->other != NULL)
        printf("only by %s: %s ", kill->other_how, kill->other->name);
    printf("| %s |\n", m->why);
}

/* Equivalent mutants must survive; returns how many do not. */
static int print_equivalents(const struct mutant *list, const struct kill *kill, int n)
{
    int wrong = 0;
    puts("\n## Equivalent mutants\n\nThese change a line and nothing else; they must survive.\n");
    puts("| mutant | planted in | survives | change | proof |");
    puts("| --- | --- | --- | --- | --- |");
    for (int m = 0; m < n; m++) {
        if (list[m].proof[0] == '\0')
            continue;
        int dies = kill[m].killer != NULL || kill[m].other != NULL || kill[m].error[0] != '\0';
        wrong += dies;
        printf("| %s | `%s`, %s | %s | %s | %s |\n", list[m].id, list[m].spec, list[m].where,
               dies ? "**no**" : "yes", list[m].why, list[m].proof);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    struct mutant *list;
    struct tally family[FAMILIES] = {0}, all = {.family = "all"};
    int n = mutants_read(&list), families = 0;
    struct kill *kill = n > 0 ? malloc((size_t)n * sizeof *kill) : NULL;
    if (argc != 2 || kill == NULL) {
        fprintf(stderr, "usage: %s FOLDER-OF-MUTANTS (from the root of the tree)\n", argv[0]);
        return 2;
    }
    for (int m = 0; m < n; m++) {
        mutant_kill(&list[m], argv[1], &kill[m]);
        if (list[m].proof[0] != '\0')
            continue;
        count(find_family(family, &families, &list[m]), &kill[m]);
        count(&all, &kill[m]);
    }
    print_tallies(family, families, &all);
    puts(
        "\n| mutant | planted in | killed by | own | verdict | error/bound | what it stands for |");
    puts("| --- | --- | --- | --- | --- | --- | --- |");
    for (int m = 0; m < n; m++)
        if (list[m].proof[0] == '\0')
            print_kill(&list[m], &kill[m]);
    int wrong = print_equivalents(list, kill, n);
    printf("\n%d planted, %d killed, %d of them by a case of their own.\n", all.planted, all.killed,
           all.own);
    free(kill);
    free(list);
    return all.killed == all.planted && all.own == all.planted && wrong == 0 ? 0 : 1;
}
