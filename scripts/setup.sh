# Sourced by the other scripts, from the root of the checkout: checks this machine and fills .venv.
# POSIX sh. Uses what is there again: packages are installed only when
# pyproject.toml or .ci/packages.lock has changed.

venv=.venv

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$1" >&2
  exit 1
}

# A Python of at least 3.11, in $python.
find_python() {
  for python in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$python" >/dev/null 2>&1 &&
      "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      return 0
    fi
  done
  fail "autofuse needs Python 3.11 or newer: on Debian 12 run: apt-get install python3 python3-venv"
}

# A C compiler that builds OpenMP libraries: $CC if set, else cc, gcc or clang.
check_compiler() {
  for compiler in ${CC:+"$CC"} cc gcc clang; do
    # $CC may carry flags, so it is split here.
    if command -v ${compiler%% *} >/dev/null 2>&1; then
      scratch=$(mktemp -d)
      printf '#include <math.h>\nint f(void) { return 0; }\n' >"$scratch/f.c"
      works=yes
      $compiler -shared -fPIC -fopenmp -o "$scratch/f.so" "$scratch/f.c" -lm \
        >/dev/null 2>&1 || works=no
      rm -rf "$scratch"
      [ "$works" = yes ] && return 0
      fail "the C compiler '$compiler' cannot build OpenMP programs: on Debian run: apt-get install gcc libc6-dev"
    fi
  done
  fail "autofuse needs a C compiler: on Debian run: apt-get install gcc"
}

make_venv() {
  if [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1 &&
    "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    return 0
  fi
  find_python
  "$python" -m venv --clear "$venv" >/dev/null 2>&1 ||
    fail "$python cannot make a virtual environment: on Debian run: apt-get install python3-venv"
}

# needs_install EXTRAS: whether what is installed is older than what names it; what is wanted is $wanted.
needs_install() {
  stamp="$venv/installed$1"
  # The folder counts too: an installed package points at its checkout.
  wanted=$( (pwd; cat pyproject.toml .ci/packages.lock) | "$venv/bin/python" -c \
    'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')
  [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]
}

# Of what is installed most is never imported: Python compiles what is, once.
pip_install() {
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@" ||
    fail "installing the packages failed: see the lines above"
}

# install EXTRAS: the package itself and, in brackets, extras ("" or "[test]").
install() {
  needs_install "$1" || return 0
  echo "Installing autofuse$1 into $venv ..." >&2
  pip_install --editable ".$1"
  printf '%s\n' "$wanted" >"$stamp"
}

# As install "[test]", of the very files that .ci/packages.lock names.
install_locked() {
  needs_install "[test]" || return 0
  echo "Installing autofuse[test] into $venv as .ci/packages.lock has it ..." >&2
  pip_install --require-hashes --requirement .ci/packages.lock
  pip_install --no-deps --editable .
  printf '%s\n' "$wanted" >"$stamp"
}
