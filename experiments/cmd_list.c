/* attnlab list: what there is.  Documentation tables are made from its md format. */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli.h"
#include "optimized/registry.h"
#include "ref/mask.h"
#include "tests/harness/bugs.h"
#include "tests/harness/cases.h"

static const char help[] =
    "attnlab list [implementations|cases|fills|bugs|masks] [--format text|md|json]\n\n"
    "What there is: implementations with what they claim and their options (default), the cases\n"
    "of the quick battery with their reasons, the named data fills, the catalogue of real bugs "
    "with\n"
    "what covers each, the calls of the mask language.\n";

enum format { TEXT, MD, JSON };

static void join_caps(unsigned caps, const char *between, char *text, size_t size)
{
    text[0] = '\0';
    for (int bit = 0; bit < ATTN_CAPS; bit++)
        if (caps & 1u << bit)
            snprintf(text + strlen(text), size - strlen(text), "%s%s", text[0] ? between : "",
                     attn_cap_name((enum attn_cap)(1u << bit)));
}

static void print_option(const struct attn_option *o, enum format format)
{
    const char *lead = format == MD ? "<br>" : "\n      ";
    if (o->choices == NULL)
        printf("%s%s=%lld (%lld to %lld): %s", lead, o->name, (long long)o->preset,
               (long long)o->min, (long long)o->max, o->help);
    else if (o->choices[0] == '@')
        printf("%s%s=%s: %s", lead, o->name, o->choices + 1, o->help);
    else
        printf("%s%s=%s: %s", lead, o->name, o->choices, o->help);
}

static json_t *impl_json(const struct attn_impl *impl)
{
    json_t *caps = json_array(), *options = json_array();
    for (int bit = 0; bit < ATTN_CAPS; bit++)
        if (impl->caps & 1u << bit)
            json_array_append_new(caps, json_string(attn_cap_name((enum attn_cap)(1u << bit))));
    for (const struct attn_option *o = impl->options; o != NULL && o->name != NULL; o++)
        json_array_append_new(options, json_pack("{s:s,s:s}", "name", o->name, "help", o->help));
    return json_pack("{s:s,s:s,s:s,s:o,s:o}", "name", impl->name, "family", impl->family, "summary",
                     impl->summary, "claims", caps, "options", options);
}

static void list_implementations(enum format format, json_t *all)
{
    char caps[300];
    if (format == MD)
        puts("| name | family | what it is | claims | options |\n| --- | --- | --- | --- | --- |");
    for (int i = 0; i < attn_impl_count(); i++) {
        const struct attn_impl *impl = attn_impl_at(i);
        join_caps(impl->caps, " ", caps, sizeof caps);
        if (format == JSON)
            json_array_append_new(all, impl_json(impl));
        else if (format == MD)
            printf("| `%s` | %s | %s | %s | ", impl->name, impl->family, impl->summary, caps);
        else
            printf("%s  (%s)\n      %s\n      claims: %s", impl->name, impl->family, impl->summary,
                   caps);
        for (const struct attn_option *o = impl->options; format != JSON && o != NULL && o->name;
             o++)
            print_option(o, format);
        if (format != JSON)
            puts(format == MD ? " |" : "");
    }
}

/* Rows of words; in Markdown the pipes of masks must be escaped. */
static void print_row(enum format format, json_t *all, int n, const char *const head[],
                      const char *const cell[])
{
    if (format == JSON) {
        json_t *row = json_object();
        for (int i = 0; i < n; i++)
            json_object_set_new(row, head[i], json_string(cell[i]));
        json_array_append_new(all, row);
        return;
    }
    for (int i = 0; i < n; i++) {
        if (format == TEXT) {
            printf(i == 0 ? "%-26s " : i < n - 1 ? "%s\n    " : "%s", cell[i]);
            continue;
        }
        fputs(i == 0 ? "| " : " | ", stdout);
        for (const char *c = cell[i]; *c != '\0'; c++)
            fputs(*c == '|' ? "\\|" : (char[]){*c, '\0'}, stdout);
    }
    puts(format == MD ? " |" : "");
}

