/* Masks.  The definition, attn_mask_allows, is pinned by pictures drawn by hand; everything else is
 * compared with the definition, on every pair, row, run start and rectangle of small shapes. */
#include "tests/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/mask_data.h"

SUITE(mask);

/* ---- everything against the definition ---------------------------------------------------- */

/* One (batch, head) of a mask, asked pair by pair, and its two-dimensional prefix sums. */
struct picture {
    int64_t n_query, n_key;
    int visible[MASK_MOST][MASK_MOST + 1];
    int64_t sum[MASK_MOST + 1][MASK_MOST + 1]; /* pairs in [0,i) by [0,j) */
};

static void picture_take(struct picture *picture, const struct attn_mask *mask, int64_t b,
                         int64_t h)
{
    const struct attn_mask_shape *s = attn_mask_shape(mask);
    memset(picture, 0, sizeof *picture);
    picture->n_query = s->n_query;
    picture->n_key = s->n_key;
    for (int64_t i = 0; i < s->n_query; i++)
        for (int64_t j = 0; j < s->n_key; j++) {
            picture->visible[i][j] = attn_mask_allows(mask, b, h, i, j);
            picture->sum[i + 1][j + 1] = picture->sum[i][j + 1] + picture->sum[i + 1][j] -
                                         picture->sum[i][j] + picture->visible[i][j];
        }
}

static int64_t picture_count(const struct picture *p, int64_t i0, int64_t i1, int64_t j0,
                             int64_t j1)
{
    return p->sum[i1][j1] - p->sum[i0][j1] - p->sum[i1][j0] + p->sum[i0][j0];
}

#define SAY(mask, b, h) attn_mask_text(mask), (int)(b), (int)(h)

static void check_runs(const struct picture *p, const struct attn_mask *mask, int64_t b, int64_t h)
{
    for (int64_t i = 0; i < p->n_query; i++)
        for (int64_t from = 0; from <= p->n_key; from++) {
            int64_t first = from;
            struct attn_run run = {-1, from};
            while (first < p->n_key && !p->visible[i][first])
                first++;
            int found = attn_mask_next(mask, b, h, i, &run);
            if (found != (first < p->n_key))
                ck_abort_msg("%s b%d h%d: next of row %d from %d", SAY(mask, b, h), (int)i,
                             (int)from);
            if (!found)
                continue;
            int64_t lo = run.lo, hi = run.hi, good = lo == first && hi > lo && hi <= p->n_key;
            if (!good || picture_count(p, i, i + 1, lo, hi) != hi - lo)
                ck_abort_msg("%s b%d h%d: row %d from %d gave [%d,%d)", SAY(mask, b, h), (int)i,
                             (int)from, (int)lo, (int)hi);
        }
}

/* A span, where there is one, is what the row shows. */
static void check_spans(const struct picture *p, const struct attn_mask *mask, int64_t b, int64_t h)
{
    for (int64_t i = 0; i < p->n_query; i++) {
        int64_t n = picture_count(p, i, i + 1, 0, p->n_key);
        struct attn_run run = {-1, -1};
        if (!attn_mask_span(mask, b, h, i, &run))
            continue;
        int64_t lo = run.lo, hi = run.hi;
        int good = n == 0 ? lo >= hi
                          : lo >= 0 && hi <= p->n_key && hi - lo == n &&
                                picture_count(p, i, i + 1, lo, hi) == n;
        if (!good)
            ck_abort_msg("%s b%d h%d: row %d spans [%d,%d), but %d keys are visible",
                         SAY(mask, b, h), (int)i, (int)lo, (int)hi, (int)n);
    }
}

/* Bounds, where there are some, are those of the picture. */
static void check_band(const struct picture *p, const struct attn_mask *mask, int64_t b, int64_t h)
{
    int64_t least, most;
    if (!attn_mask_band(mask, b, &least, &most))
        return;
    for (int64_t i = 0; i < p->n_query; i++)
        for (int64_t j = 0; j < p->n_key; j++)
            if (p->visible[i][j] != (least <= j - i && j - i <= most))
                ck_abort_msg("%s b%d h%d: pair %d, %d is not what the band %lld to %lld says",
                             SAY(mask, b, h), (int)i, (int)j, (long long)least, (long long)most);
}

