/* Read the scores and weights of a loss row by row: whether the weights are those of a softmax, and sums over queries. */
#include "kernel.h"

typedef struct { /* one direction of a batch */
    int64_t size;
    const float *score, *weight;       /* (queries, candidates) */
    const int8_t *positive, *negative; /* likewise, 0 or 1 */
    const int64_t *first;              /* (queries,) column of the first positive, or of any candidate without one */
    int64_t queries, candidates;
    float *scratch;        /* (candidates + PAD,) */
    float *part;           /* (candidates + PAD,) added to: parts of each query's push */
    float *ahead, *number; /* (queries,) negatives above the first positive less those below; negatives */
    double *form, *found;  /* results, added to: of the comparison, which is made unless the factor is 0; and sums */
    double factor, unit;   /* of a score in a softmax; size of one weight */
    double eps, doubt;     /* smallest share that contributes; relative error of the unit */
} weighing;

typedef struct { /* a vector of pairs, 0 beyond the end of a row */
    vf score, weight, positive, negative;
} couples;

INLINE couples taken(const weighing *w, int64_t at, int64_t number) {
    if (number >= WIDE) {
        couples found = {load(w->score + at), load(w->weight + at), from_bytes(w->positive + at), from_bytes(w->negative + at)};
        return found;
    }
    int8_t positive[WIDE] = {0}, negative[WIDE] = {0};
    couples found = {all(0), all(0), all(0), all(0)};
    memcpy(&found.score, w->score + at, sizeof(float) * (size_t)number), memcpy(&found.weight, w->weight + at, sizeof(float) * (size_t)number);
    memcpy(positive, w->positive + at, (size_t)number), memcpy(negative, w->negative + at, (size_t)number);
    found.positive = from_bytes(positive), found.negative = from_bytes(negative);
    return found;
}

INLINE vf size_of(vf x) { return (vf)((vi)x & 0x7fffffff); }
INLINE vf one_where(vi mask) { return -__builtin_convertvector(mask, vf); }

/* Natural logarithm of positive normal numbers; relative error below 1e-6. */
INLINE vf logarithm(vf x) {
    vi whole = ((vi)x - 0x3f3504f3) >> 23; /* so that the rest is between the roots of 1/2 and 2 */
    vf rest = (vf)((vi)x - (whole << 23)), t = (rest - 1) / (rest + 1), u = t * t;
    vf series = all(1 / 9.0f) * u + all(1 / 7.0f);
    series = (series * u + all(1 / 5.0f)) * u + all(1 / 3.0f);
    return __builtin_convertvector(whole, vf) * all(0.69314718f) + 2 * t * (series * u + 1);
}

/* Compare the weights of a query with a softmax of one positive, in units: added to `form` are the sums of |form|, of |weights|
   and of their difference, and the number of pairs in neither mask; the fourth is the largest sum of a row of the form. */
static __attribute__((noinline)) void compare(const weighing *w, int64_t i) {
    const vf factor = all((float)w->factor), times = all((float)(1 / w->unit));
    const int64_t row = i * w->candidates;
    vf top = all(-INFINITY), sum = all(0), form_size = all(0), size = all(0), error = all(0), balance = all(0), out = all(0);
    for (int64_t j = 0; j < w->candidates; j += WIDE) {
        const couples c = taken(w, row + j, w->candidates - j);
        vi in = c.positive + c.negative > 0;
        vf z = pick(in, c.score * factor, all(-INFINITY));
        store(w->scratch + j, z);
        top = larger(z, top);
        out += 1 - one_where(in);
    }
    const float highest = largest(top);
    if (!(highest > -INFINITY)) w->form[3] = INFINITY;
    for (int64_t j = 0; j < w->candidates; j += WIDE) {
        vf z = load(w->scratch + j), e = power(larger((z - highest) * all(1.44269504f), all(-126)));
        e = pick(z > -INFINITY, e, all(0));
        store(w->scratch + j, e), sum += e;
    }
    const vf scale = all((float)(1 / total(sum)));
    for (int64_t j = 0; j < w->candidates; j += WIDE) {
        const couples c = taken(w, row + j, w->candidates - j);
        vf form = load(w->scratch + j) * scale - c.positive;
        balance += form, form_size += size_of(form), size += size_of(c.weight);
        error += size_of(c.weight * times - form);
    }
    const double missing = fabs(total(balance));
    w->form[0] += total(form_size), w->form[1] += total(size), w->form[2] += total(error);
    w->form[3] = missing > w->form[3] ? missing : w->form[3];
    w->form[4] += total(out) - (w->candidates + WIDE - 1) / WIDE * WIDE + w->candidates;
}

/* The comparison of all queries alone. */
void cocos_form(const weighing *w) {
    for (int64_t i = 0; i < w->queries; i++) compare(w, i);
}

/* The least x >= 0 with x / by > limit as float32 has it, so that a comparison takes no division; numbers of one sign are in
   the order of their bits. */
static float least_over(float limit, float by) {
    int32_t low = -1, high = 0x7f800000;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        float x;
        memcpy(&x, &middle, sizeof x);
        if (x / by > limit) high = middle;
        else low = middle;
    }
    float found;
    memcpy(&found, &high, sizeof found);
    return found;
}

enum { RELATIVE, SOME, HARDEST, EFFECTIVE, IDLE, SUM, IN_LANES };
enum { SUMS = 10, FLUSHED = 64 }; /* results that are kept as vectors, and for about how many vectors */

