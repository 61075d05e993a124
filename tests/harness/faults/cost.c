/* See cost.h. */
#include "tests/harness/faults/cost.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness/faults/faults.h"
#include "tests/harness/files/fileio.h"

/* Shape and mask; fill, seed and fields: between them stands the type. */
static const struct {
    const char *problem, *rest;
} asked[] = {{"h2q19d8:none", "normal:s1"},
             {"q36d8:none", "stairs-up:s2"},
             {"h2q12d8:none", "offset-120:s3"},
             {"b2h2q18d8:causal(tl)", "normal:s4:scale=0.4"},
             {"b2h6g2q9d8:none", "normal:s5:scale=0.4"},
             {"b2h4g2q12k19d12v8:causal(br)", "normal:s6"},
             {"b2h2q19k12d8:causal(br)", "normal:s7"},
             {"h4g2q18d8:window(5,2,br)", "normal:s8"},
             {"b2h4g2q9k21d8:dense(bhqk50)", "normal:s9"},
             {"h4g2q9k19d8:none", "normal:s10:softcap=1.5"},
             {"b2h4g2q9k12d8:none", "normal:s11:bias=full:dbias=1"},
             {"h4g2q18d8:causal(br)", "normal:s12:bias=alibi"},
             {"h4g2q12k19d8:none", "normal:s13:dlse=1"}};

enum { MOST_ROWS = 400, MOST_OF_ROW = 3 /* hypotheses of a row, in one pass */ };

/* What is known of each row of faults.def. */
struct count {
    const struct attn_claims *claims;
    const struct attn_spec *spec;
    unsigned known[MOST_ROWS]; /* bits of attn_reach */
    char words[MOST_ROWS][60];
};

/* Results that are right, as the problem stores them. */
static void put_truth(struct attn_setup *s, struct attn_failed_run *run)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_truth_tensor *t = &run->truth.tensor[o];
        int64_t at[4] = ATTN_START;
        run->compared[o] = run->failing[o] = t->want != NULL;
        for (int64_t n = 0; t->want != NULL && attn_each(at, t->extent); n++) {
            attn_tensor_set(&s->tensor[ATTN_T_O + o], at[0], at[1], at[2], at[3], t->want[n]);
            run->x[ATTN_T_O + o][n] = t->want[n];
            run->reach->size[o] =
                fmax(run->reach->size[o], isfinite(t->want[n]) ? fabs(t->want[n]) : 0);
        }
    }
}

/* Every model that is not known to exceed both bounds yet, in one pass. */
static void ask(struct attn_failed_run *run, struct count *x)
{
    const unsigned both = ATTN_EXCEEDS | ATTN_EXCEEDS_OTHER;
    struct attn_hypothesis h = {0};
    int row = -1, of_row = 0;
    while (attn_hypothesis_next(run, &h)) {
        of_row = h.row == row ? of_row + 1 : 0, row = h.row;
        if (of_row == MOST_OF_ROW || h.kind == ATTN_FAULT_PRECISION || h.row >= MOST_ROWS ||
            (x->known[h.row] & both) == both) {
            attn_hypothesis_skip(&h);
            continue;
        }
        run->reach->found = 0;
        attn_fault_fits(run, &h.model);
        if (run->reach->found != 0 && x->known[h.row] == 0)
            snprintf(x->words[h.row], sizeof *x->words, "%.59s", h.words);
        x->known[h.row] |= run->reach->found;
    }
}

