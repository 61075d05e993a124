/* See arithmetic.h. */
#include "tests/harness/bound/arithmetic.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "ref/impl.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"

double attn_dtype_tiny(enum attn_dtype dtype)
{
    static const double tiny[ATTN_DTYPES] = {0x1p-1074, 0x1p-150, 0x1p-134, 0x1p-25};
    return (unsigned)dtype < ATTN_DTYPES ? tiny[dtype] : 0;
}

/* Half a unit above the largest number. */
double attn_dtype_overflow(enum attn_dtype dtype)
{
    static const double limit[ATTN_DTYPES] = {0, 0x1.ffffffp127, 0x1.ffp127, 65520};
    return (unsigned)dtype < ATTN_DTYPES && dtype != ATTN_F64 ? limit[dtype] : (double)INFINITY;
}

/* ---- numbers --------------------------------------------------------------------------------- */

#define TERM(member, name, always)                                     \
    {                                                                  \
#member, name, offsetof(struct attn_precision, member), always \
    }
const struct attn_precision_term attn_precision_term[ATTN_PRECISION_TERMS] = {
    TERM(u, "u", 1),
    TERM(u_storage, "storage", 1),
    TERM(u_sum, "sums", 0),
    TERM(u_q, "q and k", 0),
    TERM(u_v, "v and dO", 0),
    TERM(u_s, "scores", 0),
    TERM(u_dp, "dP", 0),
    TERM(u_p, "P", 1),
    TERM(u_ds, "dS", 0),
    TERM(u_partial, "partial results", 0),
    TERM(u_head, "each head's dK and dV", 0),
    TERM(exp_ulps, "exp", 1)};

double attn_precision_get(const struct attn_precision *precision, int term)
{
    double x;
    memcpy(&x, (const char *)precision + attn_precision_term[term].at, sizeof x);
    return x;
}

void attn_precision_print(const struct attn_precision *a, char *text, size_t size)
{
    text[0] = '\0';
    for (int n = 0; n < ATTN_PRECISION_TERMS; n++) {
        const struct attn_precision_term *x = &attn_precision_term[n];
        double value = attn_precision_get(a, n);
        if (x->always || value > 0)
            attn_append(text, size, "%s %.3g%s, ", x->name, value,
                        n == ATTN_PRECISION_TERMS - 1 ? " u" : "");
    }
    attn_append(text, size, "at most %lld rescales and %lld merges a row", (long long)a->rescales,
                (long long)a->merges);
}

/* ---- sets ------------------------------------------------------------------------------------ */

enum { NARROW, SIXTEEN };
#define STORED -1.0
#define ATTN_ARITHMETIC(word, sixteen, keys, stands_for, ...) \
    {word, stands_for, sixteen, keys, {__VA_ARGS__}},
const struct attn_arithmetic attn_arithmetic[] = {
#include "tests/harness/bound/arithmetic.def"
};
#undef ATTN_ARITHMETIC
const int attn_arithmetic_count = sizeof attn_arithmetic / sizeof *attn_arithmetic;

int attn_arithmetic_find(const char *word)
{
    for (int n = 0; n < attn_arithmetic_count; n++)
        if (strcmp(word, attn_arithmetic[n].word) == 0)
            return n;
    return -1;
}

void attn_arithmetic_declare(int n, const struct attn_problem *p, struct attn_precision *x)
{
    const struct attn_arithmetic *set = &attn_arithmetic[n];
    if (p->dtype == ATTN_F64 || (set->sixteen && p->dtype == ATTN_F32))
        return;
    for (int term = 0; term < ATTN_PRECISION_TERMS; term++) {
        double given = attn_precision_get(&set->given, term);
        given = given == STORED ? attn_dtype_roundoff(p->dtype) : given;
        if (given > 0)
            memcpy((char *)x + attn_precision_term[term].at, &given, sizeof given);
    }
    x->leans = set->given.leans;
    x->other_ulps = set->given.other_ulps;
    if (set->given.u_p > 0) /* eleven bits, as f16, with the exponents of float */
        x->tiny_inner = 0x1p-136;
    if (set->keys > 0)
        x->rescales = (p->n_key + set->keys - 1) / set->keys;
    if (x->u_partial > 0 && p->kv_heads > 0 && x->sums < p->heads / p->kv_heads)
        x->sums = p->heads / p->kv_heads; /* each query head's gradients are one part */
}

/* ---- what follows ---------------------------------------------------------------------------- */

void attn_precision_flush(const struct attn_problem *p, struct attn_precision *x)
{
    x->tiny = p->dtype == ATTN_F64 ? 0x1p-1022 : 0x1p-126;
    if (attn_result_dtype(p) != ATTN_F16)
        x->tiny_storage = x->tiny;
}

void attn_precision_flush_16(const struct attn_problem *p, struct attn_precision *x)
{
    if (p->dtype != ATTN_F16)
        return;
    x->tiny_inner = 0x1p-14;
    if (attn_result_dtype(p) == ATTN_F16)
        x->tiny_storage = 0x1p-14;
    x->u_q = fmax(x->u_q, x->u); /* an operand that counts as 0 is one that is rounded */
    x->u_v = fmax(x->u_v, x->u);
}

