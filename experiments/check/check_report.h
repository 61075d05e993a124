/* attnlab check --report: a page about what was judged, to keep and to attach.
 *
 * It says who was judged (file, SHA-256, claims, declared precisions), by which attnlab, on how
 * many cases of which kinds, how near the results are to the truth, what was refused and why,
 * what failed and how that is repeated.  HTML or Markdown, by the file's name. */
#ifndef EXPERIMENTS_CHECK_CHECK_REPORT_H
#define EXPERIMENTS_CHECK_CHECK_REPORT_H

#include "experiments/check/coverage.h"
#include "tests/harness/subject/subject.h"

struct attn_report; /* opaque */

/* Take the file now, so that one that cannot be written is no surprise at the end; until then it
 * says that there is no verdict yet.  EINVAL: a name of neither format; ENOMEM: it cannot be
 * written. */
enum attn_status attn_report_open(const char *path, struct attn_report **report,
                                  struct attn_error *err);

/* The implementation that is judged next; its strings are copied and its files digested now. */
struct attn_report_about {
    const struct attn_subject *x;
    const char *claims;  /* in words                                                              */
    const char *scope;   /* what was asked: "the quick tier and all relations"                    */
    const char *command; /* arguments of attnlab that repeat all of it                            */
    const struct attn_tier_list *tier; /* what it is asked, until its verdicts are added; or NULL */
};
void attn_report_begin(struct attn_report *report, const struct attn_report_about *about);

/* SHA-256 of a file, or of the list of the sums of a folder's files in the order of their names as
 * bytes: what sha256sum says of them; "not available" where it does not. */
void attn_report_digest(const char *path, int is_folder, char hex[65]);

/* Its verdicts. */
void attn_report_add(struct attn_report *report, const struct attn_verdicts *v,
                     const struct attn_verdict_list *list);

/* Write the page and forget all; status: of the whole run.  Returns the larger of it and LACKS when
 * the page could not be written. */
int attn_report_close(struct attn_report *report, int status);

#endif
