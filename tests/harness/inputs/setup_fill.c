/* The recipes.
 *
 *   fill          q                 k                       scores                v
 *   normal        normal            normal                  order 1               normal
 *   offset-120    q_0 near 8        k_0 carries -120        -120 .. -126, +-1     normal
 *   offset-32k    "                 "       -32768          -32768 .. -34300      normal
 *   offset-3e5    "                 "       -300000         -3e5 .. -3.15e5       normal
 *   offset+120    "                 "       +120            120 .. 126, +-1       normal
 *   stairs-up     "                 "       8 j             0, 8, 16, ...         normal
 *   stairs-down   "                 "       -8 j            0, -8, -16, ...       normal
 *   cliffs        "                 "       0 100 200 300   a level a quarter     normal
 *   spike         "                 "       200 at one key  first, last, 63 or 64 normal
 *   sink          "                 "       first key       e times all      first: / 32
 *                                                           others together
 *   outliers      32 in 3 channels  16, -32, 48 in these    offset, +-1      these: 32 x
 *   ties          "                 "       8 at j % 3 = 0  these equal, the rest [0.5, 1.5)
 *                                   (one vector for those)  8 lower
 *   flat          0                 normal                  0                     0.1
 *   ones          normal            normal                  order 1               1
 *   hetero        normal            normal                  order 1               1, 64, 4096 x
 *   growing       normal x 1/8 .. 2 the same                order 0.02 .. 4  the same
 *   rows          1/16, 1, 16 x     normal                  these x 1        normal
 *   loud          normal            normal                  order 1          normal
 *   scales        1/32 or 2 x       the same                order 1e-3 or 4  the same
 *   integer       -3 .. 3           -3 .. 3                 scale x integer       -7 .. 7
 *   lowrank       normal            base + normal / 64      nearly one a row      normal
 *   tiny          normal            normal                  order 1               subnormal
 *   huge          normal            normal                  order 1               2^56 normal
 *   reveal        0                 normal                  0                     1 iff j % dv = c
 *   select        code of target    code of key             200 (f64: 800) apart  own number (16
 *                                                                                 bits: modulo)
 *
 *   powers        a unit vector or  0 0 1 2 3 .. and  n ln 2: weights 2^n,   integer, -3 .. 3
 *                 0                 .. 3 2 1 0 0      their sum too
 *
 *   subsets       code of a subset  its own, a mark         0, or below -200      +-2^e, chosen
 *                 (subsets.h)                                                     sums of subsets
 *
 * dO is normal, but 1 for ones, 1024 times larger in one row for spike, scaled for hetero, as V for
 * huge (f16: 2^13, f64: 2^500), integer for integer, select and powers, and for loud times 2^-10 to
 * 2^10, another power for each token.  Where feature 0 carries the score, q_0 is 8, 8.125, 8.25 or
 * 8.375 from row to row and the other features are small; in f16 it is a power of two larger where
 * k_0 would overflow.  With scale 0, or one beyond 2^-20 .. 2^20, nothing can be carried and plain
 * normals remain in q and k; likewise with d = 0.  16-bit storage rounds all of this: what is left
 * of the noise on k_0 then is little.
 *
 * Six are data as models have it:
 *   sink      Xiao et al. 2024, StreamingLLM: the first token draws most of the attention; its
 *             value is small (Guo et al. 2024, Active-dormant attention heads)
 *   outliers  Dettmers et al. 2022, LLM.int8(): few features 20 times the rest, in later models
 *             more; in K nearly the same number for every token (Liu et al. 2024, KIVI)
 *   growing   tests/data/gpt-causal: numbers of q are near 0.6 at the first token, up to 2.6
 *             later; here more, so that early rows are flat and late ones peaked
 *   rows      the same: the largest weight of a row is between 0.03 and 0.84
 *   loud      the same, and video-padded: from token to token |dO| differs 200 times and more
 *   scales    TransformerEngine #3216: right for random numbers, wrong for real activations, two
 *             sequences or more.  By batch; where there is one, by half of the sequence */
#include "tests/harness/inputs/setup_fill.h"

#include <math.h>

#include "ref/problem.h"
#include "tests/harness/bound/agree.h"
#include "tests/harness/inputs/subsets.h"