/* No row can be rescaled or merged more often than it has keys, whatever is declared. */
static int64_t within(int64_t declared, int64_t most)
{
    return declared < 0 ? 0 : declared > most ? most : declared;
}

/* Is it the roundoff of f16, whose exponents are few? */
static int is_f16(double u)
{
    return u > 0x1p-12 && u < 0x1p-10;
}

void attn_precision_complete(const struct attn_problem *p, struct attn_precision *x)
{
    const double inner[] = {x->u_q, x->u_v, x->u_s, x->u_dp, x->u_p, x->u_ds};
    int rounds = 0, narrow = 0;
    for (int n = 0; n < 6; n++) {
        rounds |= inner[n] > 0;
        narrow |= is_f16(inner[n]);
    }
    if (x->u_ds == 0)
        x->u_ds = x->u_p;
    if (x->u_dp == 0)
        x->u_dp = x->u_s;
    if (x->other_ulps == 0)
        x->other_ulps = x->exp_ulps;
    if (rounds && x->tiny_inner == 0) {
        x->tiny_inner = attn_dtype_tiny(narrow ? ATTN_F16 : ATTN_BF16);
        x->overflow = narrow ? attn_dtype_overflow(ATTN_F16) : 0;
    }
    if (is_f16(x->u_sum)) {
        x->tiny = fmax(x->tiny, attn_dtype_tiny(ATTN_F16));
        x->overflow = attn_dtype_overflow(ATTN_F16);
    }
    x->rescales = within(x->rescales, p->n_key);
    x->merges = within(x->merges, p->n_key);
    x->sums = within(x->sums, p->n_key > p->heads ? p->n_key : p->heads);
}

void attn_precision_of(const struct attn_impl *impl, const struct attn_options *options,
                       const struct attn_problem *p, struct attn_precision *x)
{
    int wide = p->dtype == ATTN_F64;
    *x = (struct attn_precision){0};
    x->u = attn_dtype_roundoff(wide ? ATTN_F64 : ATTN_F32);
    x->u_storage = attn_dtype_roundoff(attn_result_dtype(p));
    x->u_lse = x->u;
    x->u_bias = p->bias.kind == ATTN_BIAS_TENSOR ? attn_dtype_roundoff(p->bias.tensor.dtype) : x->u;
    x->tiny = attn_dtype_tiny(wide ? ATTN_F64 : ATTN_F32);
    x->tiny_storage = attn_dtype_tiny(attn_result_dtype(p));
    x->exp_ulps = 4; /* glibc states 1 for exp, log, 2 for tanh; other libms up to 4 */
    x->rescales = within(impl->rescales != NULL ? impl->rescales(p, options) : 0, p->n_key);
    x->merges = within(impl->merges != NULL ? impl->merges(p, options) : 0, p->n_key);
    x->sums = x->merges;
    x->again = p->sink.given && impl->sinks != ATTN_SINKS_IN_SUM; /* ref/sink.h */
    x->merges += x->again;
    if (impl->precision != NULL)
        impl->precision(p, options, x);
    attn_precision_complete(p, x);
}

/* ---- what a declaration makes of a sum; sections of docs/bounds.md --------------------------- */

double attn_gamma(double n, double u)
{
    return n * u < 1 ? n * u / (1 - n * u) : (double)INFINITY;
}

double attn_sum_error(double n, double u, double lambda)
{
    double worst = attn_gamma(n, u), likely = lambda * sqrt(n) * u;
    return lambda > 0 && likely < worst ? likely : worst;
}

double attn_sum_roundoff(const struct attn_precision *a)
{
    return a->u_sum > a->u ? a->u_sum : a->u;
}

/* A term that is scaled by less than 1 before it is added underflows in units of the scaled sum. */
static double unscaled(double tiny, double scale)
{
    return scale != 0 && fabs(scale) < 1 ? tiny / fabs(scale) : tiny;
}

/* 5.4 */
double attn_term_tiny(const struct attn_precision *a, double scale)
{
    return unscaled(a->tiny, scale);
}

/* 5.5 */
double attn_operand_tiny(const struct attn_precision *a, double u, double scale)
{
    return u > 0 ? unscaled(a->tiny_inner, scale) : 0;
}

/* 4.4 */
double attn_partials_error(const struct attn_precision *a, double size, double count, double scale)
{
    enum attn_dtype type = a->u_partial < 0x1p-10 ? ATTN_F16 : ATTN_BF16;
    double more = fabs(scale) > 1 ? fabs(scale) : 1,
           less = scale != 0 && fabs(scale) < 1 ? fabs(scale) : 1;
    if (!(a->u_partial > 0))
        return 0;
    return size / less < attn_dtype_overflow(type)
               ? a->u_partial * size + count * more * fmax(attn_dtype_tiny(type), a->tiny_inner)
               : (double)INFINITY;
}
