/* Studies: what is published or derived comes out, and would not without any block that matters. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/rim/studies/study.h"
#include "experiments/rim/studies/torch_layers.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/report_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(studies, .open = scratch_open, .close = scratch_close);

/* The figure of the manual is what the command draws: its numbers, and where this is the gnuplot
 * that drew it, its picture. */
static void check_figure(const char *name)
{
    scratch_shell(0, "",
                  "cd '%s' && cmp %s.csv \"$OLDPWD\"/docs/studies/%s.csv && "
                  "! grep -q \"GNUPLOT $(gnuplot --version | cut -d' ' -f2-)<\" "
                  "\"$OLDPWD\"/docs/studies/%s.svg || "
                  "sed -E -z -f \"$OLDPWD\"/plots/small.sed %s.svg | "
                  "cmp - \"$OLDPWD\"/docs/studies/%s.svg",
                  scratch_path("figures"), name, name, name, name, name);
}

/* docs/answers.md, training-h100, 2: with checkpoints eight layers of flash need 64 MiB more than
 * one: seven inputs, and the gradient that comes down, which is not the caller's. */
TEST(checkpointed_peak)
{
    static struct attn_study_run run;
    static struct attn_torch_play play;
    static int entry[TENSORS];
    const int64_t mib = 1 << 20;
    for (int t = 0; t < (int)TENSORS; t++)
        entry[t] = t;
    play.run = &run;
    play.entry = entry;
    for (int without = 0; without < 2; without++) {
        int64_t one[MOMENTS], eight[MOMENTS];
        struct attn_torch_row row = {
            .backend = FLASH, .checkpoint = 1, .layers = 1, .B = 1, .H = 8, .d = 128, .L = 4096};
        run.leave_out = without ? (int)DY : -1;
        attn_torch_play_row(&play, &row, one);
        row.layers = 8;
        attn_torch_play_row(&play, &row, eight);
        ck_assert_int_eq(eight[PEAK_BACKWARD] - one[PEAK_BACKWARD], (without ? 56 : 64) * mib);
    }
}

/* The command, with all it runs for real: one line of JSON for each quantity. */
TEST_EACH(comes_out, ATTN_STUDIES)
{
    const struct attn_study *study = &attn_studies[_i];
    int n = 0, placed = 0;
    ck_assert_int_eq(fixture_shell("'%s/attnlab' study %s --format json --out '%s' > '%s'",
                                   test_build(), study->name, scratch_path("figures"),
                                   scratch_path("s.jsonl")),
                     0);
    check_figure(study->name);
    char *text = scratch_read(scratch_path("s.jsonl"));
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *json = json_loads(line, 0, NULL);
        ck_assert_ptr_nonnull(json);
        const char *label = json_string_value(json_object_get(json, "label"));
        ck_assert_str_eq(json_string_value(json_object_get(json, "record")), "study");
        ck_assert_str_eq(json_string_value(json_object_get(json, "study")), study->name);
        ck_assert(json_is_number(json_object_get(json, label))); /* called what it is */
        ck_assert_msg(json_is_true(json_object_get(json, "ok")) || strcmp(label, "inferred") == 0,
                      "%s", line);
        placed += json_is_string(json_object_get(json, "curve"));
        json_decref(json);
        n++;
    }
    ck_assert_int_gt(n, 1);
    ck_assert_int_gt(placed, 3);
    free(text);
}

/* No process is started where an entry is left out; one that is not there leaves nothing out. */
static int status_without(const struct attn_study *study, int entry, struct attn_study_run *run)
{
    FILE *out = fopen("/dev/null", "w");
    ck_assert_ptr_nonnull(out);
    memset(run, 0, sizeof *run);
    run->out = out;
    run->leave_out = entry;
    int status = attn_study_carry_out(study, run);
    fclose(out);
    return status;
}

TEST_EACH(every_block_matters, ATTN_STUDIES)
{
    static struct attn_study_run whole, less;
    const struct attn_study *study = &attn_studies[_i];
    ck_assert_int_eq(status_without(study, ATTN_STUDY_ENTRIES, &whole), 0);
    for (int e = 0; e < whole.n_entries; e++)
        if (whole.entry[e].matters)
            ck_assert_msg(status_without(study, e, &less) == 1, "%s comes out without %s",
                          study->name, whole.entry[e].name);
}

