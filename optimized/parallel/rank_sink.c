/* See rank_sink.h. */
#include "optimized/parallel/rank_sink.h"

#include <string.h>

#include "optimized/parallel/rank_runner.h"
#include "ref/sink.h"

void attn_rank_sink_buffers(const struct attn_problem *whole, const struct attn_layout *home,
                            enum attn_pass pass, int rank,
                            struct attn_buffer buffer[ATTN_SINK_BUFFERS])
{
    struct attn_box stored = attn_layout_stored_box(home, whole, 0, rank);
    memset(buffer, 0, ATTN_SINK_BUFFERS * sizeof *buffer);
    if (!whole->sink.given || pass == ATTN_FORWARD)
        return;
    buffer[ATTN_SINK_LSE] = attn_sink_lse(whole, attn_box_rows(&stored));
    buffer[ATTN_SINK_PARTS] =
        attn_buffer_of("sink.parts", home->ranks, whole->heads, sizeof(double));
}

struct attn_sent attn_rank_sink_sent(const struct attn_problem *whole, enum attn_pass pass,
                                     int ranks)
{
    int sends = whole->sink.given && pass == ATTN_BACKWARD && whole->heads > 0;
    int64_t messages = sends ? ranks - 1 : 0;
    return (struct attn_sent){messages * whole->heads * (int64_t)sizeof(double), messages};
}

/* A row at home: where it stands in the rank's tensors, and in the whole. */
struct row {
    int64_t at[3], whole[3];
};
typedef void row_step(const struct row *row, void *arg);

static void each_row(const struct attn_problem *whole, const struct attn_layout *home, int rank,
                     row_step *step, void *arg)
{
    struct attn_box box = attn_layout_box(home, whole, 0, rank);
    for (int64_t b = 0; b < box.batch; b++)
        for (int64_t h = 0; h < box.heads.n; h++)
            for (int64_t s = 0; s < attn_box_stretches(&box); s++) {
                struct attn_stretch stretch = attn_box_stretch(&box, s);
                for (int64_t t = 0; t < stretch.tokens.n; t++) {
                    const struct row row = {
                        {b, h, stretch.row + t},
                        {b, box.heads.first + h, stretch.tokens.first + stretch.tokens.step * t}};
                    step(&row, arg);
                }
            }
}

/* ---- forward --------------------------------------------------------------------------------- */

struct forward {
    const struct attn_problem *whole;
    const struct attn_view *mine;
};

static void forward_row(const struct row *row, void *arg)
{
    const struct forward *x = arg;
    attn_sink_row_forward(&x->mine[ATTN_TAG_O], &x->mine[ATTN_TAG_LSE], row->at, x->whole->d_value,
                          attn_sink_of(x->whole, row->whole[1]));
}

