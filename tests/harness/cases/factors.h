/* Factors: the properties of a problem on which kernels branch, and the values that matter.
 *
 * A real kernel is many kernels: one for each width of head, one for decoding, one for lengths
 * that tiles divide.  An error in one of them shows only where a case has its values.  The table
 * (factors.def) lists factors and values; claims leave some of them out and add what they declare
 * of shapes; a choice takes one value of each and makes a case. */
#ifndef TESTS_HARNESS_CASES_FACTORS_H
#define TESTS_HARNESS_CASES_FACTORS_H

#include "tests/harness/cases/battery.h"
#include "tests/harness/inputs/case.h"

enum attn_factor_id {
#define ATTN_FACTOR(id, name, says, shows, ...) ATTN_FACTOR_##id,
#include "tests/harness/cases/factors.def"
#undef ATTN_FACTOR
    ATTN_FACTORS
};
enum {
    ATTN_FACTOR_VALUES = 28,
    ATTN_NUMBER_BESIDE = -1,
    ATTN_EXTENTS =
        ATTN_FACTOR_WINDOW + 1, /* the first factors: an implementation may declare them */
    ATTN_FACTOR_IDS = ATTN_FACTORS * ATTN_FACTOR_VALUES /* of a value of a factor */
};

struct attn_factor {
    const char *name, *says, *shows;
    int n;                                 /* values */
    const char *value[ATTN_FACTOR_VALUES]; /* value[0] is neutral */
};
extern const struct attn_factor attn_factor[ATTN_FACTORS];

/* The table as claims leave it.  Neutral is what is claimed and nearest to the table's own neutral
 * value; of declared extents the ends, first steps and some others are values too, and of each
 * extent a number that the seed draws.  It points into itself: it stays where it is. */
struct attn_claims; /* claims.h */

/* By which road its tensors come: files have no strides; our own take masks as they are. */
enum attn_route { ATTN_ROUTE_PLUGIN, ATTN_ROUTE_FILES, ATTN_ROUTE_OWN };

struct attn_factors {
    const struct attn_claims *claims; /* borrowed */
    int takes_numbers;                /* bands come as numbers, other masks as bytes */
    struct attn_factor of[ATTN_FACTORS];
    int first_any[ATTN_EXTENTS]; /* values from here on were drawn */
    int n_quick[ATTN_EXTENTS];   /* values of the quick tier: the full one draws one more */
    char text[ATTN_EXTENTS][ATTN_FACTOR_VALUES][8];
    int64_t number[ATTN_EXTENTS][ATTN_FACTOR_VALUES]; /* values of extents; of "=" the name below */
};
void attn_factors_open(const struct attn_claims *claims, enum attn_route route, uint64_t seed,
                       enum attn_tier tier, struct attn_factors *table);

static inline int attn_value_id(int factor, int value)
{
    return factor * ATTN_FACTOR_VALUES + value;
}

/* The place of a value; -1: it is not there. */
int attn_value_called(const struct attn_factors *table, int factor, const char *name);

/* A value of each factor, by its place in the table. */
struct attn_choice {
    int value[ATTN_FACTORS];
};

/* Of an extent: keys "=" are the queries, dv "=" is d, or what is declared nearest to these. */
int64_t attn_choice_number(const struct attn_factors *table, const struct attn_choice *choice,
                           int factor);

/* Work of the case in products of features, of a pair of query and key and of a row of a tensor;
 * running and judging a backward case takes about 25 ns for each. */
double attn_case_work(const struct attn_case *c);
double attn_choice_work(const struct attn_factors *table, const struct attn_choice *choice);

/* 1 if the values can stand together: a group divides the heads, no extent has two names, a
 * gradient needs what it is the gradient of, some key is seen, every declared extent is kept, and
 * nothing is asked that is not claimed. */
int attn_choice_is_possible(const struct attn_factors *table, const struct attn_choice *choice);

/* 1 if the case of this choice can show an error that strikes where both values meet.
 * The table says in words which values hide it. */
int attn_choice_shows(const struct attn_factors *table, const struct attn_choice *choice,
                      int factor, int other);

/* 1: dQ and dK are 0 (one key for every query and no dLSE, a scale of 0): of the gradients only dV
 * shows an error. */
int attn_choice_is_flat(const struct attn_factors *table, const struct attn_choice *choice);

/* The case of a possible choice. */
void attn_choice_case(const struct attn_factors *table, const struct attn_choice *choice,
                      uint64_t seed, struct attn_case *c);

/* Its values that are not neutral: "d=72, heads=5, pass=bwd". */
void attn_choice_print(const struct attn_factors *table, const struct attn_choice *choice,
                       char *text, size_t size);

/* Choices that meet the values of the table: in the quick tier each value alone, in the full one,
 * which begins with those, each pair of values.  `take` gets each with its name.  0: no memory. */
struct attn_choice_taker {
    void (*take)(void *arg, const char *name, const struct attn_choice *choice, uint64_t seed);
    void *arg;
    int *left_out; /* gains the pairs that a plug-in is asked, and our own are not: too much work */
};
int attn_factor_choices(const struct attn_factors *table, enum attn_tier tier,
                        const struct attn_choice_taker *taker);

/* The few large cases of a tier, for faults that strike from a size on (factor_corners.c), in
 * rising order of work, the full tier's behind those of the quick one.  The more, the sooner code
 * of the route may be expected to end them, and the fewer seconds are spent on other cases.  0: no
 * memory. */
struct attn_case_taker {
    void (*take)(void *arg, const char *name, const struct attn_case *c);
    void *arg;
};
int attn_corner_cases(const struct attn_factors *table, enum attn_tier tier, enum attn_route route,
                      double spent, const struct attn_case_taker *taker);
int attn_is_corner(const char *name); /* of a case: one of these, or a long row of keys */

#endif