static void check_rows(const struct picture *p, const struct attn_mask *mask, int64_t b, int64_t h)
{
    for (int64_t i = 0; i < p->n_query; i++)
        for (int64_t j0 = 0; j0 <= p->n_key; j0++)
            for (int64_t j1 = j0; j1 <= p->n_key; j1++) {
                int32_t column[MASK_MOST + 1];
                int64_t n = picture_count(p, i, i + 1, j0, j1), at = 0;
                column[n] = -77;
                int64_t counted = attn_mask_row_count(mask, b, h, i, j0, j1);
                const struct attn_tokens keys = attn_tokens_between(j0, j1);
                int64_t listed = attn_mask_list_keys(mask, b, h, i, &keys, column);
                int good = counted == n && listed == n && column[n] == -77;
                for (int64_t j = j0; j < j1 && good; j++)
                    if (p->visible[i][j])
                        good = column[at++] == j - j0;
                if (!good)
                    ck_abort_msg("%s b%d h%d: row %d, keys [%d,%d): %d counted, %d listed, %d true",
                                 SAY(mask, b, h), (int)i, (int)j0, (int)j1, (int)counted,
                                 (int)listed, (int)n);
            }
}

/* exact: a single call, whose tile class must be the truth; else it may say PARTIAL. */
static void check_block(const struct picture *p, const struct attn_mask *mask,
                        struct attn_tile_at at, int exact)
{
    int64_t b = at.b, h = at.h, i0 = at.i0, i1 = at.i1, j0 = at.j0, j1 = at.j1;
    int64_t n = picture_count(p, i0, i1, j0, j1), area = (i1 - i0) * (j1 - j0);
    enum attn_tile truth = n == 0      ? ATTN_TILE_EMPTY
                           : n == area ? ATTN_TILE_FULL
                                       : ATTN_TILE_PARTIAL;
    enum attn_tile tile = attn_mask_tile(mask, at);
    if (!(tile == truth || (!exact && area > 0 && tile == ATTN_TILE_PARTIAL)))
        ck_abort_msg("%s b%d h%d: tile [%d,%d)x[%d,%d) is %d, not %d", SAY(mask, b, h), (int)i0,
                     (int)i1, (int)j0, (int)j1, (int)truth, (int)tile);
    int counted = 0;
    int64_t claimed = attn_mask_count(mask, at, &counted);
    if (claimed != n || (counted != 0 && counted != 1))
        ck_abort_msg("%s b%d h%d: [%d,%d)x[%d,%d) holds %d, not %d", SAY(mask, b, h), (int)i0,
                     (int)i1, (int)j0, (int)j1, (int)n, (int)claimed);
}

static void check_blocks(const struct picture *p, const struct attn_mask *mask, int64_t b,
                         int64_t h, int exact)
{
    for (int64_t i0 = 0; i0 <= p->n_query; i0++)
        for (int64_t i1 = i0; i1 <= p->n_query; i1++)
            for (int64_t j0 = 0; j0 <= p->n_key; j0++)
                for (int64_t j1 = j0; j1 <= p->n_key; j1++)
                    check_block(p, mask, (struct attn_tile_at){b, h, i0, i1, j0, j1}, exact);
}

static void check_everything(const char *text, struct mask_data *d, int exact)
{
    struct attn_mask *mask = mask_data_parse(text, d);
    struct picture first = {0}, p;
    ck_assert_str_eq(attn_mask_text(mask), text);
    for (int64_t b = 0; b < d->shape.batch; b++)
        for (int64_t h = 0; h < d->shape.heads; h++) {
            picture_take(&p, mask, b, h);
            check_runs(&p, mask, b, h);
            check_spans(&p, mask, b, h);
            check_band(&p, mask, b, h);
            check_rows(&p, mask, b, h);
            check_blocks(&p, mask, b, h, exact);
            if (b == 0 && h == 0)
                first = p;
            if ((b == 0 || !attn_mask_varies_by_batch(mask)) &&
                (h == 0 || !attn_mask_varies_by_head(mask)) && memcmp(&p, &first, sizeof p) != 0)
                ck_abort_msg("%s: claims to be the same for b%d h%d, but is not", SAY(mask, b, h));
        }
    attn_mask_free(mask);
}

