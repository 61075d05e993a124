/* Checks in v's format: text, or for other programs JUnit XML and JSON.  Each function prints
 * one spec's checks, or, given NULL, what the format needs at its end. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/verdicts.h"
#include "experiments/cli/cli.h"
#include "experiments/table/document.h"

/* ---- JUnit ----------------------------------------------------------------------------------- */

static void put_attribute(FILE *out, const char *name, const char *value)
{
    fprintf(out, " %s=\"", name);
    attn_html_text(out, value);
    fputc('"', out);
}

static void put_property(FILE *out, const char *indent, const char *name, const char *value)
{
    fprintf(out, "%s  <property", indent);
    put_attribute(out, "name", name);
    put_attribute(out, "value", value);
    fputs("/>\n", out);
}

static void put_failure(FILE *out, const struct attn_verdict_entry *x)
{
    const char *element = x->result.verdict == ATTN_ERROR ? "error" : "failure";
    const char *const part[] = {attn_check_kind_name[x->kind],
                                " ",
                                x->text,
                                "\nstands for ",
                                x->ids,
                                ": ",
                                x->why,
                                x->found_as != NULL ? "\nfound as: " : "",
                                x->found_as != NULL ? x->found_as : "",
                                "\nagain: ",
                                x->again};
    char words[40];
    fprintf(out, "      <%s", element);
    put_attribute(out, "type", attn_verdict_words(&x->result, words));
    put_attribute(out, "message", x->message);
    fputc('>', out);
    for (size_t p = 0; p < sizeof part / sizeof *part; p++) {
        int is_line = *part[p] == '\n';
        fputs(is_line ? "\n" : "", out);
        attn_html_text(out, part[p] + is_line);
    }
    fprintf(out, "</%s>\n", element);
}

static void put_testcase(struct attn_verdicts *v, const char *spec,
                         const struct attn_verdict_entry *x)
{
    FILE *out = v->out;
    struct attn_facts facts;
    attn_verdict_facts(&x->result, &facts);
    fputs("    <testcase", out);
    put_attribute(out, "classname", spec);
    put_attribute(out, "name", x->name[0] != '\0' ? x->name : x->text);
    fprintf(out, " time=\"%.6f\">\n", x->seconds);
    if (attn_verdict_is_no_run(&x->result) && !attn_verdict_is_failure(v, &x->result)) {
        fprintf(out, "      <skipped message=\"%s", x->result.by_it ? "refused by it: " : "");
        attn_html_text(out, x->message);
        fputs("\"/>\n", out);
    } else if (facts.n > 0) {
        fputs("      <properties>\n", out);
        for (int n = 0; n < facts.n; n++)
            put_property(out, "      ", facts.at[n].name, facts.at[n].text);
        fputs("      </properties>\n", out);
    }
    attn_verdict_facts_free(&facts);
    if (attn_verdict_is_failure(v, &x->result))
        put_failure(out, x);
    fputs("    </testcase>\n", out);
}

/* The cause that most failures of the suite have. */
static void put_cause(FILE *out, const struct attn_common_cause *causes)
{
    char of[64], types[80], cause[ATTN_CAUSE_TEXT];
    int agree = attn_common_cause_name(causes, cause);
    if (agree == 0)
        return;
    snprintf(of, sizeof of, "%d of %d diagnosed failures", agree, causes->diagnosed);
    fputs("    <properties>\n", out);
    put_property(out, "    ", "cause", cause);
    put_property(out, "    ", "cause_of", of);
    attn_common_cause_types(causes, types);
    if (types[0] != '\0')
        put_property(out, "    ", "cause_types", types);
    fputs("    </properties>\n", out);
}

