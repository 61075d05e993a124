/* See isa_lab.h. */
#include "tests/isa_lab.h"

#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/half.h"

enum { CHUNK = 4096 };

static int complain(char *text, const char *what, double x, double got, double want)
{
    snprintf(text, ISA_LAB_TEXT, "%s of %a: %a, not %a", what, x, got, want);
    return 0;
}

/* Equal bits; the NaNs of different bits are different. */
static int same_bits(const void *a, const void *b, int bytes)
{
    return memcmp(a, b, (size_t)bytes) == 0;
}

static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static double double_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

int isa_lab_table(const struct attn_kernels *k, char *text)
{
    int vector = k->bytes * k->lanes;
    if ((vector == 16 || vector == 32 || vector == 64) && k->panel == 3 * k->lanes &&
        k->widen != NULL && k->narrow != NULL && k->exp2 != NULL && k->tanh != NULL &&
        k->transpose != NULL && k->forward_room != NULL && k->forward != NULL)
        return 1;
    snprintf(text, ISA_LAB_TEXT, "%d bytes, %d lanes, panels of %d, or an entry is missing",
             k->bytes, k->lanes, k->panel);
    return 0;
}

/* ---- storage types --------------------------------------------------------------------------- */

static double half_value(enum attn_dtype dtype, uint16_t bits)
{
    return (double)(dtype == ATTN_BF16 ? attn_bf16_to_float(bits) : attn_f16_to_float(bits));
}

static int widen_halves(const struct attn_kernels *k, enum attn_dtype dtype, char *text)
{
    static uint16_t from[65536];
    static double to[65536];
    for (int n = 0; n < 65536; n++)
        from[n] = (uint16_t)n;
    k->widen(dtype, from, 65536, to);
    for (int n = 0; n < 65536; n++) {
        float f = dtype == ATTN_BF16 ? attn_bf16_to_float(from[n]) : attn_f16_to_float(from[n]);
        double d = half_value(dtype, from[n]);
        const char *got = (const char *)to + n * k->bytes;
        if (!same_bits(got, k->bytes == 4 ? (void *)&f : (void *)&d, k->bytes)) {
            snprintf(text, ISA_LAB_TEXT, "%s 0x%04x widens to other bits than ref/half.h says",
                     attn_dtype_name(dtype), (unsigned)n);
            return 0;
        }
    }
    return 1;
}

/* Between float and double, some of every exponent; NaNs stay NaN. */
static int exchange(const struct attn_kernels *k, char *text)
{
    enum { N = CHUNK };
    static float f[N], f_back[N];
    static double d[N], d_back[N];
    uint64_t state = 11;
    for (int n = 0; n < N; n++) {
        f[n] = attn_float_of_bits((uint32_t)random_bits(&state));
        d[n] = n % 2 ? (double)f[n] * (1 + 0x1p-25 * (n % 5)) : double_of_bits(random_bits(&state));
    }
    if (k->bytes == 4) {
        k->widen(ATTN_F64, d, N, f_back);
        k->narrow(ATTN_F64, f, N, d_back);
    } else {
        k->widen(ATTN_F32, f, N, d_back);
        k->narrow(ATTN_F32, d, N, f_back);
    }
    for (int n = 0; n < N; n++) {
        if (!((float)d[n] == f_back[n] || (isnan(d[n]) && isnan(f_back[n]))))
            return complain(text, "f64 to f32", d[n], (double)f_back[n], (double)(float)d[n]);
        if (!((double)f[n] == d_back[n] || (isnan(f[n]) && isnan(d_back[n]))))
            return complain(text, "f32 to f64", (double)f[n], d_back[n], (double)f[n]);
    }
    return 1;
}

int isa_lab_widen(const struct attn_kernels *k, char *text)
{
    return widen_halves(k, ATTN_BF16, text) && widen_halves(k, ATTN_F16, text) && exchange(k, text);
}

