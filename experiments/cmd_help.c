/* attnlab help: what there is, for people, for man and for a shell that completes words.  All of it
 * is made from the commands' lists of flags (cli/flags.h). */
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"
#include "optimized/registry.h"
#include "ref/mask/nearest.h"
#include "tests/harness/base/fileio.h"
#include "version.h"

#define ATTN_COMMAND(name) extern const struct attn_cli_command attn_cmd_##name;
#include "experiments/cli/commands.def"
#undef ATTN_COMMAND

static const struct attn_cli_command *const commands[] = {
#define ATTN_COMMAND(name) &attn_cmd_##name,
#include "experiments/cli/commands.def"
#undef ATTN_COMMAND
};

enum { COMMANDS = sizeof commands / sizeof *commands };

enum { TEXT, MAN, BASH };

static const struct attn_flag_use flags[] = {
    ATTN_TAKES(FORMAT, 0, "text", .value = "text|man|bash",
               .help = "text; man: a page for man; bash: completion for all commands"),
    {.flag = ATTN_FLAG_END}};

static int help(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_help = {
    .name = "help",
    .summary = "what a command does and takes",
    .usage = "help [COMMAND] [--format text|man|bash]\n"
             "help verdicts",
    .about = "The commands, or one command with its flags, as attnlab COMMAND --help says it; or\n"
             "what the words and numbers of a verdict mean.",
    .flags = flags,
    .more = "  attnlab help check\n"
            "  attnlab help price --format man | man -l -",
    .exits = "0 good, 2 usage.",
    .operands_most = 1,
    .size = sizeof(int),
    .run = help};

const struct attn_cli_command *attn_command_find(const char *name)
{
    for (int c = 0; c < COMMANDS; c++)
        if (strcmp(commands[c]->name, name) == 0)
            return commands[c];
    return NULL;
}

int attn_command_unknown(const char *name)
{
    char meant[64], given[64];
    struct attn_nearest nearest = attn_nearest_begin(name, strlen(name));
    for (int c = 0; c < COMMANDS; c++)
        if (!commands[c]->internal)
            attn_nearest_offer(&nearest, commands[c]->name);
    fprintf(stderr,
            "attnlab: no command '%s'%s; there are:", attn_cleaned(name, given, sizeof given),
            attn_nearest_text(&nearest, meant));
    for (int c = 0; c < COMMANDS; c++)
        if (!commands[c]->internal)
            fprintf(stderr, " %s", commands[c]->name);
    fputc('\n', stderr);
    if (strcmp(name, "bench") == 0)
        fputs("attnlab: speed is a part of measure: attnlab measure SPEC --length L --peak 1\n",
              stderr);
    if (strcmp(name, "version") == 0)
        fputs("attnlab: attnlab --version says it\n", stderr);
    return ATTN_EXIT_USAGE;
}

static const char exit_statuses[] =
    "0 good, 1 disagreement, 2 usage or bad file, 3 the environment lacks\n"
    "something, 4 internal error.";

void attn_command_print_list(FILE *file)
{
    fputs("usage: attnlab COMMAND [ARGUMENTS]\n"
          "       attnlab COMMAND --help\n"
          "       attnlab --version\n\n",
          file);
    for (int c = 0; c < COMMANDS; c++)
        if (!commands[c]->internal)
            fprintf(file, "  %-8s %s\n", commands[c]->name, commands[c]->summary);
    fprintf(file, "\nExit status: %s\n", exit_statuses);
}

/* Topics of `attnlab help` that are no commands. */
static const struct {
    const char *name, *text;
} topics[] = {
    {"verdicts",
     "PASS, FAIL(kind), REFUSED, CRASH, TIMEOUT, INTERMITTENT, SKIPPED (not reached), WEAK\n"
     "(zeros would pass), ERROR.\n"
     "  error/bound  the largest error of an element by the bound of its rounding: beyond 1 it "
     "fails\n"
     "  gauge        the same error in units of u times the element's size: it judges nothing\n"
     "  elements     how many were compared, and how many lie beyond the bound\n"
     "  grade        A: near what rounding usually does (error/T2 up to 1); B: farther, and no "
     "failure\n"
     "  bias         whether errors lean to one side, in standard deviations; beyond the limit\n"
     "               it fails; \"largest bias of 7\" is that of the 7 cases that can show it\n"
     "  mask         how many pairs of a query and a key would be missed, or noticed if added\n"
     "  growth       the power of the number of parts with which errors grow; beyond the limit it "
     "fails\n"
     "  declared     what the bounds took at its word; a generous declaration shows here\n"
     "docs/bounds.md has each in full.\n"}};

static int print_topic(const char *name)
{
    for (size_t t = 0; t < sizeof topics / sizeof *topics; t++)
        if (strcmp(topics[t].name, name) == 0)
            return fputs(topics[t].text, stdout) >= 0;
    return 0;
}

/* ---- man ------------------------------------------------------------------------------------- */

/* Text as troff has it: lines that begin with a blank stand as they are. */
static void print_troff(const char *text)
{
    int literal = 0;
    while (*text != '\0') {
        int n = (int)strcspn(text, "\n"), blank = text[0] == ' ';
        if (blank != literal)
            puts(blank ? ".nf" : ".fi");
        literal = blank;
        if (n == 0)
            puts(".PP");
        if (text[0] == '.' || text[0] == '\'')
            fputs("\\&", stdout);
        for (int i = 0; i < n; i++)
            if (text[i] == '\\')
                fputs("\\e", stdout);
            else if (text[i] == '-')
                fputs("\\-", stdout);
            else if (text[i] == '\'')
                fputs("\\(aq", stdout);
            else
                putchar(text[i]);
        if (n > 0)
            putchar('\n');
        text += n + (text[n] == '\n');
    }
    if (literal)
        puts(".fi");
}

/* The texts below the flags: notes, and examples from the first line on that stands indented. */
static void print_more(const char *more)
{
    size_t notes = 0;
    while (more[notes] != '\0' && more[notes] != ' ') {
        notes += strcspn(more + notes, "\n");
        notes += more[notes] == '\n';
    }
    char *text = attn_cli_text("%s", more);
    text[notes] = '\0';
    if (notes > 0)
        puts(".SH NOTES");
    print_troff(text);
    if (more[notes] != '\0')
        puts(".SH EXAMPLES");
    print_troff(more + notes);
    free(text);
}

static void print_man(const struct attn_cli_command *c)
{
    printf(".TH ATTNLAB-%s 1 \"\" \"attnlab %s\"\n.SH NAME\nattnlab\\-%s \\- %s\n"
           ".SH SYNOPSIS\n.nf\n",
           c->name, ATTN_RELEASE, c->name, c->summary);
    for (const char *line = c->usage; *line != '\0';) {
        int n = (int)strcspn(line, "\n");
        printf("%s%.*s\n", line[0] == ' ' ? "        " : "attnlab ", n, line);
        line += n + (line[n] == '\n');
    }
    puts(".fi\n.SH DESCRIPTION");
    print_troff(c->about);
    puts(".SH OPTIONS");
    for (const struct attn_flag_use *use = c->flags; use->flag != ATTN_FLAG_END; use++) {
        const struct attn_flag_shown shown = attn_flag_show(use);
        if (use->flag == ATTN_FLAG_TITLE) {
            puts(".PP");
        } else {
            printf(".TP\n\\fB\\-\\-");
            for (const char *at = shown.name; *at != '\0'; at++)
                printf(*at == '-' ? "\\-" : "%c", *at);
            printf("\\fR %s\n", shown.value);
        }
        print_troff(shown.help);
        if (shown.preset[0] != '\0')
            printf("(%s)\n", shown.preset);
    }
    print_more(c->more != NULL ? c->more : "");
    puts(".SH EXIT STATUS");
    print_troff(c->exits != NULL ? c->exits : exit_statuses);
}

static void print_man_of_all(void)
{
    printf(".TH ATTNLAB 1 \"\" \"attnlab %s\"\n.SH NAME\n"
           "attnlab \\- attention: its memory, its speed, and whether an implementation is right\n"
           ".SH SYNOPSIS\nattnlab COMMAND [ARGUMENTS]\n.SH COMMANDS\n",
           ATTN_RELEASE);
    for (int c = 0; c < COMMANDS; c++)
        if (!commands[c]->internal) {
            printf(".TP\n\\fBattnlab\\-%s\\fR(1)\n", commands[c]->name);
            print_troff(commands[c]->summary);
        }
    puts("\n.SH EXIT STATUS");
    print_troff(exit_statuses);
}

/* ---- completion ------------------------------------------------------------------------------ */

/* Words that may stand after each flag, and in its place.  The shell itself completes files. */
static void print_completion(const struct attn_cli_command *c)
{
    for (const struct attn_flag_use *use = c->flags; use->flag != ATTN_FLAG_END; use++) {
        const struct attn_flag_shown shown = attn_flag_show(use);
        if (shown.value[0] == '\0')
            continue;
        printf("    %s:--%s) words='", c->name, shown.name);
        for (const char *at = shown.value; shown.words && *at != '\0'; at++)
            putchar(*at == '|' ? ' ' : *at);
        puts("' ;;");
    }
    printf("    %s:*) words='", c->name);
    for (const struct attn_flag_use *use = c->flags; use->flag != ATTN_FLAG_END; use++)
        if (use->flag != ATTN_FLAG_TITLE)
            printf("--%s ", attn_flag_show(use).name);
    for (int i = 0; strstr(c->usage, "SPEC") != NULL && i < attn_impl_count(); i++)
        printf("%s ", attn_impl_at(i)->name);
    for (int k = 0; c == &attn_cmd_help && k < COMMANDS; k++)
        printf("%s ", commands[k]->internal ? "" : commands[k]->name);
    for (const char *at = c->words; at != NULL && *at != '\0'; at++)
        putchar(*at);
    puts("--help' ;;");
}

static void print_bash(void)
{
    puts("# Completion for attnlab: made by `attnlab help --format=bash`.\n"
         "_attnlab()\n{\n"
         "    local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words=\n"
         "    case ${COMP_WORDS[1]}:$before in");
    for (int c = 0; c < COMMANDS; c++)
        if (!commands[c]->internal)
            print_completion(commands[c]);
    fputs("    esac\n    [ \"$COMP_CWORD\" -gt 1 ] || words='", stdout);
    for (int c = 0; c < COMMANDS; c++)
        if (!commands[c]->internal)
            printf("%s ", commands[c]->name);
    puts("--help --version'\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$now\")\n}\n"
         "complete -o default -F _attnlab attnlab");
}

static int help(void *values, int n, char **operand)
{
    const int *asked = values;
    const struct attn_cli_command *command = n > 0 ? attn_command_find(operand[0]) : NULL;
    if (n > 0 && command == NULL && print_topic(operand[0]))
        return ATTN_EXIT_GOOD;
    if (n > 0 && command == NULL)
        return attn_command_unknown(operand[0]);
    if (*asked == BASH)
        print_bash();
    else if (*asked == MAN && command != NULL)
        print_man(command);
    else if (*asked == MAN)
        print_man_of_all();
    else if (command != NULL)
        attn_cli_print_help(stdout, command);
    else
        attn_command_print_list(stdout);
    return ATTN_EXIT_GOOD;
}
