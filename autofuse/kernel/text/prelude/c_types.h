#if defined(__linux__)
#include <features.h>
#endif
#define bool _Bool
#define true 1
#define false 0
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;

/* Compilers without instructions that compute in halves convert them one by one: there they are made
 * wide and narrow again by arithmetic on whole numbers, which becomes vectors. */
#if defined(__AVX512FP16__) || defined(__aarch64__)
#define AF_NATIVE_F16
typedef _Float16 af_f16;
#else
typedef uint16_t af_f16;
#endif
typedef uint16_t af_bf16;

