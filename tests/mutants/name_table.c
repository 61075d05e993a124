/* Prints as Markdown what the diagnosis says of each mutant that numbers kill, and how often that
 * is right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mutants/naming.h"

struct tally {
    int mutants, first, most;
};

static void print_mutant(const struct mutant *m, const struct family *f, const struct naming *x)
{
    int hits = f != NULL ? naming_hits(x, f) : 0;
    int first = f != NULL && x->n > 0 && family_is_named(f, x->text[0]);
    printf("| %s | `%s` | %s | %s | %d/%d | %s | %s |\n", m->id, m->spec,
           f != NULL ? f->name : "**none**", first ? "yes" : "no", hits, x->n,
           x->n > 0 ? x->battery[0]->name : x->error, x->text[0]);
    fflush(stdout);
}

static void count(struct tally *t, const struct family *f, const struct naming *x)
{
    t->mutants++;
    if (f == NULL || x->n == 0)
        return;
    t->first += family_is_named(f, x->text[0]);
    t->most += 2 * naming_hits(x, f) > x->n;
}

int main(int argc, char **argv)
{
    struct mutant *list;
    struct family *family;
    int n = mutants_read(&list), families = families_read(&family);
    struct tally all = {0};
    struct tally *by = calloc((size_t)(families > 0 ? families : 1), sizeof *by);
    if (argc < 2 || n <= 0 || families <= 0 || by == NULL) {
        fprintf(stderr, "usage: %s FOLDER-OF-MUTANTS [ID...] (from the root of the tree)\n",
                argv[0]);
        return 2;
    }
    if (argc == 2)
        puts("# What the diagnosis says of planted bugs\n\n"
             "Every mutant of docs/mutants.md that numbers kill, its first failing case, "
             "and what the diagnosis\nsays of that one; *named* counts the first five failing "
             "cases. "
             "Which words name which family is in\n`tests/mutants/families.def`.  What this is "
             "worth: "
             "docs/external.md, at the end.\n");
    puts("| mutant | planted in | family | first | named | first failing case | its diagnosis |");
    puts("| --- | --- | --- | --- | --- | --- | --- |");
    for (int m = 0; m < n; m++) {
        struct naming x;
        int asked = argc == 2;
        for (int a = 2; a < argc; a++)
            asked |= strcmp(argv[a], list[m].id) == 0;
        if (list[m].proof[0] != '\0' || list[m].kind[0] != '\0' || !asked)
            continue;
        const struct family *f = family_of(family, families, &list[m]);
        mutant_diagnose(&list[m], argv[1], NAMING_CASES, &x);
        print_mutant(&list[m], f, &x);
        for (int k = 1; k < x.n && argc > 2; k++)
            printf("|  |  |  |  |  | %s | %s |\n", x.battery[k]->name, x.text[k]);
        count(&all, f, &x);
        if (f != NULL)
            count(&by[f - family], f, &x);
    }
    puts("\n| family | mutants | first diagnosis right | most diagnoses right |");
    puts("| --- | --- | --- | --- |");
    for (int f = 0; f < families; f++)
        if (by[f].mutants > 0)
            printf("| %s | %d | %d | %d |\n", family[f].name, by[f].mutants, by[f].first,
                   by[f].most);
    printf("| all | %d | %d | %d |\n", all.mutants, all.first, all.most);
    free(by);
    free(family);
    free(list);
    return 0;
}
