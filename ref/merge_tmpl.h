/* The merge for one type: REAL, FN, and the type's functions REAL_EXP, REAL_LOG1P.  Used
 * by merge.h alone, which says what it computes. */

/* (o, lse) := (o, lse) merged with (o2, lse2); o and o2 are rows of n.  weight: what o and o2 were
 * multiplied by. */
static inline void FN(merge_by)(REAL *o, REAL *lse, const REAL *o2, REAL lse2, int64_t n,
                                REAL weight[2])
{
    REAL lse1 = *lse;
    weight[0] = weight[1] = 0;
    if (lse1 == -(REAL)INFINITY && lse2 == -(REAL)INFINITY) {
        for (int64_t c = 0; c < n; c++)
            o[c] = 0;
        return;
    }
    int first_larger = lse1 >= lse2; /* with a NaN: false, and the NaN is in the difference */
    REAL max = first_larger ? lse1 : lse2, min = first_larger ? lse2 : lse1;
    REAL e = REAL_EXP(min - max);
    REAL larger = 1 / (1 + e), smaller = e / (1 + e);
    REAL w1 = first_larger ? larger : smaller, w2 = first_larger ? smaller : larger;
    for (int64_t c = 0; c < n; c++)
        o[c] = w1 * o[c] + w2 * o2[c];
    *lse = max + REAL_LOG1P(e);
    weight[0] = w1;
    weight[1] = w2;
}

static inline void FN(merge)(REAL *o, REAL *lse, const REAL *o2, REAL lse2, int64_t n)
{
    REAL weight[2];
    FN(merge_by)(o, lse, o2, lse2, n, weight);
}
