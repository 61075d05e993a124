/* See check_report.h. */
#include "experiments/check/check_report.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

#include "experiments/cli/cli.h"
#include "experiments/report/document.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/process.h"
#include "version.h"

enum { FILES = 8 };

struct attn_report {
    char *path;
    struct attn_document document; /* the sections, in memory: written when all is judged */
    char *text;
    size_t size;
    struct verdict {
        char name[160];
        int judged, failures, refused, is_setup; /* is_setup: it could not even be started */
    } * all;
    int n_all;
    /* who is judged */
    char kind[40], source[1200], claims[600], scope[300], command[2400];
    struct {
        char path[1024], digest[65];
        int is_folder;
    } file[FILES];
    int n_files;
};

/* ---- the file -------------------------------------------------------------------------------- */

static const char *verdict_of(const struct verdict *x)
{
    return x->is_setup       ? "NOT JUDGED"
           : x->failures > 0 ? "FAIL"
           : x->judged == 0  ? "REFUSED"
                             : "PASS";
}

static enum attn_style style_of(const struct verdict *x)
{
    return x->failures > 0 || x->judged == 0 ? ATTN_BAD : ATTN_GOOD;
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
        attn_document_row(&d);
        attn_document_cell(&d, ATTN_WORDS, "%s", x->name);
        attn_document_cell(&d, style_of(x), "%s", verdict_of(x));
        attn_document_cell(&d, ATTN_WORDS, "%d", x->judged);
        attn_document_cell(&d, ATTN_WORDS, "%d", x->failures);
        attn_document_cell(&d, ATTN_WORDS, "%d", x->refused);
    }
    if (r->n_all > 1)
        attn_document_table_end(&d);
    fputs(r->text, out);
    attn_document_end(&d);
}

/* Write the file anew: `text`, or of NULL the whole page.  An exit status. */
static int save(const char *path, const char *text, const struct attn_report *r)
{
    struct attn_save file;
    struct attn_error err;
    enum attn_status status = attn_save_open(path, &file, &err);
    if (status == ATTN_OK) {
        if (text != NULL)
            fputs(text, file.stream);
        else
            compose(r, file.stream);
        status = attn_save_close(&file, ATTN_OK, &err);
    }
    return status == ATTN_OK ? ATTN_EXIT_GOOD
                             : attn_cli_fail(ATTN_EXIT_LACKS, "--report %s", err.text);
}

int attn_report_open(const char *path, struct attn_report **report)
{
    static const char unfinished[] = "attnlab check has not ended: there is no verdict here.\n";
    int is_html = attn_cli_ends_with(path, ".html") || attn_cli_ends_with(path, ".htm");
    *report = NULL;
    if (!is_html && !attn_cli_ends_with(path, ".md"))
        return attn_cli_fail(ATTN_EXIT_USAGE,
                             "--report %s: a name that ends in .html or .md would work", path);
    int status = save(path, unfinished, NULL);
    if (status != ATTN_EXIT_GOOD)
        return status;
    struct attn_report *r = attn_cli_need(calloc(1, sizeof *r));
    r->path = attn_cli_need(strdup(path));
    r->document.out = attn_cli_memory(&r->text, &r->size);
    r->document.is_html = is_html;
    *report = r;
    return ATTN_EXIT_GOOD;
}

int attn_report_close(struct attn_report *r, int status)
{
    fclose(r->document.out);
    attn_cli_need(r->text);
    int saved = save(r->path, NULL, r);
    free(r->text);
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
        "f() { cd \"$1\" && find . >/dev/null && list=$(find . -type f -print0 | LC_ALL=C sort -z |"
        " xargs -0r sha256sum) && printf '%s\\n' \"$list\" | sha256sum; }; f";
    const double patience = 600;
    char out[80];
    struct attn_process p = {.out = out, .room = sizeof out};
    attn_cli_need(attn_process_shell(is_folder ? of_folder : of_file, path, "", patience, &p) == 0
                      ? out
                      : NULL);
    int is_digest = p.exit_status == 0 && strspn(out, "0123456789abcdef") == 64;
    snprintf(hex, 65, "%.64s", is_digest ? out : "not available");
}

static void take_file(struct attn_report *r, const char *path)
{
    struct stat about;
    if (r->n_files == FILES || stat(path, &about) != 0 ||
        !(S_ISREG(about.st_mode) || S_ISDIR(about.st_mode))) /* a FIFO is not waited for */
        return;
    int n = r->n_files++;
    r->file[n].is_folder = S_ISDIR(about.st_mode);
    snprintf(r->file[n].path, sizeof r->file[n].path, "%s", path);
    attn_report_digest(path, r->file[n].is_folder, r->file[n].digest);
}

