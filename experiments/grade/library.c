/* See hunt.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/grade/hunt.h"
#include "experiments/measure/machine.h"
#include "tests/harness/diagnosis/faults.h"

static const struct attn_hunt_fault faults[] = {
#define HUNT(word, words, least) {#word, words, least},
#include "experiments/grade/hunt.def"
};

enum { FAULTS = sizeof faults / sizeof *faults };

static uint64_t drawn(const char *seed, const char *what, int n)
{
    char text[300];
    int length = snprintf(text, sizeof text, "%.200s:09-hunt:%s:%d", seed, what, n);
    return attn_digest_bytes(ATTN_DIGEST_BEGIN, text, (size_t)length) >> 32;
}

/* How many of n have a lesser number than the nth: its place when they are put in order. */
static int place_of(const char *seed, const char *what, int nth, int n)
{
    int place = 0;
    for (int i = 0; i < n; i++) {
        uint64_t other = drawn(seed, what, i), own = drawn(seed, what, nth);
        place += other < own || (other == own && i < nth);
    }
    return place;
}

const struct attn_hunt_fault *attn_hunt_fault(const char *seed, int number)
{
    int wrong = place_of(seed, "library", number - 1, ATTN_LIBRARIES) - ATTN_LIBRARIES_RIGHT;
    for (int f = 0; f < FAULTS && wrong >= 0; f++)
        if (place_of(seed, "fault", f, FAULTS) == wrong)
            return &faults[f];
    return NULL;
}

/* A row as the model has it. */
static void take(void *arg, enum attn_output o, int64_t row, const double *predicted)
{
    struct attn_tensor *t = &((struct attn_setup *)arg)->tensor[attn_slot_of(o)];
    const int64_t i = row % t->extent[2], h = row / t->extent[2] % t->extent[1];
    for (int64_t c = 0; c < t->extent[3]; c++)
        attn_tensor_set(t, row / t->extent[2] / t->extent[1], h, i, c, predicted[c]);
}

/* The truth into all outputs, and what the run is about: any row. */
static void put_truth(struct attn_setup *s, struct attn_failed_run *run)
{
    for (int o = 0; o < ATTN_OUTPUTS; o++) {
        const struct attn_truth_tensor *t = &run->truth.tensor[o];
        run->compared[o] = run->failing[o] = t->want != NULL;
        for (int64_t n = 0; t->want != NULL && n < attn_run_rows(run, (enum attn_output)o); n++)
            take(s, (enum attn_output)o, n, t->want + n * t->extent[3]);
    }
}

enum attn_status attn_hunt_compute(const struct attn_hunt_fault *fault, struct attn_setup *s,
                                   struct attn_error *err)
{
    static const struct attn_impl plain = {0};
    static const struct attn_options none = {.threads = 1};
    struct attn_precision precision;
    struct attn_failed_run run = {.ranks = 1, .take = take, .take_arg = s};
    attn_precision_of(&plain, &none, &s->problem, &precision);
    if (!attn_run_open(&run, s, &precision))
        return attn_fail(err, ATTN_ENOMEM, "no memory for what a library computes");
    put_truth(s, &run);
    for (; run.backward <= (int)s->given.pass && fault != NULL; run.backward++) {
        struct attn_hypothesis h = {0};
        int found = 0;
        while (!found && attn_hypothesis_next(&run, &h))
            found = strstr(h.words, fault->words) != NULL;
        if (found)
            attn_fault_fits(&run, &h.model);
    }
    attn_run_close(&run);
    return ATTN_OK;
}