/* Streams of the hash: one for each thing that must be independent of the others. */
enum stream {
    STREAM_Q = 1,
    STREAM_K,
    STREAM_V,
    STREAM_BIAS,
    STREAM_BIAS_HIDE,
    STREAM_D_O,
    STREAM_D_LSE,
    STREAM_BASE,
    STREAM_TARGET,
    STREAM_CODE,
    STREAM_SIZE,
    STREAM_SINK,
    STREAMS
};
_Static_assert((int)STREAMS == ATTN_STREAMS, "each has its place in a recipe");

static uint64_t cell(int64_t a, int64_t b, int64_t nb, int64_t c, int64_t nc, int64_t d, int64_t nd)
{
    return (((uint64_t)a * (uint64_t)nb + (uint64_t)b) * (uint64_t)nc + (uint64_t)c) *
               (uint64_t)nd +
           (uint64_t)d;
}

static uint64_t query_cell(const struct attn_problem *p, int64_t b, int64_t h, int64_t i, int64_t c,
                           int64_t width)
{
    return cell(b, h, p->heads, i, p->n_query, c, width);
}

static uint64_t key_cell(const struct attn_problem *p, int64_t b, int64_t g, int64_t j, int64_t c,
                         int64_t width)
{
    return cell(b, g, p->kv_heads, j, p->n_key, c, width);
}

static double normal(const struct attn_recipe *r, enum stream stream, uint64_t index)
{
    return attn_hash_normal_of(r->stream[stream], index);
}

/* An integer in [-most, most]. */
static double integer(const struct attn_recipe *r, enum stream stream, uint64_t index, int most)
{
    return (double)((int)(attn_hash(r->seed, stream, index) % (2 * (unsigned)most + 1)) - most);
}

/* Does feature 0 carry scores under this fill?  Those that have a level stand side by side. */
static int carries(enum attn_fill fill)
{
    return fill >= ATTN_FILL_OFFSET_M120 && fill <= ATTN_FILL_TIES;
}

/* Bits that tell n keys apart. */
static int bits_of(int64_t n)
{
    int bits = 0;
    while (bits < 62 && (int64_t)1 << bits < n)
        bits++;
    return bits;
}

/* The score that feature 0 gives key j. */
static double level(const struct attn_recipe *r, int64_t j)
{
    int64_t n = r->problem->n_key;
    /* Steps of 8 until they would pass 8192, then as large as that allows. */
    double step = n <= 1024 ? 8.0 : 8192.0 / (double)n;
    const int64_t peaks[4] = {0, n - 1, 63, 64};
    int64_t peak = peaks[r->seed % 4] < n ? peaks[r->seed % 4] : n - 1;
    int64_t quarter = 4 * j / n;
    switch (r->fill) {
    case ATTN_FILL_OFFSET_M120:
        return -120;
    case ATTN_FILL_OFFSET_M32K:
        return -32768;
    case ATTN_FILL_OFFSET_M3E5:
        return -300000;
    case ATTN_FILL_OFFSET_P120:
        return 120;
    case ATTN_FILL_STAIRS_UP:
        return step * (double)j;
    case ATTN_FILL_STAIRS_DOWN:
        return -step * (double)j;
    case ATTN_FILL_CLIFFS:
        return 100 * (double)(r->seed % 2 == 0 ? quarter : 3 - quarter);
    case ATTN_FILL_SPIKE:
        return j == peak ? 200 : 0;
    case ATTN_FILL_SINK:
        return j == 0 ? 1 + 0.75 * bits_of(n) : 0; /* e^0.75 > 2: as much as n keys, and more */
    case ATTN_FILL_TIES:
        return j % 3 == 0 ? 8 : 0;
    default:
        return 0;
    }
}

/* 1, 64 or 4096. */
static double uneven(int64_t b, int64_t head)
{
    static const double scale[3] = {1, 64, 4096};
    return scale[(b + head) % 3];
}

/* By how much channel c of `width` stands out under outliers, in a k of 0.5 normal; else 0. */
static double outlier(const struct attn_recipe *r, int64_t c, int64_t width)
{
    static const double size[3] = {16, -32, 48};
    int64_t step = width / 3 + 1; /* three of them, from 7 channels on */
    return r->fill == ATTN_FILL_OUTLIERS && c % step == 0 ? size[c / step] : 0;
}

