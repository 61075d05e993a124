/* attnlab list: what there is.  Documentation tables are made from its md format. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/report/figures.h"
#include "experiments/table/row_table.h"
#include "optimized/registry.h"
#include "ref/mask/mask.h"
#include "ref/mask/nearest.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/cases/models.h"
#include "tests/harness/cases/tiers.h"
#include "tests/harness/diagnosis/bugs.h"
#include "tests/harness/relations/relations.h"

enum format { TEXT, MD, JSON };

struct request {
    int format, tier, overwrite;
    const char *picture, *out;
    const char *claims;
    int64_t length, keys, seed;
    json_t *all;             /* the rows of a table, or lines */
    const char *const *head; /* the names of its columns; the first NULL: it is no table */
};

static const struct attn_flag_use flags[] = {
    ATTN_TAKES(TIER, offsetof(struct request, tier), "quick"),
    ATTN_TAKES(CLAIMS, offsetof(struct request, claims), .kind = ATTN_KIND_TEXT,
               .help = "cases and factors within these claims, JSON (docs/external.md)"),
    ATTN_TAKES(SEED, offsetof(struct request, seed), "1",
               .help = "of the values that a tier draws"),
    ATTN_TAKES(FORMAT, offsetof(struct request, format), "text", .value = "text|md|json"),
    ATTN_TAKES(MASK, offsetof(struct request, picture), .kind = ATTN_KIND_TEXT,
               .help = "of masks: a picture, of each query of MASK a row, '#' for a visible key"),
    ATTN_TAKES(LENGTH, offsetof(struct request, length), .kind = ATTN_KIND_COUNT, .value = "L",
               .help = "of a picture: queries, and keys unless --keys says otherwise"),
    ATTN_TAKES(KEYS, offsetof(struct request, keys)),
    ATTN_TAKES(OUT, offsetof(struct request, out), .value = "FILE.svg",
               .help = "the picture as SVG, by gnuplot, with the script beside it as FILE.gp"),
    ATTN_TAKES(OVERWRITE, offsetof(struct request, overwrite)),
    {.flag = ATTN_FLAG_END}};

