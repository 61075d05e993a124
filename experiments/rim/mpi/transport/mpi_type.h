/* A message as MPI sees it: one derived datatype over the memory of its pieces, of any size.
 *
 * Counts of MPI are ints.  A run of more than 1 GiB is a datatype of chunks of 1 GiB and the rest,
 * and so is a list of more than 2^30 rows.  Functions return MPI's error code.
 */
#ifndef EXPERIMENTS_RIM_MPI_TRANSPORT_MPI_TYPE_H
#define EXPERIMENTS_RIM_MPI_TRANSPORT_MPI_TYPE_H

#include <mpi.h>

#include "ref/ranks.h"

/* From MPI_BOTTOM on: the header, then all pieces at their addresses, but for pads.  Committed; to
 * be freed. */
int attn_mpi_type(void *header, int header_bytes, const struct attn_message *message,
                  MPI_Datatype *type);

#endif
