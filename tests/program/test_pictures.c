/* Pictures as a reader meets them: nothing is cut and nothing lies on anything else, whatever the
 * preset and the size of letters; the plan chooses; a user's edits are not lost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixtures/report_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(pictures, .open = scratch_open, .close = scratch_close);

/* ---- records with all that a figure has to make room for ------------------------------------- */

/* Of each group: long names, curves that coincide, many points that want a name, many buffers. */
static void add_lengths(void)
{
    static const char *const buffer[] = {"scores", "probs",    "mask",      "q.packed", "do.packed",
                                         "dq",     "tile.dkv", "kv.travel", "workspace"};
    static const char *const spec[] = {"dense", "tiled", "ring:ranks=2,order=zigzag"};
    for (int s = 0; s < 3; s++)
        for (int length = 256; length <= 65536; length *= 4) {
            char text[64];
            (void)snprintf(text, sizeof text, "q%dd64:causal(br):f32:normal:s1", length);
            struct attn_point *p = fixture_add("length-causal", spec[s], text, 0);
            p->n_live = 9;
            for (int b = 0; b < p->n_live; b++) {
                strcpy(p->live_name[b], buffer[b]);
                p->live_bytes[b] = p->ledger_bytes * (b + 1) / 45;
            }
            if (length > 10000)
                p->status = ATTN_POINT_PRICED;
        }
}

static void add_ranks(void)
{
    for (int ranks = 1; ranks <= 8; ranks *= 2)
        for (int s = 0; s < 2; s++) {
            char spec[32];
            (void)snprintf(spec, sizeof spec, "%s:ranks=%d", s == 0 ? "ring" : "allgather", ranks);
            struct attn_point *p = fixture_add("ranks", spec, "h8q256d64:none:f32:normal:s1", 0);
            p->ranks = ranks;
            p->price.device = 3.0 * (double)p->price.peak;
            p->price.sent = 4096;
            p->status = ranks > 2 ? ATTN_POINT_PRICED : ATTN_POINT_OK;
            fixture_add("balance", spec, "h8q256d64:causal(br):f32:normal:s1", 0)->ranks = ranks;
        }
}

static void add_choices(void)
{
    static const char *const spec[] = {"tiled",   "tiled:panels=1",      "bsr",
                                       "chunked", "chunked:q=16,k=1024", "csr:passes=3",
                                       "gemm",    "chunked:q=64,k=64"};
    for (int s = 0; s < 8; s++) {
        struct attn_point *p =
            fixture_add("trade", spec[s], "q1024d64:causal(br):f32:normal:s1", 0);
        p->warm_s[0] = 4e-3 * (1 + 0.02 * s);
        p->ledger_bytes = p->price.peak = p->resident_bytes = 200000 - 3000 * s;
    }
    for (int s = 0; s < 4; s++) {
        static const char *const save[] = {"tiled", "gemm:save=probs"};
        struct attn_point *p =
            fixture_add("layers", save[s / 2], "q1024d64:causal(br):f32:normal:s1", 0);
        p->stack = (struct attn_stack){1 + s % 2, ATTN_SAVE_ROWS, 0, 0};
    }
}

/* ---- texts of a picture ---------------------------------------------------------------------- */

struct text {
    double left, right, top, base, size;
    char words[200];
};
enum { TEXTS = 400 };

/* Widths of DejaVu Sans from ' ' to '~', in thousandths of its size: of the font itself, not of
 * what style.gp takes them for. */
static double width_of(const char *words)
{
    static const short width[] = {
        318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337,
        636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531,
        999, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787,
        603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500,
        500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612,
        635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838};
    double sum = 0;
    for (const char *c = words; *c != '\0'; c++)
        if ((*c & 0xc0) != 0x80) /* the first byte of a character */
            sum += *c >= ' ' && *c <= '~' ? width[*c - ' '] : 838;
    return sum / 1000;
}

/* The words of the next <text> behind *at, and their place; 0: there is none.  gnuplot writes
 * <g transform="translate(x,y)..." font-size="12.00"  text-anchor="end">, then the words. */
