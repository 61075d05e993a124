/* What a failing implementation did, learned from its numbers block by block and row by row: which
 * kv head and batch a head has read, and what delta a row of the backward has used. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/faults/fault_eval.h"

#include "tests/harness/faults/diagnose.h"

static const enum attn_slot slot_of[ATTN_OUTPUTS] = {ATTN_T_O,  ATTN_T_LSE, ATTN_T_DQ,
                                                     ATTN_T_DK, ATTN_T_DV,  ATTN_T_DBIAS};

int attn_row_is_right(const struct attn_failed_run *q, enum attn_output o, int64_t row)
{
    const struct attn_truth_tensor *t = &q->truth.tensor[o];
    struct attn_cview view = attn_tensor_cview(&q->setup->tensor[slot_of[o]]);
    int64_t width = t->extent[3], bh = row / t->extent[2], i = row % t->extent[2];
    for (int64_t c = 0; c < width && t->want != NULL; c++) {
        double got = attn_cview_get(&view, bh / t->extent[1], bh % t->extent[1], i, c);
        double want = t->want[row * width + c];
        int ok = fabs(got - want) <= t->bound[row * width + c] || got == want;
        if (!ok)
            return 0;
    }
    return 1;
}

/* ---- which kv head and batch ----------------------------------------------------------------- */

static int block_fails(const struct attn_failed_run *q, int64_t block)
{
    int64_t n = q->setup->problem.n_query;
    for (int64_t row = block * n; row < (block + 1) * n; row++)
        for (int o = ATTN_O; o <= ATTN_LSE; o++)
            if (q->failing[o] && !attn_row_is_right(q, (enum attn_output)o, row))
                return 1;
    return 0;
}

/* The kv head and batch with which a block fits; 0: with none. */
static int learn(struct attn_hypotheses *x, int64_t block, enum attn_model_of of, int64_t *g,
                 int64_t *kb)
{
    const struct attn_problem *p = &x->setup->problem;
    struct attn_failed_run one = *x->failed;
    struct attn_fault_model t;
    attn_fault_none(x->setup, &t);
    one.block = 1 + block;
    t.of = of;
    t.fixed = 1;
    for (*kb = 0; *kb < p->batch; ++*kb)
        for (*g = 0; *g < p->kv_heads; ++*g) {
            t.fixed_head = *g, t.fixed_batch = *kb;
            if (attn_fault_fits(&one, &t))
                return 1;
        }
    return 0;
}

/* Every failing block has read one kv head, if not its own. */
static int learn_all(struct attn_hypotheses *x, enum attn_model_of of, char *text, size_t size)
{
    static const char *const words[] = {"", " for K", " for V"};
    const struct attn_problem *p = &x->setup->problem;
    int64_t ratio = p->heads / p->kv_heads, g, kb;
    int batches = 0, blocks = 0;
    size_t n = 0;
    for (int64_t block = 0; block < p->batch * p->heads; block++) {
        int64_t h = block % p->heads;
        g = h / ratio, kb = block / p->heads;
        if (block_fails(x->failed, block)) {
            if (!learn(x, block, of, &g, &kb))
                return 0;
            blocks++;
            batches += kb != block / p->heads;
        }
        if (block / p->heads == p->batch - 1 && n + 8 < size)
            n += (size_t)snprintf(text + n, size - n, " %lld", (long long)g);
    }
    if (blocks == 0)
        return 0;
    if (batches > 0)
        snprintf(x->text, x->size, "fits K and V of another batch%s in %d of %d blocks", words[of],
                 batches, (int)(p->batch * p->heads));
    else
        snprintf(x->text, x->size, "fits heads mapped%s%s (right: h / %lld)", text, words[of],
                 (long long)ratio);
    return 1;
}

int attn_hypothesis_blocks(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    char text[120] = "";
    if (x->failed->backward || p->heads == 0 || p->batch * p->kv_heads < 2)
        return 0;
    for (int of = ATTN_MODEL_K_AND_V; of <= ATTN_MODEL_V; of++)
        if (learn_all(x, (enum attn_model_of)of, text, sizeof text))
            return 1;
    return 0;
}