static void print_head(enum format format, int n, const char *const head[])
{
    if (format != MD)
        return;
    for (int i = 0; i < n; i++)
        printf("| %s ", head[i]);
    puts("|");
    for (int i = 0; i < n; i++)
        printf("| --- ");
    puts("|");
}

static void list_cases(enum format format, json_t *all)
{
    static const char *const head[] = {"name", "case", "stands for", "why"};
    print_head(format, 4, head);
    for (int i = 0; i < attn_battery_count(); i++) {
        const struct attn_battery_case *c = attn_battery_at(i);
        const char *const cell[] = {c->name, c->text, c->ids, c->why};
        print_row(format, all, 4, head, cell);
    }
}

static void list_fills(enum format format, json_t *all)
{
    static const char *const head[] = {"fill", "aims at"};
    print_head(format, 2, head);
    for (int f = 0; f < ATTN_FILLS; f++) {
        const char *const cell[] = {attn_fill_name((enum attn_fill)f),
                                    attn_fill_aim((enum attn_fill)f)};
        print_row(format, all, 2, head, cell);
    }
}

/* What stands for a bug: battery cases, or what bugs.def says. */
static void list_bugs(enum format format, json_t *all)
{
    static const char *const head[] = {"bug", "evidence", "reference", "what went wrong",
                                       "covered by"};
    print_head(format, 5, head);
    for (int i = 0; i < attn_bug_count(); i++) {
        const struct attn_bug *bug = attn_bug_at(i);
        char cases[4096];
        int n = attn_bug_cases(bug, cases, sizeof cases);
        const char *const cell[] = {bug->id, bug->evidence, bug->reference, bug->what,
                                    n > 0 ? cases : bug->elsewhere};
        print_row(format, all, 5, head, cell);
    }
}

static void list_masks(enum format format, json_t *all)
{
    for (int line = 0; attn_mask_help(line) != NULL; line++)
        if (format == JSON)
            json_array_append_new(all, json_string(attn_mask_help(line)));
        else
            printf(format == MD ? "    %s\n" : "%s\n", attn_mask_help(line));
}

int attn_cmd_list(int argc, char **argv)
{
    static const struct option longs[] = {
        {"format", required_argument, NULL, 'f'}, {"help", no_argument, NULL, 'h'}, {0}};
    static const struct {
        const char *name;
        void (*print)(enum format format, json_t *all);
    } subject[] = {{"implementations", list_implementations},
                   {"cases", list_cases},
                   {"fills", list_fills},
                   {"bugs", list_bugs},
                   {"masks", list_masks}};
    enum format format = TEXT;
    for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        if (o == 'h')
            return attn_cli_help(help);
        if (o == 'f' && strcmp(optarg, "md") == 0)
            format = MD;
        else if (o == 'f' && strcmp(optarg, "json") == 0)
            format = JSON;
        else if (o != 'f' || strcmp(optarg, "text") != 0)
            return attn_cli_fail("list", ATTN_EXIT_USAGE, "see attnlab list --help");
    }
    const char *name = optind < argc ? argv[optind] : "implementations";
    for (size_t s = 0; s < sizeof subject / sizeof *subject; s++) {
        if (strcmp(name, subject[s].name) != 0)
            continue;
        json_t *all = json_array();
        subject[s].print(format, all);
        if (format == JSON) {
            json_dumpf(all, stdout, JSON_INDENT(1));
            fputc('\n', stdout);
        }
        json_decref(all);
        return attn_cli_flush("list");
    }
    return attn_cli_fail("list", ATTN_EXIT_USAGE,
                         "nothing is called '%s'; there are: implementations, cases, fills, "
                         "bugs, masks",
                         name);
}
