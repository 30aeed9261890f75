/* Declarations shared by the parts of the kernel: the view, a tile, lists of pairs, and the functions of a primitive. The
   kernel computes a strip of float32 scores while the operands are in the cache, and passes each tile to every primitive,
   which adds it to the state of its reader. structs.py repeats these structs, and those of the primitives, field by field.
   The first field of an argument struct is its size in bytes, which must equal cocos_sizeof_* of the library. */
#ifndef COCOS_KERNEL
#define COCOS_KERNEL
#include "simd.h"
#include <stddef.h>

#define STRIP 256 /* maximum number of rows of a tile */
#define WIDTH 384 /* maximum number of columns of a tile, and the stride of its rows */
#define PAD 16    /* tiles are padded to a multiple of this many columns, and so are arrays of columns from which primitives
                     load vectors */

typedef struct { /* one side of the score matrix; the place of a row is its index in visiting order */
    const void *matrix;          /* (N, d), float32, or float64 if `wide` */
    const int64_t *order;        /* (n,) row of the matrix at each place */
    const double *norm;          /* (n,) */
    const float *scale;          /* (n,) 1 / norm, the factor of a row; NULL: 1 */
    const float *beside;         /* (n, 2) two more factors of a row, which turn the product into a squared distance; or NULL */
    const int64_t *first, *last; /* (n,) places from first to below last on the other side are not negatives */
    const int64_t *block;        /* (blocks + 1,) first place of each batch of a stack */
    double factor;               /* factor of all rows */
    int32_t wide, unit, precise; /* the rows are float64; scores are divided by the norm; factors are computed in float64,
                                    then rounded */
} side;

typedef struct { /* the scores of one batch, or of a stack of batches along the diagonal */
    int64_t size;
    side sides[2]; /* queries, candidates */
    const float *origin;  /* (d,) subtracted from both sides, or NULL */
    const double *centre; /* the same in float64 */
    int64_t d, blocks;
    double tie;     /* scores that differ by at most this tie */
    int32_t metric; /* PRODUCT, SQUARE or ROOT */
} view;

enum { PRODUCT, SQUARE, ROOT }; /* the score is the product, the negated squared distance, or the negated distance */

typedef struct { /* scores; -infinity for non-negatives and in the padding */
    float *score;        /* row stride WIDTH */
    int64_t row, column; /* first row and column */
    int32_t m, n, there; /* rows; columns, a multiple of PAD; columns without the padding */
} tile;

typedef struct { /* a rectangle of the score matrix */
    int64_t row, rows, column, columns; /* first place and size on each side */
} area;

typedef struct { /* a list of at most `room` pairs; arrays that are NULL are not written */
    int32_t *row, *column;
    float *score;
    int64_t room, found;
} places;

/* Whether a list has room for this many more pairs. */
INLINE int roomy(const places *list, int64_t number) { return list->room - list->found >= number; }

/* The score of two places in float64. */
static double exact(const view *v, int64_t row, int64_t column);

/* A primitive: its arguments are a struct `typedef struct { int64_t size; ... } NAME;`, and these are its functions, NULL if
   there is nothing to do. Its arrays are indexed by place; arrays of columns from which it loads vectors are PAD longer. */
typedef struct {
    void (*open)(void *, const view *, const area *);  /* before a chunk of columns is visited, with the rows of the part or
                                                          batch */
    void (*see)(void *, const view *, const tile *);   /* add the scores of a tile, which must not be modified */
    void (*close)(void *, const view *, const area *); /* after all tiles of the chunk have been visited */
} life;
#define EXPORT(name) const int64_t cocos_sizeof_##name = sizeof(name);
#define PRIMITIVE(name, ...)                                                                                                 \
    const life cocos_life_##name = {__VA_ARGS__};                                                                           \
    EXPORT(name)
#endif
