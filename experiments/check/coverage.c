/* See coverage.h. */
#include "experiments/check/coverage.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/diagnosis/cost.h"

/* ---- what the cases were: for each property on which kernels branch, its values -------------- */

enum { FACTORS = 16, VALUES = 512, WORD = 48 };

/* A value of a factor; last: the number of the last case that had it. */
struct value {
    char word[WORD];
    int judged, refused, last;
};
struct factors {
    int n, cases, is_refused; /* is_refused: the case that is counted now */
    struct {
        const char *name;
        int n;
        struct value value[VALUES];
    } of[FACTORS];
};

/* The case has this value, once however often it is said. */
static void count(struct factors *all, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void count(struct factors *all, const char *name, const char *format, ...)
{
    char word[WORD];
    int f = 0, v = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(word, sizeof word, format, args);
    va_end(args);
    while (f < all->n && strcmp(all->of[f].name, name) != 0)
        f++;
    all->n += f == all->n;
    all->of[f].name = name;
    while (v < all->of[f].n && strcmp(all->of[f].value[v].word, word) != 0)
        v++;
    if (v == VALUES)
        return;
    struct value *x = &all->of[f].value[v];
    all->of[f].n += v == all->of[f].n;
    memcpy(x->word, word, sizeof word);
    if (x->last == all->cases)
        return;
    x->last = all->cases;
    x->judged += !all->is_refused;
    x->refused += all->is_refused;
}

/* Lengths by class: there are too many to list, and kernels know classes. */
static void count_length(struct factors *all, const char *name, int64_t n)
{
    static const long long from[] = {2, 16, 64, 128, 512, 1024, 4096};
    enum { CLASSES = sizeof from / sizeof *from };
    int c = 0;
    while (c + 1 < CLASSES && n >= from[c + 1])
        c++;
    if (n < 2)
        count(all, name, "%lld", (long long)n);
    else if (c + 1 < CLASSES)
        count(all, name, "%lld to %lld", from[c], from[c + 1] - 1);
    else
        count(all, name, "%lld and more", from[c]);
}

/* Every call of a mask, causal with its alignment. */
static void count_mask(struct factors *all, const char *p)
{
    while (*p != '\0') {
        size_t size = strcspn(p, "()&|");
        if (size > 0 && p[size] != ')') {
            int is_aligned = strncmp(p, "causal(", 7) == 0;
            size_t end = is_aligned ? size + strcspn(p + size, ")") + 1 : size;
            count(all, "mask", "%.*s", (int)(end < WORD ? end : WORD - 1), p);
        }
        p += size;
        p += p[0] == '(' && size > 0 ? strcspn(p, ")") : *p != '\0';
    }
}

static void count_case(struct factors *all, const struct attn_case *c)
{
    all->cases++;
    count(all, "type", "%s", attn_dtype_name(c->dtype));
    count(all, "pass", c->pass == ATTN_BACKWARD ? "forward and backward" : "forward");
    if (c->d_lse)
        count(all, "pass", "with dlse");
    count(all, "d", "%lld", (long long)c->d_key);
    if (c->d_value == c->d_key)
        count(all, "dv", "= d");
    else
        count(all, "dv", "%lld", (long long)c->d_value);
    count(all, "heads", "%lld", (long long)c->heads);
    count(all, "heads a kv head", "%lld",
          (long long)(c->kv_heads > 0 ? c->heads / c->kv_heads : 0));
    count(all, "batch", "%lld", (long long)c->batch);
    count_length(all, "queries", c->n_query);
    count_length(all, "keys", c->n_key);
    count_mask(all, c->mask);
    if (isnan(c->scale))
        count(all, "scale", "1/sqrt(d)");
    else
        count(all, "scale", "%g", c->scale);
    if (c->softcap > 0)
        count(all, "softcap", "%g", c->softcap);
    else
        count(all, "softcap", "none");
    count(all, "bias", "%s", attn_case_bias_name[c->bias]);
    if (c->d_bias)
        count(all, "bias", "with dbias");
    count(all, "layout", "%s", attn_case_layout_name[c->layout]);
    count(all, "numbers", "%s", attn_fill_name(c->fill));
}

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

/* "8 (31), 64 (4)": values in cases that were judged, then those in refused cases only. */
void attn_values_put(struct attn_document *d, const struct attn_verdict_list *list)
{
    static const struct attn_column column[] = {
        {"factor", "factor", ATTN_UNIT_WORDS},
        {"judged", "judged: value (cases)", ATTN_UNIT_WORDS},
        {"refused", "only in cases that were refused", ATTN_UNIT_WORDS},
        {.key = NULL}};
    struct factors *all = attn_cli_need(calloc(1, sizeof *all));
    json_t *rows = json_array();
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e];
        struct attn_case c;
        all->is_refused = x->result.verdict == ATTN_REFUSED;
        if (x->kind != ATTN_CHECK_RELATION &&
            attn_case_parse(x->text, &c, NULL) == ATTN_OK) /* no word about the whole */
            count_case(all, &c);
    }
    for (int f = 0; f < all->n; f++) {
        struct value *value = all->of[f].value;
        char judged[1600] = "", refused[600] = "";
        qsort(value, (size_t)all->of[f].n, sizeof *value, in_order);
        for (int v = 0; v < all->of[f].n; v++)
            if (value[v].judged > 0)
                append(judged, sizeof judged, &value[v], value[v].judged);
            else
                append(refused, sizeof refused, &value[v], value[v].refused);
        json_array_append_new(rows, json_pack("{s:s,s:s,s:s}", "factor", all->of[f].name, "judged",
                                              judged, "refused", refused));
    }
    attn_document_heading(d, 3, "The factors of the cases");
    attn_document_table(d, column, rows);
    free(all);
}

