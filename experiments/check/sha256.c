/* See sha256.h. */
#include "experiments/check/sha256.h"

#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void compress(struct attn_sha256 *s)
{
    uint32_t w[64], v[8];
    for (int t = 0; t < 16; t++)
        w[t] = (uint32_t)s->block[4 * t] << 24 | (uint32_t)s->block[4 * t + 1] << 16 |
               (uint32_t)s->block[4 * t + 2] << 8 | s->block[4 * t + 3];
    for (int t = 16; t < 64; t++)
        w[t] = (turn(w[t - 2], 17) ^ turn(w[t - 2], 19) ^ w[t - 2] >> 10) + w[t - 7] +
               (turn(w[t - 15], 7) ^ turn(w[t - 15], 18) ^ w[t - 15] >> 3) + w[t - 16];
    memcpy(v, s->state, sizeof v);
    for (int t = 0; t < 64; t++) {
        uint32_t a = v[0], e = v[4];
        uint32_t one = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                       ((e & v[5]) ^ (~e & v[6])) + constant[t] + w[t];
        uint32_t two =
            (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int n = 0; n < 8; n++)
        s->state[n] += v[n];
}

void attn_sha256_begin(struct attn_sha256 *s)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->state, start, sizeof start);
    s->bytes = 0;
}

void attn_sha256_add(struct attn_sha256 *s, const void *data, size_t n)
{
    for (const unsigned char *p = data; n > 0; n--) {
        s->block[s->bytes++ % 64] = *p++;
        if (s->bytes % 64 == 0)
            compress(s);
    }
}

void attn_sha256_end(struct attn_sha256 *s, char hex[65])
{
    static const unsigned char one = 0x80, zero = 0;
    unsigned char length[8];
    for (int n = 0; n < 8; n++)
        length[n] = (unsigned char)(8 * s->bytes >> (56 - 8 * n));
    attn_sha256_add(s, &one, 1);
    while (s->bytes % 64 != 56)
        attn_sha256_add(s, &zero, 1);
    attn_sha256_add(s, length, sizeof length);
    for (int n = 0; n < 8; n++)
        snprintf(hex + 8 * n, 9, "%08x", s->state[n]);
}

int attn_sha256_file(const char *path, char hex[65])
{
    static unsigned char part[1 << 16];
    struct attn_sha256 s;
    struct stat about;
    hex[0] = '\0';
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) /* a FIFO is not waited for */
        return 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    attn_sha256_begin(&s);
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;)
        attn_sha256_add(&s, part, n);
    int ok = !ferror(file);
    fclose(file);
    if (ok)
        attn_sha256_end(&s, hex);
    return ok;
}

static int by_path(const FTSENT **a, const FTSENT **b)
{
    /* a folder sorts as its path with the slash behind it */
    char x[260], y[260];
    snprintf(x, sizeof x, "%s%s", (*a)->fts_name, (*a)->fts_info == FTS_D ? "/" : "");
    snprintf(y, sizeof y, "%s%s", (*b)->fts_name, (*b)->fts_info == FTS_D ? "/" : "");
    return strcmp(x, y);
}

int attn_sha256_folder(const char *path, char hex[65])
{
    char *const all[] = {(char *)(uintptr_t)path, NULL};
    struct attn_sha256 s;
    int ok = 1, n = 0;
    FTS *tree = fts_open(all, FTS_PHYSICAL | FTS_NOCHDIR, by_path);
    hex[0] = '\0';
    if (tree == NULL)
        return 0;
    attn_sha256_begin(&s);
    for (FTSENT *entry; ok && (entry = fts_read(tree)) != NULL;) {
        char line[65];
        ok = entry->fts_info != FTS_ERR && entry->fts_info != FTS_DNR && entry->fts_info != FTS_NS;
        if (!ok || entry->fts_info != FTS_F)
            continue;
        const char *name = entry->fts_path + strlen(path);
        while (*name == '/')
            name++;
        ok = attn_sha256_file(entry->fts_path, line);
        attn_sha256_add(&s, line, strlen(line));
        attn_sha256_add(&s, "  ./", 4);
        attn_sha256_add(&s, name, strlen(name));
        attn_sha256_add(&s, "\n", 1);
        n++;
    }
    fts_close(tree);
    if (ok && n > 0)
        attn_sha256_end(&s, hex);
    return ok && n > 0;
}
