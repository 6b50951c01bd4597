/* cuBLASLt on host memory, for tests of the binding: the same entry points, f32 alone, sums in double.
   It records its calls, has three algorithms, and answers as the library does where it is misused. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15, ALGORITHMS = 3 };
typedef struct { int32_t type; uint64_t rows, columns; int64_t leading, stride; int32_t batches; } Layout;
typedef struct {
  int32_t compute, scale, turned[2], bias_type;
  uint32_t epilogue;
  float *bias, *aux;
  int64_t aux_leading, aux_stride;
} Call;
typedef struct { uint64_t room; uint32_t alignment[4]; } Preference;
typedef struct { uint64_t data[8]; size_t workspace; int state; float waves; int reserved[4]; } Found;
typedef struct { uint32_t epilogue; uint64_t algorithm; int32_t compute; uint32_t alignment; void *stream; } Record;

Record stub_calls[64];
int stub_count, stub_alive;

static void *made(size_t size) { stub_alive++; return calloc(1, size); }
static int gone(void *thing) { if (!thing) return INVALID_VALUE; stub_alive--; free(thing); return OK; }

size_t cublasLtGetVersion(void) { return 130200; }
int cublasLtCreate(void **handle) { *handle = calloc(1, 8); return OK; }

int cublasLtMatmulDescCreate(Call **call, int compute, int scale)
{
  *call = made(sizeof(Call));
  (*call)->compute = compute, (*call)->scale = scale, (*call)->epilogue = 1;
  return OK;
}
int cublasLtMatmulDescSetAttribute(Call *c, int attribute, const void *value, size_t size)
{
  struct { int name; void *to; size_t size; } known[] = {
    {3, &c->turned[0], 4}, {4, &c->turned[1], 4}, {7, &c->epilogue, 4}, {8, &c->bias, 8},
    {11, &c->aux, 8}, {12, &c->aux_leading, 8}, {13, &c->aux_stride, 8}, {26, &c->bias_type, 4},
  };
  for (unsigned k = 0; k < sizeof known / sizeof *known; k++)
    if (known[k].name == attribute && known[k].size == size) return memcpy(known[k].to, value, size), OK;
  return INVALID_VALUE;
}
int cublasLtMatmulDescDestroy(Call *call) { return gone(call); }

int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t leading)
{
  if (leading < (int64_t)rows) return INVALID_VALUE;
  *layout = made(sizeof(Layout));
  **layout = (Layout){type, rows, columns, leading, 0, 1};
  return OK;
}
int cublasLtMatrixLayoutSetAttribute(Layout *l, int attribute, const void *value, size_t size)
{
  if (attribute == 5 && size == 4) return memcpy(&l->batches, value, 4), OK;
  if (attribute == 6 && size == 8) return memcpy(&l->stride, value, 8), OK;
  return INVALID_VALUE;
}
int cublasLtMatrixLayoutDestroy(Layout *layout) { return gone(layout); }

int cublasLtMatmulPreferenceCreate(Preference **p) { *p = made(sizeof(Preference)); return OK; }
int cublasLtMatmulPreferenceSetAttribute(Preference *p, int attribute, const void *value, size_t size)
{
  if (attribute == 1 && size == 8) return memcpy(&p->room, value, 8), OK;
  if (attribute >= 5 && attribute <= 8 && size == 4) return memcpy(&p->alignment[attribute - 5], value, 4), OK;
  return INVALID_VALUE;
}
int cublasLtMatmulPreferenceDestroy(Preference *p) { return gone(p); }

int cublasLtMatmulAlgoGetHeuristic(void *handle, Call *call, Layout *a, Layout *b, Layout *c, Layout *d,
                                   Preference *p, int asked, Found *found, int *count)
{
  if (!handle || !p->room || c->rows != d->rows) return INVALID_VALUE;
  for (*count = 0; *count < asked && *count < ALGORITHMS; ++*count) {
    memset(found + *count, 0, sizeof *found);
    found[*count].data[0] = 1 + *count, found[*count].data[1] = p->alignment[0];
  }
  return *count ? OK : NOT_SUPPORTED;
}

static double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
static double slope(double x) { return (gelu(x + 1e-6) - gelu(x - 1e-6)) / 2e-6; }

int cublasLtMatmul(void *handle, Call *call, const float *alpha, const float *a, Layout *la, const float *b,
                   Layout *lb, const float *beta, const float *c, Layout *lc, float *d, Layout *ld,
                   const uint64_t *algorithm, void *workspace, size_t size, void *stream)
{
  const int kind = call->epilogue & (2 | 32 | 64), biased = call->epilogue & 4;
  const uint64_t terms = call->turned[0] ? la->rows : la->columns;
  if (!handle || !workspace || size < 32 << 20 || !algorithm[0] || la->type || call->scale) return INVALID_VALUE;
  if ((call->turned[0] ? la->columns : la->rows) != ld->rows) return INVALID_VALUE;
  if ((call->turned[1] ? lb->rows : lb->columns) != ld->columns) return INVALID_VALUE;
  if ((biased && !call->bias) || ((call->epilogue & 128) && (!call->aux || call->aux_leading % 8))) return INVALID_VALUE;
  for (int64_t t = 0; t < ld->batches; t++)
    for (uint64_t column = 0; column < ld->columns; column++)
      for (uint64_t row = 0; row < ld->rows; row++) {
        double sum = 0;
        for (uint64_t k = 0; k < terms; k++)
          sum += (double)a[t * la->stride + (call->turned[0] ? k + row * la->leading : row + k * la->leading)] *
                 b[t * lb->stride + (call->turned[1] ? column + k * lb->leading : k + column * lb->leading)];
        const int64_t at = t * ld->stride + row + column * ld->leading;
        sum = *alpha * sum + (*beta ? *beta * c[at] : 0) + (biased ? call->bias[row] : 0);
        if (kind == 2) sum = sum > 0 ? sum : 0;
        if (call->epilogue & 128) {
          float *aux = call->aux + t * call->aux_stride + row + column * call->aux_leading;
          if (kind == 64) sum *= slope(*aux);
          else *aux = (float)sum;
        }
        d[at] = (float)(kind == 32 ? gelu(sum) : sum);
      }
  if (stub_count < 64)
    stub_calls[stub_count++] = (Record){call->epilogue, algorithm[0], call->compute, (uint32_t)algorithm[1], stream};
  return OK;
}