void attn_report_begin(struct attn_report *r, const struct attn_report_about *about)
{
    char *word, *copy = attn_cli_need(strdup(about->source)), *rest = copy;
    r->n_files = 0;
    int is_command = strcmp(about->kind, "command") == 0;
    while (is_command && (word = strsep(&rest, " \t\n'\"<>;&|=")) != NULL)
        if (*word != '\0') /* words that are files: the program, the script */
            take_file(r, word);
    if (!is_command && strncmp(about->kind, "implementation", 14) != 0)
        take_file(r, about->source);
    if (about->extra != NULL)
        take_file(r, about->extra);
    free(copy);
    snprintf(r->kind, sizeof r->kind, "%s", about->kind);
    snprintf(r->source, sizeof r->source, "%s", about->source);
    snprintf(r->claims, sizeof r->claims, "%s",
             about->claims + (strncmp(about->claims, "claims ", 7) == 0 ? 7 : 0));
    snprintf(r->scope, sizeof r->scope, "%s", about->scope);
    snprintf(r->command, sizeof r->command, "%s", about->command);
}

static void put_row(struct attn_document *d, const char *name, enum attn_style style,
                    const char *value)
{
    attn_document_row(d);
    attn_document_cell(d, ATTN_WORDS, "%s", name);
    attn_document_cell(d, style, "%s", value);
}

static void put_about(struct attn_report *r, const struct attn_verdict_list *list)
{
    static const char *const head[] = {"", "", NULL};
    struct attn_document *d = &r->document;
    struct utsname machine;
    time_t now = time(NULL);
    struct tm utc;
    char text[400];
    attn_document_table(d, head);
    put_row(d, r->kind, ATTN_CODE, r->source);
    for (int n = 0; n < r->n_files; n++) {
        int is_it = strcmp(r->file[n].path, r->source) == 0;
        snprintf(text, sizeof text, "SHA-256 of %.200s", is_it ? "it" : r->file[n].path);
        if (r->file[n].is_folder)
            snprintf(text, sizeof text, "SHA-256 of its list of SHA-256 sums");
        put_row(d, text, ATTN_CODE, r->file[n].digest);
    }
    put_row(d, "claims", ATTN_WORDS, r->claims);
    if (attn_verdicts_declared(list, text, sizeof text) > 0)
        put_row(d, "precisions that were taken at its word", ATTN_WORDS, text);
    put_row(d, "judged on", ATTN_WORDS, r->scope);
    snprintf(text, sizeof text, "attnlab %s", ATTN_VERSION);
    put_row(d, "judged by", ATTN_WORDS, text);
    if (uname(&machine) == 0 && gmtime_r(&now, &utc) != NULL) {
        size_t n = (size_t)snprintf(text, sizeof text, "%.60s %.60s, %.60s; ", machine.sysname,
                                    machine.release, machine.machine);
        strftime(text + n, sizeof text - n, "%Y-%m-%d %H:%M UTC", &utc);
        put_row(d, "where and when", ATTN_WORDS, text);
    }
    attn_document_table_end(d);
    attn_document_paragraph(d);
    attn_document_put(d, ATTN_WORDS, "The line that repeats it:");
    attn_document_close(d);
    attn_document_lines(d, r->command);
}

/* ---- results --------------------------------------------------------------------------------- */

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
                       "something that is not claimed: nothing is known of it, good or bad. Weak "
                       "is what passed, and would have passed with an output of zeros.");
}

static void put_outputs(struct attn_document *d, const struct attn_verdict_list *list)
{
    static const char *const head[] = {
        "output",  "#cases", "#elements", "#beyond the bound", "#largest error / bound",
        "in case", NULL};
    attn_document_heading(d, 3, "How near to the truth");
    attn_document_paragraph(d);
    attn_document_put(
        d, ATTN_WORDS,
        "The bound of an element is what rounding in the declared arithmetic can do to "
        "it at most; up to 1 an error is explained, above it is a failure.");
    attn_document_close(d);
    attn_document_table(d, head);
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_verdict_entry *worst = NULL;
        long long cases = 0, elements = 0, beyond = 0;
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
        attn_document_row(d);
        attn_document_cell(d, ATTN_CODE, "%s", attn_output_name((enum attn_output)o));
        attn_document_cell(d, ATTN_WORDS, "%lld", cases);
        if (worst == NULL) {
            attn_document_cell(d, ATTN_WORDS, "0");
            attn_document_cell(d, ATTN_WORDS, "0");
            attn_document_cell(d, ATTN_WORDS, "not compared");
            attn_document_cell(d, ATTN_WORDS, " ");
            continue;
        }
        attn_document_cell(d, ATTN_WORDS, "%lld", elements);
        attn_document_cell(d, beyond > 0 ? ATTN_BAD : ATTN_WORDS, "%lld", beyond);
        attn_document_cell(d, beyond > 0 ? ATTN_BAD : ATTN_WORDS, "%.3g",
                           worst->result.output[o].ratio);
        attn_document_cell(d, ATTN_CODE, "%s", worst->text);
    }
    attn_document_table_end(d);
}

