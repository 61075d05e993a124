/* Prints as Markdown: `kills` what was planted, which case killed it, and how; `names` what the
 * diagnosis says of each mutant that numbers kill, and how often that is right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mutants/mutants.h"

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

static int print_kills(const struct mutant *list, int n, const char *folder)
{
    struct tally family[FAMILIES] = {0}, all = {.family = "all"};
    int families = 0;
    struct kill *kill = malloc((size_t)n * sizeof *kill);
    if (kill == NULL)
        return 2;
    for (int m = 0; m < n; m++) {
        mutant_kill(&list[m], folder, &kill[m]);
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
    return all.killed == all.planted && all.own == all.planted && wrong == 0 ? 0 : 1;
}

/* ---- names ---------------------------------------------------------------------------------- */

static int is_asked(const char *id, char *const *ids, int n)
{
    for (int a = 0; a < n; a++)
        if (strcmp(ids[a], id) == 0)
            return 1;
    return n == 0;
}

/* Of all mutants the first failing case; of those with these ids the first few. */
static int print_names(const struct mutant *list, int n, const char *folder, char *const *ids,
                       int n_ids)
{
    struct family *family;
    int families = families_read(&family), mutants = 0, right = 0;
    if (families <= 0)
        return 2;
    puts("| mutant | planted in | family | named | failing case | its diagnosis |");
    puts("| --- | --- | --- | --- | --- | --- |");
    for (int m = 0; m < n; m++) {
        struct naming x;
        const struct family *f = family_of(family, families, &list[m]);
        if (!mutant_is_numeric(&list[m]) || !is_asked(list[m].id, ids, n_ids))
            continue;
        mutant_diagnose(&list[m], folder, n_ids > 0 ? NAMING_CASES : 1, &x);
        mutants++;
        right += f != NULL && x.n > 0 && family_is_named(f, x.text[0]);
        if (x.n == 0)
            printf("| %s | `%s` | | no | | %s |\n", list[m].id, list[m].spec, x.error);
        for (int k = 0; k < x.n; k++)
            printf("| %s | `%s` | %s | %s | %s | %s |\n", list[m].id, list[m].spec,
                   f != NULL ? f->name : "**none**",
                   f != NULL && family_is_named(f, x.text[k]) ? "yes" : "no", x.battery[k]->name,
                   x.text[k]);
        fflush(stdout);
    }
    printf("\nOf %d mutants, %d have a first diagnosis of the right family.\n", mutants, right);
    free(family);
    return 0;
}

int main(int argc, char **argv)
{
    struct mutant *list;
    int n = mutants_read(&list), status = 2;
    if (argc == 3 && n > 0 && strcmp(argv[1], "kills") == 0)
        status = print_kills(list, n, argv[2]);
    else if (argc >= 3 && n > 0 && strcmp(argv[1], "names") == 0)
        status = print_names(list, n, argv[2], argv + 3, argc - 3);
    if (status == 2)
        fprintf(stderr,
                "usage: %s kills FOLDER-OF-MUTANTS, or names FOLDER-OF-MUTANTS [ID...] (from the "
                "root of the tree)\n",
                argv[0]);
    free(list);
    return status;
}
