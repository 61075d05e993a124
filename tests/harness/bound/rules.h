/* Acceptance rules that people use for attention, as plain functions, beside attnlab's own bound.
 *
 * They are asked for by name (`attnlab compare --rule`).  Each keeps its own arithmetic and its own
 * figure; two things are the same for all of them, because no rule should be able to overlook them:
 *   - values that are not finite are counted first.  An infinity agrees with the same infinity
 *     (LSE of a query that sees no key) and is left out of every sum; anything else disagrees, a
 *     NaN even with a NaN;
 *   - a tensor agrees when figure <= limit, written so that a NaN on either side disagrees.
 */
#ifndef TESTS_HARNESS_BOUND_RULES_H
#define TESTS_HARNESS_BOUND_RULES_H

#include "ref/attn.h"

struct attn_rule_data {
    int64_t n;
    const double *got, *want;
    const double *reference; /* fa2: a naive run in the same precision; else NULL */
    const double *bound;     /* bound: T1 of each element (bound.h); else NULL    */
    enum attn_dtype dtype;   /* ulp: the type whose numbers are counted           */
};

struct attn_rule_result {
    double figure, limit; /* agrees when figure <= limit                                  */
    int64_t n_bad;        /* elements that disagree by themselves; of rules that judge a
                             whole tensor: those that are not finite                      */
    int64_t n_not_finite; /* of these, not finite                                         */
    int64_t worst;        /* its index; -1: empty, or no element differs                  */
    int ok;
};

enum { ATTN_RULE_REFERENCE = 1, ATTN_RULE_BOUND = 2 };

struct attn_rule {
    const char *name;
    const char *parameter[2];
    double preset[2]; /* NaN: must be given.  Of unnamed parameters: fixed */
    int needs;        /* ATTN_RULE_REFERENCE, ATTN_RULE_BOUND */
    /* Judge the finite pairs; figure, limit, n_bad and worst are 0, 0, 0 and -1 before. */
    void (*judge)(const double parameter[2], const struct attn_rule_data *data,
                  struct attn_rule_result *result);
};

extern const struct attn_rule attn_rule[];
extern const int attn_rule_count;

/* A rule and its parameters: "numpy", "allclose(1e-3,1e-5)", "allclose(atol=1e-5,rtol=1e-3)". */
struct attn_rule_choice {
    const struct attn_rule *rule;
    double parameter[2];
};

/* EINVAL: names the rules, the parameters, or what the number should have been. */
enum attn_status attn_rule_parse(const char *text, struct attn_rule_choice *choice,
                                 struct attn_error *err);

/* As it would be parsed, parameters by name.  Returns text. */
const char *attn_rule_print(const struct attn_rule_choice *choice, char *text, size_t size);

void attn_rule_judge(const struct attn_rule_choice *choice, const struct attn_rule_data *data,
                     struct attn_rule_result *result);

/* How many numbers of a type lie between two finite values, the larger included; a value that the
 * type does not have counts by its place between its neighbours. */
double attn_ulps_between(double a, double b, enum attn_dtype dtype);

#endif
