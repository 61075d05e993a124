/* See runner.h. */
#include "tests/harness/judge/runner.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/clock.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/inputs/input_guard.h"

/* ---- memory: priced = ledger -------------------------------------------------------------- */

static int64_t bytes_of(const struct attn_account *list, int n, const char *name)
{
    for (int a = 0; a < n; a++)
        if (strcmp(list[a].name, name) == 0)
            return list[a].bytes;
    return 0;
}

/* Compare a price with what a rank used; the difference in one line, or "". */
static void compare_use(const struct attn_cost *cost, const struct attn_rank_use *used, int rank,
                        char *text, size_t size)
{
    text[0] = '\0';
    if (cost->peak_bytes != used->peak_bytes)
        snprintf(text, size, "rank %d: priced %lld bytes at the peak, ledger has %lld", rank,
                 (long long)cost->peak_bytes, (long long)used->peak_bytes);
    else if (cost->bytes_sent != used->bytes_sent || cost->messages != used->messages)
        snprintf(text, size, "rank %d: priced %lld bytes in %lld messages, sent %lld in %lld", rank,
                 (long long)cost->bytes_sent, (long long)cost->messages,
                 (long long)used->bytes_sent, (long long)used->messages);
    else
        for (int a = 0; a < cost->n_live + used->n_live; a++) {
            const char *name =
                a < cost->n_live ? cost->live[a].name : used->live[a - cost->n_live].name;
            int64_t priced = bytes_of(cost->live, cost->n_live, name);
            int64_t found = bytes_of(used->live, used->n_live, name);
            if (priced != found)
                snprintf(text, size, "rank %d: '%s' priced at %lld bytes, ledger has %lld", rank,
                         name, (long long)priced, (long long)found);
        }
}

/* Complaint about memory after a pass, or "".  Only its saved data may be live. */
static void check_memory(const struct attn_spec *spec, const struct attn_problem *p,
                         enum attn_pass pass, const struct attn_ledger *ledger,
                         struct attn_rank_use *use, const struct attn_saved *saved, char *text,
                         size_t size)
{
    int ranks = attn_ranks(spec->impl, &spec->options);
    int64_t priced = 0; /* of all ranks together */
    text[0] = '\0';
    for (int rank = 0; rank < ranks && text[0] == '\0'; rank++) {
        struct attn_cost cost;
        struct attn_error err = {0};
        if (spec->impl->ranks == NULL) { /* the ledger of the process is that of its one rank */
            use[rank] =
                (struct attn_rank_use){.n_live = ledger->n_at_peak, .peak_bytes = ledger->peak};
            memcpy(use[rank].live, ledger->at_peak, sizeof use[rank].live);
        }
        if (attn_price(spec->impl, &spec->options, p, pass, rank, &cost, &err) != ATTN_OK)
            snprintf(text, size, "ran, but cannot be priced: %.160s", err.text);
        else
            compare_use(&cost, &use[rank], rank, text, size);
        priced += cost.saved_bytes;
    }
    if (text[0] == '\0' && saved != NULL && priced != saved->bytes)
        snprintf(text, size, "priced %lld bytes saved for backward, %lld are", (long long)priced,
                 (long long)saved->bytes);
    int64_t left = ledger->now - (saved != NULL ? saved->bytes : 0);
    if (text[0] == '\0' && left != 0)
        snprintf(text, size, "%lld bytes were not given back to the ledger", (long long)left);
}

/* ---- running ------------------------------------------------------------------------------ */

/* is_done: the outputs of the pass must be written. */
static void check_tensors(const struct attn_setup *s, enum attn_pass pass, int is_done,
                          struct attn_result *r)
{
    const int first = pass == ATTN_BACKWARD ? ATTN_T_DQ : ATTN_T_O,
              last = pass == ATTN_BACKWARD ? ATTN_T_DBIAS : ATTN_T_LSE;
    char text[256];
    for (int slot = 0; slot < ATTN_SLOTS; slot++) {
        const struct attn_tensor *t = &s->tensor[slot];
        if (t->data == NULL || t->map == NULL)
            continue;
        const char *complaint = attn_tensor_intact(t, text, sizeof text);
        if (complaint == NULL && slot < first) {
            complaint = attn_tensor_unchanged(t, text, sizeof text);
            r->meddles |= complaint != NULL;
        } else if (complaint == NULL && slot <= last && is_done)
            complaint = attn_tensor_written(t, text, sizeof text);
        if (complaint != NULL)
            attn_result_fail(r, ATTN_F_INTEGRITY, "%s: %s", attn_pass_name(pass), complaint);
    }
}

