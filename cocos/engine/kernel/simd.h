/* Portable vectors (GCC and Clang extensions), and the few functions used by all parts of the kernel. */
#ifndef COCOS_SIMD
#define COCOS_SIMD
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define WIDE 16 /* floats in a vector */
#else
#define WIDE 8
#endif
#define INLINE static inline __attribute__((always_inline))
#define TEXT(x) #x
#ifdef __clang__
#define UNROLL(x) _Pragma(TEXT(clang loop unroll_count(x)))
#else
#define UNROLL(x) _Pragma(TEXT(GCC unroll x))
#endif

typedef float vf __attribute__((vector_size(4 * WIDE), aligned(4)));
typedef int32_t vi __attribute__((vector_size(4 * WIDE), aligned(4)));

INLINE vf load(const float *p) { return *(const vf *)p; }
INLINE void store(float *p, vf x) { *(vf *)p = x; }
INLINE vf pick(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
INLINE float more(float a, float b) { return a > b ? a : b; }
INLINE float less(float a, float b) { return a < b ? a : b; }

#define MAGIC 12582912.0f /* 1.5 * 2^23: adding and subtracting it rounds to an integer */

/* `all` broadcasts; `larger` and `smaller` are lanewise max and min, and return b where a is NaN; `bits` returns a mask as a
   number, `over` the mask of a > b; `pressed` stores the selected lanes contiguously, and may overwrite a whole vector;
   `scaled` is p 2^whole, for integers |whole| <= 126. */
#ifdef __AVX512F__
INLINE vf all(float x) { return (vf)_mm512_set1_ps(x); }
INLINE vf larger(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf smaller(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE unsigned bits(vi mask) { return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask); }
INLINE unsigned over(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ); }
INLINE vf scaled(vf p, vf whole) { return (vf)_mm512_scalef_ps((__m512)p, (__m512)whole); }
INLINE void pressed(float *to, vf x, unsigned lanes) {
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps((__mmask16)lanes, (__m512)x));
}
#else
#ifdef __AVX__
INLINE vf all(float x) { return (vf)_mm256_set1_ps(x); }
INLINE vf larger(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf smaller(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE unsigned bits(vi mask) { return (unsigned)_mm256_movemask_ps((__m256)mask); }
#else
INLINE vf all(float x) { return (vf){0} + x; }
INLINE vf larger(vf a, vf b) { return pick(a > b, a, b); }
INLINE vf smaller(vf a, vf b) { return pick(a < b, a, b); }
INLINE unsigned bits(vi mask) {
    unsigned found = 0;
    for (int k = 0; k < WIDE; k++) found |= (unsigned)(mask[k] & 1) << k;
    return found;
}
#endif
INLINE unsigned over(vf a, vf b) { return bits(a > b); }
INLINE vf scaled(vf p, vf whole) { return (vf)((vi)p + ((vi)(whole + MAGIC) << 23)); }
INLINE void pressed(float *to, vf x, unsigned lanes) {
    for (; lanes; lanes &= lanes - 1) *to++ = x[__builtin_ctz(lanes)];
}
#endif

/* Sum and maximum over the lanes. */
INLINE double total(vf x) {
    double sum = 0;
    for (int k = 0; k < WIDE; k++) sum += x[k];
    return sum;
}
INLINE float largest(vf x) {
    float top = x[0];
    for (int k = 1; k < WIDE; k++) top = more(x[k], top);
    return top;
}

/* 2^(whole + f) for integers |whole| <= 126 and |f| <= 1/2; relative error below EXP2 of bounds.py (minimax polynomial). */
INLINE vf risen(vf whole, vf f) {
    static const float terms[] = {9.675538993e-03f, 5.550713087e-02f, 2.402211977e-01f, 6.931469674e-01f, 1.000000072e+00f};
    vf p = all(1.327649858e-03f);
    UNROLL(5)
    for (int k = 0; k < 5; k++) p = p * f + all(terms[k]);
    return scaled(p, whole);
}

/* 2^x for |x| <= 126. */
INLINE vf power(vf x) {
    vf whole = (x + MAGIC) - MAGIC;
    return risen(whole, x - whole);
}
#endif
