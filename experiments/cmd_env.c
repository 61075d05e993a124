/* attnlab env: facts about this machine and this build, as every file of records begins with. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "experiments/measure/machine.h"

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
    .more = "  attnlab env\n"
            "\n"
            "Exit status: 0 good, 2 usage.",
    .size = sizeof(int),
    .run = env};

static void print_text(const json_t *facts, const char *indent)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)facts, key, value)
    {
        if (json_is_object(value)) {
            printf("%s%s:%s\n", indent, key, json_object_size(value) == 0 ? " none" : "");
            print_text(value, "    ");
        } else if (json_is_string(value))
            printf("%s%-24s %s\n", indent, key, json_string_value(value));
        else if (json_is_integer(value))
            printf("%s%-24s %lld\n", indent, key, (long long)json_integer_value(value));
        else if (json_is_real(value))
            printf("%s%-24s %.9g\n", indent, key, json_real_value(value));
        else
            printf("%s%-24s %s\n", indent, key, json_is_true(value) ? "yes" : "no");
    }
}

static int env(void *values, int n, char **operand)
{
    const int *asked = values;
    (void)n;
    (void)operand;
    json_t *facts = attn_machine_facts();
    if (facts == NULL)
        return attn_cli_fail(ATTN_EXIT_LACKS, "no memory");
    if (*asked) {
        json_dumpf(facts, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
        putchar('\n');
    } else
        print_text(facts, "");
    json_decref(facts);
    return ATTN_EXIT_GOOD;
}
