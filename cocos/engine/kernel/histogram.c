/* Scores counted by where they lie: of each row and column in equal bins, and of all pairs between the steps of a ladder. */
#include "kernel.h"

typedef struct {
    int64_t size;
    int32_t *bin[2]; /* (n, number) of rows and of columns, added to; NULL: not wanted */
    int64_t number;
    float low, inverse; /* lower end of the first bin; 1 / width */
} bins;

typedef struct {
    int64_t size;
    const double *step;          /* (steps + NEAR,) ascending, infinite in the end */
    const double *reach;         /* (last + 1,) how far a score of a bin may be from the true one */
    const int32_t *ends;         /* (last + 1, 2) steps that a score of the bin reaches at least, and at most */
    const int8_t *mixed;         /* (last + 1,) these differ */
    int64_t *bin;                /* (last + 1,) scores, added to */
    int64_t *cell;               /* (steps + 1,) scores of mixed bins by the steps that they reach, added to */
    int64_t last;                /* bin; bins begin at 1 */
    float low, inverse;          /* no score that is not above `low` reaches a step; 1 / width */
} ladder;

/* Bins of some scores, from 0 to `last`; what is no number, as infinity times 0, is in the first. */
INLINE vi binned(vf x, float low, float inverse, float last) {
    vf place = smaller(all(last), larger((x - all(low)) * all(inverse), all(0)));
    return __builtin_convertvector(place, vi);
}

static void bins_see(void *arguments, const view *v, const tile *t) {
    const bins *of = arguments;
    const int64_t number = of->number;
    int32_t place[WIDE];
    (void)v;
    for (int i = 0; i < t->m; i++) {
        const float *row = t->score + (int64_t)i * WIDTH;
        int32_t *own = of->bin[0] + (t->row + i) * number;
        for (int j = 0; j < t->n; j += WIDE) {
            vf x = load(row + j);
            vi at = binned(x, of->low, of->inverse, (float)(number - 1));
            int32_t *other = of->bin[1] ? of->bin[1] + (t->column + j) * number : 0;
            memcpy(place, &at, sizeof place);
            for (unsigned left = over(x, all(-INFINITY)); left; left &= left - 1) {
                int lane = __builtin_ctz(left);
                own[place[lane]]++;
                if (other) other[lane * number + place[lane]]++;
            }
        }
    }
}

#define NEAR 8  /* steps that are compared at once */
#define FEW 16  /* steps about a bin up to which it is asked which of them a score is near */

/* Which of NEAR steps are at or below a score: their number. */
INLINE int32_t below(const double *step, double score) {
#ifdef __AVX512F__
    return __builtin_popcount(_mm512_cmp_pd_mask(_mm512_loadu_pd(step), _mm512_set1_pd(score), _CMP_LE_OQ));
#else
    int32_t number = 0;
    for (int k = 0; k < NEAR; k++) number += step[k] <= score;
    return number;
#endif
}

/* Steps at or below a score, known to be at least `a` and at most `b`: without branches that depend on the score, so that the
   processor looks up several scores at once. */
INLINE int32_t reached_steps(const double *step, int32_t a, int32_t b, double score) {
    int32_t left = b - a;
    step += a;
    if (left <= NEAR) {
        int32_t number = below(step, score);
        return a + (number < left ? number : left);
    }
    while (left > 1) {
        int32_t half = left / 2, above = step[half - 1] <= score ? half : 0;
        step += above, a += above, left -= half;
    }
    return a + (*step <= score);
}

/* The scores of a row that fell into mixed bins: compared with the steps, in float64 where that is needed. */
static void ladder_decide(const ladder *of, const view *v, const tile *t, int i, const int32_t *where,
                          const int32_t *place, int number) {
    const float *row = t->score + (int64_t)i * WIDTH;
    int32_t least[WIDTH + 1], most[WIDTH + 1];
    int64_t column[WIDTH + 1];
    double score[WIDTH];
    int open = 0;
    for (int k = 0; k < number; k++) {
        const int32_t *end = of->ends + 2 * place[k];
        int32_t a = end[0], b = end[1];
        if (b - a <= FEW) { /* else it is as good as sure that one of them is near */
            double x = row[where[k]], reach = of->reach[place[k]];
            a = reached_steps(of->step, a, b, x - reach);
            b = reached_steps(of->step, a, b, x + reach);
        }
        least[open] = a, most[open] = b, column[open] = t->column + where[k];
        of->cell[a] += a == b;
        open += a < b;
    }
    exact_row(v, t->row + i, column, open, score);
    for (int k = 0; k < open; k++) of->cell[reached_steps(of->step, least[k], most[k], score[k])]++;
}

static void ladder_see(void *arguments, const view *v, const tile *t) {
    const ladder *of = arguments;
    int32_t where[WIDTH + 1], bin[WIDTH + 1], place[WIDE];
    for (int i = 0; i < t->m; i++) {
        const float *row = t->score + (int64_t)i * WIDTH;
        int number = 0;
        for (int j = 0; j < t->n; j += WIDE) {
            vf x = load(row + j);
            unsigned left = over(x, all(of->low));
            if (!left) continue;
            vi at = binned(x, of->low, of->inverse, (float)(of->last - 1)) + 1;
            memcpy(place, &at, sizeof place);
            for (; left; left &= left - 1) {
                int lane = __builtin_ctz(left), g = place[lane];
                of->bin[g]++;
                where[number] = j + lane, bin[number] = g;
                number += of->mixed[g];
            }
        }
        if (number) ladder_decide(of, v, t, i, where, bin, number);
    }
}

PRIMITIVE(bins, NULL, NULL, bins_see, NULL, NULL)
PRIMITIVE(ladder, NULL, NULL, ladder_see, NULL, NULL)
