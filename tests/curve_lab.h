/* What the tests of measured plug-ins and commands share. */
#ifndef TESTS_CURVE_LAB_H
#define TESTS_CURVE_LAB_H

#include "experiments/record.h"

#define LAB_MIB (1024.0 * 1024)

int lab_is_asan(void);

/* Build tests/strangers/plugin_curve.c into the scratch folder, doing one of what it can do, "0"
 * none of it; tests/strangers/exec_dense.c, with claims.json. */
void lab_build_plugin(const char *name, const char *does);
void lab_build_command(const char *name, const char *does);

/* The records of r.jsonl in the scratch folder. */
extern struct attn_point *lab_curve;
extern int64_t lab_curve_n;
void lab_read_curve(void);

/* The record of a spec, length and round; NULL: none. */
const struct attn_point *lab_curve_point(const char *spec, int64_t length, int round);

/* Round 0 ended so, and has no time unless it is ok; its message has these words. */
const struct attn_point *lab_expect(const char *spec, int64_t length,
                                    enum attn_point_status status);
void lab_expect_words(const char *spec, int64_t length, enum attn_point_status status,
                      const char *words);

/* A good point of an implementation that is not ours. */
void lab_is_stranger(const struct attn_point *point, const char *route, const char *clock);

/* |got - want| within 2 %, and what small allocations and the kernel's counting may be. */
void lab_near_bytes(const char *what, double got, double want, double small);

/* 0, and said so, where resident memory says nothing. */
int lab_memory_is_visible(const struct attn_point *point);

#endif
