/* The results of a check, in four formats.
 *
 * A check is one judged thing: a case, a relation, or a failure that a soak found.  They are
 * collected for each spec and printed when it ends, so that text can give the worst
 * first and the others their counts.  One function for each format lives in verdicts_text.c and
 * verdicts_files.c (JUnit XML, JSON); what they say of a check comes from verdict_facts.c.
 */
#ifndef EXPERIMENTS_CHECK_VERDICTS_H
#define EXPERIMENTS_CHECK_VERDICTS_H

#include <stdio.h>

#include "experiments/check/common_cause.h"
#include "experiments/table/row_table.h"
#include "tests/harness/subject/subject.h"

enum attn_format { ATTN_FORMAT_TEXT, ATTN_FORMAT_JUNIT, ATTN_FORMAT_JSON };

enum attn_check_kind {
    ATTN_CHECK_CASE,
    ATTN_CHECK_RELATION,
    ATTN_CHECK_SOAK,   /* a case that it found, and its own account */
    ATTN_CHECK_GROWTH, /* of errors with parts */
    ATTN_CHECK_CLAIM,  /* something declared that no case has verified */
    ATTN_CHECK_JUDGED, /* that anything was judged at all */
    ATTN_CHECK_SETUP   /* that the implementation could be started */
};
extern const char *const attn_check_kind_name[]; /* "case", "relation", "soak", ... */

/* The thing that was checked; strings are copied. */
struct attn_checked {
    enum attn_check_kind kind;
    const char *name; /* of a case of the battery or a relation; "" for a string alone  */
    const char *text; /* the case string; what a relation says                          */
    const char *ids, *why;
    const char *again;    /* arguments of attnlab that run it again, or a line for a shell
                             that begins with ATTNLAB_; "" when there are none */
    const char *found_as; /* the larger case that this one was shrunk from, or NULL         */
};

/* ---- checks collected ------------------------------------------------------------------------ */

/* A check, and all of one spec. */
struct attn_verdict_entry {
    enum attn_check_kind kind;
    char *name, *text, *ids, *why, *again, *found_as; /* found_as may be NULL */
    char *message; /* why, and what a failure looks like, in one line; "" on a plain pass */
    struct attn_wants wants; /* the claims that it asks for, and why it was refused by them; 0
                                until it is said */
    struct attn_result result;
    double seconds;
};
struct attn_verdict_list {
    char *spec;
    int n, capacity;
    struct attn_verdict_entry *entry;
    struct attn_common_cause causes; /* what its failures look like: its cause */
    int left_out;                    /* pairs of values that its tier leaves out */
};

/* How they are said. */
struct attn_verdicts {
    FILE *out;
    enum attn_format format;
    int has_text; /* JSON: beside it what text would print     */
    int strict;   /* WEAK is a failure, and REFUSED by it      */
    int verbose;  /* text: a line for every check              */
    int refusals; /* text: each of them, not their number alone */
    int details;  /* text: each check in full, also what passes */
    int listed;   /* text: failures with a row each             */
    int n_specs;
};

/* Preset: text to out. */
void attn_verdicts_open(struct attn_verdicts *v, FILE *out);

/* A list for this spec, several of which may be filled at a time. */
struct attn_verdict_list *attn_verdicts_begin(const char *spec) __attribute__((returns_nonnull));

/* Of an answer its result, its wants and its seconds.  The new entry is good until the next is
 * added. */
struct attn_verdict_entry *attn_verdicts_add(struct attn_verdict_list *list,
                                             const struct attn_checked *checked,
                                             const struct attn_answer *answer);

/* Of what was added as number e: this is its verdict. */
void attn_verdicts_revise(struct attn_verdict_list *list, int e, const struct attn_result *result);

void attn_verdicts_free(struct attn_verdict_list *list);

/* Print a spec's checks in v's format; of NULL what the format needs at its end. */
void attn_verdicts_print(struct attn_verdicts *v, const struct attn_verdict_list *list);

/* The smallest failing case, of those that show the likely cause; NULL: none failed. */
const struct attn_verdict_entry *attn_verdicts_smallest(const struct attn_verdicts *v,
                                                        const struct attn_verdict_list *list);

/* ---- for the formats ------------------------------------------------------------------------- */

/* ERROR and, if strict, WEAK and REFUSED by it included. */
int attn_verdict_is_failure(const struct attn_verdicts *v, const struct attn_result *r);

/* REFUSED or SKIPPED. */
int attn_verdict_is_no_run(const struct attn_result *r);

/* Checks counted. */
enum attn_kinds { ATTN_ALL_KINDS, ATTN_NO_RELATIONS, ATTN_RELATIONS };
struct attn_tally {
    int n, count[ATTN_ERROR + 1], failures;
    int by_it, skipped;  /* of the refused ones; of what was no run: those that are no failures */
    int errors, lacking; /* failures that are an ERROR; for want of memory              */
    int graded, slow;    /* passes with a grade; grade B                                */
    int leaning, weighed, admitted; /* bias looked for; asked about the mask; tests of it */
    double seconds, worst, bias, growth;
    const char *worst_name;
    const struct attn_verdict_entry *soak; /* its own account, the last of its kind; or NULL */
};
struct attn_tally attn_verdicts_tally(const struct attn_verdicts *v,
                                      const struct attn_verdict_list *list, enum attn_kinds kinds);
const char *attn_tally_word(const struct attn_tally *all); /* "FAIL", "PASS", "REFUSED" */

/* The other facts of a check as rows, those that it has: "grade", "bias", "mask", "growth", "runs",
 * "differs", "open", "declared" in "name", in words in "text"; and "numbers" under the "key" that
 * they have in the row of the check.  To be freed. */
struct json_t *attn_verdict_facts(const struct attn_result *r);

/* A check as a row; to be freed. */
struct json_t *attn_verdict_row(const struct attn_verdict_entry *x);

/* The outputs of a check as rows, with the worst element of one that fails; to be freed. */
struct json_t *attn_output_rows(const struct attn_agreement output[ATTN_OUTPUTS], int all);

/* Failures as rows, the worst first, without `but`, v->listed at most; those that are like another
 * one are counted there.  *left_out: what has no row. */
struct json_t *attn_failure_rows(const struct attn_verdicts *v,
                                 const struct attn_verdict_list *list,
                                 const struct attn_verdict_entry *but, int *left_out);

/* Of its case, as attn_case_work; infinite where it has none. */
double attn_verdict_work(const struct attn_verdict_entry *x);

/* "FAIL(bound)", "PASS"; returns text. */
const char *attn_verdict_words(const struct attn_result *r, char text[40]);

/* As text, whatever v's format is; of NULL nothing.  printed: the same in memory, to be freed. */
void attn_verdicts_text(struct attn_verdicts *v, const struct attn_verdict_list *list);
char *attn_verdicts_printed(const struct attn_verdicts *v, const struct attn_verdict_list *list);

/* The refusals as text (refusals.c), all: by the claims, in the words of the claims; by it, in
 * its own words. */
void attn_refusals_text(FILE *out, const struct attn_verdict_list *list);

/* The declared numbers behind all bounds, over all checks: "u 5.96e-08, ..."; how many checks say
 * something. */
int attn_verdicts_declared(const struct attn_verdict_list *list, char *text, size_t size);

#endif
