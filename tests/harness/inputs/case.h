/* Case strings: one line that reproduces everything.
 *
 *   b2h4g2q127k129d64v64:causal(br)&window(32,0,br):f32:normal:s42:softcap=30:pass=bwd
 *   `------ shape -----' `--------- mask ---------' type fill  seed  fields in any order
 *
 * Shape: b h g q k d v, each at most once; g defaults to h, k to q, v to d, b and h to 1; q and
 * d must be there.  Blanks in the mask are dropped.  Tensors that a mask names are made up
 * from their name: axes, then per cent of visible cells: keys(k50), keys(bk90), dense(qk50),
 * dense(bqk50), dense(hqk50), dense(bhqk50), csr(qk50).  Fields (default first):
 *   pass=fwd|bwd       bwd runs the forward too
 *   scale=X            default 1/sqrt(d), 1 for d = 0
 *   softcap=X          0: none
 *   bias=none|alibi|full|head|row|key|inf|nan
 *                      full [B,H,Lq,Lk]; head [1,H,Lq,Lk]; row [1,1,Lq,Lk]; key [B,1,1,Lk];
 *                      inf: full, a quarter of its cells -inf, and all of every seventh row;
 *                      nan: full, one visible cell of every fifth row NaN
 *   kv=own|shared      shared: V is a view of K, its first dv features, and dK is the gradient of
 *                      both
 *   biastype=f32|f64   how a bias tensor and its gradient are stored (as lse is)
 *   sink=none|normal|zero|large
 *                      a learned sink of each head, stored as lse is.  large: by head in turn,
 *                      above 4; 100 (f64: 1000), whose exp overflows; -100; -inf, which is none.
 *                      Fills whose results are exact keep them: reveal has sinks of 0, which count
 *                      as one more key (large: none of weight); select and subsets -10,000
 *   slopes=halves|press  ALiBi: 1/2, 1/4, ... 1/256, 1/2, ...; or those of Press et al. 2022, which
 *                      no binary number holds exactly when heads are not a power of two
 *   alibioffset=br|tl|+N|-N  ALiBi: key position of query 0, up to 2^40
 *   layout=bhld|blhd|padded|packed|mixed|broadcast|neg|flip|sbhd
 *                      memory order (sbhd: [L,B,H,d]); padded: rows with a gap; packed: q, k, v
 *                      in one buffer;
 *                      mixed: each tensor another one; broadcast: stride-0 K, V and dO batches;
 *                      neg: batches, heads and tokens from high to low addresses (negative
 *                      strides); flip: features as well
 *   offset=N           base pointers N elements past an aligned address (0)
 *   only=all|q|k|v|bias|sink|do|dlse|o|lse|dq|dk|dv|dbias|dsink
 *                      the one tensor that layout and offset speak of; the others are bhld
 *   poison=none|nan|big  what must not matter is NaN, or 1e30: K and V rows that no query sees,
 *                      q and dO rows that see no key; and 1e30 at hidden cells of a full bias
 *   special=none|q-nan|k-nan|v-nan|do-nan|q-inf|k-inf|v-inf|do-inf|k-huge
 *                      one element in each of two rows of q, k, v or dO is NaN, or +inf in one and
 *                      -inf in the other; or, huge, a power of two near the end of its type, so
 *                      that scores leave the domain (attn.h).  Heads whose number and batch add up
 *                      to an odd number are spared
 *   dlse=0|1           a gradient through LSE as well (pass=bwd)
 *   dbias=0|1          ask for the gradient of the bias (pass=bwd, a bias tensor)
 *   wide=0|1           o, dq, dk and dv as f32 (bf16 and f16)
 *   threads=N          from 1 (default) to 64
 */
#ifndef TESTS_HARNESS_INPUTS_CASE_H
#define TESTS_HARNESS_INPUTS_CASE_H

#include "ref/mask/mask.h"
#include "tests/harness/base/fill.h"

