# Shared by deploy/up, down, status and supervise. Sourced, not run.
# shellcheck shell=bash disable=SC2034  # the sourcing scripts use the variables

repo=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")  # through any link, whatever CDPATH says
roles=(weight_store prefill decode router)  # in starting order
demo_model="$repo/deploy/models/demo"  # the default; compose.yaml has the same
default_run_dir="${TMPDIR:-/tmp}/moestro-$(id -u)"

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# Prints the absolute path of run directory $1, which may be absent. Fails unless we own it: its node.env names the
# binaries that we start, and anybody may create a directory in /tmp.
own_run_dir() {
  local open_to_others
  [ ! -L "${1%/}" ] || die "--run-dir $1 is a symbolic link; name the directory itself"
  if [ -e "$1" ] && [ ! -O "$1" ]; then
    die "--run-dir $1 belongs to $(stat -c %U "$1"), who could make you start any program; choose another"
  fi
  open_to_others=$(find "$1" -maxdepth 0 -perm /022 2>/dev/null)
  [ -z "$open_to_others" ] || die "--run-dir $1 is writable by others, who could make you start any program: chmod go-w $1, or choose another"
  realpath -m "$1"
}

# Shared-memory names of a node are derived from its run directory, so that several nodes can live on one machine.
instance_of() {
  printf 'n%s' "$(realpath -m "$1" | sha256sum | cut -c1-10)"
}

# Prints the path of nvcc, if there is one.
find_nvcc() { command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null; }

# Ends the script unless nvcc can build for a GPU that $1 names.
need_nvcc() {
  [ -n "$(find_nvcc)" ] || die "$1: no nvcc to build for it; install the CUDA toolkit, version 12.8 or later, or use no GPU"
}

# Chooses the profile for GPUs $1 (auto, none, or a list) and the settings file $2; $3 is 0 if nothing is built. Sets
# `profile` (a file of deploy/profiles), `gpus` (devices as the roles name them, with commas), `preset` (of the build
# that has them) and `why`.
choose_profile() {
  local found=() names=() name named
  profile=cpu gpus="" preset=release why="--gpu none"
  named=$(grep -E '^[[:space:]]*(device|devices|borrow-device)[[:space:]]*=' "$2" || true)
  if [ "$1" = auto ] && [ -n "$named" ]; then
    why="$2 names devices, so GPUs are as it says"
    [[ $named =~ \"(cuda:)?[0-9] ]] || return 0
    need_nvcc "$2 names a GPU"
    preset=cuda
    return
  fi
  named=$(grep -vE '=[[:space:]]*"(none)?"' <<<"$named" || true)
  [ -z "$named" ] || die "--gpu $1, but $2 has ${named%%$'\n'*}: remove that line, or leave --gpu away"
  case $1 in
    none) return ;;
    auto)
      why="no GPU found"
      # It prints its errors, such as "No devices were found", where it prints GPUs.
      mapfile -t found < <(timeout 10 nvidia-smi --query-gpu=index,name --format=csv,noheader 2>/dev/null | grep -E '^[0-9]+, ')
      [ ${#found[@]} -gt 0 ] || return 0
      why="${#found[@]} GPU(s) found, but no nvcc to build for them: install the CUDA toolkit, version 12.8 or later"
      [ -n "$(find_nvcc)" ] || return 0
      why="${#found[@]} GPU(s) found, but build/cuda has no binaries (--no-build)"
      [ "$3" = 1 ] || [ -x "$repo/build/cuda/bin/moestro" ] || return 0
      why="found GPU ${found[0]}${found[1]:+ and GPU ${found[1]}}"
      names=("${found[@]:0:2}")
      names=("${names[@]%%,*}") ;;
    *)
      IFS=, read -r -a names <<<"$1"
      why="--gpu $1"
      [[ $1 != *[0-9]* ]] || need_nvcc "--gpu $1" ;;
  esac
  for name in "${names[@]}"; do
    [ "$name" = host ] || name=cuda:$name preset=cuda
    gpus+=${gpus:+,}$name
  done
  profile=one-gpu
  [ ${#names[@]} = 1 ] || profile=two-gpu
}

# Prints the flags that profile $1 has for role $2, with devices $3.
profile_flags() {
  local gpu0=${3%%,*} gpu1=${3##*,}
  sed -n "s/^$2 //p" "$repo/deploy/profiles/$1" | sed -e "s/GPU0/$gpu0/g" -e "s/GPU1/$gpu1/g"
}

# Prints what the TOML file $1 says for key $3 in section $2: a text or a number; nothing if it says nothing.
toml_value() {
  awk -v section="[$2]" -v key="$3" '
    /^[[:space:]]*\[/ { name = $0; sub(/#.*/, "", name); gsub(/[[:space:]]/, "", name); here = name == section }
    here && match($0, "^[[:space:]]*" key "[[:space:]]*=[[:space:]]*") {
      value = substr($0, RLENGTH + 1)
      if (match(value, /^"[^"]*"/) || match(value, /^\047[^\047]*\047/)) value = substr(value, 2, RLENGTH - 2)
      else sub(/[[:space:]]*(#.*)?$/, "", value)
    }
    END { print value }' "$1"
}

# Prints the value of a key in the node's settings file.
setting() {
  sed -n "s/^$2=//p" "$1/node.env" 2>/dev/null
}

# True if process $1 is alive and is a role of run directory $2, or its supervisor. A process id in a file may belong to
# another process by now.
is_ours() {
  local arguments i
  [ -n "$1" ] && { mapfile -d '' -t arguments <"/proc/$1/cmdline"; } 2>/dev/null || return 1
  for ((i = 1; i + 1 < ${#arguments[@]}; ++i)); do
    [ "${arguments[i + 1]}" = "$2" ] || continue
    case ${arguments[0]##*/}:${arguments[i]##*/} in moestro-*:--run-dir | bash:supervise) return 0 ;; esac
  done
  return 1
}

# Takes the lock of run directory $1 as descriptor 9. All processes of a node inherit it, so it is held while one of
# them lives. systemd-tmpfiles also leaves a locked directory alone. False if another node has the lock.
lock_run_dir() {
  exec 9<"$1" && flock --nonblock 9
}
