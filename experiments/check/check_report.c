/* See check_report.h. */
#include "experiments/check/check_report.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

#include "experiments/cli/cli.h"
#include "experiments/table/document.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/process.h"
#include "tests/harness/subject/exec.h"
#include "version.h"

struct attn_report {
    char *path;
    struct attn_document document; /* the sections, in memory: written when all is judged */
    char *text;
    size_t size;
    json_t *all;                       /* a row for each that was judged */
    char *about;                       /* who is judged next; NULL: nothing was said of it */
    const struct attn_tier_list *tier; /* what is asked of it, or NULL */
};

/* ---- the file -------------------------------------------------------------------------------- */

static const char title[] = "attnlab check";

/* The whole page: of several implementations a table first, then the section of each. */
static enum attn_status save_page(struct attn_report *r, struct attn_error *err)
{
    static const struct attn_column column[] = {{"spec", "", ATTN_UNIT_WORDS},
                                                {"verdict", "", ATTN_UNIT_WORDS},
                                                {"judged", "judged", ATTN_UNIT_PLAIN},
                                                {"failed", "failed", ATTN_UNIT_PLAIN},
                                                {"refused", "refused", ATTN_UNIT_PLAIN},
                                                {"cause", "likely cause", ATTN_UNIT_WORDS},
                                                {.key = NULL}};
    struct attn_document d;
    struct attn_error why;
    char *page;
    size_t size;
    attn_document_begin(&d, attn_cli_memory(&page, &size), title);
    if (json_array_size(r->all) > 1)
        attn_document_table(&d, column, json_incref(r->all));
    fputs(r->text, d.out);
    fclose(d.out);
    enum attn_status status = attn_page_save(r->path, title, attn_cli_need(page), &why);
    free(page);
    return status == ATTN_OK ? ATTN_OK : attn_fail(err, ATTN_ENOMEM, "--report %s", why.text);
}

enum attn_status attn_report_open(const char *path, struct attn_report **report,
                                  struct attn_error *err)
{
    static const char unfinished[] = "attnlab check has not ended: there is no verdict here.\n";
    struct attn_error why;
    if (!attn_cli_ends_with(path, ".html") && !attn_cli_ends_with(path, ".htm") &&
        !attn_cli_ends_with(path, ".md"))
        return attn_fail(err, ATTN_EINVAL,
                         "--report %.300s: a name that ends in .html or .md would work", path);
    char *used = attn_page_path(path);
    if (attn_cli_save(used, unfinished, &why) != ATTN_OK) {
        free(used);
        return attn_fail(err, ATTN_ENOMEM, "--report %s", why.text);
    }
    struct attn_report *r = *report = attn_cli_need(calloc(1, sizeof *r));
    r->path = used;
    r->document.out = attn_cli_memory(&r->text, &r->size);
    r->all = json_array();
    return ATTN_OK;
}

int attn_report_close(struct attn_report *r, int status)
{
    struct attn_error err;
    fclose(r->document.out);
    attn_cli_need(r->text);
    int saved = save_page(r, &err) == ATTN_OK ? ATTN_EXIT_GOOD : attn_cli_error(&err);
    json_decref(r->all);
    free(r->text);
    free(r->about);
    free(r->path);
    free(r);
    return saved > status ? saved : status;
}

/* ---- who is judged --------------------------------------------------------------------------- */

void attn_report_digest(const char *path, int is_folder, char hex[65])
{
    /* As a user repeats it: in a folder, of the list of its files' sums. */
    static const char of_file[] = "f() { sha256sum <\"$1\"; }; f";
    static const char of_folder[] =
        "f() { find . >/dev/null && list=$(find . -type f -print0 | LC_ALL=C sort -z |"
        " xargs -0r sha256sum) && printf '%s\\n' \"$list\" | sha256sum; }; f";
    const double patience = 600;
    char out[80];
    struct attn_process p = {.folder = is_folder ? path : NULL, .out = out, .capacity = sizeof out};
    int failed = attn_process_shell(is_folder ? of_folder : of_file, path, "", patience, &p);
    attn_cli_need(failed && errno != EACCES && errno != ENOENT ? NULL : out); /* the folder's */
    int is_digest = p.exit_status == 0 && strspn(out, "0123456789abcdef") == 64;
    snprintf(hex, 65, "%.64s", is_digest ? out : "not available");
}

static void add_fact(json_t *rows, const char *name, const char *fact)
{
    json_array_append_new(
        rows, json_pack("{s:o,s:o}", "name", attn_cli_words(name), "fact", attn_cli_words(fact)));
}

/* Where the rows of digests go, and the source, which is called `it`. */
struct digests {
    json_t *rows;
    const char *source;
};

