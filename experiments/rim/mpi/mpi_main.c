/* attnlab-mpi: the program on processes of MPI, each of which is a rank.
 *
 *      mpirun -n 4 attnlab-mpi check ring:ranks=4
 *
 * All processes run the same command on the same arguments, and only the first prints and writes
 * files.  This file stands before main(): the linker takes __wrap_main for it.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/point/point.h"
#include "experiments/rim/mpi/transport/transport_mpi.h"

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

static const double LIMIT = 600; /* seconds without progress, unless ATTN_MPI_LIMIT says another */

/* Seconds that a process which ends with an error waits for the others to end. */
static const double PATIENCE = 5;

/* The true standard error of processes that print nothing, and the file that has taken its
 * place. */
enum { TRUE_ERROR = 63, UNHEARD = 62 };

static void give_up(const char *line)
{
    dup2(TRUE_ERROR, STDERR_FILENO);
    attn_cli_fail(ATTN_EXIT_INTERNAL, "%s", line);
    MPI_Abort(MPI_COMM_WORLD, ATTN_EXIT_INTERNAL);
}

/* The last line that a process which prints nothing has written. */
static void last_line(char *line, size_t size)
{
    char text[1024];
    off_t end = lseek(UNHEARD, 0, SEEK_END), from = end > 1023 ? end - 1023 : 0;
    ssize_t n = pread(UNHEARD, text, sizeof text - 1, from);
    text[n > 0 ? n : 0] = '\0';
    if (n > 0 && text[n - 1] == '\n')
        text[n - 1] = '\0';
    const char *begin = strrchr(text, '\n');
    snprintf(line, size, "%.500s", begin != NULL ? begin + 1 : text);
}

/* All processes end together.  One that ends with an error while the others go on says why, and
 * ends the run: they would wait for it. */
static void end_together(int status)
{
    MPI_Request all;
    int is_there = 0, rank = 0;
    char why[512], line[640];
    double since = MPI_Wtime();
    MPI_Ibarrier(MPI_COMM_WORLD, &all);
    do {
        MPI_Test(&all, &is_there, MPI_STATUS_IGNORE);
        usleep(1000);
    } while (!is_there && (status < ATTN_EXIT_USAGE || MPI_Wtime() - since < PATIENCE));
    if (is_there)
        return;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    last_line(why, sizeof why);
    snprintf(line, sizeof line, "rank %d ended by itself: %s", rank,
             rank == 0 ? "its reason stands above" : why);
    give_up(line);
}

/* The end of the process calls it, with any status.  arg: the runner that is served, or NULL. */
static void finish(int status, void *arg)
{
    fflush(NULL);
    if (arg != NULL)
        attn_point_ranks_over(arg);
    end_together(status);
    MPI_Finalize();
}

/* Standard error goes to a file in memory, from which a reason can be read. */
static void be_silent(void)
{
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC), unheard = memfd_create("stderr", 0);
    dup2(nowhere, STDOUT_FILENO);
    dup2(unheard >= 0 ? unheard : nowhere, STDERR_FILENO);
    dup2(unheard, UNHEARD);
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
    setenv("NO_COLOR", "1", 0); /* mpirun's terminals stand before files, too */
    dup2(STDERR_FILENO, TRUE_ERROR);
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
