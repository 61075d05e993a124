/* Causal attention of two heads by the installed library:
 *      cc call.c $(pkg-config --cflags --libs attnlab) */
#include <optimized/simple.h>
#include <stdio.h>

enum { HEADS = 2, LENGTH = 100, D = 16, N = HEADS * LENGTH * D };

int main(void)
{
    static float q[N], k[N], v[N], o[N], lse[HEADS * LENGTH];
    const struct attn_simple shape = {1, HEADS, HEADS, LENGTH, LENGTH, D, D, 0};
    char error[ATTN_SIMPLE_ERROR];
    for (int n = 0; n < N; n++) {
        q[n] = (float)(n % 7) - 3;
        k[n] = (float)(n % 5) - 2;
        v[n] = (float)(n / D % LENGTH);
    }
    if (attn_simple_forward("tiled", "causal(br)", &shape, q, k, v, o, lse, error) != 0) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    printf("o[0] %.6f, o of the last row %.6f, its lse %.6f\n", o[0], o[N - 1],
           lse[HEADS * LENGTH - 1]);
    return 0;
}
