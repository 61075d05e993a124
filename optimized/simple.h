/* One call for tensors that lie in memory one after another, for callers in any language.
 *
 * q and o are [batch, heads, n_query, d], k and v [batch, kv_heads, n_key, d], lse [batch, heads,
 * n_query]; all float, without gaps; d is d_key of q and k, d_value of v and o.  Views of any
 * strides, other types, biases and softcap: ref/attn.h. */
#ifndef OPTIMIZED_SIMPLE_H
#define OPTIMIZED_SIMPLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct attn_simple {
    int64_t batch, heads, kv_heads, n_query, n_key, d_key, d_value;
    double scale; /* 0: 1/sqrt(d_key) */
};

enum { ATTN_SIMPLE_ERROR = 512 };

/* spec: "tiled", "dense", ... (attnlab list); mask: "none", "causal(br)", ... (attnlab list masks).
 * Returns 0; else o and lse are unspecified and error, which has room for ATTN_SIMPLE_ERROR bytes,
 * says what was asked, why not, and what would work. */
int attn_simple_forward(const char *spec, const char *mask, const struct attn_simple *shape,
                        const float *q, const float *k, const float *v, float *o, float *lse,
                        char *error);

/* The gradients, from o and lse as the forward call gave them and the gradient of o. */
int attn_simple_backward(const char *spec, const char *mask, const struct attn_simple *shape,
                         const float *q, const float *k, const float *v, const float *o,
                         const float *lse, const float *d_o, float *dq, float *dk, float *dv,
                         char *error);

#ifdef __cplusplus
}
#endif
#endif
