/* A cluster's file, and the prices on it.  See cluster.h. */
#include "experiments/rim/cluster/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/statements.h"
#include "experiments/table/row_table.h"
#include "optimized/parallel/scheme.h"
#include "ref/mask/mask.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"

/* ---- the file -------------------------------------------------------------------------------- */

static const struct key {
    const char *name, *unit;
    double least, most;
    int is_needed;
} keys[ATTN_CLUSTER_KEYS] = {
#define CLUSTER_KEY(id, ...) {__VA_ARGS__},
#include "experiments/rim/cluster/cluster_keys.def"
#undef CLUSTER_KEY
};

struct reading {
    struct attn_cluster_file *file;
    int is_set[ATTN_CLUSTER_KEYS];
};

static int find_key(const char *name)
{
    int k = 0;
    while (k < ATTN_CLUSTER_KEYS && strcmp(keys[k].name, name) != 0)
        k++;
    return k;
}

static enum attn_status unknown(const char *name, struct attn_error *err)
{
    char names[300] = "";
    for (int k = 0; k < ATTN_CLUSTER_KEYS; k++) {
        strcat(names, " "); /* all names together: 187 bytes */
        strcat(names, keys[k].name);
    }
    return attn_fail(err, ATTN_EINVAL,
                     "unknown key '%.40s'; there are name%s, and `source KEY = TEXT`", name, names);
}

static enum attn_status set_text(char *to, size_t size, const char *what, const char *value,
                                 struct attn_error *err)
{
    if (to[0] != '\0')
        return attn_fail(err, ATTN_EINVAL, "%s is set twice", what);
    if (value[0] == '\0' || strlen(value) >= size)
        return attn_fail(err, ATTN_EINVAL, "%s needs a text of 1 to %zu bytes", what, size - 1);
    strcpy(to, value);
    return ATTN_OK;
}

static enum attn_status set_number(struct reading *x, int k, const char *value,
                                   struct attn_error *err)
{
    double number;
    if (x->is_set[k])
        return attn_fail(err, ATTN_EINVAL, "%s is set twice", keys[k].name);
    if (!attn_cli_double(value, &number) || !(number >= keys[k].least && number <= keys[k].most) ||
        (k == ATTN_CLUSTER_NODE && number != floor(number)))
        return attn_fail(err, ATTN_EINVAL, "%s = '%.40s': a number from %g to %g (%s) would work",
                         keys[k].name, value, keys[k].least, keys[k].most, keys[k].unit);
    x->file->value[k] = number;
    x->is_set[k] = 1;
    return ATTN_OK;
}

static enum attn_status statement(void *arg, char *text, struct attn_error *err)
{
    struct reading *x = arg;
    char *equals = strchr(text, '='), *of = NULL;
    if (equals == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "'%.60s' is neither `KEY = NUMBER` nor `source KEY = TEXT`", text);
    *equals = '\0';
    char *value = attn_trim(equals + 1), *name = attn_trim(text);
    if (strcmp(name, "name") == 0)
        return set_text(x->file->name, sizeof x->file->name, name, value, err);
    of = attn_after_word(name, "source");
    int k = find_key(of != NULL ? of : name);
    if (k == ATTN_CLUSTER_KEYS)
        return unknown(of != NULL ? of : name, err);
    if (of == NULL)
        return set_number(x, k, value, err);
    return set_text(x->file->source[k], sizeof x->file->source[k], keys[k].name, value, err);
}

/* Every key that is needed is there, with where its number comes from; and some rate. */
static enum attn_status check_whole(const struct reading *x, struct attn_error *err)
{
    int rates = 0;
    for (int k = 0; k < ATTN_CLUSTER_KEYS; k++) {
        if (!x->is_set[k] && (keys[k].is_needed || x->file->source[k][0] != '\0'))
            return attn_fail(err, ATTN_EINVAL, "%s is missing: %s = NUMBER (%s)", keys[k].name,
                             keys[k].name, keys[k].unit);
        if (x->is_set[k] && x->file->source[k][0] == '\0')
            return attn_fail(err, ATTN_EINVAL,
                             "%s has no source: `source %s = TEXT` says where it "
                             "comes from",
                             keys[k].name, keys[k].name);
        rates += x->is_set[k] && strncmp(keys[k].name, "flops-", 6) == 0;
    }
    if (x->file->name[0] == '\0')
        return attn_fail(err, ATTN_EINVAL, "name is missing: name = TEXT");
    if (rates == 0)
        return attn_fail(err, ATTN_EINVAL, "no rate: flops-bf16 = NUMBER (flop/s)");
    return ATTN_OK;
}

