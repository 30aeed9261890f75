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
    const double *step;          /* (steps,) ascending */
    const double *reach;         /* (last + 1,) how far a score of a bin may be from the true one */
    const int32_t *first, *most; /* (last + 1,) steps that a score of the bin reaches at least, and at most */
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

/* Steps at or below a score, known to be at least `a` and at most `b`. */
INLINE int32_t reached_steps(const double *step, int32_t a, int32_t b, double score) {
    while (a < b) {
        int32_t middle = a + (b - a) / 2;
        if (step[middle] <= score) a = middle + 1;
        else b = middle;
    }
    return a;
}

/* The scores of a row that fell into mixed bins: compared with the steps, in float64 where that is needed. */
static void ladder_decide(const ladder *of, const view *v, const tile *t, int i, const int32_t *where,
                          const int32_t *place, int number) {
    const float *row = t->score + (int64_t)i * WIDTH;
    int32_t least[WIDTH], most[WIDTH];
    int64_t column[WIDTH];
    double score[WIDTH];
    int open = 0;
    for (int k = 0; k < number; k++) {
        int32_t g = place[k];
        double x = row[where[k]], reach = of->reach[g];
        least[open] = reached_steps(of->step, of->first[g], of->most[g], x - reach);
        most[open] = reached_steps(of->step, least[open], of->most[g], x + reach);
        column[open] = t->column + where[k];
        if (least[open] < most[open]) open++;
        else of->cell[least[open]]++;
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