/* ---- the whole language ------------------------------------------------------------------ */

TEST_EACH(texts_agree_with_the_definition, mask_texts)
{
    static struct mask_data d;
    char text[256];
    enum mask_fit fit;
    for (int s = 0; (fit = mask_data_text(_i, s, &d, text, sizeof text)) != MASK_NO_SHAPE; s++)
        check_everything(text, &d, fit == MASK_IS_EXACT);
}

TEST_EACH(drawn_formulas_agree_with_the_definition, 20)
{
    static struct mask_data d;
    static const struct attn_mask_shape shapes[] = {{2, 2, 6, 6}, {2, 2, 4, 7}, {2, 1, 7, 4}};
    uint64_t draws = (uint64_t)_i * 100000;
    for (int n = 0; n < 12; n++) {
        char text[8192] = "";
        mask_data_fill(&d, &shapes[n % 3]);
        mask_data_draw(text, sizeof text, &d.shape, &draws, 1 + n % 3);
        check_everything(text, &d, 0);
    }
}

/* The tensors themselves, element by element. */
TEST(named_tensors_mean_what_they_hold)
{
    static struct mask_data d;
    mask_data_fill(&d, &mask_shapes[1]);
    const struct attn_mask_shape *s = &d.shape;
    const char *texts[] = {"keys(pad)",      "keys(pad_all)", "dense(flat)", "dense(by_batch)",
                           "dense(by_head)", "dense(full)",   "csr(each)",   "csr(all)"};
    struct attn_mask *mask[8];
    for (int n = 0; n < 8; n++)
        mask[n] = mask_data_parse(texts[n], &d);
    for (int64_t at = 0; at < s->batch * s->heads * s->n_query * s->n_key; at++) {
        int64_t j = at % s->n_key, i = at / s->n_key % s->n_query;
        int64_t h = at / s->n_key / s->n_query % s->heads,
                b = at / s->n_key / s->n_query / s->heads;
        int64_t row = (b * s->heads + h) * s->n_query + i, plane = s->n_query * s->n_key;
        int in_each = 0, in_all = 0;
        for (int64_t c = d.start[row]; c < d.start[row + 1]; c++)
            in_each |= d.column[c] == j;
        for (int64_t c = d.start_all[i]; c < d.start_all[i + 1]; c++)
            in_all |= d.column_all[c] == j;
        int truth[] = {d.pad[b * s->n_key + j] != 0,
                       d.pad_all[j] != 0,
                       d.flat[i * s->n_key + j] != 0,
                       d.by_batch[b * plane + i * s->n_key + j] != 0,
                       d.by_head[h * plane + i * s->n_key + j] != 0,
                       d.full[row * s->n_key + j] != 0,
                       in_each,
                       in_all};
        for (int n = 0; n < 8; n++)
            if (attn_mask_allows(mask[n], b, h, i, j) != truth[n])
                ck_abort_msg("%s at b%d h%d i%d j%d", texts[n], (int)b, (int)h, (int)i, (int)j);
    }
    for (int n = 0; n < 8; n++)
        attn_mask_free(mask[n]);
}

/* ---- calls in numbers ---------------------------------------------------------------------- */

/* Of 3 queries and 5 keys, as the second of two batches has them.  A price of a cache, a claim of a
 * layout and the title of a figure ask nothing else of a mask. */
