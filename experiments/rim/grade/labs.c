/* See grading.h: the table of labs, and the task that a seed makes of one. */
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/rim/grade/grading.h"
#include "experiments/table/row_table.h"
#include "tests/harness/base/fileio.h"

/* ---- the table ------------------------------------------------------------------------------- */

/* A lab, then its criteria. */
static const struct row {
    struct attn_lab lab; /* name NULL: this is a criterion */
    struct attn_criterion criterion;
} rows[] = {
#define LAB(name, form, claims, varies, title) \
    {.lab = {name, ATTN_LAB_##form, claims, varies, title}},
#define CRITERION(name, points, kind, argument, read) \
    {.criterion = {name, points, #kind, attn_grade_##kind, argument, read}},
#include "experiments/rim/grade/labs.def"
};

enum { ROWS = sizeof rows / sizeof *rows };

const struct attn_lab *attn_lab_at(int index)
{
    int r = 0;
    while (r < ROWS && (rows[r].lab.name == NULL || index-- > 0))
        r++;
    return r < ROWS ? &rows[r].lab : NULL;
}

int attn_lab_count(void)
{
    int n = 0;
    while (attn_lab_at(n) != NULL)
        n++;
    return n;
}

const struct attn_lab *attn_lab_find(const char *name)
{
    size_t n = strlen(name);
    for (int l = 0; attn_lab_at(l) != NULL; l++) {
        const char *lab = attn_lab_at(l)->name;
        if (strcmp(lab, name) == 0 || (n > 0 && strncmp(lab, name, n) == 0 && lab[n] == '-'))
            return attn_lab_at(l);
    }
    return NULL;
}

const struct attn_criterion *attn_lab_criterion(const struct attn_lab *lab, int n)
{
    int r = 0;
    while (&rows[r].lab != lab)
        r++;
    for (r++; r < ROWS && rows[r].lab.name == NULL; r++)
        if (n-- == 0)
            return &rows[r].criterion;
    return NULL;
}

/* ---- a task ---------------------------------------------------------------------------------- */

/* Conventions that a seed draws: the words of a declaration, and what they mean. */
static const struct convention {
    const char *key;
    int n;
    const char *word[3], *means[3];
} convention[] = {
    {"lse", 2, {"e", "2"}, {"LSE is a natural logarithm", "LSE is a logarithm to base 2"}},
    {"causal",
     2,
     {"tl", "br"},
     {"causal masks put query 0 at key 0", "causal masks put the last query at the last key"}},
    {"layout",
     3,
     {"bhld", "blhd", "sbhd"},
     {"tensors lie in the order [B,H,L,d]", "tensors lie in the order [B,L,H,d]",
      "tensors lie in the order [L,B,H,d]"}},
    {"mask_one",
     2,
     {"visible", "hidden"},
     {"a 1 in a mask of bytes is a visible pair", "a 1 in a mask of bytes is a hidden pair"}}};

enum { CONVENTIONS = sizeof convention / sizeof *convention };

static int drawn(const struct attn_task *task, const struct convention *c)
{
    char text[400];
    int n = snprintf(text, sizeof text, "%.200s:%s:%s", task->seed, task->lab->name, c->key);
    uint64_t hash = attn_digest_bytes(ATTN_DIGEST_BEGIN, text, (size_t)n);
    return (int)((hash >> 32) % (uint64_t)c->n);
}

static int varies(const struct attn_task *task, const struct convention *c)
{
    return task->seed[0] != '\0' && attn_cli_listed(task->lab->varies, " ", c->key);
}

/* A claim of the task as a word of a declaration; blocks are declared by a number. */
static int next_claim(const char **at, char word[32])
{
    int used = 0;
    if (sscanf(*at, " %31s%n", word, &used) != 1)
        return 0;
    *at += used;
    return 1;
}

enum attn_status attn_task_make(const struct attn_lab *lab, const char *seed, const char *hidden,
                                struct attn_task *task, struct attn_error *err)
{
    char text[1024], word[32];
    const char *at = lab->claims;
    int ranks = 0;
    *task = (struct attn_task){.lab = lab, .seed = seed, .hidden = hidden};
    if (lab->form != ATTN_LAB_CODE)
        return ATTN_OK;
    snprintf(text, sizeof text, "{\"name\": \"task\", \"claims\": [");
    for (int n = 0; next_claim(&at, word);)
        if (strcmp(word, "block") == 0)
            task->allows_block = 1;
        else if (sscanf(word, "ranks=%d", &ranks) == 1)
            continue;
        else
            attn_append(text, sizeof text, "%s\"%s\"", n++ > 0 ? ", " : "", word);
    attn_append(text, sizeof text, "]");
    for (int c = 0; c < CONVENTIONS; c++)
        if (varies(task, &convention[c]))
            attn_append(text, sizeof text, ", \"%s\": \"%s\"", convention[c].key,
                        convention[c].word[drawn(task, &convention[c])]);
    if (ranks > 0)
        attn_append(text, sizeof text,
                    ", \"shapes\": {\"queries\": \"%d.. step %d\", \"keys\": \"%d.. step %d\"}",
                    ranks, ranks, ranks, ranks);
    attn_append(text, sizeof text, "}");
    enum attn_status status = attn_claims_parse(lab->name, text, &task->claims, err);
    task->claims.ranks = ranks;
    return status;
}

/* "lse: \"2\"; layout: \"sbhd\"": what differs from attnlab's own; "" where nothing does. */
static void task_words(const struct attn_task *task, char *text, size_t size)
{
    text[0] = '\0';
    for (int c = 0; c < CONVENTIONS; c++)
        if (varies(task, &convention[c]))
            attn_append(text, size, "%s\"%s\": \"%s\"", text[0] != '\0' ? ", " : "",
                        convention[c].key, convention[c].word[drawn(task, &convention[c])]);
}

static void print_json(const struct attn_task *task, FILE *out)
{
    const struct attn_lab *lab = task->lab;
    const struct attn_criterion *c;
    json_t *declare = json_object(), *criteria = json_array();
    for (int n = 0; n < CONVENTIONS; n++)
        if (varies(task, &convention[n]))
            json_object_set_new(declare, convention[n].key,
                                json_string(convention[n].word[drawn(task, &convention[n])]));
    for (int n = 0; (c = attn_lab_criterion(lab, n)) != NULL; n++)
        json_array_append_new(criteria, attn_cli_need(json_pack("{s:s,s:i}", "criterion", c->name,
                                                                "points", c->points)));
    json_t *all =
        attn_cli_need(json_pack("[{s:s,s:s,s:s,s:s,s:o,s:o}]", "lab", lab->name, "title",
                                lab->title, "claims", lab->form == ATTN_LAB_CODE ? lab->claims : "",
                                "seed", task->seed, "declare", declare, "criteria", criteria));
    attn_table_print(out, ATTN_TABLE_LINES, NULL, all);
    json_decref(all);
}

void attn_task_print(const struct attn_task *task, enum attn_sheet_format format, FILE *out)
{
    const struct attn_lab *lab = task->lab;
    if (format == ATTN_SHEET_JSON) {
        print_json(task, out);
        return;
    }
    fprintf(out, "lab %s: %s\npage: docs/labs/%s/README.md\n", lab->name, lab->title, lab->name);
    if (lab->form == ATTN_LAB_CODE)
        fprintf(out, "claims: %s\n", lab->claims);
    if (task->seed[0] != '\0')
        fprintf(out, "the task of %s:%s\n", task->seed,
                lab->form == ATTN_LAB_CODE ? "" : " what is asked is drawn by this name");
    for (int c = 0; c < CONVENTIONS; c++)
        if (varies(task, &convention[c])) {
            int d = drawn(task, &convention[c]);
            fprintf(out, "  %s; declare \"%s\": \"%s\"\n", convention[c].means[d],
                    convention[c].key, convention[c].word[d]);
        }
    fprintf(out, "\n%6s  what for\n", "points");
    for (int n = 0; attn_lab_criterion(lab, n) != NULL; n++)
        fprintf(out, "%6d  %s\n", attn_lab_criterion(lab, n)->points,
                attn_lab_criterion(lab, n)->name);
}

/* ---- a declaration --------------------------------------------------------------------------- */

/* The words of a declaration that make bounds wider, or leave out cases that the task has. */
static const char *shirks(const struct attn_task *task, const struct attn_claims *c)
{
    for (int n = 0; n < ATTN_CLAIMS_NUMBERS; n++) {
        double given;
        memcpy(&given, (const char *)c + attn_claims_number[n].at, sizeof given);
        if (given > 0)
            return attn_claims_number[n].key;
    }
    if (c->block > 0 && !task->allows_block)
        return "block";
    if (c->splits > 0)
        return "splits";
    if (c->ranks != task->claims.ranks)
        return "ranks";
    for (int e = 0; e < ATTN_EXTENTS; e++)
        if (c->shapes.of[e].n > 0 &&
            memcmp(&c->shapes.of[e], &task->claims.shapes.of[e], sizeof c->shapes.of[e]) != 0)
            return "shapes";
    return c->arithmetic > 0 ? "arithmetic"
           : c->subnormals   ? "subnormals"
           : c->declines     ? "declines"
                             : NULL;
}

int attn_task_differs(const struct attn_task *task, const struct attn_claims *c, char *text,
                      size_t size)
{
    const struct attn_claims *t = &task->claims;
    const struct {
        const char *key;
        int theirs, ours;
    } of[] = {{"lse", c->lse, t->lse},          {"empty_lse", c->empty_lse, t->empty_lse},
              {"causal", c->causal, t->causal}, {"window", c->window, t->window},
              {"layout", c->layout, t->layout}, {"mask_one", c->byte, t->byte}};
    const char *more = shirks(task, c);
    text[0] = '\0';
    if (more != NULL) {
        snprintf(text, size,
                 "it declares %s, and the task does not: bounds would be wider, or cases fewer",
                 more);
        return 2;
    }
    for (int bit = 0; bit < ATTN_CAPS; bit++)
        if (t->bits & ~c->bits & 1u << bit)
            attn_append(text, size, "%s%s is not claimed", text[0] != '\0' ? ", " : "",
                        attn_cap_name(bit));
    for (size_t n = 0; n < sizeof of / sizeof *of; n++)
        if (of[n].theirs != of[n].ours)
            attn_append(text, size, "%s%s is another than the task's", text[0] != '\0' ? ", " : "",
                        of[n].key);
    return text[0] != '\0';
}

void attn_grade_task(struct attn_grading *g, struct attn_outcome *o)
{
    char differs[400], words[200];
    task_words(g->task, words, sizeof words);
    o->asked = 1;
    snprintf(o->again, sizeof o->again, "%.200s check %s", attn_cli_program(), g->candidate.route);
    if (!attn_grade_any_passed(g, g->criterion->argument))
        attn_outcome_lose(o, "it is declared, and not one case passes");
    else if (attn_task_differs(g->task, &g->candidate.x.claims, differs, sizeof differs) == 0)
        o->passed = 1;
    else
        attn_outcome_lose(o, "%s; the task%s%s claims %s%s%s", differs,
                          g->task->seed[0] != '\0' ? " of " : "", g->task->seed,
                          g->task->lab->claims, words[0] != '\0' ? " and declares " : "", words);
}
