/* See page.h: its tables, of groups, of programs that are not ours, of what was not run. */
#include <math.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/report/page.h"
#include "optimized/integers.h"
#include "tests/harness/base/fileio.h"

/* ---- cells ----------------------------------------------------------------------------------- */

/* null: below 0, which is not known. */
static json_t *known(int64_t n)
{
    return n < 0 ? json_null() : json_integer((json_int_t)n);
}

static json_t *verdict(const char *key, const char *format, long long n, long long of)
{
    return json_pack("{s:o}", key, json_sprintf(format, n, of));
}

/* The exponents of peak or time in L of a label's curves, forward and backward. */
static json_t *exponents(const struct attn_figure_group *group, const char *label, int of_time)
{
    char text[64] = "";
    int known = 0;
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
        const struct attn_power *power = NULL;
        for (int64_t s = 0; s < group->n && power == NULL; s++)
            if (group->row[s]->point->c.pass == (enum attn_pass)pass &&
                strcmp(group->row[s]->label, label) == 0)
                power = of_time ? &group->row[s]->time_power : &group->row[s]->bytes_power;
        if (power == NULL)
            continue;
        attn_append(text, sizeof text, "%s", text[0] != '\0' ? " and " : "");
        if (power->n == 0)
            attn_append(text, sizeof text, "–");
        else
            attn_append(text, sizeof text, "%.2f", fabs(power->slope) < 0.005 ? 0 : power->slope);
        known |= power->n > 0;
    }
    return known ? json_string(text) : json_null();
}

/* The largest ratio of a label, and its verdict over all points that ran and were compared. */
static void add_verdict(json_t *to, const struct attn_figure_group *group, const char *label)
{
    int64_t judged = 0, wrong = 0;
    double worst = (double)NAN;
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_row *row = group->row[s];
        if (strcmp(group->row[s]->label, label) != 0 ||
            (row->status != ATTN_POINT_OK && row->status != ATTN_POINT_WRONG))
            continue;
        judged++;
        wrong += row->status == ATTN_POINT_WRONG;
        worst = isnan(worst) || row->worst > worst ? row->worst : worst;
    }
    json_t *ratio = isinf(worst) ? json_string("∞") : attn_cli_real(worst);
    json_object_set_new(to, "worst", worst > 1 ? json_pack("{s:o}", "bad", ratio) : ratio);
    json_object_set_new(to, "verdict",
                        judged == 0 ? json_string("nothing ran")
                        : wrong > 0 ? verdict("bad", "WRONG at %lld of %lld", wrong, judged)
                                    : verdict("good", "right at all %lld", judged, judged));
}

/* A row's facts by the names of columns: its record, and what its rounds make of it.  less: ledger
 * less price; grown: resident by the ledger of all ranks, where it is no noise. */
static json_t *facts_of(const struct attn_row *row)
{
    const struct attn_point *p = row->point;
    char live[1024] = "", number[32];
    json_t *facts = attn_record_of(p);
    for (int a = 0; a < p->n_live && a < ATTN_MAX_ACCOUNTS; a++)
        attn_append(live, sizeof live, "%s%s %s", a > 0 ? ", " : "", p->live_name[a],
                    attn_cli_bytes(p->live_bytes[a], number));
    json_t *grown =
        row->process >= 1 << 20 && row->resident >= 0
            ? json_sprintf("%+.1f %%", 100 * ((double)row->resident / (double)row->process - 1))
            : json_null();
    json_t *folded = json_pack(
        "{s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:{s:I},s:o,s:o,s:o}", "pass", attn_pass_word(p->c.pass),
        "status", attn_status_phrase(row->status), "live", live, "priced_bytes", known(row->priced),
        "ledger_bytes", known(row->ledger), "process_ledger_bytes", known(row->process),
        "resident_bytes", known(row->resident), "less", row->priced == row->ledger ? "good" : "bad",
        (json_int_t)(row->ledger - row->priced), "grown", grown, "bytes_sent",
        known(p->ranks > 1 ? p->price.sent : -1), "time",
        attn_cli_real((row->time.n > 0 ? &row->time : &row->single)->median));
    json_object_update(facts, folded);
    json_decref(folded);
    return facts;
}

