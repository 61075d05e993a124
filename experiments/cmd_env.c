/* attnlab env: facts about this machine and this build, as every file of records begins with. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli.h"
#include "experiments/machine.h"

static const char help[] =
    "usage: attnlab env [--format=text|json]\n"
    "\n"
    "Facts about this machine and this build: the ones that a measurement records.\n"
    "What cannot be found out reads \"not available\".\n";

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

int attn_cmd_env(int argc, char **argv)
{
    int as_json = 0;
    for (int a = 1; a < argc; a++) {
        if (strcmp(argv[a], "--help") == 0 || strcmp(argv[a], "-h") == 0)
            return attn_cli_help(help);
        if (strcmp(argv[a], "--format=json") == 0)
            as_json = 1;
        else if (strcmp(argv[a], "--format=text") == 0)
            as_json = 0;
        else
            return attn_cli_fail("env", ATTN_EXIT_USAGE,
                                 "unknown argument '%s'; see attnlab env --help", argv[a]);
    }
    json_t *facts = attn_machine_facts();
    if (facts == NULL)
        return attn_cli_fail("env", ATTN_EXIT_LACKS, "no memory");
    if (as_json) {
        json_dumpf(facts, stdout, JSON_INDENT(2));
        putchar('\n');
    } else
        print_text(facts, "");
    json_decref(facts);
    return attn_cli_flush("env");
}
