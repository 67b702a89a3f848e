# shellcheck shell=bash
# What the scripts share. They run in the root of the project, whatever folder they are called from.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=.venv/bin/python

# Tests and the demo start one program after the other, and each would compile all modules anew.
unset PYTHONDONTWRITEBYTECODE

die() {
  printf '%s\n' "$*" >&2
  exit 1
}

may_use_apt() {
  command -v apt-get >/dev/null && { [[ $EUID -eq 0 ]] || sudo -n true 2>/dev/null; }
}

apt_install() {
  local as_root=()
  [[ $EUID -eq 0 ]] || as_root=(sudo -n)
  printf 'Installing %s with apt ...\n' "$*" >&2
  "${as_root[@]}" apt-get -qq update >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y "$@" >&2
}

# Prints the first Python that is new enough and passes the given test.
find_python() {
  local candidate
  for candidate in python3.13 python3.12 python3.11 python3; do
    if "$candidate" -c "import sys; assert sys.version_info >= (3, 11); $1" 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

make_venv() {
  local python package=python3-venv
  # Debian ships the venv module without ensurepip, which comes with python3-venv.
  if ! python=$(find_python 'import ensurepip, venv'); then
    if python=$(find_python ''); then
      package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    fi
    if [[ $EUID -eq 0 ]] && may_use_apt; then apt_install "$package" || true; fi
    python=$(find_python 'import ensurepip, venv') ||
      die "Homing needs Python 3.11 or newer with venv: on Debian 12 or Ubuntu 24.04 and later run 'apt install $package'."
  fi
  "$python" -m venv --clear .venv
}

fingerprint() {
  # The path is part of it, because the programs in .venv/bin name their interpreter by its full path.
  { pwd && cat "requirements/$1.txt" requirements/spark.txt pyproject.toml client/pyproject.toml tools/*/pyproject.toml; } | sha256sum | cut -d ' ' -f 1
}

installed() {
  [[ -x $PYTHON && -f .venv/stamp && $(<.venv/stamp) == "$1 $(fingerprint "$1")" ]]
}

# Makes .venv hold the locked dependencies ("runtime", "analysis" or "dev"; each has what those before it have), Homing and its client. At once when it does already.
install_locked() {
  # Two scripts started together must not install into one folder at the same time.
  (
    ! command -v flock >/dev/null || flock 9
    if installed "$1" || installed dev || { [[ $1 == runtime ]] && installed analysis; }; then exit 0; fi
    if ! $PYTHON -c 'import pip, sys; assert sys.version_info >= (3, 11)' 2>/dev/null; then make_venv; fi
    rm -f .venv/stamp
    printf 'Installing the dependencies into .venv, once ...\n' >&2
    local pip=("$PYTHON" -m pip install -qq --disable-pip-version-check)
    "${pip[@]}" --require-hashes --only-binary :all: -r "requirements/$1.txt"
    if [[ $1 != runtime ]]; then
      "${pip[@]}" --require-hashes --no-deps --no-build-isolation --no-binary pyspark -r requirements/spark.txt
    fi
    "${pip[@]}" --no-index --no-deps --no-build-isolation -e ./client -e . -e ./tools/simulator -e ./tools/rig
    printf '%s %s\n' "$1" "$(fingerprint "$1")" >.venv/stamp
  ) 9<.
}