/* The size of token i of n, in q, k and v alike. */
static double token_size(const struct attn_recipe *r, int64_t b, int64_t i, int64_t n)
{
    if (r->fill == ATTN_FILL_GROWING)
        return (1 + (double)(15 * (i + 1)) / (double)n) * 0.125;
    if (r->fill == ATTN_FILL_SCALES)
        return (r->problem->batch > 1 ? b % 2 : 2 * i >= n) ? 2 : 0x1p-5;
    return 1;
}

/* A power of two for a row of queries: its score under rows, its dO under loud. */
static double row_size(const struct attn_recipe *r, int64_t row)
{
    uint64_t hash = attn_hash(r->seed, STREAM_SIZE, (uint64_t)row);
    return ldexp(1, r->fill == ATTN_FILL_ROWS ? 4 * (int)(hash % 3) - 4 : (int)(hash % 21) - 10);
}

/* ---- select ---------------------------------------------------------------------------------- */

static enum attn_status open_select(const struct attn_case *c, struct attn_recipe *r,
                                    struct attn_error *err)
{
    const struct attn_problem *p = r->problem;
    double size = fabs(p->scale);
    if (c->bias != ATTN_CASE_BIAS_NONE || p->softcap > 0)
        return attn_fail(err, ATTN_EINVAL,
                         "fill select with %s: its gaps would no longer select; any other fill "
                         "would work, or neither softcap nor bias",
                         p->softcap > 0 ? "a softcap" : "a bias");
    if (c->layout == ATTN_LAYOUT_BROADCAST)
        return attn_fail(err, ATTN_EINVAL,
                         "fill select with layout=broadcast: each batch has code words of its own, "
                         "which keys shared by batches cannot have; any other layout would work");
    if (!(size >= 0x1p-20 && size <= 0x1p20))
        return attn_fail(err, ATTN_EINVAL,
                         "fill select with scale=%g: no gap of 200 fits; 2^-20 to 2^20 would work",
                         p->scale);
    r->code_bits = bits_of(p->n_key);
    if (p->d_key < r->code_bits)
        return attn_fail(err, ATTN_EINVAL,
                         "fill select: %lld keys need code words of %d features, d is %lld; d=%d, "
                         "or at most %lld keys, would work",
                         (long long)p->n_key, r->code_bits, (long long)p->d_key, r->code_bits,
                         (long long)1 << p->d_key);
    int64_t values =
        attn_product(attn_product(p->batch, p->kv_heads), attn_product(p->n_key, p->d_value));
    if (values >= 1 << 24)
        return attn_fail(err, ATTN_EINVAL,
                         "fill select: %lld elements of V cannot all be different integers below "
                         "2^24; a smaller case would work",
                         (long long)values);
    /* One differing feature moves a score by 2 |scale| code^2: past 200 exp is 0 in f32, past 800
     * in f64.  A power of two keeps the products exact. */
    double gap = p->dtype == ATTN_F64 ? 800 : 200;
    r->code = 0x1p-16;
    while (2 * size * r->code * r->code < gap)
        r->code *= 2;
    return ATTN_OK;
}

/* Feature c of key j's code word: the bits of j, scrambled by (b, g), over and over. */
static double code_feature(const struct attn_recipe *r, int64_t b, int64_t g, int64_t j, int64_t c)
{
    if (r->code_bits == 0)
        return r->code;
    uint64_t word =
        (uint64_t)j ^ attn_hash(r->seed, STREAM_CODE, key_cell(r->problem, b, g, 0, 0, 1));
    return word >> (c % r->code_bits) & 1 ? r->code : -r->code;
}

int64_t attn_recipe_target(const struct attn_recipe *r, int64_t b, int64_t h, int64_t i)
{
    const struct attn_problem *p = r->problem;
    int64_t visible = 0;
    for (int64_t j = 0; j < p->n_key; j++)
        visible += attn_problem_allows(p, b, h, i, j) != 0;
    if (visible == 0)
        return -1;
    uint64_t hash = attn_hash(r->seed, STREAM_TARGET, query_cell(p, b, h, i, 0, 1));
    int64_t skip = (int64_t)(hash % (uint64_t)visible), j = 0;
    while (!attn_problem_allows(p, b, h, i, j) || skip-- > 0)
        j++;
    return j;
}