/* ---- what the cases were: for each property on which kernels branch, its values -------------- */

/* A value of one factor in one case.  A mask of several calls has several. */
enum { WORD = 48, MOST = 8, VALUES = 512 };

static const char *const factor_name[] = {
    "type", "pass", "d",     "dv",      "heads", "heads a kv head", "batch",  "queries",
    "keys", "mask", "scale", "softcap", "bias",  "layout",          "numbers"};
enum {
    TYPE,
    PASS,
    D,
    DV,
    HEADS,
    GROUP,
    BATCH,
    QUERIES,
    KEYS,
    MASK,
    SCALE,
    SOFTCAP,
    BIAS,
    LAYOUT,
    NUMBERS,
    FACTORS
};

/* Lengths by class: there are too many to list, and kernels know classes. */
static void put_length(char word[WORD], int64_t n)
{
    static const long long from[] = {2, 16, 64, 128, 512, 1024, 4096};
    enum { CLASSES = sizeof from / sizeof *from };
    int c = 0;
    while (c + 1 < CLASSES && n >= from[c + 1])
        c++;
    if (n < 2)
        snprintf(word, WORD, "%lld", (long long)n);
    else if (c + 1 < CLASSES)
        snprintf(word, WORD, "%lld to %lld", from[c], from[c + 1] - 1);
    else
        snprintf(word, WORD, "%lld and more", from[c]);
}

/* Every call of it once, causal with its alignment; how many. */
static int put_mask(char word[][WORD], const char *p)
{
    int n = 0;
    while (*p != '\0' && n < MOST) {
        size_t size = strcspn(p, "()&|");
        if (size > 0 && p[size] != ')') {
            int is_aligned = strncmp(p, "causal(", 7) == 0, seen = 0;
            size_t end = is_aligned ? size + strcspn(p + size, ")") + 1 : size;
            snprintf(word[n], WORD, "%.*s", (int)(end < WORD ? end : WORD - 1), p);
            while (seen < n && strcmp(word[seen], word[n]) != 0)
                seen++;
            n += seen == n;
        }
        p += size;
        p += p[0] == '(' && size > 0 ? strcspn(p, ")") : *p != '\0';
    }
    return n;
}

