/* See page.h: the sentences with which a report opens, made from its records, and the notes above
 * them.  A time of one round is no finding: it has no spread. */
#include <math.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/price/show.h"
#include "experiments/report/curves.h"
#include "experiments/report/page.h"

/* ---- notes: why the numbers below may be worth less ------------------------------------------ */

static void put_notes(struct attn_document *d, const struct attn_page *page)
{
    const json_t *machine = page->records->machine;
    double load = json_number_value(json_object_get(machine, "load"));
    long long cores = json_integer_value(json_object_get(machine, "cores_online")), single = 0;
    for (int64_t s = 0; s < page->summary->n; s++)
        single += page->summary->row[s].status == ATTN_POINT_OK && page->summary->row[s].rounds < 2;
    if (cores > 0 && load > 0.5 * (double)cores) {
        attn_document_text(d,
                           "***The machine was loaded***: a load of %.1f on %lld cores when "
                           "the measurement began. Memory and "
                           "verdicts do not depend on it; times "
                           "do.",
                           load, cores);
    }
    if (single > 0)
        attn_document_text(d,
                           "%lld points have one round: their times have no spread, and none of "
                           "them is a finding.",
                           single);
}

/* ---- results --------------------------------------------------------------------------------- */

static void put_verdict(struct attn_document *d, const struct attn_page *page)
{
    const struct attn_row *worst = NULL;
    long long judged = 0, wrong = 0;
    for (int64_t s = 0; s < page->summary->n; s++) {
        const struct attn_row *row = &page->summary->row[s];
        if (row->status != ATTN_POINT_OK && row->status != ATTN_POINT_WRONG)
            continue;
        judged++;
        wrong += row->status == ATTN_POINT_WRONG;
        if (!isnan(row->worst) && (worst == NULL || row->worst > worst->worst))
            worst = row;
    }
    if (judged == 0)
        return;
    fputs("- ", d->out);
    if (wrong > 0)
        attn_document_put(d, "***%lld of %lld measured points are WRONG.***", wrong, judged);
    else
        attn_document_put(d, "*All %lld measured points are right.*", judged);
    if (worst != NULL)
        attn_document_put(d, " The largest error is %.3g of its bound (%s, %s, %lld tokens).",
                          worst->worst, worst->point->spec, attn_pass_word(worst->point->c.pass),
                          (long long)worst->point->c.n_query);
    fputc('\n', d->out);
}

/* Price = ledger, of all points that have both; and how far the resident set is, where it is known
 * well. */
static void put_account(struct attn_document *d, const struct attn_page *page)
{
    const int64_t weighs = 32 << 20; /* pages of stack and libraries outweigh no buffers then */
    long long both = 0, equal = 0, resident = 0;
    double above = 0, below = 0;
    for (int64_t s = 0; s < page->summary->n; s++) {
        const struct attn_row *row = &page->summary->row[s];
        if (row->status != ATTN_POINT_OK || row->ledger < 0 || row->priced < 0)
            continue;
        both++;
        equal += row->ledger == row->priced;
        if (row->process >= weighs && row->resident >= 0) {
            resident++;
            double off = (double)row->resident / (double)row->process - 1;
            above = fmax(above, off), below = fmax(below, -off);
        }
    }
    if (both == 0)
        return;
    fputs("- ", d->out);
    attn_document_put(d,
                      equal == both
                          ? "*Price and ledger are equal to the byte at %lld of %lld points.*"
                          : "***Price and ledger are equal to the byte at %lld of %lld points.***",
                      equal, both);
    if (resident > 0)
        attn_document_put(d,
                          " At the %lld points of 32 MiB and more the resident set is at most "
                          "%.1f %% above them, and at most %.1f %% below: a page that was never "
                          "written is not resident.",
                          resident, 100 * above, 100 * below);
    fputc('\n', d->out);
}

/* ---- memory against L ------------------------------------------------------------------------ */

/* The longest good row of this row's curve; NULL: none. */
static const struct attn_row *longest(const struct attn_figure_group *group,
                                      const struct attn_row *of)
{
    const struct attn_row *best = NULL;
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_row *row = group->row[s];
        if (row->first == of->first && row->point->c.pass == of->point->c.pass &&
            row->status == ATTN_POINT_OK)
            best = row;
    }
    return best;
}

static void put_reached(struct attn_document *d, const struct attn_figure_group *group,
                        const struct attn_row *row)
{
    char number[32];
    const struct attn_row *last = longest(group, row);
    const char *label = attn_group_legend(group, row);
    if (last == NULL)
        attn_document_put(d, "`%s` is only priced", label);
    else
        attn_document_put(d, "`%s` was measured up to %s", label,
                          attn_cli_grouped(last->point->c.n_query, number));
}

static int is_measured(const struct attn_figure_group *group, const struct attn_row *row)
{
    const struct attn_row *last = longest(group, row);
    return last != NULL && last->x == row->x;
}

