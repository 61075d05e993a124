/* attnlab grade: every lab's solution has all points, its skeleton none, and a mistake loses those
 * of its criteria and has its name said. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/rim/grade/grading.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(labs, .open = scratch_open, .close = scratch_close);

/* ---- mistakes.def ---------------------------------------------------------------------------- */

enum { LOST = 12, QUICK_LABS = 2, QUICK_MISTAKES = 1 };

struct mistake {
    char id[16], lab[32], lost[LOST][64], says[120];
    int n, nth; /* criteria lost; which one of its lab */
};

static int is_full(void)
{
    return getenv("ATTN_FULL") != NULL;
}

/* The next one, or 0. */
static int read_mistake(FILE *file, struct mistake *m)
{
    char line[400];
    long at = ftell(file);
    int begun = 0;
    for (; fgets(line, sizeof line, file) != NULL; at = ftell(file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "LA-", 3) == 0 && begun++) {
            fseek(file, at, SEEK_SET);
            return 1;
        }
        if (strncmp(line, "LA-", 3) == 0) {
            char before[32];
            snprintf(before, sizeof before, "%s", m->lab);
            sscanf(line, "%15s %31s", m->id, m->lab);
            m->nth = strcmp(before, m->lab) == 0 ? m->nth + 1 : 0;
            m->n = 0;
        } else if (strncmp(line, "  ! ", 4) == 0 && m->n < LOST)
            snprintf(m->lost[m->n++], sizeof *m->lost, "%.60s", line + 4);
        else if (strncmp(line, "  ? ", 4) == 0)
            snprintf(m->says, sizeof m->says, "%.110s", line + 4);
    }
    return begun;
}

/* Number n of those that are tried; how many there are. */
static int find_mistake(int n, struct mistake *found)
{
    struct mistake m = {.n = 0};
    int tried = 0;
    FILE *file = fopen("experiments/rim/grade/labs/mistakes.def", "r");
    while (file != NULL && read_mistake(file, &m)) {
        int is_quick = atoi(m.lab) <= QUICK_LABS && m.nth < QUICK_MISTAKES;
        if ((is_quick || is_full()) && tried++ == n)
            *found = m;
    }
    if (file != NULL)
        fclose(file);
    return tried;
}

static int count_mistakes(void)
{
    struct mistake m;
    return find_mistake(-1, &m);
}

/* ---- grading --------------------------------------------------------------------------------- */

/* The sheet of `attnlab grade ARGS --format json`. */
static json_t *grade(const char *format, ...) __attribute__((format(printf, 1, 2)));
static json_t *grade(const char *format, ...)
{
    char args[2000];
    va_list list;
    va_start(list, format);
    vsnprintf(args, sizeof args, format, list);
    va_end(list);
    int status = scratch_attnlab("grade %s --format json", args);
    json_t *sheet = json_loads(scratch_output, 0, NULL);
    ck_assert_msg(status <= 1 && sheet != NULL, "grade %s: status %d: %s", args, status,
                  scratch_output);
    return sheet;
}

static int number(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "";
}

