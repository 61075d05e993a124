/* Figures as data: curves, and points with named columns.  A figure is left as three files that
 * belong together:
 *
 *   NAME.csv   the numbers, one line for each point
 *   NAME.gp    a script for gnuplot: its first lines are the words, ranges, names and colours of
 *              this figure, to be edited; what follows is a copy of plots/NAME.gp
 *   style.gp   what all figures of the folder share: a copy of plots/style.gp
 *
 * gnuplot draws; nothing here knows a tick or a pixel. */
#ifndef EXPERIMENTS_REPORT_FIGURES_H
#define EXPERIMENTS_REPORT_FIGURES_H

#include "experiments/report/groups.h"
#include "ref/mask/mask.h"

enum {
    ATTN_FIGURE_PANELS = 8,
    ATTN_FIGURE_COLUMNS = 60,
    ATTN_FIGURE_ABOUT = 16,
    ATTN_FIGURE_NAME = 64
};

/* The pictures of a figure. */
#define ATTN_FIGURE_FORMATS "svg png pdf"

/* Words of the flag --preset. */
extern const char *const attn_figure_preset[];

struct attn_figure_curve {
    char key[ATTN_LABEL_TEXT];   /* in the CSV: the label, with ; for commas */
    char label[ATTN_LABEL_TEXT]; /* in the legend, unless the plan says otherwise */
    char colour[16];
    int mark, dash; /* gnuplot's numbers                                                          */
    double width;   /* of its line: wider where another curve lies on it                          */
    int impl;       /* place in the registry; what is not in it comes after                       */
    int is_ours;    /* it has the look of its place there                                         */
};

struct attn_figure_point {
    int panel, curve;
    double x, y[ATTN_FIGURE_COLUMNS]; /* NaN: nothing there                                       */
    const char *status;               /* "ok", "dropped", ... (borrowed)                          */
    const char *note;                 /* why, or how it was compared (borrowed)                   */
};

struct attn_figure {
    char name[ATTN_FIGURE_NAME]; /* of the files: letters, digits, '-'                            */
    const char *kind, *script;   /* "memory", ...; of plots/                                   */
    char title[200], subtitle[700];
    char remark[300];  /* what lines and marks mean: under the subtitle                           */
    char finding[400]; /* numbers computed for it, such as a crossing: under the remark           */
    const char *caption; /* Markdown */
    char omitted[256]; /* why it is not drawn; "" when it is                                      */
    const char *x_name, *column[ATTN_FIGURE_COLUMNS];
    const char *x_label; /* on the axis; NULL: the script's own */
    int x_base;          /* of its logarithm; 0: the script's own */
    char variables[800]; /* more lines of the script: "memory = 1e9"                              */
    const char *x_range, *y_range; /* NULL: what the data give                                  */
    const char *preset;            /* of attn_figure_preset (borrowed); NULL: page */
    int overwrite;                 /* a script that a user edited is written anew */
    int n_columns;
    int n_about,
        about[ATTN_FIGURE_ABOUT]; /* columns by which curves are found to lie on others   */
    int n_panels, n_curves;
    char panel[ATTN_FIGURE_PANELS][64];
    struct attn_figure_curve *curve; /* grown by attn_figure_curve_of */
    struct attn_figure_point *point; /* grown by attn_figure_add      */
    int64_t n;
    int64_t memory_bytes;                  /* of the machine; 0: unknown  */
    const struct attn_figure_group *group; /* borrowed; NULL: of no group */
};

struct attn_figures {
    struct attn_figure *figure;
    int n;
};

/* The machine and the program, as figures name them. */
struct attn_figure_machine {
    char text[400];       /* "AMD EPYC 7B13, 2 cores, 7.8 GiB"; "" when unknown                 */
    int64_t memory_bytes; /* drawn as a line where in range; 0: unknown                           */
};

/* ---- one figure ------------------------------------------------------------------------------ */

/* The curve of that key, made if need be.  is_ours: it has the look of its place in the registry,
 * which nothing else has. */
int attn_figure_find(const struct attn_figure *figure, const char *key); /* -1: not there */
int attn_figure_curve_of(struct attn_figure *figure, const char *key, int impl, int is_ours);

/* Add a point with n_columns values, all NaN to begin with, in the panel of this name, which is
 * made if need be.  It may move when another is added. */
struct attn_figure_point *attn_figure_add(struct attn_figure *figure, const char *panel, int curve,
                                          double x);

/* A piece of a bar, in the first two columns: a curve with a colour of its own for each name. */
struct attn_figure_point *attn_figure_piece(struct attn_figure *figure, const char *panel,
                                            const char *name, int bar, double from, double to);

/* When all points are there: how wide curves are. */
void attn_figure_finish(struct attn_figure *figure);

/* Of more than five curves leave five as they are: those of other programs, the first of each
 * family, then the rest in order.  The others become thin and grey. */
void attn_figure_stand_out(struct attn_figure *figure);

/* A comma and a number; of NaN a comma. */
void attn_csv_number(FILE *file, double x);

/* The lines of NAME.csv, to be freed. */
char *attn_figure_csv(const struct attn_figure *figure);

/* The first lines of NAME.gp, to be freed. */
char *attn_figure_head(const struct attn_figure *figure);

/* Before anything is measured.  EINVAL where a script of FOLDER is not as it was written: one of
 * those that say that they are ours; one that this figure would write, unless it may.  ENOMEM:
 * a file of this figure could not be written. */
enum attn_status attn_scripts_check(const char *folder, struct attn_error *err);
enum attn_status attn_figure_check(const struct attn_figure *figure, const char *folder,
                                   struct attn_error *err);

/* Can gnuplot be started? */
int attn_draw_possible(void);

/* Write FOLDER/NAME.csv, NAME.gp and style.gp, when it may, and have gnuplot make NAME.svg, .png
 * and .pdf.  ENOMEM: there is no gnuplot, or it could not, with its own
 * words; or a file cannot be written, whole. */
enum attn_status attn_draw(const struct attn_figure *figure, const char *folder,
                           struct attn_error *err);

void attn_figure_free(struct attn_figure *figure);

/* ---- a mask to look at: which key each query of batch 0, head 0 sees ------------------------- */

/* Queries and keys that a picture may have. */
enum { ATTN_PICTURE_TEXT_MOST = 512, ATTN_PICTURE_SVG_MOST = 4096 };

/* One row of text: '#' for a key that query i sees, '.' for one that it does not; n_key bytes and
 * '\0'. */
void attn_picture_row(const struct attn_mask *mask, int64_t i, char *row);

/* PATH, which ends in .svg, by gnuplot, and beside it the script that drew it, .gp, to be edited
 * and run again.  EINVAL: another name, or an edited script that may not be overwritten; else as
 * attn_draw. */
enum attn_status attn_picture_draw(const struct attn_mask *mask, const char *path, int overwrite,
                                   struct attn_error *err);

/* ---- figures of groups ----------------------------------------------------------------------- */

/* Writes summary.csv: a line for each row of the groups, with the columns of columns.def. */
enum attn_status attn_summary_csv_save(const char *path, const struct attn_figure_groups *groups,
                                       struct attn_error *err);

/* All figures of all groups, studied (curves.h).  One without a curve is there as well, with its
 * reason.  EINTERNAL: figures.def names a column that no line has. */
enum attn_status attn_figures_make(const struct attn_figure_groups *groups,
                                   const struct attn_figure_machine *machine,
                                   struct attn_figures *figures, struct attn_error *err);
void attn_figures_free(struct attn_figures *figures);

#endif