static const struct {
    const char *text;
    int64_t n;
    struct attn_mask_call call;
} CALLS[] = {
    {"causal(br)", 0, {ATTN_CALL_BAND, -1, 0, 2, -1, 0, NULL, NULL}},
    {"prefix(2)&causal(+1)", 0, {ATTN_CALL_OTHER, 0, 0, 0, -1, 0, NULL, NULL}},
    {"prefix(2)&causal(+1)", 1, {ATTN_CALL_BAND, -1, 0, 1, -1, 0, NULL, NULL}},
    {"window(4,1,tl)&keys(2,3)", 0, {ATTN_CALL_BAND, 4, 1, 0, -1, 0, NULL, NULL}},
    {"window(4,1,tl)&keys(2,3)", 1, {ATTN_CALL_KEYS, 0, 0, 0, 3, 0, NULL, NULL}},
    {"causal(ends,5,4)", 0, {ATTN_CALL_BAND, -1, 0, 1, 4, 0, NULL, NULL}},
    {"causal(br)|prefix(2)", 0, {ATTN_CALL_OTHER, 0, 0, 0, -1, 0, NULL, NULL}},
    {"(causal(br)|prefix(2))&window(1,0,br)", 1, {ATTN_CALL_BAND, 1, 0, 2, -1, 0, NULL, NULL}},
    {"documents(1x2,2x3)", 0, {ATTN_CALL_DOCUMENTS, 0, 0, 0, -1, 2, NULL, NULL}},
};

TEST_EACH(calls_are_numbers, COUNT(CALLS))
{
    const struct attn_mask_call *want = &CALLS[_i].call;
    struct attn_mask *mask = mask_of(CALLS[_i].text, (struct attn_mask_shape){2, 1, 3, 5});
    struct attn_mask_call got;
    int64_t n = 0;
    ck_assert_int_eq(attn_mask_call(mask, 1, CALLS[_i].n, &got), 1);
    ck_assert_int_eq(got.kind, want->kind);
    ck_assert_int_eq(got.length, want->length);
    ck_assert_int_eq(got.n, want->n);
    if (want->kind == ATTN_CALL_BAND) {
        ck_assert_int_eq(got.left, want->left);
        ck_assert_int_eq(got.right, want->right);
        ck_assert_int_eq(got.offset, want->offset);
    }
    for (int64_t d = 1; d <= want->n; d++) {
        ck_assert_int_eq(got.query_start[d], d == 1 ? 1 : 3);
        ck_assert_int_eq(got.key_start[d], d == 1 ? 2 : 5);
    }
    while (attn_mask_call(mask, 1, n, &got))
        n++;
    ck_assert_int_eq(n, strchr(CALLS[_i].text, '&') != NULL ? 2 : 1);
    attn_mask_free(mask);
}

/* ---- pictures drawn by hand --------------------------------------------------------------- */

