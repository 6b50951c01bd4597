/* Where tensors are and how they lie, for the calls of plans: PyTorch's stable functions of C (shim.h
 * of aoti_torch) say it without a reference, a lock or an object of Python. What is here is called by
 * who holds Python's lock. */
#include <stdint.h>

/* A pointer to what a tensor of Python holds (AtenTensorHandle of shim.h). */
typedef void *af_handle;

/* Functions of shim.h: not 0 where they fail. */
typedef struct af_shim {
  int32_t (*start)(af_handle, void **);
  int32_t (*dim)(af_handle, int64_t *);
  int32_t (*sizes)(af_handle, const int64_t **);
  int32_t (*strides)(af_handle, const int64_t **);
  int32_t (*dtype)(af_handle, int32_t *);
  int32_t (*device_type)(af_handle, int32_t *);
  int32_t (*device_index)(af_handle, int32_t *);
} af_shim;

/* How objects of Python are read: `item` is PyTuple_GetItem, `derives` PyType_IsSubtype. An object
 * has its class `kind` bytes after its start; one of a class that derives from `base` is a tensor,
 * which has its handle `handle` bytes after its start. Most are of one of the classes `usual`. */
typedef struct af_objects {
  char *(*item)(void *tuple, intptr_t index);
  int32_t (*derives)(void *class, void *base);
  void *base, *usual[2];
  int64_t kind, handle;
} af_objects;

/* A tensor that a plan reads or writes: its place in the plan's table, and how it must lie. */
typedef struct af_port {
  int64_t place, ndim;
  const int64_t *shape, *strides;
  int64_t dtype;
} af_port;

/* Inputs are on device `device_index` of `device_type` and start on multiples of `alignment`
 * bytes. */
typedef struct af_border {
  const af_shim *torch;
  const af_objects *python;
  void **table;
  const af_port *ports;
  int64_t inputs, outputs, first_output;
  int64_t alignment;
  int32_t device_type, device_index;
} af_border;

/* 0 where an object is no tensor. */
static af_handle handle_of(const af_objects *python, char *object)
{
  void *const class = *(void **)(object + python->kind);
  if (class != python->usual[0] && class != python->usual[1])
    if (!python->derives(class, python->base)) return 0;
  return object + python->handle;
}

/* Strides of axes with one element say nothing. */
static int lies(af_handle tensor, const af_port *port, const af_border *border)
{
  const af_shim *const torch = border->torch;
  const int64_t *sizes, *strides;
  int64_t ndim;
  int32_t type, index, dtype;
  if (torch->device_type(tensor, &type) || type != border->device_type) return 0;
  if (torch->device_index(tensor, &index) || index != border->device_index) return 0;
  if (torch->dtype(tensor, &dtype) || dtype != port->dtype) return 0;
  if (torch->dim(tensor, &ndim) || ndim != port->ndim) return 0;
  if (torch->sizes(tensor, &sizes) || torch->strides(tensor, &strides)) return 0;
  for (int64_t a = 0; a < port->ndim; a++) {
    if (sizes[a] != port->shape[a]) return 0;
    if (port->shape[a] > 1 && strides[a] != port->strides[a]) return 0;
  }
  return 1;
}

/* Its memory; 0 where it cannot be read from. Fake tensors have none, and only empty ones need none. */
static int begins(af_handle tensor, const af_port *port, const af_border *border, void **start)
{
  if (border->torch->start(tensor, start)) return 0;
  if ((uintptr_t)*start % (uintptr_t)border->alignment) return 0;
  if (*start) return 1;
  for (int64_t a = 0; a < port->ndim; a++)
    if (port->shape[a] == 0) return 1;
  return 0;
}

/* Writes the addresses of two tuples of tensors to the table. 1; 0 where an input lies otherwise
 * or elsewhere than its port says; -1 with an exception of Python. */
int32_t af_torch_fill(const af_border *border, void *inputs, void *outputs)
{
  const af_objects *const python = border->python;
  for (int64_t i = 0; i < border->inputs; i++) {
    const af_port *const port = border->ports + i;
    char *const object = python->item(inputs, i);
    if (!object) return -1;
    const af_handle tensor = handle_of(python, object);
    if (!tensor || !lies(tensor, port, border)) return 0;
    if (!begins(tensor, port, border, border->table + port->place)) return 0;
  }
  for (int64_t i = 0; i < border->outputs; i++) {
    char *const object = python->item(outputs, i);
    if (!object) return -1;
    const af_handle tensor = handle_of(python, object);
    if (!tensor || border->torch->start(tensor, border->table + border->first_output + i)) return 0;
  }
  return 1;
}
