/* Ranks that are processes of MPI: the same post, wait and end as simulated ones have.
 *
 * A message is one MPI_Issend and one MPI_Irecv of a derived datatype over its pieces (mpi_type.h):
 * nothing is packed here.  Issend, because a message of a simulated rank is done when its receiver
 * is there, and what would deadlock must deadlock with messages of any size.  All have one tag of
 * MPI, so that they are matched in the order of posting.  Before its data a message has a header:
 * its tag and the shapes of its pieces, in which the receiver finds a hop that the sender skipped.
 * Pads are counted and do not travel: no memory holds them.
 *
 * A rank that waits asks MPI again and again; after a moment without progress it sleeps between, 20
 * us first, 1 ms at most: ranks may share cores.  When its own rank has ended, each process sends
 * all others a note: how, and why.  Notes are looked for while a rank waits, so that one which
 * fails stops all, and every process comes to the same verdict, in the words of a simulation.
 *
 * Nothing hangs: who has waited for `limit` seconds without progress fails, and with it the call.
 * A process from which no note comes although the call has failed is lost; then the process that
 * has the lowest rank of the others calls give_up
 * first, which must end the whole run.
 */
#ifndef EXPERIMENTS_RIM_MPI_TRANSPORT_TRANSPORT_MPI_H
#define EXPERIMENTS_RIM_MPI_TRANSPORT_TRANSPORT_MPI_H

#include "optimized/parallel/rank_runner.h"

struct attn_mpi; /* its memory stands beside prices: messages in flight, lists of notes and names */

/* Between MPI_Init and MPI_Finalize, on all processes.  runner->state is to be closed.  ENOMEM. */
enum attn_status attn_mpi_open(double limit, void (*give_up)(const char *line),
                               struct attn_runner *runner, struct attn_error *err);
void attn_mpi_close(struct attn_runner *runner);

#endif
