/* The engine of relations: up to five problems that belong together, what is changed in each, and
 * what must then hold between their outputs.  A relation is a row of a table (relation_values.c and
 * its neighbours): struct attn_relation_plan. */
#ifndef TESTS_HARNESS_RELATIONS_RELATION_FIXTURE_H
#define TESTS_HARNESS_RELATIONS_RELATION_FIXTURE_H

#include "tests/harness/relations/relations.h"

struct attn_fixture_shape {
    int64_t b, h, g, q, k, d, v;
};

/* A case that may be changed between opening and running. */
struct attn_trial {
    struct attn_setup setup;
    struct attn_truth truth;         /* the bounds of this run's outputs */
    struct attn_precision precision; /* for which they are */
    int open, ran;
    struct attn_fixture_moved {
        struct attn_tensor plain; /* as the setup owns it */
        void *pages;              /* NULL: not moved      */
        size_t bytes;
    } moved[ATTN_SLOTS];
};

enum { ATTN_TRIALS = 5 };

/* One relation on one implementation. */
struct attn_fixture {
    const struct attn_spec *spec;
    const struct attn_spec *other; /* of the trials beyond the first; NULL: spec              */
    struct attn_result *result;
    enum attn_dtype dtype;            /* the type that relations run in: one that is claimed  */
    int64_t compared;                 /* elements that were compared so far                   */
    char refusal[512];                /* why something could not be run, or ""                */
    const struct attn_claims *claims; /* of an external implementation, or NULL               */
    unsigned needs;                   /* the claims that were asked for                       */
    struct attn_fixture_shape shape;  /* the shape of the relation                            */
    struct attn_trial trial[ATTN_TRIALS];
    int second;   /* of the plan that is followed                         */
    void *arg;    /* the relation's own                                   */
    double slack; /* the relation's own: allowed beyond the bounds        */
};

/* ---- a plan ---------------------------------------------------------------------------------- */

/* An element of an input of one trial, and what it holds. */
struct attn_fixture_input {
    const struct attn_fixture *f;
    int trial;
    enum attn_slot slot;
    int64_t at[4];
    double old;
};

/* The equation at an element of an output of one trial: |got - want| <= allowed, or both are the
 * same infinity.  An `expect` finds got and allowed filled with that element and its bound, and
 * adds what is wanted. */
struct attn_equation {
    int trial;
    enum attn_output output;
    int64_t at[4];
    double got, want, allowed;
    int skip;         /* nothing is known here         */
    int exact;        /* equal bits: allowed counts not */
    const char *what; /* the name of the output, until an `expect` says what it is */
};

/* Trial 0 is the problem; the others are what became of it.  Their outputs are compared with its
 * own, those of trial 0 only when it is alone.  A trial that is refused is left out. */
struct attn_relation_plan {
    const char *id; /* of relations.def; several plans may share it */
    unsigned needs; /* capabilities without which the relation says nothing */
    enum attn_pass pass;
    const char *mask, *fill, *fields; /* of every trial that has none of its own; fields: or NULL */
    int trials;
    struct {
        const char *mask, *fill, *fields;
    } own[ATTN_TRIALS];
    int exact;  /* every equation is */
    int second; /* of two relations that share their functions: f->second */
    void (*shape)(struct attn_fixture_shape *shape, int trial); /* NULL: as it is     */
    double (*change)(const struct attn_fixture_input *in);      /* NULL: nothing is   */
    int (*prepare)(struct attn_fixture *f); /* beyond the inputs; 0: it cannot be run */
    int (*next)(struct attn_fixture *f); /* if not NULL: makes trial 1 anew, of the same numbers, to
                                            be compared with trial 0 again; 0: that was all */
    void (*expect)(const struct attn_fixture *f, struct attn_equation *e); /* NULL: the same  */
    void (*run)(struct attn_fixture *f); /* a relation of another form: this instead of all   */
};