/* Rows from top to bottom, blank-separated; of batch b. */
static const struct {
    const char *text;
    int n_query, n_key, b;
    const char *rows;
} PICTURES[] = {
    {"none", 2, 3, 0, "### ###"},
    {"causal(br)", 2, 5, 0, "####. #####"}, /* AL-01, -06: a longer K; AL-11: >= is not > */
    {"causal(tl)", 2, 5, 0, "#.... ##..."},
    {"causal(tl)", 1, 8, 0, "#......."}, /* AL-02: one query and a cache */
    {"causal(br)", 1, 8, 0, "########"},
    {"causal(br)", 5, 2, 0, ".. .. .. #. ##"}, /* AL-07, -09: rows that see nothing */
    {"causal(tl)", 5, 2, 0, "#. ## ## ## ##"},
    {"causal(+1)", 3, 4, 0, "##.. ###. ####"},
    {"causal(ends,3)", 2, 5, 0, "##... ###.."}, /* a cache of five, three in use */
    {"window(1,0,ends,3)", 4, 4, 0, ".... #... ##.. .##."},
    {"causal(-1)", 3, 3, 0, "... #.. ##."},
    {"window(1,0,tl)", 4, 4, 0, "#... ##.. .##. ..##"}, /* SW-01 to -03: l + 1 keys, not l */
    {"window(1,0,br)", 2, 5, 0, "..##. ...##"},         /* SW-04: Lq < Lk */
    {"window(0,2,tl)", 3, 5, 0, "###.. .###. ..###"},   /* SW-05: r keys ahead, inclusive */
    {"window(1,0,br)", 1, 4, 0, "..##"},                /* SW-06: the current token is seen */
    {"window(-1,-1,tl)", 2, 3, 0, "### ###"},           /* SW-12: -1 is no limit */
    {"window(-1,0,br)", 2, 3, 0, "##. ###"},
    {"window(0,-1,tl)", 3, 3, 0, "### .## ..#"},
    {"window(2,1,br)", 3, 2, 0, "#. ## ##"},
    {"window(0,0,br)", 3, 2, 0, ".. #. .#"},
    {"prefix(2)", 2, 4, 0, "##.. ##.."},
    {"causal(tl)|prefix(2)", 4, 4, 0, "##.. ##.. ###. ####"}, /* SW-11: prefix LM */
    {"global(1)", 3, 4, 0, "#### #... #..."},
    {"keys(2)", 2, 3, 1, "##. ##."},
    {"keys(3,1)", 2, 3, 0, "### ###"}, /* MK-15: a full length hides nothing */
    {"keys(3,1)", 2, 3, 1, "#.. #.."},
    {"keys(0)", 1, 3, 0, "..."},
    {"keys(x0110)", 1, 6, 0, ".##..#"}, /* the digits repeat */
    {"keys(x01,x110)", 1, 6, 1, "##.##."},
    {"causal(tl)&keys(x0110010)", 7, 7, 0, /* MK-05, -06: holes, and a row that sees nothing */
     "....... .#..... .##.... .##.... .##.... .##..#. .##..#."},
    {"documents(2,1)", 3, 3, 0, "##. ##. ..#"},
    {"documents(2,0,1)", 3, 3, 0, "##. ##. ..#"},
    {"documents(1x2,2x1)", 3, 3, 0, "##. ..# ..#"},
    {"documents(2x0,1x3)", 3, 3, 0, "... ... ###"},
    {"documents(2,2)&causal(tl)", 4, 4, 0, "#... ##.. ..#. ..##"},
    {"prefix(3)|causal(tl)&prefix(1)", 2, 3, 0, "### ###"}, /* & binds tighter */
    {"(prefix(3)|causal(tl))&prefix(1)", 2, 3, 0, "#.. #.."},
    {" ( prefix( 3 )|causal (tl) )\t& prefix(1 ) ", 2, 3, 0, "#.. #.."},
    {"random(0,1)|prefix(1)", 2, 3, 0, "#.. #.."},
    {"spatial(2,1,2)", 4, 4, 0, "##.. ##.. ..## ..##"}, /* SP-23: frames are T, not H, long */
    {"spatial(2,2,1)", 4, 4, 0, "##.. ##.. ..## ..##"},
    {"spatial(1,2,2)", 4, 4, 0, "#### #### #### ####"},
    {"temporal(2,1,2)", 4, 4, 0, "#.#. .#.# #.#. .#.#"},
    {"temporal(3,1,2)", 6, 6, 0, "#.#.#. .#.#.# #.#.#. .#.#.# #.#.#. .#.#.#"},
    {"temporal(2,1,3)", 6, 6, 0, "#..#.. .#..#. ..#..# #..#.. .#..#. ..#..#"},
    {"skiparse(single,2)", 3, 5, 0, "#.#.# .#.#. #.#.#"},
    {"skiparse(group,2)", 6, 9, 0, /* m = i / 2 % 2: pairs of tokens, two apart */
     "##..##..# ##..##..# ..##..##. ..##..##. ##..##..# ##..##..#"},
    {"skiparse(group,1)", 2, 3, 0, "### ###"},
    {"dilated(2,3,2)", 6, 6, 0, "#.#... .#.... #.#... ...#.# ....#. ...#.#"},
    {"axial2d(2,3)", 6, 6, 0, "####.. ###.#. ###..# #..### .#.### ..####"},
    {"local2d(2,3,0,1)", 6, 6, 0, "##.... ###... .##... ...##. ...### ....##"},
    {"local2d(2,3,1,0)", 6, 6, 0, "#..#.. .#..#. ..#..# #..#.. .#..#. ..#..#"},
    {"local2d(2,3,2,l1)", 6, 6, 0, "##.#.. ###.#. .##..# #..##. .#.### ..#.##"},
    {"local2d(2,3,2,l2)", 6, 6, 0, "##.##. ###### .##.## ##.##. ###### .##.##"},
    {"local2d(1,4,2,l2)", 4, 4, 0, "##.. ###. .### ..##"}, /* nearer than 2: not 2 itself */
    {"local3d(3,1,2,1,0,0)", 6, 6, 0, "#.#... .#.#.. #.#.#. .#.#.# ..#.#. ...#.#"},
    {"blocks(2,1,7)", 2, 3, 0, "### ###"},
    {"random(1,1)", 2, 3, 0, "### ###"},
};
enum { N_PICTURES = sizeof PICTURES / sizeof *PICTURES };

