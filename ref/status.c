/* Statuses, names, and the one place every failure passes through: whatever the files and arguments
 * that it quotes may hold, its text is one line, and harmless on a terminal. */
#include <stdarg.h>
#include <stdio.h>

#include "ref/impl.h"

enum attn_status attn_fail(struct attn_error *err, enum attn_status status, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        err->status = status;
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        for (char *c = err->text; *c != '\0'; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                *c = '?';
    }
    return status;
}

const char *attn_status_name(enum attn_status status)
{
    static const char *const name[] = {"ok",        "invalid",   "refused",
                                       "no memory", "peer lost", "internal error"};
    return (unsigned)status < sizeof name / sizeof *name ? name[status] : "unknown";
}

const char *attn_dtype_name(enum attn_dtype dtype)
{
    static const char *const name[] = {"f64", "f32", "bf16", "f16", "u8"};
    return (unsigned)dtype <= ATTN_U8 ? name[dtype] : "unknown";
}

size_t attn_dtype_size(enum attn_dtype dtype)
{
    static const size_t size[] = {8, 4, 2, 2, 1};
    return (unsigned)dtype <= ATTN_U8 ? size[dtype] : 0;
}

double attn_dtype_roundoff(enum attn_dtype dtype)
{
    static const double u[ATTN_DTYPES] = {0x1p-53, 0x1p-24, 0x1p-8, 0x1p-11};
    return (unsigned)dtype < ATTN_DTYPES ? u[dtype] : 1.0;
}

const char *attn_pass_name(enum attn_pass pass)
{
    return pass == ATTN_BACKWARD ? "bwd" : "fwd";
}

const char *attn_cap_name(int bit)
{
    static const char *const name[ATTN_CAPS] = {
        "f64",  "f32",     "bf16",    "f16",    "backward", "gqa",  "cross",    "dv",    "mask",
        "hard", "softcap", "alibi",   "bias",   "dbias",    "dlse", "strides",  "scale", "empty",
        "band", "dense",   "repeats", "causal", "wide",     "sink", "kv-shared"};
    return name[bit];
}
_Static_assert(ATTN_CAP_F64 == 1 << ATTN_F64 && ATTN_CAP_F16 == 1 << ATTN_F16, "bits of storage");
