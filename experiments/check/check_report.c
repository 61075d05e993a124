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
#include "experiments/report/document.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/base/process.h"
#include "tests/harness/subject/exec.h"
#include "version.h"

struct attn_report {
    char *path;
    struct attn_document document; /* the sections, in memory: written when all is judged */
    char *text;
    size_t size;
    struct verdict {
        char name[160];
        int64_t judged, failures, refused;
        int is_setup; /* it could not even be started */
    } * all;
    int n_all;
    char *about;                       /* who is judged next; NULL: nothing was said of it */
    const struct attn_tier_list *tier; /* what is asked of it, or NULL */
};

/* ---- the file -------------------------------------------------------------------------------- */

static const char *verdict_of(const struct verdict *x)
{
    return x->is_setup       ? "NOT JUDGED"
           : x->failures > 0 ? "FAIL"
           : x->judged == 0  ? "REFUSED"
                             : "PASS";
}

static int is_bad(const struct verdict *x)
{
    return x->failures > 0 || x->judged == 0;
}

/* The whole page: of several implementations a table first, then the section of each. */
static void compose(const struct attn_report *r, FILE *out)
{
    static const char *const head[] = {"", "", "#judged", "#failed", "#refused", NULL};
    struct attn_document d;
    attn_document_begin(&d, out, r->document.is_html, "attnlab check");
    if (r->n_all > 1)
        attn_document_table(&d, head);
    for (int n = 0; n < r->n_all && r->n_all > 1; n++) {
        const struct verdict *x = &r->all[n];
        attn_document_row(&d, is_bad(x) ? "wxiii" : "wgiii", x->name, verdict_of(x), x->judged,
                          x->failures, x->refused);
    }
    if (r->n_all > 1)
        attn_document_table_end(&d);
    fputs(r->text, out);
    attn_document_end(&d);
}

/* Write the file anew: `text`, or of NULL the whole page. */
static enum attn_status save(const char *path, const char *text, const struct attn_report *r,
                             struct attn_error *err)
{
    struct attn_save file;
    struct attn_error why;
    enum attn_status status = attn_save_open(path, &file, &why);
    if (status == ATTN_OK) {
        if (text != NULL)
            fputs(text, file.stream);
        else
            compose(r, file.stream);
        status = attn_save_close(&file, ATTN_OK, &why);
    }
    return status == ATTN_OK ? ATTN_OK : attn_fail(err, ATTN_ENOMEM, "--report %s", why.text);
}

enum attn_status attn_report_open(const char *path, struct attn_report **report,
                                  struct attn_error *err)
{
    static const char unfinished[] = "attnlab check has not ended: there is no verdict here.\n";
    int is_html = attn_cli_ends_with(path, ".html") || attn_cli_ends_with(path, ".htm");
    if (!is_html && !attn_cli_ends_with(path, ".md"))
        return attn_fail(err, ATTN_EINVAL,
                         "--report %.300s: a name that ends in .html or .md would work", path);
    enum attn_status status = save(path, unfinished, NULL, err);
    if (status != ATTN_OK)
        return status;
    struct attn_report *r = *report = attn_cli_need(calloc(1, sizeof *r));
    r->path = attn_cli_need(strdup(path));
    r->document.out = attn_cli_memory(&r->text, &r->size);
    r->document.is_html = is_html;
    return ATTN_OK;
}

