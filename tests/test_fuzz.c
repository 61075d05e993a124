/* The inputs of tests/fuzz/corpus, seeds and what fuzzing found, through the very functions that
 * `make fuzz` runs; and each of them cut off at every length, and with every byte changed once. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/scratch.h"
#include "tests/fuzz/targets.h"
#include "tests/suites.h"

SUITE(fuzz, .seconds = 120, .open = scratch_open, .close = scratch_close);

enum { TARGETS = 10, SEEDS = 3, LONGEST = 4096 };

static void must_hold(const struct fuzz_target *target, const char *file, const char *how,
                      const unsigned char *data, size_t size)
{
    const char *wrong = target->run(data, size);
    ck_assert_msg(wrong == NULL, "%s: %s%s: %s", target->name, file, how, wrong);
}

static void run_input(const struct fuzz_target *target, const char *folder, const char *name)
{
    unsigned char data[LONGEST + 1];
    char path[1024], how[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    ck_assert_msg(file != NULL, "there is no %s", path);
    size_t n = fread(data, 1, sizeof data, file);
    fclose(file);
    ck_assert_msg(n <= LONGEST, "%s is longer than an input may be", path);
    must_hold(target, name, "", data, n);
    for (size_t i = 0; i < n; i++) {
        unsigned char kept = data[i];
        snprintf(how, sizeof how, ", cut off after %zu bytes", i);
        must_hold(target, name, how, data, i);
        data[i] = (unsigned char)(kept ^ (i % 3 == 0 ? 0x01 : i % 3 == 1 ? 0x80 : kept ^ 0x1b));
        snprintf(how, sizeof how, ", byte %zu changed to %d", i, data[i]);
        must_hold(target, name, how, data, n);
        data[i] = kept;
    }
}

TEST_EACH(corpus_holds, TARGETS)
{
    const struct fuzz_target *target = fuzz_target_at(_i);
    char path[256];
    int n = 0;
    ck_assert_ptr_nonnull(target);
    fuzz_use_folder(scratch_path(""));
    snprintf(path, sizeof path, "tests/fuzz/corpus/%s", target->name);
    DIR *folder = opendir(path);
    ck_assert_msg(folder != NULL, "there is no %s", path);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.') {
            run_input(target, path, entry->d_name);
            n++;
        }
    closedir(folder);
    ck_assert_int_ge(n, SEEDS);
}

TEST(all_targets_run)
{
    ck_assert_ptr_nonnull(fuzz_target_at(TARGETS - 1));
    ck_assert_ptr_null(fuzz_target_at(TARGETS));
}
