/* attnlab grade: points for one submission to a lab, or for a class of them.
 *
 *   labs.def, kinds.def   what the points are for
 *   labs.c       the table; the task of a seed
 *   select.c     which cases of the battery a criterion is about
 *   kind_*.c     how each kind of criterion is judged, by check and measure
 *   grade_one.c  one submission, in a process of its own
 *   class.c      many, none of which can touch another
 *   sheet.c      what is said of it: text, JSON, CSV
 *
 * A submission is asked what the task claims, and judged by what it declares itself, which must be
 * that.  Points are for what passed: nothing asked, REFUSED and ERROR are no success.
 */
#ifndef EXPERIMENTS_RIM_GRADE_GRADING_H
#define EXPERIMENTS_RIM_GRADE_GRADING_H

#include "experiments/check/check.h"
#include "experiments/measure/subjects.h"

/* ---- labs and tasks (labs.c) ----------------------------------------------------------------- */

enum attn_lab_form { ATTN_LAB_CODE, ATTN_LAB_FORMULAS };

struct attn_lab {
    const char *name;
    enum attn_lab_form form;
    const char *claims, *varies, *title;
};

struct attn_grading;
struct attn_outcome;
typedef void attn_grade_kind(struct attn_grading *g, struct attn_outcome *outcome);

struct attn_criterion {
    const char *name;
    int points;
    const char *kind;
    attn_grade_kind *judge;
    const char *argument, *read;
};

int attn_lab_count(void);
const struct attn_lab *attn_lab_at(int index);

/* By its whole name, or by the digits before the hyphen; NULL. */
const struct attn_lab *attn_lab_find(const char *name);

/* Criterion n of a lab; NULL beyond the last. */
const struct attn_criterion *attn_lab_criterion(const struct attn_lab *lab, int n);

/* A lab under a seed.  Conventions that vary are words of attn_task_print(), in its order: which
 * one is the upper half of the FNV-1a hash of "SEED:LAB:KEY", modulo how many words the key has.
 * Without a seed ("") they are attnlab's own. */
struct attn_task {
    const struct attn_lab *lab;
    const char *seed, *hidden; /* hidden: what is asked is drawn by it; "": it is in the tree */
    struct attn_claims claims;
    int allows_block; /* "block" among the claims: a running sum, of whatever blocks */
};
enum attn_status attn_task_make(const struct attn_lab *lab, const char *seed, const char *hidden,
                                struct attn_task *task, struct attn_error *err);

/* Compares a declaration with the task's.  0: they agree.  1: a claim or a convention differs: the
 * criterion `task` is lost.  2: it makes bounds wider, or leaves cases out: all is lost. */
int attn_task_differs(const struct attn_task *task, const struct attn_claims *claims, char *text,
                      size_t size);

/* ---- cases (select.c) ------------------------------------------------------------------------ */

/* 1: a case that needs these claims is one of a selection (kinds.def); 0: it is not.  EINVAL: an
 * unknown word. */
int attn_selection_has(const char *selection, const struct attn_asked *asked, unsigned needs);
enum attn_status attn_selection_check(const char *selection, struct attn_error *err);

/* Give the case the seed of task->hidden: its numbers are unknown until it is asked. */
void attn_task_hide(const struct attn_task *task, struct attn_case *c);

/* ---- a sheet of points ----------------------------------------------------------------------- */

/* Of one criterion.  All is text that can be copied: a sheet goes from one process to another. */
struct attn_outcome {
    char name[64], read[96];
    int points, earned; /* earned: 0 or points                                          */
    int is_judged;      /* its kind has come to an end                                  */
    int asked, passed;  /* cases, or processes                                          */
    char found[160];    /* what there is to say of one that is passed: "1.3 x dense"    */
    char end[160];      /* of the first that crashed, left or did not end; ""           */
    char why[600];      /* of the first that failed: its name, case and reason          */
    char cause[300];    /* what most failures look like; ""                             */
    char again[2000];   /* the command that repeats it; ""                              */
};

enum { ATTN_CRITERIA = 16 };

struct attn_sheet {
    char lab[32], name[96], seed[160];
    int total;
    int n;
    struct attn_outcome outcome[ATTN_CRITERIA];
    char zero[800]; /* why the whole is worth nothing: an attack, no declaration, no process; "" */
    double seconds;
};

/* ---- one submission (grade_one.c) ------------------------------------------------------------ */

struct attn_submission {
    const char *name;      /* of the student, or of the file */
    struct attn_subject x; /* its route, source and claims_path */
    const char *route;     /* how a message names it: "--plugin './mine.so'"; NULL: by its source */
    const char
        *folder; /* its own, in which it runs, and which goes when it is judged; NULL: none */
    const char *watched; /* a folder in which it may change nothing; NULL: none */
    const char *trouble; /* why there is nothing to run; NULL or "": there is */
};

/* While it is judged. */
struct attn_grading {
    const struct attn_task *task;
    const struct attn_submission *of;
    const struct attn_criterion *criterion; /* that is judged now */
    struct attn_candidate candidate;        /* the verdicts on all cases, if any were asked */
    unsigned *needs;                        /* claims that each asked case needs */
    char *taken;                            /* whether an earlier criterion has it */
};

/* Grade it in a process of its own, which is ended after a time.  Its outcome is in the sheet.  The
 * caller is single-threaded and has no other child. */
void attn_grade(const struct attn_task *task, const struct attn_submission *of,
                struct attn_sheet *sheet);

/* ---- kinds (kind_*.c) ------------------------------------------------------------------------ */

#define KIND(name, argument) attn_grade_kind attn_grade_##name;
#include "experiments/rim/grade/kinds.def"
#undef KIND

/* Ask the whole battery within the task's claims; the verdicts are the candidate's.  EINVAL, with
 * one line: it cannot be judged at all. */
enum attn_status attn_grade_ask(struct attn_grading *g, struct attn_error *err);

/* 1: it has computed some case of a selection right; 0: none. */
int attn_grade_any_passed(const struct attn_grading *g, const char *selection);

/* The outcome's criterion is lost, and why. */
void attn_outcome_lose(struct attn_outcome *outcome, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- a class (class.c) ----------------------------------------------------------------------- */

/* Every submission in a folder, by name: NAME.so; NAME/ with a file `command`, one line, and
 * lab.json.  With a seed, the task of each is that of "SEED/NAME", and so with what is hidden.
 * Each runs in a copy of its own, made before the first one runs.  `done` gets each sheet in
 * turn. */
struct attn_grade_class {
    const struct attn_lab *lab;
    const char *folder, *seed, *hidden;
    void (*done)(void *arg, const struct attn_sheet *sheet);
    void *arg;
};
enum attn_status attn_class_grade(const struct attn_grade_class *class, struct attn_error *err);

/* ---- what is said (sheet.c) ------------------------------------------------------------------ */

enum attn_sheet_format { ATTN_SHEET_TEXT, ATTN_SHEET_JSON, ATTN_SHEET_CSV };

/* The task without a submission, as text or JSON: claims, conventions to declare, criteria. */
void attn_task_print(const struct attn_task *task, enum attn_sheet_format format, FILE *out);

/* One submission: all of it, text that a student reads, an object on a line, or a row for each
 * criterion.  head: what stands before the first. */
void attn_sheet_head(const struct attn_lab *lab, enum attn_sheet_format format, FILE *out);
void attn_sheet_print(const struct attn_sheet *sheet, enum attn_sheet_format format, FILE *out);

/* One of a class, in a line below the head of text. */
void attn_sheet_line(const struct attn_sheet *sheet, FILE *out);

#endif
