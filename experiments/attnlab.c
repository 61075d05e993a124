/* attnlab: check, run, price and measure attention.  This file finds the subcommand; each
 * subcommand is a file of its own (commands.def). */
#include <gsl/gsl_errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/cli/flags.h"

static int run(int argc, char **argv)
{
    gsl_set_error_handler_off(); /* GSL's default is to abort */
    const struct attn_cli_command *command = argc > 1 ? attn_command_find(argv[1]) : NULL;
    attn_cli_started(argv[0], command != NULL ? command->name : "help");
    attn_cli_guard();
    if (command == NULL || !command->internal)
        attn_cli_print_clean(); /* the others have plug-ins in them, and are read by us */
    signal(SIGPIPE, SIG_IGN);   /* a closed pipe is a write error like any other */
    signal(SIGXFSZ, SIG_IGN);   /* and so is a limit on the size of a file */
    signal(SIGCHLD, SIG_DFL);   /* ignored by who started us, children would leave no status */
    if (argc < 2) {
        attn_command_print_list(stderr);
        return ATTN_EXIT_USAGE;
    }
    if (command != NULL)
        return attn_command_run(command, argc - 1, argv + 1);
    if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)
        argc = 1;          /* the commands, where COMMAND --help is one command */
    if (argv[1][0] == '-') /* these, -V, --version, or no flag at all */
        return attn_command_run(&attn_cmd_help, argc, argv);
    return attn_command_unknown(argv[1]);
}

int main(int argc, char **argv)
{
    return attn_cli_leave(run(argc, argv));
}