static int narrow_chunk(const struct attn_kernels *k, const void *x, int rounding, char *text)
{
    static const enum attn_dtype half[2] = {ATTN_BF16, ATTN_F16};
    static uint16_t got[CHUNK];
    for (int t = 0; t < 2; t++) {
        fesetround(rounding);
        k->narrow(half[t], x, CHUNK, got);
        fesetround(FE_TONEAREST);
        for (int n = 0; n < CHUNK; n++) {
            float f = ((const float *)x)[k->bytes == 4 ? n : 0];
            double d = k->bytes == 4 ? (double)f : ((const double *)x)[n];
            uint16_t want = k->bytes == 4          ? half[t] == ATTN_BF16 ? attn_bf16_from_float(f)
                                                                          : attn_f16_from_float(f)
                                     : half[t] == ATTN_BF16 ? attn_bf16_from_double(d)
                                                   : attn_f16_from_double(d);
            if (got[n] != want) {
                snprintf(text, ISA_LAB_TEXT, "%a narrows to %s 0x%04x, not 0x%04x", d,
                         attn_dtype_name(half[t]), (unsigned)got[n], (unsigned)want);
                return 0;
            }
        }
    }
    return 1;
}

/* Doubles of exponents that matter, near ties too. */
static int narrow_doubles(const struct attn_kernels *k, uint64_t step, char *text)
{
    static double x[CHUNK];
    uint64_t state = 5;
    for (int chunk = 0; chunk < (step == 1 ? 2000 : 40); chunk++) {
        for (int n = 0; n < CHUNK; n++) {
            uint64_t bits = random_bits(&state);
            double half = half_value(n % 2 ? ATTN_BF16 : ATTN_F16, (uint16_t)bits);
            double next = half_value(n % 2 ? ATTN_BF16 : ATTN_F16, (uint16_t)(bits + 1));
            double tie = half + (next - half) / 2;
            x[n] = n % 4 < 2 ? tie * (1 + 0x1p-52 * ((int)(bits >> 20 & 3) - 1))
                             : double_of_bits(bits);
        }
        if (!narrow_chunk(k, x, FE_TONEAREST, text))
            return 0;
    }
    return 1;
}

/* Floats half way between two neighbours of 16 bits, all of them, and the floats next to those. */
static int narrow_ties(const struct attn_kernels *k, enum attn_dtype dtype, char *text)
{
    static float x[CHUNK];
    for (int first = 0; first < 65536; first += CHUNK / 4) {
        for (int n = 0; n < CHUNK / 4; n++) {
            double low = half_value(dtype, (uint16_t)(first + n));
            double high = half_value(dtype, (uint16_t)(first + n + 1));
            float tie = (float)(low + (high - low) / 2);
            x[4 * n] = tie;
            x[4 * n + 1] = nextafterf(tie, INFINITY);
            x[4 * n + 2] = nextafterf(tie, -INFINITY);
            x[4 * n + 3] = (float)low;
        }
        if (!narrow_chunk(k, x, FE_TONEAREST, text))
            return 0;
    }
    return 1;
}

int isa_lab_narrow(const struct attn_kernels *k, uint64_t step, char *text)
{
    static const int mode[4] = {FE_TONEAREST, FE_UPWARD, FE_TONEAREST, FE_TOWARDZERO};
    static float x[CHUNK];
    int chunk = 0;
    if (k->bytes == 8)
        return narrow_doubles(k, step, text);
    if (!narrow_ties(k, ATTN_BF16, text) || !narrow_ties(k, ATTN_F16, text))
        return 0;
    for (uint64_t first = 0; first < UINT64_C(1) << 32; first += CHUNK * step, chunk++) {
        for (uint64_t n = 0; n < CHUNK; n++)
            x[n] = attn_float_of_bits((uint32_t)(first + n * step));
        if (!narrow_chunk(k, x, mode[chunk % 4], text))
            return 0;
    }
    return 1;
}

/* The room holds `bytes` bytes of want at `at`, and what it held before, 0x5a, everywhere else. */
static int only_these(const char *room, const char *at, const char *want, int bytes, int room_bytes)
{
    for (const char *x = room; x < room + room_bytes; x++)
        if (x < at || x >= at + bytes ? *x != 0x5a : *x != want[x - at])
            return 0;
    return 1;
}

