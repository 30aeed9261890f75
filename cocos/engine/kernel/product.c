/* The matrix product, fused with the primitives: tiles are small enough to be still in the second-level cache when they are
   read. The factors are packed: TALL rows of the left side, and PANEL rows of the right one, interleaved. */
#include "kernel.h"

#ifdef __AVX512F__
#define TALL 8 /* rows of scores in registers, each PANEL wide */
#else
#define TALL 4
#endif
#define VECTORS 3
#define PANEL (VECTORS * WIDE)
#define DEEP 64 /* factors summed in registers before the sums are added to memory: rounding grows with DEEP + d / DEEP, not
                   with d */

const int64_t cocos_tall = TALL, cocos_panel = PANEL, cocos_lanes = WIDE, cocos_strip = STRIP, cocos_width = WIDTH, cocos_deep = DEEP;

/* Interleave the first halves, or the second halves, of two vectors. */
#if WIDE == 16
#define FIRST 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define SECOND 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#else
#define FIRST 0, 8, 1, 9, 2, 10, 3, 11
#define SECOND 4, 12, 5, 13, 6, 14, 7, 15
#endif
#ifdef __clang__
#define IN_TURN(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define IN_TURN(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif

/* Transpose a square of WIDE rows: interleave rows k and k + WIDE / 2, log2(WIDE) times. */
INLINE void turned(vf *x) {
    vf y[WIDE];
    UNROLL(4)
    for (int step = 1; step < WIDE; step *= 2) {
        UNROLL(8)
        for (int k = 0; k < WIDE / 2; k++) {
            y[2 * k] = IN_TURN(x[k], x[k + WIDE / 2], FIRST);
            y[2 * k + 1] = IN_TURN(x[k], x[k + WIDE / 2], SECOND);
        }
        memcpy(x, y, sizeof y);
    }
}

typedef struct { /* WIDE rows that are packed together */
    const void *row[WIDE];
    double norm[WIDE];
    float times[WIDE]; /* factor of each row; 0 beyond the last row */
} lines;

/* Load a vector of a row, padded with zeros. */
INLINE vf some(const float *row, int number) {
    vf x = all(0);
    if (number == WIDE) return load(row);
    memcpy(&x, row, sizeof(float) * (size_t)number);
    return x;
}

/* Prepare factors k, k + 1, ... of WIDE rows: centre, scale, round. */
INLINE void made(const view *v, const side *s, const lines *of, int64_t k, int deep, vf *square) {
    const vf less = v->origin ? some(v->origin + k, deep) : all(0);
    if (s->precise) {
        for (int r = 0; r < WIDE; r++)
            for (int j = 0; j < WIDE; j++) {
                double x = j < deep ? number(of->row[r], s->wide, k + j) - (v->centre ? v->centre[k + j] : 0) : 0;
                square[r][j] = of->times[r] ? (float)(s->factor * (s->unit ? x / of->norm[r] : x)) : 0;
            }
        return;
    }
    UNROLL(16)
    for (int r = 0; r < WIDE; r++) {
        __builtin_prefetch((const float *)of->row[r] + k + 4 * WIDE);
        square[r] = (some((const float *)of->row[r] + k, deep) - less) * all(of->times[r]);
    }
}

INLINE void chosen(const view *v, const side *s, int64_t from, int64_t number, lines *of) {
    for (int r = 0; r < WIDE; r++) {
        int64_t place = from + (r < number ? r : number - 1);
        of->row[r] = row_of(s->matrix, s->wide, s->order[place], v->d);
        of->norm[r] = s->norm[place];
        of->times[r] = r < number ? (float)s->factor * (s->scale ? s->scale[place] : 1) : 0;
        __builtin_prefetch(of->row[r]);
    }
}

INLINE int64_t depth(const view *v) { return v->d + (v->sides[0].beside ? 2 : 0); }

