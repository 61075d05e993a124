/* attnlab env: facts about this machine and this build, as every file of records begins with. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/measure/machine.h"
#include "experiments/table/row_table.h"

static const struct attn_flag_use flags[] = {ATTN_TAKES(FORMAT, 0, "text"),
                                             {.flag = ATTN_FLAG_END}};

static int env(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_env = {
    .name = "env",
    .summary = "facts about this machine and this build",
    .usage = "env [--format text|json]",
    .about = "Facts about this machine and this build: the ones that a measurement records.\n"
             "A fact that cannot be found out reads \"not available\".",
    .flags = flags,
    .more = "  attnlab env",
    .exits = "0 good, 2 usage.",
    .size = sizeof(int),
    .run = env};

/* The facts in an object of facts have its name before their own. */
static void add_rows(json_t *rows, const char *of, json_t *facts)
{
    const char *key;
    json_t *value;
    json_object_foreach(facts, key, value)
    {
        json_t *name = json_sprintf("%s%s%s", of, of[0] != '\0' ? ": " : "", key);
        if (json_is_object(value))
            add_rows(rows, key, value);
        else
            json_array_append_new(rows, json_pack("{s:O, s:O}", "fact", name, "value", value));
        json_decref(name);
    }
}

static int env(void *values, int n, char **operand)
{
    static const struct attn_column column[] = {
        {"fact", "", ATTN_UNIT_WORDS}, {"value", "", ATTN_UNIT_WORDS}, {.key = NULL}};
    const int *asked = values;
    (void)n;
    (void)operand;
    json_t *facts = attn_machine_facts(), *rows = json_array();
    if (facts == NULL)
        return attn_cli_fail(ATTN_EXIT_LACKS, "no memory");
    add_rows(rows, "", facts);
    attn_table_print(stdout, *asked ? ATTN_TABLE_JSON : ATTN_TABLE_TEXT, column,
                     *asked ? facts : rows);
    json_decref(rows);
    json_decref(facts);
    return ATTN_EXIT_GOOD;
}