/* ---- powers ---------------------------------------------------------------------------------- *
 * For people who follow a softmax by pencil and paper.  Feature 0 of the keys is 0 0 1 2 3 ..,
 * whose powers of two add up to 1 2 4 8 .. from the first key on; feature 1 is the same from the
 * last key on; and equal weights add up to a power of two where the number of keys is one.  A query
 * chooses what suits the keys that it sees, in turn, so that rows differ; under a mask that nothing
 * suits, weights are equal. */

static double power_of(const struct attn_recipe *r, int64_t j, int64_t feature)
{
    int64_t n = (feature == 0 ? j : r->problem->n_key - 1 - j) - 1;
    return n < 0 ? 0 : n < 14 ? (double)n : 14;
}

enum { POWERS_EQUAL = 2 }; /* behind the two features */
static int64_t powers_choice(const struct attn_recipe *r, int64_t b, int64_t h, int64_t i)
{
    const struct attn_problem *p = r->problem;
    for (int64_t turn = 0; turn <= POWERS_EQUAL; turn++) {
        int64_t choice = (i + h + turn) % (POWERS_EQUAL + 1);
        double sum = 0;
        for (int64_t j = 0; j < p->n_key; j++)
            if (attn_problem_allows(p, b, h, i, j))
                sum += choice == POWERS_EQUAL ? 1 : exp2(power_of(r, j, choice));
        int exponent;
        if (frexp(sum, &exponent) <= 0.5 && (choice == POWERS_EQUAL || choice < p->d_key))
            return choice;
    }
    return POWERS_EQUAL;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Share the carried score between q_0 and k_0.  f16 ends at 65504. */
static void lift_scores(struct attn_recipe *r, double scale)
{
    double largest = 64;
    r->lift = r->fill == ATTN_FILL_OUTLIERS ? 4 : 1;
    for (int64_t j = 0; j < r->problem->n_key; j++)
        largest = fmax(largest, fabs(level(r, j)));
    while (r->problem->dtype == ATTN_F16 && r->lift < 1024 &&
           largest / (8 * r->lift * fabs(scale)) > 0x1p14)
        r->lift *= 2;
    r->divisor = 8 * r->lift * scale;
}

/* V of the fills tiny and huge, dO of huge, and q of faint, as a factor of normal numbers; k of
 * faint is large as that is small, and within the domain (ref/attn.h). */
static double extreme(const struct attn_recipe *r)
{
    int f16 = r->problem->dtype == ATTN_F16, f64 = r->problem->dtype == ATTN_F64;
    if (r->fill == ATTN_FILL_FAINT)
        return f16 ? 0x1p-17 : f64 ? 0x1p-1025 : 0x1p-129;
    if (r->fill == ATTN_FILL_TINY)
        return f16 ? 0x1p-17 : f64 ? 0x1p-1030 : 0x1p-130;
    return r->fill == ATTN_FILL_HUGE ? (f16 ? 0x1p13 : f64 ? 0x1p500 : 0x1p56) : 1;
}

enum attn_status attn_recipe_open(const struct attn_case *c, const struct attn_problem *problem,
                                  struct attn_recipe *r, struct attn_error *err)
{
    *r = (struct attn_recipe){.problem = problem,
                              .fill = c->fill,
                              .seed = c->seed,
                              .bias = c->bias,
                              .sink = c->sink,
                              .row = -1};
    for (int stream = STREAM_Q; stream < STREAMS; stream++)
        r->stream[stream] = attn_hash_stream(r->seed, (uint64_t)stream);
    double size = fabs(problem->scale);
    if (carries(c->fill) && size >= 0x1p-20 && size <= 0x1p20)
        lift_scores(r, problem->scale);
    if (c->fill == ATTN_FILL_POWERS) /* a score of 1 ln 2; 1 where scale is ln 2 itself */
        r->divisor = size >= 0x1p-20 && size <= 0x1p20 ? 0x1.62e42fefa39efp-1 / problem->scale : 1;
    if (c->fill == ATTN_FILL_REVEAL && c->bias != ATTN_CASE_BIAS_NONE)
        return attn_fail(err, ATTN_EINVAL,
                         "fill reveal with a bias: its rows would no longer be uniform, so nothing "
                         "could be counted; any other fill would work, or no bias");
    if (c->fill == ATTN_FILL_REVEAL && problem->dtype == ATTN_BF16 && problem->d_value > 0 &&
        problem->n_key / problem->d_value >= 32)
        return attn_fail(
            err, ATTN_EINVAL,
            "fill reveal in bf16: %lld keys on %lld columns cannot be counted in eight "
            "bits; fewer than 32 a column would work",
            (long long)problem->n_key, (long long)problem->d_value);
    return c->fill == ATTN_FILL_SELECT ? open_select(c, r, err) : ATTN_OK;
}

/* Asked once for each row. */
static int64_t target_of(struct attn_recipe *r, int64_t b, int64_t h, int64_t i)
{
    int64_t row = (b * r->problem->heads + h) * r->problem->n_query + i;
    if (r->row != row)
        r->target = r->fill == ATTN_FILL_POWERS ? powers_choice(r, b, h, i)
                                                : attn_recipe_target(r, b, h, i);
    r->row = row;
    return r->target;
}

static double q_of(struct attn_recipe *r, int64_t b, int64_t h, int64_t i, int64_t c)
{
    const struct attn_problem *p = r->problem;
    uint64_t index = query_cell(p, b, h, i, c, p->d_key);
    if (r->fill == ATTN_FILL_POWERS)
        return c < POWERS_EQUAL && target_of(r, b, h, i) == c ? 1 : 0;
    int64_t target = r->fill == ATTN_FILL_SELECT ? target_of(r, b, h, i) : -1;
    if (r->fill == ATTN_FILL_FLAT || r->fill == ATTN_FILL_REVEAL)
        return 0;
    if (r->fill == ATTN_FILL_INTEGER)
        return integer(r, STREAM_Q, index, 3);
    if (r->fill == ATTN_FILL_FAINT)
        return (i + c) % 4 == 3 ? -0.0 : normal(r, STREAM_Q, index) * extreme(r);
    if (r->fill == ATTN_FILL_LEVEL)
        return c % 2 == 0 ? normal(r, STREAM_Q, index) : 0;
    if (target >= 0) {
        double word = code_feature(r, b, h / (p->heads / p->kv_heads), target, c);
        return p->scale < 0 ? -word : word;
    }
    if (r->fill == ATTN_FILL_ROWS)
        return normal(r, STREAM_Q, index) * row_size(r, (b * p->heads + h) * p->n_query + i);
    if (r->divisor == 0)
        return normal(r, STREAM_Q, index) * token_size(r, b, i, p->n_query);
    if (c == 0 || outlier(r, c, p->d_key) != 0)
        return r->lift * (8 + (double)(attn_hash(r->seed, STREAM_Q, index) % 4) * 0.125);
    return normal(r, STREAM_Q, index) * (r->fill == ATTN_FILL_TIES ? 0.125 : 0.5);
}

static double k_of(const struct attn_recipe *r, int64_t b, int64_t g, int64_t j, int64_t c)
{
    const struct attn_problem *p = r->problem;
    /* Tied keys are one vector: the first one's; level ones are, where q is not 0. */
    int tied =
        (r->fill == ATTN_FILL_TIES && j % 3 == 0) || (r->fill == ATTN_FILL_LEVEL && c % 2 == 0);
    int64_t like = tied ? 0 : j;
    uint64_t index = key_cell(p, b, g, like, c, p->d_key);
    if (r->fill == ATTN_FILL_INTEGER)
        return integer(r, STREAM_K, index, 3);
    if (r->fill == ATTN_FILL_FAINT)
        return normal(r, STREAM_K, index) * (p->dtype == ATTN_F16 ? 0x1p-4 : 0x1p-11) / extreme(r);
    if (r->fill == ATTN_FILL_SELECT)
        return code_feature(r, b, g, j, c);
    if (r->fill == ATTN_FILL_POWERS)
        return c < POWERS_EQUAL ? power_of(r, j, c) * r->divisor : integer(r, STREAM_K, index, 2);
    if (r->fill == ATTN_FILL_LOWRANK) {
        double base = normal(r, STREAM_BASE, key_cell(p, b, g, 0, c, p->d_key));
        return base + normal(r, STREAM_K, index) * 0x1p-6;
    }
    if (r->divisor == 0)
        return normal(r, STREAM_K, index) * token_size(r, b, j, p->n_key);
    double noise = normal(r, STREAM_K, index) * (r->fill == ATTN_FILL_TIES ? 0.125 : 0.5);
    double far = outlier(r, c, p->d_key);
    if (c > 0 && far == 0)
        return noise;
    double score = level(r, j) + noise;
    return far + score / r->divisor;
}

/* Whole numbers that a type holds, or nearly: primes, so that no extent divides them. */
static uint64_t numbers(enum attn_dtype dtype)
{
    return dtype == ATTN_BF16 ? 251 : dtype == ATTN_F16 ? 2039 : 1 << 24;
}

static double v_of(const struct attn_recipe *r, int64_t b, int64_t g, int64_t j, int64_t c)
{
    const struct attn_problem *p = r->problem;
    uint64_t index = key_cell(p, b, g, j, c, p->d_value);
    switch (r->fill) {
    case ATTN_FILL_TIES:
        return 0.5 + attn_hash_uniform(r->seed, STREAM_V, index);
    case ATTN_FILL_FLAT:
        return 0.1;
    case ATTN_FILL_LEVEL:
        return c == 0 ? 0.75 : normal(r, STREAM_V, index);
    case ATTN_FILL_ONES:
        return 1;
    case ATTN_FILL_HETERO:
        return normal(r, STREAM_V, index) * uneven(b, g);
    case ATTN_FILL_INTEGER:
        return integer(r, STREAM_V, index, 7);
    case ATTN_FILL_POWERS:
        return integer(r, STREAM_V, index, 3);
    case ATTN_FILL_REVEAL:
        return j % p->d_value == c ? 1 : 0;
    case ATTN_FILL_SELECT:
        return (double)(index % numbers(p->dtype) + 1); /* its own number: misrouting is named */
    case ATTN_FILL_TINY:
    case ATTN_FILL_HUGE:
        return normal(r, STREAM_V, index) * extreme(r);
    case ATTN_FILL_SINK:
        return normal(r, STREAM_V, index) * (j == 0 ? 0x1p-5 : 1);
    case ATTN_FILL_OUTLIERS:
        return normal(r, STREAM_V, index) * (outlier(r, c, p->d_value) != 0 ? 32 : 1);
    default:
        return normal(r, STREAM_V, index) * token_size(r, b, j, p->n_key);
    }
}

static double d_o_of(const struct attn_recipe *r, int64_t b, int64_t h, int64_t i, int64_t c)
{
    const struct attn_problem *p = r->problem;
    uint64_t index = query_cell(p, b, h, i, c, p->d_value);
    switch (r->fill) {
    case ATTN_FILL_ONES:
        return 1;
    case ATTN_FILL_HETERO:
        return normal(r, STREAM_D_O, index) * uneven(b + 1, 2 * h);
    case ATTN_FILL_INTEGER:
    case ATTN_FILL_SELECT:
        return integer(r, STREAM_D_O, index, 7);
    case ATTN_FILL_POWERS:
        return integer(r, STREAM_D_O, index, 2);
    case ATTN_FILL_HUGE:
        return normal(r, STREAM_D_O, index) * extreme(r);
    case ATTN_FILL_SPIKE: {
        int64_t loud = (int64_t)(attn_hash(r->seed, STREAM_TARGET, 0) % (uint64_t)p->n_query);
        return normal(r, STREAM_D_O, index) * (i == loud ? 1024 : 1);
    }
    case ATTN_FILL_LOUD: /* a token is loud in all of its heads */
        return normal(r, STREAM_D_O, index) * row_size(r, b * p->n_query + i);
    default:
        return normal(r, STREAM_D_O, index);
    }
}

static double bias_of(const struct attn_recipe *r, int64_t b, int64_t h, int64_t i, int64_t j)
{
    uint64_t index = query_cell(r->problem, b, h, i, j, r->problem->n_key);
    if (r->bias == ATTN_CASE_BIAS_INF &&
        ((b + h + i) % 7 == 3 || attn_hash(r->seed, STREAM_BIAS_HIDE, index) % 4 == 0))
        return (double)-INFINITY;
    double x = normal(r, STREAM_BIAS, index); /* in 16 bits a number of the type: exact in either */
    return r->problem->dtype >= ATTN_BF16 ? attn_dtype_round(x, r->problem->dtype) : x;
}

/* z of a head (cases.h). */
static double sink_of(const struct attn_recipe *r, int64_t h)
{
    static const double least = -(double)INFINITY;
    int f64 = r->problem->dtype == ATTN_F64;
    double x = normal(r, STREAM_SINK, (uint64_t)h);
    double large[] = {4 + fabs(x), f64 ? 1000 : 100, -100, least};
    const int counts = r->fill == ATTN_FILL_REVEAL && r->sink != ATTN_CASE_SINK_LARGE;
    if (r->fill == ATTN_FILL_REVEAL || r->fill == ATTN_FILL_SELECT || r->fill == ATTN_FILL_SUBSETS)
        return counts ? 0 : -10000;
    return r->sink == ATTN_CASE_SINK_LARGE ? large[h % 4] : r->sink == ATTN_CASE_SINK_ZERO ? 0 : x;
}

/* Element [b,h,i,c] of an input; of a bias, indices of axes on which it is broadcast must be 0. */
static double value_of(struct attn_recipe *r, enum attn_slot slot, const int64_t at[4])
{
    switch (slot) {
    case ATTN_T_Q:
        return q_of(r, at[0], at[1], at[2], at[3]);
    case ATTN_T_K:
        return k_of(r, at[0], at[1], at[2], at[3]);
    case ATTN_T_V:
        return v_of(r, at[0], at[1], at[2], at[3]);
    case ATTN_T_BIAS:
        return bias_of(r, at[0], at[1], at[2], at[3]);
    case ATTN_T_SINK:
        return sink_of(r, at[1]);
    case ATTN_T_DO:
        return d_o_of(r, at[0], at[1], at[2], at[3]);
    default: /* dLSE */
        return normal(r, STREAM_D_LSE, query_cell(r->problem, at[0], at[1], at[2], 0, 1));
    }
}

void attn_recipe_fill(struct attn_recipe *r, const struct attn_setup_part *part,
                      enum attn_slot slot, const int64_t extent[4], const struct attn_tensor *t)
{
    enum { MOST = 256 };
    double x[MOST];
    const struct attn_view view = attn_tensor_view(t);
    const int64_t rows[4] = {extent[0], extent[1], extent[2], (extent[3] + MOST - 1) / MOST};
    for (int64_t at[4] = ATTN_START; attn_each(at, rows);) {
        int64_t from = at[3] * MOST, end = from + MOST < extent[3] ? from + MOST : extent[3];
        int64_t whole[4] = {at[0], at[1], at[2], from};
        if (part != NULL)
            part->whole(part, (int)slot, whole);
        if (r->subsets != NULL && whole[0] >= 0)
            attn_subsets_fill(r->subsets, slot, whole, end, x);
        else
            for (double *to = x; whole[3] < end; whole[3]++)
                *to++ = whole[0] < 0 ? (double)NAN : value_of(r, slot, whole);
        attn_view_set_row(&view, (int64_t[4]){at[0], at[1], at[2], from}, end - from, x);
    }
}

enum attn_status attn_recipe_is_all(const struct attn_case *c, struct attn_error *err)
{
    if (c->special == ATTN_SPECIAL_NONE && c->poison == ATTN_POISON_NONE &&
        c->layout == ATTN_LAYOUT_BHLD && c->bias <= ATTN_CASE_BIAS_ALIBI &&
        c->sink == ATTN_CASE_SINK_NONE)
        return ATTN_OK;
    return attn_fail(err, ATTN_ENOTSUP,
                     "no part of a case with special=, poison=, layout=, a sink or a bias tensor");
}

/* By roots and products: the same bits everywhere. */
double attn_recipe_slope(const struct attn_case *c, int64_t h)
{
    int64_t n = 1;
    double base = 0x1p-8, slope = 1;
    if (c->slopes == ATTN_SLOPES_HALVES)
        return ldexp(1, -(int)(1 + h % 8));
    for (; 2 * n <= c->heads; n *= 2)
        base = sqrt(base);
    if (h >= n)
        base = sqrt(base);
    for (int64_t k = h < n ? h + 1 : 2 * (h - n) + 1; k > 0; k--)
        slope *= base;
    return slope;
}
