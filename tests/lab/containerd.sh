#!/bin/sh
# Starts a private, real containerd for a test or a demo, and later removes it without a trace.
#
#   containerd.sh check            reports in one line whether this machine can run it; exit 0 yes, 1 no
#   containerd.sh install          installs missing packages (Debian, Ubuntu)
#   containerd.sh up DIR [OWNER]   starts one in DIR and prints its URL; with OWNER, removes it when that process (pid) ends
#   containerd.sh stop DIR         stops only containerd: containers continue
#   containerd.sh start DIR        starts it again with the same state
#   containerd.sh crun DIR         installs crun and starts containerd again, which then runs pods of runtime handler "crun"
#   containerd.sh image DIR NAME HEALTHCHECK  adds an image like busybox:1 in Docker's format, with this JSON as HEALTHCHECK
#   containerd.sh shells DIR       adds localhost/dash:1 and localhost/bash:1, where that is /bin/sh, and localhost/no-shell:1
#   containerd.sh down DIR         stops and removes everything: containers, shims, mounts, network, cgroups, DIR
#
# Rigs can run at the same time, also next to a containerd of the machine: root, state, sockets, CNI and runc's state are
# in DIR; bridge and subnet are unused ones. It runs without systemd, on cgroup v1 or v2, and needs no registry: it builds
# two images, localhost/busybox:1 (a shell and its applets in /bin) and localhost/pause:1.
# Results go to stdout, progress and errors to stderr. containerd logs to DIR/containerd.log.
set -eu
umask 022
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

# The longest DIR: containerd binds DIR/containerd.sock.ttrpc, and the path of a Unix socket ends at 107 bytes.
DIR_MAX=85
# Seconds to wait for containerd to answer, or to end.
PATIENCE=30

. "$(dirname "$0")/packages.sh"
. "$(dirname "$0")/processes.sh"

# ---- the machine ----

# The directory with the CNI plugins, or nothing.
cni_bin() {
    for dir in /usr/lib/cni /opt/cni/bin; do
        if [ -x $dir/bridge ] && [ -x $dir/host-local ] && [ -x $dir/loopback ]; then
            echo $dir
            return
        fi
    done
}

# The missing packages, one per word. Checks for programs, which may also come from elsewhere.
lacking() {
    command -v containerd >/dev/null && command -v ctr >/dev/null || echo containerd
    command -v runc >/dev/null || echo runc
    command -v busybox >/dev/null || echo busybox-static
    command -v ip >/dev/null || echo iproute2
    [ -z "${WANTS_CRUN-}" ] || command -v crun >/dev/null || echo crun
    [ -n "$(cni_bin)" ] || echo containernetworking-plugins
}

# Why this machine cannot run a containerd, or nothing.
obstacle() {
    if [ "$(uname -s)" != Linux ]; then echo "needs Linux, this is $(uname -s)"
    elif [ "$(id -u)" != 0 ]; then echo "needs root, this is uid $(id -u)"
    elif ! unshare -m -n true 2>/dev/null; then
        echo "root cannot create mount and network namespaces here (a container without CAP_SYS_ADMIN?)"
    elif ! awk '$3 ~ /^cgroup2?$/ && $4 ~ /^rw/ { found = 1 } END { exit !found }' /proc/mounts; then
        echo "no writable cgroup file system is mounted"
    elif [ -n "$(lacking)" ] && ! command -v apt-get >/dev/null; then
        echo "missing: $(lacking | xargs), and there is no apt-get to install them"
    fi
}

check() {
    reason=$(obstacle)
    [ -z "$reason" ] || { echo "cannot run a private containerd: $reason"; exit 1; }
    packages=$(lacking | xargs)
    if [ -n "$packages" ]; then echo "can run a private containerd, after installing $packages"
    else echo "can run a private containerd: $(containerd --version | cut -d' ' -f3)"
    fi
}

# ---- one rig ----

# Sets DIR to the absolute path of the rig in $1, or fails if it is not a rig.
open_rig() {
    DIR=$(readlink -f "$1")
    [ -f "$DIR/rig" ] || die "$1 is not a rig of containerd.sh"
}

# Whether the process $1 is containerd for DIR: not another process that reused the pid, and not a zombie.
is_ours() { grep -qszxF "$DIR/containerd.toml" "/proc/$1/cmdline"; }

# The pid of DIR's containerd, or nothing if it does not run.
running() {
    pid=$(cat "$DIR/containerd.pid" 2>/dev/null) || return 0
    ! is_ours "$pid" || echo "$pid"
}

CTR() { ctr -a "$DIR/containerd.sock" -n k8s.io "$@"; }