/* The tables, each to a plan without an id. */
extern const struct attn_relation_plan attn_relations_of_values[], attn_relations_of_keys[],
    attn_relations_of_gradients[], attn_relations_of_state[], attn_relations_of_memory[];

void attn_fixture_follow(struct attn_fixture *f, const struct attn_relation_plan *plan);

/* Move f->shape to the nearest at which all trials of a plan are claimed: extents, and scales.
 * attn_fixture_follow does it for the time of its plan. */
void attn_fixture_settle(struct attn_fixture *f, const struct attn_relation_plan *plan);

/* A permutation of n places. */
int64_t attn_fixture_place(int64_t i, int64_t n);

/* For `shape`, beside causal(br): more queries than keys, so that some rows see nothing. */
void attn_fixture_tall(struct attn_fixture_shape *shape, int trial);

/* For `change`: what trial `trial` holds in the same tensor, column, batch and head, at `row`. */
double attn_fixture_row(const struct attn_fixture_input *in, int trial, int64_t row);
double attn_fixture_value(const struct attn_trial *t, enum attn_slot slot, const int64_t at[4]);

/* For `expect`.  Add factor times an element of the same output of a trial to what is wanted. */
void attn_equation_take(const struct attn_fixture *f, struct attn_equation *e, int trial,
                        double factor, const int64_t at[4]);
/* got becomes the sum of an output along an axis, for places that are 0 there; others are skipped.
 */
void attn_equation_sum(const struct attn_fixture *f, struct attn_equation *e,
                       enum attn_output output, int axis);
double attn_fixture_get(const struct attn_trial *t, enum attn_output output, const int64_t at[4]);
/* 0 when bounds were not asked for. */
double attn_fixture_bound(const struct attn_trial *t, enum attn_output output, const int64_t at[4]);

/* Extents of an output: [B, heads, rows, width]. */
void attn_fixture_extent(const struct attn_trial *t, enum attn_output output, int64_t extent[4]);

/* For `prepare`: a tensor moves into pages of its own (base/pages.h; bytes: of whole pages), with
 * the strides `stride` and element 0 `front` bytes behind their beginning.  0: the system gives no
 * such pages, the fixture knows. */
int attn_fixture_move(struct attn_fixture *f, struct attn_trial *t, enum attn_slot slot,
                      size_t bytes, size_t front, const int64_t stride[4]);
void attn_fixture_move_back(struct attn_trial *t); /* all that have moved */

/* ---- by hand, for relations of another form ---------------------------------------------------
 *
 * 1 when it could be done; else 0, and the fixture knows why. */

int attn_fixture_needs(struct attn_fixture *f, unsigned caps);

/* Open a case: shape, mask, fill and seed ("normal:s1"), fields (":scale=1", or "").  The
 * gradients are asked for where `pass` says so and the implementation has a backward. */
int attn_fixture_open(struct attn_fixture *f, struct attn_trial *t,
                      const struct attn_fixture_shape *shape, const char *mask, const char *fill,
                      enum attn_pass pass, const char *fields);
void attn_fixture_close(struct attn_trial *t);

/* Run what was opened and check integrity, without bounds.  ledger NULL: a fresh one. */
int attn_fixture_call(struct attn_fixture *f, struct attn_trial *t, const struct attn_spec *spec,
                      struct attn_ledger *ledger, int threads);

/* Put value(in) into every element of an input of one trial. */
void attn_fixture_change(struct attn_fixture *f, int trial, enum attn_slot slot,
                         double (*value)(const struct attn_fixture_input *in));

/* Judge an equation; at may be NULL.  May outputs be asked for equal bits at all? */
int attn_fixture_judge(struct attn_fixture *f, const struct attn_equation *e);
int attn_fixture_repeats(struct attn_fixture *f);
void attn_fixture_fail(struct attn_fixture *f, enum attn_failure failure, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Put words in front of the text of a failure. */
void attn_fixture_explain(struct attn_fixture *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
