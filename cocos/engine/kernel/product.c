/* Float32 products of packed rows. The sums are taken over DEEP factors at a time, so that rounding grows with
   DEEP + d / DEEP, not with d: `bounds.product` has the proof. */
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define TEXT(x) #x
#ifdef __clang__
#define UNROLL(x) _Pragma(TEXT(clang loop unroll_count(x)))
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define UNROLL(x) _Pragma(TEXT(GCC unroll x))
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (int_vector){__VA_ARGS__})
#endif

#ifdef __AVX512F__
#define WIDE 16 /* floats in a vector */
#define TALL 8  /* rows of scores in registers, each PANEL wide */
#define FIRST_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define SECOND_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#else
#define WIDE 8
#define TALL 4
#define FIRST_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define SECOND_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#endif
#define VECTORS 3
#define PANEL (VECTORS * WIDE)
#define DEEP 64   /* factors summed in registers before the sums are added to memory */
#define STRIP 256 /* rows of the left side that stay in the second-level cache */

typedef float vector __attribute__((vector_size(4 * WIDE), aligned(4)));
typedef int32_t int_vector __attribute__((vector_size(4 * WIDE), aligned(4)));

const int64_t cocos_deep = DEEP, cocos_panel = PANEL, cocos_tall = TALL, cocos_wide = WIDE, cocos_strip = STRIP;

INLINE vector load(const float *from) { return *(const vector *)from; }
INLINE void store(float *to, vector x) { *(vector *)to = x; }

/* Transpose WIDE rows of WIDE numbers: interleave rows k and k + WIDE / 2, log2(WIDE) times. */
INLINE void transpose(vector *x) {
    vector y[WIDE];
    UNROLL(4)
    for (int step = 1; step < WIDE; step *= 2) {
        UNROLL(8)
        for (int k = 0; k < WIDE / 2; k++) {
            y[2 * k] = SHUFFLE(x[k], x[k + WIDE / 2], FIRST_HALVES);
            y[2 * k + 1] = SHUFFLE(x[k], x[k + WIDE / 2], SECOND_HALVES);
        }
        memcpy(x, y, sizeof y);
    }
}

/* Pack n rows of a matrix, (N, d), in panels of TALL rows (left side) or PANEL rows (right side), interleaved, and padded with
   zeros: row `order[i]` times `scale[i]`. The result has room for a multiple of WIDE and of the panel. */
void cocos_pack(const float *matrix, const int64_t *order, const float *scale, int64_t n, int64_t d, int64_t is_right,
                float *packed) {
    const int panel = is_right ? PANEL : TALL;
    for (int64_t i = 0; i < (n + panel - 1) / panel * panel; i += WIDE) {
        const float *row[WIDE];
        float times[WIDE], *to = packed + i / panel * panel * d + i % panel;
        for (int r = 0; r < WIDE; r++) {
            int64_t place = i + r < n ? i + r : n - 1;
            row[r] = matrix + order[place] * d, times[r] = i + r < n ? scale[place] : 0;
        }
        for (int64_t k = 0; k < d; k += WIDE) {
            const int64_t deep = k + WIDE < d ? WIDE : d - k;
            vector square[WIDE];
            UNROLL(16)
            for (int r = 0; r < WIDE; r++) {
                if (deep == WIDE) square[r] = load(row[r] + k);
                else square[r] = (vector){0}, memcpy(square + r, row[r] + k, sizeof(float) * (size_t)deep);
                square[r] *= times[r];
                __builtin_prefetch(row[r] + k + 4 * WIDE);
            }
            transpose(square);
            for (int64_t r = 0; r < deep; r++)
                if (is_right) store(to + (k + r) * PANEL, square[r]);
                else
                    for (int t = 0; t < WIDE; t += TALL)
                        memcpy(to + t * d + (k + r) * TALL, (const float *)(square + r) + t, sizeof(float) * TALL);
        }
    }
}

/* Multiply TALL rows by some vectors of a panel, over `deep` factors. Meanwhile prefetch the next factors, from `next` on, which
   would otherwise arrive too late from beyond the second-level cache. */
INLINE void multiply_vectors(int vectors, int64_t deep, const float *left, const float *right, float *score, int64_t stride,
                             int add, const float *next) {
    vector sum[TALL][VECTORS];
    UNROLL(8)
    for (int r = 0; r < TALL; r++)
        UNROLL(3)
        for (int x = 0; x < vectors; x++) sum[r][x] = (vector){0};
    for (int64_t k = 0; k < deep; k++, left += TALL, right += PANEL) {
        vector factor[VECTORS];
        if (k % 4 == 0) __builtin_prefetch(next + k * 4, 0, 2);
        UNROLL(3)
        for (int x = 0; x < vectors; x++) factor[x] = load(right + x * WIDE);
        UNROLL(8)
        for (int r = 0; r < TALL; r++)
            UNROLL(3)
            for (int x = 0; x < vectors; x++) sum[r][x] += left[r] * factor[x];
    }
    UNROLL(8)
    for (int r = 0; r < TALL; r++)
        UNROLL(3)
        for (int x = 0; x < vectors; x++) {
            float *to = score + r * stride + x * WIDE;
            store(to, add ? load(to) + sum[r][x] : sum[r][x]);
        }
}

static __attribute__((noinline)) void multiply_panel(int64_t vectors, int64_t deep, const float *left, const float *right,
                                                     float *score, int64_t stride, int add, const float *next) {
    switch (vectors) {
    case 1: multiply_vectors(1, deep, left, right, score, stride, add, next); break;
    case 2: multiply_vectors(2, deep, left, right, score, stride, add, next); break;
    default: multiply_vectors(VECTORS, deep, left, right, score, stride, add, next);
    }
}

/* Scores of m packed rows of the left side and n of the right side: (m, n) with a row stride, a multiple of WIDE. Whole panels are
   written: up to TALL - 1 rows beyond the last. */
void cocos_product(const float *left, const float *right, int64_t m, int64_t n, int64_t d, float *score, int64_t stride) {
    const int64_t parts = (d + DEEP - 1) / DEEP, step = (d + parts - 1) / parts;
    for (int64_t strip = 0; strip < m; strip += STRIP) {
        const int64_t rows = strip + STRIP < m ? STRIP : m - strip;
        for (int64_t j = 0; j < n; j += PANEL)
            for (int64_t k = 0; k < d; k += step) {
                const int64_t deep = k + step < d ? step : d - k;
                const float *panel = right + j * d + k * PANEL, *next = panel + deep * PANEL;
                for (int64_t i = 0; i < rows; i += TALL)
                    multiply_panel((n - j + WIDE - 1) / WIDE, deep, left + (strip + i) * d + k * TALL, panel,
                                   score + (strip + i) * stride + j, stride, k > 0, next + deep * PANEL / rows * i);
            }
    }
}

/* Scores of blocks of m and n rows, (blocks, m, stride); `scratch` has room for one packed block of each side. */
void cocos_stack(const float *left, const int64_t *left_order, const float *left_scale, const float *right,
                 const int64_t *right_order, const float *right_scale, int64_t blocks, int64_t m, int64_t n, int64_t d,
                 float *scratch, float *score, int64_t stride) {
    float *packed = scratch + (m + 2 * WIDE) * d;
    for (int64_t b = 0; b < blocks; b++) {
        cocos_pack(left, left_order + b * m, left_scale + b * m, m, d, 0, scratch);
        cocos_pack(right, right_order + b * n, right_scale + b * n, n, d, 1, packed);
        cocos_product(scratch, packed, m, n, d, score + b * m * stride, stride);
    }
}
