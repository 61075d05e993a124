/* Hashing and the names of the fills; what each fill puts where is in setup_fill.c. */
#include "tests/harness/base/fill.h"

#include <string.h>

static const struct {
    const char *name, *aim;
} fills[ATTN_FILLS] = {
#define ATTN_FILL(id, name, aim) {name, aim},
#include "tests/harness/base/fills.def"
};

const char *attn_fill_name(enum attn_fill fill)
{
    return (unsigned)fill < ATTN_FILLS ? fills[fill].name : "unknown";
}

const char *attn_fill_aim(enum attn_fill fill)
{
    return (unsigned)fill < ATTN_FILLS ? fills[fill].aim : "unknown";
}

int attn_fill_find(const char *name)
{
    for (int f = 0; f < ATTN_FILLS; f++)
        if (strcmp(fills[f].name, name) == 0)
            return f;
    return -1;
}

static const uint64_t golden = 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio, odd */

/* One step of splitmix64 from state z: a bijection of 64 bits. */
static uint64_t mix(uint64_t z)
{
    z += golden;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The index-th output of a splitmix64 generator whose own seed is mixed from seed and stream:
 * within a stream no two indices give the same bits. */
uint64_t attn_hash(uint64_t seed, uint64_t stream, uint64_t index)
{
    return mix(attn_hash_stream(seed, stream) + index * golden);
}

uint64_t attn_hash_stream(uint64_t seed, uint64_t stream)
{
    return mix(mix(seed) + stream);
}

double attn_hash_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(attn_hash(seed, stream, index) >> 11) * 0x1p-53;
}

/* Eight digits of 16 bits have mean 8 (2^16 - 1) / 2 = 262140 and variance 8 (2^32 - 1) / 12.
 * The sum is an exact integer, so the only rounding is that of the product. */
double attn_hash_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    return attn_hash_normal_of(attn_hash_stream(seed, stream), index);
}

double attn_hash_normal_of(uint64_t stream, uint64_t index)
{
    const double per_deviation = 0x1.3988e1412ed76p-16; /* 1 / sqrt(8 (2^32 - 1) / 12) */
    const uint64_t every_other = 0x0000ffff0000ffffu;
    uint64_t one = mix(stream + index * golden), two = mix(one);
    uint64_t four = (one & every_other) + (one >> 16 & every_other) + (two & every_other) +
                    (two >> 16 & every_other); /* of the digits, in each half */
    int64_t sum = (int64_t)((four & 0xffffffffu) + (four >> 32));
    return (double)(sum - 262140) * per_deviation;
}
