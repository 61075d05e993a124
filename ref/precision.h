/* What an implementation declares of its arithmetic (attn_impl.precision): the parameters of the
 * error bound, docs/bounds.md. */
#ifndef REF_PRECISION_H
#define REF_PRECISION_H

#include <stdint.h>

/* The declared precisions: the only parameters of the bound, printed with every verdict. */
struct attn_precision {
    double u;            /* unit roundoff of the arithmetic                                */
    double u_storage;    /* of o, dq, dk, dv as stored                                     */
    double u_bias;       /* of dbias as stored and summed                                  */
    double u_lse;        /* of lse as stored                                               */
    double tiny_storage; /* half the spacing of subnormals of o, dq, dk, dv as stored      */
    double u_p;          /* of probabilities and dS if they are rounded on the way; else 0 */
    double tiny_p;       /* half the spacing of subnormals of that type; 0: as u_p implies */
    double tiny;         /* half the spacing of subnormals: the absolute error of underflow; the
                         smallest normal number where subnormals are declared to be flushed */
    double u_partial;    /* of partial results, if they are stored narrower than sums; else 0,
                            of bf16 or f16 as u_p                                          */
    double exp_ulps;     /* error of exp, in u                                             */
    int64_t rescales;    /* of a row's partial sums, at most                               */
    int64_t merges;      /* of partial results by their LSE, at most                       */
    int64_t sums;        /* of partial gradients, at most: merges, unless told otherwise   */
    double lambda;       /* 0: sums of n terms err by gamma_n, the worst case, which decides.  Above
                         0: by lambda sqrt(n) u where that is less, which only grades (grade.h) */
};

#endif
