#!/bin/sh
# Keeps criprobe on a node as this image has it. Runs in a pod of the DaemonSet, or on the node itself.
#
#   node.sh run          install, then look again every minute; ends with 1 if the node's criprobe does not answer
#   node.sh install      install what differs, check that calls through criprobe are answered, else undo
#   node.sh ready        succeed if this pod has installed and calls are answered
#   node.sh uninstall    remove everything, unless a kubelet or crictl still uses criprobe
#   node.sh remove       the same in a pod: uninstall, then wait for the end of the pod
#
# It switches no kubelet and no crictl: 'criprobe node switch' on the node does.
set -eu
umask 022

# Where the node's / is mounted, and what is to be installed there.
ROOT=${ROOT:-/host}
SOURCE=${SOURCE:-/opt/criprobe}
CONFIG=${CONFIG:-/config}
RULES=${RULES:-/rules}
SYSTEMCTL=${SYSTEMCTL:-systemctl}
# Seconds for criprobe to answer after a change, and between two looks.
PATIENCE=${PATIENCE:-60}
PAUSE=${PAUSE:-60}
MARK=${MARK:-/tmp/installed}

HOME_DIR=/opt/criprobe
UNITS_DIR=/etc/systemd/system
CONFIG_DIR=/etc/criprobe
NEW="$SOURCE/bin/criprobe"

say() { echo "criprobe-node: $*"; }
die() { say "$*" >&2; exit 1; }

# What is managed on the node, one path a line: what is wanted, and what an earlier version has left.
wanted() {
    echo "$HOME_DIR/bin/criprobe"
    for unit in "$SOURCE"/units/*; do echo "$UNITS_DIR/${unit##*/}"; done
    if [ -f "$CONFIG/config.yaml" ]; then echo "$CONFIG_DIR/config.yaml"; fi
    for rule in "$RULES"/*.yaml; do
        if [ -f "$rule" ]; then echo "$CONFIG_DIR/conf.d/fleet-${rule##*/}"; fi
    done
}

present() {
    cat "$ROOT$HOME_DIR/files" 2>/dev/null || true
}

# What there may be in the middle of a change.
managed() {
    { present; wanted; } | sort -u
}

# The content of a managed path: units start the binary where it is here.
content() {
    case $1 in
        "$HOME_DIR/bin/criprobe") cat "$NEW" ;;
        "$UNITS_DIR"/*) sed "s|/usr/bin/criprobe|$HOME_DIR/bin/criprobe|g" "$SOURCE/units/${1##*/}" ;;
        "$CONFIG_DIR/config.yaml") cat "$CONFIG/config.yaml" ;;
        "$CONFIG_DIR"/conf.d/fleet-*) cat "$RULES/${1##*/fleet-}" ;;
    esac
}

mode() {
    case $1 in
        */bin/criprobe) echo 755 ;;
        "$CONFIG_DIR"/*) echo 600 ;;
        *) echo 644 ;;
    esac
}

# A path gets what a command prints, in one step, and only if the command succeeds: nothing is ever half a file.
put() {
    target="$ROOT$1"
    mkdir -p "${target%/*}"
    wanted_mode=$(mode "$1")
    shift
    if ! (umask 077 && "$@" > "$target.criprobe-new" && chmod "$wanted_mode" "$target.criprobe-new"); then
        rm -f "$target.criprobe-new" || true
        die "cannot write $target; the next attempt goes on here"
    fi
    mv -f "$target.criprobe-new" "$target"
}

# What would be installed, as one word.
checksum() {
    wanted | while read -r path; do echo "$path"; content "$path"; done | sha256sum | cut -d' ' -f1
}

differs() {
    [ "$(present)" = "$(wanted)" ] || return 0
    for path in $(wanted); do
        content "$path" | cmp -s - "$ROOT$path" || return 0
    done
    return 1
}

# Units of a package, or of someone else, are not replaced.
refuse_foreign() {
    fragment=$($SYSTEMCTL show --property=FragmentPath --value criprobe.service) || die "cannot reach systemd of the node"
    case $fragment in
        "") ;;
        "$UNITS_DIR"/criprobe.service)
            [ -f "$ROOT$HOME_DIR/files" ] || die "$fragment was not installed by this: remove it first" ;;
        *) die "criprobe is installed on this node as $fragment: remove that package first" ;;
    esac
    for path in $(wanted); do
        if [ -e "$ROOT$path" ] && ! present | grep -qxF "$path"; then
            die "$path is there already, and was not installed by this: move it away first"
        fi
    done
}

status() {
    "$NEW" --api "unix://$ROOT/run/criprobe/api.sock" node --root "$ROOT" status "$@"
}

answers() {
    end=$(($(date +%s) + PATIENCE))
    until status --check answering >/dev/null 2>&1; do
        if [ "$(date +%s)" -ge "$end" ]; then
            status --check answering >/dev/null || true
            return 1
        fi
        sleep 1
    done
}

units() {
    for path in "$@"; do
        case $path in "$UNITS_DIR"/*.service | "$UNITS_DIR"/*.socket) echo "${path##*/}" ;; esac
    done
}