/* ---- summary ------------------------------------------------------------------------------- */

/* Peaks stand at the length that all have in common. */
static json_t *summary_row(const struct attn_figure_group *group, const char *label)
{
    static const char *const key[] = {"forward", "backward"};
    json_t *to = json_pack("{s:s,s:o,s:o}", "implementation", label, "memory",
                           exponents(group, label, 0), "time", exponents(group, label, 1));
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
        int64_t length = attn_group_common_length(group, (enum attn_pass)pass);
        const struct attn_row *row = attn_group_find(group, label, (enum attn_pass)pass, length);
        json_object_set_new(to, key[pass], known(row != NULL ? row->peak : -1));
    }
    add_verdict(to, group, label);
    return to;
}

static void put_summary(struct attn_document *d, const struct attn_figure_group *group)
{
    char head[2][80], number[32];
    struct attn_column column[8] = {{"implementation", "implementation", ATTN_UNIT_CODE},
                                    {"verdict", "verdict", ATTN_UNIT_WORDS}};
    int n = 2;
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++) {
        int64_t length = attn_group_common_length(group, (enum attn_pass)pass);
        (void)snprintf(head[pass], sizeof head[pass], "peak, %s, L = %s",
                       attn_pass_word((enum attn_pass)pass), attn_cli_grouped(length, number));
        if (attn_group_has_pass(group, (enum attn_pass)pass))
            column[n++] = (struct attn_column){pass == ATTN_FORWARD ? "forward" : "backward",
                                               head[pass], ATTN_UNIT_BYTES};
    }
    column[n++] = (struct attn_column){"worst", "error/bound", ATTN_UNIT_REAL};
    column[n++] = (struct attn_column){"memory", "memory grows as L to the", ATTN_UNIT_WORDS};
    column[n] = (struct attn_column){"time", "time grows as L to the", ATTN_UNIT_WORDS};
    json_t *rows = json_array();
    for (int64_t s = 0; s < group->n; s++)
        if (attn_group_is_first(group, s))
            json_array_append_new(rows, summary_row(group, group->row[s]->label));
    attn_document_heading(d, 3, group->special);
    attn_document_text(d, "%s", group->problem);
    attn_document_table(d, column, rows);
}

static void put_summaries(struct attn_document *d, const struct attn_page *page)
{
    for (int g = 0; g < page->groups->n; g++)
        if (page->groups->group[g].kind == ATTN_GROUP_LENGTH)
            put_summary(d, &page->groups->group[g]);
}

/* ---- tables of groups ------------------------------------------------------------------------ */

/* A table for each group of a kind, folded where figures show the same, of the rows that it has. */
static void put_groups(struct attn_document *d, const struct attn_page *page,
                       enum attn_group_kind kind, const struct attn_column *column,
                       int (*has)(const struct attn_figure_group *group, int64_t s))
{
    char title[64];
    for (int g = 0; g < page->groups->n; g++) {
        const struct attn_figure_group *group = &page->groups->group[g];
        if (group->kind != kind)
            continue;
        (void)snprintf(title, sizeof title, "Group %s", group->name);
        attn_document_heading(d, 3, kind == ATTN_GROUP_OTHER ? title : group->special);
        if (kind == ATTN_GROUP_OTHER)
            attn_document_text(d,
                               "Its name does not say what varies, so there is no figure: the "
                               "words for it are%s.",
                               attn_group_word_list);
        json_t *rows = json_array();
        for (int64_t s = 0; s < group->n; s++)
            if (has == NULL || has(group, s))
                json_array_append_new(rows, facts_of(group->row[s]));
        if (kind != ATTN_GROUP_OTHER)
            attn_document_fold(d, 0, "The table: %zu lines", json_array_size(rows));
        attn_document_table(d, column, rows);
        if (kind != ATTN_GROUP_OTHER)
            attn_document_unfold(d);
    }
}