static void add_digest(void *arg, const char *path)
{
    const struct digests *to = arg;
    struct stat about;
    char text[256], digest[65];
    if (stat(path, &about) != 0 ||
        !(S_ISREG(about.st_mode) || S_ISDIR(about.st_mode))) /* a FIFO is not waited for */
        return;
    attn_report_digest(path, S_ISDIR(about.st_mode), digest);
    snprintf(text, sizeof text, "SHA-256 of %.200s", strcmp(path, to->source) == 0 ? "it" : path);
    add_fact(to->rows, S_ISDIR(about.st_mode) ? "SHA-256 of its list of SHA-256 sums" : text,
             digest);
}

static void add_digests(json_t *rows, const struct attn_subject *x)
{
    struct digests to = {rows, x->source};
    if (x->route->files != NULL)
        x->route->files(x, add_digest, &to);
    if (x->claims_path != NULL)
        add_digest(&to, x->claims_path);
}

void attn_report_begin(struct attn_report *r, const struct attn_report_about *about)
{
    static const struct attn_column column[] = {
        {"name", "", ATTN_UNIT_WORDS}, {"fact", "", ATTN_UNIT_WORDS}, {.key = NULL}};
    size_t size;
    struct attn_document d = {.out = attn_cli_memory(&r->about, &size)};
    json_t *rows = json_array();
    struct utsname machine;
    time_t now = time(NULL);
    struct tm utc;
    char text[400];
    r->tier = about->tier;
    add_fact(rows, about->x->route->word, about->x->source);
    add_digests(rows, about->x);
    add_fact(rows, "claims", about->claims);
    add_fact(rows, "judged on", about->scope);
    add_fact(rows, "judged by", "attnlab " ATTN_VERSION);
    if (uname(&machine) == 0 && gmtime_r(&now, &utc) != NULL) {
        size_t n = (size_t)snprintf(text, sizeof text, "%.60s %.60s, %.60s; ", machine.sysname,
                                    machine.release, machine.machine);
        strftime(text + n, sizeof text - n, "%Y-%m-%d %H:%M UTC", &utc);
        add_fact(rows, "where and when", text);
    }
    attn_document_table(&d, column, rows);
    attn_document_text(&d, "The line that repeats it:");
    attn_document_lines(&d, about->command);
    fclose(d.out);
    attn_cli_need(r->about);
}

/* ---- results --------------------------------------------------------------------------------- */

/* The likely causes stand before the failures that show them. */
static void put_causes(struct attn_document *d, const struct attn_verdict_list *list)
{
    char types[80];
    struct attn_cause cause[2];
    int causes = attn_common_causes(&list->causes, cause);
    attn_common_cause_types(&list->causes, types);
    for (int c = 0; c < causes; c++) {
        attn_document_text(d,
                           "**Likely cause: %s%s%s%s.** %d of %d diagnosed failures "
                           "look like it. To do: %s.",
                           cause[c].text, types[0] != '\0' ? " (" : "", types,
                           types[0] != '\0' ? ")" : "", cause[c].n, list->causes.diagnosed,
                           cause[c].remedy);
    }
}

/* Lines of marks, each behind its number: of heads, by batch and head. */
static void put_map(FILE *out, const uint32_t *line, int64_t lines, int64_t bits, int64_t of_batch)
{
    const int64_t down = lines < ATTN_MARKS ? lines : ATTN_MARKS,
                  across = bits < ATTN_MARKS ? bits : ATTN_MARKS;
    for (int64_t l = 0; l < down; l++) {
        const int64_t first = (l * lines + down - 1) / down;
        char number[48];
        if (of_batch > 0)
            snprintf(number, sizeof number, "%lld,%lld", (long long)(first / of_batch),
                     (long long)(first % of_batch));
        else
            snprintf(number, sizeof number, "%lld", (long long)first);
        fprintf(out, "%8s  ", number);
        for (int64_t i = 0; i < across; i++)
            fputs(line[l] >> i & 1u ? "■" : "·", out);
        fputc('\n', out);
    }
}

/* Where an output is wrong: which rows of each head, and in the first such head which features. */
static void put_marks(struct attn_document *d, enum attn_output o, const struct attn_agreement *x)
{
    const struct attn_marks *m = &x->marks;
    const int64_t *n = m->extent, heads = n[0] * n[1];
    const char *row = o == ATTN_DK || o == ATTN_DV ? "keys" : "queries",
               *feature = o == ATTN_DBIAS ? "keys" : "features";
    char *text;
    size_t size;
    FILE *out = attn_cli_memory(&text, &size);
    if (heads > 1 || n[3] == 1) {
        fprintf(out, "%s: batch,head down, %lld %s across\n", x->name, (long long)n[2], row);
        put_map(out, m->of_head, heads, n[2], n[1]);
    }
    if (n[3] > 1) {
        fprintf(out, "%s%s[%lld,%lld]: %s down, %lld %s across\n", heads > 1 ? "\n" : "", x->name,
                (long long)(m->first / n[1]), (long long)(m->first % n[1]), row, (long long)n[3],
                feature);
        put_map(out, m->of_row, n[2], n[3], 0);
    }
    fclose(out);
    attn_document_lines(d, attn_cli_need(text));
    free(text);
}