static struct attn_cluster cluster_of(const double *v)
{
    return (struct attn_cluster){
        .node = (int64_t)v[ATTN_CLUSTER_NODE],
        .memory = v[ATTN_CLUSTER_MEMORY],
        .memory_bandwidth = v[ATTN_CLUSTER_MEMORY_BANDWIDTH],
        .launch = v[ATTN_CLUSTER_LAUNCH],
        .flops = {[ATTN_F64] = v[ATTN_CLUSTER_FLOPS_F64],
                  [ATTN_F32] = v[ATTN_CLUSTER_FLOPS_F32],
                  [ATTN_BF16] = v[ATTN_CLUSTER_FLOPS_BF16],
                  [ATTN_F16] = v[ATTN_CLUSTER_FLOPS_F16]},
        .masked = v[ATTN_CLUSTER_MASKED],
        .exchange = v[ATTN_CLUSTER_EXCHANGE],
        .hop = v[ATTN_CLUSTER_HOP],
        .latency = {v[ATTN_CLUSTER_INSIDE_LATENCY], v[ATTN_CLUSTER_BETWEEN_LATENCY]},
        .bandwidth = {v[ATTN_CLUSTER_INSIDE_BANDWIDTH], v[ATTN_CLUSTER_BETWEEN_BANDWIDTH]}};
}

enum attn_status attn_cluster_parse(const char *name, const char *text,
                                    struct attn_cluster_file *file, struct attn_error *err)
{
    struct reading x = {.file = file};
    int line;
    char *copy = attn_cli_text("%s", text);
    memset(file, 0, sizeof *file);
    enum attn_status status = attn_statements(copy, &line, statement, &x, err);
    if (status == ATTN_OK)
        status = check_whole(&x, err);
    free(copy);
    if (status != ATTN_OK)
        attn_statement_locate(err, name, line);
    file->cluster = cluster_of(file->value);
    return status;
}

