/* attnlab compare: two files or folders of tensors, under the rules that the user names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/rim/files/file_problem.h"
#include "experiments/table/row_table.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/bound/rules.h"

enum { MOST_RULES = 16 };

struct task {
    const char *reference_path;
    struct attn_cli_list rules; /* as they were written */
    struct attn_rule_choice rule[MOST_RULES];
    int n_rules, bound, any_type; /* bound: asked for; it is not in rule[] */
    struct attn_request problem;
    struct attn_tensors got, want, reference;
    json_t *rows; /* of tensors, each under each rule */
};

/* ---- flags ---------------------------------------------------------------------------------- */

#define PROBLEM(member) offsetof(struct task, problem.member)

static const struct attn_flag_use uses[] = {
    ATTN_TAKES(RULE, offsetof(struct task, rules)),
    ATTN_TAKES(REFERENCE, offsetof(struct task, reference_path)),
    ATTN_TAKES(ONLY, PROBLEM(only)),
    ATTN_TAKES(ANY_TYPE, offsetof(struct task, any_type)),
    ATTN_TAKES(NAMES, PROBLEM(names)),
    {.flag = ATTN_FLAG_TITLE, .help = "For the rule `bound`, as for attnlab run:"},
    ATTN_TAKES(ARITHMETIC, PROBLEM(arithmetic)),
    ATTN_TAKES(CLAIMS, PROBLEM(claims), .kind = ATTN_KIND_TEXT, .help = ATTN_FILES_CLAIMS_HELP),
    ATTN_TAKES(ROWS, PROBLEM(rows)),
    ATTN_TAKES(MASK, PROBLEM(mask), .kind = ATTN_KIND_TEXT, .help = "such as 'causal(br)'"),
    ATTN_TAKES(SCALE, PROBLEM(scale)),
    ATTN_TAKES(SOFTCAP, PROBLEM(softcap)),
    ATTN_TAKES(ALIBI, PROBLEM(alibi)),
    ATTN_TAKES(ALIBI_ALIGN, PROBLEM(alibi_align)),
    ATTN_TAKES(LAYOUT, PROBLEM(layout)),
    ATTN_TAKES(HEADS, PROBLEM(heads), .kind = ATTN_KIND_TEXT, .help = "BLE: heads of q"),
    ATTN_TAKES(KV_HEADS, PROBLEM(kv_heads), .kind = ATTN_KIND_TEXT,
               .help = "BLE: heads of k and v"),
    {.flag = ATTN_FLAG_END}};