/* The columns of outputs (verdicts_text.c) that a phone has room for. */
static const struct attn_column narrow_columns[] = {{"output", "output", ATTN_UNIT_WORDS},
                                                    {"beyond", "beyond", ATTN_UNIT_PLAIN},
                                                    {"at", "worst at", ATTN_UNIT_WORDS},
                                                    {"got", "got", ATTN_UNIT_PLAIN},
                                                    {"truth", "truth", ATTN_UNIT_PLAIN},
                                                    {"bound", "bound", ATTN_UNIT_PLAIN},
                                                    {.key = NULL}};

static void put_smallest(struct attn_document *d, const struct attn_verdicts *v,
                         const struct attn_verdict_list *list)
{
    const struct attn_verdict_entry *x = attn_verdicts_smallest(v, list);
    char words[40];
    int pictures = 0;
    if (x == NULL)
        return;
    attn_document_heading(d, 3, "The smallest case that fails");
    attn_document_text(d, "***%s*** `%s`", attn_verdict_words(&x->result, words), x->text);
    attn_document_text(d, "%s", x->message);
    json_t *rows = attn_output_rows(x->result.output, 0);
    if (json_array_size(rows) > 0)
        attn_document_table(d, narrow_columns, json_incref(rows));
    json_decref(rows);
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        if (x->result.output[o].n_bad == 0 || x->result.output[o].marks.extent[1] == 0)
            continue;
        if (pictures++ == 0)
            attn_document_text(
                d, "A mark ■ is an element beyond its bound, or a row that has "
                   "one. Of more than 32 rows or columns each sign stands for several.");
        put_marks(d, (enum attn_output)o, &x->result.output[o]);
    }
    if (x->again[0] != '\0') {
        attn_document_text(d, "This repeats it:");
        attn_document_lines(d, x->again);
    }
}

/* Those of failures (verdicts_text.c); a case's name and string stand in one cell. */
static const struct attn_column failure_columns[] = {
    {"is", "verdict", ATTN_UNIT_WORDS},         {"case", "case", ATTN_UNIT_CODE},
    {"message", "why", ATTN_UNIT_WORDS},        {"worst", "error / bound", ATTN_UNIT_REAL},
    {"alike", "more like it", ATTN_UNIT_PLAIN}, {.key = NULL}};

/* Few failures stand open, many are folded. */
static void put_failures(struct attn_document *d, const struct attn_verdicts *v,
                         const struct attn_verdict_list *list)
{
    enum { FEW = 12 };
    struct attn_verdicts page = *v;
    int left_out;
    page.listed = INT_MAX;
    json_t *rows = attn_failure_rows(&page, list, NULL, &left_out);
    const size_t n = json_array_size(rows);
    for (size_t r = 0; r < n; r++) {
        json_t *row = json_array_get(rows, r);
        json_object_set_new(
            row, "case",
            json_pack("[O?O?]", json_object_get(row, "name"), json_object_get(row, "text")));
    }
    if (n == 0) {
        json_decref(rows);
        return;
    }
    attn_document_heading(d, 3, "All failures, the worst first");
    if (n > FEW)
        attn_document_fold(d, 0, "%zu failures", n);
    attn_document_table(d, failure_columns, rows);
    if (n > FEW)
        attn_document_unfold(d);
}

/* The text of the terminal. */
static void put_text(struct attn_document *d, const struct attn_verdicts *v,
                     const struct attn_verdict_list *list)
{
    struct attn_verdicts page = *v;
    page.listed = page.verbose = 0;
    page.refusals = 1;
    char *text = attn_verdicts_printed(&page, list);
    attn_document_fold(d, 0, "As the terminal has it, with all that was refused");
    attn_document_lines(d, text);
    attn_document_unfold(d);
    free(text);
    attn_document_text(d,
                       "A case meets an oracle in a wider type, every element of every output; a "
                       "relation compares two runs with each other. Refused is what asks for "
                       "something that is not claimed, or, by it, what it refused while it ran: "
                       "nothing is known of it, good or bad. Weak "
                       "is what passed, and would have passed with an output of zeros.");
}

