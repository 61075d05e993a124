/* `attnlab explain`: its numbers are those of `attnlab run`, its tables are whole, its buffers add
 * up to the price, and what it cannot do it says. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/machine.h"
#include "experiments/rim/explain/traced.h"
#include "optimized/registry.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/base/files.h"
#include "tests/suites.h"

SUITE(explain, .open = scratch_open, .close = scratch_close);

static const char *const specs[] = {"dense",
                                    "csr-textbook",
                                    "tiled-textbook",
                                    "tiled-textbook:br=2,bc=3",
                                    "ring-textbook:ranks=2",
                                    "ring-textbook:ranks=3",
                                    "ulysses-textbook:ranks=2"};

/* ---- the bits ------------------------------------------------------------------------------ */

/* " o 0123456789abcdef lse ..." of a file that `attnlab run` wrote. */
static void bits_of_file(const char *path, const char *const *name, int n, char text[96])
{
    struct attn_file file;
    struct attn_error err = {0};
    ck_assert_msg(attn_file_open(path, &file, &err) == ATTN_OK, "%s", err.text);
    snprintf(text, 96, "\nbits:");
    for (int o = 0; o < n; o++) {
        struct attn_file_tensor *t = NULL;
        for (int i = 0; i < file.n_tensors; i++)
            if (strcmp(file.tensor[i].name, name[o]) == 0)
                t = &file.tensor[i];
        ck_assert_msg(t != NULL && attn_file_load(&file, t, &err) == ATTN_OK, "%s", name[o]);
        snprintf(text + strlen(text), 96 - strlen(text), " %s %016" PRIx64, name[o],
                 attn_digest_bytes(ATTN_DIGEST_BEGIN, t->data, (size_t)t->bytes));
    }
    snprintf(text + strlen(text), 96 - strlen(text), "\n");
    attn_file_close(&file);
}

static const char *const forward[] = {"o", "lse"}, *const backward[] = {"dq", "dk", "dv"};

static void compare_bits(const char *spec, const char *text)
{
    static const char claims[] =
        "{\"claims\": [\"f32\", \"f64\", \"backward\", \"gqa\", \"cross\", \"dv\", \"softcap\", "
        "\"dlse\", \"scale\", \"dense\"]}";
    char folder[512], bits[2][96];
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
    scratch_put("claims.json", claims, sizeof claims - 1);
    scratch_expect(0, "1 cases", "vectors '%s/v' --claims '%s/claims.json' --case '%s'", folder,
                   folder, text);
    scratch_expect(0, "", "run %s --input '%s/v/case-1' --out '%s/o'", spec, folder, folder);
    bits_of_file(scratch_path("o/result.safetensors"), forward, 2, bits[0]);
    bits_of_file(scratch_path("o/result.safetensors"), backward, 3, bits[1]);
    scratch_expect(0, bits[0], "explain %s --case '%s'", spec, text);
    scratch_has(bits[1]);
    scratch_expect(0, bits[0], "explain %s --input '%s/v/case-1' --pass bwd", spec, folder);
    scratch_has(bits[1]);
}

/* A tracer that changes the numbers of a step, or a step that is computed another way where there
 * is a tracer, would show here. */
TEST_EACH(bits_are_those_of_run, COUNT(specs))
{
    const char *heads = strncmp(specs[_i], "ulysses", 7) == 0 ? "h4" : "h4g2"; /* as it claims */
    char text[128];
    snprintf(text, sizeof text, "b2%sq6k12d5:causal(br):f32:normal:s3:pass=bwd:softcap=3", heads);
    compare_bits(specs[_i], text);
}

TEST(bits_of_f64)
{
    compare_bits("csr-textbook", "h2q7k4d3:causal(tl):f64:normal:s3:pass=bwd:dlse=1");
}

/* ---- the text ------------------------------------------------------------------------------ */

/* All that a reader sees of two.  ATTN_RECORD=1 writes them anew. */
static const struct {
    const char *file, *arguments;
} golden[] = {{"experiments/rim/explain/tests/explain-tiled.txt",
               "tiled-textbook:br=1,bc=2 --length 2 --keys 4 --mask 'causal(br)' --pass bwd"},
              {"experiments/rim/explain/tests/explain-ring.txt",
               "ring-textbook:ranks=2 --mask 'causal(br)' --pass bwd"}};

