/* Figures against the number of ranks: memory of a rank, bytes sent. */
#include <math.h>
#include <string.h>

#include "experiments/report/figure_fill.h"
#include "optimized/registry.h"
#include "ref/mask/mask.h"

static const double none = (double)NAN; /* the macro is a float */

enum attn_status attn_fill_rank_memory(const struct attn_slice *slice,
                                       const struct attn_figure_machine *machine,
                                       struct attn_plot *plot, struct attn_figure *figure,
                                       struct attn_error *err)
{
    static const char *const column[] = {"priced_bytes", "ledger_bytes", "ideal_bytes"};
    int place[2];
    double first[ATTN_PLOT_PANELS][ATTN_PLOT_SERIES] = {{0}};
    enum attn_status status = ATTN_OK;
    (void)machine;
    figure->caption =
        "Peak extra memory of the fullest rank. Line: priced; marker: that rank's own ledger. "
        "Dotted grey: the value at P = 2, falling as 1/P; a scheme that splits all of its extra "
        "memory would follow it. One rank alone has no neighbours to keep buffers for, so the "
        "guide does not start there.";
    attn_fill_columns(plot, 3, column);
    attn_fill_words(plot, "Peak extra memory of a rank against the number of ranks", "ranks P",
                    "peak extra memory of the fullest rank");
    plot->x_axis = ATTN_AXIS_RANKS;
    plot->y_axis = ATTN_AXIS_BYTES;
    (void)snprintf(
        plot->key_extra, sizeof plot->key_extra,
        "Line: priced. Filled: ledger. Dotted grey: the value at P = 2, falling as 1/P.");
    attn_fill_passes(slice, plot, place);
    for (int64_t s = 0; status == ATTN_OK && s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        const struct attn_point *p = row->point;
        char label[128];
        if (row->status != ATTN_POINT_OK || row->ledger <= 0)
            continue;
        attn_spec_without_ranks(p->spec, label);
        int series = attn_plot_series(plot, label, row->impl);
        if (series < 0)
            continue;
        double *whole = &first[place[p->c.pass]][series];
        if (!(*whole > 0) && p->ranks >= 2)
            *whole = (double)row->ledger * p->ranks;
        double y[] = {attn_fill_bytes(row->priced), attn_fill_bytes(row->ledger),
                      *whole / p->ranks};
        status = attn_plot_add(plot, place[p->c.pass], series, p->ranks, y, err);
    }
    return status;
}

static enum attn_status price_sent(const struct attn_spec *spec, const struct attn_case *c,
                                   const struct attn_mask *mask, int64_t *sent)
{
    struct attn_problem problem = {
        .batch = c->batch,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .n_query = c->n_query,
        .n_key = c->n_key,
        .d_key = c->d_key,
        .d_value = c->d_value,
        .scale = isnan(c->scale) ? 1 / sqrt((double)(c->d_key > 0 ? c->d_key : 1)) : c->scale,
        .softcap = c->softcap,
        .dtype = c->dtype,
        .mask = mask};
    enum attn_status status = ATTN_OK;
    for (int rank = 0; status == ATTN_OK && rank < attn_ranks(spec->impl, &spec->options); rank++) {
        struct attn_cost cost;
        status = attn_price(spec->impl, &spec->options, &problem, c->pass, rank, &cost, NULL);
        if (status == ATTN_OK && cost.bytes_sent > *sent)
            *sent = cost.bytes_sent;
    }
    return status;
}

int64_t attn_figure_priced_sent(const char *text, const struct attn_case *c)
{
    struct attn_spec spec;
    struct attn_mask *mask = NULL;
    struct attn_mask_shape shape = {c->batch, c->heads, c->n_query, c->n_key};
    int64_t sent = -1;
    if (c->bias != ATTN_CASE_BIAS_NONE || attn_spec_parse(text, &spec, NULL) != ATTN_OK ||
        attn_mask_parse(c->mask, &shape, NULL, &mask, NULL) != ATTN_OK)
        return -1;
    if (price_sent(&spec, c, mask, &sent) != ATTN_OK)
        sent = -1;
    attn_mask_free(mask);
    return sent;
}

/* Each P is priced for each of its ranks; a file may claim any number of them. */
enum { PRICED_RANKS = 256 };

/* The formula between the measured numbers of ranks, wherever they divide the problem. */
static enum attn_status add_priced_sent(const struct attn_row *row, const char *label, int panel,
                                        int series, int most, struct attn_plot *plot,
                                        struct attn_error *err)
{
    enum attn_status status = ATTN_OK;
    for (int ranks = 1; status == ATTN_OK && ranks <= most && ranks <= PRICED_RANKS; ranks++) {
        char spec[192];
        (void)snprintf(spec, sizeof spec, "%s%cranks=%d", label,
                       strchr(label, ':') != NULL ? ',' : ':', ranks);
        double y[] = {attn_fill_bytes(attn_figure_priced_sent(spec, &row->point->c)), none};
        if (!isnan(y[0]))
            status = attn_plot_add(plot, panel, series, ranks, y, err);
    }
    return status;
}

enum attn_status attn_fill_bytes_sent(const struct attn_slice *slice,
                                      const struct attn_figure_machine *machine,
                                      struct attn_plot *plot, struct attn_figure *figure,
                                      struct attn_error *err)
{
    static const char *const column[] = {"priced_bytes", "counted_bytes"};
    int place[2], most = 1;
    int priced[ATTN_PLOT_PANELS][ATTN_PLOT_SERIES] = {{0}};
    enum attn_status status = ATTN_OK;
    (void)machine;
    figure->caption =
        "Bytes that the busiest rank sends to others in one call. Line: the priced formula, at "
        "every P that divides the problem; marker: what the transport counted. One rank sends "
        "nothing and has no place on a logarithmic axis.";
    attn_fill_columns(plot, 2, column);
    attn_fill_words(plot, "Bytes sent by a rank against the number of ranks", "ranks P",
                    "bytes sent by the busiest rank");
    plot->x_axis = ATTN_AXIS_RANKS;
    plot->y_axis = ATTN_AXIS_BYTES;
    (void)snprintf(plot->key_extra, sizeof plot->key_extra,
                   "Line: priced formula. Filled: counted by the transport.");
    attn_fill_passes(slice, plot, place);
    for (int64_t s = 0; s < slice->n; s++)
        most = slice->row[s]->point->ranks > most ? slice->row[s]->point->ranks : most;
    for (int64_t s = 0; status == ATTN_OK && s < slice->n; s++) {
        const struct attn_row *row = slice->row[s];
        const struct attn_point *p = row->point;
        char label[128];
        if (row->status != ATTN_POINT_OK || p->ranks < 2)
            continue;
        attn_spec_without_ranks(p->spec, label);
        int panel = place[p->c.pass], series = attn_plot_series(plot, label, row->impl);
        if (series < 0)
            continue;
        if (!priced[panel][series])
            status = add_priced_sent(row, label, panel, series, most, plot, err);
        priced[panel][series] = 1;
        double y[] = {none, attn_fill_bytes(p->bytes_sent)};
        if (status == ATTN_OK)
            status = attn_plot_add(plot, panel, series, p->ranks, y, err);
    }
    return status;
}
