# Waits for the processes of a rig. A script that sources this file defines PATIENCE, the seconds to wait, and `down`, which
# removes a rig.

# Polls a command until it succeeds, for PATIENCE seconds.
eventually() {
    tries=$((PATIENCE * 50))
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.02
    done
}

# Whether the process $1 is gone, or a zombie.
has_ended() {
    case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) in
        '' | Z* | X*) ;;
        *) return 1 ;;
    esac
}

# Removes the rig $1 as soon as process $2 has ended, for whatever reason.
watch() {
    started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
    birth=$(started "$2")
    while [ -n "$birth" ] && [ "$(started "$2")" = "$birth" ] && [ -e "$1" ]; do sleep 0.5; done
    down "$1"
}