/* The claims of a mask about frames. */
struct claims {
    enum attn_video video;
    int64_t frames;
};

/* It holds of every pair: what is visible is of one frame or place, and there are whole frames
 * only. */
static struct claims sound_claims(const char *text, int n_query, int n_key)
{
    static struct mask_data d;
    mask_data_fill(&d, &(struct attn_mask_shape){2, 1, n_query, n_key});
    struct attn_mask *mask = mask_data_parse(text, &d);
    struct claims x;
    x.video = attn_mask_video(mask, &x.frames);
    ck_assert_msg(x.video == ATTN_NO_VIDEO || (n_query == n_key && n_key % x.frames == 0),
                  "%s: %d frames of %d tokens", text, (int)x.frames, n_key);
    int64_t size = n_key / x.frames;
    for (int n = 0; n < 2 * n_query * n_key; n++) {
        int b = n / n_key / n_query, i = n / n_key % n_query, j = n % n_key;
        int sees = attn_mask_allows(mask, b, 0, i, j), of_video = 1;
        if (x.video != ATTN_NO_VIDEO)
            of_video = x.video == ATTN_SAME_FRAME ? i / size == j / size : i % size == j % size;
        ck_assert_msg(!sees || of_video, "%s: %d sees %d", text, i, j);
    }
    attn_mask_free(mask);
    return x;
}

TEST(videos_are_what_is_said)
{
    static const struct {
        const char *text;
        int n_query, n_key;
        struct claims said;
    } want[] = {{"spatial(2,3,2)", 12, 12, {ATTN_SAME_FRAME, 2}},
                {"temporal(2,3,2)", 12, 12, {ATTN_SAME_PLACE, 2}},
                {"causal(tl)&temporal(2,3,2)", 12, 12, {ATTN_SAME_PLACE, 2}},
                {"spatial(2,3,2)|temporal(2,3,2)", 12, 12, {ATTN_NO_VIDEO, 1}},
                {"skiparse(single,3)", 12, 12, {ATTN_SAME_PLACE, 4}},
                {"skiparse(single,3)", 13, 13, {ATTN_NO_VIDEO, 1}}, /* a frame is cut */
                {"skiparse(single,3)", 11, 13, {ATTN_NO_VIDEO, 1}},
                {"causal(tl)&skiparse(single,1)", 12, 12, {ATTN_SAME_PLACE, 12}},
                {"skiparse(group,2)", 12, 12, {ATTN_NO_VIDEO, 1}},
                {"skiparse(group,2)", 7, 13, {ATTN_NO_VIDEO, 1}},
                {"skiparse(group,4)", 12, 12, {ATTN_SAME_FRAME, 3}}, /* one run each */
                {"skiparse(group,2)&causal(tl)", 12, 12, {ATTN_NO_VIDEO, 1}},
                {"local2d(3,4,0,1)", 12, 12, {ATTN_SAME_FRAME, 3}},
                {"local2d(3,4,2,l1)", 12, 12, {ATTN_NO_VIDEO, 1}},
                {"local3d(2,3,2,0,1,1)", 12, 12, {ATTN_NO_VIDEO, 1}},
                {"none", 12, 12, {ATTN_NO_VIDEO, 1}}};
    for (size_t n = 0; n < sizeof want / sizeof *want; n++) {
        struct claims x = sound_claims(want[n].text, want[n].n_query, want[n].n_key);
        ck_assert_msg(x.video == want[n].said.video && x.frames == want[n].said.frames,
                      "%s: video %d of %d frames", want[n].text, (int)x.video, (int)x.frames);
    }
    for (int n = 0; n < N_PICTURES; n++)
        sound_claims(PICTURES[n].text, PICTURES[n].n_query, PICTURES[n].n_key);
}