static void has_points(const json_t *sheet, int points)
{
    ck_assert_msg(number(sheet, "total") == points, "%s has %d points and should have %d: %s",
                  text(sheet, "name"), number(sheet, "total"), points, scratch_output);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* A page says how many points each criterion has, and its table is that of labs.def: a row for each
 * that has points, in its order.  A lab without a page, or a page whose points moved, fails. */
TEST_EACH(page_has_the_table, attn_lab_count())
{
    const struct attn_lab *lab = attn_lab_at(_i);
    const struct attn_criterion *c;
    char path[200], row[200];
    int sum = 0;
    snprintf(path, sizeof path, "docs/labs/%s/README.md", lab->name);
    char *page = scratch_read(path), *at = page;
    for (int n = 0; (c = attn_lab_criterion(lab, n)) != NULL; n++) {
        ck_assert_int_lt(n, ATTN_CRITERIA);
        sum += c->points;
        if (strcmp(c->kind, "cases") == 0)
            ck_assert_msg(attn_selection_check(c->argument, NULL) == ATTN_OK, "%s", c->argument);
        if (c->points == 0)
            continue;
        snprintf(row, sizeof row, "\n| %s | %d |\n", c->name, c->points);
        char *found = strstr(at, row);
        ck_assert_msg(found != NULL, "%s has no row in its place:%s", path, row);
        at = found + strlen(row) - 1;
    }
    ck_assert_int_eq(sum, 100);
    ck_assert_msg(strncmp(at, "\n| ", 3) != 0, "%s has a row too many: %.80s", path, at);
    free(page);
}

/* Of a case both of these would ask for, the first criterion has it; `!` and lists of words. */
TEST(selections)
{
    struct attn_asked asked = {.name = "tile-1"};
    struct attn_error err = {0};
    ck_assert_int_eq(attn_case_parse("h2q5k7d4:causal(br):f32:stairs-up:s1", &asked.c, &err), 0);
    static const struct {
        const char *selection;
        int has;
    } row[] = {{"*", 1},
               {"causal cross", 1},
               {"causal !cross", 0},
               {"gqa", 0},
               {"fill=spike,stairs", 1},
               {"!fill=stairs", 0},
               {"keys=7", 1},
               {"keys=8", 0},
               {"mask=window,br name=tile-", 1},
               {"name=til,xx mask=tl", 0}};
    for (int n = 0; n < COUNT(row); n++)
        ck_assert_msg(attn_selection_has(row[n].selection, &asked,
                                         ATTN_CAP_CAUSAL | ATTN_CAP_CROSS) == row[n].has,
                      "%s", row[n].selection);
    ck_assert_int_eq(attn_selection_check("causal nonsense", &err), ATTN_EINVAL);
}

/* ---- solutions, skeletons, mistakes ---------------------------------------------------------- */

static int n_labs(void)
{
    return is_full() ? attn_lab_count() : QUICK_LABS;
}

/* Lab 01, whose solution and skeleton other tests grade, is not among the few. */
static const struct attn_lab *lab_of(int n)
{
    static const int quick[QUICK_LABS] = {1, 6};
    return attn_lab_at(is_full() ? n : quick[n]);
}

/* The solution has all points, and under another student's task it loses the declaration and
 * nothing else; built for that task it has them again.  The skeleton has none. */
TEST_EACH(solution_and_skeleton, n_labs())
{
    const struct attn_lab *lab = lab_of(_i);
    json_t *sheet = grade("%s '%s/labs/%s/solution.so'", lab->name, test_build(), lab->name);
    has_points(sheet, 100);
    json_decref(sheet);
    sheet = grade("%s '%s/labs/%s/skeleton.so'", lab->name, test_build(), lab->name);
    has_points(sheet, 0);
    json_decref(sheet);
}

/* In Python too; and a task of a seed is another one. */
TEST_EACH(in_python, is_full() ? attn_lab_count() : 0)
{
    const struct attn_lab *lab = attn_lab_at(_i);
    char path[200], claims[200] = "";
    snprintf(path, sizeof path, "experiments/rim/grade/labs/%s/solution.py", lab->name);
    if (lab->form == ATTN_LAB_CODE)
        snprintf(claims, sizeof claims, "--claims docs/labs/%s/lab.json", lab->name);
    FILE *there = fopen(path, "r");
    if (there == NULL || !fixture_python("numpy"))
        return;
    fclose(there);
    json_t *sheet = grade("%s --exec '/usr/bin/python3 %s' %s", lab->name, path, claims);
    has_points(sheet, 100);
    json_decref(sheet);
    sheet =
        grade("%s --exec '/usr/bin/python3 docs/labs/%s/lab.py' %s", lab->name, lab->name, claims);
    has_points(sheet, 0);
    json_decref(sheet);
}

TEST(task_of_a_seed)
{
    scratch_expect(3, "No space left", "grade 02 --seed a >/dev/full");
    char *so = strdup(scratch_path("own.so"));
    scratch_expect(0, "declare \"lse\": \"2\"", "grade 01 --seed hal");
    scratch_has("declare \"layout\": \"sbhd\"");
    json_t *sheet = grade("01 '%s/labs/01-softmax/solution.so' --seed hal", test_build());
    has_points(sheet, 95);
    json_decref(sheet);
    scratch_shell(0, "",
                  "cc -O1 -w -shared -fPIC -I. -DTASK_LSE=ATTN_PLUGIN_LSE_2 "
                  "-DTASK_LAYOUT=ATTN_PLUGIN_SBHD -o '%s' "
                  "experiments/rim/grade/labs/01-softmax/solution.c -lm",
                  so);
    sheet = grade("01 '%s' --seed hal", so);
    has_points(sheet, 100);
    json_decref(sheet);
    free(so);
}

/* These criteria are lost, no others, and one of them says what the mistake is. */
TEST_EACH(mistake, count_mistakes())
{
    struct mistake m;
    int lost = 0, named = 0;
    size_t n;
    const json_t *c;
    find_mistake(_i, &m);
    json_t *sheet = grade("%s '%s/labs/%s.so'", m.lab, test_build(), m.id);
    json_array_foreach(json_object_get(sheet, "criteria"), n, c)
    {
        int expected = 0;
        for (int l = 0; l < m.n; l++)
            expected |= strcmp(m.lost[l], text(c, "criterion")) == 0;
        int has = number(c, "earned") == number(c, "points");
        ck_assert_msg(has == !expected, "%s: criterion '%s' is %s", m.id, text(c, "criterion"),
                      has ? "not lost" : "lost");
        lost += expected;
        named |= strstr(text(c, "likely"), m.says) != NULL || strstr(text(c, "first"), m.says);
        ck_assert_msg(has || (text(c, "again")[0] != '\0' && text(c, "read")[0] != '\0'),
                      "%s: '%s'", m.id, text(c, "criterion"));
    }
    ck_assert_msg(lost == m.n && lost > 0, "%s names a criterion that there is not", m.id);
    ck_assert_msg(named, "%s: the sheet does not say '%s': %s", m.id, m.says, scratch_output);
    json_decref(sheet);
}

/* ---- a class --------------------------------------------------------------------------------- */

/* The act of each, and its points: -1 is some points, neither 0 nor 100. */
static const struct {
    const char *name, *words;
    int points;
    const char *why;
} student[] = {
    {"cid", "CHANGE", 0, "an input, was written to"},
    {"dan", "SCRIBBLE", 0, "victim.so, which is not its own"},
    {"eve", "QUIT_START", 0, "it left with exit(0) while it was loaded"},
    {"gus", "KILL_PARENT", 0, "it ended the process that had started it"},
    {"hal", "DAEMON", 0, "left processes behind"},
    {"ian", "KILLED FROM=64", -1, ""},
    {"victim", "HONEST", 100, ""},
};

/* A class of one. */
static const char *one_of(const char *words)
{
    scratch_shell(0, "", "mkdir -p '%s'", scratch_path("one"));
    fixture_plugin("one/ann.so", "bad", "%s", words);
    return scratch_path("one");
}

/* Seven in one run: an attack costs its author everything, is reported, and changes no other
 * points: not those of the student whose file is overwritten, who stands last. */
TEST(class_of_seven)
{
    char folder[400], line[1000];
    snprintf(folder, sizeof folder, "%s", scratch_path("class"));
    scratch_shell(0, "", "mkdir '%s'", folder);
    for (int n = 0; n < COUNT(student); n++) {
        snprintf(line, sizeof line, "class/%s.so", student[n].name);
        fixture_plugin(line, "bad", "%s BAD_VICTIM=%s/victim.so BAD_DAEMON=%s.daemon",
                       student[n].words, folder, folder);
    }
    ck_assert_int_eq(scratch_attnlab("grade 01 '%s' --format json", folder), 0);
    char *at = scratch_output;
    for (int n = 0; n < COUNT(student); n++) {
        at = strchr(at, '{'); /* notes stand before it, if there are any */
        ck_assert_ptr_nonnull(at);
        json_t *sheet = json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
        ck_assert_str_eq(text(sheet, "name"), student[n].name);
        int total = number(sheet, "total"), some = total > 0 && total < 100;
        ck_assert_msg(student[n].points < 0 ? some : total == student[n].points, "%s has %d: %s",
                      student[n].name, total, text(sheet, "worth_nothing"));
        ck_assert_msg(strstr(text(sheet, "worth_nothing"), student[n].why) != NULL, "%s: '%s'",
                      student[n].name, text(sheet, "worth_nothing"));
        json_decref(sheet);
        at = strchr(at, '\n');
    }
}

/* Code that replaces the judge on the disk has nothing, and the next grade is warned. */
TEST(patched_judge)
{
    char *judge = strdup(scratch_path("judge"));
    const char *built = test_build();
    scratch_shell(0, "", "cp '%s/attnlab' '%s'", built, judge);
    one_of("HONEST");
    fixture_plugin("one/ann.so", "bad", "REMOVE BAD_VICTIM=%s", judge);
    scratch_shell(1, "attnlab was changed while it graded", "'%s' grade 01 '%s'", judge,
                  scratch_path("one/ann.so"));
    free(judge);
}

/* In CSV a submission is a line, with its total and why points are lost; and a key of the lecturer
 * draws the numbers that are asked, so that a table of answers to the battery's has
 * none of them. */
TEST(csv_of_hidden_cases)
{
    scratch_expect(0, "01-softmax,ann,100,100,5,30,10,10,10,10,15,10,\n",
                   "grade 01 '%s' --seed :a --format csv", one_of("HONEST"));
    scratch_expect(0, ",CRASH: Segmentation fault", "grade 01 '%s' --seed :a --format csv",
                   one_of("CRASH FROM=1"));
    json_t *sheet = grade("01 '%s/labs/01-softmax/skeleton.so'", test_build());
    json_t *hidden = grade("01 '%s/labs/01-softmax/skeleton.so' --seed :a", test_build());
    has_points(sheet, 0);
    size_t n;
    const json_t *c;
    json_array_foreach(json_object_get(sheet, "criteria"), n, c)
    {
        const json_t *other = json_array_get(json_object_get(hidden, "criteria"), n);
        ck_assert_int_eq(number(c, "asked"), number(other, "asked"));
        if (number(c, "asked") > 1)
            ck_assert_str_ne(text(c, "first"), text(other, "first"));
    }
    json_decref(sheet);
    json_decref(hidden);
}

/* A command writes to its cases: forged inputs, or results where the grader does not look for
 * them. */
TEST(command_that_changes_cases)
{
    static const char forge[] =
        "#!/bin/sh\nfor x in \"$1\"/*/; do cp \"$x/inputs.safetensors\" \"$x/result.safetensors\"; "
        "done\n";
    scratch_put("forge.sh", forge, sizeof forge - 1);
    json_t *sheet =
        grade("01 --exec 'sh %s' --claims docs/labs/01-softmax/lab.json", scratch_path("forge.sh"));
    has_points(sheet, 0);
    ck_assert_msg(strstr(text(sheet, "worth_nothing"), "not in its folder of results") != NULL,
                  "%s", text(sheet, "worth_nothing"));
    json_decref(sheet);
}

/* A declaration that widens the bounds buys nothing. */
TEST(wide_declaration)
{
    static const char wide[] = "{\"name\": \"wide\", \"claims\": [\"f32\", \"cross\", \"dv\", "
                               "\"scale\"], \"u\": 0.01}";
    scratch_put("wide.json", wide, sizeof wide - 1);
    json_t *sheet = grade("01 --exec true --claims '%s'", scratch_path("wide.json"));
    has_points(sheet, 0);
    ck_assert_msg(strstr(text(sheet, "worth_nothing"), "declares u") != NULL, "%s",
                  text(sheet, "worth_nothing"));
    json_decref(sheet);
}

/* A number of bytes below all others is no answer: its distance from the price has no number. */
TEST(answer_below_zero)
{
    json_t *sheet = grade("07 --exec 'yes -- -9223372036854775808 | head -50'");
    has_points(sheet, 0);
    ck_assert_msg(strstr(scratch_output, "0 of 8 problems were answered: a price below 0") != NULL,
                  "%.900s", scratch_output);
    json_decref(sheet);
}
