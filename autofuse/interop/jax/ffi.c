/* Plans as calls of XLA programs: one handler (XLA's foreign function interface, plain C) for all
 * plans. A call says which plan it is by a key that follows from the plan's content, so that
 * programs kept in JAX's compilation cache never meet the plan of another process.
 *
 * Plans are added and never taken away: a compiled program that calls one may live for as long as
 * the process does. */
#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xla/ffi/api/c_api.h>

typedef int32_t (*af_entry)(void **buffers, void *workspace, void **blas);

/* What to call: `table` has the arrays of the entry, in which those of a call are filled in: inputs
 * at `places`, outputs from `first_output`. */
typedef struct af_plan {
  struct af_plan *next;
  int64_t key;
  af_entry entry;
  void *workspace, **blas, **table;
  const int64_t *places;
  int64_t inputs, outputs, first_output;
  pthread_mutex_t busy; /* of table and workspace */
} af_plan;

enum { BUCKETS = 1024 }; /* a power of two */
static af_plan *_Atomic plans[BUCKETS];

static af_plan *find(int64_t key)
{
  af_plan *plan = atomic_load(&plans[key & (BUCKETS - 1)]);
  while (plan && plan->key != key) plan = plan->next;
  return plan;
}

/* 0, or -1 where there is no memory. `table`, `places` and what the addresses lead to must stay. */
int af_jax_add(int64_t key, void *entry, void *workspace, void **blas, void **table,
  const int64_t *places, int64_t inputs, int64_t outputs, int64_t first_output)
{
  af_plan *const plan = malloc(sizeof *plan);
  if (!plan) return -1;
  *plan = (af_plan){.key = key, .entry = (af_entry)entry, .workspace = workspace, .blas = blas,
    .table = table, .places = places, .inputs = inputs, .outputs = outputs,
    .first_output = first_output};
  pthread_mutex_init(&plan->busy, NULL);
  plan->next = atomic_load(&plans[key & (BUCKETS - 1)]);
  while (!atomic_compare_exchange_weak(&plans[key & (BUCKETS - 1)], &plan->next, plan)) {}
  return 0;
}

static XLA_FFI_Error *refuse(const XLA_FFI_CallFrame *frame, XLA_FFI_Error_Code code,
  const char *why)
{
  XLA_FFI_Error_Create_Args args = {
    .struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE, .message = why, .errc = code};
  return frame->api->XLA_FFI_Error_Create(&args);
}

static int32_t run(af_plan *plan, void *const *args, void *const *rets)
{
  /* XLA's threads take denormal numbers for zero; plans compute as they were checked. */
  fenv_t before;
  fegetenv(&before);
  fesetenv(FE_DFL_ENV);
  pthread_mutex_lock(&plan->busy);
  for (int64_t i = 0; i < plan->inputs; i++)
    plan->table[plan->places[i]] = ((const XLA_FFI_Buffer *)args[i])->data;
  for (int64_t i = 0; i < plan->outputs; i++)
    plan->table[plan->first_output + i] = ((const XLA_FFI_Buffer *)rets[i])->data;
  const int32_t code = plan->entry(plan->table, plan->workspace, plan->blas);
  pthread_mutex_unlock(&plan->busy);
  fesetenv(&before);
  return code;
}

XLA_FFI_Error *af_jax_call(XLA_FFI_CallFrame *frame)
{
  /* The type of extensions in general has another name from version to version. */
  const XLA_FFI_Metadata_Extension *const asked = (void *)frame->extension_start;
  if (asked && asked->extension_base.type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata *const said = asked->metadata;
    said->api_version.major_version = XLA_FFI_API_MAJOR;
    said->api_version.minor_version = XLA_FFI_API_MINOR;
    return NULL;
  }
  const XLA_FFI_Attrs *const attrs = &frame->attrs;
  if (attrs->size != 1 || attrs->types[0] != XLA_FFI_AttrType_SCALAR)
    return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "autofuse: the call names no plan");
  af_plan *const plan = find(*(const int64_t *)((const XLA_FFI_Scalar *)attrs->attrs[0])->value);
  if (!plan)
    return refuse(frame, XLA_FFI_Error_Code_NOT_FOUND,
      "autofuse: this process has not made the plan of this program: trace its jax_jit function");
  if (frame->args.size != plan->inputs || frame->rets.size != plan->outputs)
    return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT,
      "autofuse: the call does not fit its plan");
  if (run(plan, frame->args.args, frame->rets.rets) != 0)
    return refuse(frame, XLA_FFI_Error_Code_INTERNAL, "autofuse: the plan failed");
  return NULL;
}