void attn_setup_check(const struct attn_setup *s, enum attn_pass pass, struct attn_result *r)
{
    check_tensors(s, pass, 1, r);
}

/* One pass: call, integrity, memory.  A complaint about memory waits in memory[] until the
 * numbers have been judged.  saved: NULL, or for both passes. */
static void run_pass(const struct attn_spec *spec, struct attn_setup *s, enum attn_pass pass,
                     struct attn_ledger *ledger, struct attn_rank_use *use,
                     struct attn_saved *saved, struct attn_result *r, char *memory, size_t size)
{
    struct attn_error err = {0};
    struct attn_seal seal = attn_setup_seal(s);
    struct attn_ctx ctx = {.ledger = ledger,
                           .options = &spec->options,
                           .error = &err,
                           .ranks = use,
                           .seal = &seal,
                           .saved = saved};
    char seen[256];
    int damaged = ledger->damaged;
    attn_ledger_restart(ledger);
    attn_setup_remember(s, pass);
    attn_input_guard_begin(s, pass);
    enum attn_status status = attn_setup_call(s, spec->impl, &ctx, pass);
    const char *complaint = attn_input_guard_end(s, seen, sizeof seen);
    r->peak_bytes[pass] = ledger->peak;
    r->meddles |= complaint != NULL;
    if (status == ATTN_ENOMEM)
        attn_result_error(r, status, err.text);
    else if (status == ATTN_ENOTSUP) { /* what was damaged on the way counts for more */
        if (complaint != NULL)
            attn_result_fail(r, ATTN_F_INTEGRITY, "%s: %s", attn_pass_name(pass), complaint);
        check_tensors(s, pass, 0, r);
        r->by_it = r->verdict == ATTN_PASS;
        attn_result_fail(r, ATTN_F_STATUS, "%s: claimed, and then refused: %.400s",
                         attn_pass_name(pass), err.text);
    } else if (status != ATTN_OK)
        attn_result_fail(r, ATTN_F_STATUS, "%s: %s: %.400s", attn_pass_name(pass),
                         attn_status_name(status), err.text);
    else {
        if (complaint != NULL)
            attn_result_fail(r, ATTN_F_INTEGRITY, "%s: %s", attn_pass_name(pass), complaint);
        attn_setup_check(s, pass, r);
        check_memory(spec, &s->problem, pass, ledger, use, saved, memory, size);
    }
    if (pass == ATTN_BACKWARD)
        attn_saved_drop(saved, ledger);
    if (ledger->damaged > damaged)
        attn_result_fail(r, ATTN_F_INTEGRITY, "%s: wrote past the end of %d of its own buffers",
                         attn_pass_name(pass), ledger->damaged - damaged);
}

/* Forward, and backward where the case asks for it, on one ledger: what the first saves for the
 * second is live all the while. */
static void run_passes(const struct attn_spec *spec, struct attn_setup *s, enum attn_pass last,
                       struct attn_rank_use *use, struct attn_result *r, char memory[2][256])
{
    struct attn_ledger ledger;
    struct attn_saved saved = {0};
    attn_ledger_init(&ledger, NULL);
    ledger.poison = 1;
    for (int pass = ATTN_FORWARD; pass <= (int)last && r->verdict == ATTN_PASS; pass++)
        run_pass(spec, s, (enum attn_pass)pass, &ledger, use, last == ATTN_BACKWARD ? &saved : NULL,
                 r, memory[pass], sizeof memory[pass]);
    attn_ledger_clear(&ledger);
}

/* Refusals are decided before anything runs: what is accepted here and refused later has failed. */
static enum attn_status may_ask(const struct attn_spec *spec, const struct attn_setup *s,
                                enum attn_pass pass, struct attn_error *err)
{
    struct attn_cost cost;
    struct attn_forward forward = attn_setup_forward(s);
    enum attn_status status =
        attn_check_forward(spec->impl, &spec->options, &s->problem, &forward, err);
    if (status == ATTN_OK && pass == ATTN_BACKWARD) {
        struct attn_backward backward = attn_setup_backward(s);
        status = attn_check_backward(spec->impl, &spec->options, &s->problem, &backward, err);
    }
    for (int r = 0; r < attn_ranks(spec->impl, &spec->options) && status == ATTN_OK; r++)
        status = attn_price(spec->impl, &spec->options, &s->problem, pass, r, &cost, err);
    return status == ATTN_ENOTSUP ? status : ATTN_OK; /* other failures are the run's to show */
}

/* ---- several runs of one case ---------------------------------------------------------------- */