/* Groups whose name begins with no known word: a table only. */
static void put_others(struct attn_document *d, const struct attn_page *page)
{
    static const struct attn_column column[] = {{"spec", "implementation", ATTN_UNIT_CODE},
                                                {"case", "case", ATTN_UNIT_CODE},
                                                {"status", "status", ATTN_UNIT_WORDS},
                                                {"priced_bytes", "priced", ATTN_UNIT_BYTES},
                                                {"ledger_bytes", "ledger", ATTN_UNIT_BYTES},
                                                {"time", "time", ATTN_UNIT_SECONDS},
                                                {.key = NULL}};
    put_groups(d, page, ATTN_GROUP_OTHER, column, NULL);
}

/* The good row of the largest length of this row's label and pass?  Lengths increase. */
static int is_longest(const struct attn_figure_group *group, int64_t s)
{
    const struct attn_row *row = group->row[s];
    if (row->status != ATTN_POINT_OK || row->ledger < 0)
        return 0;
    while (++s < group->n && group->row[s]->first == row->first &&
           group->row[s]->point->c.pass == row->point->c.pass)
        if (group->row[s]->status == ATTN_POINT_OK)
            return 0;
    return 1;
}

/* Price = ledger = resident set. */
static void put_live(struct attn_document *d, const struct attn_page *page)
{
    static const struct attn_column column[] = {
        {"spec", "implementation", ATTN_UNIT_CODE},
        {"pass", "pass", ATTN_UNIT_WORDS},
        {"n_query", "L", ATTN_UNIT_GROUPED},
        {"live", "live at the peak", ATTN_UNIT_WORDS},
        {"shard_bytes", "beyond inputs and outputs of", ATTN_UNIT_GROUPED},
        {"priced_bytes", "priced", ATTN_UNIT_GROUPED},
        {"ledger_bytes", "ledger", ATTN_UNIT_GROUPED},
        {"less", "ledger − priced", ATTN_UNIT_GROUPED},
        {"process_ledger_bytes", "ledger, all ranks", ATTN_UNIT_GROUPED},
        {"resident_bytes", "resident", ATTN_UNIT_GROUPED},
        {"grown", "resident ÷ ledger − 1", ATTN_UNIT_REAL},
        {.key = NULL}};
    put_groups(d, page, ATTN_GROUP_LENGTH, column, is_longest);
}

/* The memory of a rank. */
static void put_shares(struct attn_document *d, const struct attn_page *page)
{
    static const struct attn_column column[] = {
        {"spec", "implementation", ATTN_UNIT_CODE},
        {"pass", "pass", ATTN_UNIT_WORDS},
        {"ranks", "ranks R", ATTN_UNIT_GROUPED},
        {"priced_bytes", "peak", ATTN_UNIT_BYTES},
        {"shard_bytes", "its inputs and outputs", ATTN_UNIT_BYTES},
        {"total_bytes", "together", ATTN_UNIT_BYTES},
        {"bytes_sent", "sends", ATTN_UNIT_BYTES},
        {.key = NULL}};
    put_groups(d, page, ATTN_GROUP_RANKS, column, NULL);
}

/* ---- external implementations ---------------------------------------------------------------- */

int attn_page_has_external(const struct attn_page *page)
{
    for (int64_t s = 0; s < page->summary->n; s++)
        if (page->summary->row[s].point->route[0] != '\0')
            return 1;
    return 0;
}

/* The first row of this program? */
static int is_new(const struct attn_page *page, int64_t s)
{
    const struct attn_point *p = page->summary->row[s].point;
    for (int64_t t = 0; t < s; t++)
        if (strcmp(page->summary->row[t].point->spec, p->spec) == 0 &&
            strcmp(page->summary->row[t].point->source_digest, p->source_digest) == 0)
            return 0;
    return p->route[0] != '\0';
}