TEST_EACH(definition_is_what_was_drawn, N_PICTURES)
{
    int n_query = PICTURES[_i].n_query, n_key = PICTURES[_i].n_key;
    static struct mask_data d;
    mask_data_fill(&d, &(struct attn_mask_shape){2, 1, n_query, n_key});
    struct attn_mask *mask = mask_data_parse(PICTURES[_i].text, &d);
    ck_assert_int_eq((int)strlen(PICTURES[_i].rows), n_query * (n_key + 1) - 1);
    for (int i = 0; i < n_query; i++)
        for (int j = 0; j < n_key; j++)
            if (attn_mask_allows(mask, PICTURES[_i].b, 0, i, j) !=
                (PICTURES[_i].rows[i * (n_key + 1) + j] == '#'))
                ck_abort_msg("%s, b%d: query %d, key %d", PICTURES[_i].text, PICTURES[_i].b, i, j);
    attn_mask_free(mask);
}

/* The pictures of docs/masks.md: behind "```mask", or "```mask N" of N queries and keys, a line of
 * texts, two blanks apart, above the rows. */
enum { DOC_QUERY = 6, DOC_KEY = 8 };

static int doc_picture(const char *text, size_t x, const struct attn_mask_shape *shape,
                       char (*rows)[256])
{
    static struct mask_data d;
    mask_data_fill(&d, shape);
    struct attn_mask *mask = mask_data_parse(text, &d);
    for (int64_t i = 0; i < shape->n_query; i++)
        for (int64_t j = 0; j < shape->n_key; j++)
            if (strlen(rows[i]) < x + (size_t)shape->n_key ||
                rows[i][x + (size_t)j] != (attn_mask_allows(mask, 0, 0, i, j) ? '#' : '.'))
                ck_abort_msg("docs/masks.md: %s is drawn wrong at query %d, key %d", text, (int)i,
                             (int)j);
    attn_mask_free(mask);
    return 1;
}

TEST(pictures_of_the_page_are_true)
{
    char line[256], rows[MASK_MOST][256], text[256];
    int pictures = 0;
    FILE *file = fopen("docs/masks.md", "r");
    ck_assert_msg(file != NULL, "docs/masks.md: run from the root of the project");
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "```mask", 7) != 0)
            continue;
        int n = atoi(line + 7);
        struct attn_mask_shape shape = {1, 1, n > 0 ? n : DOC_QUERY, n > 0 ? n : DOC_KEY};
        ck_assert(fgets(line, sizeof line, file) != NULL && n < MASK_MOST);
        for (int64_t i = 0; i < shape.n_query; i++)
            ck_assert(fgets(rows[i], sizeof rows[i], file) != NULL);
        for (size_t x = 0; line[x] != '\n' && line[x] != '\0';) {
            size_t size = 0;
            while (line[x + size] != '\n' && strncmp(line + x + size, "  ", 2) != 0)
                size++;
            snprintf(text, sizeof text, "%.*s", (int)size, line + x);
            pictures += doc_picture(text, x, &shape, rows);
            x += size + strspn(line + x + size, " ");
        }
    }
    fclose(file);
    ck_assert_int_ge(pictures, 36);
}