static void put_junit(struct attn_verdicts *v, const struct attn_verdict_list *list)
{
    FILE *out = v->out;
    if (v->n_specs == 0)
        fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"attnlab check\">\n",
              out);
    if (list == NULL) {
        fputs("</testsuites>\n", out);
        return;
    }
    const struct attn_tally t = attn_verdicts_tally(v, list, ATTN_ALL_KINDS);
    fputs("  <testsuite", out);
    put_attribute(out, "name", list->spec);
    fprintf(out, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.3f\">\n", t.n,
            t.failures - t.errors, t.errors, t.skipped, t.seconds);
    put_cause(out, &list->causes);
    for (int e = 0; e < list->n; e++)
        put_testcase(v, list->spec, &list->entry[e]);
    fputs("  </testsuite>\n", out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

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

static json_t *entry_of(const struct attn_verdict_entry *x)
{
    struct attn_facts facts;
    const struct attn_result *r = &x->result;
    json_t *e = json_pack(
        "{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:f}", "kind", attn_check_kind_name[x->kind], "name",
        x->name, "text", x->text, "verdict", attn_verdict_name(r->verdict), "stands_for", x->ids,
        "why", x->why, "again", x->again, "worst", attn_cli_real(r->worst), "seconds", x->seconds);
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
    attn_verdict_facts(r, &facts);
    for (int n = 0; n < facts.n; n++)
        if (facts.at[n].key != NULL)
            json_object_set(e, facts.at[n].key, facts.at[n].numbers);
    attn_verdict_facts_free(&facts);
    json_object_set_new(e, "outputs", outputs_of(r));
    return e;
}

/* The storage types in which some case fails, or those in which none does. */
static json_t *types_of(const struct attn_common_cause *causes, int fail)
{
    json_t *all = json_array();
    for (int t = 0; t < ATTN_DTYPES; t++)
        if (causes->fails[t] + causes->passes[t] > 0 && (causes->fails[t] > 0) == fail)
            json_array_append_new(all, json_string(attn_dtype_name((enum attn_dtype)t)));
    return all;
}

/* The list as text. */
static json_t *text_of(const struct attn_verdicts *v, const struct attn_verdict_list *list)
{
    struct attn_verdicts plain = *v;
    char *text;
    size_t size;
    plain.out = attn_cli_memory(&text, &size);
    attn_verdicts_text(&plain, list);
    fclose(plain.out);
    json_t *printed = json_string(text);
    free(text);
    return printed;
}

static void put_json(struct attn_verdicts *v, const struct attn_verdict_list *list)
{
    if (v->n_specs == 0)
        fputs("{\"format\":\"attnlab-check\",\"version\":1,\"specs\":[\n", v->out);
    if (list == NULL) {
        fputs("]}\n", v->out);
        return;
    }
    json_t *checks = json_array(), *counts = json_object();
    char cause[ATTN_CAUSE_TEXT];
    int agree = attn_common_cause_name(&list->causes, cause);
    const struct attn_tally t = attn_verdicts_tally(v, list, ATTN_ALL_KINDS);
    for (int e = 0; e < list->n; e++)
        json_array_append_new(checks, entry_of(&list->entry[e]));
    for (int c = 0; c <= ATTN_ERROR; c++)
        json_object_set_new(counts, attn_verdict_name((enum attn_verdict)c),
                            json_integer(t.count[c]));
    json_t *spec = json_pack("{s:s,s:s,s:o,s:o}", "spec", list->spec, "verdict",
                             attn_tally_word(&t), "counts", counts, "checks", checks);
    if (agree > 0)
        json_object_set_new(spec, "cause",
                            json_pack("{s:s,s:i,s:i,s:o,s:o}", "text", cause, "failures", agree,
                                      "diagnosed", list->causes.diagnosed, "fails_in",
                                      types_of(&list->causes, 1), "passes_in",
                                      types_of(&list->causes, 0)));
    if (v->has_text)
        json_object_set_new(spec, "text", text_of(v, list));
    fputs(v->n_specs > 0 ? ",\n" : "", v->out);
    json_dumpf(spec, v->out, JSON_INDENT(1));
    json_decref(spec);
}

void attn_verdicts_print(struct attn_verdicts *v, const struct attn_verdict_list *list)
{
    static void (*const put[])(struct attn_verdicts * v, const struct attn_verdict_list *list) = {
        [ATTN_FORMAT_TEXT] = attn_verdicts_text,
        [ATTN_FORMAT_JUNIT] = put_junit,
        [ATTN_FORMAT_JSON] = put_json};
    put[v->format](v, list);
    v->n_specs += list != NULL;
    fflush(v->out);
}
