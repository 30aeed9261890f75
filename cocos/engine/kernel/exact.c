/* Scores in float64, of the rows as they are: one pair, a row with some columns, and lists of pairs. */
#include "kernel.h"

#define FOUR 4         /* columns that share a visit of a row */
#define HELD 4096      /* factors of a row that is held in float64 for them */
#define HALF (WIDE / 2) /* doubles in a vector */

typedef double vd __attribute__((vector_size(8 * HALF), aligned(8)));
typedef float vh __attribute__((vector_size(4 * HALF), aligned(4)));

/* Some numbers of a row as doubles. */
INLINE vd widened(const void *row, int wide, int64_t k) {
    if (wide) return *(const vd *)((const double *)row + k);
#ifdef __AVX512F__
    return (vd)_mm512_cvtps_pd(_mm256_loadu_ps((const float *)row + k));
#elif defined(__AVX__)
    return (vd)_mm256_cvtps_pd(_mm_loadu_ps((const float *)row + k));
#else
    return __builtin_convertvector(*(const vh *)((const float *)row + k), vd);
#endif
}

INLINE double number(const void *row, int wide, int64_t k) {
    return wide ? ((const double *)row)[k] : (double)((const float *)row)[k];
}

INLINE const void *row_of(const void *matrix, int wide, int64_t row, int64_t d) {
    return (const char *)matrix + row * d * (wide ? 8 : 4);
}

/* Sum of the lanes of two vectors. */
INLINE double summed(vd a, vd b) {
    double sum = 0;
    a += b;
    for (int k = 0; k < HALF / 2; k++) sum += a[k] + a[k + HALF / 2];
    return sum;
}

/* Sums of products, or of squared differences, of a row with some others: each has the same bits for any number of them. */
INLINE void joined(int some, const void *a, int a_wide, const void *const *b, int b_wide, int64_t d, int gap, double *sum) {
    vd part[FOUR][2];
    int64_t j = 0;
    memset(part, 0, sizeof part);
    for (; j + 2 * HALF <= d; j += 2 * HALF)
        UNROLL(2)
        for (int half = 0; half < 2; half++) {
            vd x = widened(a, a_wide, j + half * HALF);
            UNROLL(4)
            for (int k = 0; k < some; k++) {
                vd y = widened(b[k], b_wide, j + half * HALF);
                part[k][half] += gap ? (x - y) * (x - y) : x * y;
            }
        }
    for (int k = 0; k < some; k++) {
        sum[k] = summed(part[k][0], part[k][1]);
        for (int64_t rest = j; rest < d; rest++) {
            double x = number(a, a_wide, rest), y = number(b[k], b_wide, rest);
            sum[k] += gap ? (x - y) * (x - y) : x * y;
        }
    }
}

/* A sum of products of two rows, or of squared differences; one case for each kind of numbers. */
static double paired(const void *a, int a_wide, const void *b, int b_wide, int64_t d, int gap) {
    double sum;
    switch (a_wide + 2 * b_wide + 4 * gap) {
    case 0: joined(1, a, 0, &b, 0, d, 0, &sum); break;
    case 1: joined(1, a, 1, &b, 0, d, 0, &sum); break;
    case 2: joined(1, a, 0, &b, 1, d, 0, &sum); break;
    case 3: joined(1, a, 1, &b, 1, d, 0, &sum); break;
    case 4: joined(1, a, 0, &b, 0, d, 1, &sum); break;
    case 5: joined(1, a, 1, &b, 0, d, 1, &sum); break;
    case 6: joined(1, a, 0, &b, 1, d, 1, &sum); break;
    default: joined(1, a, 1, &b, 1, d, 1, &sum);
    }
    return sum;
}

/* Product of two float32 rows and the squares of both, each read once. */
static double squared(const float *a, const float *b, int64_t d, double *a_square, double *b_square) {
    vd product[2] = {0}, left[2] = {0}, right[2] = {0};
    int64_t j = 0;
    for (; j + 2 * HALF <= d; j += 2 * HALF)
        UNROLL(2)
        for (int half = 0; half < 2; half++) {
            vd x = widened(a, 0, j + half * HALF), y = widened(b, 0, j + half * HALF);
            product[half] += x * y, left[half] += x * x, right[half] += y * y;
        }
    double sum = summed(product[0], product[1]);
    *a_square = summed(left[0], left[1]), *b_square = summed(right[0], right[1]);
    for (; j < d; j++) sum += (double)a[j] * b[j], *a_square += (double)a[j] * a[j], *b_square += (double)b[j] * b[j];
    return sum;
}

