/* The declaration of an implementation's arithmetic (attn_impl.precision): the parameters of the
 * error bound, docs/bounds.md. */
#ifndef REF_PRECISION_H
#define REF_PRECISION_H

#include <stdint.h>

/* The declared precisions: the only parameters of the bound, printed with every verdict.
 *
 * An unit roundoff of 0 says that nothing is rounded there (u_sum: as u says; u_ds: as u_p, and
 * a u_ds no larger than u says that dS is not). */
struct attn_precision {
    double u;            /* unit roundoff of the arithmetic                                */
    double u_storage;    /* of o, dq, dk, dv as stored                                     */
    double u_bias;       /* of dbias as stored and summed                                  */
    double u_lse;        /* of lse as stored                                               */
    double tiny_storage; /* half the spacing of subnormals of o, dq, dk, dv as stored      */
    double u_sum;        /* of sums of products, where they are coarser than u             */
    double u_q;          /* of q and k as products take them, perhaps scaled first         */
    double u_v;          /* of v and dO as products take them                              */
    double u_s;          /* of scores and of dP, where they are stored between the steps   */
    double u_dp;         /* of dP, where it is stored in another type; 0: as u_s           */
    double u_p;          /* of probabilities                                               */
    double u_ds;         /* of dS                                                          */
    double tiny_inner;   /* half the spacing of subnormals of the type that u_q to u_ds round
                            to; 0: as they imply                                           */
    double overflow;     /* from which size on that type, or that of u_sum, has infinities;
                            0: none that matters, or as they imply                         */
    double tiny;         /* half the spacing of subnormals: the absolute error of underflow; the
                         smallest normal number where subnormals are declared to be flushed */
    double u_partial;    /* of partial results, if they are stored narrower than sums: of bf16 or
                            f16                                                            */
    double u_head;       /* of dK and dV of each query head, where they are stored before those of
                            a group are summed                                             */
    double exp_ulps;     /* error of exp, in u                                             */
    double other_ulps;   /* of log, tanh, and the exp of a rescale or a merge; 0: the same */
    int64_t again;       /* of o: how often it is stored before it is stored at last            */
    double hidden;       /* that much is taken from a hidden score, which stays a number; 0: it is
                            -inf                                                           */
    int64_t leans;       /* where errors lean to one side though nothing is wrong: 1: where weights
                            tie, for P is rounded after its division; 2: everywhere, for operands
                            are cut                                                        */
    int64_t rescales;    /* of a row's partial sums, at most                               */
    int64_t merges;      /* of partial results by their LSE, at most                       */
    int64_t sums;        /* of partial gradients, at most: merges, unless told otherwise   */
    double lambda;       /* 0: sums of n terms err by gamma_n, the worst case, which decides.  Above
                         0: by lambda sqrt(n) u where that is less, which only grades (grade.h) */
};

#endif
