/* Simulated ranks: threads that run the code an MPI process would run.
 *
 * Each ordered pair of ranks has a mailbox: the messages that one side has posted and the other has
 * not.  The side that comes second copies the bytes, under the one lock, straight from the
 * sender's memory into the receiver's.  Nothing is buffered, so a scheme that would deadlock with
 * large MPI messages deadlocks here with any, and nothing hangs: when every rank that still runs is
 * waiting, or a rank left with an error, or two ranks disagree about the message between them, all
 * ranks end with ATTN_EPEER and the first error says who waits for whom and for what.
 */
#ifndef OPTIMIZED_PARALLEL_TRANSPORT_SIM_H
#define OPTIMIZED_PARALLEL_TRANSPORT_SIM_H

#include "ref/ledger.h"
#include "ref/ranks.h"

enum { ATTN_SIM_RANKS = 512 };

/* Run `size` ranks (1 to ATTN_SIM_RANKS) in threads of their own and wait for
 * all.  On failure err is that of the lowest
 * rank that failed by itself, or else the transport's own finding, never "because another rank
 * failed". The book-keeping of the simulation is taken from ledger as "sim" (ranks) and
 * "sim.mail" (mailboxes: 32 bytes for each pair of ranks). */
enum attn_status attn_sim_run(struct attn_ledger *ledger, int size,
                              const struct attn_rank_code *code, struct attn_error *err);

#endif
