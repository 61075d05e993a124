/* The results of a check, serialised once: every fact in words, which text and JUnit show, and as
 * numbers, which JSON does. */
#include <jansson.h>
#include <stdarg.h>

#include "experiments/check/verdicts.h"
#include "experiments/cli/cli.h"

/* A fact more; its numbers under a key, which are the row's then.  NULL: it has none. */
static void add(json_t *facts, const char *name, const char *key, json_t *numbers,
                const char *format, ...) __attribute__((format(printf, 5, 6)));
static void add(json_t *facts, const char *name, const char *key, json_t *numbers,
                const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_array_append_new(facts, json_pack("{s:s,s:o,s:s*,s:o*}", "name", name, "text",
                                           attn_cli_words(text), "key", key, "numbers", numbers));
}

/* Facts that only many numbers together show, and the worth of a pass. */
static void add_grades(json_t *facts, const struct attn_result *r)
{
    const char letter[2] = {r->grade.letter, '\0'};
    char words[256];
    if (r->grade.letter != 0)
        add(facts, "grade", "grade",
            json_pack("{s:s,s:o}", "letter", letter, "error_over_t2", attn_cli_real(r->grade.rho)),
            "%s, error/T2 %.3g", letter, r->grade.rho);
    if (r->grade.rows > 0)
        add(facts, "bias", "bias",
            json_pack("{s:o,s:I,s:f}", "deviations", attn_cli_real(r->grade.bias), "rows",
                      (json_int_t)r->grade.rows, "limit", ATTN_BIAS_LIMIT),
            "%.3g deviations of o over %lld rows, limit %g", r->grade.bias,
            (long long)r->grade.rows, ATTN_BIAS_LIMIT);
    if (r->mask.pairs > 0)
        add(facts, "mask", "mask_test",
            json_pack("{s:b,s:I,s:I,s:o}", "admitted", r->mask.seen == r->mask.pairs, "pairs",
                      (json_int_t)r->mask.pairs, "seen", (json_int_t)r->mask.seen, "weakest",
                      attn_cli_real(r->mask.weakest)),
            "one key more or less would show: %s, the weakest by %.3g bounds",
            attn_mask_power_words(&r->mask, words), r->mask.weakest);
    if (r->is_growth)
        add(facts, "growth", "growth",
            json_pack("{s:o,s:f}", "slope", attn_cli_real(r->growth), "limit", ATTN_GROWTH_LIMIT),
            "errors grow with the parts to the power %.2f, limit %g", r->growth, ATTN_GROWTH_LIMIT);
}

/* How often it was run, and what differed. */
static void add_runs(json_t *facts, const struct attn_result *r)
{
    if (r->runs > 0)
        add(facts, "runs", "runs",
            json_pack("{s:i,s:i,s:s}", "of", r->runs, "failed", r->failed, "differs", r->differs),
            "failed in %d of %d", r->failed, r->runs);
    if (r->differs[0] != '\0')
        add(facts, "differs", NULL, NULL, "%s", r->differs);
}

/* Elements of which the contract leaves open what they are. */
static void add_open(json_t *facts, const struct attn_result *r)
{
    int64_t either = 0, unbounded = 0;
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        either += r->output[o].n_either;
        unbounded += r->output[o].n_unbounded;
    }
    if (either > 0 || unbounded > 0)
        add(facts, "open", NULL, NULL,
            "%lld elements may be NaN (or infinite) or finite, both are right; of %lld "
            "nothing can be said",
            (long long)either, (long long)unbounded);
}

static void add_declared(json_t *facts, const struct attn_result *r)
{
    const struct attn_precision *a = &r->precision;
    char words[256];
    if (!(a->u > 0))
        return;
    json_t *x = json_object();
    for (int n = 0; n < ATTN_PRECISION_TERMS; n++)
        json_object_set_new(x, attn_precision_term[n].key, json_real(attn_precision_get(a, n)));
    json_object_set_new(x, "rescales", json_integer(a->rescales));
    json_object_set_new(x, "merges", json_integer(a->merges));
    attn_precision_print(a, words, sizeof words);
    add(facts, "declared", "precision", x, "%s%s", words,
        a->tiny > 0x1p-140 ? ", subnormals flushed" : "");
}

json_t *attn_verdict_facts(const struct attn_result *r)
{
    json_t *facts = json_array();
    add_grades(facts, r);
    add_runs(facts, r);
    add_open(facts, r);
    add_declared(facts, r);
    return facts;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static json_t *outputs_of(const struct attn_result *r)
{
    json_t *all = json_object();
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_agreement *x = &r->output[o];
        if (x->n > 0)
            json_object_set_new(all, attn_output_name((enum attn_output)o),
                                json_pack("{s:o,s:o,s:I,s:I}", "error_over_bound",
                                          attn_cli_real(x->ratio), "gauge", attn_cli_real(x->gauge),
                                          "elements", (json_int_t)x->n, "beyond",
                                          (json_int_t)x->n_bad));
    }
    return all;
}

json_t *attn_verdict_row(const struct attn_verdict_entry *x)
{
    size_t n;
    const struct attn_result *r = &x->result;
    json_t *fact, *facts,
        *e = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:f}", "kind",
                       attn_check_kind_name[x->kind], "name", x->name, "text", x->text, "verdict",
                       attn_verdict_name(r->verdict), "stands_for", x->ids, "why", x->why, "again",
                       x->again, "worst", attn_cli_real(r->worst), "seconds", x->seconds);
    if (e == NULL)
        return NULL;
    if (r->failure != ATTN_F_NONE)
        json_object_set_new(e, "failure", json_string(attn_failure_name(r->failure)));
    if (x->message[0] != '\0')
        json_object_set_new(e, "message", json_string(x->message));
    if (r->diagnosis.fault != ATTN_FAULT_NONE)
        json_object_set_new(e, "looks_like", json_string(r->diagnosis.text));
    if (r->verdict == ATTN_REFUSED)
        json_object_set_new(e, "refused_by", json_string(r->by_it ? "it" : "claims"));
    if (x->found_as != NULL)
        json_object_set_new(e, "found_as", json_string(x->found_as));
    facts = attn_verdict_facts(r);
    json_array_foreach(facts, n, fact)
    {
        const char *key = json_string_value(json_object_get(fact, "key"));
        if (key != NULL)
            json_object_set(e, key, json_object_get(fact, "numbers"));
    }
    json_decref(facts);
    json_object_set_new(e, "outputs", outputs_of(r));
    return e;
}
