/* The differences of float and double, for the templates of this folder.  Included with REAL_BITS
 * 32 or 64; takes back what an earlier inclusion defined.
 *
 * EXP2_TERMS are the coefficients, highest first, of 2^f, minimax in relative error with the
 * constant term fixed at 1, so that 2^0 is exactly 1.  On [-1/2, 1/2] degree 5 errs by 9.15e-8
 * (1.53 u of float), degree 11 by 3.4e-18 (0.03 u of double); on [0, 1], for instruction sets
 * that split a number at its floor (EXP2_FLOOR_TERMS), by 8.23e-8 (1.38 u) and 3.2e-18.
 *
 * TANH_TERMS are those of P, highest first, in tanh x = x + x^3 P(x^2), minimax in relative error
 * on [0, TANH_SPLIT]: 4.6e-9 (0.08 u) for float, 1.0e-18 (0.01 u) for double.
 *
 * `make minimax` computes all of them again. */
#undef REAL
#undef INT
#undef FN
#undef EXP2_LOW
#undef EXP2_HIGH
#undef EXP2_MAGIC
#undef EXP2_SHIFT
#undef EXP2_TERMS
#undef EXP2_FLOOR_TERMS
#undef TANH_SPLIT
#undef TANH_TERMS
#undef REAL_LOG
#undef REAL_TANH
#undef VEC_FMA
#undef VEC_MAX
#undef VEC_MIN
#undef VEC_REST
#undef VEC_SCALE

#if REAL_BITS == 32
#define REAL       float
#define INT        int32_t
#define FN(name)   name##_f32
#define REAL_LOG   logf
#define REAL_TANH  tanhf
#define VEC_FMA    VEC_FMA_F32
#define VEC_MAX    VEC_MAX_F32
#define VEC_MIN    VEC_MIN_F32
#define VEC_REST   VEC_REST_F32
#define VEC_SCALE  VEC_SCALE_F32
#define EXP2_LOW   (-127.0f)
#define EXP2_HIGH  128.0f
#define EXP2_MAGIC (0x1.8p23f + 127)
#define EXP2_SHIFT 23
#define EXP2_TERMS                                                                         \
    {                                                                                      \
        0x1.5bba14p-10f, 0x1.3cea88p-7f, 0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f, 1 \
    }
#define EXP2_FLOOR_TERMS                                                                   \
    {                                                                                      \
        0x1.e974fap-10f, 0x1.277856p-7f, 0x1.c91ce6p-5f, 0x1.ebdb56p-3f, 0x1.62e4bap-1f, 1 \
    }
#define TANH_SPLIT 1
#define TANH_TERMS                                                                          \
    {                                                                                       \
        -0x1.77dd3cp-12f, 0x1.2da4fcp-9f, -0x1.0460c6p-7f, 0x1.600992p-6f, -0x1.b96222p-5f, \
            0x1.110be2p-3f, -0x1.55553cp-2f                                                 \
    }
#else
#define REAL       double
#define INT        int64_t
#define FN(name)   name##_f64
#define REAL_LOG   log
#define REAL_TANH  tanh
#define VEC_FMA    VEC_FMA_F64
#define VEC_MAX    VEC_MAX_F64
#define VEC_MIN    VEC_MIN_F64
#define VEC_REST   VEC_REST_F64
#define VEC_SCALE  VEC_SCALE_F64
#define EXP2_LOW   (-1023.0)
#define EXP2_HIGH  1024.0
#define EXP2_MAGIC (0x1.8p52 + 1023)
#define EXP2_SHIFT 52
#define EXP2_TERMS                                                               \
    {                                                                            \
        0x1.e79bb5fd975bdp-32, 0x1.e61b4f9c6f40ep-28, 0x1.b5267ce07ad08p-24,     \
            0x1.62bfc79d49aedp-20, 0x1.ffcbfba980b05p-17, 0x1.4309130ed8ce2p-13, \
            0x1.5d87fe78cd6dp-10, 0x1.3b2ab6fba011ap-7, 0x1.c6b08d7049fe8p-5,    \
            0x1.ebfbdff82c5a4p-3, 0x1.62e42fefa39efp-1, 1                        \
    }
#define EXP2_FLOOR_TERMS                                                                           \
    {                                                                                              \
        0x1.58566d975f41bp-31, 0x1.c2c479c01bb75p-28, 0x1.b85f42b23c3ap-24, 0x1.628f35864397ep-20, \
            0x1.ffcfc6a97700dp-17, 0x1.4308fa1dd39fap-13, 0x1.5d87ff4d22499p-10,                   \
            0x1.3b2ab6f73417bp-7, 0x1.c6b08d7065837p-5, 0x1.ebfbdff82c04bp-3,                      \
            0x1.62e42fefa39f5p-1, 1                                                                \
    }
#define TANH_SPLIT 1
#define TANH_TERMS                                                                 \
    {                                                                              \
        0x1.6d6cb367cd697p-26, -0x1.f3c1056dbe2fdp-23, 0x1.54f644aca637fp-20,      \
            -0x1.3f21a894288f9p-18, 0x1.df069aa997306p-17, -0x1.3f45653062d11p-15, \
            0x1.939900814ba4fp-14, -0x1.f4dde5f9609e1p-13, 0x1.354b37062e08ep-11,  \
            -0x1.7da1d75897067p-10, 0x1.d6d3ae8116112p-9, -0x1.226e34558176p-7,    \
            0x1.664f487847a71p-6, -0x1.ba1ba1b9dc148p-5, 0x1.1111111110aedp-3,     \
            -0x1.555555555554fp-2                                                  \
    }
#endif
