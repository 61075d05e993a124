/* attnlab: check, run, price and measure attention.  This file finds the subcommand; each
 * subcommand is a file of its own (commands.def). */
#include <gsl/gsl_errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli.h"
#include "optimized/simd/isa.h"
#include "version.h"

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
#define ATTN_COMMAND(name, summary) {#name, summary, attn_cmd_##name},
#include "experiments/commands.def"
#undef ATTN_COMMAND
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_usage(FILE *to)
{
    fputs("attnlab COMMAND [ARGUMENTS]     attnlab COMMAND --help     attnlab --version\n\n", to);
    for (int c = 0; c < COMMANDS; c++)
        fprintf(to, "  %-8s %s\n", commands[c].name, commands[c].summary);
    fputs("\nExit status: 0 good, 1 disagreement, 2 usage or bad file, 3 the environment lacks\n"
          "something, 4 internal error.\n",
          to);
}

/* Everything that runs or prices an implementation asks which instruction set it is to be on. */
static int environment_is_good(int argc, char **argv)
{
    static const char *const without[] = {"list", "vectors", "compare", "env"};
    struct attn_error err;
    for (size_t n = 0; n < sizeof without / sizeof *without; n++)
        if (strcmp(argv[1], without[n]) == 0)
            return 1;
    for (int a = 2; a < argc; a++)
        if (strcmp(argv[a], "--help") == 0)
            return 1;
    if (attn_isa_best(&err) != NULL)
        return 1;
    attn_cli_fail(argv[1], ATTN_EXIT_LACKS, "%s", err.text);
    return 0;
}

static int run(int argc, char **argv)
{
    gsl_set_error_handler_off(); /* GSL's default is to abort */
    attn_cli_started(argv[0]);
    attn_cli_guard();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error like any other */
    signal(SIGXFSZ, SIG_IGN); /* and so is a limit on the size of a file */
    if (argc < 2) {
        print_usage(stderr);
        return ATTN_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return attn_cli_flush("--help");
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("attnlab %s\n", ATTN_VERSION);
        return attn_cli_flush("--version");
    }
    for (int c = 0; c < COMMANDS; c++)
        if (strcmp(argv[1], commands[c].name) == 0)
            return environment_is_good(argc, argv) ? commands[c].run(argc - 1, argv + 1)
                                                   : ATTN_EXIT_LACKS;
    fprintf(stderr, "attnlab: no command '%s'; there are:", argv[1]);
    for (int c = 0; c < COMMANDS; c++)
        fprintf(stderr, " %s", commands[c].name);
    fputc('\n', stderr);
    return ATTN_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    return attn_cli_leave(run(argc, argv));
}
