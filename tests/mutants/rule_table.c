/* Prints every acceptance rule (tests/harness/bound/rules.h) against every mutant and
 * against honest runs, on the inputs that most tests use and on the quick battery.  Target: make
 * rules.
 *
 * For each case all outputs of a run are judged by each rule.  The truth is the oracle's, rounded
 * to the storage type (`bound` and `check` take it as it is); fa2's naive run is the honest
 * `dense`.  A rule kills a mutant by rejecting it in a case in which it rejects no honest run: a
 * rule that rejects everything would otherwise kill everything.  Crashes, hangs and errors kill
 * nothing here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/bound/rules.h"
#include "tests/harness/faults/faults.h"
#include "tests/mutants/mutants.h"

/* What most tests use: square, a multiple of every tile, normal values, one head mapping. */
static const char *const typical[] = {"b1h2q256d64:none:f32:normal:s1:pass=bwd",
                                      "b1h2q256d64:causal(br):f32:normal:s1:pass=bwd"};

static const char *const honest[] = {"dense",
                                     "dense:mask=int32",
                                     "csr-textbook",
                                     "tiled-textbook",
                                     "tiled-textbook:br=1,bc=1",
                                     "tiled-textbook:br=4,bc=8",
                                     "tiled-textbook:br=3,bc=5",
                                     "tiled-textbook:br=16,bc=16",
                                     "tiled-textbook:br=64,bc=128",
                                     "ring:ranks=2",
                                     "ring:ranks=4",
                                     "ring:ranks=2,local=dense",
                                     "ulysses:ranks=2",
                                     "ulysses:ranks=2,local=csr-textbook",
                                     "tiled",
                                     "tiled@portable",
                                     "csr",
                                     "csr:passes=3",
                                     "gemm",
                                     "chunked"};

static const char *const rule_texts[] = {"bound",      "fa2",         "numpy", "torch-f32",
                                         "torch-bf16", "flashinfer",  "nmse",  "cosine",
                                         "ulp(n=16)",  "ulp(n=1024)", "exact"};

enum {
    TYPICAL = sizeof typical / sizeof *typical,
    HONEST = sizeof honest / sizeof *honest,
    RULES = sizeof rule_texts / sizeof *rule_texts,
    CHECK = RULES, /* one more judge: attnlab check, with its exact probes */
    JUDGES,
    MOST_CASES = 2048
};
/* Whether a judge rejects a run, by case: what a child reports. */
struct marks {
    struct mutant_walk walk;
    unsigned char ran[MOST_CASES];
    unsigned char rejects[JUDGES][MOST_CASES];
};

static struct attn_rule_choice rules[RULES];

static int case_count(void)
{
    return TYPICAL + attn_battery_count();
}

static const char *case_text(int at)
{
    return at < TYPICAL ? typical[at] : attn_battery_at(at - TYPICAL)->text;
}

/* ---- one run -------------------------------------------------------------------------------- */

/* Open a case and run its passes; 0 when it is refused or fails (nothing is open then). */
static int run(const struct attn_spec *spec, const struct attn_case *c, struct attn_setup *s)
{
    struct attn_error err = {0};
    if (attn_setup_open(c, s, &err) != ATTN_OK)
        return 0;
    if (attn_rerun(spec, s, 1, NULL) == ATTN_OK)
        return 1;
    attn_setup_close(s);
    return 0;
}

static enum attn_status truth_of(const struct attn_setup *s, const struct attn_precision *precision,
                                 struct attn_truth *truth)
{
    struct attn_error err = {0};
    const struct attn_inputs in = attn_setup_inputs(s, s->given.pass);
    return attn_truth_compute(&s->problem, &in, precision, NULL, truth, &err);
}

/* ---- judging -------------------------------------------------------------------------------- */