TEST_EACH(the_text_is_pinned, COUNT(golden))
{
    scratch_expect(0, "", "explain %s", golden[_i].arguments);
    if (getenv("ATTN_RECORD") != NULL) {
        FILE *file = fopen(golden[_i].file, "w");
        ck_assert_ptr_nonnull(file);
        fputs(scratch_output, file);
        fclose(file);
    }
    char *want = scratch_read(golden[_i].file);
    ck_assert_str_eq(scratch_output, want);
    free(want);
}

/* A width of 80 holds whatever is printed. */
TEST(lines_are_short)
{
    scratch_expect(0, "", "explain dense --length 16 --dim 8 --heads 2 --fill normal --pass bwd");
    for (const char *line = strchr(scratch_output, '\n') + 1; *line != '\0';) { /* but the title */
        size_t n = strcspn(line, "\n");
        ck_assert_msg(n <= 80, "%.*s", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

/* Every step that has a sentence is told by some textbook: none is left of one that is gone. */
TEST(every_sentence_is_used)
{
    static const char *const name[] = {
#define STEP(name, rows, flags, sentence) name,
#include "experiments/rim/explain/steps.def"
    };
    int told[COUNT(name)] = {0};
    for (int s = 0; s < COUNT(specs); s++) {
        scratch_expect(0, "", "explain %s --case '%s' --only=r,u,g,p,d,m,s,o,c,t", specs[s],
                       "h2q6d2:causal(br):f32:powers:s1:pass=bwd:sink=zero");
        for (int n = 0; n < COUNT(name); n++) {
            char field[64];
            snprintf(field, sizeof field, "\n%s: ", name[n]);
            told[n] |= strstr(scratch_output, field) != NULL;
        }
    }
    for (int n = 0; n < COUNT(name); n++)
        ck_assert_msg(told[n], "no textbook traces '%s'", name[n]);
}

/* A step without a description fails, and is not left out. */
TEST(an_unknown_step_fails)
{
    struct attn_trace trace;
    struct attn_error err = {0};
    attn_trace_open(&trace);
    trace.tracer.on_step(trace.tracer.arg, &(struct attn_trace_step){.step = "nix"});
    ck_assert_int_eq(attn_trace_sort(&trace, 0, &err), ATTN_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(err.text, "'nix'"));
    attn_trace_close(&trace);
}

/* m, l and exp(m - m') over tiles under powers by hand: query 0 sees X = 0 0 | 1 2. */
TEST(markdown_has_the_same_numbers)
{
    scratch_expect(0, "| i | Q[0] | Q[1] |\n", "explain tiled-textbook:br=2,bc=2 --format md");
    scratch_has("\n| 0 | -inf | 0 | 0 | 2 |");
    scratch_has("\n| 0 | 0 | 1.38629 | 0.25 | 2 |");
    scratch_has("\nbits: o ");
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Of every implementation, both passes: it fails where the peak of the events is not the price. */
TEST_EACH(events_add_up_to_the_price, attn_impl_count())
{
    const struct attn_impl *impl = attn_impl_at(_i);
    scratch_expect(0, "<- peak", "explain %s%s --memory --length 8 --heads 4 --pass bwd",
                   impl->name,
                   impl->ranks != NULL && strcmp(impl->name, "batch") != 0 ? ":ranks=2" : "");
}

/* ---- refusals ------------------------------------------------------------------------------ */

static const struct scratch_row refused[] = {
    {"explain tiled", 2,
     "tiled traces no steps: dense, csr-textbook, tiled-textbook, ring-textbook"},
    {"explain ring:ranks=2", 2, "--memory explains the buffers of every SPEC"},
    {"explain dense --length 17", 2, "17 queries are too many to be read: at most 16"},
    {"explain dense --length 1 --keys 2147483648", 2, "2147483648 keys are too many"},
    {"explain dense --dim 9", 2, "9 features of a key are too many"},
    {"explain dense --memory --length 5000", 2, "at most 4096 would work"},
    {"explain dense --only tile", 2, "no step of dense begins so"},
    {"explain dense --memory --only scores", 2, "--memory does not print"},
    {"explain dense --case ties --input x", 2, "one problem at a time"},
    {"explain dense --case ties", 2, "too many to be read"},
    {"explain dense --case nix", 2, "nix"},
    {"explain dense --fill nix", 2, "nix"},
    {"explain dense --input $folder/absent", 2, "No such file"},
    {"explain ring-textbook:ranks=3", 2, "ranks that divide"},
    {"explain nix", 2, "nix"},
    {"explain dense --format md >/dev/full", 3, "No space left"},
};

TEST(refusals_say_what_would_work)
{
    scratch_rows(refused, COUNT(refused));
}