void attn_rank_sink_forward(const struct attn_rank *rank, const struct attn_problem *whole,
                            const struct attn_layout *home,
                            const struct attn_view mine[ATTN_TAG_KINDS])
{
    struct forward x = {whole, mine};
    if (whole->sink.given && !attn_transport_counts(rank->transport))
        each_row(whole, home, rank->transport->rank, forward_row, &x);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct backward {
    const struct attn_problem *whole;
    struct attn_backward t;
    struct attn_view lse; /* the copy */
    double *dz;           /* [heads] */
};

static void backward_row(const struct row *row, void *arg)
{
    struct backward *x = arg;
    const int64_t *at = row->at, h = row->whole[1];
    int sees = attn_problem_sees(x->whole, row->whole[0], h, row->whole[2]);
    double stored = attn_cview_get(&x->t.lse, at[0], at[1], at[2], 0);
    attn_view_set(&x->lse, at[0], at[1], at[2], 0, sees ? stored : -(double)INFINITY);
    x->dz[h] +=
        attn_sink_row_backward(&x->t, at, x->whole->d_value, attn_sink_of(x->whole, h), sees);
}

/* At step s rank r sends its part to rank r+s, and receives that of rank r-s. */
static enum attn_status exchange(const struct attn_rank *rank, double *parts, int64_t heads)
{
    struct attn_transport *t = rank->transport;
    const struct attn_piece piece = attn_piece_whole(heads * (int64_t)sizeof *parts);
    enum attn_status status = ATTN_OK;
    for (int s = 1; s < t->size && status == ATTN_OK && heads > 0; s++) {
        int previous = (t->rank - s + t->size) % t->size;
        struct attn_message send = {.peer = (t->rank + s) % t->size,
                                    .tag = attn_tag(ATTN_TAG_DSINK, s),
                                    .data = parts + t->rank * heads,
                                    .piece = &piece,
                                    .pieces = 1,
                                    .dtype = ATTN_F64};
        struct attn_message receive = send;
        receive.peer = previous;
        receive.data = parts + previous * heads;
        status = attn_exchange(t, &send, 1, &receive, 1, rank->error);
    }
    return status;
}

/* Of simulated ranks, which share the tensor, the first writes it. */
static void write_sum(const struct attn_rank *rank, const double *parts, int64_t heads,
                      const struct attn_view *dsink)
{
    if (dsink->data == NULL || (rank->options->runner == NULL && rank->transport->rank > 0))
        return;
    for (int64_t h = 0; h < heads; h++) {
        double dz = 0;
        for (int r = 0; r < rank->transport->size; r++)
            dz += parts[r * heads + h];
        attn_view_set(dsink, 0, h, 0, 0, dz);
    }
}

enum attn_status attn_rank_sink_backward(const struct attn_rank *rank,
                                         const struct attn_problem *whole,
                                         const struct attn_layout *home,
                                         const struct attn_buffer buffer[ATTN_SINK_BUFFERS],
                                         struct attn_view mine[ATTN_TAG_KINDS],
                                         const struct attn_view *dsink)
{
    int r = rank->transport->rank, computes = !attn_transport_counts(rank->transport);
    struct attn_box stored = attn_layout_stored_box(home, whole, 0, r);
    double *parts = (double *)(void *)buffer[ATTN_SINK_PARTS].data;
    struct backward x = {.whole = whole,
                         .t = {.o = attn_view_const(&mine[ATTN_TAG_O]),
                               .lse = attn_view_const(&mine[ATTN_TAG_LSE]),
                               .d_o = attn_view_const(&mine[ATTN_TAG_DO]),
                               .d_lse = attn_view_const(&mine[ATTN_TAG_DELTA])},
                         .lse = attn_packed_view(buffer[ATTN_SINK_LSE].data, attn_lse_dtype(whole),
                                                 stored.heads.n, stored.tokens, 1)};
    if (!whole->sink.given)
        return ATTN_OK;
    mine[ATTN_TAG_LSE] = x.lse;
    if (computes) {
        x.dz = parts + r * whole->heads;
        memset(x.dz, 0, (size_t)whole->heads * sizeof *x.dz);
        if (x.lse.data != NULL) /* pads are NaN, as in every shard */
            memset(x.lse.data, 0xFF, (size_t)attn_buffer_bytes(&buffer[ATTN_SINK_LSE]));
        each_row(whole, home, r, backward_row, &x);
    }
    enum attn_status status = exchange(rank, parts, whole->heads);
    if (status == ATTN_OK && computes)
        write_sum(rank, parts, whole->heads, dsink);
    return status;
}

enum attn_status attn_rank_sink_share(const struct attn_ctx *ctx, const struct attn_problem *whole,
                                      const struct attn_view *dsink)
{
    const struct attn_runner *runner = ctx->options->runner;
    enum attn_status status = ATTN_OK;
    int shares = runner != NULL && !ctx->has_shards && !ctx->counts_only && dsink->data != NULL;
    for (int64_t h = 0; h < whole->heads && shares && status == ATTN_OK; h++) {
        double z = attn_view_get(dsink, 0, h, 0, 0);
        status = runner->share(runner->state, 0, &z, sizeof z, ctx->error);
        attn_view_set(dsink, 0, h, 0, 0, z);
    }
    return status;
}
