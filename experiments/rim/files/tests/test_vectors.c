/* The files of `attnlab vectors` are given to `attnlab run` and `attnlab compare` as they are:
 * every case of the quick tier, under every convention that the files can have.  `attnlab check
 * --results`, which knows the cases and reads no inputs, then judges what run made of the files. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/base/files.h"
#include "tests/harness/cases/battery.h"
#include "tests/suites.h"

SUITE(vectors, .open = scratch_open, .close = scratch_close);

#define MOST                                                                              \
    "\"f32\", \"f64\", \"backward\", \"gqa\", \"cross\", \"dv\", \"hard\", \"softcap\", " \
    "\"alibi\","                                                                          \
    "\"dlse\", \"scale\", \"empty\", \"dense\""

/* The first two judge every case by hand of the quick tier, a half each, but those that are large
 * for tiles and models, which say nothing more in a file; the others, which say the same in other
 * words, some of each mask (fixture_some_cases).  With ATTN_FULL each judges all, and those of
 * factors too. */
#define BY_HAND                                                                                  \
    "dense", "{\"claims\": [" MOST ", \"bias\", \"dbias\", \"band\", \"sink\", \"kv-shared\"]}", \
        196, 140
enum { HALVES = 2 };
static const struct {
    const char *spec, *claims;
    int cases, some;
} variants[] = {
    {BY_HAND},
    {BY_HAND},
    {"csr-textbook", "{\"claims\": [" MOST ", \"bias\"]}", 190, 30}, /* every mask as bytes */
    {"tiled-textbook",
     "{\"claims\": [" MOST ", \"bias\", \"band\"], \"layout\": \"blhd\", \"mask_one\": \"hidden\","
     " \"window\": \"with-self\"}",
     190, 30},
    {"tiled-textbook",
     "{\"claims\": [" MOST ", \"band\"], \"layout\": \"thd\", \"mask_one\": \"hidden\","
     " \"causal\": \"br\", \"window\": \"with-self\"}",
     170, 30},
};

/* Names of cases, for a shell: a line of them would be too long. */
static const char *cases_by_hand(int half)
{
    char text[16000];
    size_t used = 0;
    for (int i = 0; i < attn_battery_count(ATTN_TIER_QUICK); i++) {
        const char *name = attn_battery_at(i)->name;
        if (i % HALVES == half && strncmp(name, "shape-", 6) != 0 && strncmp(name, "tile-", 5) != 0)
            used += (size_t)snprintf(text + used, sizeof text - used, "--case %s\n", name);
    }
    ck_assert_uint_lt(used, sizeof text);
    scratch_put("cases", text, used);
    return " $(cat cases)";
}

/* A command of attnlab in a process of its own, for which no program is loaded. */
static void expect(int wanted, char *word[])
{
    const char *said = scratch_path("said");
    int n = 0, status = 0;
    while (word[n] != NULL)
        n++;
    pid_t process = fork();
    if (process == 0) {
        if (freopen(said, "w", stdout) == NULL || dup2(fileno(stdout), STDERR_FILENO) < 0)
            abort();
        exit(attn_command_run(attn_command_find(word[0]), n, word));
    }
    ck_assert(process > 0 && waitpid(process, &status, 0) == process);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == wanted,
                  "attnlab %s %s %s: status %#x:\n%.9000s", word[0], word[1], word[2], status,
                  scratch_read(said));
}

/* The tensors of one case by attnlab run, and by attnlab compare. */
static void compute(char *spec, char *name, int compares)
{
    char in[1200], out[1200];
    snprintf(in, sizeof in, "%s/%s", scratch_path("v"), name);
    snprintf(out, sizeof out, "%s/%s", scratch_path("o"), name);
    expect(0, (char *[]){"run", spec, "--input", in, "--out", out, NULL});
    if (compares) /* of numbers beyond the domain nothing can be said */
        expect(2 * !strcmp(name, "special-k-huge"), (char *[]){"compare", out, in, NULL});
}

