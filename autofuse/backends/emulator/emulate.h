/* CUDA's built-ins on the host: what the text of a kernel means when it is compiled as C++.

   Pointer parameters (AF_IN, AF_OUT, AF_WORK) are classes that check bounds, alignment and races
   at every access. __shared__ arrays are static, in a section of their kernel, and the compiler
   checks their indices (-fsanitize=bounds). Every thread of a block is a fiber. */
#define AF_EMULATED 1

namespace af {

template <class T> struct Plain { using type = T; };
template <class T> struct Plain<const T> { using type = typename Plain<T>::type; };
template <class T> struct Plain<volatile T> { using type = T; };
template <class T> struct Plain<const volatile T> { using type = T; };
template <class P> struct Pointee { static constexpr bool pointer = false; };
template <class T> struct Pointee<T *> {
  static constexpr bool pointer = true;
  using type = typename Plain<T>::type;
};
template <class T> struct Same { using type = T; };
template <class T> constexpr bool integral = false;
template <> constexpr bool integral<int> = true;
template <> constexpr bool integral<unsigned> = true;
template <> constexpr bool integral<long long> = true;
template <> constexpr bool integral<unsigned long long> = true;

/* A pointer to elements that are only read. */
template <class T> struct In {
  const Buffer *buffer;
  const char *at;
  In(const Buffer *buffer, const void *at) : buffer(buffer), at((const char *)at) {}
  explicit In(const Buffer *buffer) : buffer(buffer), at(buffer->data) {}
  T operator[](long long index) const { return *(*this + index); }
  T operator*() const
  {
    T value;
    memcpy(&value, access(buffer, at, sizeof(T), alignof(T), READ), sizeof(T));
    return value;
  }
  In operator+(long long n) const { return In(buffer, at + n * (long long)sizeof(T)); }
  In operator-(long long n) const { return *this + -n; }
  In &operator+=(long long n) { return *this = *this + n; }
  In &operator++() { return *this += 1; }
  explicit operator unsigned long long() const { return (unsigned long long)at; }
  explicit operator unsigned long() const { return (unsigned long)at; }
};

template <class T> struct Out;

/* An element that is written, or read back. */
template <class T> struct Ref {
  const Buffer *buffer;
  char *at;
  operator T() const { return *In<T>(buffer, at); }
  const Ref &operator=(const T &value) const
  {
    memcpy(access(buffer, at, sizeof(T), alignof(T), WRITE), &value, sizeof(T));
    return *this;
  }
  const Ref &operator=(const Ref &other) const { return *this = (T)other; }
  Out<T> operator&() const { return Out<T>(buffer, at); }
  template <class V> const Ref &operator+=(V v) const { return *this = (T)((T)*this + v); }
  template <class V> const Ref &operator-=(V v) const { return *this = (T)((T)*this - v); }
  template <class V> const Ref &operator*=(V v) const { return *this = (T)((T)*this * v); }
};

/* A pointer to elements that are written. */
template <class T> struct Out {
  const Buffer *buffer;
  char *at;
  Out(const Buffer *buffer, void *at) : buffer(buffer), at((char *)at) {}
  explicit Out(const Buffer *buffer) : buffer(buffer), at(buffer->data) {}
  Ref<T> operator[](long long index) const { return *(*this + index); }
  Ref<T> operator*() const { return Ref<T>{buffer, at}; }
  Out operator+(long long n) const { return Out(buffer, at + n * (long long)sizeof(T)); }
  Out operator-(long long n) const { return *this + -n; }
  Out &operator+=(long long n) { return *this = *this + n; }
  Out &operator++() { return *this += 1; }
  operator In<T>() const { return In<T>(buffer, at); }
  explicit operator unsigned long long() const { return (unsigned long long)at; }
  explicit operator unsigned long() const { return (unsigned long)at; }
};

/* Bytes of an element of T, which may be a vector of several. */
template <class T, class = void> struct Unit { static constexpr unsigned bytes = sizeof(T); };
template <class T> struct Unit<T, decltype((void)T().x)> {
  static constexpr unsigned bytes = sizeof(T().x[0]);
};

/* An element of dynamic shared memory. */
template <class T> struct Shared {
  char *at;
  T *place(Access kind) const
  {
    return (T *)shared_access(at - shared_start(), sizeof(T), alignof(T), Unit<T>::bytes, kind);
  }
  operator T() const { return *place(READ); }
  const Shared &operator=(const T &value) const { return *place(WRITE) = value, *this; }
  const Shared &operator=(const Shared &other) const { return *this = (T)other; }
  T *operator&() const { return place(ATOMIC); }
  template <class V> const Shared &operator+=(V v) const { return *this = (T)((T)*this + v); }
  template <class V> const Shared &operator-=(V v) const { return *this = (T)((T)*this - v); }
  template <class V> const Shared &operator*=(V v) const { return *this = (T)((T)*this * v); }
};

/* `extern __shared__ T name[]`. */
template <class T> struct Dynamic {
  char *at;
  Dynamic() : at(shared_start()) {}
  explicit Dynamic(void *at) : at((char *)at) {}
  Shared<T> operator*() const { return Shared<T>{at}; }
  /* Templates, so that the conversion below never competes. */
  template <class I> Shared<T> operator[](I index) const { return *(*this + index); }
  template <class I> Dynamic operator+(I n) const
  { return Dynamic(at + (long long)n * (long long)sizeof(T)); }
  template <class I> Dynamic operator-(I n) const { return *this + -(long long)n; }
  operator T *() const { return (T *)at; }
};

/* reinterpret_cast, which keeps a checked pointer checked. */
template <class V, class T> In<V> retype(const In<T> &p) { return In<V>(p.buffer, p.at); }
template <class V, class T> Out<V> retype(const Out<T> &p) { return Out<V>(p.buffer, p.at); }
template <class V, class T> Dynamic<V> retype(const Dynamic<T> &p) { return Dynamic<V>(p.at); }
template <class P, template <class> class Pointer, class T>
auto recast(const Pointer<T> &p)
{
  if constexpr (Pointee<P>::pointer) return retype<typename Pointee<P>::type>(p);
  else return (P)(unsigned long long)p.at;
}
template <class P, class T> P recast(T *p) { return (P)p; }
template <class P> P recast(unsigned long long p) { return (P)p; }

/* Atomics: one host thread runs everything, so only order and bounds need care. */
template <class T, class F> T atomic(T *p, F f)
{
  const T old = *p;
  *p = f(old);
  yield();
  return old;
}
template <class T, class F> T atomic(const Out<T> &p, F f)
{
  char *at = access(p.buffer, p.at, sizeof(T), alignof(T), ATOMIC);
  T old;
  memcpy(&old, at, sizeof(T));
  const T made = f(old);
  memcpy(at, &made, sizeof(T));
  atomic_done(at, integral<T>, memcmp(&old, &made, sizeof(T)) != 0);
  return old;
}
template <class T> T load_acquire(const Out<T> &p) { return atomic(p, [](T x) { return x; }); }
template <class T> void store_release(const Out<T> &p, typename Same<T>::type v)
{
  fence();
  atomic(p, [=](T) { return v; });
}

template <class T> void store_remote(T *at, uint32_t rank, typename Same<T>::type value)
{ remote_write(at, rank, &value, sizeof(T)); }

template <class T> void copy_async(void *to, const In<T> &from, uint32_t bytes, void *ready)
{ start_copy(to, from.buffer, from.at, bytes, ready); }

template <class T> void copy_ahead(void *to, const In<T> &from, int bytes)
{ start_copy_ahead(to, from.buffer, from.at, (uint32_t)bytes); }

template <class T> T lanes(Collective kind, unsigned mask, T value, int operand, int width)
{
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = collective(kind, mask, bits, operand, width);
  memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace af

#define AF_IN(T, name) af::In<T> name
#define AF_OUT(T, name) af::Out<T> name
#define AF_WORK(T, name) af::Out<T> name
#define AF_MAP(T, name) const af::TensorMap name
#define AF_IN_LATER(T, name) AF_IN(T, name)
#define AF_OUT_LATER(T, name) AF_OUT(T, name)
#define AF_DYNAMIC(T, name) const af::Dynamic<T> name
