/* Suspects among sequence-parallel schemes: what ranks get wrong about positions, about each
 * other's keys, and where partial results meet. */
#include <stdint.h>

#include "ref/problem.h"
#include "tests/harness/faults/diagnose.h"

static const char *const merges[ATTN_MODEL_MERGES] = {
    "",
    "partial results merged by their mean, not by their LSE",
    "partial results merged by 2^difference of their LSE",
    "a merge whose LSE is the larger of the two",
    "a merge whose LSE is ln(e^a + e^b) without a shift",
    "a merge that takes e^(b - a) even where b is larger",
    "blocks merged twice",
    "the last block of the ring lost",
    "a merge in which a hidden block wipes the other blocks",
    "a merge in which two empty rows give NaN (-inf - -inf)"};

static const char *const places[ATTN_MODEL_PLACES] = {
    "", "a rank's queries placed like the block's keys (every block is on the diagonal)",
    "a block's keys placed like the rank's own",
    "a bias whose keys count from the start of a shard",
    "stale K and V: every rank uses its own block at every step"};

static int try_merges(struct attn_hypotheses *x, struct attn_fault_model *t)
{
    for (int how = 1; how < ATTN_MODEL_MERGES && !x->failed->backward; how++) {
        t->merge = (enum attn_model_merge)how;
        if (attn_hypothesis(x, t, "fits %s (%lld ranks)", merges[how], (long long)t->ranks))
            return 1;
    }
    t->merge = ATTN_MODEL_MERGE_NONE;
    return 0;
}

static int try_places(struct attn_hypotheses *x, struct attn_fault_model *t)
{
    for (int place = 1; place < ATTN_MODEL_PLACES; place++) {
        t->place = (enum attn_model_place)place;
        if (attn_hypothesis(x, t, "fits %s (%lld ranks)", places[place], (long long)t->ranks))
            return 1;
    }
    for (int of = ATTN_MODEL_K; of <= ATTN_MODEL_V; of++) {
        t->place_of = (enum attn_model_of)of;
        if (attn_hypothesis(x, t,
                            "fits stale %s: every rank uses its own at every step (%lld ranks)",
                            of == ATTN_MODEL_K ? "K" : "V", (long long)t->ranks))
            return 1;
    }
    t->place_of = ATTN_MODEL_K_AND_V;
    t->place = ATTN_MODEL_PLACE_RIGHT;
    return 0;
}

static int try_steps(struct attn_hypotheses *x, struct attn_fault_model *t)
{
    static const char *const words[] = {"", "last", "first"};
    for (int steps = 1; steps <= 2 && x->failed->backward; steps++) {
        t->steps = (enum attn_model_steps)steps;
        if (attn_hypothesis(x, t,
                            "fits gradients of the ring's %s step alone (= for +=, %lld ranks)",
                            words[steps], (long long)t->ranks))
            return 1;
    }
    return 0;
}

int attn_hypothesis_ranks(struct attn_hypotheses *x)
{
    const struct attn_problem *p = &x->setup->problem;
    struct attn_fault_model t;
    for (int64_t ranks = 2; ranks <= 8 && x->failed->ranks; ranks++) {
        if (p->n_query < ranks || p->n_key < ranks || p->n_query % ranks || p->n_key % ranks)
            continue;
        attn_fault_none(x->setup, &t);
        t.ranks = ranks;
        if (try_merges(x, &t) || try_places(x, &t) || try_steps(x, &t))
            return 1;
    }
    return 0;
}
