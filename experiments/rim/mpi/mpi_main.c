/* attnlab-mpi: the program on processes of MPI, each of which is a rank.
 *
 *      mpirun -n 4 attnlab-mpi check ring:ranks=4
 *
 * All processes run the same command on the same arguments, and only the first is heard and writes.
 * This file stands before main(): the linker takes __wrap_main for it.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point.h"
#include "experiments/rim/mpi/transport/transport_mpi.h"

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

static const double LIMIT = 600; /* seconds without progress, unless ATTN_MPI_LIMIT says another */

/* Where standard error goes, of processes that are not heard. */
enum { SILENT = 63 };

static void give_up(const char *line)
{
    dup2(SILENT, STDERR_FILENO);
    attn_cli_fail(ATTN_EXIT_INTERNAL, "%s", line);
    MPI_Abort(MPI_COMM_WORLD, ATTN_EXIT_INTERNAL);
}

/* The end of the process calls it, with any status.  arg: the runner that is served, or NULL. */
static void finish(int status, void *arg)
{
    (void)status;
    fflush(NULL);
    if (arg != NULL)
        attn_point_ranks_over(arg);
    MPI_Finalize();
}

static void be_silent(void)
{
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
}

static int run_alone(int rank, int argc, char **argv)
{
    if (rank > 0)
        return ATTN_EXIT_GOOD;
    if (argc < 2 || argv[1][0] == '-' || strcmp(argv[1], "help") == 0)
        return __real_main(argc, argv);
    attn_cli_started(argv[0], argv[1]);
    return attn_cli_fail(
        ATTN_EXIT_USAGE,
        "attnlab-mpi has check, run, measure, layer and cluster here; attnlab has all commands");
}

int __wrap_main(int argc, char **argv)
{
    static struct attn_runner runner;
    static const char *const ours[] = {"check", "run", "measure", "layer", "cluster"};
    const char *said = getenv("ATTN_MPI_LIMIT");
    double limit = LIMIT;
    struct attn_error err;
    int is_ours = 0, rank = 0;
    if (argc > 1 && strcmp(argv[1], "point") == 0)
        return __real_main(argc, argv); /* a process that another one started, and no rank */
    MPI_Init(&argc, &argv);
    dup2(STDERR_FILENO, SILENT);
    for (size_t n = 0; n < sizeof ours / sizeof *ours; n++)
        is_ours |= argc > 1 && strcmp(argv[1], ours[n]) == 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int serves = is_ours && strcmp(argv[1], "measure") == 0;
    on_exit(finish, serves && rank == 0 ? &runner : NULL);
    if (!is_ours)
        return attn_cli_leave(run_alone(rank, argc, argv));
    if (rank > 0)
        be_silent();
    if (said != NULL && (!attn_cli_double(said, &limit) || !(limit > 0)))
        return attn_cli_leave(
            attn_cli_fail(ATTN_EXIT_USAGE, "ATTN_MPI_LIMIT '%.40s': seconds, such as 600", said));
    if (attn_mpi_open(limit, give_up, &runner, &err) != ATTN_OK)
        return attn_cli_leave(attn_cli_error(&err));
    attn_cli_set_runner(&runner);
    if (!serves || rank == 0)
        return __real_main(argc, argv);
    attn_cli_started(argv[0], argv[1]);
    attn_point_ranks_serve(&runner);
    return attn_cli_leave(ATTN_EXIT_GOOD);
}
