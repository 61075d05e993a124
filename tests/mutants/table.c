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
         "Each is the library with one line changed, after a bug of a real program "
         "([bugs.md](bugs.md)). The quick battery\nmust kill it by its numbers (finite, exact, "
         "bound) or, where no number can tell, in the way that the bug fails, by a\ncase that "
         "names the bug. `make mutants` prints the case too, and the options of the "
         "implementation;\n`tests/mutants/mutants.def` has the lines.\n");
    printf("%d planted, %d killed, %d of them by a case of their own:", t->planted, t->killed,
           t->own);
    for (int k = 0; k < KINDS; k++)
        printf(" %d %s%s", t->by[k], kind[k], k + 1 < KINDS ? "," : ".\n");
}

/* The effect of the changed line: the bug's reference is in the catalogue. */
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

/* A row: how many die, which change no result in this type, which others live.  Returns how many
 * live or die although mutants.def says otherwise. */
static int print_type(enum attn_dtype type, const struct mutant *list, const struct fate *fate,
                      int n)
{
    int killed = 0, wrong = 0;
    for (int m = 0; m < n; m++) {
        killed += fate[m].killer != NULL;
        wrong += (fate[m].killer == NULL) != mutant_lives_in(&list[m], type);
    }
    printf("| %s | %d of %d |", attn_dtype_name(type), killed, n);
    for (int m = 0; m < n; m++)
        if (fate[m].killer == NULL && fate[m].strikes == 0)
            printf(" %s%s%s", list[m].id, fate[m].other_how, fate[m].error);
    printf(" |");
    for (int m = 0; m < n; m++)
        if (fate[m].killer == NULL && fate[m].strikes > 0)
            printf(" %s: %.2f (%s)%s", list[m].id, fate[m].worst, fate[m].nearest->name,
                   fate[m].other_how);
    puts(" |");
    return wrong;
}

/* fate: of n, to work with. */
static int print_types(const struct mutant *list, struct fate *fate, int n, const char *folder)
{
    static const enum attn_dtype alone[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    int wrong = 0;
    puts("\n## In one type alone\n\n"
         "Every case is asked in one type, as if that type alone were claimed. In bf16 and f16 P "
         "and dS may be rounded to\nthat type on the way (u_p, [bounds.md](bounds.md)). A mutant "
         "lives where it changes no result, since that type is\nrefused (by the textbooks over "
         "ranks) or runs other code, or where it errs by less than that rounding may. The\nnumber "
         "is then its largest error/bound, with the case. No comparison that allows the rounding "
         "can tell these\nmutants; an implementation that does not round P declares so, and is "
         "held to the narrower bound.\n\n"
         "| asked in | killed | no result differs | hidden by rounding |\n| --- | --- | --- | --- "
         "|");
    for (size_t t = 0; t < sizeof alone / sizeof *alone; t++) {
        for (int m = 0; m < n; m++)
            mutants_run((int)alone[t], &list[m], 1, folder, 0, &fate[m]);
        wrong += print_type(alone[t], list, fate, n);
    }
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
        mutants_run(MUTANTS_AS_WRITTEN, &list[m], 1, folder, 0, &kill[m]);
        count(&all, &kill[m]);
    }
    mutants_run(MUTANTS_AS_WRITTEN, list + planted, equivalent, folder, 0, kill + planted);
    print_tally(&all);
    print_by_impl(list, kill, n);
    int wrong = print_equivalents(list, kill, n) + print_types(list, kill, planted, folder);
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
        mutants_run(MUTANTS_AS_WRITTEN, &list[m], 1, folder, n_ids > 0 ? FATE_CASES : 1, &x);
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
    setenv("ATTN_FULL", "1", 1); /* every case is asked, and every one diagnosed */
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