/* A user's own rows are judged alone; a wrong one, and a bad file, have one line each. */
TEST(data_of_others)
{
    static const char head[] = "backend,dtype,B,H,L,d,mask,dir,peak_extra_bytes\\n";
    static const struct {
        const char *rows, *words;
        int status;
    } files[] = {
        {"flash,bfloat16,1,8,2048,64,none,fwd,2163712", "2 quantities, 0 did not", 0},
        {"flash,bfloat16,1,8,2048,64,none,fwd,3163712", "2 quantities, 1 did not", 1},
        {"flash,bfloat16,1,8,2048,64,none,fwd,", ":2: peak_extra_bytes '': a whole number", 2},
        {"flesh,bfloat16,1,8,2048,64,none,fwd,1", ":2: backend 'flesh': math|efficient", 2},
        {"flash,bfloat16,2,8,2048,64,none,fwd,1", ":2: B '2': a whole number from 1 to 1", 2},
        {"flash,bfloat16,1,8,1024,64,none,fwd,1", "a row of L >= 2048 would work", 2},
        {"flash,bfloat16,1,8", ":2: ", 2},
    };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        scratch_shell(files[f].status, files[f].words,
                      "printf '%s%s\\n' > '%s'; '%s/attnlab' study pytorch-h200 --input '%s' 2>&1",
                      head, files[f].rows, scratch_path("d.csv"), test_build(),
                      scratch_path("d.csv"));
    scratch_shell(0, "values that are predicted to the byte: 3",
                  "head -3 experiments/rim/studies/data/training_h100_memory.csv > '%s'; "
                  "'%s/attnlab' study training-h100 --input '%s' 2>&1",
                  scratch_path("t.csv"), test_build(), scratch_path("t.csv"));
    static const char schemes[] = "scheme,ranks,B,H,L,d,causal,seconds,peak_extra_bytes\\n";
    static const struct {
        const char *rows, *words;
        int status;
    } of_ranks[] = {
        {"ring,4,1,16,65536,128,0,2.7622e-02,1010827264", "2 quantities, 0 did not", 0},
        {"ring,4,1,16,65536,128,0,3.2e-02,1010827264", "2 quantities, 1 did not", 1},
        {"ring,4,1,16,65536,128,0,2.7622e-02,1040827264", "2 quantities, 1 did not", 1},
        {"ring,4,1,16,65536,128,0,0,1", ":2: seconds '0': a number above 0", 2},
        {"ulysses,3,1,16,65536,128,0,1,1", "3 ranks do not divide L = 65536", 2},
        {"ring,1,1,16,65536,128,0,1,1", "a row of 2 ranks or more", 2},
    };
    for (size_t f = 0; f < COUNT(of_ranks); f++)
        scratch_shell(of_ranks[f].status, of_ranks[f].words,
                      "printf '%s%s\\n' > '%s'; '%s/attnlab' study h200-ranks --input '%s' 2>&1",
                      schemes, of_ranks[f].rows, scratch_path("r.csv"), test_build(),
                      scratch_path("r.csv"));
    static const struct scratch_row bad[] = {
        {"study training-h100 --input $folder/d.csv", 2, "column checkpoint is missing"},
        {"study training-h100 --input no.csv", 2, "no.csv"},
        {"study kv-cache --input x", 2, "kv-cache has no --input"},
        {"study h200-ranks --input x --out x", 2, "without --input"},
        {"study list", 0, "open-sora-720gb "},
        {"study training-h100 >/dev/full", 3, "No space left"},
        {"study all --out /proc/x", 3, "/proc/x"},
        {"study open-sora-720gp", 2, "did you mean open-sora-720gb"},
    };
    scratch_rows(bad, COUNT(bad));
}

/* A script that was edited is kept, whatever its folder is called. */
TEST(figures_are_not_overwritten)
{
    scratch_expect(0, "", "study eager-scores --out '%s'", scratch_path("studies"));
    fixture_expect_words_of("studies/eager-scores.svg", WORDS("72.5 GiB", "1.23 TiB"));
    scratch_shell(0, "", "echo >> '%s'", scratch_path("studies/eager-scores.gp"));
    scratch_expect(2, "eager-scores.gp was edited", "study eager-scores --out '%s'",
                   scratch_path("studies"));
    scratch_expect(0, "", "study eager-scores --overwrite --preset column --out '%s'",
                   scratch_path("studies"));
    scratch_shell(0, "",
                  "b=$(realpath '%s') && cd '%s' && \"$b/attnlab\" study eager-scores "
                  "--out=-x && ls ./-x/eager-scores.svg",
                  test_build(), scratch_path(""));
}

TEST(usage)
{
    scratch_shell(0, "", "'%s/attnlab' study list --format json > '%s'", test_build(),
                  scratch_path("list.json"));
    json_t *list = json_load_file(scratch_path("list.json"), 0, NULL);
    ck_assert_int_eq((int)json_array_size(list), ATTN_STUDIES);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 0), "name")),
                     attn_studies[0].name);
    json_decref(list);
    /* a reader who has left is told nothing */
    scratch_shell(0, "", "(sleep 0.3; '%s/attnlab' study list 2>'%s') | true; test ! -s '%s'",
                  test_build(), scratch_path("said"), scratch_path("said"));
}
