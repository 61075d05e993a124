/* The inputs of tests/fuzz/corpus, seeds and what fuzzing found, through the very functions that
 * `make fuzz` runs; and each of them cut off at every length, with every byte changed once, and of
 * texts with some letters cut out or changed for others of the language. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/scratch.h"
#include "tests/fuzz/targets.h"
#include "tests/harness/base/fill.h"
#include "tests/suites.h"

SUITE(fuzz, .open = scratch_open, .close = scratch_close);

enum { TARGETS = 10, SEEDS = 3, LONGEST = 4096, DRAWS = 1000 };

static void must_hold(const struct fuzz_target *target, const char *file, const char *how,
                      const unsigned char *data, size_t size)
{
    const char *wrong = target->run(data, size);
    ck_assert_msg(wrong == NULL, "%s: %s%s: %s", target->name, file, how, wrong);
}

/* One to three places; returns how many bytes are left. */
static size_t damage(unsigned char *data, size_t n, uint64_t draw)
{
    static const char letters[] = "()&|,-+.:=@ 0149xtlbrheadsmq\x01\xff";
    for (uint64_t k = 0; k <= draw % 3 && n > 0; k++) {
        uint64_t dice = attn_hash(3, draw, k);
        size_t at = (size_t)(dice / 8) % n;
        if (dice % 4 == 0)
            memmove(data + at, data + at + 1, --n - at);
        else
            data[at] = (unsigned char)letters[(dice >> 32) % (sizeof letters - 1)];
    }
    return n;
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
    for (uint64_t draw = 0; draw < DRAWS && strcmp(target->words, "grammar") == 0; draw++) {
        unsigned char damaged[LONGEST + 1];
        memcpy(damaged, data, n);
        size_t left = damage(damaged, n, draw);
        snprintf(how, sizeof how, ", damaged, draw %d", (int)draw);
        must_hold(target, name, how, damaged, left);
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