/* ---- delta ----------------------------------------------------------------------------------- */

/* dS is linear in delta, and so is a row of dQ: got = A - delta B with A = sum P dP k, B = sum P k
 * (scaled, and bent by the softcap).  So the delta that was used can be told, and whether anything
 * else is wrong too.  room: 2 d numbers. */
static int row_has_delta(struct fault_eval *x, int64_t b, int64_t h, int64_t i, double *room,
                         double *delta)
{
    const struct attn_problem *p = x->p;
    int64_t row = (b * p->heads + h) * p->n_query + i, g = h / (p->heads / p->kv_heads);
    double lse = x->q->truth.tensor[ATTN_LSE].want[row], *A = room, *B = room + p->d_key;
    double top = 0, bottom = 0;
    memset(room, 0, 2 * (size_t)p->d_key * sizeof *room);
    attn_eval_scores(x, b, h, i);
    for (int64_t j = 0; j < p->n_key; j++) {
        if (x->s[j] == -(double)INFINITY)
            continue;
        double dp = 0, y = p->softcap > 0 ? tanh(x->raw[j] / p->softcap) : 0;
        double weight = exp(x->s[j] - lse) * (1 - y * y) * p->scale;
        for (int64_t c = 0; c < p->d_value; c++)
            dp += attn_cview_get(&x->view[ATTN_T_DO], b, h, i, c) *
                  attn_cview_get(&x->view[ATTN_T_V], b, g, j, c);
        for (int64_t c = 0; c < p->d_key; c++) {
            double k = attn_cview_get(&x->view[ATTN_T_K], b, g, j, c);
            A[c] += weight * dp * k;
            B[c] += weight * k;
        }
    }
    for (int64_t c = 0; c < p->d_key; c++) {
        top += (A[c] - attn_cview_get(&x->view[ATTN_T_DQ], b, h, i, c)) * B[c];
        bottom += B[c] * B[c];
    }
    *delta = bottom > 0 ? top / bottom : 0;
    for (int64_t c = 0; c < p->d_key; c++)
        A[c] -= *delta * B[c];
    return bottom > 0 && isfinite(*delta) && attn_eval_row_fits(x, ATTN_DQ, b, h, i, A);
}

int attn_hypothesis_delta(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    struct attn_fault_model t;
    struct fault_eval evaluation;
    int64_t wrong = 0;
    int ok = x->failed->backward && x->failed->failing[ATTN_DQ] && p->d_key > 1;
    double *room = ok ? calloc(2 * (size_t)p->d_key, sizeof *room) : NULL, delta, one = 0;
    if (room == NULL)
        return 0;
    attn_fault_none(x->setup, &t);
    ok = attn_eval_open(&evaluation, x->failed, &t);
    for (int64_t row = 0; row < p->batch * p->heads * p->n_query && ok; row++) {
        if (attn_row_is_right(x->failed, ATTN_DQ, row))
            continue;
        int64_t bh = row / p->n_query;
        ok = row_has_delta(&evaluation, bh / p->heads, bh % p->heads, row % p->n_query, room,
                           &delta);
        one = wrong++ == 0 ? delta : one;
    }
    ok = ok && wrong > 0 && attn_eval_explains(&evaluation);
    attn_eval_close(&evaluation);
    free(room);
    if (!ok)
        return 0;
    snprintf(x->text, x->size,
             "fits a wrong delta in %lld rows (%.4g in the first), and nothing else wrong",
             (long long)wrong, one);
    return 1;
}

/* ---- a factor, a term ------------------------------------------------------------------------ */

/* What an output would be of the truth: times a number, plus a number. */
struct line {
    double factor, term;
};

/* Is every element on the line, and do several of those that are wrong speak for it?  A single one
 * is on some line always. */
