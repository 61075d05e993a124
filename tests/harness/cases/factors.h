/* Factors: the properties of a problem on which kernels branch, and the values that matter.
 *
 * A real kernel is many kernels: one for each width of head, one for decoding, one for lengths that
 * tiles divide.  An error in one of them shows only where a case has its values.  The table
 * (factors.def) lists factors and values; a choice takes one value of each and makes a case. */
#ifndef TESTS_HARNESS_CASES_FACTORS_H
#define TESTS_HARNESS_CASES_FACTORS_H

#include "tests/harness/cases/cases.h"

enum attn_factor_id {
#define ATTN_FACTOR(id, name, says, ...) ATTN_FACTOR_##id,
#include "tests/harness/cases/factors.def"
#undef ATTN_FACTOR
    ATTN_FACTORS
};
enum { ATTN_FACTOR_VALUES = 24 };

struct attn_factor {
    const char *name, *says;
    int n;                                 /* values */
    const char *value[ATTN_FACTOR_VALUES]; /* value[0] is neutral */
};
extern const struct attn_factor attn_factor[ATTN_FACTORS];

/* A value of each factor, by its place in the table. */
struct attn_choice {
    int value[ATTN_FACTORS];
};

int64_t attn_choice_number(const struct attn_choice *choice, int factor); /* of a numeric value */

/* Work of the case in products of features, of a pair of query and key and of a row of a tensor;
 * running and judging a backward case takes about 25 ns for each. */
double attn_case_work(const struct attn_case *c);
double attn_choice_work(const struct attn_choice *choice);

/* Whether the values can stand together: a group divides the heads, dv = d and a scale of
 * 1/sqrt(d) have one name, a gradient needs what it is the gradient of, some key
 * is seen. */
int attn_choice_is_possible(const struct attn_choice *choice);

/* The case of a possible choice, its fill `normal`. */
void attn_choice_case(const struct attn_choice *choice, uint64_t seed, struct attn_case *c);

/* Its values that are not neutral: "d=72, heads=5, pass=bwd". */
void attn_choice_print(const struct attn_choice *choice, char *text, size_t size);

/* Cases made of the table, the same in every process: in the quick tier each value alone, in the
 * full one, which begins with those, each pair of values.  Returns how many it wrote. */
struct attn_factor_case {
    char name[16], text[240], why[240];
};
enum { ATTN_FACTOR_FULL_MOST = 2000 };
int attn_factor_cases(enum attn_tier tier, struct attn_factor_case cases[ATTN_FACTOR_FULL_MOST]);

#endif
