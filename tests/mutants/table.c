/* Prints as Markdown: `kills` what was planted, which case killed it, and how; `names` what the
 * diagnosis says of each mutant that numbers kill, and how often that is right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mutants/mutants.h"

static const char *const kind[] = {"finite",    "exact",  "bound", "memory",
                                   "integrity", "status", "crash"};
enum { KINDS = sizeof kind / sizeof *kind };

struct tally {
    int planted, killed, own, by[KINDS];
};

static void count(struct tally *t, const struct fate *kill)
{
    t->planted++;
    t->killed += kill->killer != NULL;
    t->own += kill->own;
    for (int k = 0; k < KINDS; k++)
        t->by[k] += strcmp(kind[k], kill->how) == 0;
}

static void print_tally(const struct tally *t)
{
    puts("# Mutants\n\n"
         "Each is the library with one line changed, after a bug that somebody shipped "
         "([bugs.md](bugs.md)). The quick battery\nmust kill it by its numbers (finite, exact, "
         "bound) or, where no number can tell, in the way that the bug fails, by a\ncase that "
         "names the bug. `make mutants` prints the case too, and the options of the "
         "implementation;\n`tests/mutants/mutants.def` has the lines.\n");
    printf("%d planted, %d killed, %d of them by a case of their own:", t->planted, t->killed,
           t->own);
    for (int k = 0; k < KINDS; k++)
        printf(" %d %s%s", t->by[k], kind[k], k + 1 < KINDS ? "," : ".\n");
}

/* What the changed line does: the bug's reference is in the catalogue. */
static const char *without_reference(const char *why)
{
    const char *colon = strstr(why, ": "), *hash = strchr(why, '#');
    return colon != NULL && hash != NULL && hash < colon ? colon + 2 : why;
}

/* Bytes of a spec's implementation: "tiled" of "tiled:few=0@avx2". */
static int impl_bytes(const struct mutant *m)
{
    return (int)strcspn(m->spec, ":@");
}

static int is_of_same_impl(const struct mutant *a, const struct mutant *b)
{
    int n = impl_bytes(a);
    return n == impl_bytes(b) && memcmp(a->spec, b->spec, (size_t)n) == 0;
}

static void print_kill(const struct mutant *m, const struct fate *kill)
{
    const char *options = m->spec + impl_bytes(m);
    printf("- %s", m->id);
    if (*options != '\0')
        printf(" (%s)", options + (*options == ':'));
    printf(", ");
    if (kill->error[0] != '\0')
        printf("%s", kill->error);
    else if (kill->killer != NULL)
        printf("%s%s", kill->killer->name, kill->own ? "" : " (not its own)");
    else
        printf("**survives**");
    if (kill->killer == NULL && kill->other != NULL)
        printf(", only by %s: %s", kill->other_how, kill->other->name);
    printf(": %s\n", without_reference(m->why));
}

/* A list for each implementation, in the order of the list; equivalents have their own. */
static void print_by_impl(const struct mutant *list, const struct fate *kill, int n)
{
    for (int first = 0; first < n; first++) {
        int is_new = list[first].proof[0] == '\0';
        for (int m = 0; m < first; m++)
            is_new &= list[m].proof[0] != '\0' || !is_of_same_impl(&list[m], &list[first]);
        if (!is_new)
            continue;
        printf("\n## %.*s\n\n", impl_bytes(&list[first]), list[first].spec);
        for (int m = first; m < n; m++)
            if (list[m].proof[0] == '\0' && is_of_same_impl(&list[m], &list[first]))
                print_kill(&list[m], &kill[m]);
    }
}

/* Equivalent mutants must survive; returns how many do not. */
static int print_equivalents(const struct mutant *list, const struct fate *kill, int n)
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
        printf("| %s | `%s` | %s | %s | %s |\n", list[m].id, list[m].spec, dies ? "**no**" : "yes",
               list[m].why, list[m].proof);
    }
    return wrong;
}

/* ---- in one type ----------------------------------------------------------------------------- */