/* Every clock that its times were taken by. */
static json_t *clocks_of(const struct attn_page *page, const char *spec)
{
    static const char *const clock[][2] = {
        {"calls", "around its function"},
        {"reported", "as it reports"},
        {"command", "whole command less the same command on a tiny case"}};
    char text[128] = "";
    for (int c = 0; c < 3; c++)
        for (int64_t s = 0; s < page->summary->n; s++) {
            const struct attn_row *row = &page->summary->row[s];
            if (row->status != ATTN_POINT_OK || strcmp(row->point->spec, spec) != 0 ||
                strcmp(row->point->time_source, clock[c][0]) != 0)
                continue;
            attn_append(text, sizeof text, "%s%s", text[0] != '\0' ? "; " : "", clock[c][1]);
            break;
        }
    return text[0] != '\0' ? json_string(text) : json_null();
}

/* The most bytes of a mask that it was given; -1: none. */
static int64_t largest_mask(const struct attn_page *page, const char *spec)
{
    int64_t most = -1;
    for (int64_t s = 0; s < page->summary->n; s++) {
        const struct attn_row *row = &page->summary->row[s];
        if (row->status == ATTN_POINT_OK && strcmp(row->point->spec, spec) == 0)
            most = greater(most, row->point->mask_bytes);
    }
    return most;
}

static void put_external(struct attn_document *d, const struct attn_page *page)
{
    static const struct attn_column column[] = {{"spec", "name", ATTN_UNIT_CODE},
                                                {"route", "what", ATTN_UNIT_WORDS},
                                                {"source", "from", ATTN_UNIT_CODE},
                                                {"source_digest", "digest", ATTN_UNIT_CODE},
                                                {"clocks", "time", ATTN_UNIT_WORDS},
                                                {"mask_bytes", "mask, as given", ATTN_UNIT_BYTES},
                                                {.key = NULL}};
    json_t *rows = json_array();
    for (int64_t s = 0; s < page->summary->n; s++) {
        const char *spec = page->summary->row[s].point->spec;
        if (!is_new(page, s))
            continue;
        json_t *row = facts_of(&page->summary->row[s]);
        json_object_set_new(row, "clocks", clocks_of(page, spec));
        json_object_set_new(row, "mask_bytes", known(largest_mask(page, spec)));
        json_array_append_new(rows, row);
    }
    attn_document_table(d, column, rows);
}

/* ---- points that were not run ---------------------------------------------------------------- */

/* Where a row stands: "8,192", "R=4", "random(0.1,1)". */
static void append_where(const struct attn_figure_group *group, const struct attn_row *row,
                         char *text, size_t size)
{
    char number[32];
    const struct attn_point *p = row->point;
    int64_t floor = p->floor_bytes > 0 ? p->floor_bytes : 0;
    const char *x_name =
        group->kind != ATTN_GROUP_OTHER ? attn_group_words[group->kind].x_name : "L";
    double x = row->x;
    if (group->kind == ATTN_GROUP_DENSITY)
        attn_append(text, size, " %s", p->c.mask);
    else if (strcmp(x_name, "L") == 0)
        attn_append(text, size, " from %s", attn_cli_grouped(p->c.n_query, number));
    else if (x > 0)
        attn_append(text, size, " from %s=%.0f", x_name, x);
    attn_append(text, size, " (%s", attn_pass_word(p->c.pass));
    if (row->status == ATTN_POINT_TOO_BIG && row->priced > 0)
        attn_append(text, size, ", %s", attn_cli_bytes(row->priced * p->ranks + floor, number));
    attn_append(text, size, ")");
}

/* Why a row is not where it might be: its status, or that it was measured and has no time (a
 * command's is unknown where the tiny case took as long; of processes that share cores none is
 * taken). */
enum { NO_TIME = ATTN_POINT_ERROR + 1, SHARED_CORES };

static int reason_of(const struct attn_row *row)
{
    int has_time = row->time.n > 0 || row->single.n > 0;
    int is_of_processes = row->point->n_processes > 0;
    return row->status != ATTN_POINT_OK || has_time ? (int)row->status
           : is_of_processes                        ? (int)SHARED_CORES
                                                    : (int)NO_TIME;
}