enum attn_case_bias {
    ATTN_CASE_BIAS_NONE,
    ATTN_CASE_BIAS_ALIBI,
    ATTN_CASE_BIAS_FULL,
    ATTN_CASE_BIAS_HEAD,
    ATTN_CASE_BIAS_ROW,
    ATTN_CASE_BIAS_KEY,
    ATTN_CASE_BIAS_INF,
    ATTN_CASE_BIAS_NAN
};
enum attn_case_sink {
    ATTN_CASE_SINK_NONE,
    ATTN_CASE_SINK_NORMAL,
    ATTN_CASE_SINK_ZERO,
    ATTN_CASE_SINK_LARGE
};
enum attn_case_bias_type { ATTN_BIAS_TYPE_AS_LSE, ATTN_BIAS_TYPE_F32, ATTN_BIAS_TYPE_F64 };
enum attn_case_slopes { ATTN_SLOPES_HALVES, ATTN_SLOPES_PRESS };
enum attn_case_layout {
    ATTN_LAYOUT_BHLD,
    ATTN_LAYOUT_BLHD,
    ATTN_LAYOUT_PADDED,
    ATTN_LAYOUT_PACKED,
    ATTN_LAYOUT_MIXED,
    ATTN_LAYOUT_BROADCAST,
    ATTN_LAYOUT_NEG,
    ATTN_LAYOUT_FLIP,
    ATTN_LAYOUT_SBHD /* behind those that random cases have */
};
enum attn_case_poison { ATTN_POISON_NONE, ATTN_POISON_NAN, ATTN_POISON_BIG };
enum attn_case_special {
    ATTN_SPECIAL_NONE,
    ATTN_SPECIAL_Q_NAN,
    ATTN_SPECIAL_K_NAN,
    ATTN_SPECIAL_V_NAN,
    ATTN_SPECIAL_DO_NAN,
    ATTN_SPECIAL_Q_INF,
    ATTN_SPECIAL_K_INF,
    ATTN_SPECIAL_V_INF,
    ATTN_SPECIAL_DO_INF,
    ATTN_SPECIAL_K_HUGE
};

enum {
    ATTN_CASE_TEXT = 1024, /* longest case string, with its end */
    ATTN_CASE_MASK = 640   /* longest mask in it: shape and fields always fit beside */
};
int attn_case_special_is_backward(enum attn_case_special special); /* of dO: it needs pass=bwd */

/* Extents by their letters, bhgqkdv. */
enum { ATTN_CASE_EXTENTS = 7 };
struct attn_case;
int64_t *attn_case_extent(struct attn_case *c, int n);

struct attn_case {
    int64_t batch, heads, kv_heads, n_query, n_key, d_key, d_value;
    char mask[ATTN_CASE_TEXT]; /* at most ATTN_CASE_MASK bytes with the end */
    const char *long_mask;     /* in the place of a longer one, which no string holds; borrowed */
    enum attn_dtype dtype;
    enum attn_fill fill;
    uint64_t seed;
    enum attn_pass pass;
    double scale; /* NaN: the default */
    double softcap;
    enum attn_case_bias bias;
    enum attn_case_bias_type bias_type;
    enum attn_case_sink sink;
    int kv_shared;
    enum attn_case_slopes slopes;
    int has_alibi_offset; /* 0: Lk - Lq */
    int64_t alibi_offset;
    enum attn_case_layout layout;
    int offset;
    int only; /* 0: layout and offset are for all tensors; else 1 + the slot (slots.h) of one */
    enum attn_case_poison poison;
    enum attn_case_special special;
    int d_lse, d_bias, wide;
    int threads; /* 0 is 1 */
};

/* EINVAL: says which part, what was found and what would be understood. */
enum attn_status attn_case_parse(const char *text, struct attn_case *c, struct attn_error *err);

/* Fields alone, ":sink=normal:kv=shared", into a case; they are not held against each other. */
enum attn_status attn_case_fields(const char *text, struct attn_case *c, struct attn_error *err);

/* The canonical string, defaults left out; parses back to the same case. */
void attn_case_print(const struct attn_case *c, char text[ATTN_CASE_TEXT]);

/* The text of the mask; set it from a text of any length, which is borrowed. */
const char *attn_case_mask(const struct attn_case *c);
void attn_case_set_mask(struct attn_case *c, const char *text);

/* Bytes of inputs and outputs, with a mask and a bias counted as varying along all axes. */
double attn_case_bytes(const struct attn_case *c);

/* The problem of a case, without mask and bias. */
void attn_case_problem(const struct attn_case *c, struct attn_problem *problem);

/* The problem with its mask, to be freed; NULL in it after a failure.  source: of the tensors that
 * the mask names; NULL: there are none.  EINVAL: extents or mask.  The one place where the mask of
 * a problem is read. */
enum attn_status attn_case_open(const struct attn_case *c, const struct attn_mask_source *source,
                                struct attn_problem *problem, struct attn_mask **mask,
                                struct attn_error *err);

#endif