# A service without its socket is stopped first: it would keep the path.
start_socket() {
    $SYSTEMCTL start "$1" || { $SYSTEMCTL stop criprobe.service && $SYSTEMCTL start "$1"; }
}

# Whether the build that was there before knows the signal of restarts, which would kill it otherwise. The node's processes cannot
# be seen from the pod, but its unit names that signal if the build does.
hands_over() {
    former="$ROOT$HOME_DIR/previous$UNITS_DIR/criprobe.service"
    [ ! -f "$former" ] || grep -q '^RestartKillSignal=' "$former"
}

# Brings systemd to what is on the disk; the sockets first, which the service takes over.
activate() {
    $SYSTEMCTL daemon-reload || return 1
    for unit in $(units "$@" | sort -r); do $SYSTEMCTL enable "$unit" || return 1; done
    for unit in $(units "$@" | grep '\.socket$' || true); do start_socket "$unit" || return 1; done
    # One that does not is stopped, and drains.
    hands_over || $SYSTEMCTL stop criprobe.service || return 1
    $SYSTEMCTL restart criprobe.service || return 1
}

# Puts back what was there before. Succeeds if that answers: then the change was to blame, not the runtime, for example.
undo() {
    previous="$ROOT$HOME_DIR/previous"
    for path in $({ wanted; present; cat "$previous/files" 2>/dev/null || true; } | sort -u); do
        if [ -f "$previous$path" ]; then put "$path" cat "$previous$path"; else rm -f "$ROOT$path"; fi
    done
    if [ -f "$previous/files" ]; then
        put "$HOME_DIR/files" cat "$previous/files"
        # shellcheck disable=SC2046  # paths without blanks, one a line
        if activate $(present) && answers; then
            say "the former version answers again"
            return 0
        fi
        say "the former version does not answer either" >&2
    else
        for unit in $(cd "$SOURCE/units" && ls); do $SYSTEMCTL disable --now "$unit" || true; done
        rm -f "$ROOT$HOME_DIR/files"
        $SYSTEMCTL daemon-reload
    fi
    return 1
}

# Keeps what is there now, to go back to. What a run that was cut off has left is not worth that.
keep_previous() {
    [ ! -e "$ROOT$HOME_DIR/pending" ] || return 0
    rm -rf "$ROOT$HOME_DIR/previous"
    mkdir -p "$ROOT$HOME_DIR/previous"
    if [ -f "$ROOT$HOME_DIR/files" ]; then
        present | while read -r path; do
            [ -f "$ROOT$path" ] || continue
            mkdir -p "$ROOT$HOME_DIR/previous${path%/*}"
            cp -p "$ROOT$path" "$ROOT$HOME_DIR/previous$path"
        done
        cp "$ROOT$HOME_DIR/files" "$ROOT$HOME_DIR/previous/files"
    fi
    : > "$ROOT$HOME_DIR/pending"
}

