/* Hashing and the names of the fills; what each fill puts where is in setup_fill.c. */
#include "tests/harness/fill.h"

#include <string.h>

/* In the order of enum attn_fill. */
static const struct {
    const char *name, *aim;
} fills[ATTN_FILLS] = {
    {"normal", "near-normal values of variance 1: the baseline"},
    {"offset-120", "every score near -120: maxima that start at 0, tails scored 0"},
    {"offset-32k", "every score near -32768: finite stand-ins for minus infinity"},
    {"offset-3e5", "every score near -3e5: the larger stand-ins"},
    {"offset+120", "every score near +120: no maximum subtracted"},
    {"stairs-up", "scores climb by about 8 a key: a rescale at every step"},
    {"stairs-down", "scores fall by about 8 a key: never a rescale, late keys vanish"},
    {"cliffs", "scores differ by 100 between quarters of the keys: overflow in a merge"},
    {"spike", "one key 200 above the others: lost or doubled blocks"},
    {"ties", "every third key exactly equal and the maximum, V of one sign"},
    {"flat", "q = 0 and V = 0.1: the length of the sum itself"},
    {"ones", "V = 1 and dO = 1: the normaliser"},
    {"hetero", "V and dO of scale 1, 64 or 4096 by head and batch: blind norms"},
    {"integer", "small integers: exact scores"},
    {"lowrank", "nearly parallel keys: cancelling gradients"},
    {"tiny", "V subnormal in its storage type: operands and stores that are flushed to 0"},
    {"huge", "V and dO large: in f16, gradients beyond 65504 are stored as infinities"},
    {"reveal", "q = 0 and V = unit columns: n_i O_i counts the visible keys"},
    {"select", "each query picks one key by a gap above 200: O_i = V_j bit for bit"},
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
    return mix(mix(mix(seed) + stream) + index * golden);
}

double attn_hash_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(attn_hash(seed, stream, index) >> 11) * 0x1p-53;
}

/* Eight digits of 16 bits have mean 8 (2^16 - 1) / 2 = 262140 and variance 8 (2^32 - 1) / 12.
 * The sum is an exact integer, so the only rounding is that of the product. */
double attn_hash_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    const double per_deviation = 0x1.3988e1412ed76p-16; /* 1 / sqrt(8 (2^32 - 1) / 12) */
    uint64_t bits[2] = {attn_hash(seed, stream, index), 0};
    bits[1] = mix(bits[0]);
    int64_t sum = 0;
    for (int word = 0; word < 2; word++)
        for (int shift = 0; shift < 64; shift += 16)
            sum += (int64_t)((bits[word] >> shift) & 0xffff);
    return (double)(sum - 262140) * per_deviation;
}
