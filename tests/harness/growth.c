/* See growth.h. */
#include "tests/harness/growth.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Large enough that the largest error is one of thousands, and everything divides by 8. */
static const char problem[] = "h8q64k128d16:none:%s:normal:s%" PRIu64 "%s";
static const double parts[ATTN_GROWTH_POINTS] = {1, 2, 4, 8};

static int option_of_parts(const struct attn_impl *impl, struct attn_growth *growth)
{
    static const char *const name[] = {"ranks", "splits"};
    for (int o = 0; impl->options != NULL && impl->options[o].name != NULL; o++)
        for (int n = 0; n < 2; n++)
            if (strcmp(impl->options[o].name, name[n]) == 0 && impl->options[o].min <= 1 &&
                impl->options[o].max >= 8) {
                growth->option = name[n];
                return o;
            }
    return -1;
}

/* Errors of one point; 0 when the run itself did not come to numbers. */
static int run_point(const struct attn_spec *spec, uint64_t seed, int option, int point,
                     struct attn_growth *growth, struct attn_result *r)
{
    struct attn_spec own = *spec;
    struct attn_case c;
    struct attn_error err = {0};
    char text[128];
    int f32 = (spec->impl->caps & ATTN_CAP_F32) != 0;
    snprintf(text, sizeof text, problem, f32 ? "f32" : "f64", seed,
             spec->impl->caps & ATTN_CAP_BACKWARD ? ":pass=bwd" : "");
    own.options.value[option] = (int64_t)parts[point];
    if (attn_case_parse(text, &c, &err) != ATTN_OK) {
        *r = (struct attn_result){.verdict = ATTN_ERROR};
        snprintf(r->text, sizeof r->text, "%s", err.text);
        return 0;
    }
    attn_run_case(&own, &c, r);
    int judged = r->verdict == ATTN_PASS || r->verdict == ATTN_WEAK ||
                 (r->verdict == ATTN_FAILED && r->failure == ATTN_F_BOUND);
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        growth->error[point][o] = r->output[o].error;
    return judged;
}

void attn_growth_run(const struct attn_spec *spec, uint64_t seed, struct attn_growth *growth,
                     struct attn_result *r)
{
    *growth = (struct attn_growth){0};
    int option = option_of_parts(spec->impl, growth);
    memset(r, 0, sizeof *r);
    if (option < 0) {
        r->verdict = ATTN_REFUSED;
        snprintf(r->text, sizeof r->text,
                 "%s cuts nothing into parts: it has neither ranks nor "
                 "splits",
                 spec->impl->name);
        return;
    }
    for (int point = 0; point < ATTN_GROWTH_POINTS; point++)
        if (!run_point(spec, seed, option, point, growth, r))
            return;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        double error[ATTN_GROWTH_POINTS];
        for (int point = 0; point < ATTN_GROWTH_POINTS; point++)
            error[point] = growth->error[point][o];
        if (r->output[o].n == 0)
            continue;
        double u =
            r->precision.u_storage > r->precision.u ? r->precision.u_storage : r->precision.u;
        growth->slope[o] =
            attn_growth_slope(parts, error, ATTN_GROWTH_POINTS, u * r->output[o].size);
        if (growth->slope[o] > growth->worst) {
            growth->worst = growth->slope[o];
            growth->output = (enum attn_output)o;
        }
    }
    const struct attn_precision precision = r->precision;
    memset(r, 0, sizeof *r);
    r->precision = precision;
    r->worst = growth->worst / ATTN_GROWTH_LIMIT;
    int ok = growth->worst <= ATTN_GROWTH_LIMIT;
    if (ok)
        return;
    r->verdict = ATTN_FAILED;
    r->failure = ATTN_F_GROWTH;
    snprintf(r->text, sizeof r->text,
             "errors of %s grow with %s to the power %.2f (%.3g, %.3g, %.3g, %.3g at 1, 2, 4, 8); "
             "above %g partial results are rounded too early",
             attn_output_name(growth->output), growth->option, growth->worst,
             growth->error[0][growth->output], growth->error[1][growth->output],
             growth->error[2][growth->output], growth->error[3][growth->output], ATTN_GROWTH_LIMIT);
}
