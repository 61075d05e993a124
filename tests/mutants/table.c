/* Prints the mutant table as Markdown: what was planted, which case killed it, and how. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/mutants/kill.h"

int main(int argc, char **argv)
{
    struct mutant *list;
    int n = mutants_read(&list), killed = 0;
    if (argc != 2 || n < 0) {
        fprintf(stderr, "usage: %s FOLDER-OF-MUTANTS (from the root of the tree)\n", argv[0]);
        return 2;
    }
    puts("| mutant | planted in | killed by | verdict | error/bound | what it stands for |");
    puts("| --- | --- | --- | --- | --- | --- |");
    for (int m = 0; m < n; m++) {
        struct kill kill;
        mutant_kill(&list[m], argv[1], &kill);
        killed += kill.killer != NULL;
        printf("| %s | `%s`, %s | %s | %s | %.3g | %s |\n", list[m].id, list[m].spec, list[m].where,
               kill.killer != NULL ? kill.killer->name
               : kill.error[0]     ? kill.error
                                   : "**survives**",
               kill.killer != NULL ? attn_failure_name(kill.result.failure) : "",
               kill.killer != NULL ? kill.result.worst : 0, list[m].why);
        fflush(stdout);
    }
    printf("\n%d planted, %d killed.\n", n, killed);
    free(list);
    return killed == n ? 0 : 1;
}
