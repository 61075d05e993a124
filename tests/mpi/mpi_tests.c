/* Ranks that are processes against simulated ones: mpirun -n 4 mpi-tests, of which every process
 * does both.
 *
 *      mpi-tests         the same bytes in any pieces; datatypes above 2 GiB; the same results,
 *                        messages and prices of every scheme; the same line when something fails
 *      mpi-tests lost    rank 1 never answers: the others end the run
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "optimized/parallel/transport/mpi_type.h"
#include "optimized/parallel/transport/transport_mpi.h"
#include "optimized/parallel/transport/transport_sim.h"
#include "optimized/registry.h"
#include "ref/mask/mask.h"
#include "tests/harness/fill.h"

/* Seconds without progress: where none is to come, and where it may be slow. */
static const double HASTY = 1.5, PATIENT = 60;

static void fail(const char *what, const char *got, const char *want)
{
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "mpi-tests: process %d: %s: '%s', want '%s'\n", rank, what, got, want);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void expect(int holds, const char *what)
{
    if (!holds)
        fail(what, "no", "yes");
}

static void give_up(const char *line)
{
    fprintf(stderr, "mpi-tests: %s\n", line);
    MPI_Abort(MPI_COMM_WORLD, 4);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

enum { BYTES = 4096, PIECES = 7, ROUNDS = 200 };

static int64_t draw(int round, int rank, int what, int64_t below)
{
    return (int64_t)(attn_hash((uint64_t)round, (uint64_t)rank, (uint64_t)what) % (uint64_t)below);
}

/* Of a message from this rank: up to 7 pieces of up to 3 x 3 x 3 rows of up to 9 bytes, one of them
 * pads, where sender or receiver has them. */
static int pieces_of(int round, int sender, int side, struct attn_piece piece[PIECES])
{
    int n = (int)draw(round, sender, 0, PIECES + 1);
    for (int p = 0; p < n; p++) {
        struct attn_piece *x = &piece[p];
        *x = (struct attn_piece){.row = draw(round, sender, 10 * p + 1, 10)};
        for (int a = 0; a < 3; a++)
            x->extent[a] = draw(round, sender, 10 * p + 2 + a, 4);
        int is_packed = (int)draw(round, sender, 10 * p + 6 + side, 2);
        x->stride[2] = x->row + (is_packed ? 0 : 3);
        x->stride[1] = 3 * x->stride[2] + (is_packed ? 0 : 5);
        x->stride[0] = 3 * x->stride[1] + (is_packed ? 0 : 1);
        x->offset = p * (BYTES / PIECES);
        if (draw(round, sender, 10 * p + 5, 5) == 0)
            *x = attn_piece_pads(x->row);
    }
    return n;
}

static void fill_bytes(int round, int rank, unsigned char to[BYTES])
{
    for (int n = 0; n < BYTES; n++)
        to[n] = (unsigned char)draw(round, rank, 1000 + n, 256);
}

static enum attn_status in_pieces(void *arg, struct attn_transport *t, struct attn_error *err)
{
    static unsigned char out[BYTES], in[BYTES], want[BYTES];
    struct attn_piece sent[PIECES], got[PIECES], theirs[PIECES];
    int to = (t->rank + 1) % t->size, from = (t->rank + t->size - 1) % t->size;
    enum attn_status status = ATTN_OK;
    (void)arg;
    for (int round = 0; round < ROUNDS && status == ATTN_OK; round++) {
        int n = pieces_of(round, from, 1, got);
        struct attn_message send = {.peer = to, .tag = round, .data = out, .piece = sent};
        struct attn_message receive = {
            .peer = from, .tag = round, .data = in, .piece = got, .pieces = n};
        send.pieces = pieces_of(round, t->rank, 0, sent);
        fill_bytes(round, from, out);
        memset(in, 77, BYTES);
        memset(want, 77, BYTES);
        pieces_of(round, from, 0, theirs);
        for (int p = 0; p < n; p++)
            attn_piece_copy(want, &got[p], out, &theirs[p]);
        fill_bytes(round, t->rank, out);
        status = attn_exchange(t, &send, 1, &receive, 1, err);
        expect(status != ATTN_OK || memcmp(in, want, BYTES) == 0,
               "pieces arrive where they belong");
    }
    return status;
}

/* ---- datatypes above 2 GiB ------------------------------------------------------------------- */

/* Nothing of it is in memory: what MPI makes of the description is looked at. */
static void test_large_types(void)
{
    static const int64_t G = (int64_t)1 << 30;
    const struct attn_piece piece[] = {{64, {1, 1, 1}, {0, 0, 0}, 5 * G + 3},
                                       {64, {1, 1, 3 * G + 1}, {0, 0, 24}, 8},
                                       {64, {2, 3, 5}, {80 * G, 20 * G, 4 * G}, 3 * G + 1}};
    int64_t header = 0, size = sizeof header;
    struct attn_message x = {.data = (void *)4096, .piece = piece, .pieces = 3};
    MPI_Datatype type;
    MPI_Count bytes, low, span;
    for (int p = 0; p < 3; p++)
        size += attn_piece_bytes(&piece[p]);
    expect(attn_mpi_type(&header, sizeof header, &x, &type) == MPI_SUCCESS, "a large type");
    expect(MPI_Type_size_x(type, &bytes) == MPI_SUCCESS && bytes == size, "its size");
    MPI_Type_free(&type);
    for (int p = 0; p < 3; p++) { /* from its first byte to its last */
        const int64_t *n = piece[p].extent, *s = piece[p].stride;
        int64_t last = (n[0] - 1) * s[0] + (n[1] - 1) * s[1] + (n[2] - 1) * s[2] + piece[p].row;
        x.piece = &piece[p];
        x.pieces = 1;
        attn_mpi_type(&header, 0, &x, &type);
        MPI_Type_get_true_extent_x(type, &low, &span);
        expect(low == 4096 + 64 && span == last, "where it lies");
        MPI_Type_free(&type);
    }
}

/* ---- schemes --------------------------------------------------------------------------------- */

enum { B = 2, H = 4, G = 2, L = 24, D = 5, MOST_NOTES = 4096 };
enum { Q, K, V, DO, O, LSE, DQ, DK, DV, TENSORS };
static const int64_t heads[TENSORS] = {H, G, G, H, H, H, H, G, G},
                     width[TENSORS] = {D, D, D, D, D, 1, D, D, D};

/* Tensors of a call, what its ranks used, and the messages that one of them sent. */
struct outcome {
    float data[TENSORS][B * H * L * D];
    struct attn_rank_use use[2][8];
    int rank, notes;
    struct attn_note note[MOST_NOTES];
};

static void keep_note(void *arg, const struct attn_note *note)
{
    struct outcome *x = arg;
    if (note->source == x->rank && x->notes < MOST_NOTES)
        x->note[x->notes++] = *note;
}

static struct attn_view view(struct outcome *x, int t)
{
    return (struct attn_view){
        x->data[t], ATTN_F32, {heads[t] * L * width[t], L * width[t], width[t], 1}};
}
static struct attn_cview cview(struct outcome *x, int t)
{
    struct attn_view v = view(x, t);
    return (struct attn_cview){v.data, v.dtype, {v.stride[0], v.stride[1], v.stride[2], 1}};
}

static struct attn_problem problem_of(int64_t length, const struct attn_mask *mask)
{
    return (struct attn_problem){.batch = B,
                                 .heads = H,
                                 .kv_heads = G,
                                 .n_query = length,
                                 .n_key = length,
                                 .d_key = D,
                                 .d_value = D,
                                 .scale = 0.4,
                                 .dtype = ATTN_F32,
                                 .mask = mask};
}

static void run_scheme(const struct attn_spec *spec, const struct attn_problem *p, int rank,
                       struct outcome *x)
{
    struct attn_ledger ledger;
    struct attn_error err = {0};
    struct attn_log log = {keep_note, x};
    struct attn_ctx ctx = {
        .ledger = &ledger, .options = &spec->options, .error = &err, .ranks = x->use[0]};
    attn_ledger_init(&ledger, NULL);
    memset(x, 0, sizeof *x);
    x->rank = rank;
    ctx.log = &log;
    for (int t = Q; t < O; t++)
        for (int n = 0; n < B * H * L * D; n++)
            x->data[t][n] = (float)attn_hash_normal(1, (uint64_t)t, (uint64_t)n);
    struct attn_forward f = {cview(x, Q), cview(x, K), cview(x, V), view(x, O), view(x, LSE)};
    if (attn_run_forward(spec->impl, &ctx, p, &f) != ATTN_OK)
        fail(spec->impl->name, err.text, "a result");
    struct attn_backward b = {.q = f.q, .k = f.k, .v = f.v, .o = cview(x, O)};
    b.lse = cview(x, LSE);
    b.d_o = cview(x, DO);
    b.dq = view(x, DQ), b.dk = view(x, DK), b.dv = view(x, DV);
    ctx.ranks = x->use[1];
    if (attn_run_backward(spec->impl, &ctx, p, &b) != ATTN_OK)
        fail(spec->impl->name, err.text, "gradients");
    expect(attn_ledger_clear(&ledger) == 0, "all is given back");
}

static void expect_same_use(const struct attn_rank_use *a, const struct attn_rank_use *b)
{
    int same = a->peak_bytes == b->peak_bytes && a->bytes_sent == b->bytes_sent &&
               a->messages == b->messages && a->n_live == b->n_live;
    for (int n = 0; n < a->n_live && same; n++)
        same =
            strcmp(a->live[n].name, b->live[n].name) == 0 && a->live[n].bytes == b->live[n].bytes;
    expect(same, "every rank has used and sent the same");
}

/* 0: refused, as the simulation refuses it. */
static int test_scheme(const char *text, int64_t length, const struct attn_runner *runner)
{
    static struct outcome sim, mpi;
    const struct attn_mask_shape shape = {B, H, length, length};
    struct attn_cost cost;
    struct attn_spec spec;
    struct attn_mask *mask = NULL;
    struct attn_error err = {0};
    if (attn_spec_parse(text, &spec, &err) != ATTN_OK)
        return 0;
    expect(attn_mask_parse("causal(br)", &shape, NULL, &mask, &err) == ATTN_OK, "a mask");
    const struct attn_problem p = problem_of(length, mask);
    if (attn_price(spec.impl, &spec.options, &p, ATTN_FORWARD, 0, &cost, &err) != ATTN_OK) {
        attn_mask_free(mask);
        return 0;
    }
    run_scheme(&spec, &p, runner->rank, &sim);
    spec.options.runner = runner;
    run_scheme(&spec, &p, runner->rank, &mpi);
    if (memcmp(sim.data, mpi.data, sizeof sim.data) != 0)
        fail(text, "other bits", "those of the simulation");
    expect(sim.notes == mpi.notes && sim.notes < MOST_NOTES, "as many messages");
    for (int n = 0; n < sim.notes; n++) {
        const struct attn_note *a = &sim.note[n], *b = &mpi.note[n];
        expect(a->pass == b->pass && a->step == b->step && a->destination == b->destination &&
                   a->bytes == b->bytes && a->dtype == b->dtype &&
                   strcmp(a->tensor, b->tensor) == 0,
               "the same messages in the same order");
    }
    for (int n = 0; n < 8; n++)
        expect_same_use(&sim.use[n / 4][n % 4], &mpi.use[n / 4][n % 4]);
    attn_mask_free(mask);
    return 1;
}

/* Each with what it accepts of this; how many runs that were. */
static int test_schemes(const struct attn_runner *runner)
{
    static const char *const option[] = {"ranks=4", "ranks=3", "ranks=4,sizes=pad"};
    int n = 0, of_one;
    for (int i = 0; i < attn_impl_count(); i++) {
        const struct attn_impl *impl = attn_impl_at(i);
        if (impl->ranks == NULL)
            continue;
        of_one = 0;
        for (int o = 0; o < 6; o++) {
            char text[128];
            snprintf(text, sizeof text, "%s:%s", impl->name, option[o % 3]);
            of_one += test_scheme(text, L - o / 3, runner);
        }
        int has_masks_of_its_own =
            strcmp(impl->name, "skiparse") == 0 || strcmp(impl->name, "video") == 0;
        expect(of_one > 0 || has_masks_of_its_own, impl->name);
        n += of_one;
    }
    return n;
}

/* ---- what fails ------------------------------------------------------------------------------ */

enum way { RETURNS, LEAVES, DEADLOCK, OTHER_TAG, LONGER, SHORTER, OTHER_PIECES, WAYS };
static const char *const way_name[WAYS] = {"returns an error", "leaves", "waits for another",
                                           "another hop",      "longer", "shorter",
                                           "other pieces"};

/* A ring of which rank 1 does something else; all others send and receive k. */
static enum attn_status hop(void *arg, struct attn_transport *t, struct attn_error *err)
{
    const enum way way = *(const enum way *)arg;
    static char out[128], in[128];
    int is_odd = t->rank == 1, step = way == OTHER_TAG && is_odd ? 4 : 3;
    int64_t n = way == LONGER && is_odd ? 100 : way == SHORTER && is_odd ? 7 : 64;
    if (way == RETURNS && is_odd)
        return attn_fail(err, ATTN_ENOMEM, "rank 1 of 4 has no memory");
    if (way == LEAVES && is_odd)
        return ATTN_OK;
    struct attn_piece sent[2] = {attn_piece_whole(n), attn_piece_whole(1)}, got[2];
    memcpy(got, sent, sizeof got);
    got[0].row = 64;
    int to = (t->rank + 1) % t->size, from = (t->rank + t->size - 1) % t->size;
    struct attn_message send = {.peer = to, .tag = attn_tag(ATTN_TAG_K, step), .data = out};
    struct attn_message receive = {.peer = from, .tag = attn_tag(ATTN_TAG_K, 3), .data = in};
    send.piece = sent, send.pieces = way == OTHER_PIECES && is_odd ? 2 : 1;
    receive.piece = got, receive.pieces = 1;
    int sends = way != DEADLOCK && !(way == LEAVES && to == 1); /* one rank alone can find it */
    return attn_exchange(t, &send, sends, &receive, 1, err);
}

static void test_failures(const struct attn_runner *patient, const struct attn_runner *hasty)
{
    for (enum way way = 0; way < WAYS; way++) {
        const struct attn_runner *runner = way == DEADLOCK ? hasty : patient;
        struct attn_ledger ledger;
        struct attn_error sim = {0}, mpi = {0};
        struct attn_rank_code code = {hop, &way};
        attn_ledger_init(&ledger, NULL);
        attn_sim_run(&ledger, 4, &code, &sim);
        double start = MPI_Wtime();
        runner->run(runner->state, 4, &code, &mpi);
        if (mpi.status != sim.status || strcmp(mpi.text, sim.text) != 0)
            fail(way_name[way], mpi.text, sim.text);
        expect(mpi.status != ATTN_OK && MPI_Wtime() - start < PATIENT / 2, "it ends in time");
        if (runner->rank == 0)
            printf("ok    rank 1 %s: %s\n", way_name[way], mpi.text);
    }
}

static enum attn_status never_posts(void *arg, struct attn_transport *t, struct attn_error *err)
{
    enum way way = OTHER_TAG;
    (void)arg;
    while (t->rank == 1)
        sleep(1);
    return hop(&way, t, err);
}

int main(int argc, char **argv)
{
    struct attn_runner runner, hasty;
    struct attn_error err = {0};
    MPI_Init(&argc, &argv);
    if (attn_mpi_open(PATIENT, give_up, &runner, &err) != ATTN_OK ||
        attn_mpi_open(HASTY, give_up, &hasty, &err) != ATTN_OK)
        fail("MPI", err.text, "");
    struct attn_rank_code lost = {never_posts, NULL}, code = {in_pieces, NULL};
    if (argc > 1)
        hasty.run(hasty.state, 4, &lost, &err);
    if (runner.run(runner.state, 4, &code, &err) != ATTN_OK)
        fail("pieces", err.text, "");
    test_large_types();
    int n = test_schemes(&runner);
    if (runner.rank == 0)
        printf("ok    %d runs of schemes: bits, messages and prices as simulated\n", n);
    test_failures(&runner, &hasty);
    attn_mpi_close(&hasty);
    attn_mpi_close(&runner);
    fflush(NULL);
    MPI_Finalize();
    return 0;
}