/* Pack WIDE places of a side from `from` on, of which `number` exist, into panels of `panel` rows: (factors, panel) each. */
INLINE void pack_lines(const view *v, const side *s, int64_t from, int64_t number, int panel, float *to) {
    const int64_t size = depth(v);
    lines of;
    chosen(v, s, from, number, &of);
    for (int64_t k = 0; k < v->d; k += WIDE) {
        vf square[WIDE];
        int deep = k + WIDE < v->d ? WIDE : (int)(v->d - k);
        made(v, s, &of, k, deep, square);
        turned(square);
        for (int r = 0; r < deep; r++)
            if (panel >= WIDE) store(to + (k + r) * panel, square[r]);
            else
                for (int t = 0; t < WIDE; t += TALL)
                    memcpy(to + t * size + (k + r) * TALL, (const float *)(square + r) + t, sizeof(float) * TALL);
    }
    for (int r = 0; s->beside && r < WIDE; r++)
        for (int k = 0; k < 2; k++)
            to[r / panel * panel * size + (v->d + k) * panel + r % panel] = r < number ? s->beside[2 * (from + r) + k] : 0;
}

/* Pack places of a side for the product, padded with zeros to whole panels. */
static void pack(const view *v, int which, int64_t from, int64_t number, float *packed) {
    const int64_t size = depth(v), panel = which ? PANEL : TALL;
    for (int64_t i = 0; i < (number + panel - 1) / panel * panel; i += WIDE) {
        float *to = packed + i / panel * panel * size + i % panel;
        if (which) pack_lines(v, v->sides + 1, from + i, number - i, PANEL, to);
        else pack_lines(v, v->sides, from + i, number - i, TALL, to);
    }
}

/* Multiply TALL rows by some vectors of a panel of columns, over `deep` factors. Meanwhile prefetch the next operands, from
   `next` on, which would otherwise arrive too late from beyond the second-level cache. */
INLINE void some_columns(int vectors, int64_t deep, const float *left, const float *right, float *score, int more_of_it,
                         const float *next) {
    vf sum[TALL][VECTORS];
    UNROLL(8)
    for (int r = 0; r < TALL; r++)
        UNROLL(3)
        for (int x = 0; x < vectors; x++) sum[r][x] = all(0);
    for (int64_t k = 0; k < deep; k++, left += TALL, right += PANEL) {
        vf factor[VECTORS];
        if (k % 4 == 0) __builtin_prefetch(next + k * 4, 0, 2);
        UNROLL(3)
        for (int x = 0; x < vectors; x++) factor[x] = load(right + x * WIDE);
        UNROLL(8)
        for (int r = 0; r < TALL; r++) {
            vf one = all(left[r]);
            UNROLL(3)
            for (int x = 0; x < vectors; x++) sum[r][x] += one * factor[x];
        }
    }
    UNROLL(8)
    for (int r = 0; r < TALL; r++)
        UNROLL(3)
        for (int x = 0; x < vectors; x++) {
            float *place = score + r * WIDTH + x * WIDE;
            store(place, more_of_it ? load(place) + sum[r][x] : sum[r][x]);
        }
}

/* Scores of m rows and n columns from packed factors; the tile must have room for whole panels of both. */
static __attribute__((noinline)) void columns(int vectors, int64_t deep, const float *left, const float *right, float *score,
                                              int more_of_it, const float *next) {
    switch (vectors) {
    case 1: some_columns(1, deep, left, right, score, more_of_it, next); break;
    case 2: some_columns(2, deep, left, right, score, more_of_it, next); break;
    default: some_columns(VECTORS, deep, left, right, score, more_of_it, next);
    }
}

static void multiply(const float *left, const float *right, int m, int n, int64_t size, float *score) {
    int64_t parts = (size + DEEP - 1) / DEEP, step = (size + parts - 1) / parts;
    for (int j = 0; j < n; j += PANEL)
        for (int64_t k = 0; k < size; k += step) {
            int64_t deep = k + step < size ? step : size - k;
            const float *panel = right + j * size + k * PANEL, *next = panel + deep * PANEL;
            for (int i = 0; i < m; i += TALL)
                columns((n - j + WIDE - 1) / WIDE, deep, left + i * size + k * TALL, panel, score + i * WIDTH + j, k > 0,
                        next + deep * PANEL / m * i);
        }
}