/* The passes of a setup, under what is declared and under nothing. */
static int ask_about(struct attn_setup *s, struct count *x)
{
    static const struct attn_impl plain = {0};
    static const struct attn_options none = {.threads = 1};
    struct attn_precision declared, own;
    struct attn_reach reach = {0};
    struct attn_failed_run run = {.ranks = 1, .reach = &reach};
    struct attn_inputs in = attn_setup_inputs(s, s->given.pass);
    attn_precision_of(&plain, &none, &s->problem, &own);
    if (x->claims != NULL)
        attn_claims_precision(x->claims, &s->problem, &declared);
    else
        attn_precision_of(x->spec->impl, &x->spec->options, &s->problem, &declared);
    if (!attn_run_open(&run, s, &declared))
        return 0;
    int ok = attn_truth_compute(&s->problem, &in, &own, NULL, &reach.other, NULL) == ATTN_OK;
    put_truth(s, &run);
    for (; ok && run.backward <= (int)s->given.pass; run.backward++)
        ask(&run, x);
    attn_truth_free(&reach.other);
    attn_run_close(&run);
    return ok;
}

/* A case in as many passes as the claims allow. */
static enum attn_status ask_case(const char *text, struct count *x, struct attn_error *err)
{
    struct attn_case c;
    struct attn_setup s;
    unsigned needs;
    enum attn_status status = attn_case_parse(text, &c, err);
    for (int done = 0; !done && status == ATTN_OK; c.pass = ATTN_FORWARD) {
        status = attn_setup_open(&c, &s, err);
        if (status != ATTN_OK)
            break;
        int is_allowed = x->claims == NULL || attn_claims_allow(x->claims, &s, ATTN_ROUTE_FILES,
                                                                &needs, NULL) == ATTN_OK;
        if (is_allowed && !ask_about(&s, x))
            status = attn_fail(err, ATTN_ENOMEM, "no memory for what a bound costs");
        done = is_allowed || c.pass == ATTN_FORWARD || c.d_bias || c.d_lse;
        attn_setup_close(&s);
    }
    return status;
}

static void list_within(struct attn_bound_cost *cost, const char *words)
{
    words += strncmp(words, "if ", 3) == 0 ? 3 : 0;
    int is_new = strstr(cost->within, words) == NULL, is_first = cost->within[0] == '\0';
    if (is_new && strlen(cost->within) + strlen(words) + 3 > sizeof cost->within)
        return;
    cost->listed++;
    if (is_new)
        attn_append(cost->within, sizeof cost->within, "%s%s", is_first ? "" : ", ", words);
}

enum attn_status attn_bound_cost_count(const struct attn_claims *claims,
                                       const struct attn_spec *spec, enum attn_dtype dtype,
                                       struct attn_bound_cost *cost, struct attn_error *err)
{
    struct count x = {.claims = claims, .spec = spec};
    enum attn_status status = ATTN_OK;
    *cost = (struct attn_bound_cost){.dtype = dtype};
    for (size_t n = 0; n < sizeof asked / sizeof *asked && status == ATTN_OK; n++) {
        char text[ATTN_CASE_TEXT];
        snprintf(text, sizeof text, "%s:%s:%s:pass=bwd", asked[n].problem, attn_dtype_name(dtype),
                 asked[n].rest);
        status = ask_case(text, &x, err);
    }
    for (int row = 0; row < MOST_ROWS; row++) {
        cost->models += (x.known[row] & ATTN_CHANGES) != 0;
        cost->exceed += (x.known[row] & ATTN_EXCEEDS) != 0;
        cost->exceed_plain += (x.known[row] & ATTN_EXCEEDS_OTHER) != 0;
        if ((x.known[row] & (ATTN_CHANGES | ATTN_EXCEEDS)) == ATTN_CHANGES)
            list_within(cost, x.words[row]);
    }
    return status;
}

void attn_bound_cost_print(const struct attn_bound_cost *x, char *text, size_t size)
{
    snprintf(text, size, "what the declared bound costs: %d of %d fault models exceed it in %s",
             x->exceed, x->models, attn_dtype_name(x->dtype));
    if (x->exceed_plain != x->exceed)
        attn_append(text, size, " (%d in plain %s arithmetic)", x->exceed_plain,
                    x->dtype == ATTN_F64 ? "f64" : "f32");
    if (x->within[0] != '\0')
        attn_append(text, size, "; within it: %s", x->within);
    if (x->models - x->exceed > x->listed)
        attn_append(text, size, ", and %d more", x->models - x->exceed - x->listed);
}
