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
enum outputs { ONLY_O, ALL_OUTPUTS, OUTPUT_SETS };

/* Whether a judge rejects a run, by case: what a child reports. */
struct marks {
    struct mutant_walk walk;
    unsigned char ran[MOST_CASES];
    unsigned char rejects[OUTPUT_SETS][JUDGES][MOST_CASES];
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
                         const struct attn_tensor *naive, int only_o, struct marks *marks)
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
        marks->rejects[ALL_OUTPUTS][r][marks->walk.at] |= !result.ok;
        marks->rejects[ONLY_O][r][marks->walk.at] |= !result.ok && only_o;
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
                         o == ATTN_O, marks);
    attn_truth_free(&truth);
    attn_judge(got, &precision, NULL, got->given.pass, &result);
    marks->rejects[ALL_OUTPUTS][CHECK][marks->walk.at] = result.verdict == ATTN_FAILED;
    memset(&result, 0, sizeof result);
    attn_judge(got, &precision, NULL, ATTN_FORWARD, &result);
    marks->rejects[ONLY_O][CHECK][marks->walk.at] =
        result.verdict == ATTN_FAILED &&
        (result.failure == ATTN_F_EXACT || result.output[ATTN_O].n_bad > 0);
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
        marks->rejects[0][judge][walk->at] = marks->rejects[1][judge][walk->at] = 0;
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

struct count {
    int runs[2], alarms[2][JUDGES];             /* of honest runs: typical, battery   */
    int killed[2][OUTPUT_SETS][JUDGES];         /* mutants                            */
    int mutants, elsewhere, equivalent, broken; /* judged; left out, by reason        */
    unsigned char alarmed[OUTPUT_SETS][JUDGES][MOST_CASES];
};

static void count_honest(const struct marks *marks, struct count *count)
{
    for (int at = 0; at < case_count(); at++) {
        int part = at >= TYPICAL;
        count->runs[part] += marks->ran[at];
        for (int judge = 0; judge < JUDGES; judge++) {
            count->alarms[part][judge] += marks->rejects[ALL_OUTPUTS][judge][at];
            for (int set = 0; set < OUTPUT_SETS; set++)
                count->alarmed[set][judge][at] |= marks->rejects[set][judge][at];
        }
    }
}

static void count_mutant(const struct marks *marks, struct count *count)
{
    for (int set = 0; set < OUTPUT_SETS; set++)
        for (int judge = 0; judge < JUDGES; judge++) {
            int killed[2] = {0, 0};
            for (int at = 0; at < case_count(); at++)
                killed[at >= TYPICAL] |=
                    marks->rejects[set][judge][at] && !count->alarmed[set][judge][at];
            for (int part = 0; part < 2; part++)
                count->killed[part][set][judge] += killed[part];
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
        count->equivalent += list[m].proof[0] != '\0';
        count->elsewhere += list[m].kind[0] != '\0';
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
    printf("| `%s` | %d | %d | %d | %d | %d | %d | %s |\n", name, c->killed[0][ONLY_O][judge],
           c->killed[0][ALL_OUTPUTS][judge], c->killed[1][ONLY_O][judge],
           c->killed[1][ALL_OUTPUTS][judge], c->alarms[0][judge], c->alarms[1][judge], source);
}

static void print_page(const struct count *c)
{
    printf(
        "<!-- made by `make rules` (tests/mutants/rule_table.c) -->\n\n# Acceptance rules, "
        "measured\n\n"
        "What do the rules that people compare attention with find, and what do they flag that is "
        "right? The rules\nare in `tests/harness/bound/rules.c`; `attnlab compare --rule` applies "
        "each "
        "of "
        "them to files.\n\n");
    printf("* **Mutants**: %d bugs planted one at a time (`tests/mutants/mutants.def`); not "
           "counted: %d "
           "that show otherwise\n  than by numbers (memory, crashes, ...), %d that are proved "
           "equivalent.\n",
           c->mutants, c->elsewhere, c->equivalent);
    printf("* **Honest runs**: %d correct implementations and tile sizes, %d runs on the typical "
           "inputs "
           "and %d on the battery\n  (what an implementation refuses is not run).\n",
           HONEST, c->runs[0], c->runs[1]);
    puts("* **Typical inputs**: what most tests use, square, a multiple of every tile, normal "
         "values:");
    for (int t = 0; t < TYPICAL; t++)
        printf("  `%s`%s\n", typical[t], t + 1 < TYPICAL ? "," : ".");
    printf(
        "* **Battery**: the %d cases of the quick tier (`attnlab list cases`), but for those whose "
        "right answer is NaN.\n",
        case_count() - TYPICAL);
    puts(
        "* A rule **kills** a mutant when it rejects an output of it in a case in which it rejects "
        "no "
        "honest run.\n  \"O\" looks at O alone; \"all\" at O, LSE, dQ, dK, dV and dBias, where the "
        "case has them.\n* A **false alarm** is an honest run of which a rule rejects any "
        "output.\n* "
        "The truth is the oracle's, rounded to the storage type. The naive run of `fa2` is "
        "`dense`. "
        "NaN and misplaced\n  infinities are rejected under every rule, which not all of the "
        "originals "
        "do.\n");
    puts("| rule | typical, O | typical, all | battery, O | battery, all | false alarms, typical | "
         "false alarms, battery | from |\n| --- | --- | --- | --- | --- | --- | --- | --- |");
    print_row("attnlab check", "finite, then exact probes, then `bound`", CHECK, c);
    for (int r = 0; r < RULES; r++) {
        char text[96];
        print_row(attn_rule_print(&rules[r], text, sizeof text), rules[r].rule->source, r, c);
    }
    printf("| of | %d | %d | %d | %d | %d | %d | |\n\n", c->mutants, c->mutants, c->mutants,
           c->mutants, c->runs[0], c->runs[1]);
    puts("* All cases are small and stored as f32 or f64; the tolerances of `torch-bf16`, "
         "`flashinfer` and `nmse` are meant for\n  16 bits.");
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
