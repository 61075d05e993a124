/* See growth.h. */
#include "tests/harness/relations/growth.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Large enough that the largest error is one of a thousand, and everything divides by 8. */
static const char problem[] = "h8q16k64d8:none:%s:normal:s%" PRIu64 "%s";
static const double parts[ATTN_GROWTH_POINTS] = {1, 2, 4, 8};

static int option_of_parts(const struct attn_impl *impl, const char **option)
{
    static const char *const name[] = {"ranks", "splits"};
    for (int o = 0; impl->options != NULL && impl->options[o].name != NULL; o++)
        for (int n = 0; n < 2; n++)
            if (strcmp(impl->options[o].name, name[n]) == 0 && impl->options[o].min <= 1 &&
                impl->options[o].max >= 8) {
                *option = name[n];
                return o;
            }
    return -1;
}

int attn_growth_applies(const struct attn_impl *impl)
{
    const char *option;
    return option_of_parts(impl, &option) >= 0;
}

static const char *type_of(const struct attn_impl *impl)
{
    static const enum attn_dtype order[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_F16};
    for (int t = 0; t < ATTN_DTYPES; t++)
        if (impl->caps & 1u << order[t])
            return attn_dtype_name(order[t]);
    return "f32";
}

/* Add the logarithms of one run's errors to those of its point; 0 when it came to no numbers. */
static int run_point(const struct attn_spec *spec, uint64_t seed, int option, int point,
                     struct attn_growth *growth, struct attn_result *r)
{
    struct attn_spec own = *spec;
    struct attn_case c;
    struct attn_error err = {0};
    char text[128];
    snprintf(text, sizeof text, problem, type_of(spec->impl), seed,
             spec->impl->caps & ATTN_CAP_BACKWARD ? ":pass=bwd" : "");
    own.options.value[option] = (int64_t)parts[point];
    memset(r, 0, sizeof *r);
    if (attn_case_parse(text, &c, &err) != ATTN_OK) {
        attn_result_error(r, err.status, err.text);
        return 0;
    }
    attn_run_case(&own, &c, r);
    const struct attn_precision *a = &r->precision;
    for (int o = 0; o < ATTN_OUTPUTS; o++) { /* an exact 0 cannot grow: a roundoff at least */
        double floor = (a->u_storage > a->u ? a->u_storage : a->u) * r->output[o].size;
        double error = r->output[o].error > floor ? r->output[o].error : floor;
        growth->error[point][o] += r->output[o].n > 0 ? log(error) / ATTN_GROWTH_SEEDS : 0;
    }
    return r->verdict == ATTN_PASS || r->verdict == ATTN_WEAK ||
           (r->verdict == ATTN_FAILED && r->failure == ATTN_F_BOUND);
}

/* Least squares: the slope of the errors' logarithms against those of the parts, 0 1 2 3 in units
 * of ln 2. */
static double slope_of(const double log_error[ATTN_GROWTH_POINTS])
{
    return (-3 * log_error[0] - log_error[1] + log_error[2] + 3 * log_error[3]) / (10 * log(2));
}

/* From logarithms to errors, slopes and the worst of these. */
static void fit(const struct attn_result *r, struct attn_growth *growth)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        double log_error[ATTN_GROWTH_POINTS];
        if (r->output[o].n == 0)
            continue;
        for (int point = 0; point < ATTN_GROWTH_POINTS; point++) {
            log_error[point] = growth->error[point][o];
            growth->error[point][o] = exp(log_error[point]);
        }
        growth->slope[o] = slope_of(log_error);
        if (!(growth->slope[o] <= growth->worst)) {
            growth->worst = growth->slope[o];
            growth->output = (enum attn_output)o;
        }
    }
}

void attn_growth_run(const struct attn_spec *spec, uint64_t seed, struct attn_growth *growth,
                     struct attn_result *r)
{
    *growth = (struct attn_growth){0};
    int option = option_of_parts(spec->impl, &growth->option);
    memset(r, 0, sizeof *r);
    if (option < 0) {
        r->verdict = ATTN_REFUSED;
        snprintf(r->text, sizeof r->text,
                 "%s cuts nothing into parts: it has neither ranks nor "
                 "splits",
                 spec->impl->name);
        return;
    }
    for (uint64_t n = 0; n < ATTN_GROWTH_SEEDS; n++)
        for (int point = 0; point < ATTN_GROWTH_POINTS; point++)
            if (!run_point(spec, seed + n, option, point, growth, r))
                return;
    fit(r, growth);
    const struct attn_precision precision = r->precision;
    memset(r, 0, sizeof *r);
    r->precision = precision;
    r->is_growth = 1;
    r->growth = growth->worst;
    int ok = growth->worst <= ATTN_GROWTH_LIMIT;
    if (ok)
        return;
    const double *e[ATTN_GROWTH_POINTS] = {growth->error[0], growth->error[1], growth->error[2],
                                           growth->error[3]};
    enum attn_output o = growth->output;
    attn_result_fail(r, ATTN_F_GROWTH,
                     "errors of %s grow with %s to the power %.2f (%.3g, %.3g, %.3g, %.3g at 1, 2, "
                     "4, 8); above %g partial results are rounded too early",
                     attn_output_name(o), growth->option, growth->worst, e[0][o], e[1][o], e[2][o],
                     e[3][o], ATTN_GROWTH_LIMIT);
}