/* ---- what of the table was met, for each type ------------------------------------------------ */

static void count_choice(const struct attn_factors *table, const struct attn_choice *choice,
                         unsigned char how, struct attn_coverage *x)
{
    const int hides = choice->value[ATTN_FACTOR_PASS] != 0 && attn_choice_is_flat(table, choice);
    for (int f = 0; f < ATTN_FACTORS; f++) {
        int id = attn_value_id(f, choice->value[f]);
        x->value[id] |= attn_choice_shows(table, choice, f, f) ? how : 0;
        for (int g = 0; g < f; g++)
            if (!hides && attn_choice_shows(table, choice, f, g))
                x->pair[id][attn_value_id(g, choice->value[g])] |= how;
    }
}

/* Verdicts come in the order of the cases, some of which have none. */
void attn_coverage_count(const struct attn_tier_list *tier, const struct attn_verdict_list *list,
                         int type, struct attn_coverage *x)
{
    memset(x, 0, sizeof *x);
    for (int e = 0, at = 0; e < list->n; e++) {
        const struct attn_verdict_entry *entry = &list->entry[e];
        int i = at;
        while (i < tier->n && strcmp(tier->at[i].battery.name, entry->name) != 0)
            i++;
        if (i == tier->n || entry->kind != ATTN_CHECK_CASE)
            continue;
        at = i + 1;
        const struct attn_choice *choice = &tier->at[i].choice;
        int has_verdict = entry->result.verdict < ATTN_SKIPPED && tier->at[i].is_made;
        if (has_verdict && (type < 0 || choice->value[ATTN_FACTOR_DTYPE] == type))
            count_choice(&tier->table, choice,
                         entry->result.verdict == ATTN_REFUSED ? ATTN_MET_REFUSED : ATTN_MET_JUDGED,
                         x);
    }
}

/* Pairs that were judged, and that stand only in cases that were refused. */
static void count_pairs(const struct attn_coverage *x, int *judged, int *refused)
{
    *judged = *refused = 0;
    for (int i = 0; i < ATTN_FACTOR_IDS; i++)
        for (int j = 0; j < ATTN_FACTOR_IDS; j++) {
            *judged += (x->pair[i][j] & ATTN_MET_JUDGED) != 0;
            *refused += x->pair[i][j] == ATTN_MET_REFUSED;
        }
}

/* The values of a factor that were met so: "8, 16, 88 (any)". */
static void list_values(const struct attn_factors *t, const struct attn_coverage *x, int factor,
                        int how, char *text, size_t size)
{
    text[0] = '\0';
    for (int v = 0; v < t->of[factor].n; v++) {
        int met = x->value[attn_value_id(factor, v)];
        int is = how == ATTN_MET_JUDGED ? met & how : met == how;
        int is_any = factor < ATTN_EXTENTS && t->first_any[factor] > 0 && v >= t->first_any[factor];
        if (is)
            attn_append(text, size, "%s%s%s", text[0] != '\0' ? ", " : "", t->of[factor].value[v],
                        is_any ? " (any)" : "");
    }
}

void attn_coverage_put(struct attn_document *d, const struct attn_tier_list *tier,
                       const struct attn_verdict_list *list)
{
    static const struct attn_column column[] = {{"factor", "factor", ATTN_UNIT_WORDS},
                                                {"judged", "judged", ATTN_UNIT_WORDS},
                                                {"refused", "only refused by it", ATTN_UNIT_WORDS},
                                                {"never", "never met", ATTN_UNIT_WORDS},
                                                {.key = NULL}};
    const struct attn_factors *t = &tier->table;
    struct attn_coverage *x = attn_cli_need(calloc(1, sizeof *x));
    for (int type = 0; type < t->of[ATTN_FACTOR_DTYPE].n; type++) {
        int judged, refused;
        char title[40];
        attn_coverage_count(tier, list, type, x);
        count_pairs(x, &judged, &refused);
        snprintf(title, sizeof title, "Values that were met in %s",
                 t->of[ATTN_FACTOR_DTYPE].value[type]);
        attn_document_heading(d, 3, title);
        attn_document_text(d,
                           "In %s, of the values on which kernels branch, by cases made for them: "
                           "%d pairs of values were judged where both show, %d stand only in cases "
                           "that it refused.",
                           t->of[ATTN_FACTOR_DTYPE].value[type], judged, refused);
        char cost[600];
        int dtype = 0;
        while (strcmp(attn_dtype_name((enum attn_dtype)dtype),
                      t->of[ATTN_FACTOR_DTYPE].value[type]) != 0)
            dtype++;
        if (attn_bound_cost(&tier->claims, (enum attn_dtype)dtype, cost, sizeof cost, NULL) ==
            ATTN_OK)
            attn_document_text(d, "%s.", cost);
        json_t *rows = json_array();
        for (int f = 0; f < ATTN_FACTOR_DTYPE; f++) {
            char met[3][400];
            static const int how[3] = {ATTN_MET_JUDGED, ATTN_MET_REFUSED, 0};
            for (int n = 0; n < 3; n++)
                list_values(t, x, f, how[n], met[n], sizeof met[n]);
            json_array_append_new(rows,
                                  json_pack("{s:s,s:s,s:s,s:s}", "factor", t->of[f].name, "judged",
                                            met[0], "refused", met[1], "never", met[2]));
        }
        attn_document_table(d, column, rows);
    }
    free(x);
}
