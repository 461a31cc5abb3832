# How a role that hangs is found and killed: by deploy/supervise, and in a container by deploy/watch. Sourced, not run.
# shellcheck shell=bash disable=SC2034  # those who source it use the variables

still_looks=5      # a role whose file has stood still for so many looks hangs
starting_looks=300 # and one that has no file after so many does not get to the point where it listens

# Waits for the end of process $child, a role whose file is $1.heartbeat. Then `code` is its exit code and `child` 0. Looks
# are a second apart, and it is they that count: what was suspended with its machine does not hang. $2, if given, is called
# at each look.
watch_child() {
  local beat last="" still=0 most finished
  while true; do
    sleep 1 >/dev/null 2>&1 9<&- &
    wait -n -p finished "$child" $!
    code=$?
    [ "${finished:-}" != "$child" ] || break
    [ -n "${finished:-}" ] || continue  # a signal
    beat=""
    { read -r beat <"$1.heartbeat"; } 2>/dev/null
    if [ -e "$1.unwatched" ] || [ "$beat" != "$last" ]; then still=0; else still=$((still + 1)); fi
    last=$beat
    if [ -n "$beat" ]; then most=$still_looks; else most=$starting_looks; fi
    if [ "$still" = "$most" ]; then
      echo "$(date -u +%FT%TZ) ${1##*/} shows no sign of life: it is killed" >&2
      kill -KILL "$child"
    fi
    [ -z "${2:-}" ] || "$2"
  done
  child=0
}