enum attn_status attn_cluster_read(const char *path, struct attn_cluster_file *file,
                                   struct attn_error *err)
{
    enum { MOST = 1 << 16 };
    char *text;
    enum attn_status status = attn_read_text(path, ATTN_READ_GIVEN, MOST, &text, err);
    if (status == ATTN_OK)
        status = attn_cluster_parse(path, text, file, err);
    free(text);
    return status;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

enum attn_status attn_cluster_ranks(const char *text, struct attn_cluster_counts *ranks,
                                    struct attn_error *err)
{
    int64_t first, last, times;
    char word[3][8] = {"", "", "2"};
    int one = 0, three = 0;
    int n = sscanf(text, "%7[0-9]%n:%7[0-9]:x%7[0-9]%n", word[0], &one, word[1], word[2], &three);
    if ((n != 1 && n != 3) || text[n == 1 ? one : three] != '\0' ||
        !attn_cli_int(word[0], 1, ATTN_MAX_RANKS, &first) ||
        !attn_cli_int(word[n == 1 ? 0 : 1], first, ATTN_MAX_RANKS, &last) ||
        !attn_cli_int(word[2], 2, ATTN_MAX_RANKS, &times))
        return attn_fail(err, ATTN_EINVAL,
                         "ranks '%.40s': 8, or 8:4096:x2 for 8, 16, ... 4096, would work; 1 to %d",
                         text, ATTN_MAX_RANKS);
    ranks->n = 0;
    for (int64_t r = first; r <= last; r *= times)
        ranks->at[ranks->n++] = r;
    return ATTN_OK;
}

enum attn_status attn_cluster_set_ranks(struct attn_spec *spec, int64_t ranks,
                                        struct attn_error *err)
{
    int o = attn_option_find(spec->impl, "ranks");
    if (o < 0)
        return attn_fail(err, ATTN_EINVAL, "%s is one process: ring or ulysses would work",
                         spec->impl->name);
    spec->options.value[o] = ranks;
    return ATTN_OK;
}

/* ---- a row ----------------------------------------------------------------------------------- */

enum attn_status attn_cluster_replay(const struct attn_spec *spec, const struct attn_problem *p,
                                     enum attn_need_pass pass, const struct attn_cluster *cluster,
                                     struct attn_replay *replay, struct attn_error *err)
{
    enum attn_pass last = pass == ATTN_NEED_FORWARD ? ATTN_FORWARD : ATTN_BACKWARD;
    struct attn_replay forward = {0};
    enum attn_status status = ATTN_OK;
    if (pass == ATTN_NEED_BOTH)
        status = attn_replay(p, &spec->options, ATTN_FORWARD, cluster, &forward, NULL, err);
    if (status == ATTN_OK)
        status = attn_replay(p, &spec->options, last, cluster, replay, NULL, err);
    replay->seconds += forward.seconds;
    replay->ideal += forward.ideal;
    for (int on = 0; on < ATTN_SPENT; on++)
        replay->spent[on] += forward.spent[on];
    return status;
}

struct row {
    struct attn_spec spec;
    struct attn_replay replay;
    struct attn_need need;
    int64_t longest;
};

/* With U heads, of a scheme that has that option and was not told. */
static enum attn_status try_row(const struct attn_price_asked *asked,
                                const struct attn_cluster_file *file, const struct attn_problem *p,
                                struct row *row, struct attn_error *err)
{
    enum attn_status status = attn_need_of(asked, p, NULL, &row->need, err);
    return status != ATTN_OK
               ? status
               : attn_cluster_replay(&row->spec, p, asked->pass, &file->cluster, &row->replay, err);
}

/* 1: a is better: it fits and b does not, or it is faster. */
static int is_better(const struct row *a, const struct row *b, const struct attn_memory *memory)
{
    int fits[2] = {attn_need_in(&a->need, memory) <= memory->bytes,
                   attn_need_in(&b->need, memory) <= memory->bytes};
    return fits[0] != fits[1] ? fits[0] : a->replay.seconds < b->replay.seconds;
}

/* The best of all U that divide the ranks and have a head each. */
static enum attn_status best_row(const struct attn_price_asked *asked,
                                 const struct attn_cluster_file *file, const struct attn_problem *p,
                                 struct row *row, struct attn_error *err)
{
    int o = attn_option_find(row->spec.impl, "heads"),
        ranks = attn_ranks(row->spec.impl, &row->spec.options);
    struct row best = {.replay.seconds = -1};
    if (o < 0 || row->spec.options.value[o] != 0)
        return try_row(asked, file, p, row, err);
    for (int u = 1; u <= ranks && u <= p->heads; u++) {
        row->spec.options.value[o] = u;
        enum attn_status status = ranks % u == 0 ? try_row(asked, file, p, row, err) : ATTN_OK;
        if (status != ATTN_OK)
            return status;
        if (ranks % u == 0 && (best.replay.seconds < 0 || is_better(row, &best, asked->memory)))
            best = *row;
    }
    *row = best;
    return ATTN_OK;
}

/* asked->spec is the row's. */
static enum attn_status price_row(const struct attn_price_asked *asked,
                                  const struct attn_cluster_file *file, int64_t ranks,
                                  struct row *row, struct attn_error *err)
{
    struct attn_problem p;
    struct attn_mask *mask = NULL;
    double bytes[2] = {0, 0};
    enum attn_status status = ranks > 0 ? attn_cluster_set_ranks(&row->spec, ranks, err) : ATTN_OK;
    if (status == ATTN_OK)
        status = attn_case_open(asked->c, NULL, &p, &mask, err);
    if (status == ATTN_OK)
        status = best_row(asked, file, &p, row, err);
    if (status == ATTN_OK)
        status = attn_need_longest(asked, 1, HUGE_VAL, &row->longest, bytes, err);
    attn_mask_free(mask);
    return status;
}

static double efficiency(const struct attn_replay *replay)
{
    return replay->seconds > 0 ? replay->ideal / replay->seconds : 0;
}

static const char *limit_of(const struct row *row, const struct attn_memory *memory)
{
    int most = 0;
    for (int on = 1; on < ATTN_SPENT; on++)
        if (row->replay.spent[on] > row->replay.spent[most])
            most = on;
    return attn_need_in(&row->need, memory) > memory->bytes ? "does not fit"
                                                            : attn_spent_name(most);
}

/* ---- what is said ---------------------------------------------------------------------------- */

static json_t *row_json(const struct attn_price_asked *asked, const struct row *row,
                        const struct attn_cluster_file *file)
{
    json_t *json = attn_price_asked_json(asked), *spent = json_object();
    for (int on = 0; on < ATTN_SPENT; on++)
        json_object_set_new(spent, attn_spent_name(on), json_real(row->replay.spent[on]));
    json_t *rest =
        json_pack("{s:o, s:i, s:f, s:f, s:s, s:o, s:f, s:I}", "cluster", attn_cli_words(file->name),
                  "ranks", attn_ranks(row->spec.impl, &row->spec.options), "seconds",
                  row->replay.seconds, "efficiency", efficiency(&row->replay), "limit",
                  limit_of(row, asked->memory), "spent", spent, "needed_bytes",
                  attn_need_in(&row->need, asked->memory), "longest", (json_int_t)row->longest);
    json_object_update(json, rest);
    json_decref(rest);
    return json;
}

/* A column for each thing that time goes into. */
static void print_rows(const struct attn_price_asked *asked, const struct attn_cluster_file *file,
                       const json_t *rows)
{
    struct attn_column column[8 + ATTN_SPENT] = {{"ranks", "ranks", ATTN_UNIT_PLAIN},
                                                 {"seconds", "time", ATTN_UNIT_SECONDS},
                                                 {"efficiency", "eff.", ATTN_UNIT_REAL},
                                                 {"limit", "limit", ATTN_UNIT_WORDS}};
    size_t r;
    json_t *row;
    int n = 4;
    for (int on = 0; on < ATTN_SPENT; on++)
        column[n++] =
            (struct attn_column){attn_spent_name(on), attn_spent_name(on), ATTN_UNIT_SECONDS};
    column[n++] = (struct attn_column){"needed_bytes", "rank needs", ATTN_UNIT_BYTES};
    column[n++] = (struct attn_column){"longest", "longest L", ATTN_UNIT_GROUPED};
    column[n] = (struct attn_column){"spec", "as", ATTN_UNIT_CODE};
    json_array_foreach((json_t *)(uintptr_t)rows, r, row)
        json_object_update(row, json_object_get(row, "spent"));
    attn_price_print_asked(asked);
    printf("  on %s\n", file->name);
    attn_table_print(stdout, ATTN_TABLE_INDENTED, column, rows);
}

static void print_assumptions(const struct attn_price_asked *asked,
                              const struct attn_cluster_file *file, int counted)
{
    printf("  time: of the slowest rank, and what it goes into.  eff.: all products dealt out "
           "evenly, at the full rate, by it.\n"
           "  longest L: of multiples of 4 tokens a rank, by memory alone.\n"
           "  assumed: links are not shared; posting is not hidden; a change of layout begins with "
           "the last rank;\n"
           "  a backward product has the rate of a forward one; and of %s\n",
           file->name);
    for (int k = 0; k < ATTN_CLUSTER_KEYS; k++)
        if (file->source[k][0] != '\0')
            printf("    %-18s %10.4g %-28s %s\n", keys[k].name, file->value[k], keys[k].unit,
                   file->source[k]);
    attn_price_print_isa(asked->spec, "  local products are ", "\n");
    if (counted)
        puts("  visible pairs were counted row by row");
    putchar('\n');
}

/* On a terminal, what takes long. */
static void show_progress(int64_t ranks)
{
    if (ranks >= 512 && isatty(STDERR_FILENO))
        fprintf(stderr, "\r  %lld ranks ...\r", (long long)ranks);
}

int attn_price_cluster(const struct attn_price_asked *asked, const struct attn_cluster_file *file,
                       const struct attn_cluster_counts *ranks, json_t *all)
{
    int n = ranks->n > 0 ? ranks->n : 1, counted = 0, worst = ATTN_EXIT_GOOD;
    json_t *rows = json_array();
    for (int i = 0; i < n; i++) {
        struct row row = {.spec = *asked->spec};
        struct attn_error err = {ATTN_OK, ""};
        int64_t of = ranks->n > 0 ? ranks->at[i] : 0;
        show_progress(of);
        const struct attn_price_asked one = {&row.spec, asked->stack, asked->c, asked->pass,
                                             asked->memory};
        enum attn_status status = price_row(&one, file, of, &row, &err);
        if (status == ATTN_OK)
            json_array_append_new(all != NULL ? all : rows, row_json(&one, &row, file));
        else {
            attn_price_show_refused(&one, err.text, all);
            worst = attn_cli_status(status);
        }
        counted |= status == ATTN_OK && row.replay.counted;
    }
    if (json_array_size(rows) > 0) {
        print_rows(asked, file, rows);
        print_assumptions(asked, file, counted);
    }
    json_decref(rows);
    return worst;
}