install() {
    [ -x "$NEW" ] || die "there is no criprobe at $NEW"
    version=$("$NEW" --version) || die "$NEW does not run in this pod: is it built for this node's architecture?"
    for file in "$RULES"/*; do
        case $file in
            *.yaml) ;;
            *) [ ! -f "$file" ] || die "criprobe-rules: rename ${file##*/} to NAME.yaml; no other files are read" ;;
        esac
    done
    refuse_foreign
    if ! differs && [ ! -e "$ROOT$HOME_DIR/pending" ]; then
        # Who has stopped it had a reason.
        $SYSTEMCTL is-active --quiet criprobe.service || die "criprobe is stopped on this node: start it with 'systemctl start criprobe'"
        answers || die "criprobe does not answer, and nothing differs: see 'journalctl -u criprobe' on the node"
        return
    fi
    sum=$(checksum)
    if [ "$(cat "$ROOT$HOME_DIR/failed" 2>/dev/null)" = "$sum" ]; then
        die "this version failed on this node before, and was undone; to try it again, remove $HOME_DIR/failed"
    fi
    # The node's own, too: the new version may refuse what the former took, and would not start.
    for file in "$CONFIG/config.yaml" "$RULES"/*.yaml "$ROOT$CONFIG_DIR"/conf.d/*.yaml; do
        case $file in "$ROOT$CONFIG_DIR"/conf.d/fleet-*) continue ;; esac
        [ -f "$file" ] || continue
        "$NEW" check "$file" >&2 || die "${file##*/} is wrong: nothing was installed"
    done
    former=$(present)
    keep_previous
    put "$HOME_DIR/files" managed
    for path in $(wanted); do put "$path" content "$path"; done
    for path in $former; do
        wanted | grep -qxF "$path" && continue
        for unit in $(units "$path"); do $SYSTEMCTL disable --now "$unit" || true; done
        rm -f "$ROOT$path"
    done
    put "$HOME_DIR/files" wanted
    # shellcheck disable=SC2046  # paths without blanks, one a line
    if activate $(wanted) && answers; then
        rm -f "$ROOT$HOME_DIR/failed" "$ROOT$HOME_DIR/pending"
        say "installed $version"
        return
    fi
    say "criprobe does not answer after the change: undoing it" >&2
    answered=no
    if undo; then answered=yes; fi
    rm -f "$ROOT$HOME_DIR/pending"
    [ $answered = no ] || put "$HOME_DIR/failed" echo "$sum"
    die "this version was undone; see 'journalctl -u criprobe' on the node"
}

uninstall() {
    if [ ! -f "$ROOT$HOME_DIR/files" ]; then say "nothing is installed"; return; fi
    [ -e "$ROOT/etc/passwd" ] || die "cannot see where the kubelet points: the node's file system is not at $ROOT"
    status --check unused >/dev/null || die "switch back first: 'criprobe node revert' on the node, then restart its kubelet"
    # shellcheck disable=SC2046  # paths without blanks, one a line
    for unit in $(units $(present) | sort -r); do
        # One that is gone was stopped by a run that was cut off.
        [ ! -e "$ROOT$UNITS_DIR/$unit" ] || $SYSTEMCTL disable --now "$unit"
    done
    for path in $(present); do rm -f "$ROOT$path" "$ROOT$path.criprobe-new"; done
    rm -rf "$ROOT$HOME_DIR/previous" "$ROOT$HOME_DIR/files" "$ROOT$HOME_DIR/failed" "$ROOT$HOME_DIR/pending"
    rmdir "$ROOT$HOME_DIR/bin" "$ROOT$HOME_DIR" "$ROOT$CONFIG_DIR/conf.d" "$ROOT$CONFIG_DIR" 2>/dev/null || true
    $SYSTEMCTL daemon-reload
    say "uninstalled; the state in /var/lib/criprobe stays"
}

# Sleeps, but ends at once on a signal.
pause() {
    sleep "$1" &
    wait $!
}

case ${1:-} in
    install) install ;;
    uninstall) uninstall ;;
    ready) [ -f "$MARK" ] && status --check answering >/dev/null ;;
    run)
        trap 'exit 0' TERM INT
        rm -f "$MARK"
        while true; do
            install
            : > "$MARK"
            pause "$PAUSE"
        done
        ;;
    remove)
        trap 'exit 0' TERM INT
        rm -f "$MARK"
        uninstall
        : > "$MARK"
        while true; do pause 3600; done
        ;;
    *) die "usage: node.sh run|install|ready|uninstall|remove" ;;
esac
