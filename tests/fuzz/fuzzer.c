/* The driver of `make fuzz`: attn-fuzz TARGET [libFuzzer's flags and folders].
 *
 * The target is the first argument; its dictionary and its longest input are put among libFuzzer's
 * flags.  Without arguments it prints the names of the targets. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/targets.h"
#include "tests/harness/base/folder.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct fuzz_target *target;
/* In memory where there is such a place: each input of a file format is a file. */
static char folder[] = "/dev/shm/attn-fuzz-XXXXXX";
static const char on_disk[] = "/tmp/attn-fuzz-XXXXXX";

static void drop_folder(void)
{
    attn_folder_remove(folder);
}

static void list_targets(FILE *file)
{
    for (int t = 0; fuzz_target_at(t) != NULL; t++)
        fprintf(file, "%s\n", fuzz_target_at(t)->name);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char words[64], most[32];
    if (*argc < 2) {
        list_targets(stdout);
        exit(0);
    }
    for (int t = 0; target == NULL && fuzz_target_at(t) != NULL; t++)
        if (strcmp(fuzz_target_at(t)->name, (*argv)[1]) == 0)
            target = fuzz_target_at(t);
    char **more = calloc((size_t)*argc + 2, sizeof *more);
    int made = mkdtemp(folder) != NULL;
    if (!made) {
        memcpy(folder, on_disk, sizeof on_disk);
        made = mkdtemp(folder) != NULL;
    }
    if (target == NULL || more == NULL || !made) {
        fprintf(stderr, "attn-fuzz: '%s' is no target; there are:\n", (*argv)[1]);
        list_targets(stderr);
        exit(2);
    }
    fuzz_use_folder(folder);
    atexit(drop_folder);
    snprintf(words, sizeof words, "-dict=tests/fuzz/%s.dict", target->words);
    snprintf(most, sizeof most, "-max_len=%d", target->most);
    more[0] = (*argv)[0];
    more[1] = words;
    more[2] = most;
    memcpy(more + 3, *argv + 2, ((size_t)*argc - 2) * sizeof *more);
    *argv = more;
    *argc += 1;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *wrong = target->run(data, size);
    if (wrong != NULL) {
        fprintf(stderr, "attn-fuzz %s: %s\n", target->name, wrong);
        abort();
    }
    return 0;
}