int isa_lab_edges(const struct attn_kernels *k, char *text)
{
    static const enum attn_dtype dtype[ATTN_DTYPES] = {ATTN_F64, ATTN_F32, ATTN_BF16, ATTN_F16};
    enum { MOST = 70, ROOM = 8 * MOST + 64 };
    static char wide[8 * MOST], small[8 * MOST], back[8 * MOST], room[ROOM];
    for (int n = 0; n < MOST; n++) {
        float f = (float)(n + 1) / 3;
        double d = (double)(n + 1) / 3;
        memcpy(wide + n * k->bytes, k->bytes == 4 ? (void *)&f : (void *)&d, (size_t)k->bytes);
    }
    for (int t = 0; t < ATTN_DTYPES; t++) {
        int size = (int)attn_dtype_size(dtype[t]);
        k->narrow(dtype[t], wide, MOST, small);
        k->widen(dtype[t], small, MOST, back);
        for (int first = 0; first < 4; first++)
            for (int n = 0; n < MOST - first; n++) {
                char *to = room + 16 + first * size, *at = room + 16 + first * k->bytes;
                memset(room, 0x5a, sizeof room);
                k->narrow(dtype[t], wide + first * k->bytes, n, to);
                int ok = only_these(room, to, small + first * size, n * size, ROOM);
                memset(room, 0x5a, sizeof room);
                k->widen(dtype[t], small + first * size, n, at);
                ok &= only_these(room, at, back + first * k->bytes, n * k->bytes, ROOM);
                if (!ok) {
                    snprintf(text, ISA_LAB_TEXT, "%s, numbers %d to %d: wrong, or others as well",
                             attn_dtype_name(dtype[t]), first, first + n);
                    return 0;
                }
            }
    }
    k->widen(ATTN_F32, NULL, 0, NULL);
    k->narrow(ATTN_BF16, NULL, 0, NULL);
    return 1;
}

/* ---- functions ------------------------------------------------------------------------------- */

struct function {
    const char *name;
    void (*array)(int64_t n, const void *x, void *y);
    double (*exact)(double x);
    long double (*exact_long)(long double x);
    double low, high; /* where the error is looked at */
    double allowed;   /* u                            */
};

/* err: of got at x, in u. */
static int judge(const struct function *f, double x, double got, double err, double *worst,
                 char *text)
{
    if (!(err <= *worst))
        *worst = err;
    if (err <= f->allowed)
        return 1;
    snprintf(text, ISA_LAB_TEXT, "%s(%a) = %a errs by %.3f u; %.1f are allowed", f->name, x, got,
             err, f->allowed);
    return 0;
}

/* Floats of one sign, from 0 to infinity. */
static int sweep_floats(const struct function *f, uint32_t sign, uint64_t step, double *worst,
                        char *text)
{
    static float x[CHUNK], y[CHUNK];
    const uint32_t end = 0x7f800000u;
    for (uint64_t first = 0; first <= end; first += CHUNK * step) {
        for (uint64_t n = 0; n < CHUNK; n++) {
            uint64_t bits = first + n * step;
            x[n] = attn_float_of_bits((uint32_t)(bits < end ? bits : end) | sign);
        }
        if ((double)fabsf(x[0]) > fmax(-f->low, f->high))
            break;
        f->array(CHUNK, x, y);
        for (int n = 0; n < CHUNK; n++) {
            double a = (double)x[n], got = (double)y[n];
            if (!(a >= f->low && a <= f->high))
                continue;
            double want = f->exact(a), err = got == want ? 0 : fabs(got / want - 1) * 0x1p24;
            if (!judge(f, a, got, err, worst, text))
                return 0;
        }
    }
    return 1;
}

static int sweep_doubles(const struct function *f, uint64_t step, double *worst, char *text)
{
    static double x[CHUNK], y[CHUNK];
    uint64_t state = 3;
    for (int chunk = 0; chunk < (step == 1 ? 1000 : 30); chunk++) {
        for (int n = 0; n < CHUNK; n++) {
            double part = (double)(random_bits(&state) >> 11) * 0x1p-53;
            x[n] = n % 2 ? f->low + part * (f->high - f->low) : ldexp(part - 0.5, 4 - n % 60);
        }
        f->array(CHUNK, x, y);
        for (int n = 0; n < CHUNK; n++) {
            long double want = f->exact_long((long double)x[n]), got = (long double)y[n];
            double err = got == want ? 0 : (double)(fabsl(got / want - 1) * 0x1p53L);
            if (!judge(f, x[n], y[n], err, worst, text))
                return 0;
        }
    }
    return 1;
}

static int sweep(const struct attn_kernels *k, const struct function *f, uint64_t step,
                 double *worst, char *text)
{
    *worst = 0;
    if (k->bytes == 8)
        return sweep_doubles(f, step, worst, text);
    return sweep_floats(f, 0, step, worst, text) && sweep_floats(f, 0x80000000u, step, worst, text);
}

