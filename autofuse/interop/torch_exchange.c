/* Where tensors are and how they lie, for the calls of plans. DLPack's exchange API (dlpack.h 1.3)
 * says it of an object of Python without a reference, a capsule or a number of Python. What is here
 * is called by who holds Python's lock. */
#include <stdint.h>

/* DLTensor of dlpack.h */
typedef struct af_tensor {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} af_tensor;

/* A tensor that a plan reads: its place in the plan's table, and how it must lie. */
typedef struct af_port {
  int64_t place, ndim;
  const int64_t *shape, *strides;
} af_port;

/* `view` is dltensor_from_py_object_no_sync of the exchange API, `item` PyTuple_GetItem. Tensors are
 * on device `device_id` of `device_type` and start on multiples of `alignment` bytes. */
typedef struct af_border {
  int32_t (*view)(void *object, af_tensor *to);
  void *(*item)(void *tuple, intptr_t index);
  void **table;
  const af_port *ports;
  int64_t inputs, outputs, first_output;
  int64_t alignment;
  int32_t device_type, device_id;
} af_border;

static char *start_of(const af_tensor *tensor)
{
  return (char *)tensor->data + tensor->byte_offset;
}

/* Strides of axes with one element say nothing. */
static int lies(const af_tensor *tensor, const af_port *port, const af_border *border)
{
  if (tensor->device_type != border->device_type) return 0;
  if (tensor->device_id != border->device_id) return 0;
  if ((uintptr_t)start_of(tensor) % (uintptr_t)border->alignment) return 0;
  if (tensor->ndim != port->ndim) return 0;
  for (int64_t a = 0; a < port->ndim; a++) {
    if (tensor->shape[a] != port->shape[a]) return 0;
    if (port->shape[a] > 1 && tensor->strides[a] != port->strides[a]) return 0;
  }
  return 1;
}

/* Writes the addresses of two tuples of tensors to the table. 1; 0 where an input lies otherwise
 * or elsewhere than its port says; -1 with an exception of Python. */
int32_t af_torch_fill(const af_border *border, void *inputs, void *outputs)
{
  af_tensor tensor;
  for (int64_t i = 0; i < border->inputs; i++) {
    void *const object = border->item(inputs, i);
    if (!object || border->view(object, &tensor)) return -1;
    if (!lies(&tensor, border->ports + i, border)) return 0;
    border->table[border->ports[i].place] = start_of(&tensor);
  }
  for (int64_t i = 0; i < border->outputs; i++) {
    void *const object = border->item(outputs, i);
    if (!object || border->view(object, &tensor)) return -1;
    border->table[border->first_output + i] = start_of(&tensor);
  }
  return 1;
}