/* A row for an output: over all cases that have it. */
static json_t *output_row(const struct attn_verdict_list *list, enum attn_output o)
{
    const struct attn_verdict_entry *worst = NULL;
    int64_t cases = 0, elements = 0, beyond = 0;
    for (int e = 0; e < list->n; e++) {
        const struct attn_agreement *x = &list->entry[e].result.output[o];
        if (x->n == 0)
            continue;
        cases++;
        elements += x->n;
        beyond += x->n_bad;
        if (worst == NULL || !(x->ratio <= worst->result.output[o].ratio))
            worst = &list->entry[e];
    }
    json_t *row = json_pack("{s:s,s:I,s:I}", "output", attn_output_name(o), "cases",
                            (json_int_t)cases, "elements", (json_int_t)elements);
    json_t *bad = json_integer((json_int_t)beyond);
    json_object_set_new(row, "beyond", beyond > 0 ? json_pack("{s:o}", "bad", bad) : bad);
    json_t *ratio = worst == NULL ? json_string("not compared")
                                  : json_sprintf("%.3g", worst->result.output[o].ratio);
    json_object_set_new(row, "ratio", beyond > 0 ? json_pack("{s:o}", "bad", ratio) : ratio);
    if (worst != NULL)
        json_object_set_new(row, "case", attn_cli_words(worst->text));
    return row;
}

static void put_outputs(struct attn_document *d, const struct attn_verdict_list *list)
{
    static const struct attn_column column[] = {{"output", "output", ATTN_UNIT_CODE},
                                                {"cases", "cases", ATTN_UNIT_PLAIN},
                                                {"elements", "elements", ATTN_UNIT_PLAIN},
                                                {"beyond", "beyond the bound", ATTN_UNIT_PLAIN},
                                                {"ratio", "largest error / bound", ATTN_UNIT_REAL},
                                                {"case", "in case", ATTN_UNIT_CODE},
                                                {.key = NULL}};
    json_t *rows = json_array();
    for (int o = 0; o < ATTN_OUTPUTS; o++)
        json_array_append_new(rows, output_row(list, (enum attn_output)o));
    attn_document_heading(d, 3, "How near to the truth");
    attn_document_text(d,
                       "The bound of an element is what rounding in the declared arithmetic can do "
                       "to it at most; up to 1 an error is explained, above it is a failure.");
    attn_document_table(d, column, rows);
}

/* ---- the page -------------------------------------------------------------------------------- */

void attn_report_add(struct attn_report *r, const struct attn_verdicts *v,
                     const struct attn_verdict_list *list)
{
    struct attn_document *d = &r->document;
    const struct attn_tally t = attn_verdicts_tally(v, list, ATTN_ALL_KINDS);
    const int refused = t.count[ATTN_REFUSED], judged = t.n - refused - t.count[ATTN_SKIPPED];
    const int is_setup = list->n == 1 && list->entry[0].kind == ATTN_CHECK_SETUP;
    const int is_bad = t.failures > 0 || judged == 0;
    const char *word = is_setup         ? "NOT JUDGED"
                       : t.failures > 0 ? "FAIL"
                       : judged == 0    ? "REFUSED"
                                        : "PASS";
    struct attn_cause cause[2];
    int causes = attn_common_causes(&list->causes, cause);
    json_array_append_new(
        r->all, json_pack("{s:o,s:{s:s},s:i,s:i,s:i,s:s}", "spec", attn_cli_words(list->spec),
                          "verdict", is_bad ? "bad" : "good", word, "judged", judged, "failed",
                          t.failures, "refused", refused, "cause", causes > 0 ? cause->text : ""));
    attn_document_heading(d, 2, list->spec);
    attn_document_put(d, is_bad ? "***%s***" : "*%s*", word);
    if (t.soak != NULL)
        attn_document_put(d, ": %s.", t.soak->text);
    else if (!is_setup)
        attn_document_put(d, ": %d judged, of which %d failed; %d refused.", judged, t.failures,
                          refused);
    attn_document_close(d);
    put_causes(d, list);
    put_smallest(d, v, list);
    put_failures(d, v, list);
    if (!is_setup && t.soak == NULL) { /* of random cases, only those that failed are kept */
        if (r->tier != NULL)
            attn_coverage_put(d, r->tier, list);
        put_outputs(d, list);
    }
    attn_document_heading(d, 3, "The subject, and how it was judged");
    char declared[400];
    if (attn_verdicts_declared(list, declared, sizeof declared) > 0)
        attn_document_text(d, "Precisions that were taken at its word: %s.", declared);
    if (r->about != NULL)
        fputs(r->about, d->out);
    free(r->about);
    r->about = NULL; /* what was said of this one is not the next one's */
    put_text(d, v, list);
}
