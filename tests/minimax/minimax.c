/* The coefficients of optimized/simd/real_tmpl.h, computed again: `make minimax` prints them.
 *
 * Remez's exchange algorithm, in 113-bit arithmetic.  A function is wanted as
 *
 *      g(x) = s(x) + sum_k c_k b(x) y(x)^k     y = x or x^2
 *
 * with the largest relative error |g / wanted - 1| on [low, high] as small as can be.  The best g
 * is the one whose error reaches its largest size n + 1 times, with alternating signs, n being the
 * number of coefficients.  So: guess n + 1 places, solve for the c_k and the size that make the
 * error alternate just there, move the places to where that error is largest, and again.
 *
 * Source: Muller, Elementary Functions, 3rd ed., 2016, ch. 3 (Remez); Cheney 1966. */
#include <math.h>
#include <quadmath.h>
#include <stdio.h>
#include <stdlib.h>

__extension__ typedef __float128 quad;

enum { MOST = 24, GRID = 20000, ROUNDS = 20 };

struct wanted {
    const char *name;
    quad (*value)(quad x);  /* what is approximated                                 */
    quad (*start)(quad x);  /* s: the part without a coefficient                    */
    quad (*factor)(quad x); /* b                                                    */
    int square;             /* y is x^2, not x                                      */
    quad low, high;         /* where                                                */
    int n;                  /* coefficients                                         */
    int is_float;           /* to be rounded to float, not double                   */
};

static quad one(quad x)
{
    (void)x;
    return 1;
}
static quad same(quad x)
{
    return x;
}
static quad cube(quad x)
{
    return x * x * x;
}

static quad power(const struct wanted *w, quad x, int k)
{
    quad y = w->square ? x * x : x, p = w->factor(x);
    while (k-- > 0)
        p *= y;
    return p;
}

/* The relative error; its sign turned where x < 0, where b has turned its own. */
static quad error(const struct wanted *w, const quad c[MOST], quad x)
{
    quad g = w->start(x);
    if (x == 0)
        return 0;
    for (int k = 0; k < w->n; k++)
        g += c[k] * power(w, x, k);
    return (g / w->value(x) - 1) * (x < 0 ? -1 : 1);
}

/* a x = y by elimination with row exchanges; y becomes x. */
static void solve(int n, quad a[MOST + 1][MOST + 1], quad y[MOST + 1])
{
    for (int k = 0; k < n; k++) {
        int best = k;
        for (int i = k; i < n; i++)
            if (fabsq(a[i][k]) > fabsq(a[best][k]))
                best = i;
        for (int j = 0; j < n; j++) {
            quad t = a[k][j];
            a[k][j] = a[best][j], a[best][j] = t;
        }
        quad t = y[k];
        y[k] = y[best], y[best] = t;
        for (int i = k + 1; i < n; i++) {
            quad f = a[i][k] / a[k][k];
            for (int j = k; j < n; j++)
                a[i][j] -= f * a[k][j];
            y[i] -= f * y[k];
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int j = i + 1; j < n; j++)
            y[i] -= a[i][j] * y[j];
        y[i] /= a[i][i];
    }
}

/* The coefficients whose error is +E, -E, +E ... at the n + 1 places. */
static void level(const struct wanted *w, const quad at[MOST + 1], quad c[MOST])
{
    quad a[MOST + 1][MOST + 1], y[MOST + 1];
    for (int i = 0; i <= w->n; i++) {
        quad x = at[i], turn = x < 0 ? -1 : 1;
        for (int k = 0; k < w->n; k++)
            a[i][k] = power(w, x, k) / w->value(x) * turn;
        a[i][w->n] = i % 2 == 0 ? -1 : 1;
        y[i] = (1 - w->start(x) / w->value(x)) * turn;
    }
    solve(w->n + 1, a, y);
    for (int k = 0; k < w->n; k++)
        c[k] = y[k];
}

/* The places where the error is largest between its changes of sign; how many there are. */
static int peaks(const struct wanted *w, const quad c[MOST], quad at[MOST + 1], quad *largest)
{
    int n = -1;
    quad here = 0;
    *largest = 0;
    for (int g = 0; g <= GRID; g++) {
        quad x = w->low + (w->high - w->low) * g / GRID, e = error(w, c, x);
        if (e == 0)
            continue;
        if (n < 0 || (e > 0) != (here > 0)) {
            if (++n > w->n)
                return n + 1;
            at[n] = x, here = e;
        } else if (fabsq(e) > fabsq(here))
            at[n] = x, here = e;
        if (fabsq(e) > *largest)
            *largest = fabsq(e);
    }
    return n + 1;
}

static int approximate(const struct wanted *w)
{
    const double pi = 3.14159265358979323846;
    quad at[MOST + 1], c[MOST], largest = 0;
    for (int i = 0; i <= w->n; i++) /* where a Chebyshev polynomial has its peaks, but not 0 */
        at[i] = w->low + (w->high - w->low) * (quad)(0.5 - 0.5 * cos(pi * (i + 0.5) / (w->n + 1)));
    for (int round = 0; round < ROUNDS; round++) {
        level(w, at, c);
        if (peaks(w, c, at, &largest) != w->n + 1) {
            fprintf(stderr, "%s: the error does not alternate\n", w->name);
            return 1;
        }
    }
    printf("%s: largest relative error %.3g\n", w->name, (double)largest);
    for (int k = w->n - 1; k >= 0; k--) {
        if (w->is_float)
            printf("    %af,\n", (double)(float)c[k]);
        else
            printf("    %a,\n", (double)c[k]);
    }
    return 0;
}

int main(void)
{
    static const struct wanted list[] = {
        {"EXP2_TERMS, float", exp2q, one, same, 0, -0.5, 0.5, 5, 1},
        {"EXP2_FLOOR_TERMS, float", exp2q, one, same, 0, 0, 1, 5, 1},
        {"TANH_TERMS, float", tanhq, same, cube, 1, 0, 1, 7, 1},
        {"EXP2_TERMS, double", exp2q, one, same, 0, -0.5, 0.5, 11, 0},
        {"EXP2_FLOOR_TERMS, double", exp2q, one, same, 0, 0, 1, 11, 0},
        {"TANH_TERMS, double", tanhq, same, cube, 1, 0, 1, 16, 0},
    };
    int failed = 0;
    for (size_t n = 0; n < sizeof list / sizeof *list; n++)
        failed |= approximate(&list[n]);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