/* Beside n others; how many there are then. */
static int put(char word[][WORD], int n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int put(char word[][WORD], int n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(word[n], WORD, format, args);
    va_end(args);
    return n + 1;
}

/* The values of a factor in a case; how many. */
static int values_of(const struct attn_case *c, int factor, char word[][WORD])
{
    int n;
    switch (factor) {
    case TYPE:
        return put(word, 0, "%s", attn_dtype_name(c->dtype));
    case PASS:
        n = put(word, 0, c->pass == ATTN_BACKWARD ? "forward and backward" : "forward");
        return c->d_lse ? put(word, n, "with dlse") : n;
    case D:
        return put(word, 0, "%lld", (long long)c->d_key);
    case DV:
        return c->d_value == c->d_key ? put(word, 0, "= d")
                                      : put(word, 0, "%lld", (long long)c->d_value);
    case HEADS:
        return put(word, 0, "%lld", (long long)c->heads);
    case GROUP:
        return put(word, 0, "%lld", (long long)(c->kv_heads > 0 ? c->heads / c->kv_heads : 0));
    case BATCH:
        return put(word, 0, "%lld", (long long)c->batch);
    case QUERIES:
    case KEYS:
        put_length(word[0], factor == QUERIES ? c->n_query : c->n_key);
        return 1;
    case MASK:
        return put_mask(word, c->mask);
    case SCALE:
        return isnan(c->scale) ? put(word, 0, "1/sqrt(d)") : put(word, 0, "%g", c->scale);
    case SOFTCAP:
        return c->softcap > 0 ? put(word, 0, "%g", c->softcap) : put(word, 0, "none");
    case BIAS:
        n = put(word, 0, "%s", attn_case_bias_name(c->bias));
        return c->d_bias ? put(word, n, "with dbias") : n;
    case LAYOUT:
        return put(word, 0, "%s", attn_case_layout_name(c->layout));
    default:
        return put(word, 0, "%s", attn_fill_name(c->fill));
    }
}

/* ---- counting them --------------------------------------------------------------------------- */

struct value {
    char word[WORD];
    int judged, refused;
};

/* Numbers by size, before words; words by how often they are. */
static int in_order(const void *a, const void *b)
{
    const struct value *x = a, *y = b;
    int is_x = isdigit((unsigned char)x->word[0]) != 0;
    int is_y = isdigit((unsigned char)y->word[0]) != 0;
    if (is_x != is_y)
        return is_y - is_x;
    if (is_x && atof(x->word) != atof(y->word))
        return atof(x->word) < atof(y->word) ? -1 : 1;
    return y->judged != x->judged ? y->judged - x->judged : strcmp(x->word, y->word);
}

/* Behind what is there; cut, and seen to be, where there is no room. */
static void append(char *text, size_t size, const struct value *x, int n)
{
    size_t used = strlen(text);
    attn_append(text, size, "%s%s (%d)", used > 0 ? ", " : "", x->word, n);
    if (strlen(text) + 1 == size)
        strcpy(text + size - 8, ", ...");
}

/* The values of a factor in all cases, in order; how many. */
static int count_values(const struct attn_verdict_list *list, int factor, struct value *value)
{
    int n = 0;
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e];
        char word[MOST][WORD];
        struct attn_case c;
        if (strcmp(x->kind, "relation") == 0 ||
            attn_case_parse(x->text, &c, NULL) != ATTN_OK) /* a word about the whole */
            continue;
        int is_refused = x->result.verdict == ATTN_REFUSED;
        for (int w = values_of(&c, factor, word) - 1; w >= 0; w--) {
            int at = 0;
            while (at < n && strcmp(value[at].word, word[w]) != 0)
                at++;
            if (at == VALUES)
                continue;
            if (at == n)
                snprintf(value[n++].word, WORD, "%s", word[w]);
            value[at].judged += !is_refused;
            value[at].refused += is_refused;
        }
    }
    qsort(value, (size_t)n, sizeof *value, in_order);
    return n;
}

/* "8 (31), 64 (4)": values in cases that were judged, then those in refused cases only. */
static void put_factors(struct attn_document *d, const struct attn_verdict_list *list)
{
    static const char *const head[] = {"factor", "judged: value (cases)",
                                       "only in cases that were refused", NULL};
    attn_document_heading(d, 3, "What the cases were");
    attn_document_table(d, head);
    for (int factor = 0; factor < FACTORS; factor++) {
        struct value *value = attn_cli_need(calloc(VALUES, sizeof *value));
        char judged[1600] = "", refused[600] = "";
        int n = count_values(list, factor, value);
        for (int v = 0; v < n; v++)
            if (value[v].judged > 0)
                append(judged, sizeof judged, &value[v], value[v].judged);
            else
                append(refused, sizeof refused, &value[v], value[v].refused);
        attn_document_row(d);
        attn_document_words(d, factor_name[factor]);
        attn_document_words(d, judged);
        attn_document_words(d, refused);
        free(value);
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
    *x = (struct verdict){.judged = t.n - t.count[ATTN_REFUSED],
                          .failures = t.failures,
                          .refused = t.count[ATTN_REFUSED]};
    snprintf(x->name, sizeof x->name, "%s", list->spec);
    x->is_setup = list->n == 1 && strcmp(list->entry[0].kind, "setup") == 0;
    attn_document_heading(d, 2, list->spec);
    attn_document_paragraph(d);
    attn_document_put(d, style_of(x), "%s", verdict_of(x));
    if (t.soak != NULL)
        attn_document_put(d, ATTN_WORDS, ": %s.", t.soak->text);
    else if (!x->is_setup)
        attn_document_put(d, ATTN_WORDS, ": %d judged, of which %d failed; %d refused.", x->judged,
                          x->failures, x->refused);
    attn_document_close(d);
    if (r->kind[0] != '\0')
        put_about(r, list);
    r->kind[0] = '\0'; /* what was said of this one is not the next one's */
    put_text(d, v, list);
    if (x->is_setup || t.soak != NULL) /* of random cases, those that failed are all that is kept */
        return;
    put_outputs(d, list);
    put_factors(d, list);
}