TEST_EACH(every_case_by_its_files, COUNT(variants))
{
    char folder[512];
    int cases = 0, least = getenv("ATTN_FULL") != NULL ? variants[_i].cases : variants[_i].some;
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
    scratch_put("claims.json", variants[_i].claims, strlen(variants[_i].claims));
    const char *asked = getenv("ATTN_FULL") != NULL ? ""
                        : _i < HALVES               ? cases_by_hand(_i)
                                                    : fixture_some_cases();
    scratch_shell(0, "", "cd '%s' && '%s/attnlab' vectors v --claims claims.json%s", folder,
                  scratch_full_path(test_build()), asked);
    scratch_shell(0, "", "mkdir '%s/o'", folder);
    DIR *vectors = opendir(scratch_path("v"));
    ck_assert_ptr_nonnull(vectors);
    for (struct dirent *x; (x = readdir(vectors)) != NULL;)
        if (strchr(x->d_name, '.') == NULL) { /* all but the manifest */
            compute((char *)variants[_i].spec, x->d_name,
                    _i < HALVES); /* compared: once is enough */
            cases++;
        }
    closedir(vectors);
    ck_assert_int_ge(cases, least);
    scratch_expect(0, "", "check --results '%s/o' --vectors '%s/v'", folder, folder);
    ck_assert_int_ge(fixture_count(scratch_output, "pass"), least);
}

/* A wrong word must not pass: the same files, one of their settings overruled. */
TEST_EACH(a_wrong_setting_is_seen, 4)
{
    static const char *const wrong[] = {"--mask 'causal(+1)'", "--mask none", "--scale 0.5",
                                        "--alibi 0.5,0.5,0.5,0.5"};
    char folder[512];
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
    scratch_expect(0, "", "vectors '%s/v' --case 'h4q9d8:causal(br):f32:normal:s1'", folder);
    scratch_expect(0, "", "run dense --input '%s/v/case-1' --out '%s/o'", folder, folder);
    scratch_expect(1, "FAIL", "compare '%s/o' '%s/v/case-1' %s", folder, folder, wrong[_i]);
}

/* A declared LSE is judged as it is declared, unless the file of the result says otherwise. */
TEST_EACH(declared_lse, 3)
{
    static const char *const lse[3] = {", \"lse\": \"2\", \"empty_lse\": \"+inf\"",
                                       ", \"lse\": \"absent\"", ""};
    char claims[160];
    int length = snprintf(claims, sizeof claims,
                          "{\"claims\": [\"f32\", \"band\", \"empty\", \"cross\"]%s}", lse[_i]);
    struct attn_file file;
    struct attn_error err;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
    scratch_put("claims.json", claims, (size_t)length);
    scratch_expect(0, "",
                   "vectors '%s/v' --claims '%s/claims.json' --case "
                   "'q9k5d8:causal(br):f32:normal:s1'",
                   folder, folder);
    scratch_expect(0, "", "run dense --input '%s/v/case-1' --out '%s/o'", folder, folder);
    scratch_expect(0, "", "compare '%s/o' '%s/v/case-1'", folder, folder);
    ck_assert(attn_file_open(scratch_path("o/result.safetensors"), &file, &err) == ATTN_OK);
    struct attn_file_tensor *o = attn_file_find(&file, "o"), *l = attn_file_find(&file, "lse");
    ck_assert(attn_file_load(&file, o, &err) == ATTN_OK);
    ck_assert(attn_file_load(&file, l, &err) == ATTN_OK);
    for (int way = 0; way < 2; way++) { /* without metadata: as it is, then as it is declared */
        float *x = l->data;
        for (int i = 0; way == 1 && i < 9; i++)
            x[i] = isinf(x[i]) ? INFINITY : x[i] * 1.44269504f;
        struct attn_file_tensor both[2] = {*o, *l};
        ck_assert(attn_safetensors_write(scratch_path("r.safetensors"), both, 2, NULL, 0, &err) ==
                  ATTN_OK);
        int wanted = _i == 1 ? 2 : _i == 0 ? way == 0 : way;
        scratch_expect(wanted, _i == 1 ? "not judged: lse=absent is declared" : "",
                       "compare '%s/r.safetensors' '%s/v/case-1'", folder, folder);
        if (_i != 1)
            ck_assert_ptr_null(strstr(scratch_output, "lse=absent"));
    }
    attn_file_close(&file);
}