/* Sum of products of rows that are divided by their norms first: their numbers may be too large or too small to multiply. */
static double divided(const void *a, int a_wide, double a_norm, const void *b, int b_wide, double b_norm, int64_t d) {
    double sum = 0;
    for (int64_t j = 0; j < d; j++) sum += (number(a, a_wide, j) / a_norm) * (number(b, b_wide, j) / b_norm);
    return sum;
}

/* The score of two places, from the sum of products or squared differences of their rows. */
INLINE double scored(const view *v, int64_t row, int64_t column, double sum) {
    const side *left = v->sides, *right = v->sides + 1;
    if (v->metric != PRODUCT) return v->metric == ROOT ? -sqrt(sum) : -sum;
    return sum / (left->unit ? left->norm[row] : 1) / (right->unit ? right->norm[column] : 1);
}

/* Norms come first: they may lie far from one. */
INLINE int careful(const view *v) {
    return v->metric == PRODUCT && v->sides[0].unit && (v->sides[0].precise || v->sides[1].precise);
}

static double exact(const view *v, int64_t row, int64_t column) {
    const side *left = v->sides, *right = v->sides + 1;
    const void *a = row_of(left->matrix, left->wide, left->order[row], v->d);
    const void *b = row_of(right->matrix, right->wide, right->order[column], v->d);
    if (careful(v)) {
        double norm = right->unit ? right->norm[column] : 1;
        return divided(a, left->wide, left->norm[row], b, right->wide, norm, v->d);
    }
    return scored(v, row, column, paired(a, left->wide, b, right->wide, v->d, v->metric != PRODUCT));
}

/* Scores in float64 of a row with some columns, as `exact` gives them, bit for bit. */
static void exact_row(const view *v, int64_t row, const int64_t *column, int some, double *score) {
    const side *left = v->sides, *right = v->sides + 1;
    int k = 0;
    if (some >= FOUR && v->d <= HELD && !left->wide && !right->wide && !careful(v)) {
        const float *own = (const float *)left->matrix + left->order[row] * v->d;
        const void *other[FOUR];
        double held[HELD];
        for (int64_t j = 0; j < v->d; j++) held[j] = own[j];
        for (; k + FOUR <= some; k += FOUR) {
            for (int r = 0; r < FOUR; r++) other[r] = row_of(right->matrix, 0, right->order[column[k + r]], v->d);
            if (v->metric == PRODUCT) joined(FOUR, held, 1, other, 0, v->d, 0, score + k);
            else joined(FOUR, held, 1, other, 0, v->d, 1, score + k);
            for (int r = k; r < k + FOUR; r++) score[r] = scored(v, row, column[r], score[r]);
        }
    }
    for (; k < some; k++) score[k] = exact(v, row, column[k]);
}

typedef struct { /* pairs of rows of two matrices */
    int64_t size;
    const void *left, *right;                    /* (N, d), (M, d) */
    const int64_t *of, *with_;                   /* (number,) rows of the left one, and of the right one */
    double *joined, *left_square, *right_square; /* (number,); squares of both rows, of float32, or NULL: not wanted */
    int64_t number, d;
    int32_t left_wide, right_wide, gaps; /* of float64; squared distances are wanted, not products */
} pairs;

void cocos_pairs(const pairs *p) {
    for (int64_t k = 0; k < p->number; k++) {
        const void *a = row_of(p->left, p->left_wide, p->of[k], p->d);
        const void *b = row_of(p->right, p->right_wide, p->with_[k], p->d);
        if (p->left_square) p->joined[k] = squared(a, b, p->d, p->left_square + k, p->right_square + k);
        else p->joined[k] = paired(a, p->left_wide, b, p->right_wide, p->d, p->gaps);
    }
}

/* Scores in float64 of some pairs of places. */
void cocos_exact(const view *v, const int64_t *row, const int64_t *column, int64_t number, double *score) {
    for (int64_t k = 0; k < number; k++) score[k] = exact(v, row[k], column[k]);
}

EXPORT(pairs)