answers() {
    ! has_ended "$1" || { tail -n 5 "$DIR/containerd.log" >&2; die "containerd ended right after its start"; }
    [ -S "$DIR/containerd.sock" ] && CTR version >/dev/null 2>&1
}

# Runs a command without the mount of cgroup v2 that may lie beside v1: crun refuses to run where there is one.
# shellcheck disable=SC2016 # the inner shell expands it
WITHOUT_HYBRID='umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
without_hybrid() { unshare -m --propagation private sh -c "$WITHOUT_HYBRID" sh "$@"; }

# Starts containerd and waits until it answers. Its CRI plugin is ready milliseconds later; clients check that with Version.
# With crun it has mounts of its own, which go with its last process.
launch() {
    set -- containerd -c "$DIR/containerd.toml"
    [ ! -d "$DIR/crun" ] || set -- unshare -m --propagation private sh -c "$WITHOUT_HYBRID" sh "$@"
    setsid "$@" >>"$DIR/containerd.log" 2>&1 </dev/null &
    echo $! >"$DIR/containerd.pid"
    eventually answers $! || die "containerd does not answer, see $DIR/containerd.log"
}

halt() {
    pid=$(running)
    [ -n "$pid" ] || return 0
    kill -TERM "$pid" 2>/dev/null || true
    eventually has_ended "$pid" || { kill -KILL "$pid"; eventually has_ended "$pid"; } || die "containerd does not stop"
}

# ---- up ----

# Overlayfs if it works here; some file systems do not support it, such as another overlay.
snapshotter() {
    try=$DIR/try
    mkdir -p "$try/lower" "$try/upper" "$try/work" "$try/merged"
    if mount -t overlay overlay -o "lowerdir=$try/lower,upperdir=$try/upper,workdir=$try/work" "$try/merged" 2>/dev/null
    then umount "$try/merged"; echo overlayfs
    else echo native
    fi
    rm -rf "$try"
}

write_config() {
    cat >"$DIR/containerd.toml" <<END
version = 2
root = "$DIR/root"
state = "$DIR/state"
[grpc]
  address = "$DIR/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$DIR/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  sandbox_image = "localhost/pause:1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$(cni_bin)"
    conf_dir = "$DIR/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$(snapshotter)"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "$DIR/runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]
        BinaryName = "crun"
        Root = "$DIR/crun"
END
}

# A bridge on which the host has an address. It is created here, without forwarding and masquerading: pods and the host
# reach each other, and no sysctl or firewall rule changes.
write_network() {
    number=$(printf %s "$DIR" | cksum | cut -d' ' -f1)
    bridge=$(printf 'crip%08x' "$number")
    while
        subnet=10.$((100 + number / 256 % 100)).$((number % 256))
        ip -4 route show table all | grep -qE "(^| )$subnet\."
    do
        number=$((number + 1))
    done
    ip link add "$bridge" type bridge
    echo "$bridge" >"$DIR/bridge"
    ip addr add "$subnet.1/24" dev "$bridge"
    ip link set "$bridge" up
    mkdir "$DIR/cni"
    cat >"$DIR/cni/10-lab.conflist" <<END
{"cniVersion": "0.4.0", "name": "$bridge", "plugins": [
  {"type": "bridge", "bridge": "$bridge", "isGateway": false, "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": "$DIR/ipam",
            "ranges": [[{"subnet": "$subnet.0/24", "gateway": "$subnet.1"}]]}}]}
END
}

architecture() {
    case $(uname -m) in
        x86_64) echo amd64 ;;
        aarch64) echo arm64 ;;
        armv7l) echo arm ;;
        *) uname -m ;;
    esac
}

# Moves file $1 into the layout under its digest, and sets `digest` and `size` to those of it.
store_blob() {
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    size=$(stat -c %s "$1")
    mv "$1" "$DIR/oci/blobs/sha256/$digest"
}

# Adds an image named $1 on the layer, with the JSON list $2 as its command, to `manifests`.
store_image() {
    cat >"$DIR/oci/file" <<END
{"architecture": "$(architecture)", "os": "linux", "created": "2026-01-01T00:00:00Z",
 "config": {"Env": ["PATH=/bin"], "Cmd": $2, "WorkingDir": "/"},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]}}
END
    store_blob "$DIR/oci/file"
    cat >"$DIR/oci/file" <<END
{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
 "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:$digest", "size": $size},
 "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "sha256:$layer", "size": $layer_size}]}
END
    store_blob "$DIR/oci/file"
    manifests="$manifests${manifests:+,}
 {\"mediaType\": \"application/vnd.oci.image.manifest.v1+json\", \"digest\": \"sha256:$digest\", \"size\": $size,
  \"annotations\": {\"io.containerd.image.name\": \"$1\"}}"
}