/* f(x) of one number, in the table's own type. */
static double at(const struct attn_kernels *k, const struct function *f, double x)
{
    float fx = (float)x, fy;
    double y;
    f->array(1, k->bytes == 4 ? (void *)&fx : (void *)&x, k->bytes == 4 ? (void *)&fy : (void *)&y);
    return k->bytes == 4 ? (double)fy : y;
}

static int exactly(const struct attn_kernels *k, const struct function *f, const double (*list)[2],
                   int n, char *text)
{
    for (int i = 0; i < n; i++) {
        double got = at(k, f, list[i][0]);
        if (isnan(list[i][1]) ? !isnan(got)
                              : !(got == list[i][1] && !signbit(got) == !signbit(list[i][1])))
            return complain(text, f->name, list[i][0], got, list[i][1]);
    }
    return 1;
}

int isa_lab_exp2(const struct attn_kernels *k, uint64_t step, double *worst, char *text)
{
    const double inf = (double)INFINITY, low = k->bytes == 4 ? -126 : -1022, top = 1.5 - low;
    const double none = k->bytes == 4 ? -151 : -1076, near = k->bytes == 4 ? 0x1p-21 : 0x1p-50;
    const double list[][2] = {{0, 1},     {-0.0, 1},      {(double)NAN, (double)NAN},
                              {inf, inf}, {-inf, 0},      {none, 0},
                              {-1e30, 0}, {2 - low, inf}, {1e30, inf}};
    struct function f = {"exp2", k->exp2, exp2, exp2l, low, top, ISA_LAB_EXP2_U};
    if (!exactly(k, &f, list, sizeof list / sizeof *list, text))
        return 0;
    for (double x = none; x < low; x += 0.03125) { /* the subnormal number, or 0 */
        double y = at(k, &f, x), full = ldexp(exp2(x - low), (int)low);
        if (!(y == 0 || fabs(y - full) <= near * ldexp(1, (int)low)))
            return complain(text, f.name, x, y, full);
    }
    for (double x = top; x < top + 0.5; x += 0.03125) { /* the number, or infinity */
        double y = at(k, &f, x);
        if (!(y == inf || fabs(y / exp2(x) - 1) <= near))
            return complain(text, f.name, x, y, exp2(x));
    }
    f.high = top - 0.001;
    return sweep(k, &f, step, worst, text);
}

int isa_lab_tanh(const struct attn_kernels *k, uint64_t step, double *worst, char *text)
{
    const double inf = (double)INFINITY, tiny = k->bytes == 4 ? 0x1p-149 : 0x1p-1074;
    const double end = k->bytes == 4 ? inf : 30;
    const double list[][2] = {{0, 0},       {-0.0, -0.0},  {(double)NAN, (double)NAN},
                              {inf, 1},     {-inf, -1},    {20, 1},
                              {-20, -1},    {1e30, 1},     {-1e30, -1},
                              {tiny, tiny}, {-tiny, -tiny}};
    struct function f = {"tanh", k->tanh, tanh, tanhl, -end, end, ISA_LAB_TANH_U};
    if (!exactly(k, &f, list, sizeof list / sizeof *list, text))
        return 0;
    for (double x = 1e-9; x < 30; x *= 1.001)
        if (at(k, &f, -x) != -at(k, &f, x))
            return complain(text, f.name, -x, at(k, &f, -x), -at(k, &f, x));
    return sweep(k, &f, step, worst, text);
}

int isa_lab_transpose(const struct attn_kernels *k, char *text)
{
    double room[16 * 16]; /* more than any of them */
    char *square = (char *)room;
    int lanes = k->lanes;
    for (int n = 0; n < lanes * lanes; n++) {
        float f = (float)n;
        double d = n;
        memcpy(square + n * k->bytes, k->bytes == 4 ? (void *)&f : (void *)&d, (size_t)k->bytes);
    }
    k->transpose(square);
    for (int r = 0; r < lanes; r++)
        for (int c = 0; c < lanes; c++) {
            const char *from = square + (r * lanes + c) * k->bytes;
            float f;
            double d;
            memcpy(k->bytes == 4 ? (void *)&f : (void *)&d, from, (size_t)k->bytes);
            if ((k->bytes == 4 ? (double)f : d) != c * lanes + r) {
                snprintf(text, ISA_LAB_TEXT, "[%d][%d] of the transposed square is %g, not %d", r,
                         c, k->bytes == 4 ? (double)f : d, c * lanes + r);
                return 0;
            }
        }
    return 1;
}
