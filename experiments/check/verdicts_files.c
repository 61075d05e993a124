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
    size_t n;
    json_t *fact, *facts = attn_verdict_facts(&x->result);
    fputs("    <testcase", out);
    put_attribute(out, "classname", spec);
    put_attribute(out, "name", x->name[0] != '\0' ? x->name : x->text);
    fprintf(out, " time=\"%.6f\">\n", x->seconds);
    if (attn_verdict_is_no_run(&x->result) && !attn_verdict_is_failure(v, &x->result)) {
        fprintf(out, "      <skipped message=\"%s", x->result.by_it ? "refused by it: " : "");
        attn_html_text(out, x->message);
        fputs("\"/>\n", out);
    } else if (json_array_size(facts) > 0) {
        fputs("      <properties>\n", out);
        json_array_foreach(facts, n, fact)
            put_property(out, "      ", json_string_value(json_object_get(fact, "name")),
                         json_string_value(json_object_get(fact, "text")));
        fputs("      </properties>\n", out);
    }
    json_decref(facts);
    if (attn_verdict_is_failure(v, &x->result))
        put_failure(out, x);
    fputs("    </testcase>\n", out);
}

/* The likeliest cause of the suite's failures. */
static void put_cause(FILE *out, const struct attn_common_cause *causes)
{
    char of[64], types[80];
    struct attn_cause cause[2];
    if (attn_common_causes(causes, cause) == 0)
        return;
    snprintf(of, sizeof of, "%d of %d diagnosed failures", cause->n, causes->diagnosed);
    fputs("    <properties>\n", out);
    put_property(out, "    ", "cause", cause->text);
    put_property(out, "    ", "cause_of", of);
    put_property(out, "    ", "what_to_do", cause->remedy);
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

/* The storage types in which some case fails, or those in which none does. */
static json_t *types_of(const struct attn_common_cause *causes, int fail)
{
    json_t *all = json_array();
    for (int t = 0; t < ATTN_DTYPES; t++)
        if (causes->fails[t] + causes->passes[t] > 0 && (causes->fails[t] > 0) == fail)
            json_array_append_new(all, json_string(attn_dtype_name((enum attn_dtype)t)));
    return all;
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
    struct attn_cause cause[2];
    int causes = attn_common_causes(&list->causes, cause);
    const struct attn_tally t = attn_verdicts_tally(v, list, ATTN_ALL_KINDS);
    for (int e = 0; e < list->n; e++)
        json_array_append_new(checks, attn_verdict_row(&list->entry[e]));
    for (int c = 0; c <= ATTN_ERROR; c++)
        json_object_set_new(counts, attn_verdict_name((enum attn_verdict)c),
                            json_integer(t.count[c]));
    json_t *spec = json_pack("{s:s,s:s,s:o,s:o}", "spec", list->spec, "verdict",
                             attn_tally_word(&t), "counts", counts, "checks", checks);
    for (int c = 0; c < causes; c++)
        json_object_set_new(spec, c == 0 ? "cause" : "second_cause",
                            json_pack("{s:s,s:s,s:i,s:i,s:o,s:o}", "text", cause[c].text,
                                      "what_to_do", cause[c].remedy, "failures", cause[c].n,
                                      "diagnosed", list->causes.diagnosed, "fails_in",
                                      types_of(&list->causes, 1), "passes_in",
                                      types_of(&list->causes, 0)));
    if (v->has_text) {
        char *text = attn_verdicts_printed(v, list);
        json_object_set_new(spec, "text", json_string(text));
        free(text);
    }
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