/* Sums over the queries, in the order of `RESULTS` in weighing.py; those from IN_LANES on are sums over all pairs. */
void cocos_weighing(const weighing *w) {
    const vf none = all(0), share = all(least_over((float)w->eps, (float)w->unit));
    const vf low = share * (float)(1 - w->doubt), high = share * (float)(1 + w->doubt);
    vf sums[SUMS] = {none}, scores = none, weights = none;
    int64_t waiting = 0;
    double unknown = 0; /* NaN where a weight is not finite; the comparisons drop it */
    for (int64_t i = 0; i < w->queries; i++) {
        const int64_t row = i * w->candidates;
        const vf own = all(w->score[row + w->first[i]]);
        vf top = none, sum = none, surprise = none, heavy = none, above = none, ahead = none, negatives = none;
        for (int64_t j = 0; j < w->candidates; j += WIDE) {
            const couples c = taken(w, row + j, w->candidates - j);
            const vi negative = c.negative > 0;
            vf away = c.weight * c.negative, near = c.weight * c.positive, push = larger(away, none), size = size_of(away);
            store(w->scratch + j, push);
            top = larger(push, top), scores += c.score, weights += c.weight;
            ahead += one_where((c.score > own) & negative) - one_where((c.score < own) & negative);
            negatives += c.negative, above += one_where(size >= share);
            sums[0] += one_where(away < 0), sums[1] += one_where(near > 0), sums[2] += c.positive;
            sums[4] += one_where(size > 0), sums[5] += size_of(near), sums[6] += size, sums[8] += pick(negative, c.score, none);
            sums[9] += one_where((size >= low) & (size <= high));
        }
        sums[3] += negatives, sums[7] += above;
        w->ahead[i] = (float)total(ahead), w->number[i] = (float)total(negatives);
        const float largest_push = largest(top), most = largest_push > 0 ? largest_push : 1;
        for (int64_t j = 0; j < w->candidates; j += WIDE) {
            vf scaled = load(w->scratch + j) / all(most);
            store(w->scratch + j, scaled);
            sum += scaled, surprise += logarithm(larger(scaled, all(0x1p-126f))) * scaled;
        }
        const double whole = total(sum), least = whole > 1 ? whole : 1, part = 1 / least;
        const vf limit = all((float)(w->eps * least)), times = all((float)part);
        for (int64_t j = 0; j < w->candidates; j += WIDE) {
            vf scaled = load(w->scratch + j);
            heavy += one_where(scaled > limit);
            store(w->part + j, load(w->part + j) + scaled * times);
        }
        if (w->factor > 0) compare(w, i);
        w->found[RELATIVE] += total(heavy), w->found[IDLE] += !(largest(above) > 0);
        if (whole > 0) {
            w->found[SOME] += 1, w->found[HARDEST] += part;
            w->found[EFFECTIVE] += exp(log(least) - total(surprise) * part);
        }
        waiting += w->candidates;
        if (waiting >= FLUSHED * WIDE || i == w->queries - 1) {
            const double pull = total(weights);
            w->found[SUM] += total(scores) + pull, unknown += 0 * pull;
            for (int k = 0; k < SUMS; k++) w->found[IN_LANES + k] += total(sums[k]), sums[k] = none;
            scores = none, weights = none, waiting = 0;
        }
    }
    w->found[HARDEST] += unknown, w->found[EFFECTIVE] += unknown;
}

typedef struct { /* distances of scores from those of the first positives, under a softmax of each query */
    int64_t size;
    const float *score;   /* (queries, candidates) */
    const int64_t *first; /* (queries,) */
    int64_t queries, candidates;
    float *scratch;          /* (candidates + PAD,) */
    double *found;           /* results: sums over the queries of mean, variance, and mean without the softmax; largest distance */
    double factor, rounding; /* of a score; distance that is none */
    double scale;            /* of a distance in the softmax */
} margins;

void cocos_margins(const margins *m) {
    const vf factor = all((float)m->factor), rounding = all((float)m->rounding), scale = all((float)(m->scale * 1.4426950408889634));
    double found[4] = {0, 0, 0, -INFINITY};
    for (int64_t i = 0; i < m->queries; i++) {
        const float *score = m->score + i * m->candidates;
        const vf own = all(score[m->first[i]]) * factor;
        vf top = all(-INFINITY), sum = all(0), once = all(0), twice = all(0), plain = all(0);
        for (int64_t j = 0; j < m->candidates; j += WIDE) {
            const int64_t rest = m->candidates - j;
            vf x = own;
            if (rest >= WIDE) x = load(score + j);
            else memcpy(&x, score + j, sizeof(float) * (size_t)rest);
            x = x * factor - own;
            x = pick(size_of(x) > rounding, x, all(0));
            if (rest < WIDE) for (int64_t k = rest; k < WIDE; k++) x[k] = -INFINITY;
            store(m->scratch + j, x), top = larger(x, top);
        }
        const float most = largest(top);
        for (int64_t j = 0; j < m->candidates; j += WIDE) {
            vf x = load(m->scratch + j), e = power(larger((x - most) * scale, all(-126)));
            vi in = x > -INFINITY;
            e = pick(in, e, all(0)), x = pick(in, x, all(0));
            sum += e, once += e * x, twice += e * x * x, plain += x;
        }
        const double mass = total(sum), mean = total(once) / mass;
        found[0] += mean, found[1] += total(twice) / mass - mean * mean, found[2] += total(plain) / m->candidates;
        found[3] = most > found[3] ? most : found[3];
    }
    for (int k = 0; k < 4; k++) m->found[k] = found[k];
}

EXPORT(weighing)
EXPORT(margins)