static int next_text(const char **at, struct text *text)
{
    double x, y;
    char anchor[8];
    const char *words = strstr(*at, "<text>"), *group = *at, *of = NULL;
    if (words == NULL)
        return 0;
    while ((group = strstr(group, "<g transform=\"translate(")) != NULL && group < words)
        of = group++;
    ck_assert_ptr_nonnull(of);
    ck_assert_int_eq(sscanf(of, "<g transform=\"translate(%lf,%lf)", &x, &y), 2);
    ck_assert_int_eq(sscanf(strstr(of, "font-size="), "font-size=\"%lf", &text->size), 1);
    ck_assert_int_eq(sscanf(strstr(of, "text-anchor="), "text-anchor=\"%7[a-z]", anchor), 1);
    words += strlen("<text>");
    (void)snprintf(text->words, sizeof text->words, "%.*s", (int)strcspn(words, "<"), words);
    double width = width_of(text->words) * text->size;
    text->left = x - (strcmp(anchor, "start") == 0 ? 0
                      : strcmp(anchor, "end") == 0 ? 1
                                                   : 0.5) *
                         width;
    text->right = text->left + width;
    text->base = y;
    text->top = y - 0.73 * text->size;
    *at = words;
    return 1;
}

/* gnuplot writes a text that has a box twice: to measure it, and over the box. */
static int is_same(const struct text *a, const struct text *b)
{
    return strcmp(a->words, b->words) == 0 && a->left == b->left && a->base == b->base;
}

/* Does the line from (x0, y0) to (x1, y1) cross the text? */
static int crosses(const struct text *a, double x0, double y0, double x1, double y1)
{
    double left = fmax(a->left, fmin(x0, x1)), right = fmin(a->right, fmax(x0, x1));
    double slope = x0 != x1 ? (y1 - y0) / (x1 - x0) : 0;
    double from = x0 != x1 ? y0 + slope * (left - x0) : y0;
    double to = x0 != x1 ? y0 + slope * (right - x0) : y1;
    return left < right && fmin(from, to) < a->base && fmax(from, to) > a->top;
}

/* A text that has a box lies over no curve: those have colours, axes and grids are grey. */
static void expect_no_curve(const char *path, const char *svg, const struct text *a)
{
    int red, green, blue, n;
    for (const char *at = svg; (at = strstr(at, "<path stroke='rgb(")) != NULL; at++) {
        double x0, y0, x1, y1;
        ck_assert_int_eq(sscanf(at, "<path stroke='rgb(%d,%d,%d)", &red, &green, &blue), 3);
        const char *to = strstr(at, " d='M") + 5;
        if ((red == green && green == blue) || sscanf(to, "%lf,%lf%n", &x0, &y0, &n) != 2)
            continue;
        for (to += n; sscanf(to, " L%lf,%lf%n", &x1, &y1, &n) == 2; to += n, x0 = x1, y0 = y1)
            ck_assert_msg(!crosses(a, x0, y0, x1, y1), "%s: '%s' lies on a curve", path, a->words);
    }
}

/* Every text is within the picture, no two lie on each other, and names of curves on no curve. */
static void expect_apart(const char *path)
{
    static struct text text[TEXTS];
    double width, height;
    char *svg = scratch_read(path);
    const char *at = svg;
    int n = 0;
    ck_assert_int_eq(sscanf(strstr(svg, "viewBox="), "viewBox=\"0 0 %lf %lf", &width, &height), 2);
    while (n < TEXTS && next_text(&at, &text[n])) {
        const struct text *a = &text[n++];
        ck_assert_msg(a->left >= 0 && a->right <= width && a->top >= 0 &&
                          a->base + 0.2 * a->size <= height,
                      "%s: '%s' is cut", path, a->words);
        if (a > text && is_same(a, a - 1))
            expect_no_curve(path, svg, a);
        for (const struct text *b = text; b < a; b++)
            ck_assert_msg(is_same(a, b) || a->left > b->right - 0.5 || b->left > a->right - 0.5 ||
                              a->top > b->base || b->top > a->base,
                          "%s: '%s' lies on '%s'", path, a->words, b->words);
    }
    ck_assert_int_ge(n, 6);
    free(svg);
}

/* ---- every preset and size ------------------------------------------------------------------- */

static const struct {
    const char *preset;
    int size, millimetres;
} looks[] = {{"column", 8, 88},  {"page", 12, 180}, {"slides", 28, 254},
             {"column", 28, 88}, {"page", 8, 180},  {"slides", 12, 254},
             {"column", 12, 88}, {"page", 28, 180}, {"slides", 8, 254}};