static int compare(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_compare = {
    .name = "compare",
    .summary = "two files or folders of tensors, under a rule that you name",
    .usage = "compare GOT WANT [--rule RULE]... [flags]",
    .about =
        "Compare tensors of the same name.  GOT and WANT are files (safetensors, .npy, .npz) or\n"
        "folders of such files; a .npy file holds the tensor that its name says.  q, k, v, do, "
        "dlse,\n"
        "bias, sink and key_mask need not be on both sides, everything else must.  The rules:\n"
        "\n"
        "  bound            attnlab's error bound for each element: q, k and v must be\n"
        "                   there, in WANT or in GOT, and both are judged by the oracle.\n"
        "                   This is the rule when none is named.  Results may be stored\n"
        "                   in any of F64, F32, BF16 and F16; a line says which\n"
        "                   arithmetic they fit, or where and why not\n"
        "  fa2              largest error at most twice that of a naive run (--reference)\n"
        "  'allclose(R,A)'  |got - want| <= A + R |want| for every element\n"
        "  numpy            allclose as numpy has it; also torch-f64, torch-f32,\n"
        "                   torch-f16, torch-bf16, flashinfer, cudnn\n"
        "  'nmse(5e-4)'     sum of squared errors over sum of squares\n"
        "  'cosine(0.999)'  cosine of the angle between the two\n"
        "  'ulp(4)'         distance counted in numbers of the storage type\n"
        "  exact            the same numbers",
    .flags = uses,
    .more =
        "Integers are compared exactly under any rule.  Values that are not finite are counted\n"
        "first and agree with the same infinity only.\n"
        "\n"
        "  attnlab compare mine.safetensors golden.safetensors\n"
        "  attnlab compare out/ want/ --rule torch-f32 --rule 'ulp(16)'",
    .exits =
        "0 all agree, 1 some disagree, 2 usage, a bad file, or tensors that cannot be compared.",
    .operands_least = 2,
    .operands_most = 2,
    .size = sizeof(struct task),
    .initial =
        &(const struct task){.problem = {.spec = ATTN_FILES_PLAIN, .pass = ATTN_PASS_NOT_SAID}},
    .run = compare};

static enum attn_status read_rules(struct task *t, struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    if (t->rules.n > MOST_RULES)
        return attn_fail(err, ATTN_EINVAL, "%d rules at most", MOST_RULES);
    for (int r = 0; r < t->rules.n && status == ATTN_OK; r++) {
        status = attn_rule_parse(t->rules.at[r].value, &t->rule[t->n_rules], err);
        if (status != ATTN_OK)
            break;
        if (t->rule[t->n_rules].rule->needs & ATTN_RULE_BOUND)
            t->bound = 1;
        else
            t->n_rules++;
    }
    return status;
}

/* ---- which tensors -------------------------------------------------------------------------- */

/* 1: a name is asked for; 0: it is not. */
static int is_wanted(const struct task *t, const char *name)
{
    return attn_cli_listed(t->problem.only, ",", name);
}

/* Every name of a that must be in b is there. */
static enum attn_status check_names(const struct task *t, const struct attn_tensors *a,
                                    const struct attn_tensors *b, struct attn_error *err)
{
    for (int i = 0; i < a->n; i++) {
        const char *name = a->entry[i].name;
        if (is_wanted(t, name) && attn_tensors_find(b, name) == NULL &&
            !(t->problem.only == NULL && attn_file_input_named(name) >= 0))
            return attn_fault(err, ATTN_EINVAL, b->path, "has no tensor '%.40s'; %.200s has", name,
                              a->path);
    }
    return ATTN_OK;
}

/* Every name of --only is somewhere. */
static enum attn_status check_only(const struct task *t, struct attn_error *err)
{
    if (t->problem.only == NULL)
        return ATTN_OK;
    char *copy = attn_cli_text("%s", t->problem.only), *rest = copy, *name;
    enum attn_status status = ATTN_OK;
    while (status == ATTN_OK && (name = strsep(&rest, ",")) != NULL)
        if (attn_tensors_find(&t->want, name) == NULL)
            status =
                attn_fault(err, ATTN_EINVAL, t->want.path, "has no tensor '%.40s' (--only)", name);
    free(copy);
    return status;
}

/* The partner of a tensor of WANT; two files of one tensor each need no names. */
static struct attn_tensors_entry *partner(const struct attn_tensors *set,
                                          const struct attn_tensors *want, int index)
{
    if (set->n == 1 && want->n == 1)
        return &set->entry[0];
    return attn_tensors_find(set, want->entry[index].name);
}

static int is_compared(const struct task *t, int index)
{
    return is_wanted(t, t->want.entry[index].name) && partner(&t->got, &t->want, index) != NULL;
}

static int is_floating(const struct attn_file_tensor *t)
{
    enum attn_dtype storage;
    return attn_file_dtype_storage(t->dtype, &storage);
}

static enum attn_status check_pair(const struct task *t, const struct attn_tensors_entry *got,
                                   const struct attn_tensors_entry *want, struct attn_error *err)
{
    const struct attn_file_tensor *a = got->tensor, *b = want->tensor;
    char shape[2][160];
    if (!attn_file_same_shape(a, b))
        return attn_fault(err, ATTN_EINVAL, got->file->path, "'%.40s' is %s; in %.160s it is %s",
                          got->name, attn_file_shape(a, shape[0]), want->file->path,
                          attn_file_shape(b, shape[1]));
    int are_floating = is_floating(a) && is_floating(b);
    if (a->dtype != b->dtype && !(t->any_type && are_floating))
        return attn_fault(err, ATTN_EINVAL, got->file->path,
                          "'%.40s' is stored as %s; in %.160s as %s%s", got->name,
                          attn_file_dtype_name(a->dtype), want->file->path,
                          attn_file_dtype_name(b->dtype),
                          are_floating ? " (--any-type compares the values)" : "");
    return ATTN_OK;
}

/* A tensor of WANT against its partners, which are in GOT and, where there is one, in the naive
 * run. */
static enum attn_status check_one(const struct task *t, int index, struct attn_error *err)
{
    const struct attn_tensors_entry *want = &t->want.entry[index];
    const struct attn_tensors_entry *naive = partner(&t->reference, &t->want, index);
    enum attn_status status = check_pair(t, partner(&t->got, &t->want, index), want, err);
    if (status != ATTN_OK || t->reference_path == NULL)
        return status;
    if (naive != NULL)
        return check_pair(t, naive, want, err);
    return is_floating(want->tensor) ? attn_fault(err, ATTN_EINVAL, t->reference_path,
                                                  "has no tensor '%.40s'", want->name)
                                     : ATTN_OK;
}

/* All questions about names, shapes and types, before any number is read. */
static enum attn_status check_all(const struct task *t, struct attn_error *err)
{
    int pairs = 0, are_named = t->got.n != 1 || t->want.n != 1;
    enum attn_status status = are_named ? check_only(t, err) : ATTN_OK;
    if (are_named && status == ATTN_OK)
        status = check_names(t, &t->want, &t->got, err);
    if (are_named && status == ATTN_OK)
        status = check_names(t, &t->got, &t->want, err);
    for (int i = 0; i < t->want.n && status == ATTN_OK; i++)
        if (is_compared(t, i)) {
            status = check_one(t, i, err);
            pairs++;
        }
    if (status == ATTN_OK && pairs == 0)
        return attn_fault(err, ATTN_EINVAL, t->got.path, "has no tensor in common with %.200s",
                          t->want.path);
    return status;
}

/* ---- judging -------------------------------------------------------------------------------- */

static const char *index_text(const struct attn_file_tensor *t, int64_t at, char text[160])
{
    struct attn_file_tensor index = *t; /* an index prints as a shape does */
    for (int a = t->n_axes - 1; a >= 0; a--) {
        index.extent[a] = at % t->extent[a];
        at /= t->extent[a];
    }
    return attn_file_shape(&index, text);
}

static void add_result(const struct task *t, const struct attn_tensors_entry *want,
                       const char *rule, const struct attn_rule_data *x,
                       const struct attn_rule_result *r)
{
    char at[160];
    json_t *row = json_pack("{s:o,s:s,s:{s:s},s:o,s:o,s:I}", "tensor", attn_cli_words(want->name),
                            "rule", rule, "is", r->ok ? "good" : "bad",
                            r->ok ? "agrees" : "DIFFERS", "figure", json_sprintf("%.4g", r->figure),
                            "limit", json_sprintf("%.4g", r->limit), "elements", (json_int_t)x->n);
    if (r->worst >= 0) {
        json_object_set_new(row, "at", json_string(index_text(want->tensor, r->worst, at)));
        json_object_set_new(row, "got", json_sprintf("%.9g", x->got[r->worst]));
        json_object_set_new(row, "want", json_sprintf("%.9g", x->want[r->worst]));
    }
    if (r->n_not_finite > 0)
        json_object_set_new(row, "not_finite", json_integer(r->n_not_finite));
    if (!r->ok && r->n_bad > r->n_not_finite)
        json_object_set_new(row, "beyond", json_integer(r->n_bad - r->n_not_finite));
    json_array_append_new(t->rows, row);
}

/* Integers: as bytes, under any rule (BOOL: as written). */
static int judge_integers(const struct task *t, const struct attn_tensors_entry *want,
                          const void *got, const struct attn_rule_data *x)
{
    int64_t size = attn_file_dtype_size(want->tensor->dtype), worst = -1, bad = 0;
    for (int64_t n = 0; n < x->n; n++)
        if (memcmp((const char *)got + n * size, (const char *)want->tensor->data + n * size,
                   (size_t)size) != 0) {
            worst = worst < 0 ? n : worst;
            bad++;
        }
    const struct attn_rule_result r = {
        .figure = (double)bad, .n_bad = bad, .worst = worst, .ok = bad == 0};
    add_result(t, want, "exact (integers)", x, &r);
    return bad > 0;
}

/* Returns how many rules disagree. */
static int judge_values(const struct task *t, const struct attn_tensors_entry *got,
                        const struct attn_tensors_entry *want, struct attn_rule_data *x)
{
    int bad = 0;
    char rule[96];
    if (!attn_file_dtype_storage(got->tensor->dtype, &x->dtype))
        return judge_integers(t, want, got->tensor->data, x);
    for (int i = 0; i < t->n_rules; i++) {
        struct attn_rule_result r;
        attn_rule_judge(&t->rule[i], x, &r);
        add_result(t, want, attn_rule_print(&t->rule[i], rule, sizeof rule), x, &r);
        bad += !r.ok;
    }
    return bad;
}

static enum attn_status judge_pair(const struct task *t, int index, struct attn_found *found,
                                   struct attn_error *err)
{
    const struct attn_tensors_entry *want = &t->want.entry[index];
    const struct attn_tensors_entry *got = partner(&t->got, &t->want, index);
    const struct attn_tensors_entry *naive =
        t->reference_path != NULL ? partner(&t->reference, &t->want, index) : NULL;
    double *a = NULL, *b = NULL, *c = NULL;
    enum attn_status status = attn_tensors_values(got, &a, err);
    if (status == ATTN_OK)
        status = attn_tensors_values(want, &b, err);
    if (status == ATTN_OK && naive != NULL)
        status = attn_tensors_values(naive, &c, err);
    struct attn_rule_data data = {attn_tensors_count(want->tensor), a, b, c, NULL, ATTN_F64};
    if (status == ATTN_OK)
        found->n_bad += judge_values(t, got, want, &data);
    free(a);
    free(b);
    free(c);
    return status;
}

static enum attn_status compare_values(const struct task *t, struct attn_found *found,
                                       struct attn_error *err)
{
    static const struct attn_column column[] = {{"tensor", "tensor", ATTN_UNIT_WORDS},
                                                {"rule", "rule", ATTN_UNIT_WORDS},
                                                {"is", "", ATTN_UNIT_WORDS},
                                                {"figure", "figure", ATTN_UNIT_PLAIN},
                                                {"limit", "limit", ATTN_UNIT_PLAIN},
                                                {"elements", "elements", ATTN_UNIT_PLAIN},
                                                {"not_finite", "not finite", ATTN_UNIT_PLAIN},
                                                {"beyond", "beyond", ATTN_UNIT_PLAIN},
                                                {"at", "worst element", ATTN_UNIT_WORDS},
                                                {"got", "got", ATTN_UNIT_PLAIN},
                                                {"want", "want", ATTN_UNIT_PLAIN},
                                                {.key = NULL}};
    enum attn_status status = t->n_rules > 0 ? check_all(t, err) : ATTN_OK;
    if (status != ATTN_OK || t->n_rules == 0)
        return status;
    for (int i = 0; i < t->want.n && status == ATTN_OK; i++)
        if (is_compared(t, i))
            status = judge_pair(t, i, found, err);
    attn_table_print(stdout, ATTN_TABLE_TEXT, column, t->rows);
    return status;
}

/* Under the rule `bound`: the inputs are WANT's, or GOT's. */
static enum attn_status compare_bound(const struct task *t, struct attn_found *found,
                                      struct attn_error *err)
{
    int by_want = attn_tensors_have_inputs(&t->want);
    return t->bound ? attn_compare_bound(&t->problem, by_want ? &t->want : &t->got,
                                         by_want ? &t->got : &t->want, found, err)
                    : ATTN_OK;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Rules against what was given with them. */
static enum attn_status check_rules(struct task *t, struct attn_error *err)
{
    t->bound |= t->n_rules == 0;
    if (t->bound && !attn_tensors_have_inputs(&t->want) && !attn_tensors_have_inputs(&t->got))
        return attn_fail(
            err, ATTN_EINVAL,
            "no q, k and v beside the results, so no bound can be derived: name a rule that needs "
            "no inputs, such as --rule torch-f32 (attnlab compare --help)");
    for (int i = 0; i < t->n_rules; i++)
        if ((t->rule[i].rule->needs & ATTN_RULE_REFERENCE) && t->reference_path == NULL)
            return attn_fail(err, ATTN_EINVAL,
                             "rule %s allows a multiple of a naive run's error: give that run, in "
                             "the precision of GOT, by --reference FILE",
                             t->rule[i].rule->name);
    return ATTN_OK;
}

static enum attn_status open_all(struct task *t, char **operand, struct attn_error *err)
{
    struct attn_tensors *const set[3] = {&t->got, &t->want, &t->reference};
    enum attn_status status = read_rules(t, err);
    if (status == ATTN_OK)
        status = attn_tensors_open(operand[0], &t->got, err);
    if (status == ATTN_OK)
        status = attn_tensors_open(operand[1], &t->want, err);
    if (status == ATTN_OK && t->reference_path != NULL)
        status = attn_tensors_open(t->reference_path, &t->reference, err);
    if (status == ATTN_OK)
        status = attn_files_rename(t->problem.names, set, 3, err);
    return status == ATTN_OK ? check_rules(t, err) : status;
}

static int compare(void *values, int n, char **operand)
{
    struct task *t = values;
    struct attn_found found = {0};
    struct attn_error err;
    (void)n;
    t->rows = json_array();
    enum attn_status status = open_all(t, operand, &err);
    if (status == ATTN_OK)
        status = compare_values(t, &found, &err);
    if (status == ATTN_OK)
        status = compare_bound(t, &found, &err);
    attn_tensors_close(&t->got);
    attn_tensors_close(&t->want);
    attn_tensors_close(&t->reference);
    json_decref(t->rows);
    return status == ATTN_OK ? attn_found_exit(&found) : attn_cli_error(&err);
}
