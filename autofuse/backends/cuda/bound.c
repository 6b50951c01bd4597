/* The launches of a CUDA plan on the addresses of a table, one after another on a stream. Functions
 * of the driver come as addresses, so that no header of CUDA is needed to build this. */
#include <stdint.h>

typedef int32_t (*af_launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, unsigned shared, void *stream, void **arguments,
                             void **extra);
typedef int32_t (*af_together)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, unsigned shared, void *stream, void **arguments);
typedef int32_t (*af_copy)(uint64_t to, uint64_t from, uint64_t nbytes, void *stream);

typedef int32_t (*af_replace)(void *map, void *address);

/* An array: where the table has its memory, and how many bytes it begins after that. One with a `map`
 * is given as that, which is of the array at the address `last`. */
typedef struct af_argument {
  int64_t place, offset;
  void *map;
  char *last;
} af_argument;

enum { KERNEL, TOGETHER, COPY };

/* A kernel of `count` arguments, or a copy of `nbytes` from the second argument to the first. */
typedef struct af_step {
  int64_t kind, nbytes, count;
  void *function;
  af_argument *arguments;
  uint32_t grid, block, shared, unused;
} af_step;

/* `values` and `places` have room for the arguments of any step. */
typedef struct af_bound {
  af_launch launch;
  af_together together;
  af_copy copy;
  af_replace replace;
  const af_step *steps;
  char *const *table;
  char **values;
  void **places;
} af_bound;

/* The driver's code of the first of `count` steps from `first` on that fails, or 0. */
int32_t af_cuda_issue(const af_bound *bound, int64_t first, int64_t count, void *stream)
{
  for (const af_step *s = bound->steps + first; s < bound->steps + first + count; s++) {
    int32_t code;
    for (int64_t k = 0; k < s->count; k++) {
      af_argument *const own = s->arguments + k;
      bound->values[k] = bound->table[own->place] + own->offset;
      bound->places[k] = own->map ? own->map : bound->values + k;
      if (!own->map || own->last == bound->values[k]) continue;
      own->last = 0; /* until there is a map of the array */
      code = bound->replace(own->map, bound->values[k]);
      if (code) return code;
      own->last = bound->values[k];
    }
    if (s->kind == COPY)
      code = bound->copy((uintptr_t)bound->values[0], (uintptr_t)bound->values[1],
                         (uint64_t)s->nbytes, stream);
    else if (s->kind == TOGETHER)
      code = bound->together(s->function, s->grid, 1, 1, s->block, 1, 1, s->shared, stream,
                             bound->places);
    else
      code = bound->launch(s->function, s->grid, 1, 1, s->block, 1, 1, s->shared, stream,
                           bound->places, 0);
    if (code) return code;
  }
  return 0;
}