static const enum attn_dtype alone[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
enum { TYPES = sizeof alone / sizeof *alone };

static const char types_head[] =
    "\n## In one type alone\n\n"
    "Every case is asked in one type, as whoever claims that type alone is asked. In bf16 and f16 "
    "P and dS may be rounded to\nthat type on the way, as kernels of 16 bits round them (u_p, "
    "[bounds.md](bounds.md)). A mutant that lives either changes\nno result in that type, since "
    "its code is of another, or errs by less than that rounding may: no comparison that\nallows "
    "the rounding can find it. An implementation that does not round P says so, and the bound is "
    "narrower.\n\n"
    "| family | planted | f32 | bf16 | f16 |\n| --- | --- | --- | --- | --- |\n";

/* How many of a family, NULL: of all, were planted and killed in each type. */
static void print_family(const struct family *family, const struct mutant *list,
                         struct fate (*fate)[TYPES], int n)
{
    int planted = 0, killed[TYPES] = {0};
    for (int m = 0; m < n; m++) {
        if (family != NULL && family_of(mutant_families, MUTANT_FAMILIES, &list[m]) != family)
            continue;
        planted++;
        for (int t = 0; t < TYPES; t++)
            killed[t] += fate[m][t].killer != NULL;
    }
    printf("| %s | %d |", family != NULL ? family->name : "all", planted);
    for (int t = 0; t < TYPES; t++)
        printf(" %d%s", killed[t], t + 1 < TYPES ? " |" : " |\n");
}

/* One that lives in a type; of those that change nothing there, the first of a line or another. */
static void print_living(const struct mutant *m, const struct fate *x, const char *type)
{
    printf("- %s in %s: ", m->id, type);
    if (x->error[0] != '\0' || x->other != NULL)
        printf("%s%s\n", x->error, x->other_how);
    else if (x->strikes == 0)
        printf("no result differs\n");
    else
        printf("%d cases differ, by at most %.2f of the bound (%s)\n", x->strikes, x->worst,
               x->nearest->name);
}

/* Returns how many live or die although mutants.def says otherwise; -1 without memory. */
static int print_types(const struct mutant *list, int n, const char *folder)
{
    int wrong = 0;
    struct fate(*fate)[TYPES] = calloc((size_t)n, sizeof *fate);
    if (fate == NULL)
        return -1;
    for (int m = 0; m < n; m++)
        for (int t = 0; t < TYPES; t++)
            mutants_run_in(alone[t], &list[m], 1, folder, &fate[m][t]);
    fputs(types_head, stdout);
    for (int f = 0; f < MUTANT_FAMILIES; f++)
        print_family(&mutant_families[f], list, fate, n);
    print_family(NULL, list, fate, n);
    puts("");
    for (int m = 0; m < n; m++)
        for (int t = 0; t < TYPES; t++) {
            int lives = fate[m][t].killer == NULL;
            wrong += lives != mutant_lives_in(&list[m], alone[t]);
            if (lives)
                print_living(&list[m], &fate[m][t], attn_dtype_name(alone[t]));
        }
    free(fate);
    return wrong;
}

static int print_kills(const struct mutant *list, int n, int equivalent, const char *folder)
{
    struct tally all = {0};
    struct fate *kill = malloc((size_t)n * sizeof *kill);
    if (kill == NULL)
        return 2;
    int planted = n - equivalent;
    for (int m = 0; m < planted; m++) {
        mutants_run(&list[m], 1, folder, 0, &kill[m]);
        count(&all, &kill[m]);
    }
    mutants_run(list + planted, equivalent, folder, 0, kill + planted);
    print_tally(&all);
    print_by_impl(list, kill, n);
    int wrong = print_equivalents(list, kill, n) + (print_types(list, planted, folder) != 0);
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
    int mutants = 0, right = 0;
    puts("| mutant | planted in | family | named | failing case | its diagnosis |");
    puts("| --- | --- | --- | --- | --- | --- |");
    for (int m = 0; m < n; m++) {
        struct fate x;
        const struct family *f = family_of(mutant_families, MUTANT_FAMILIES, &list[m]);
        if (!mutant_is_numeric(&list[m]) || !is_asked(list[m].id, ids, n_ids))
            continue;
        mutants_run(&list[m], 1, folder, n_ids > 0 ? FATE_CASES : 1, &x);
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
    return 0;
}

int main(int argc, char **argv)
{
    struct mutant *list;
    int equivalent, n = mutants_read(&list, &equivalent), status = 2;
    if (argc == 3 && n > 0 && strcmp(argv[1], "kills") == 0)
        status = print_kills(list, n, equivalent, argv[2]);
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
