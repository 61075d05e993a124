/* See nearest.h. */
#include "ref/mask/nearest.h"

#include <stdio.h>
#include <string.h>

enum { LETTERS = 24 }; /* longer words are not compared */

/* Levenshtein distance of two words of fewer than LETTERS letters. */
static int distance(const char *a, int n, const char *b, int m)
{
    int row[LETTERS];
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            int shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < shift ? change : shift;
        }
    }
    return row[m];
}

/* Three letters or more that the other begins with; '-' is none of them. */
static int begins(const char *word, size_t n, const char *there)
{
    size_t letters = 0;
    for (size_t i = 0; i < n; i++) {
        if (word[i] == '-')
            continue;
        there += strspn(there, "-");
        if (*there++ != word[i])
            return 0;
        letters++;
    }
    return letters >= 3;
}

struct attn_nearest attn_nearest_begin(const char *word, size_t n)
{
    return (struct attn_nearest){word, n, NULL, n > 4 ? 3 : (int)(n + 1) / 2};
}

void attn_nearest_offer(struct attn_nearest *nearest, const char *there)
{
    size_t m = strlen(there);
    if (nearest->n >= LETTERS || m >= LETTERS)
        return;
    int far = begins(nearest->word, nearest->n, there)
                  ? 1
                  : distance(nearest->word, (int)nearest->n, there, (int)m);
    if (far < nearest->distance) {
        nearest->distance = far;
        nearest->best = there;
    }
}

const char *attn_nearest_text(const struct attn_nearest *nearest, char text[64])
{
    text[0] = '\0';
    if (nearest->best != NULL)
        snprintf(text, 64, " (did you mean %s?)", nearest->best);
    return text;
}
