/* See failed_run.h. */
#include "tests/harness/diagnosis/failed_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/inputs/setup_mask.h"

/* ---- the mask, taken apart ------------------------------------------------------------------- */

/* The band of one call, causal(A) or window(l,r,A). */
static struct attn_fault_band band_of(const struct attn_mask *mask)
{
    struct attn_mask_call call, more;
    if (!attn_mask_call(mask, 0, 0, &call) || call.kind != ATTN_CALL_BAND ||
        attn_mask_call(mask, 0, 1, &more))
        return (struct attn_fault_band){.kind = ATTN_BAND_NONE};
    return (struct attn_fault_band){.kind = call.left < 0 && call.right == 0 ? ATTN_BAND_CAUSAL
                                                                             : ATTN_BAND_WINDOW,
                                    .offset = call.length < 0 ? call.offset : 0,
                                    .left = call.left < 0 ? ATTN_NO_END : call.left,
                                    .right = call.right < 0 ? ATTN_NO_END : call.right};
}

/* The length of the text up to the next & or | outside of parentheses. */
static size_t part_length(const char *text)
{
    int depth = 0;
    size_t n = 0;
    while (text[n] != '\0' && (depth > 0 || strchr("&|", text[n]) == NULL)) {
        depth += (text[n] == '(') - (text[n] == ')');
        n++;
    }
    return n;
}

static void close_parts(struct attn_failed_run *run)
{
    while (run->parts > 0)
        attn_mask_free(run->part[--run->parts].mask);
    attn_made_tensor_free(run->made);
    run->made = NULL;
}

/* Take the mask apart at its & and |. */
static void open_parts(struct attn_failed_run *run)
{
    const struct attn_problem *p = &run->setup->problem;
    struct attn_problem of_part;
    struct attn_case c = run->setup->given;
    struct attn_mask_maker maker = {&run->setup->given, &run->made};
    const struct attn_mask_source source = {attn_made_tensor_find, &maker};
    const char *const whole = p->mask != NULL ? attn_mask_text(p->mask) : "", *text = whole;
    int ok = 1, is_and = 0;
    run->is_masked = *whole != '\0' && strcmp(whole, "none") != 0;
    while (*text != '\0' && ok && run->parts < ATTN_PARTS) {
        struct attn_mask_part *part = &run->part[run->parts++];
        size_t n = part_length(text);
        snprintf(part->text, sizeof part->text, "%.*s", (int)n, text);
        part->is_or = text[n] == '|';
        part->is_and = is_and || text[n] == '&' || n == strlen(whole);
        is_and = text[n] == '&';
        attn_case_set_mask(&c, part->text);
        ok = attn_case_open(&c, &source, &of_part, &part->mask, NULL) == ATTN_OK;
        part->band = band_of(part->mask);
        text += n + (text[n] != '\0');
    }
    if (!ok || *text != '\0')
        close_parts(run);
}

/* ---- numbers --------------------------------------------------------------------------------- */

double *attn_packed_numbers(const struct attn_cview *view, const int64_t n[4])
{
    double *to = malloc((size_t)(n[0] * n[1] * n[2] * n[3] + 1) * sizeof *to), *next = to;
    int64_t at[4] = ATTN_START;
    while (to != NULL && attn_each(at, n))
        *next++ = attn_cview_get(view, at[0], at[1], at[2], at[3]);
    return to;
}

int64_t attn_run_rows(const struct attn_failed_run *run, enum attn_output o)
{
    const int64_t *n = run->truth.tensor[o].extent;
    return n[0] * n[1] * n[2];
}

int attn_run_element_is_right(const struct attn_failed_run *run, enum attn_output o, int64_t n)
{
    const struct attn_truth_tensor *t = &run->truth.tensor[o];
    double got = run->x[ATTN_T_O + o][n];
    unsigned is = attn_class_of(got), right = t->right != NULL ? t->right[n] : 0;
    return (right & is && !(is & ATTN_CLASS_FINITE && isfinite(t->want[n]))) ||
           fabs(got - t->want[n]) <= t->bound[n] || got == t->want[n];
}

int attn_run_row_is_right(const struct attn_failed_run *run, enum attn_output o, int64_t row)
{
    int64_t width = run->truth.tensor[o].extent[3];
    for (int64_t n = row * width; n < (row + 1) * width && run->truth.tensor[o].want != NULL; n++)
        if (!attn_run_element_is_right(run, o, n))
            return 0;
    return 1;
}

void attn_run_close(struct attn_failed_run *run)
{
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        free(run->x[slot]);
    attn_truth_free(&run->truth);
    close_parts(run);
}

int attn_run_open(struct attn_failed_run *run, const struct attn_setup *s,
                  const struct attn_precision *precision)
{
    struct attn_inputs in = attn_setup_inputs(s, s->given.pass);
    struct attn_error err = {0};
    int ok = attn_truth_compute(&s->problem, &in, precision, NULL, &run->truth, &err) == ATTN_OK;
    run->setup = s;
    run->precision = precision;
    run->loose = s->problem.dtype == ATTN_F64 ? 1e-11 : 2e-5;
    for (int slot = 0; slot < ATTN_SLOTS && ok; slot++) {
        const struct attn_truth_tensor *t =
            slot >= ATTN_T_O ? &run->truth.tensor[slot - ATTN_T_O] : NULL;
        const int64_t *n = t != NULL ? t->extent : s->tensor[slot].extent;
        if (s->tensor[slot].data == NULL || (t != NULL && t->want == NULL))
            continue;
        memcpy(run->extent[slot], n, sizeof run->extent[slot]);
        const struct attn_cview view = attn_tensor_cview(&s->tensor[slot]);
        run->x[slot] = attn_packed_numbers(&view, n);
        ok = run->x[slot] != NULL;
    }
    open_parts(run);
    if (!ok)
        attn_run_close(run);
    return ok;
}
