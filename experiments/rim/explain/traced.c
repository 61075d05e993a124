/* See traced.h. */
#include "experiments/rim/explain/traced.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "ref/problem.h"

static const struct attn_step_kind kinds[] = {
#define QUERIES                           ATTN_ROWS_QUERIES
#define KEYS                              ATTN_ROWS_KEYS
#define ELEMENTS                          ATTN_ROWS_ELEMENTS
#define PAIRS                             ATTN_ROWS_PAIRS
#define GRID                              ATTN_ROWS_GRID
#define OPENS                             ATTN_STEP_OPENS
#define BY_KEY                            ATTN_STEP_BY_KEY
#define INNER                             ATTN_STEP_INNER
#define ENDS                              ATTN_STEP_ENDS
#define STEP(name, rows, flags, sentence) {name, rows, flags, sentence},
#include "experiments/rim/explain/steps.def"
};

static const struct attn_step_kind *kind_of(const char *name)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (strcmp(kinds[k].name, name) == 0)
            return &kinds[k];
    return NULL;
}

/* ---- copying --------------------------------------------------------------------------------- */

/* Element e of numbers of any type that is shown. */
static double number(const struct attn_trace_value *shown, int64_t e)
{
    const char *at = (const char *)shown->data + e * shown->size;
    union {
        float f32;
        double f64;
        int8_t i8;
        int32_t i32;
        int64_t i64;
    } x;
    memcpy(&x, at, (size_t)shown->size);
    if (!shown->is_whole)
        return shown->size == 8 ? x.f64 : (double)x.f32;
    return shown->size == 8 ? (double)x.i64 : shown->size == 4 ? (double)x.i32 : (double)x.i8;
}

static struct attn_traced_matrix copy(const struct attn_trace_value *shown)
{
    int64_t rows = shown->rows, columns = shown->columns;
    struct attn_traced_matrix x = {shown->name, rows, columns, shown->size, shown->is_whole, NULL};
    x.value = attn_cli_need(calloc((size_t)(rows * columns) + 1, sizeof *x.value));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            x.value[r * columns + c] = number(shown, r * shown->ld + c);
    return x;
}

static void on_step(void *arg, const struct attn_trace_step *at)
{
    struct attn_trace *trace = arg;
    const struct attn_step_kind *kind = kind_of(at->step);
    pthread_mutex_lock(&trace->lock);
    if (kind == NULL || at->n_shown > ATTN_TRACE_MATRICES) {
        trace->unknown = trace->unknown == NULL ? at->step : trace->unknown;
    } else {
        if (trace->n == trace->capacity) {
            trace->capacity = 2 * trace->capacity + 64;
            trace->step =
                attn_cli_need(realloc(trace->step, (size_t)trace->capacity * sizeof *trace->step));
        }
        struct attn_traced_step *step = &trace->step[trace->n];
        *step = (struct attn_traced_step){
            .kind = kind, .pass = trace->pass, .at = *at, .order = trace->n++};
        step->at.shown = NULL;
        for (; step->n < at->n_shown; step->n++)
            step->matrix[step->n] = copy(&at->shown[step->n]);
    }
    pthread_mutex_unlock(&trace->lock);
}

void attn_trace_open(struct attn_trace *trace)
{
    *trace = (struct attn_trace){.tracer = {on_step, trace}};
    pthread_mutex_init(&trace->lock, NULL);
}

void attn_trace_close(struct attn_trace *trace)
{
    for (int64_t s = 0; s < trace->n; s++)
        for (int m = 0; m < trace->step[s].n; m++)
            free(trace->step[s].matrix[m].value);
    free(trace->step);
    pthread_mutex_destroy(&trace->lock);
    *trace = (struct attn_trace){0};
}

/* ---- order ----------------------------------------------------------------------------------- */

static int by_hop(const void *a, const void *b)
{
    const struct attn_traced_step *x = a, *y = b;
    const int64_t key[][2] = {{(int64_t)x->pass, (int64_t)y->pass},
                              {x->at.hop, y->at.hop},
                              {x->at.rank, y->at.rank},
                              {x->order, y->order}};
    for (size_t k = 0; k < sizeof key / sizeof *key; k++)
        if (key[k][0] != key[k][1])
            return key[k][0] < key[k][1] ? -1 : 1;
    return 0;
}

enum attn_status attn_trace_sort(struct attn_trace *trace, int has_ranks, struct attn_error *err)
{
    if (trace->unknown != NULL)
        return attn_fail(
            err, ATTN_EINTERNAL,
            "step '%s' is not in experiments/rim/explain/steps.def, or shows more than %d "
            "things",
            trace->unknown, ATTN_TRACE_MATRICES);
    if (has_ranks && trace->n > 0)
        qsort(trace->step, (size_t)trace->n, sizeof *trace->step, by_hop);
    return ATTN_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

void attn_trace_add(struct attn_trace *trace, const struct attn_trace_step *at, int64_t rows,
                    const char *const *names, const struct attn_cview *view, const int64_t *columns,
                    int n)
{
    struct attn_trace_value shown[ATTN_TRACE_MATRICES];
    double *copies[ATTN_TRACE_MATRICES];
    struct attn_trace_step step = *at;
    for (int m = 0; m < n; m++) {
        copies[m] = attn_cli_need(calloc((size_t)(rows * columns[m]) + 1, sizeof *copies[m]));
        for (int64_t e = 0; e < rows * columns[m]; e++)
            copies[m][e] = attn_cview_get(&view[m], at->batch, at->head, at->query + e / columns[m],
                                          e % columns[m]);
        shown[m] = (struct attn_trace_value){names[m],   copies[m],      rows, columns[m],
                                             columns[m], sizeof(double), 0};
    }
    step.key = step.query;
    step.shown = shown;
    step.n_shown = n;
    on_step(trace, &step);
    for (int m = 0; m < n; m++)
        free(copies[m]);
}
