/* See curve_lab.h. */
#include "tests/curve_lab.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/scratch.h"
#include "tests/stranger_lab.h"
#include "tests/suites.h"

int lab_is_asan(void)
{
    return strstr(test_build(), "asan") != NULL;
}

/* A plug-in NAME.so of these flags; of "" the naive example itself. */
void lab_build_plugin(const char *name, const char *does)
{
    ck_assert_int_eq(lab_shell("cc -std=c11 -D_GNU_SOURCE -O1 -w -shared -fPIC -I. -DCURVE=%s "
                               "-Dattn_plugin_get=naive_get -include docs/examples/plugin_naive.c "
                               "-o '%s' tests/strangers/plugin_curve.c -lm",
                               does, scratch_path(name)),
                     0);
}

/* A command NAME of these flags, and claims.json. */
void lab_build_command(const char *name, const char *does)
{
    static const char claims[] = "{\"name\": \"dense in C\", \"claims\": [\"f32\"]}";
    scratch_put("claims.json", claims, sizeof claims - 1);
    ck_assert_int_eq(
        lab_shell("cc -std=c11 -D_GNU_SOURCE -O2 -w -I. -DDOES=%s -o '%s' "
                  "tests/strangers/exec_dense.c %s/libharness.a %s/libattn.a -pthread -fopenmp "
                  "$(pkg-config --libs jansson libzip) -lm%s",
                  does, scratch_path(name), test_build(), test_build(),
                  lab_is_asan() ? " -fsanitize=address,undefined" : ""),
        0);
}

struct attn_point *lab_curve;
int64_t lab_curve_n;

void lab_read_curve(void)
{
    struct attn_error err = {ATTN_OK, ""};
    free(lab_curve);
    ck_assert_msg(attn_record_read(scratch_path("r.jsonl"), &lab_curve, &lab_curve_n, NULL, &err) ==
                      ATTN_OK,
                  "%s", err.text);
}

/* The record of a spec, length and round; NULL: none. */
const struct attn_point *lab_curve_point(const char *spec, int64_t length, int round)
{
    for (int64_t i = 0; i < lab_curve_n; i++)
        if (strcmp(lab_curve[i].spec, spec) == 0 && lab_curve[i].c.n_query == length &&
            lab_curve[i].round == round)
            return &lab_curve[i];
    return NULL;
}

/* Status and time of it. */
const struct attn_point *lab_expect(const char *spec, int64_t length, enum attn_point_status status)
{
    const struct attn_point *p = lab_curve_point(spec, length, 0);
    ck_assert_msg(p != NULL, "%s %d has no record", spec, (int)length);
    ck_assert_msg(p->status == status, "%s %d ended as %s: %s", spec, (int)length,
                  attn_point_status_name(p->status), p->message);
    ck_assert_msg(status == ATTN_POINT_OK || (p->n_warm == 0 && isnan(p->first_s)),
                  "%s %d has a time", spec, (int)length);
    return p;
}

void lab_expect_words(const char *spec, int64_t length, enum attn_point_status status,
                      const char *words)
{
    const struct attn_point *p = lab_expect(spec, length, status);
    ck_assert_msg(strstr(p->message, words) != NULL, "%s does not say '%s': %s", spec, words,
                  p->message);
}

/* What only the ledger and prices know is unknown; everything else is there. */
void lab_is_stranger(const struct attn_point *p, const char *route, const char *clock)
{
    ck_assert_str_eq(p->impl, p->spec);
    ck_assert_str_eq(p->family, route);
    ck_assert_str_eq(p->route, route);
    ck_assert_str_eq(p->time_source, clock);
    ck_assert_int_eq(p->priced_bytes, -1);
    ck_assert_int_eq(p->ledger_bytes, -1);
    ck_assert_int_eq(p->process_ledger_bytes, -1);
    ck_assert_int_eq(p->bytes_sent, -1);
    ck_assert_int_eq(p->n_live, 0);
    ck_assert(isnan(p->flops));
    ck_assert_int_gt(p->floor_bytes, 0);
    ck_assert_int_gt(p->baseline_bytes, 0);
    ck_assert_int_gt(p->hwm_bytes, p->baseline_bytes);
    ck_assert_int_eq(strlen(p->source_digest), 16);
    ck_assert(p->first_s > 0);
    ck_assert(p->worst <= 1); /* also: not NaN */
    ck_assert_str_eq(p->verified, p->round == 0 ? "all" : "same bits as round 0");
}

/* |got - want| within 2 %, and what small allocations and the kernel's counting may be. */
void lab_near_bytes(const char *what, double got, double want, double small)
{
    ck_assert_msg(got - want <= 0.02 * want + small && want - got <= 0.02 * want + small,
                  "%s: %.0f bytes, %.0f wanted", what, got, want);
}

int lab_memory_is_visible(const struct attn_point *p)
{
    if (!lab_is_asan() && p->resident_bytes >= 0)
        return 1;
    printf("stranger_curves: skipped: resident memory says nothing here\n");
    return 0;
}
