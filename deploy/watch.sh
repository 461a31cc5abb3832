# Finds and kills a hanging role, for deploy/supervise and, in a container, for deploy/watch. Sourced, not run.
# shellcheck shell=bash disable=SC2034  # the sourcing scripts use the variables

silent_looks=${MOESTRO_SILENT_SECONDS:-30}  # a role hangs if it is idle and its file unchanged for this many looks
if ! [[ $silent_looks =~ ^[1-9][0-9]{0,5}$ ]]; then
  echo "MOESTRO_SILENT_SECONDS is '$silent_looks' in the environment: set it to a whole number of seconds, from 1, or leave it out" >&2
  exit 2
fi
busy_factor=10      # and for this many times as many if it works: where CPU time or memory is short, all takes longer
busy_ticks=5        # of 10 ms in a look: more than an idle role needs
starting_looks=300  # a role without a file after this many looks never starts to listen
told_looks=5        # of a role that something keeps from working: soon enough for who looks into the log

# Sets `excuse` to what keeps process $1 from working, from outside, and `work` to what it has done: ticks of CPU time,
# and pages read from a disk.
look_at() {
  local pid=$1 stat number group mount line
  excuse="" work=(0 0)
  { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || return
  # The fields from the third on (proc(5)): the name before them may have spaces.
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  work=($((${12} + ${13})) "${10}")
  case $1 in
    T | t) excuse="is stopped: kill -CONT $pid lets it go on" ;;
    D) excuse="waits for a disk, or is frozen" ;;
  esac
  # A process that control groups of version 2 freeze seems to sleep.
  while IFS=: read -r number _ group; do
    [ "$number" = 0 ] || continue
    for mount in /sys/fs/cgroup /sys/fs/cgroup/unified; do
      while read -r line; do
        [ "$line" != "frozen 1" ] || excuse="is frozen"
      done 2>/dev/null <"$mount$group/cgroup.events"
    done
  done 2>/dev/null <"/proc/$pid/cgroup"
}

# Waits for the end of process $child, a role whose file is $1.heartbeat. Sets `code` to its exit code and `child` to 0.
# Looks are a second apart, and only looks count: a process that was suspended with its machine does not hang. $2, if
# given, is called at each look.
watch_child() {
  local beat last="" still=0 excused=0 most finished excuse work before=()
  while true; do
    sleep 1 >/dev/null 2>&1 9<&- &
    wait -n -p finished "$child" $!
    code=$?
    [ "${finished:-}" != "$child" ] || break
    [ -n "${finished:-}" ] || continue  # a signal
    beat=""
    { read -r -n 32 -t 1 beat <"$1.heartbeat"; } 2>/dev/null
    if [ -e "$1.unwatched" ] || [ "$beat" != "$last" ]; then
      still=0 excused=0 before=()
    else
      look_at "$child"
      if [ -n "$excuse" ]; then
        excused=$((excused + 1))
        [ "$excused" != "$told_looks" ] || say "$1" "$excuse"
      elif [ "${#before[@]}" != 0 ] && { [ $((work[0] - before[0])) -ge "$busy_ticks" ] || [ "${work[1]}" != "${before[1]}" ]; }; then
        still=$((still + 1))
      else
        still=$((still + busy_factor))
      fi
      before=("${work[@]}")
    fi
    last=$beat
    if [ -n "$beat" ]; then most=$silent_looks; else most=$starting_looks; fi
    # The role itself found a thread that hangs, and says so instead of counting on.
    if [ "$still" -ge $((most * busy_factor)) ] || [ "$beat" = hangs ]; then
      say "$1" "shows no sign of life: killing it"
      kill -KILL "$child"
      still=0
    fi
    [ -z "${2:-}" ] || "$2"
  done
  child=0
}

say() { echo "$(date -u +%FT%TZ) ${1##*/} $2" >&2; }
