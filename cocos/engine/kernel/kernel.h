/* What the parts of the kernel share: the view, the tile, lists of places, the life of a primitive.

   Python reads these structs, and those of the primitives, from this text (cocos/engine/fused.py): a field is one type and its
   names, arrays have a number or a constant of this file as their length, pointers point at anything. The first field of an
   argument struct is its size in bytes, which cocos_sizeof_* of the library must equal. */
#ifndef COCOS_KERNEL
#define COCOS_KERNEL
#include "simd.h"
#include <stddef.h>

#define STRIP 256 /* rows of a tile at most */
#define WIDTH 384 /* columns of a tile at most, and the distance of its rows */
#define PAD 16    /* columns of a tile are padded to a multiple of it; so are whole arrays of columns that primitives load from */

typedef struct { /* one side of the score matrix; the place of a row is its number in visiting order */
    const void *matrix;          /* (N, d), float32, or float64 if `wide` */
    const int64_t *order;        /* (n,) row of the matrix at each place */
    const double *norm;          /* (n,) */
    const float *scale;          /* (n,) 1 / norm, which multiplies a row; NULL: nothing does */
    const float *beside;         /* (n, 2) what follows a row in a product that gives squared distances; or NULL */
    const int64_t *first, *last; /* (n,) the places of the other side from first on and below last are no negatives */
    const int64_t *block;        /* (blocks + 1,) places at which the batches of a stack begin */
    double factor;               /* multiplies all rows */
    int32_t wide, unit, precise; /* of float64; scores are divided by its norm; rows are made in float64, then rounded */
} side;

typedef struct { /* the scores of one batch, or of a stack of them along the diagonal */
    int64_t size;
    side sides[2]; /* queries, candidates */
    const float *origin;  /* (d,) taken off both sides, or NULL */
    const double *centre; /* the same in float64 */
    int64_t d, blocks;
    double tie;     /* scores that differ by less are equal */
    int32_t metric; /* PRODUCT, SQUARE or ROOT */
} view;

enum { PRODUCT, SQUARE, ROOT }; /* the score is the product, minus the squared distance, minus the distance */

typedef struct { /* scores; -infinity where a pair is no negative, and in the padding */
    float *score;        /* rows are WIDTH apart */
    int64_t row, column; /* places of its corner */
    int32_t m, n, there; /* rows; columns, a multiple of PAD; columns that are no padding */
} tile;

typedef struct { /* a rectangle of the score matrix */
    int64_t row, rows, column, columns; /* places of its corner, and its size */
} area;

typedef struct { /* a list with room for some entries; what it has no arrays for is not written */
    int32_t *row, *column;
    float *score;
    int8_t *side; /* 0: of the row, 1: of the column */
    int64_t room, found;
} places;

/* Whether a list has room for so many more. */
INLINE int roomy(const places *list, int64_t number) { return list->room - list->found >= number; }

/* The score of two places in float64. */
static double exact(const view *v, int64_t row, int64_t column);

/* A primitive: its arguments are a struct `typedef struct { int64_t size; ... } NAME;`, and these functions, NULL where there is
   nothing to do. Its arrays are whole ones, indexed by place; arrays of columns that it loads vectors from are PAD longer. */
typedef struct {
    void (*open)(void *, const view *, const area *);  /* a chunk of columns begins, against the rows of the part or batch */
    void (*see)(void *, const view *, const tile *);   /* the scores of a tile, which are not to be written to */
    void (*close)(void *, const view *, const area *); /* all tiles of the chunk have been seen */
} life;
#define EXPORT(name) const int64_t cocos_sizeof_##name = sizeof(name);
#define PRIMITIVE(name, ...)                                                                                                 \
    const life cocos_life_##name = {__VA_ARGS__};                                                                           \
    EXPORT(name)
#endif