/* One output under every rule. */
static void judge_output(const struct attn_truth_tensor *truth, const struct attn_tensor *got,
                         const struct attn_tensor *naive, struct marks *marks)
{
    const int64_t *extent = truth->extent;
    int64_t n = extent[0] * extent[1] * extent[2] * extent[3];
    const struct attn_cview views[] = {attn_tensor_cview(got), attn_tensor_cview(naive)};
    double *numbers = attn_packed_numbers(&views[0], extent);
    double *other = attn_packed_numbers(&views[1], extent);
    double *want = malloc((size_t)(n + 1) * sizeof *want);
    if (numbers == NULL || other == NULL || want == NULL)
        abort();
    for (int64_t i = 0; i < n; i++)
        want[i] = got->dtype == ATTN_F64 ? truth->want[i] : (double)(float)truth->want[i];
    for (int r = 0; r < RULES; r++) {
        struct attn_rule_result result;
        int by_bound = rules[r].rule->needs & ATTN_RULE_BOUND;
        struct attn_rule_data data = {n,     numbers,      by_bound ? truth->want : want,
                                      other, truth->bound, got->dtype};
        attn_rule_judge(&rules[r], &data, &result);
        marks->rejects[r][marks->walk.at] |= !result.ok;
    }
    free(numbers);
    free(other);
    free(want);
}

static void judge_run(const struct attn_spec *spec, const struct attn_setup *got,
                      const struct attn_setup *naive, struct marks *marks)
{
    struct attn_precision precision;
    struct attn_truth truth;
    struct attn_result result = {0};
    attn_precision_of(spec->impl, &spec->options, &got->problem, &precision);
    if (truth_of(got, &precision, &truth) != ATTN_OK)
        abort();
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        if (truth.tensor[o].want != NULL)
            judge_output(&truth.tensor[o], &got->tensor[ATTN_T_O + o], &naive->tensor[ATTN_T_O + o],
                         marks);
    attn_truth_free(&truth);
    attn_judge(got, &precision, NULL, got->given.pass, &result);
    marks->rejects[CHECK][marks->walk.at] = result.verdict == ATTN_FAILED;
    marks->ran[marks->walk.at] = 1;
}

static int mark_case(struct mutant_walk *walk, const struct attn_spec *spec)
{
    struct marks *marks = (struct marks *)walk;
    struct attn_spec dense;
    struct attn_error err = {0};
    struct attn_case c;
    struct attn_setup got, naive;
    if (attn_spec_parse("dense", &dense, &err) != ATTN_OK)
        abort();
    if (attn_case_parse(case_text(walk->at), &c, &err) != ATTN_OK)
        return 1; /* test_cases.c says so */
    if (c.bias == ATTN_CASE_BIAS_NAN)
        return 1; /* the right answer is NaN, which every rule rejects */
    alarm(MUTANT_SECONDS);
    if (run(spec, &c, &got)) {
        if (run(&dense, &c, &naive)) {
            judge_run(spec, &got, &naive, marks);
            attn_setup_close(&naive);
        }
        attn_setup_close(&got);
    }
    alarm(0);
    return 1;
}

/* Half a judgement is none. */
static int unmark_case(struct mutant_walk *walk, int late)
{
    struct marks *marks = (struct marks *)walk;
    (void)late;
    marks->ran[walk->at] = 0;
    for (int judge = 0; judge < JUDGES; judge++)
        marks->rejects[judge][walk->at] = 0;
    return 1;
}

/* One implementation; shared: "" for an honest one. */
static void mark(const char *shared, const char *spec, struct marks *marks)
{
    memset(marks, 0, sizeof *marks);
    marks->walk = (struct mutant_walk){
        .shared = shared, .spec = spec, .n = case_count(), .visit = mark_case, .died = unmark_case};
    mutant_walk(&marks->walk, sizeof *marks);
}

/* ---- counting ------------------------------------------------------------------------------- */

/* [0]: typical inputs, [1]: the battery. */
struct count {
    int runs[2], alarms[2][JUDGES]; /* of honest runs */
    int killed[2][JUDGES];          /* mutants        */
    int mutants, broken;
    unsigned char alarmed[JUDGES][MOST_CASES];
};

