/* See input_guard.h. */
#include "tests/harness/inputs/input_guard.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/base/environment.h"

/* A handler has no argument: what it needs stands here. */
static struct {
    struct attn_tensor *tensor; /* of the setup that is watched */
    int n;                      /* how many of them are inputs  */
    atomic_int hit;             /* 0: none; else 1 + the slot   */
    int64_t at;                 /* where, in element slots      */
    struct sigaction before;
    struct attn_environment environment;
} guard;

/* The owner of the mapping: k and v may lie in q's. */
static int is_input(int slot)
{
    return slot < guard.n && guard.tensor[slot].map != NULL && !guard.tensor[slot].shared;
}

/* The input that was written to, or NULL; the first is kept.  Async-signal-safe. */
static struct attn_tensor *note(const void *address)
{
    for (int slot = 0; slot < guard.n; slot++) {
        struct attn_tensor *t = &guard.tensor[slot];
        int64_t at;
        int none = 0;
        if (!is_input(slot) || t->sealed || !attn_tensor_holds(t, address, &at))
            continue;
        if (atomic_compare_exchange_strong(&guard.hit, &none, slot + 1))
            guard.at = at;
        return t;
    }
    return NULL;
}

void attn_input_guard_note(const void *address)
{
    (void)note(address);
}

/* Async-signal-safe but for mprotect, which Linux and the BSDs allow. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    struct attn_tensor *input = note(info->si_addr);
    if (input != NULL)
        attn_tensor_protect(input, 0); /* the instruction is tried again */
    else
        sigaction(number, &guard.before, NULL); /* and this one comes again, for whom it is meant */
}

void attn_input_guard_begin(struct attn_setup *s, enum attn_pass pass)
{
    struct sigaction action;
    guard.tensor = s->tensor;
    guard.n = pass == ATTN_BACKWARD ? ATTN_T_DQ : ATTN_T_O;
    atomic_store(&guard.hit, 0);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &guard.before);
    for (int slot = 0; slot < guard.n; slot++)
        if (is_input(slot))
            attn_tensor_protect(&s->tensor[slot], 1);
    attn_environment_save(&guard.environment);
}

/* The logical index of an element slot; 0: it belongs to no element. */
static int find_element(const struct attn_tensor *t, int64_t slot, int64_t at[4])
{
    while (attn_each(at, t->extent))
        if (attn_offset(t->stride, at[0], at[1], at[2]) + at[3] * t->stride[3] - t->first == slot)
            return 1;
    return 0;
}

const char *attn_input_guard_end(struct attn_setup *s, char *text, size_t size)
{
    char changed[96];
    int64_t at[4] = ATTN_START;
    int environment = attn_environment_restore(&guard.environment, changed, sizeof changed);
    int hit = atomic_load(&guard.hit);
    for (int slot = 0; slot < guard.n; slot++)
        if (is_input(slot))
            attn_tensor_protect(&s->tensor[slot], 0);
    sigaction(SIGSEGV, &guard.before, NULL);
    guard.n = 0;
    if (hit > 0 && find_element(&s->tensor[hit - 1], guard.at, at))
        snprintf(text, size, "%s, an input, was written to at [%lld,%lld,%lld,%lld]",
                 s->tensor[hit - 1].name, (long long)at[0], (long long)at[1], (long long)at[2],
                 (long long)at[3]);
    else if (hit > 0)
        snprintf(text, size, "%s, an input, was written to outside its elements",
                 s->tensor[hit - 1].name);
    else if (environment)
        snprintf(text, size, "left the floating-point environment changed: %s", changed);
    else
        return NULL;
    return text;
}