static int is_on(const struct attn_failed_run *q, enum attn_output o, const struct line *line)
{
    const struct attn_truth_tensor *t = &q->truth.tensor[o];
    struct attn_cview view = attn_tensor_cview(&q->setup->tensor[slot_of[o]]);
    int64_t width = t->extent[3], wrong = 0, apart = 0;
    for (int64_t n = 0; n < t->extent[0] * t->extent[1] * t->extent[2] * width; n++) {
        int64_t row = n / width, bh = row / t->extent[2];
        double want = t->want[n], bound = t->bound[n],
               got = attn_cview_get(&view, bh / t->extent[1], bh % t->extent[1], row % t->extent[2],
                                    n % width);
        double told = isinf(want) ? want : line->factor * want + line->term;
        double room = 4 * bound * fmax(1, fabs(line->factor)) + q->loose * fabs(told);
        int is_right = fabs(got - want) <= bound || got == want;
        if (isinf(bound))
            continue;
        if (!(fabs(got - told) <= room || got == told))
            return 0;
        wrong += !is_right;
        apart += !is_right && fabs(got - told) < fabs(got - want) / 4;
    }
    return apart >= 4 && 2 * apart >= wrong;
}

/* The factor, or else the term, that comes closest. */
static struct line line_of(const struct attn_failed_run *q, enum attn_output o, int is_factor)
{
    const struct attn_truth_tensor *t = &q->truth.tensor[o];
    struct attn_cview view = attn_tensor_cview(&q->setup->tensor[slot_of[o]]);
    int64_t width = t->extent[3];
    double top = 0, bottom = 0, difference = 0, n_finite = 0;
    for (int64_t n = 0; n < t->extent[0] * t->extent[1] * t->extent[2] * width; n++) {
        int64_t row = n / width, bh = row / t->extent[2];
        double want = t->want[n], got = attn_cview_get(&view, bh / t->extent[1], bh % t->extent[1],
                                                       row % t->extent[2], n % width);
        if (!isfinite(want) || !isfinite(got) || isinf(t->bound[n]))
            continue;
        top += got * want, bottom += want * want;
        difference += got - want, n_finite++;
    }
    return is_factor ? (struct line){bottom > 0 ? top / bottom : 1, 0}
                     : (struct line){1, n_finite > 0 ? difference / n_finite : 0};
}

/* What a factor may be. */
static const char *origin_of(const struct attn_problem *p, double factor)
{
    double root = p->d_key > 0 ? 1 / sqrt((double)p->d_key) : 1;
    return fabs(factor - p->scale) <= 1e-3 * fabs(p->scale) ? " (the scale)"
           : fabs(factor * p->scale - 1) <= 1e-3            ? " (1 / the scale)"
           : fabs(factor - root) <= 1e-3 * root             ? " (a scale of 1/sqrt(d))"
                                                            : "";
}

/* One output; returns whether it is on a line.  LSE has terms where O has factors. */
static int put_line(const struct attn_failed_run *q, enum attn_output o, char *text, size_t size)
{
    for (int way = 0; way < 2; way++) {
        int is_factor = (o != ATTN_LSE) == (way == 0);
        struct line line = line_of(q, o, is_factor);
        if (line.factor == 0 || !is_on(q, o, &line))
            continue;
        if (is_factor)
            snprintf(text, size, "%s times %.4g%s", attn_output_name(o), line.factor,
                     origin_of(&q->setup->problem, line.factor));
        else
            snprintf(text, size, "%s %.4g too %s", attn_output_name(o), fabs(line.term),
                     line.term > 0 ? "large" : "small");
        return 1;
    }
    return 0;
}

int attn_hypothesis_lines(struct attn_hypotheses *x)
{
    const struct attn_failed_run *q = x->failed;
    char part[80];
    size_t used = 0;
    for (int o = q->backward ? ATTN_DQ : ATTN_O; o < (q->backward ? ATTN_OUTPUTS : ATTN_DQ); o++) {
        if (!q->failing[o] || q->truth.tensor[o].want == NULL)
            continue;
        if (!put_line(q, (enum attn_output)o, part, sizeof part))
            return 0;
        used += (size_t)snprintf(x->text + used, x->size - used, "%s %s",
                                 used == 0 ? "fits" : " and", part);
    }
    return used > 0;
}
