/* Tables of measurements that studies are held against: the CSV files of experiments/data, inside
 * the program, so that a study runs wherever the program is. */
#ifndef EXPERIMENTS_STUDIES_DATA_H
#define EXPERIMENTS_STUDIES_DATA_H

/* Makes attn_study_data_NAME, the text of experiments/data/NAME.csv. */
#define ATTN_STUDY_DATA(NAME)                              \
    extern const char attn_study_data_##NAME[];            \
    __asm__(".pushsection .rodata\n"                       \
            "attn_study_data_" #NAME ":\n"                 \
            ".incbin \"experiments/data/" #NAME ".csv\"\n" \
            ".byte 0\n"                                    \
            ".popsection\n");

enum { ATTN_STUDY_FIELDS = 24 };

struct attn_study_line {
    const char *field[ATTN_STUDY_FIELDS], *const *name;
    int n;
};

/* No field is quoted in these files; lines before the names that begin with # are remarks. */
struct attn_study_table {
    char *text; /* cut into fields */
    struct attn_study_line *line;
    const char *name[ATTN_STUDY_FIELDS];
    int n, n_names;
};

void attn_study_open(struct attn_study_table *table, const char *csv);
void attn_study_close(struct attn_study_table *table);

/* The field of that name; "" when there is none. */
const char *attn_study_field(const struct attn_study_line *line, const char *name);

#endif
