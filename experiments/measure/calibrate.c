/* Two questions to the recorder itself.  Does VmHWM see what is known to be there?  How far apart
 * are two names for the same thing? */
#include "experiments/measure/calibrate.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/measure/point/point.h"
#include "experiments/measure/record.h"
#include "experiments/measure/stats.h"
#include "optimized/registry.h"
#include "ref/ledger.h"
#include "tests/harness/base/ending.h"
#include "tests/harness/base/process.h"

enum { MEMORY_BYTES = 64 << 20, PAIRS = 5 };

static const double MEMORY_TOLERANCE = 0.02;

/* Small enough for milliseconds, long enough for the clock: a fifth of one a call. */
static const char aa_case[] = "b1h1q64d64:none:f32:normal:s1";

static json_t *calibration(const char *kind)
{
    return json_pack("{s:i, s:s, s:s}", "schema", ATTN_RECORD_SCHEMA, "record", "calibration",
                     "kind", kind);
}

/* ---- memory ------------------------------------------------------------------------------- */

int attn_calibrate_memory_here(int64_t bytes)
{
    struct attn_ledger ledger;
    struct attn_error err = {ATTN_OK, ""};
    struct attn_resident resident;
    attn_ledger_init(&ledger, NULL);
    attn_resident_begin(&resident);
    unsigned char *block = attn_ledger_take(&ledger, "calibration", bytes, 1, &err);
    if (block == NULL)
        return attn_cli_fail(ATTN_EXIT_LACKS, "%s", err.text);
    memset(block, 0x5a, (size_t)bytes);
    __asm__ volatile("" : : "r"(block) : "memory"); /* or the compiler drops the memset */
    attn_resident_end(&resident);
    attn_ledger_give(&ledger, block);
    json_t *line = calibration("memory"), *got = json_null();
    if (resident.bytes >= 0)
        got = json_integer(resident.bytes);
    json_object_update_new(line, json_pack("{s:I, s:o, s:i}", "expected_bytes", (json_int_t)bytes,
                                           "resident_bytes", got, "hwm_reset", resident.reset));
    if (attn_record_write_json(stdout, line) != 0)
        return attn_cli_fail(ATTN_EXIT_LACKS, "standard output: %s", strerror(errno));
    return ATTN_EXIT_GOOD;
}

static int cannot(const char *why, struct attn_error *err)
{
    attn_fail(err, ATTN_ENOMEM, "the calibration cannot be run: %.200s", why);
    return -1;
}

/* `attnlab point` in a fresh process; -1 when it does not end well.  The points would
 * meet its refusals too. */
static int ask(const char *line, struct attn_process *child, struct attn_error *err)
{
    const char *const args[] = {"point", line, NULL};
    if (attn_process_attnlab(args, 60, child) != 0)
        return cannot(strerror(errno), err);
    if (child->exit_status == 0 || child->interrupted)
        return 0;
    return cannot(child->timed_out     ? "no end after 60 s"
                  : child->signal != 0 ? strsignal(child->signal)
                                       : child->last_line,
                  err);
}

static int calibrate_memory(FILE *file, const char *session, struct attn_error *err)
{
    char out[1 << 16];
    struct attn_process child = {.out = out, .capacity = sizeof out};
    int64_t bytes = MEMORY_BYTES;
    while (bytes > (8 << 20) && bytes > attn_cli_memory_available() / 4)
        bytes /= 2;
    char asked[128];
    snprintf(asked, sizeof asked,
             "{\"schema\": %d, \"record\": \"calibration\", \"expected_bytes\": %lld}",
             ATTN_RECORD_SCHEMA, (long long)bytes);
    if (ask(asked, &child, err) != 0)
        return -1;
    json_t *line = json_loads(child.out, 0, NULL);
    const json_t *got = json_object_get(line, "resident_bytes");
    double error =
        json_is_integer(got) ? (double)json_integer_value(got) / (double)bytes - 1 : (double)NAN;
    int ok = fabs(error) <= MEMORY_TOLERANCE;
    if (line == NULL)
        line = calibration("memory");
    json_object_update_new(line, json_pack("{s:s, s:o, s:b}", "session", session, "error",
                                           attn_cli_real(error), "ok", ok));
    char seen[80] = "what VmHWM says of that could not be found out";
    if (!isnan(error))
        snprintf(seen, sizeof seen, "VmHWM rose by %.1f %% of that", 100 * (1 + error));
    if (!ok)
        attn_cli_fail(0,
                      "warning: %lld bytes were written and %s; resident memory cannot be trusted "
                      "here%s%s",
                      (long long)bytes, seen, child.last_line[0] != '\0' ? ": " : "",
                      child.last_line);
    return attn_record_write_json(file, line);
}

/* ---- A/A ---------------------------------------------------------------------------------- */

/* Median warm call of a fresh process.  0, or -1. */
static int aa_time(double *time_s, struct attn_error *err)
{
    static struct attn_point point;
    const struct attn_point_how how = {.repeat = 20, .enough_s = 0.3, .verify_all = 2048};
    attn_point_init(&point);
    snprintf(point.spec, sizeof point.spec, "%s", attn_impl_at(0)->name);
    snprintf(point.text, sizeof point.text, "%s", aa_case);
    if (!attn_point_process(&how, 60, NULL, &point))
        return 0;
    *time_s = attn_point_call_s(&point, ATTN_CALL_WARM);
    return point.n_warm > 0 ? 0 : cannot(point.message, err);
}

/* a[] and b[] are times of the same thing, taken in turns: what their medians differ by is what
 * a difference must exceed to mean anything. */
static int calibrate_aa(FILE *file, const char *session, struct attn_error *err)
{
    double a[PAIRS], b[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        if (aa_time(&a[i], err) != 0 || aa_time(&b[i], err) != 0)
            return -1;
        else if (attn_process_interrupted()) /* no medians of a part */
            return 0;
    json_t *line = calibration("aa"), *all_a = json_array(), *all_b = json_array();
    struct attn_spread of_a, of_b;
    for (int i = 0; i < PAIRS; i++) {
        json_array_append_new(all_a, json_real(a[i]));
        json_array_append_new(all_b, json_real(b[i]));
    }
    attn_stats_spread(a, PAIRS, &of_a);
    attn_stats_spread(b, PAIRS, &of_b);
    double range = fmax(of_a.max, of_b.max) - fmin(of_a.min, of_b.min);
    json_object_update_new(
        line, json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "session", session, "spec",
                        attn_impl_at(0)->name, "case", aa_case, "a_s", all_a, "b_s", all_b, "ratio",
                        attn_cli_real(of_a.median / of_b.median), "spread",
                        attn_cli_real(range / (0.5 * (of_a.median + of_b.median)))));
    return attn_record_write_json(file, line);
}

/* ---- both --------------------------------------------------------------------------------- */

int attn_calibrate_session(FILE *file, const char *session, struct attn_error *err)
{
    return calibrate_memory(file, session, err) == 0 ? calibrate_aa(file, session, err) : -1;
}
