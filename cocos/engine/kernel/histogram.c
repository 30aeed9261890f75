/* Histograms: the scores of each row and column in equal bins, and of all pairs between the steps of a ladder. */
#include "kernel.h"

typedef struct {
    int64_t size;
    int32_t *bin[2]; /* (n, number) counts of rows and of columns, added to; NULL: not wanted */
    int64_t number;
    float low, inverse; /* lower edge of the first bin; 1 / width */
} bins;

typedef struct {
    int64_t size;
    const double *step;  /* (steps + NEAR,) thresholds, ascending; infinite at the end */
    const double *reach; /* (last + 1,) largest distance of a score in the bin from the true score, including ties */
    const int32_t *ends; /* (last + 1, 2) smallest and largest number of steps that a score of the bin reaches */
    int64_t *cell;       /* (steps + 1,) scores by the number of steps they reach, added to; those that reach none are not
                            counted */
    int64_t last;        /* index of the last bin; the first is 1 */
    float low, inverse;  /* scores up to `low` reach no step; 1 / width */
} ladder;

/* Bins of a vector of scores, from 0 to `last`; NaN, as from infinity times 0, goes to bin 0. */
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

#define NEAR 8 /* number of steps compared at once */

/* Bit mask of the NEAR steps at or below a score. */
INLINE unsigned below(const double *step, double score) {
#ifdef __AVX512F__
    return _mm512_cmp_pd_mask(_mm512_loadu_pd(step), _mm512_set1_pd(score), _CMP_LE_OQ);
#else
    unsigned found = 0;
    for (int k = 0; k < NEAR; k++) found |= (unsigned)(step[k] <= score) << k;
    return found;
#endif
}

/* Number of steps at or below a score, known to be between `a` and `b`. There is no branch on the score here and below: it
   would be mispredicted half of the time. */
INLINE int32_t reached_steps(const double *step, int32_t a, int32_t b, double score) {
    while (b - a > NEAR) {
        int32_t half = (b - a) / 2, above = -(step[a + half - 1] <= score);
        a += half & above, b -= (b - a - half) & ~above;
    }
    return a + __builtin_popcount(below(step + a, score) & ((1u << (b - a)) - 1));
}

/* Compare the scores of a row in mixed bins with the nearby steps, in float64 where the bound reaches a step. */
static void ladder_decide(const ladder *of, const view *v, const tile *t, int i, int64_t *column, const int32_t *bin, int number) {
    const float *row = t->score + (int64_t)i * WIDTH - t->column;
    int32_t least[WIDTH + 1], most[WIDTH + 1];
    int open = 0;
    for (int k = 0; k < number; k++) {
        const int32_t *end = of->ends + 2 * bin[k];
        const double x = row[column[k]], reach = of->reach[bin[k]], *step = of->step + end[0];
        unsigned some = ((1u << NEAR) - 1) >> (end[1] - end[0] < NEAR ? NEAR + end[0] - end[1] : 0);
        some &= -(unsigned)(end[1] - end[0] <= NEAR); /* with more than NEAR steps in the bin, one of them is almost surely
                                                         near */
        least[open] = end[0] + __builtin_popcount(below(step, x - reach) & some);
        most[open] = end[1] - __builtin_popcount(~below(step, x + reach) & some);
        column[open] = column[k];
        of->cell[least[open]] += least[open] == most[open];
        open += least[open] < most[open];
    }
    double score[WIDTH + 1];
    exact_of_row(v, t->row + i, column, open, score);
    for (int k = 0; k < open; k++) of->cell[reached_steps(of->step, least[k], most[k], score[k])]++;
}

static void ladder_see(void *arguments, const view *v, const tile *t) {
    const ladder *of = arguments;
    int32_t bin[WIDTH + 1], place[WIDE];
    int64_t column[WIDTH + 1];
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
                int lane = __builtin_ctz(left);
                const int32_t *end = of->ends + 2 * place[lane];
                int mixed = end[0] < end[1];
                column[number] = t->column + j + lane, bin[number] = place[lane];
                of->cell[end[0]] += !mixed;
                number += mixed;
            }
        }
        if (number) ladder_decide(of, v, t, i, column, bin, number);
    }
}

PRIMITIVE(bins, NULL, bins_see, NULL)
PRIMITIVE(ladder, NULL, ladder_see, NULL)
