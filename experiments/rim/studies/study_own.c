/* attnlab's own implementations in a study (study.h): priced, or measured in a process of their
 * own. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point.h"
#include "experiments/measure/preflight.h"
#include "experiments/price/stack.h"
#include "experiments/rim/studies/study.h"

/* Something that the study needs and did not get. */
static int fail(struct attn_study_run *run, const char *spec, const char *why)
{
    attn_study_quantity(run, attn_study_text(run, "%s: %s", spec, why), ATTN_DERIVED, 1, 0, "done",
                        0);
    return 0;
}

static enum attn_status price(const char *spec_text, const char *text, struct attn_point *point,
                              struct attn_error *err)
{
    struct attn_spec spec;
    int64_t need;
    attn_point_init(point);
    enum attn_status status = attn_spec_parse(spec_text, &spec, err);
    if (status == ATTN_OK)
        status = attn_case_parse(text, &point->c, err);
    return status == ATTN_OK ? attn_preflight_case(&spec, &point->c, point, &need, err) : status;
}

/* A price that a study knows, which was refused. */
static void refused(struct attn_study_run *run, const char *spec, const struct attn_error *err)
{
    if (err->status == ATTN_ENOMEM)
        run->lacks = ATTN_ENOMEM;
    fail(run, spec, err->text);
}

struct attn_point attn_study_price(struct attn_study_run *run, const char *spec, const char *text)
{
    struct attn_point point;
    struct attn_error err;
    if (price(spec, text, &point, &err) != ATTN_OK)
        refused(run, spec, &err);
    return point;
}

/* The cost of one call, or of a stack of layers that saves something; zeros where it is refused. */
static struct attn_cost cost_of(struct attn_study_run *run, const char *spec_text, const char *text,
                                int64_t layers, const char *save)
{
    struct attn_point point;
    struct attn_error err;
    struct attn_stack stack = {.n = layers};
    struct attn_problem problem = {0};
    struct attn_spec spec;
    struct attn_stack_cost cost = {0};
    int64_t need;
    enum attn_status status = attn_spec_parse(spec_text, &spec, &err);
    if (status == ATTN_OK)
        status = attn_stack_save_find(save, &stack.save, &err);
    if (status == ATTN_OK)
        status = attn_case_parse(text, &point.c, &err);
    if (status == ATTN_OK)
        status = attn_preflight_open(&point.c, &problem, &point, &need, &err);
    if (status == ATTN_OK)
        status = layers > 0 ? attn_stack_price(&stack, &spec, &problem, ATTN_FORWARD, &cost, &err)
                            : attn_price(spec.impl, &spec.options, &problem, point.c.pass, 0,
                                         &cost.cost, &err);
    if (status != ATTN_OK)
        refused(run, spec_text, &err);
    attn_preflight_close(&problem);
    return cost.cost;
}

int64_t attn_study_buffer(struct attn_study_run *run, const char *spec, const char *text,
                          const char *buffer)
{
    const struct attn_cost cost = cost_of(run, spec, text, 0, "rows");
    int64_t bytes = 0;
    for (int a = 0; a < cost.n_live; a++)
        if (strncmp(cost.live[a].name, buffer, strlen(buffer)) == 0)
            bytes += cost.live[a].bytes;
    return bytes;
}

double attn_study_saved(struct attn_study_run *run, const char *spec, const char *text,
                        int64_t layers, const char *save)
{
    return (double)cost_of(run, spec, text, layers, save).saved_bytes;
}

int attn_study_accepts(const char *spec, const char *text)
{
    static struct attn_point point;
    struct attn_error err = {ATTN_OK, ""};
    return price(spec, text, &point, &err) == ATTN_OK;
}

/* On a terminal, each second of what takes long. */
static void show_seconds(double seconds)
{
    static double shown;
    if (seconds < shown)
        shown = 0; /* another process */
    if (seconds < shown + 1)
        return;
    shown = seconds;
    fprintf(stderr, "\r  %.0f s ", seconds);
}

int attn_study_measure(struct attn_study_run *run, const char *spec, const char *text,
                       struct attn_point *point)
{
    static struct attn_point own;
    /* the first call of minutes is enough */
    const struct attn_point_how how = {
        .repeat = run->is_long ? 0 : 3, .enough_s = 0.3, .verify_all = 2048};
    point = point != NULL ? point : &own;
    if (run->leave_out >= 0)
        return 0;
    int shows = run->is_long && isatty(STDERR_FILENO);
    attn_point_init(point);
    snprintf(point->spec, sizeof point->spec, "%s", spec);
    snprintf(point->text, sizeof point->text, "%s", text);
    attn_point_process(&how, (double)INFINITY, shows ? show_seconds : NULL, point);
    if (shows)
        fputs("\r          \r", stderr);
    if (point->status == ATTN_POINT_OUT_OF_MEMORY)
        run->lacks = ATTN_ENOMEM;
    if (point->status != ATTN_POINT_OK)
        return fail(run, spec, point->message);
    attn_study_quantity(
        run,
        attn_study_text(run, "%s %s agrees with the oracle, largest error / bound", spec, text),
        ATTN_DERIVED, 0, point->judged.worst, "", 1);
    attn_study_quantity(run, "its ledger, which must be its price", ATTN_DERIVED,
                        (double)point->price.peak, (double)point->ledger_bytes, "B", 0);
    return 1;
}

void attn_study_measure_long(struct attn_study_run *run, const char *spec, const char *text)
{
    char bytes[32];
    struct attn_point point;
    if (!run->is_long)
        return;
    fflush(run->out);
    if (attn_study_measure(run, spec, text, &point))
        attn_study_say(run, "%s took %.1f s for it, and its resident set grew by %s.", spec,
                       point.first_s, attn_cli_bytes(point.resident_bytes, bytes));
}
