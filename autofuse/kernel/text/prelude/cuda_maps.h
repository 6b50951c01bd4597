
/* Boxes that a tensor map says how to copy (PTX ISA: cp.async.bulk.tensor; sm_90 and later). A map is
   made by the driver, lies in constant memory as an argument of the kernel, and is of no use to
   anybody else. One thread asks for a box, by the coordinates of its first element, innermost first;
   all of its bytes are counted by an mbarrier when they have arrived, also those of elements that are
   not there, which are zero. Its lines begin at multiples of 128 bytes, and their pieces of 16 are
   exchanged by the number of the line modulo 8. The emulator has its own (boxes.h). */
#ifdef AF_EMULATED
#define af_prefetch_map(map) ((void)(map))
#define af_expect_more(ready, bytes) af::expect_more(ready, bytes)
#define af_copy_box_2(to, map, x, y, ready) af::start_box(to, map, 2, x, y, 0, ready)
#define af_copy_box_3(to, map, x, y, z, ready) af::start_box(to, map, 3, x, y, z, ready)
#else
struct alignas(64) af_tensor_map { uint64_t opaque[16]; };
#define AF_MAP(T, name) const __grid_constant__ af_tensor_map name
AF_INLINE void af_prefetch_map(const af_tensor_map *map)
{ asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
/* Bytes that are going to arrive, by who arrives itself later. */
AF_INLINE void af_expect_more(uint64_t *ready, uint32_t bytes)
{
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
               ::"r"(af_shared_address(ready)), "r"(bytes) : "memory");
}
AF_INLINE void af_copy_box_2(void *to, const af_tensor_map *map, int32_t x, int32_t y, uint64_t *ready)
{
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];"
               ::"r"(af_shared_address(to)), "l"(map), "r"(x), "r"(y), "r"(af_shared_address(ready))
               : "memory");
}
AF_INLINE void af_copy_box_3(void *to, const af_tensor_map *map, int32_t x, int32_t y, int32_t z,
                             uint64_t *ready)
{
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4}], [%5];"
               ::"r"(af_shared_address(to)), "l"(map), "r"(x), "r"(y), "r"(z),
                 "r"(af_shared_address(ready))
               : "memory");
}
#endif
