/* See mpi_type.h. */
#include "experiments/rim/mpi/transport/mpi_type.h"

#include <stdlib.h>

enum { CHUNK = 1 << 30 };

static void drop(MPI_Datatype *type)
{
    if (*type != MPI_BYTE && *type != MPI_DATATYPE_NULL)
        MPI_Type_free(type);
}

/* n of *type, `stride` bytes apart: *type becomes that. */
static int repeat(MPI_Datatype *type, int64_t n, int64_t stride)
{
    MPI_Datatype one = *type, part[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
    int times[2] = {1, 1};
    const MPI_Aint at[2] = {0, (MPI_Aint)(n / CHUNK * CHUNK * stride)};
    *type = MPI_DATATYPE_NULL;
    int failed = MPI_Type_create_hvector((int)(n % CHUNK), 1, (MPI_Aint)stride, one, &part[1]);
    if (!failed && n < CHUNK) {
        *type = part[1];
    } else if (!failed) {
        MPI_Datatype chunk = MPI_DATATYPE_NULL;
        failed = MPI_Type_create_hvector(CHUNK, 1, (MPI_Aint)stride, one, &chunk) ||
                 MPI_Type_create_hvector((int)(n / CHUNK), 1, (MPI_Aint)CHUNK * stride, chunk,
                                         &part[0]) ||
                 MPI_Type_create_struct(2, times, at, part, type);
        drop(&chunk);
        drop(&part[0]);
        drop(&part[1]);
    }
    drop(&one);
    return failed;
}

/* Rows that lie one behind the other are one run. */
static int piece_type(const struct attn_piece *piece, MPI_Datatype *type)
{
    int64_t row = piece->row;
    int axis = 2, failed = 0;
    for (; axis >= 0 && (piece->extent[axis] == 1 || piece->stride[axis] == row); axis--)
        row *= piece->extent[axis];
    *type = MPI_BYTE;
    failed = repeat(type, row, 1);
    for (; axis >= 0 && !failed; axis--)
        if (piece->extent[axis] != 1)
            failed = repeat(type, piece->extent[axis], piece->stride[axis]);
    return failed;
}

static int list_pieces(const struct attn_message *x, MPI_Datatype *part, MPI_Aint *at, int *n)
{
    int failed = 0;
    for (int p = 0; p < x->pieces && !failed; p++) {
        const struct attn_piece *piece = &x->piece[p];
        if (attn_piece_is_pads(piece) || attn_piece_bytes(piece) == 0)
            continue;
        failed = MPI_Get_address((char *)x->data + piece->offset, &at[*n]);
        if (!failed)
            failed = piece_type(piece, &part[*n]);
        *n += !failed;
    }
    return failed;
}

int attn_mpi_type(void *header, int header_bytes, const struct attn_message *x, MPI_Datatype *type)
{
    size_t most = (size_t)x->pieces + 1;
    MPI_Datatype *part = calloc(most, sizeof *part);
    MPI_Aint *at = calloc(most, sizeof *at);
    int *times = calloc(most, sizeof *times), n = 0;
    int failed = part == NULL || at == NULL || times == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;
    *type = MPI_DATATYPE_NULL;
    if (!failed) {
        part[n++] = MPI_BYTE;
        failed = MPI_Get_address(header, &at[0]);
    }
    if (!failed)
        failed = list_pieces(x, part, at, &n);
    for (int p = 0; p < n; p++)
        times[p] = p == 0 ? header_bytes : 1;
    if (!failed)
        failed = MPI_Type_create_struct(n, times, at, part, type);
    if (!failed)
        failed = MPI_Type_commit(type);
    for (int p = 1; p < n; p++)
        drop(&part[p]);
    free(part);
    free(at);
    free(times);
    return failed;
}