/* How many fail, and what differs between them. */
struct repeats {
    const struct attn_repetition *how;
    double until;                      /* by the clock; 0: no limit                         */
    int runs, failed, others, lacking; /* others: with other bits than the first            */
    struct attn_result first, bad;     /* bad: the first that failed, when failed > 0       */
    unsigned char *kept[ATTN_SLOTS];   /* the outputs of the first run; NULL: not known     */
    char differs[sizeof((struct attn_result *)0)->differs];
};

static size_t span_bytes(const struct attn_tensor *t)
{
    return t->data != NULL ? (size_t)t->span * attn_dtype_size(t->dtype) : 0;
}

static const unsigned char *lowest(const struct attn_tensor *t)
{
    return (const unsigned char *)t->data + t->first * (int64_t)attn_dtype_size(t->dtype);
}

/* Elements of t whose bits are not the kept ones, of *n; the first of them in first[]. */
static int64_t count_others(const struct attn_tensor *t, const unsigned char *kept, int64_t *n,
                            int64_t first[4])
{
    size_t size = attn_dtype_size(t->dtype);
    int64_t others = 0;
    *n = 0;
    for (int64_t at[4] = ATTN_START; attn_each(at, t->extent); ++*n) {
        int64_t slot = attn_offset(t->stride, at[0], at[1], at[2]) + at[3] * t->stride[3];
        size_t byte = (size_t)(slot - t->first) * size;
        if (memcmp(lowest(t) + byte, kept + byte, size) != 0 && others++ == 0)
            memcpy(first, at, sizeof at);
    }
    return others;
}

/* A kept element as a number. */
static double kept_value(const struct attn_tensor *t, const unsigned char *kept,
                         const int64_t at[4])
{
    struct attn_tensor same = *t;
    same.data = (unsigned char *)(uintptr_t)kept - t->first * (int64_t)attn_dtype_size(t->dtype);
    return attn_tensor_get(&same, at[0], at[1], at[2], at[3]);
}

/* "o: 1 of 64 elements, first [0,0,3,1]: 1.5 where it fails, 0.5 where not; lse: none" */
static void compare_runs(struct repeats *x, const struct attn_setup *s, int now_bad)
{
    int64_t n, at[4] = {0};
    int is_first = x->differs[0] == '\0';
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS && is_first; slot++) {
        const struct attn_tensor *t = &s->tensor[slot];
        if (x->kept[slot] == NULL || (s->given.pass == ATTN_FORWARD && slot > ATTN_T_LSE))
            continue;
        int64_t others = count_others(t, x->kept[slot], &n, at);
        attn_append(x->differs, sizeof x->differs, "%s%s: %lld of %lld elements",
                    x->differs[0] != '\0' ? "; " : "", t->name, (long long)others, (long long)n);
        if (others == 0)
            continue;
        double here = attn_tensor_get(t, at[0], at[1], at[2], at[3]);
        double there = kept_value(t, x->kept[slot], at);
        attn_append(x->differs, sizeof x->differs, " ([%lld,%lld,%lld,%lld] %.6g, else %.6g)",
                    (long long)at[0], (long long)at[1], (long long)at[2], (long long)at[3],
                    now_bad ? here : there, now_bad ? there : here);
    }
}

/* The first run is done: its outputs are in the set-up, its verdict in first. */
static void open_repeats(struct repeats *x, const struct attn_repetition *how,
                         const struct attn_setup *s, const struct attn_result *first)
{
    *x = (struct repeats){.how = how, .runs = 1, .first = *first, .bad = *first};
    x->failed = attn_result_is_bad(first);
    x->until = how->seconds > 0 ? attn_seconds(CLOCK_MONOTONIC) + how->seconds : 0;
    for (int slot = ATTN_T_O; slot < ATTN_SLOTS && first->digest != 0; slot++) {
        size_t bytes = span_bytes(&s->tensor[slot]);
        if (bytes > 0 && (x->kept[slot] = malloc(bytes)) != NULL)
            memcpy(x->kept[slot], lowest(&s->tensor[slot]), bytes);
    }
}

static int wants_another(const struct repeats *x)
{
    return x->runs < x->how->calls && !x->lacking &&
           (x->until <= 0 || attn_seconds(CLOCK_MONOTONIC) < x->until);
}

static void add_run(struct repeats *x, const struct attn_setup *s, const struct attn_result *r)
{
    int other_bits = r->digest != x->first.digest, bad = attn_result_is_bad(r);
    x->lacking = r->verdict == ATTN_ERROR; /* no memory for this one: it is no run */
    if (x->lacking)
        return;
    x->runs++;
    x->others += other_bits;
    if (bad && (x->failed++ == 0 || (x->bad.by_it && !r->by_it))) /* more than a refusal */
        x->bad = *r;
    int is_other = bad != attn_result_is_bad(&x->first) || (other_bits && x->how->same_bits);
    if (is_other && r->digest != 0)
        compare_runs(x, s, bad);
}

