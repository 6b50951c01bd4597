/* Calls of oneDNN from a plan: primitives were made when the plan was loaded (onednn_calls.py); here
 * they get the addresses of a call's arrays and run, each piece on one thread of ours. A call is two
 * stages, of which the first puts weights into the layout that the second wants. */
typedef struct {
  int32_t arg, place; /* the array of the call that it lies in; -1: it stays where it is */
  int64_t offset;     /* bytes */
  void *memory;
} af_dnnl_operand;
typedef struct {
  void *primitive, *stream;
  int64_t count;
  af_dnnl_operand operands[4];
} af_dnnl_piece;
typedef struct {
  const af_dnnl_piece *pieces;
  int64_t count;
} af_dnnl_stage;
typedef struct {
  int (*execute)(void *primitive, void *stream, int count, const void *args);
  int (*set_data)(void *memory, void *data);
  int (*get_threads)(void);
  void (*set_threads)(int);
  const af_dnnl_stage *stages;
} af_dnnl;
typedef struct {
  int arg;
  void *memory;
} af_dnnl_arg;

/* p: the three arrays, the library, a stage, and where a failure is noted. */
static void t_dnnl(void **p, int64_t first, int64_t last)
{
  const af_dnnl *const dnnl = (const af_dnnl *)p[3];
  const af_dnnl_stage *const stage = (const af_dnnl_stage *)p[4];
  const int before = dnnl->get_threads();
  int status = 0;
  dnnl->set_threads(1);
  for (int64_t i = first; i < last; i++) {
    const af_dnnl_piece *const piece = stage->pieces + i;
    af_dnnl_arg args[4];
    for (int64_t k = 0; k < piece->count; k++) {
      const af_dnnl_operand *const one = piece->operands + k;
      if (one->place >= 0) status |= dnnl->set_data(one->memory, (char *)p[one->place] + one->offset);
      args[k].arg = one->arg;
      args[k].memory = one->memory;
    }
    status |= dnnl->execute(piece->primitive, piece->stream, (int)piece->count, args);
  }
  dnnl->set_threads(before);
  if (status) __atomic_store_n((int32_t *)p[5], status, __ATOMIC_RELAXED);
}

static void af_dnnl_call(void **p, int number, af_parallel parallel, int threads)
{
  const af_dnnl_stage *const stages = ((const af_dnnl *)p[3])->stages + 2 * number;
  for (int k = 0; k < 2; k++) {
    p[4] = (void *)(stages + k);
    if (stages[k].count > 1 && threads > 1) parallel(t_dnnl, p, stages[k].count, threads);
    else if (stages[k].count > 0) t_dnnl(p, 0, stages[k].count);
  }
}
