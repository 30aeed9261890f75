/* The product on matrix tiles of bfloat16 (AMX): each float32 factor x is packed as two halves, x = h + l + r with h and l
   rounded to bfloat16, and x y is taken as h h' + h l' + l h', added up in float32. `bounds.Halves` bounds the rest. */
#include "kernel.h"

#if defined(__AVX512F__) && defined(__linux__) && ((__GNUC__ >= 11 && !defined(__clang__)) || __clang_major__ >= 12)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TILED __attribute__((target("amx-tile,amx-bf16,avx512bf16,avx512bw,avx512vl")))
#endif
#define SQUARE_TILE 32 /* rows, columns, and factors of a chunk, that are multiplied at once: 2 x 2 tiles */
#define HALVED(number) (((number) + SQUARE_TILE - 1) / SQUARE_TILE * SQUARE_TILE)

const int64_t cocos_square = SQUARE_TILE;

/* Whether this process may use tiles of bfloat16; asks the system for them. */
int64_t cocos_halves(int64_t wanted) {
#ifdef TILED
    unsigned a, b, c, d;
    const unsigned tile = 1u << 24, product = 1u << 22, rounding = 1u << 5;
    if (!wanted || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (tile | product)) != (tile | product)) return 0;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & rounding)) return 0;
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0; /* ARCH_REQ_XCOMP_PERM, the data of tiles */
#else
    (void)wanted;
    return 0;
#endif
}

#ifdef TILED
/* Load factors k to k + 31 of 16 rows, scaled, as pairs of vectors; 0 beyond the last one. */
INLINE void loaded(const view *v, const side *s, const lines *of, int64_t from, int64_t number, int64_t k, vf x[2][WIDE]) {
    for (int half = 0; half < 2; half++) {
        const int64_t at = k + half * WIDE;
        if (at < v->d) made(v, s, of, at, at + WIDE < v->d ? WIDE : (int)(v->d - at), x[half]);
        else memset(x[half], 0, sizeof x[half]);
        for (int64_t t = 0; s->beside && t < 2; t++)
            if (v->d + t >= at && v->d + t < at + WIDE)
                for (int r = 0; r < WIDE; r++) x[half][r][v->d + t - at] = r < number ? s->beside[2 * (from + r) + t] : 0;
    }
}

/* The float32 numbers of 32 halves. */
static inline TILED __attribute__((always_inline)) void floats_of(__m512i halves, vf *low, vf *high) {
    *low = (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(halves)), 16);
    *high = (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(halves, 1)), 16);
}

/* Round 32 factors to bfloat16, and replace them by what is left. */
static inline TILED __attribute__((always_inline)) __m512i half_of(vf *low, vf *high) {
    vf a, b;
    __m512i found = (__m512i)_mm512_cvtne2ps_pbh((__m512)*high, (__m512)*low);
    floats_of(found, &a, &b);
    *low -= a, *high -= b;
    return found;
}

/* Pack places of a side in groups of 32, chunk by chunk of 32 factors: two tiles of first halves, two of second ones. A row
   of a tile is a row of the left side, or two factors of 16 rows of the right one. */
static TILED void pack_halves(const view *v, int which, int64_t from, int64_t number, float *packed) {
    const side *s = v->sides + which;
    const int64_t size = HALVED(v->d + (s->beside ? 2 : 0));
    for (int64_t i = 0; i < HALVED(number); i += WIDE) {
        char *to = (char *)(packed + i / SQUARE_TILE * SQUARE_TILE * size) + i % SQUARE_TILE * 64;
        lines of;
        chosen(v, s, from + (i < number ? i : number - 1), i < number ? number - i : 1, &of);
        for (int r = 0; i >= number && r < WIDE; r++) of.times[r] = 0;
        for (int64_t k = 0; k < size; k += SQUARE_TILE, to += 4096) {
            vf x[2][WIDE], first[WIDE], second[WIDE];
            loaded(v, s, &of, from + i, number - i, k, x);
            for (int r = 0; r < WIDE; r++) {
                first[r] = (vf)half_of(&x[0][r], &x[1][r]);
                second[r] = (vf)half_of(&x[0][r], &x[1][r]);
            }
            if (which) turned(first), turned(second);
            memcpy(to, first, sizeof first), memcpy(to + 2048, second, sizeof second);
        }
    }
}