/* The verdict of all runs together. */
static void close_repeats(struct repeats *x, struct attn_result *r)
{
    int changes = x->failed == 0 && x->others > 0 && x->how->same_bits;
    *r = x->failed > 0 ? x->bad : x->first;
    r->runs = x->runs;
    r->failed = changes ? x->others : x->failed;
    if (changes) {
        r->failure = ATTN_F_EXACT;
        snprintf(r->text, sizeof r->text,
                 "other bits than in the first run, within the bounds: equal bits were promised");
    }
    if (r->failed > 0 && r->failed < x->runs) {
        r->verdict = ATTN_INTERMITTENT;
        snprintf(r->differs, sizeof r->differs, "%s", x->differs);
    }
    for (int slot = 0; slot < ATTN_SLOTS; slot++)
        free(x->kept[slot]);
}

/* ---- one run, or more ------------------------------------------------------------------------ */

/* The state from one run to the next. */
struct runs {
    const struct attn_spec *spec;
    struct attn_setup *setup;
    struct attn_rank_use *use;
};

/* Run and judge.  known: a run that was judged, for outputs that have the same bits; or NULL. */
static void run_once(struct runs *x, const struct attn_result *known, struct attn_result *r)
{
    const enum attn_pass pass = x->setup->given.pass;
    char memory[2][256] = {"", ""};
    memset(r, 0, sizeof *r);
    run_passes(x->spec, x->setup, pass, x->use, r, memory);
    if (r->verdict == ATTN_PASS) {
        uint64_t digest = attn_setup_digest(x->setup, NULL, pass);
        if (known != NULL && known->digest == digest) {
            *r = *known;
        } else {
            attn_precision_of(x->spec->impl, &x->spec->options, &x->setup->problem, &r->precision);
            if (x->setup->declare != NULL)
                x->setup->declare(&x->setup->problem, &r->precision);
            attn_judge(x->setup, &r->precision, NULL, pass, r);
        }
        r->digest = digest;
    }
    for (int p = ATTN_FORWARD; p <= (int)pass; p++)
        if (memory[p][0] != '\0' && (r->verdict == ATTN_PASS || r->verdict == ATTN_WEAK))
            attn_result_fail(r, ATTN_F_MEMORY, "%s: %s", attn_pass_name((enum attn_pass)p),
                             memory[p]);
}

static void run_again(struct runs *x, const struct attn_repetition *how, struct attn_result *first)
{
    struct repeats repeats;
    open_repeats(&repeats, how, x->setup, first);
    while (wants_another(&repeats)) {
        struct attn_result r;
        attn_setup_poison(x->setup);
        run_once(x, first, &r);
        add_run(&repeats, x->setup, &r);
    }
    close_repeats(&repeats, first);
}

/* On outputs that are poisoned. */
static void run_on(const struct attn_spec *asked, struct attn_setup *setup,
                   const struct attn_repetition *how, struct attn_result *r)
{
    struct attn_spec own = *asked;
    struct runs x = {&own, setup, NULL};
    struct attn_error err = {0};
    if (setup->given.threads > 1)
        own.options.threads = setup->given.threads;
    x.use = calloc((size_t)attn_ranks(own.impl, &own.options), sizeof *x.use);
    if (may_ask(&own, setup, setup->given.pass, &err) != ATTN_OK) {
        r->verdict = ATTN_REFUSED;
        snprintf(r->text, sizeof r->text, "%s", err.text);
    } else if (x.use == NULL) {
        attn_result_error(r, ATTN_ENOMEM, "no memory for the ledgers of the ranks");
    } else {
        run_once(&x, NULL, r);
        if (how->calls > 1 && r->verdict != ATTN_ERROR)
            run_again(&x, how, r);
    }
    free(x.use);
}

void attn_keep_freed(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

static const struct attn_repetition once = {1, 0, 0};

void attn_run_setup(const struct attn_spec *spec, struct attn_setup *setup,
                    const struct attn_repetition *how, struct attn_result *r)
{
    memset(r, 0, sizeof *r);
    attn_setup_poison(setup);
    run_on(spec, setup, how != NULL ? how : &once, r);
}

void attn_run_case(const struct attn_spec *spec, const struct attn_case *c, struct attn_result *r)
{
    struct attn_setup setup;
    struct attn_error err = {0};
    memset(r, 0, sizeof *r);
    enum attn_status status = attn_setup_open(c, &setup, &err);
    if (status != ATTN_OK) {
        attn_result_error(r, status, err.text);
        return;
    }
    run_on(spec, &setup, &once, r);
    attn_setup_close(&setup);
}
