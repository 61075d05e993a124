/* Judging implementations that are not ours: a plug-in, a command, a folder of results.
 *
 * external.c reads the flags and keeps the books that are common to all routes (verdicts, claims
 * exercised); external_plugin.c, external_exec.c and external_files.c are the routes.
 */
#ifndef EXPERIMENTS_CHECK_EXTERNAL_H
#define EXPERIMENTS_CHECK_EXTERNAL_H

#include "experiments/check/verdicts.h"
#include "experiments/cli/flags.h"
#include "tests/harness/cases/claims.h"
#include "tests/harness/relations/relations.h"

/* Cases to be asked: all of a tier, or those that were named. */
struct attn_asked {
    char name[200]; /* of a case of the battery, or "case-1", ... */
    const char *ids, *why;
    struct attn_case c;
    /* files only: */
    int written;               /* it was among the cases of the last start            */
    int settled;               /* it has its results, or broke the command            */
    int not_reached;           /* the command died before it came to this one         */
    enum attn_verdict without; /* what a case without results is ...                  */
    char said[300];            /* ... and why; "": there was no command               */
};
struct attn_question {
    struct attn_asked *asked;
    int n;
    int whole_tier; /* so a claim that is never exercised is an error */
};

/* A case string, read; what is no string at all is taken for a name that does not exist. */
enum attn_status attn_question_case(const char *text, struct attn_case *c, struct attn_error *err);

/* n names or case strings; n = 0: the whole tier.  EINVAL: one cannot be read. */
enum attn_status attn_question_make(const char *const *text, int n, enum attn_tier tier,
                                    struct attn_question *question, struct attn_error *err);
void attn_question_free(struct attn_question *question);

/* The question that a manifest asks; text limits it to cases of these names. */
enum attn_status attn_question_read(const char *folder, const char *const *text, int n,
                                    struct attn_question *question, struct attn_claims *claims,
                                    struct attn_error *err);

/* Write the cases that are claimed, and not settled, to a folder; *written: how many. */
enum attn_status attn_question_write(struct attn_question *question, const char *folder,
                                     const struct attn_claims *claims, int *written,
                                     struct attn_error *err);

struct attn_external {
    struct attn_question question;
    struct attn_verdicts verdicts;
    struct attn_claims claims;
    const char *source;      /* the value of --plugin, --exec or --results      */
    int is_one_of_many;      /* several are judged: each is named by its source */
    char label[160];         /* "naive", "naive (./naive.so)": heads the report */
    char trouble[1200];      /* why it cannot be judged at all; ""              */
    char route[1200];        /* "--plugin ./naive.so": for the line "again:"    */
    const char *claims_path; /* of --claims, or NULL */
    double timeout_s;
    unsigned exercised; /* claims that a judged case asked for                   */
    double diagnosed_s; /* time spent on diagnoses                               */
    int judged;         /* cases with a verdict about the implementation         */
    int not_reached;    /* cases that nobody came to: claims may be idle         */
    const struct attn_relation *relation; /* of --relation; NULL: all, or none   */
    int relations;                        /* whether any are to be run           */
    double soak_s;                        /* of --soak; 0: the question is asked */
    uint64_t seed;
    int repeat;             /* runs of every case, plug-ins only; 0: not said  */
    const char *kind;       /* "plug-in", "command", "folder of results"       */
    char scope[200];        /* what is asked, in words                         */
    char scope_flags[1600]; /* and as flags                                    */
};

/* Add a flag and its value, quoted for a shell, to the route. */
void attn_external_route(struct attn_external *s, const char *flag, const char *value);

/* Open the books, now that its claims are known. */
void attn_external_begin(struct attn_external *s);

/* It cannot be judged at all: keep why, in one line, and return the exit status. */
int attn_external_fail(struct attn_external *s, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* File a verdict.  diagnosis: NULL when there is none. */
void attn_external_file(struct attn_external *s, const struct attn_asked *asked,
                        const struct attn_result *result, const struct attn_diagnosis *diagnosis,
                        unsigned needs, double seconds);

/* File what is no case of the question: a relation, or a word about the whole. */
void attn_external_say(struct attn_external *s, const struct attn_subject *subject,
                       const struct attn_result *result, unsigned needs, double seconds);

/* Judge one case by the files in a folder of results, without filing it. */
void attn_external_judge(struct attn_external *s, const struct attn_asked *asked,
                         const char *results, struct attn_result *result, unsigned *needs);

/* File every case of the question but those that were not reached. */
void attn_external_judge_all(struct attn_external *s, const char *results);

/* Close the books: claims that no case exercised, the summary, the exit status. */
int attn_external_end(struct attn_external *s);

/* The routes.  Exit statuses. */
int attn_external_plugin(struct attn_external *s, const char *path);
int attn_external_exec(struct attn_external *s, const char *command, const char *work);
int attn_external_results(struct attn_external *s, const char *results);

/* What `attnlab check` was asked for. */
struct attn_check_request {
    struct attn_cli_list cases, externals; /* --plugin, --exec, --results and --claims, in order */
    const char *relation, *report, *vectors, *work; /* NULL: not given */
    int tier, format, growth, strict, verbose;
    double soak, timeout; /* 0: not given */
    int64_t seed, repeat; /* repeat: 0 when it is not given */
};

/* Judge the externals; an exit status. */
int attn_external_check(const struct attn_check_request *request);

#endif
