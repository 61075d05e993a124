/* attnlab env: facts about this machine and this build, as every file of records begins with. */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli.h"
#include "experiments/measure/machine.h"

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
    static const struct option longs[] = {
        {"format", required_argument, NULL, 'f'}, {"help", no_argument, NULL, 'h'}, {0}};
    int as_json = 0;
    if (attn_cli_options("env", argc, argv, longs, NULL) != ATTN_EXIT_GOOD)
        return ATTN_EXIT_USAGE;
    for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        if (o == 'h')
            return attn_cli_help(help);
        as_json = strcmp(optarg, "json") == 0;
        if (!as_json && strcmp(optarg, "text") != 0)
            return attn_cli_fail("env", ATTN_EXIT_USAGE, "--format '%s': text and json exist",
                                 optarg);
    }
    if (optind < argc)
        return attn_cli_fail("env", ATTN_EXIT_USAGE,
                             "unknown argument '%s'; see attnlab env --help", argv[optind]);
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
