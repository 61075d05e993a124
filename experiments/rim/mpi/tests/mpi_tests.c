/* Ranks that are processes against simulated ones: mpirun -n 4 mpi-tests, of which every process
 * does both.
 *
 *      mpi-tests         datatypes above 2 GiB; the same results, messages and prices of every
 *                        scheme; the same line when something fails
 *      mpi-tests lost    rank 1 never answers: the others end the run
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/rim/mpi/transport/mpi_type.h"
#include "experiments/rim/mpi/transport/transport_mpi.h"
#include "optimized/parallel/transport/transport_sim.h"
#include "optimized/registry.h"
#include "tests/harness/inputs/setup.h"

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

enum { RANKS = 4, MOST_NOTES = 4096 };

/* Of a forward and a backward call: all results, what ranks used, and what one of them sent. */
struct outcome {
    uint64_t digest;
    struct attn_rank_use use[2][RANKS];
    int rank, notes;
    struct attn_note note[MOST_NOTES];
};

static void keep_note(void *arg, const struct attn_note *note)
{
    struct outcome *x = arg;
    if (note->source == x->rank && x->notes < MOST_NOTES)
        x->note[x->notes++] = *note;
}

static void run_scheme(struct attn_setup *setup, const struct attn_spec *spec, int rank,
                       struct outcome *x)
{
    struct attn_ledger ledger;
    struct attn_error err = {0};
    const struct attn_log log = {.note = keep_note, .arg = x};
    attn_ledger_init(&ledger, NULL);
    memset(x, 0, sizeof *x);
    x->rank = rank;
    attn_setup_poison(setup);
    for (int pass = 0; pass < 2; pass++) {
        struct attn_ctx ctx = {.ledger = &ledger,
                               .options = &spec->options,
                               .error = &err,
                               .ranks = x->use[pass],
                               .log = &log};
        if (attn_setup_call(setup, spec->impl, &ctx, (enum attn_pass)pass) != ATTN_OK)
            fail(spec->impl->name, err.text, "results");
    }
    x->digest = attn_setup_digest(setup, NULL, ATTN_BACKWARD);
    expect(attn_ledger_clear(&ledger) == 0, "all is given back");
}

static void expect_same(const struct outcome *a, const struct outcome *b)
{
    expect(a->digest == b->digest, "the same bits");
    expect(a->notes == b->notes && a->notes < MOST_NOTES, "as many messages");
    for (int n = 0; n < a->notes; n++) {
        const struct attn_note *x = &a->note[n], *y = &b->note[n];
        expect(x->pass == y->pass && x->step == y->step && x->destination == y->destination &&
                   x->bytes == y->bytes && strcmp(x->tensor, y->tensor) == 0,
               "the same messages in the same order");
    }
    for (int n = 0; n < 2 * RANKS; n++) {
        const struct attn_rank_use *x = &a->use[n / RANKS][n % RANKS],
                                   *y = &b->use[n / RANKS][n % RANKS];
        expect(x->peak_bytes == y->peak_bytes && x->bytes_sent == y->bytes_sent &&
                   x->messages == y->messages && x->n_live == y->n_live,
               "every rank has taken and sent as much");
        for (int l = 0; l < x->n_live; l++)
            expect(strcmp(x->live[l].name, y->live[l].name) == 0, "in the same buffers");
    }
}

/* 0: the simulation refuses it. */
static int test_scheme(const char *text, const char *case_text, const struct attn_runner *runner)
{
    static struct outcome sim, mpi;
    static struct attn_setup setup;
    struct attn_spec spec;
    struct attn_case c;
    struct attn_cost cost;
    struct attn_error err = {0};
    if (attn_spec_parse(text, &spec, &err) != ATTN_OK)
        return 0;
    if (attn_case_parse(case_text, &c, &err) != ATTN_OK ||
        attn_setup_open(&c, &setup, &err) != ATTN_OK)
        fail(case_text, err.text, "a case");
    int runs = attn_price(spec.impl, &spec.options, &setup.problem, ATTN_BACKWARD, 0, &cost,
                          &err) == ATTN_OK;
    if (runs) {
        run_scheme(&setup, &spec, runner->rank, &sim);
        spec.options.runner = runner;
        run_scheme(&setup, &spec, runner->rank, &mpi);
        expect_same(&sim, &mpi);
    }
    attn_setup_close(&setup);
    return runs;
}

/* Each on what it accepts of this; how many runs that were. */
static int test_schemes(const struct attn_runner *runner)
{
    static const char *const option[] = {"ranks=4", "ranks=3", "ranks=4,sizes=pad"};
    static const char *const text[] = {"b2h4g2q24d5:causal(br):f32:normal:s1:pass=bwd",
                                       "b2h4q24d5:causal(br):f32:normal:s1:pass=bwd",
                                       "b2h4g2q23d5:causal(br):bf16:normal:s1:pass=bwd",
                                       "b2h4q24d5:temporal(2,3,4):f32:normal:s1:pass=bwd"};
    int n = 0;
    for (int i = 0; i < attn_impl_count(); i++) {
        const struct attn_impl *impl = attn_impl_at(i);
        int runs = 0;
        for (int o = 0; o < 12 && impl->ranks != NULL; o++) {
            char spec[128];
            snprintf(spec, sizeof spec, "%s:%s", impl->name, option[o % 3]);
            runs += test_scheme(spec, text[o / 3], runner);
        }
        expect(runs > 0 || impl->ranks == NULL, impl->name);
        n += runs;
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
        struct attn_rank_code code = {hop, &way, 0};
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
    struct attn_rank_code lost = {never_posts, NULL, 0};
    if (argc > 1)
        hasty.run(hasty.state, 4, &lost, &err);
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