static void count_honest(const struct marks *marks, struct count *count)
{
    for (int at = 0; at < case_count(); at++) {
        count->runs[at >= TYPICAL] += marks->ran[at];
        for (int judge = 0; judge < JUDGES; judge++) {
            count->alarms[at >= TYPICAL][judge] += marks->rejects[judge][at];
            count->alarmed[judge][at] |= marks->rejects[judge][at];
        }
    }
}

static void count_mutant(const struct marks *marks, struct count *count)
{
    for (int judge = 0; judge < JUDGES; judge++) {
        int killed[2] = {0, 0};
        for (int at = 0; at < case_count(); at++)
            killed[at >= TYPICAL] |= marks->rejects[judge][at] && !count->alarmed[judge][at];
        for (int part = 0; part < 2; part++)
            count->killed[part][judge] += killed[part];
    }
    count->mutants++;
}

static int count_all(const char *folder, struct marks *marks, struct count *count)
{
    struct mutant *list;
    int n = mutants_read(&list);
    for (int s = 0; s < HONEST; s++) {
        fprintf(stderr, "\rhonest: %-40s", honest[s]);
        mark("", honest[s], marks);
        if (marks->walk.error[0] != '\0') {
            fprintf(stderr, "\n%s: %s\n", honest[s], marks->walk.error);
            return 1;
        }
        count_honest(marks, count);
    }
    for (int m = 0; m < n; m++) {
        char path[512];
        fprintf(stderr, "\rmutant: %-40s", list[m].id);
        if (!mutant_is_numeric(&list[m]))
            continue;
        snprintf(path, sizeof path, "%s/%s.so", folder, list[m].id);
        mark(path, list[m].spec, marks);
        if (marks->walk.error[0] != '\0')
            fprintf(stderr, "\n%s: %s\n", list[m].id, marks->walk.error);
        count->broken += marks->walk.error[0] != '\0';
        if (marks->walk.error[0] == '\0')
            count_mutant(marks, count);
    }
    fprintf(stderr, "\r%-60s\r", "");
    free(list);
    return n <= 0 || count->broken > 0;
}

/* ---- saying it ------------------------------------------------------------------------------ */

static void print_row(const char *name, const char *source, int judge, const struct count *c)
{
    printf("| `%s` | %d | %d | %d | %d | %s |\n", name, c->killed[0][judge], c->killed[1][judge],
           c->alarms[0][judge], c->alarms[1][judge], source);
}

static void print_page(const struct count *c)
{
    printf("Of %d mutants, each rule kills so many: by an output that it rejects in a case in "
           "which it rejects no\nhonest run. Of %d and %d honest runs it rejects so many. Typical "
           "inputs are square, a multiple of every tile,\nnormal values; the battery is that of "
           "`attnlab check`, without the cases whose right answer is NaN. The\ntolerances of "
           "`torch-bf16`, `flashinfer` and `nmse` are meant for 16 bits; all cases are f32 or "
           "f64.\n\n",
           c->mutants, c->runs[0], c->runs[1]);
    puts("| rule | mutants, typical | mutants, battery | honest, typical | honest, battery | from "
         "|\n| --- | --- | --- | --- | --- | --- |");
    print_row("attnlab check", "finite, then exact probes, then `bound`", CHECK, c);
    for (int r = 0; r < RULES; r++) {
        char text[96];
        print_row(attn_rule_print(&rules[r], text, sizeof text), rules[r].rule->source, r, c);
    }
}

int main(int argc, char **argv)
{
    struct marks *marks = malloc(sizeof *marks);
    struct count *count = calloc(1, sizeof *count);
    struct attn_error err = {0};
    if (argc != 2 || marks == NULL || count == NULL || case_count() > MOST_CASES) {
        fprintf(stderr, "usage: %s FOLDER-OF-MUTANTS (from the root of the tree)\n", argv[0]);
        return 2;
    }
    for (int r = 0; r < RULES; r++)
        if (attn_rule_parse(rule_texts[r], &rules[r], &err) != ATTN_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 2;
        }
    int failed = count_all(argv[1], marks, count);
    print_page(count);
    free(count);
    free(marks);
    return failed;
}