static int list(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_list = {
    .name = "list",
    .summary = "implementations, cases, fills, masks and options",
    .usage = "list [implementations|cases|factors|relations|fills|bugs|masks|models] [flags]\n"
             "list masks --mask MASK --length L [--keys N] [--out FILE.svg]",
    .about =
        "Lists implementations with what they claim and their options (default), the "
        "cases\n"
        "of a tier with their reasons, the factors on which kernels branch and their values, the\n"
        "relations that check runs with the cases, the named data fills, the catalogue of real\n"
        "bugs with what covers each, the calls of the mask language, published models with the "
        "source\n"
        "of their numbers.",
    .words = "implementations cases factors relations fills bugs masks models ",
    .flags = flags,
    .more =
        "An implementation with its options is a SPEC: NAME:option=value,... and, for one\n"
        "instruction set, @avx2 at its end.  Where ranks hand their work on, local= takes a NAME,\n"
        "or a NAME and its own options in parentheses:\n"
        "\n"
        "  attnlab check tiled:few=0@avx2\n"
        "  attnlab check 'ring:ranks=8,local=(tiled-textbook:br=32,bc=16)'\n"
        "\n"
        "A mask as a picture, a row for each query:\n"
        "\n"
        "  attnlab list masks --mask 'spatial(3,2,2)|temporal(3,2,2)' --length 12",
    .operands_most = 1,
    .size = sizeof(struct request),
    .initial = &(const struct request){.length = -1, .keys = -1},
    .run = list};

static void join_caps(unsigned caps, const char *between, char *text, size_t size)
{
    text[0] = '\0';
    for (int bit = 0; bit < ATTN_CAPS; bit++)
        if (caps & 1u << bit)
            attn_append(text, size, "%s%s", text[0] ? between : "", attn_cap_name(bit));
}

/* As text, and below each other in the cell of a table. */
static void append_options(const struct attn_option *o, int format, char *text, size_t size)
{
    for (; o != NULL && o->name != NULL; o++) {
        attn_append(text, size, "%s%s=", format == MD ? "<br>" : "\n        ", o->name);
        if (o->choices == NULL)
            attn_append(text, size, "%lld (%lld to %lld)", (long long)o->preset, (long long)o->min,
                        (long long)o->max);
        else if (o->choices[0] == '@')
            attn_append(text, size, "%s or (NAME:options)", o->choices + 1);
        else
            attn_append(text, size, "%s", o->choices);
        attn_append(text, size, ": %s", o->help);
    }
}

static json_t *impl_json(const struct attn_impl *impl)
{
    json_t *caps = json_array(), *options = json_array();
    for (int bit = 0; bit < ATTN_CAPS; bit++)
        if (impl->caps & 1u << bit)
            json_array_append_new(caps, json_string(attn_cap_name(bit)));
    for (const struct attn_option *o = impl->options; o != NULL && o->name != NULL; o++)
        json_array_append_new(options, json_pack("{s:s,s:s}", "name", o->name, "help", o->help));
    return json_pack("{s:s,s:s,s:s,s:o,s:o}", "name", impl->name, "family", impl->family, "summary",
                     impl->summary, "claims", caps, "options", options);
}

static void add_row(const struct request *want, const char *const cell[])
{
    json_t *row = json_object();
    for (int i = 0; want->head[i] != NULL; i++)
        json_object_set_new(row, want->head[i], json_string(cell[i]));
    json_array_append_new(want->all, row);
}

static void list_implementations(const struct request *want)
{
    char caps[300], name[64], options[4096];
    for (int i = 0; i < attn_impl_count(); i++) {
        const struct attn_impl *impl = attn_impl_at(i);
        const char *tick = want->format == MD ? "`" : "";
        join_caps(impl->caps, " ", caps, sizeof caps);
        snprintf(name, sizeof name, "%s%s%s", tick, impl->name, tick);
        options[0] = '\0';
        append_options(impl->options, want->format, options, sizeof options);
        if (want->format == JSON)
            json_array_append_new(want->all, impl_json(impl));
        else
            add_row(want, (const char *const[]){name, impl->family, impl->summary, caps, options});
    }
}

/* The claims that were given, or all that exist. */
static void take_claims(const struct request *want, struct attn_claims *claims)
{
    struct attn_error err;
    attn_claims_all(claims);
    if (want->claims != NULL)
        attn_cli_must(attn_claims_read(want->claims, claims, &err), &err);
}

static enum attn_route route_of(const struct request *want)
{
    return want->claims != NULL ? ATTN_ROUTE_FILES : ATTN_ROUTE_OWN;
}

static void list_cases(const struct request *want)
{
    struct attn_error err;
    struct attn_claims claims;
    struct attn_tier_list *list = attn_cli_need(calloc(1, sizeof *list));
    take_claims(want, &claims);
    attn_cli_must(attn_tier_open((enum attn_tier)want->tier, &claims, route_of(want),
                                 (uint64_t)want->seed, list, &err),
                  &err);
    for (int i = 0; i < list->n; i++) {
        const struct attn_battery_case *c = &list->at[i].battery;
        add_row(want, (const char *const[]){c->name, c->text, c->ids, c->why});
    }
    attn_tier_close(list);
    free(list);
}

static void list_relations(const struct request *want)
{
    for (int i = 0; i < ATTN_RELATION_COUNT; i++) {
        const struct attn_relation *r = &attn_relations[i];
        add_row(want, (const char *const[]){r->id, r->ids, r->says});
    }
}

static void list_fills(const struct request *want)
{
    for (int f = 0; f < ATTN_FILLS; f++)
        add_row(want, (const char *const[]){attn_fill_name((enum attn_fill)f),
                                            attn_fill_aim((enum attn_fill)f)});
}

/* The whole table, or what claims leave of it, with what is drawn for the full tier. */
static void list_factors(const struct request *want)
{
    struct attn_claims claims;
    struct attn_factors *table = attn_cli_need(calloc(1, sizeof *table));
    take_claims(want, &claims);
    attn_factors_open(&claims, route_of(want), (uint64_t)want->seed, ATTN_TIER_FULL, table);
    for (int f = 0; f < ATTN_FACTORS; f++) {
        const struct attn_factor *factor = &table->of[f];
        int first_any = f < ATTN_EXTENTS ? table->first_any[f] : 0;
        char values[512] = "";
        for (int v = 0; v < factor->n; v++)
            attn_append(values, sizeof values, "%s%s%s", v > 0 ? " " : "", factor->value[v],
                        first_any > 0 && v >= first_any ? "(any)" : "");
        add_row(want, (const char *const[]){factor->name, factor->says, values, factor->shows});
    }
    free(table);
}

/* For the page: the first reference, its repository without the owner, and a long text up to the
 * end of a clause. */
static void shorten(char *reference, char *what)
{
    enum { LONG = 100 };
    char *end = NULL, *to = reference;
    for (const char *at = reference; *at != '\0' && strchr(",;(", *at) == NULL; at++) {
        *to++ = *at;
        if (*at == '/' && isalpha((unsigned char)at[1]))
            while (to > reference && to[-1] != ' ')
                to--;
    }
    to[-(to > reference && to[-1] == ' ')] = '\0';
    for (char *at = what; strlen(what) > LONG && at < what + LONG; at++)
        if (*at == ';' || (*at == '.' && at[1] == ' ' && isupper((unsigned char)at[2])))
            end = at;
    if (end != NULL)
        *end = '\0';
}

/* Each bug with the battery cases that stand for it, or the words of bugs.def.  The page is for
 * reading: it says of a bug only the unusual, that the evidence is no fix, or that no case stands
 * for it. */
static void list_bugs(const struct request *want)
{
    for (int i = 0; i < attn_bug_count; i++) {
        const struct attn_bug *bug = &attn_bug[i];
        char cases[4096], what[1024], reference[256];
        int n = attn_bug_cases(bug, cases, sizeof cases);
        snprintf(what, sizeof what, "%s", bug->what);
        snprintf(reference, sizeof reference, "%s", bug->reference);
        if (want->format == MD) {
            shorten(reference, what);
            if (strcmp(bug->evidence, "C") != 0)
                attn_append(reference, sizeof reference, " (%s)", bug->evidence);
            if (n == 0)
                attn_append(what, sizeof what, ". Covered: %s", bug->elsewhere);
        }
        add_row(want, (const char *const[]){bug->id, reference, what, bug->evidence,
                                            n > 0 ? cases : bug->elsewhere});
    }
}

/* The text of a mask above its rows, as in docs/masks.md. */
static void print_picture(const struct request *want, const struct attn_mask *mask)
{
    char row[ATTN_PICTURE_TEXT_MOST + 1];
    int format = want->format;
    const char *fence = format == MD ? "```" : "";
    if (format == JSON)
        json_array_append_new(want->all, json_string(attn_mask_text(mask)));
    else
        printf("%s%s%s\n", fence, format == MD ? "\n" : "", attn_mask_text(mask));
    for (int64_t i = 0; i < want->length; i++) {
        attn_picture_row(mask, i, row);
        if (format == JSON)
            json_array_append_new(want->all, json_string(row));
        else
            puts(row);
    }
    if (format == MD)
        puts(fence);
}

static int draw_mask(struct request *want)
{
    struct attn_error err = {0};
    struct attn_mask *mask;
    if (want->keys < 0)
        want->keys = want->length;
    int64_t longest = want->length > want->keys ? want->length : want->keys;
    int64_t shortest = want->length < want->keys ? want->length : want->keys;
    int64_t most = want->out != NULL ? ATTN_PICTURE_SVG_MOST : ATTN_PICTURE_TEXT_MOST;
    if (shortest < 1 || longest > most)
        return attn_cli_fail(ATTN_EXIT_USAGE,
                             "a picture of %lld queries and %lld keys: 1 to %lld of each would "
                             "work (--length, --keys)%s",
                             (long long)(want->length < 0 ? 0 : want->length),
                             (long long)(want->keys < 0 ? 0 : want->keys), (long long)most,
                             want->out != NULL ? "" : "; more with --out FILE.svg");
    struct attn_problem problem;
    struct attn_case c = {.batch = 1,
                          .heads = 1,
                          .kv_heads = 1,
                          .n_query = want->length,
                          .n_key = want->keys,
                          .d_key = 1,
                          .d_value = 1};
    attn_case_set_mask(&c, want->picture);
    if (attn_case_open(&c, NULL, &problem, &mask, &err) != ATTN_OK)
        return attn_cli_error(&err);
    int status = ATTN_EXIT_GOOD;
    if (want->out == NULL)
        print_picture(want, mask);
    else if (attn_picture_draw(mask, want->out, want->overwrite, &err) != ATTN_OK)
        status = attn_cli_error(&err);
    if (want->format == JSON && want->out == NULL)
        attn_table_print(stdout, ATTN_TABLE_JSON, NULL, want->all);
    attn_mask_free(mask);
    return status;
}

static void list_masks(const struct request *want)
{
    for (int line = 0; attn_mask_help(line) != NULL; line++)
        if (want->format == JSON)
            json_array_append_new(want->all, json_string(attn_mask_help(line)));
        else
            printf(want->format == MD ? "    %s\n" : "%s\n", attn_mask_help(line));
}

static void list_models(const struct request *want)
{
    for (int m = 0; m < ATTN_MODELS; m++) {
        char shape[200] = "";
        for (int v = 0; v < ATTN_MODEL_VALUES; v++)
            if (attn_models[m].value[v][0] != '\0')
                attn_append(shape, sizeof shape, v > 0 ? " --%s %s" : "--%s %s", attn_model_flag[v],
                            attn_models[m].value[v]);
        if (attn_models[m].field[0] != '\0')
            attn_append(shape, sizeof shape, ", %s", attn_models[m].field);
        add_row(want, (const char *const[]){attn_models[m].name, shape, attn_models[m].source});
    }
}

static const struct {
    const char *name;
    void (*print)(const struct request *want);
    const char *head[6]; /* of a table */
} subject[] = {
    {"implementations",
     list_implementations,
     {"name", "family", "what it is", "claims", "options"}},
    {"cases", list_cases, {"name", "case", "stands for", "why"}},
    {"factors",
     list_factors,
     {"factor", "what kernels branch on", "values", "an error shows when"}},
    {"relations", list_relations, {"relation", "can show", "says"}},
    {"fills", list_fills, {"fill", "aims at"}},
    {"bugs", list_bugs, {"bug", "reference", "what went wrong", "evidence", "covered by"}},
    {"masks", list_masks, {NULL}},
    {"models", list_models, {"model", "what --model stands for", "source"}}};
enum { SUBJECTS = sizeof subject / sizeof *subject };

/* The page of bugs has fewer columns. */
static void print_subject(struct request *want, int s)
{
    static const enum attn_table_format format[] = {ATTN_TABLE_TEXT, ATTN_TABLE_MD,
                                                    ATTN_TABLE_JSON};
    struct attn_column column[6] = {{.key = NULL}};
    int most = want->format == MD && subject[s].print == list_bugs ? 3 : 5;
    want->head = subject[s].head;
    for (int c = 0; c < most && want->head[c] != NULL; c++)
        column[c] = (struct attn_column){want->head[c], want->head[c],
                                         ATTN_UNIT_MD | (c > 1 ? ATTN_UNIT_BELOW : 0)};
    subject[s].print(want);
    if (want->head[0] != NULL || want->format == JSON)
        attn_table_print(stdout, format[want->format], column, want->all);
}

static int list(void *values, int n, char **operand)
{
    struct request *want = values;
    char meant[64];
    int s = 0, status = ATTN_EXIT_GOOD;
    const char *name = n > 0 ? operand[0] : subject[0].name;
    struct attn_nearest nearest = attn_nearest_begin(name, strlen(name));
    for (; s < SUBJECTS && strcmp(name, subject[s].name) != 0; s++)
        attn_nearest_offer(&nearest, subject[s].name);
    if (s == SUBJECTS)
        return attn_cli_fail(ATTN_EXIT_USAGE,
                             "nothing is called '%s'%s; there are: implementations, "
                             "cases, factors, relations, fills, bugs, masks, models",
                             name, attn_nearest_text(&nearest, meant));
    if (want->picture == NULL ? want->length >= 0 || want->keys >= 0 || want->out != NULL
                              : subject[s].print != list_masks)
        return attn_cli_fail(ATTN_EXIT_USAGE, "a picture needs its mask and its length: attnlab "
                                              "list masks --mask 'causal(br)' --length 12");
    want->all = json_array();
    if (want->picture == NULL)
        print_subject(want, s);
    else
        status = draw_mask(want);
    json_decref(want->all);
    return status;
}