/* Rows of one label and pass that ended alike: only the first is reported, where the curve ends. */
static int is_reported(const struct attn_figure_group *group, int64_t s)
{
    const struct attn_row *row = group->row[s];
    while (--s >= 0 && group->row[s]->first == row->first)
        if (reason_of(group->row[s]) == reason_of(row) &&
            group->row[s]->point->c.pass == row->point->c.pass)
            return 1;
    return 0;
}

void attn_group_not_run(const struct attn_figure_group *group, char *text, size_t size)
{
    static const int reasons[] = {
        ATTN_POINT_TOO_BIG, ATTN_POINT_DROPPED,       ATTN_POINT_REFUSED, ATTN_POINT_TIMEOUT,
        ATTN_POINT_KILLED,  ATTN_POINT_OUT_OF_MEMORY, ATTN_POINT_ERROR,   NO_TIME,
        SHARED_CORES}; /* what is only priced is drawn, dashed */
    static const char cut[] = " ... (the table has all)";
    text[0] = '\0';
    for (size_t r = 0; r < sizeof reasons / sizeof reasons[0]; r++) {
        const char *between = "", *last = "";
        for (int64_t s = 0; s < group->n; s++) {
            const char *label = group->row[s]->label;
            if (reason_of(group->row[s]) != reasons[r] || is_reported(group, s))
                continue;
            size_t begin = strlen(text);
            if (between[0] == '\0')
                attn_append(text, size, "%s%s%s: ", begin > 0 ? "; " : "",
                            reasons[r] >= NO_TIME ? "Measured, without a time" : "Not measured, ",
                            reasons[r] == NO_TIME        ? ""
                            : reasons[r] == SHARED_CORES ? ", as ranks share cores"
                                                         : attn_status_phrase(reasons[r]));
            attn_append(text, size, "%s%s", between, strcmp(label, last) == 0 ? "" : label);
            append_where(group, group->row[s], text, size);
            last = label;
            between = ", ";
            if (strlen(text) + sizeof cut >= size) {
                text[begin] = '\0';
                attn_append(text, size, "%s", cut);
                return;
            }
        }
    }
}

static void put_not_run(struct attn_document *d, const struct attn_page *page)
{
    static const struct attn_column column[] = {{"group", "group", ATTN_UNIT_WORDS},
                                                {"spec", "implementation", ATTN_UNIT_CODE},
                                                {"case", "case", ATTN_UNIT_CODE},
                                                {"why", "why", ATTN_UNIT_WORDS},
                                                {.key = NULL}};
    json_t *of[] = {json_array(), json_array()}; /* paper has the first: a diagnosis, no budget */
    for (int64_t s = 0; s < page->summary->n; s++) {
        const struct attn_row *row = &page->summary->row[s];
        const struct attn_point *p = row->point;
        if (row->status == ATTN_POINT_OK || row->status == ATTN_POINT_PRICED)
            continue;
        json_t *facts = facts_of(row),
               *why = json_sprintf("%s%s%s", attn_status_phrase(row->status),
                                   p->message[0] != '\0' ? ": " : "", p->message);
        json_object_set_new(facts, "why",
                            row->status == ATTN_POINT_WRONG ? json_pack("{s:o}", "bad", why) : why);
        json_array_append_new(of[row->status == ATTN_POINT_DROPPED], facts);
    }
    if (json_array_size(of[0]) + json_array_size(of[1]) == 0)
        attn_document_text(
            d, "None: every point of these records is right, or was to be priced alone.");
    for (int n = 0; n < 2; n++) {
        if (json_array_size(of[n]) == 0) {
            json_decref(of[n]);
            continue;
        }
        attn_document_fold(d, n == 0, "%zu points%s", json_array_size(of[n]),
                           n == 0 ? "" : ", dropped by the time budget");
        attn_document_table(d, column, of[n]);
        attn_document_unfold(d);
    }
}

const struct attn_page_hole attn_page_tables[] = {{"summary", put_summaries},
                                                  {"others", put_others},
                                                  {"live", put_live},
                                                  {"shares", put_shares},
                                                  {"external", put_external},
                                                  {"not-run", put_not_run},
                                                  {.name = NULL}};