# Copies the program $1 to /bin/$2 of the tree $3, with its shared libraries.
add_program() {
    mkdir -p "$3/bin"
    cp -L "$1" "$3/bin/$2"
    for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*' || true); do # none, where it is static
        mkdir -p "$3$(dirname "$library")"
        cp -L "$library" "$3$library"
    done
}

# Writes the tree $1 as the layer $2.
pack_layer() { tar -C "$1" --owner=0 --group=0 --numeric-owner -cf "$2" .; }

# Builds an OCI archive of both images, DIR/images.tar, from the machine's busybox.
build_images() {
    root=$DIR/image
    mkdir -p "$DIR/oci/blobs/sha256" "$root/bin" "$root/etc" "$root/root" "$root/tmp"
    chmod 1777 "$root/tmp"
    add_program "$(command -v busybox)" busybox "$root"
    for applet in $(busybox --list); do
        [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
    done
    echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
    echo 'root:x:0:' >"$root/etc/group"
    pack_layer "$root" "$DIR/oci/file"
    store_blob "$DIR/oci/file"
    layer=$digest layer_size=$size manifests=
    echo "$layer" >"$DIR/layer"
    store_image localhost/busybox:1 '["/bin/sh"]'
    store_image localhost/pause:1 '["/bin/sleep", "2147483647"]'
    echo '{"imageLayoutVersion": "1.0.0"}' >"$DIR/oci/oci-layout"
    echo "{\"schemaVersion\": 2, \"manifests\": [$manifests]}" >"$DIR/oci/index.json"
    tar -C "$DIR/oci" -cf "$DIR/images.tar" oci-layout index.json blobs
    rm -rf "$DIR/oci" "$root"
}

use_crun() {
    WANTS_CRUN=yes
    install
    halt
    mkdir -p "$DIR/crun"
    launch
}

# Makes a folder `work` with the layer of busybox:1 as busybox.tar.
open_work() {
    work=$(mktemp -d -p "$DIR")
    CTR content get "sha256:$(cat "$DIR/layer")" >"$work/busybox.tar"
}

# Adds an image named $1, with $2 in its configuration, from an archive as `docker save` writes it. The other arguments are
# its layers, files in `work`.
import_image() {
    name=$1 settings=$2 files='' digests=''
    shift 2
    for file; do
        files="$files${files:+, }\"$file\""
        digests="$digests${digests:+, }\"sha256:$(sha256sum "$work/$file" | cut -d' ' -f1)\""
    done
    cat >"$work/config.json" <<END
{"architecture": "$(architecture)", "os": "linux", "created": "2026-01-01T00:00:00Z", "docker_version": "20.10.24",
 "config": {"Env": ["PATH=/bin"], "WorkingDir": "/", $settings},
 "rootfs": {"type": "layers", "diff_ids": [$digests]}}
END
    echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$name\"], \"Layers\": [$files]}]" >"$work/manifest.json"
    tar -C "$work" -cf "$work/image.tar" manifest.json config.json "$@"
    CTR images import "$work/image.tar" >/dev/null
    eventually knows_image "$name" || die "containerd does not know $name, see $DIR/containerd.log"
}

# Adds an image named $1 with the HEALTHCHECK $2.
add_image() {
    open_work
    import_image "$1" "\"Cmd\": [\"/bin/sh\"], \"Healthcheck\": $2" busybox.tar
    rm -rf "$work"
}

# Adds images that differ from busybox:1 in their shell: in dash:1 it is dash, beside programs of GNU; in bash:1 it is bash,
# beside GNU's dd; in no-shell:1 there are four programs and no shell.
add_shells() {
    open_work
    for shell in dash bash; do
        add_program "$(command -v $shell)" $shell "$work/$shell"
        ln -s $shell "$work/$shell/bin/sh"
        add_program /usr/bin/dd dd "$work/$shell"
    done
    for program in cat echo env false kill printenv printf pwd sleep test true '['; do
        # kill is of another package, which may be missing: then it is busybox's
        [ ! -x "/usr/bin/$program" ] || add_program "/usr/bin/$program" "$program" "$work/dash"
    done
    for program in cat false sleep true; do
        add_program "$(command -v busybox)" $program "$work/no-shell"
    done
    for image in dash bash no-shell; do pack_layer "$work/$image" "$work/$image.tar"; done
    idle='"Cmd": ["/bin/sleep", "2147483647"]'
    import_image localhost/dash:1 "$idle" busybox.tar dash.tar
    import_image localhost/bash:1 "$idle" busybox.tar bash.tar
    import_image localhost/no-shell:1 "$idle" no-shell.tar
    rm -rf "$work"
}

# Whether containerd's CRI plugin knows this image.
knows_image() { CTR images ls "name==$1" | grep -q 'io.cri-containerd.image=managed'; }

# Whether containerd's CRI plugin knows both images: it labels those that it knows.
knows_images() { [ "$(CTR images ls | grep -c '^localhost/.*io.cri-containerd.image=managed')" -ge 2 ]; }

up() {
    reason=$(obstacle)
    [ -z "$reason" ] || die "cannot run a private containerd: $reason"
    install
    mkdir -p "$1"
    DIR=$(readlink -f "$1")
    [ ${#DIR} -le $DIR_MAX ] || die "the path $DIR is longer than $DIR_MAX bytes, which is too long for its sockets"
    [ -z "$(ls -A "$DIR")" ] || die "$DIR is not empty"
    echo "a rig of tests/lab/containerd.sh: remove it with 'containerd.sh down'" >"$DIR/rig"
    trap 'down "$DIR"' EXIT
    trap 'exit 1' INT TERM HUP
    [ $# -lt 2 ] || setsid "$0" watch "$DIR" "$2" >/dev/null 2>&1 </dev/null &
    write_config
    (flock 9; write_network) 9>$LOCK
    build_images
    launch
    CTR images import "$DIR/images.tar" >/dev/null
    rm "$DIR/images.tar"
    eventually knows_images || die "containerd does not know the images, see $DIR/containerd.log"
    trap - EXIT
    echo "unix://$DIR/containerd.sock"
}

# ---- down ----

# The shims of DIR's containerd. They intentionally outlive it.
shims() {
    grep -lszxF "$DIR/containerd.sock" /proc/[0-9]*/cmdline | cut -d/ -f3 | while read -r pid; do
        ! grep -qs '^containerd-shim' "/proc/$pid/comm" || echo "$pid"
    done
}

no_shims() { [ -z "$(shims)" ]; }

# Kills all containers of DIR with what runs them, including those that ctr created, whose state is in runc's default place.
end_containers() {
    for state in "$DIR"/crun/*/*/status; do
        [ -f "$state" ] || continue
        container=$(dirname "$state")
        without_hybrid crun --root "$(dirname "$container")" delete --force "$(basename "$container")" || true
    done
    for state in "$DIR"/runc/*/*/state.json /run/containerd/runc/*/*/state.json; do
        grep -qsF "\"bundle=$DIR/" "$state" || continue
        container=$(dirname "$state")
        runc --root "$(dirname "$container")" delete --force "$(basename "$container")" || true
    done
}

# Removes directories that all containerds and libcnis share, if they are unused: rmdir keeps those that are not empty.
sweep() {
    rmdir /sys/fs/cgroup/k8s.io /sys/fs/cgroup/*/k8s.io /run/containerd/s /run/containerd /var/lib/cni/results \
        /var/lib/cni 2>/dev/null || true
}

mounts() { awk -v dir="$DIR/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo; }

# Works without containerd, which may be broken.
down() {
    [ -e "$1" ] || return 0
    open_rig "$1"
    halt
    end_containers
    tasks=$DIR/state/io.containerd.runtime.v2.task/k8s.io # address is where containerd 1 notes a shim's socket
    sockets=$(grep -ohs '/run/containerd/s/[0-9a-f]*' "$tasks"/*/address "$tasks"/*/bootstrap.json) || true
    shims | xargs -r kill -KILL || true
    eventually no_shims || die "shims of $DIR do not stop"
    for socket in $sockets; do rm -f "$socket"; done
    mounts | tac | while read -r mount; do umount "$mount" 2>/dev/null || umount -l "$mount"; done
    [ -z "$(mounts)" ] || die "mounts are left below $DIR"
    if bridge=$(cat "$DIR/bridge" 2>/dev/null); then
        ip link delete "$bridge" 2>/dev/null || true
        for result in /var/lib/cni/results/"$bridge"-*; do # libcni's own notes, one a pod and network
            pod=${result#*/"$bridge"-}
            rm -f "$result" "/var/lib/cni/results/cni-loopback-${pod%-*}"-*
        done
    fi
    rm -rf --one-file-system "$DIR"
    sweep
}

usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; }

case ${1:-}:$# in
    check:1) check ;;
    install:1) install ;;
    up:2 | up:3) shift; up "$@" ;;
    stop:2) open_rig "$2"; halt ;;
    start:2) open_rig "$2"; [ -n "$(running)" ] || launch ;;
    crun:2) open_rig "$2"; use_crun ;;
    image:4) open_rig "$2"; add_image "$3" "$4" ;;
    shells:2) open_rig "$2"; add_shells ;;
    down:2) down "$2" ;;
    watch:3) watch "$2" "$3" ;;
    help:1 | --help:1 | -h:1) usage ;;
    *) usage >&2; exit 2 ;;
esac