/* Largest lengths of the second halves, and of what both halves leave, of some places of a side. */
static TILED void left_by_halves(const view *v, int which, int64_t from, int64_t number, double *largest_of) {
    const side *s = v->sides + which;
    for (int64_t i = 0; i < number; i += WIDE) {
        vf second[WIDE], rest[WIDE];
        lines of;
        memset(second, 0, sizeof second), memset(rest, 0, sizeof rest);
        chosen(v, s, from + i, number - i, &of);
        for (int64_t k = 0; k < HALVED(v->d + (s->beside ? 2 : 0)); k += SQUARE_TILE) {
            vf x[2][WIDE];
            loaded(v, s, &of, from + i, number - i, k, x);
            for (int r = 0; r < WIDE; r++) {
                half_of(&x[0][r], &x[1][r]);
                second[r] += x[0][r] * x[0][r] + x[1][r] * x[1][r];
                half_of(&x[0][r], &x[1][r]);
                rest[r] += x[0][r] * x[0][r] + x[1][r] * x[1][r];
            }
        }
        for (int r = 0; r < WIDE; r++) {
            const double both[] = {total(second[r]), total(rest[r])};
            for (int t = 0; t < 2; t++) largest_of[t] = both[t] > largest_of[t] ? both[t] : largest_of[t];
        }
    }
    for (int t = 0; t < 2; t++) largest_of[t] = sqrt(largest_of[t]);
}

typedef struct { /* layout of all tiles, as LDTILECFG reads it */
    uint8_t palette, start, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} layout;

/* Constant, since the intrinsic of GCC names only the first 8 bytes as read: stores to the others may be left out. */
static const layout ALL_ALIKE = {
    .palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static TILED void begun(const view *v) {
    if (v->halves) _tile_loadconfig(&ALL_ALIKE);
}

static TILED void ended(const view *v) {
    if (v->halves) _tile_release();
}

/* Load two tiles that lie side by side. */
#define TWO_TILES(a, b, from)                                                                                                \
    do {                                                                                                                     \
        _tile_loadd(a, from, 64);                                                                                            \
        _tile_loadd(b, (from) + 1024, 64);                                                                                   \
    } while (0)

/* Add the products of tiles 4 and 5, rows, with 6 and 7, columns. */
#define FOUR_PRODUCTS                                                                                                        \
    do {                                                                                                                     \
        _tile_dpbf16ps(0, 4, 6);                                                                                             \
        _tile_dpbf16ps(1, 4, 7);                                                                                             \
        _tile_dpbf16ps(2, 5, 6);                                                                                             \
        _tile_dpbf16ps(3, 5, 7);                                                                                             \
    } while (0)

static TILED void multiply_halves(const float *left, const float *right, int m, int n, int64_t size, float *score) {
    __asm__ volatile("" ::: "memory"); /* loads of tiles do not say what they read: what was packed must be stored by now */
    for (int j = 0; j < n; j += SQUARE_TILE)
        for (int i = 0; i < m; i += SQUARE_TILE) {
            const char *a = (const char *)(left + i * size), *b = (const char *)(right + j * size);
            float *to = score + i * WIDTH + j;
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            for (int64_t k = 0; k < size; k += SQUARE_TILE, a += 4096, b += 4096) {
                TWO_TILES(4, 5, a);
                TWO_TILES(6, 7, b + 2048);
                FOUR_PRODUCTS;
                TWO_TILES(6, 7, b);
                FOUR_PRODUCTS;
                TWO_TILES(4, 5, a + 2048);
                FOUR_PRODUCTS;
            }
            _tile_stored(0, to, 4 * WIDTH);
            _tile_stored(1, to + 16, 4 * WIDTH);
            _tile_stored(2, to + 16 * WIDTH, 4 * WIDTH);
            _tile_stored(3, to + 16 * WIDTH + 16, 4 * WIDTH);
        }
}
#else
static void pack_halves(const view *v, int which, int64_t from, int64_t number, float *packed) {
    (void)v, (void)which, (void)from, (void)number, (void)packed;
}
static void left_by_halves(const view *v, int which, int64_t from, int64_t number, double *largest_of) {
    (void)v, (void)which, (void)from, (void)number, (void)largest_of;
}
static void begun(const view *v) { (void)v; }
static void ended(const view *v) { (void)v; }
static void multiply_halves(const float *left, const float *right, int m, int n, int64_t size, float *score) {
    (void)left, (void)right, (void)m, (void)n, (void)size, (void)score;
}
#endif

/* Largest lengths of the second halves of some places, and of what both halves leave, (2,). */
void cocos_halved(const view *v, int64_t which, int64_t from, int64_t number, double *largest_of) {
    left_by_halves(v, (int)which, from, number, largest_of);
}
