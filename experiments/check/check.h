/* attnlab check: implementations are asked cases and relations, wherever they are.
 *
 *   cmd_check.c     flags
 *   check.c         who is judged
 *   candidate.c     of each: verdicts, claims, exit status
 *   question.c      which cases
 *   check_loop.c    each of them is asked each case
 *   check_soak.c    random cases for a time, each failure made small
 *   verdicts.h      what is said of it; check_report.h: on a page to keep
 */
#ifndef EXPERIMENTS_CHECK_CHECK_H
#define EXPERIMENTS_CHECK_CHECK_H

#include "experiments/check/verdicts.h"
#include "experiments/cli/flags.h"
#include "tests/harness/cases/tiers.h"
#include "tests/harness/relations/relations.h"
#include "tests/harness/subject/subject.h"

/* ---- what is asked (question.c) ----------------------------------------------------------- */

struct attn_question {
    struct attn_asked *asked;
    int n;
    int whole_tier;              /* so a claim that is never exercised is an error */
    struct attn_tier_list *tier; /* what the battery of a case points into; NULL: by hand */
};

/* The cases, the subject that is asked them, and the source of both. */
struct attn_asking {
    const struct attn_cli_list *cases; /* names and case strings; empty: the whole tier */
    enum attn_tier tier;
    const struct attn_claims *claims;
    enum attn_route route;
    uint64_t seed;  /* of what a tier draws */
    int no_corners; /* of a whole tier, its large cases are left out */
};

/* 1 if that depends on what is claimed: the whole tier, or cases by name. */
int attn_question_needs_claims(const struct attn_cli_list *cases);

/* EINVAL: a case cannot be read.  To be freed in any case. */
enum attn_status attn_question_make(const struct attn_asking *asking,
                                    struct attn_question *question, struct attn_error *err);
void attn_question_free(struct attn_question *question);

/* The question that a manifest asks, and x's claims and scheme; cases limits it to those of these
 * names. */
enum attn_status attn_question_read(const char *folder, const struct attn_cli_list *cases,
                                    uint64_t seed, struct attn_question *question,
                                    struct attn_subject *x, struct attn_error *err);

/* ---- who is judged ------------------------------------------------------------------------ */

/* The request to `attnlab check`. */
struct attn_check_request {
    struct attn_cli_list cases,
        externals; /* --plugin, --exec, --serve, --results, --claims: in order */
    const char *model, *relation, *report, *vectors, *work, *scheme; /* NULL: not given */
    int tier, format, strict, verbose, refusals;
    double soak, timeout, budget; /* 0: not given */
    int64_t seed, repeat;         /* repeat: 0 when it is not given */
};

struct attn_candidate {
    const struct attn_check_request *request;
    struct attn_verdicts *verdicts;
    struct attn_report *report;     /* of --report (check_report.h), or NULL */
    struct attn_verdict_list *list; /* its own, from attn_candidate_begin on */
    struct attn_question question;
    int is_first; /* of the specs that claim the same, and are asked one question together */
    struct attn_subject x; /* how it is asked */
    int is_one_of_many;    /* several are judged: each is named by its source */
    char label[256];       /* "naive", "naive (./naive.so)": heads the report */
    char cause[256];       /* the likeliest of its failures, or its trouble; "" */
    char trouble[1200];    /* why it cannot be judged at all; ""              */
    char route[1200];      /* "--plugin ./naive.so": for the line "again:"    */
    int keeps;             /* nothing is printed; the caller frees the list */
    int exit_status;       /* of an external, when it is judged                */
    int judged;            /* cases with a verdict about the implementation         */
};

static inline int attn_candidate_is_ours(const struct attn_candidate *s)
{
    return s->x.route == &attn_own_route;
}

/* The cases that it is asked, now that its claims are known; for an external it is freed with it.
 * */
enum attn_status attn_candidate_ask(struct attn_candidate *s, struct attn_error *err);

/* Its label where it is ours, and its route unless it has one. */
void attn_candidate_put_route(struct attn_candidate *s);

/* The line that asks it a case or a relation again ("case", its string): arguments of attnlab; of a
 * caller a line for a shell, which sets ATTNLAB_CASE or ATTNLAB_RELATION for it. */
enum { ATTN_AGAIN_TEXT = 2600 };
void attn_candidate_again(const struct attn_candidate *s, const char *flag, const char *value,
                          char again[ATTN_AGAIN_TEXT]);

/* Add "--FLAG VALUE", quoted for a shell, to the route. */
void attn_candidate_route(struct attn_candidate *s, const char *flag, const char *value);

/* Make its list of verdicts, now that its claims are known. */
void attn_candidate_begin(struct attn_candidate *s);

/* It cannot be judged at all: keep why, and return the exit status. */
int attn_candidate_fail(struct attn_candidate *s, enum attn_status status,
                        const struct attn_error *err);

/* File the verdict on a case; what repeats it is made of the route. */
void attn_candidate_case(struct attn_candidate *s, const struct attn_asked *asked,
                         const struct attn_answer *answer);
void attn_candidate_relation(struct attn_candidate *s, const struct attn_relation *relation,
                             const struct attn_answer *answer);

/* File what is neither: a word about the whole. */
void attn_candidate_say(struct attn_candidate *s, const struct attn_checked *checked,
                        const struct attn_answer *answer);

/* Is this relation to be run? */
int attn_candidate_wants(const struct attn_candidate *s, const struct attn_relation *relation);

/* A subject that cannot be judged is a line on stderr; where there are more, or a program reads
 * them, it has its place among the others. */
void attn_candidate_report_trouble(struct attn_candidate *s);

/* The end: claims that no case exercised, the summary, the exit status. */
int attn_candidate_end(struct attn_candidate *s);

/* ---- random cases (check_soak.c) ---------------------------------------------------------- */

enum {
    ATTN_SOAK_SAY = 1,   /* the result will be shown: a failure is worth a diagnosis */
    ATTN_SOAK_FRESH = 2, /* in a process that has not yet judged anything           */
    ATTN_SOAK_ENOUGH = 8 /* failures: more would be the same bug again              */
};

struct attn_soak {
    /* Run n cases, each as often as `how` says; its same_bits is the judge's to set.  An ERROR
     * without a text: the case was not reached.  0, or an exit status that ends the soak. */
    int (*judge)(void *arg, const struct attn_case *c, int n, const struct attn_repetition *how,
                 int flags, struct attn_result *result);
    void *arg;
    int calls;   /* of each case */
    int at_once; /* cases of a round: 1, or many where a start is dear, and shrinking too dear */
};

/* Judge until time is up, or enough failures are found, or one that comes and goes; verdicts are
 * added to the candidate's list, among them one for the soak itself.  A case that failed once is a
 * failure: FAIL, CRASH or TIMEOUT where it fails each time, INTERMITTENT where it does not.
 * Returns what the judge did. */
int attn_soak_run(struct attn_candidate *s, const struct attn_soak *soak);

/* Specs of ours, or one external: ask, and file the verdicts (check_loop.c).  An exit status. */
int attn_check_subjects(struct attn_candidate *s, int n);

/* Judge the specs, or the externals where there are any; an exit status. */
int attn_check(const struct attn_check_request *request, char **specs, int n_specs);

#endif