/* At the largest length that two of ours have a price for: the most and the least. */
static void put_memory(struct attn_document *d, const struct attn_figure_group *group,
                       enum attn_pass pass)
{
    const struct attn_row *most = NULL, *least = NULL;
    char number[32], a[32], b[32];
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_row *row = group->row[s];
        if (row->point->c.pass != pass || row->priced <= 0)
            continue;
        if (most == NULL || row->x > most->x)
            most = least = row;
        if (row->x < most->x)
            continue;
        most = row->priced > most->priced ? row : most;
        least = row->priced < least->priced ? row : least;
    }
    if (most == NULL || most == least)
        return;
    fputs("- ", d->out);
    attn_document_put(
        d, "%s, %s, %s tokens: `%s` **needs %s**, `%s` **needs %s** beyond inputs and outputs",
        group->special, attn_pass_word(pass), attn_cli_grouped(most->point->c.n_query, number),
        attn_group_legend(group, most), attn_cli_bytes(most->priced, a),
        attn_group_legend(group, least), attn_cli_bytes(least->priced, b));
    if (!is_measured(group, most) || !is_measured(group, least)) {
        fputs(". ", d->out);
        put_reached(d, group, most);
        fputs(", ", d->out);
        put_reached(d, group, least);
    }
    fputs(".\n", d->out);
}

/* ---- time against L -------------------------------------------------------------------------- */

/* At the largest length at which two of one process have warm times of two rounds: the slowest and
 * the fastest. */
static void put_time(struct attn_document *d, const struct attn_figure_group *group,
                     enum attn_pass pass)
{
    const struct attn_row *slow = NULL, *fast = NULL;
    double x = 0;
    for (int64_t s = 0; s < group->n; s++)
        for (int64_t t = 0; t < s; t++) {
            const struct attn_row *a = group->row[s], *b = group->row[t];
            int both = a->x == b->x && a->point->c.pass == pass && b->point->c.pass == pass &&
                       a->time.n > 1 && b->time.n > 1 && a->point->ranks == 1 &&
                       b->point->ranks == 1;
            x = both && a->x > x ? a->x : x;
        }
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_row *row = group->row[s];
        if (row->x != x || row->point->c.pass != pass || row->time.n < 2 || row->point->ranks != 1)
            continue;
        slow = slow == NULL || row->time.median > slow->time.median ? row : slow;
        fast = fast == NULL || row->time.median < fast->time.median ? row : fast;
    }
    if (slow == fast)
        return;
    char a[32], b[32], number[32];
    fputs("- ", d->out);
    attn_document_put(
        d,
        "%s, %s, %s tokens: `%s` **takes %s**, `%s` %s, %.1f times as long (medians of %d rounds "
        "or "
        "more).",
        group->special, attn_pass_word(pass), attn_cli_grouped(fast->point->c.n_query, number),
        fast->label, attn_seconds_text(fast->time.median, a), slow->label,
        attn_seconds_text(slow->time.median, b), slow->time.median / fast->time.median,
        slow->time.n < fast->time.n ? slow->time.n : fast->time.n);
    fputc('\n', d->out);
}

/* ---- ranks, density -------------------------------------------------------------------------- */

static double held(const struct attn_row *row)
{
    return (double)row->priced + row->point->price.shard;
}

/* All that one rank holds, beside one process. */
static void put_ranks(struct attn_document *d, const struct attn_figure_group *group)
{
    const struct attn_row *one = NULL, *least = NULL;
    char a[32], b[32], number[32];
    for (int64_t s = 0; s < group->n; s++) {
        const struct attn_row *row = group->row[s];
        const struct attn_point *p = row->point;
        if (p->c.pass != ATTN_FORWARD || row->priced < 0 || p->price.shard < 0)
            continue;
        if (attn_row_is_level(row))
            one = row;
        else if (p->ranks == attn_group_most_ranks(group) &&
                 (least == NULL || held(row) < held(least)))
            least = row;
    }
    if (one == NULL || least == NULL)
        return;
    fputs("- ", d->out);
    attn_document_put(d,
                      "%s, forward, with inputs and outputs: each of %d ranks of `%s` **holds "
                      "%s**, one process %s, at %s tokens.",
                      group->special, least->point->ranks, least->label,
                      attn_price_bytes(held(least), a), attn_price_bytes(held(one), b),
                      attn_cli_grouped(one->point->c.n_query, number));
    fputc('\n', d->out);
}

/* The words of a figure, where none of them is of one round. */
static void put_words(struct attn_document *d, const struct attn_figure_group *group, int of_memory)
{
    const char *finding = of_memory ? group->finding_of_bytes : group->finding_of_time;
    if (finding[0] == '\0' || group->is_of_one_round[of_memory])
        return;
    fputs("- ", d->out);
    attn_document_put(d, "density, %s: %s.", group->special, finding);
    fputc('\n', d->out);
}

static void put_findings(struct attn_document *d, const struct attn_page *page)
{
    put_verdict(d, page);
    put_account(d, page);
    for (int g = 0; g < page->groups->n; g++) {
        const struct attn_figure_group *group = &page->groups->group[g];
        for (int pass = ATTN_FORWARD; group->kind == ATTN_GROUP_LENGTH && pass <= ATTN_BACKWARD;
             pass++) {
            put_memory(d, group, (enum attn_pass)pass);
            put_time(d, group, (enum attn_pass)pass);
        }
        if (group->kind == ATTN_GROUP_RANKS)
            put_ranks(d, group);
        if (group->kind == ATTN_GROUP_DENSITY) {
            put_words(d, group, 1);
            put_words(d, group, 0);
        }
    }
    fputc('\n', d->out);
}

const struct attn_page_hole attn_page_openings[] = {
    {"notes", put_notes}, {"findings", put_findings}, {.name = NULL}};