/* A figure drawn again with another preset and size: as a reader edits its script. */
static void draw(const char *name, int look)
{
    char path[64];
    scratch_shell(0, "",
                  "cd '%s' && sed -e \"s/^preset .*/preset = '%s'; font_size = %d/\" "
                  "-e \"s/^formats .*/formats = 'svg'/\" -e \"s/^name .*/name = 'new'/\" "
                  "-e \"s/^load /csv = '%s.csv'; &/\" %s.gp > new.gp && cp %s.csv new.csv && "
                  "said=$(LC_ALL=C.UTF-8 gnuplot -d new.gp 2>&1 | sed '/no valid points/d') && "
                  "{ test -z \"$said\" || { echo \"%s: $said\"; exit 1; }; }",
                  scratch_path("out/figures"), looks[look].preset, looks[look].size, name, name,
                  name, name);
    (void)snprintf(path, sizeof path, "out/figures/new.svg");
    expect_apart(scratch_path(path));
    char width[32], *svg = scratch_read(scratch_path("out/figures/new.svg"));
    (void)snprintf(width, sizeof width, "width=\"%d\"",
                   (looks[look].millimetres * 960 + 253) / 254);
    ck_assert_msg(strstr(svg, width) != NULL, "%s: not %s", looks[look].preset, width);
    free(svg);
}

/* It would catch a label cut at the edge, ticks that run into each other, a legend over an axis,
 * names of points that collide, and a warning of gnuplot.  Each figure meets three of the nine
 * looks; `make test-full` all. */
TEST(nothing_is_cut_and_nothing_meets)
{
    static const char *const name[] = {"memory-causal", "time-causal", "live-causal",
                                       "error-causal",  "rank-memory", "bytes-sent",
                                       "balance",       "trade",       "memory-layers"};
    fixture_n_points = 0;
    add_lengths();
    add_ranks();
    add_choices();
    fixture_report(0, "", "--from '%s'", fixture_write_records("r.jsonl"));
    for (size_t f = 0; f < COUNT(name); f++)
        for (size_t look = 0; look < COUNT(looks); look++)
            if (getenv("ATTN_FULL") != NULL || look % 3 == f % 3)
                draw(name[f], (int)look);
    /* A dash says "not measured": where all was, there is none. */
    fixture_expect_words_of("out/figures/memory-layers.svg", WORDS("</svg>", "-stroke-dasharray"));
    fixture_expect_words_of("out/figures/memory-causal.svg", WORDS("stroke-dasharray"));
}

/* ---- what the plan says ---------------------------------------------------------------------- */

/* As wide as the flag says, and a label of a curve that no record has. */
TEST(a_preset_and_a_label)
{
    char from[1024];
    fixture_add_curves();
    (void)snprintf(from, sizeof from, "%s", fixture_write_records("r.jsonl"));
    fixture_report(0, "", "--from '%s' --preset slides", from);
    fixture_expect_words_of("out/figures/memory-causal.gp", WORDS("preset   = 'slides'"));
    fixture_report(2, "page, column or slides would work", "--from '%s' --preset a4", from);
    fixture_report(0, "label names 'csr', of which it has no record", "--from '%s' --plan '%s'",
                   from, scratch_put("csr.plan", "group length-causal\n label csr = c\n", 35));
}

/* ---- edited scripts ------------------------------------------------------------------------- */

/* Refused before anything is written, until it is asked for; a copy under another name, and the
 * script of an older figure that is as it was, stay out of it. */
TEST(an_edited_script_is_not_lost)
{
    char from[1024];
    fixture_add_curves();
    (void)snprintf(from, sizeof from, "%s", fixture_write_records("r.jsonl"));
    fixture_report(0, "", "--from '%s'", from);
    scratch_shell(0, "", "cd '%s' && cp memory-causal.gp mine.gp && sed -i s/Peak/My/ mine.gp",
                  scratch_path("out/figures"));
    fixture_report(0, "", "--from '%s' --preset column", from);
    scratch_shell(0, "",
                  "cd '%s' && sed -i 's/^title .*/title = \"Mine\"/' time-causal.gp && rm *.csv",
                  scratch_path("out/figures"));
    fixture_report(2, "time-causal.gp was edited", "--from '%s'", from);
    scratch_has("--overwrite");
    ck_assert(!fixture_is_there("out/figures/memory-causal.csv")); /* nothing was written */
    fixture_expect_words_of("out/figures/time-causal.gp", WORDS("title = \"Mine\""));
    fixture_report(0, "", "--from '%s' --overwrite", from);
    fixture_expect_words_of("out/figures/time-causal.gp", WORDS("-Mine", "Time of a call"));
    /* a script without its last line may be an edited one: not overwritten either */
    scratch_shell(0, "", "sed -i '$d' '%s'", scratch_path("out/figures/style.gp"));
    fixture_report(2, "style.gp was edited", "--from '%s'", from);
}
