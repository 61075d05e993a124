/* A diagnosis as a value: the kind of fault, and the words for it (diagnose.h). */
#ifndef TESTS_HARNESS_JUDGE_DIAGNOSIS_H
#define TESTS_HARNESS_JUDGE_DIAGNOSIS_H

/* Kinds of faults.  One mistake reads differently in every case ("keys 3 to 5 lost", "causal(tl)"),
 * so code that counts diagnoses counts their kinds. */
enum attn_fault {
    ATTN_FAULT_NONE,      /* not recognised: the text says where failing elements are, or is "" */
    ATTN_FAULT_LSE,       /* the numbers given out as LSE                                   */
    ATTN_FAULT_LAYOUT,    /* where tensors are read and written                             */
    ATTN_FAULT_KEYS,      /* which keys are seen: masks, tails, tiles                       */
    ATTN_FAULT_HEADS,     /* which kv head and batch is read                                */
    ATTN_FAULT_SCORES,    /* scale, softcap, bias                                           */
    ATTN_FAULT_EMPTY,     /* rows that see no key, numbers in place of -inf                 */
    ATTN_FAULT_SOFTMAX,   /* its maximum and its sum                                        */
    ATTN_FAULT_GRADIENTS, /* the backward alone                                             */
    ATTN_FAULT_RANKS,     /* where parts of the keys meet                                   */
    ATTN_FAULT_FACTOR,    /* an output times something, or plus something                   */
    ATTN_FAULT_PRECISION,
    ATTN_FAULT_STATE,   /* traces of earlier calls, memory or neighbours                  */
    ATTN_FAULT_FEATURE, /* it takes a bias, a mask, ... to fail                           */
    ATTN_FAULTS
};

struct attn_diagnosis {
    enum attn_fault fault;
    char where[160]; /* "o: head 1 only": where a fault shows, if not everywhere */
    char text[256];  /* "" when there is nothing to say */
    char remedy[96]; /* what to do, where the model says it; else "" (attn_fault_remedy) */
};

#endif