int attn_report_close(struct attn_report *r, int status)
{
    struct attn_error err;
    fclose(r->document.out);
    attn_cli_need(r->text);
    int saved = save(r->path, NULL, r, &err) == ATTN_OK ? ATTN_EXIT_GOOD : attn_cli_error(&err);
    free(r->text);
    free(r->about);
    free(r->all);
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

static void put_digest(struct attn_document *d, const char *path, const char *source)
{
    struct stat about;
    char text[256], digest[65];
    if (stat(path, &about) != 0 ||
        !(S_ISREG(about.st_mode) || S_ISDIR(about.st_mode))) /* a FIFO is not waited for */
        return;
    attn_report_digest(path, S_ISDIR(about.st_mode), digest);
    snprintf(text, sizeof text, "SHA-256 of %.200s", strcmp(path, source) == 0 ? "it" : path);
    attn_document_row(
        d, "wc", S_ISDIR(about.st_mode) ? "SHA-256 of its list of SHA-256 sums" : text, digest);
}

/* Of a command, words that are files: the program, the script. */
static void put_digests(struct attn_document *d, const struct attn_report_about *about)
{
    char *word, *copy = attn_cli_text("%s", about->source), *rest = copy;
    int is_command = about->kind == ATTN_EXTERNAL_COMMAND;
    while (is_command && (word = strsep(&rest, ATTN_EXEC_BLANKS)) != NULL)
        if (*word != '\0')
            put_digest(d, word, about->source);
    if (!is_command && about->kind != ATTN_NOT_EXTERNAL)
        put_digest(d, about->source, about->source);
    if (about->extra != NULL)
        put_digest(d, about->extra, about->source);
    free(copy);
}

void attn_report_begin(struct attn_report *r, const struct attn_report_about *about)
{
    static const char *const head[] = {"", "", NULL};
    size_t size;
    struct attn_document d = {.out = attn_cli_memory(&r->about, &size),
                              .is_html = r->document.is_html};
    r->tier = about->tier;
    struct utsname machine;
    time_t now = time(NULL);
    struct tm utc;
    char text[400];
    attn_document_table(&d, head);
    attn_document_row(&d, "wc", attn_external_route[about->kind].word, about->source);
    put_digests(&d, about);
    attn_document_row(&d, "ww", "claims", about->claims);
    attn_document_row(&d, "ww", "judged on", about->scope);
    attn_document_row(&d, "ww", "judged by", "attnlab " ATTN_VERSION);
    if (uname(&machine) == 0 && gmtime_r(&now, &utc) != NULL) {
        size_t n = (size_t)snprintf(text, sizeof text, "%.60s %.60s, %.60s; ", machine.sysname,
                                    machine.release, machine.machine);
        strftime(text + n, sizeof text - n, "%Y-%m-%d %H:%M UTC", &utc);
        attn_document_row(&d, "ww", "where and when", text);
    }
    attn_document_table_end(&d);
    attn_document_text(&d, "The line that repeats it:");
    attn_document_lines(&d, about->command);
    fclose(d.out);
    attn_cli_need(r->about);
}

/* ---- results --------------------------------------------------------------------------------- */

/* What is wrong, before all that shows it. */
static void put_cause(struct attn_document *d, const struct attn_verdict_list *list)
{
    char types[80], cause[ATTN_CAUSE_TEXT];
    int agree = attn_common_cause_name(&list->causes, cause);
    attn_common_cause_types(&list->causes, types);
    if (agree == 0)
        return;
    attn_document_paragraph(d);
    attn_document_put(d, ATTN_STRONG, "Likely cause: %s%s%s%s.", cause,
                      types[0] != '\0' ? " (" : "", types, types[0] != '\0' ? ")" : "");
    attn_document_put(d, ATTN_WORDS, " %d of %d diagnosed failures look like it.", agree,
                      list->causes.diagnosed);
    attn_document_close(d);
}

/* What the terminal says, with more of the failures. */
static void put_text(struct attn_document *d, const struct attn_verdicts *v,
                     const struct attn_verdict_list *list)
{
    enum { DETAILED = 24 };
    struct attn_verdicts page = *v;
    char *text;
    size_t size;
    page.out = attn_cli_memory(&text, &size);
    page.detailed = DETAILED;
    page.listed = INT_MAX;
    page.verbose = 0;
    attn_verdicts_text(&page, list);
    fclose(page.out);
    attn_document_heading(d, 3, "Verdicts");
    attn_document_lines(d, attn_cli_need(text));
    free(text);
    attn_document_text(d,
                       "A case meets an oracle in a wider type, every element of every output; a "
                       "relation compares two runs with each other. Refused is what asks for "
                       "something that is not claimed, or, by it, what it refused while it ran: "
                       "nothing is known of it, good or bad. Weak "
                       "is what passed, and would have passed with an output of zeros.");
}

static void put_outputs(struct attn_document *d, const struct attn_verdict_list *list)
{
    static const char *const head[] = {
        "output",  "#cases", "#elements", "#beyond the bound", "#largest error / bound",
        "in case", NULL};
    attn_document_heading(d, 3, "How near to the truth");
    attn_document_text(d,
                       "The bound of an element is what rounding in the declared arithmetic can do "
                       "to it at most; up to 1 an error is explained, above it is a failure.");
    attn_document_table(d, head);
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
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
        char ratio[32] = "not compared";
        if (worst != NULL)
            snprintf(ratio, sizeof ratio, "%.3g", worst->result.output[o].ratio);
        attn_document_row(d, "cii", attn_output_name((enum attn_output)o), cases, elements);
        attn_document_cell(d, beyond > 0 ? ATTN_BAD : ATTN_WORDS, "%lld", (long long)beyond);
        attn_document_cells(d, beyond > 0 ? "x" : "w", ratio);
        attn_document_cells(d, worst != NULL ? "c" : "w", worst != NULL ? worst->text : " ");
    }
    attn_document_table_end(d);
}

/* ---- the page -------------------------------------------------------------------------------- */

void attn_report_add(struct attn_report *r, const struct attn_verdicts *v,
                     const struct attn_verdict_list *list)
{
    struct attn_document *d = &r->document;
    const struct attn_tally t = attn_verdicts_tally(v, list, ATTN_ALL_KINDS);
    r->all = attn_cli_need(realloc(r->all, (size_t)(r->n_all + 1) * sizeof *r->all));
    struct verdict *x = &r->all[r->n_all++];
    *x = (struct verdict){.judged = t.n - t.count[ATTN_REFUSED] - t.count[ATTN_SKIPPED],
                          .failures = t.failures,
                          .refused = t.count[ATTN_REFUSED]};
    snprintf(x->name, sizeof x->name, "%s", list->spec);
    x->is_setup = list->n == 1 && list->entry[0].kind == ATTN_CHECK_SETUP;
    attn_document_heading(d, 2, list->spec);
    attn_document_paragraph(d);
    attn_document_put(d, is_bad(x) ? ATTN_BAD : ATTN_GOOD, "%s", verdict_of(x));
    if (t.soak != NULL)
        attn_document_put(d, ATTN_WORDS, ": %s.", t.soak->text);
    else if (!x->is_setup)
        attn_document_put(d, ATTN_WORDS, ": %d judged, of which %d failed; %d refused.",
                          (int)x->judged, (int)x->failures, (int)x->refused);
    attn_document_close(d);
    char declared[400];
    if (attn_verdicts_declared(list, declared, sizeof declared) > 0)
        attn_document_text(d, "Precisions that were taken at its word: %s.", declared);
    if (r->about != NULL)
        fputs(r->about, d->out);
    free(r->about);
    r->about = NULL; /* what was said of this one is not the next one's */
    put_cause(d, list);
    put_text(d, v, list);
    if (x->is_setup || t.soak != NULL) /* of random cases, those that failed are all that is kept */
        return;
    put_outputs(d, list);
    if (r->tier != NULL)
        attn_coverage_put(d, r->tier, list);
    attn_values_put(d, list);
}
