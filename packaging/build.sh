#!/bin/sh
# Makes packages of criprobe from this folder.
#
#   build.sh deb        a package for Debian and Ubuntu
#   build.sh rpm        a package for distributions with RPM
#   build.sh image      an OCI archive with nothing but the static binary; needs no daemon; the same binary gives the same digest
#   build.sh notices    packaging/THIRD-PARTY-NOTICES, the licences of all crates in the binary, after a change of Cargo.lock
#
# Variables:
#   TRIPLE     for which target of Rust; default: this machine's own, for an image with musl, such as x86_64-unknown-linux-musl
#   BINARY     packages this binary, instead of a release build
#   MAN        takes the man pages from this folder, instead of writing them
#   VERSION    instead of the one in Cargo.toml
#   OUT        the folder for the result; default: package in cargo's target folder
#   SOURCE_DATE_EPOCH   the time that packages carry; default: that of the last commit, and 0 for an image
#
# It installs what it needs and does not find: pinned versions of tools with cargo, a target with rustup, and the compiler for
# musl with apt-get. Results go to stdout, progress and errors to stderr.
set -eu
umask 022
export LC_ALL=C
cd "$(dirname "$0")/.."

CARGO_DEB=3.8.0
CARGO_GENERATE_RPM=0.21.1
CARGO_ABOUT=0.9.3

target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
out=${OUT:-$target/package}

# 12 MiB: a release build must be smaller, as in benches/relay/figures.rs.
LIMIT=$((12 << 20))

say() { printf '%s\n' "$*" >&2; }
die() { say "packaging/build.sh: $*"; exit 1; }

# ---- tools ----

# Installs version $2 of $1, a subcommand of cargo, if it is missing; further arguments go to `cargo install`. Another version
# that is installed stays: then this one goes into target/tools, which comes first in PATH.
tool() {
    name=$1 version=$2
    shift 2
    PATH=$target/tools/bin:$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    case $("$name" --version 2>/dev/null) in "$version" | *" $version") return ;; esac
    say "installing $name $version, which takes a few minutes"
    set -- --locked "$@"
    ! command -v "$name" >/dev/null || set -- --root "$target/tools" "$@"
    # In a target folder of its own, and quickly: only what is C in it, which compresses, is optimised.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 CFLAGS=-O2 \
        CARGO_TARGET_DIR=$target/tools/build \
        cargo install --quiet "$name@$version" "$@" >&2 ||
        die "cargo could not install $name $version"
    rm -rf "$target/tools/build"
}

# Installs the standard library for the target $1, if it is missing.
library() {
    [ ! -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || return 0
    command -v rustup >/dev/null || die "Rust has no standard library for $1, and there is no rustup to install it"
    say "installing Rust's standard library for $1"
    rustup target add "$1" >&2 || die "rustup could not install the standard library for $1"
}

# The C compiler for what ring has in C, and the linker, where cargo does not find them by itself.
compiler() {
    case $1 in
        "$host") ;;
        "${host%%-*}"-*-musl)
            command -v musl-gcc >/dev/null || apt_get musl-tools
            ;;
        aarch64-*)
            command -v aarch64-linux-gnu-gcc >/dev/null || apt_get gcc-aarch64-linux-gnu libc6-dev-arm64-cross
            export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc
            export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
            export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=aarch64-linux-gnu-gcc
            ;;
    esac
}

# A static binary relocates itself, and musl knows the short form of the table for that: 0.3 MiB less. For another one this
# needs glibc 2.36, which not all distributions that packages are for have. A linker that does not know it ignores it.
static() {
    case $1 in *-musl) ;; *) return 0 ;; esac
    flags=CARGO_TARGET_$(echo "$1" | tr 'a-z-' 'A-Z_')_RUSTFLAGS
    eval "export $flags=\"\${$flags:-} -C link-arg=-Wl,-z,pack-relative-relocs\""
}

apt_get() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        die "install these with your package manager: $*"
    fi
    say "installing $*"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } >&2 </dev/null ||
        die "apt-get could not install $*"
}

# ---- what is packaged ----

# Sets `binary`: the release build for `triple`, or BINARY without the symbols that an unoptimised build has.
find_binary() {
    mkdir -p "$stage/$triple/release"
    binary=$stage/$triple/release/criprobe
    if [ -n "${BINARY:-}" ]; then
        [ -f "$BINARY" ] || die "$BINARY is no file"
        strip -s -o "$binary" "$BINARY"
    else
        compiler "$triple"
        if [ "$triple" = "$host" ]; then
            # As `make build` does, so that both share one.
            cargo build --release --locked >&2
            cp "$target/release/criprobe" "$binary"
        else
            library "$triple"
            static "$triple"
            cargo build --release --locked --target "$triple" >&2
            cp "$target/$triple/release/criprobe" "$binary"
        fi
        bytes=$(stat -c %s "$binary")
        [ "$bytes" -lt $LIMIT ] || die "the binary has $bytes bytes, and must have less than $LIMIT"
    fi
    chmod 755 "$binary"
}

# The files that are made for a package, in `files`. cargo-deb and cargo-generate-rpm look for the folder of the binary where
# Cargo.toml says target/release.
make_files() {
    files=$stage/$triple/release/package
    rm -rf "$files"
    mkdir -p "$files/man"
    # Defaults may change, and what an operator sets stays: so all settings are there, and none is set.
    {
        sed -n 1p packaging/config.yaml
        echo "#"
        echo "# Nothing is set here: remove the # before a setting, and before the section that it is in. What differs may also be in"
        echo "# /etc/criprobe/conf.d/*.yaml, which no package has."
        sed -e 1d -e 's/^\([^#]\)/#\1/' packaging/config.yaml
    } >"$files/config.yaml"
    if [ -n "${MAN:-}" ]; then cp "$MAN"/*.8 "$files/man"
    else cargo run --quiet --locked --example man -- "$files/man" >&2
    fi
    gzip -9n "$files"/man/*
    # They are the same for every machine, and the binary may be for another one than this.
    runs=$binary
    "$runs" --version >/dev/null 2>&1 || { cargo build --quiet --locked >&2; runs=$target/debug/criprobe; }
    for shell in bash zsh fish; do "$runs" completion $shell >"$files/completion.$shell"; done
    date=$(date -u -R -d "@$SOURCE_DATE_EPOCH" 2>/dev/null) || date=$(date -u -R)
    printf 'criprobe (%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' "$deb_version" "$maintainer" "$date" |
        gzip -9n >"$files/changelog.Debian.gz"
}

# The value of a key of Cargo.toml that is there once, such as the version.
manifest() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" Cargo.toml | head -n 1; }

prepare() {
    host=$(rustc -vV | sed -n 's/^host: //p')
    triple=${TRIPLE:-$1}
    version=${VERSION:-$(manifest version)}
    stage=$out/stage
    mkdir -p "$out"
    find_binary
}

committed() { git log -1 --format=%ct 2>/dev/null || echo 0; }

deb() {
    tool cargo-deb $CARGO_DEB
    prepare "$(rustc -vV | sed -n 's/^host: //p')"
    export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(committed)}"
    deb_version=$version-1 maintainer=$(manifest maintainer)
    make_files
    # A build for tests need not be small.
    CARGO_TARGET_DIR=$stage cargo deb --no-build --no-strip --locked ${BINARY:+--fast} --target "$triple" \
        --deb-version "$deb_version" --output "$out/"
}

rpm() {
    tool cargo-generate-rpm $CARGO_GENERATE_RPM
    prepare "$(rustc -vV | sed -n 's/^host: //p')"
    export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(committed)}"
    deb_version=$version-1 maintainer=$(manifest maintainer)
    make_files
    # The libraries that a binary needs are found with ldd, which knows only its own machine's.
    requires=builtin
    [ "${triple%%-*}" = "${host%%-*}" ] || requires=disabled
    # A build for tests need not be small.
    CARGO_TARGET_DIR=$stage cargo generate-rpm --auto-req $requires --target "$triple" ${BINARY:+--payload-compress none} \
        --set-metadata "version = \"$version\"" --output "$out/criprobe-$version-1.${triple%%-*}.rpm" >&2
    echo "$out/criprobe-$version-1.${triple%%-*}.rpm"
}

# ---- the image ----

# Moves file $1 into the archive under its digest, and sets `digest` and `size`.
store() {
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    size=$(stat -c %s "$1")
    mv "$1" "$oci/blobs/sha256/$digest"
}

# Nothing that differs between two runs: names in order, one time, no owner.
archive() { tar --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner "$@"; }

image() {
    prepare "$(rustc -vV | sed -n 's/^host: \([^-]*\).*/\1/p')-unknown-linux-musl"
    export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-0}"
    ! readelf -lW "$binary" | grep -q INTERP || die "the binary is not static, and an image has no libraries: build it for musl"
    case $triple in
        x86_64-*) architecture=amd64 ;;
        aarch64-*) architecture=arm64 ;;
        *) architecture=${triple%%-*} ;;
    esac
    created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    oci=$stage/oci
    rm -rf "$oci" "$stage/root"
    mkdir -p "$oci/blobs/sha256" "$stage/root/usr/bin"
    cp "$binary" "$stage/root/usr/bin/criprobe"
    archive -C "$stage/root" -cf "$oci/layer" usr
    layer=$(sha256sum "$oci/layer" | cut -d' ' -f1)
    gzip -9n "$oci/layer"
    store "$oci/layer.gz"
    layer_digest=$digest layer_size=$size
    labels="\"org.opencontainers.image.title\": \"criprobe\", \"org.opencontainers.image.version\": \"$version\",
  \"org.opencontainers.image.licenses\": \"Apache-2.0\""
    cat >"$oci/file" <<END
{"architecture": "$architecture", "os": "linux", "created": "$created",
 "config": {"Entrypoint": ["/usr/bin/criprobe"], "Cmd": ["serve"], "Env": ["PATH=/usr/bin"], "WorkingDir": "/", "Labels": {
  $labels}},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]},
 "history": [{"created": "$created", "created_by": "criprobe, packaging/build.sh"}]}
END
    store "$oci/file"
    cat >"$oci/file" <<END
{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
 "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:$digest", "size": $size},
 "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:$layer_digest", "size": $layer_size}],
 "annotations": {$labels}}
END
    store "$oci/file"
    cat >"$oci/index.json" <<END
{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [
 {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:$digest", "size": $size,
  "platform": {"architecture": "$architecture", "os": "linux"}, "annotations": {
   "io.containerd.image.name": "localhost/criprobe:$version", "org.opencontainers.image.ref.name": "$version"}}]}
END
    echo '{"imageLayoutVersion": "1.0.0"}' >"$oci/oci-layout"
    file=$out/criprobe-$version-$architecture.oci.tar
    archive -C "$oci" -cf "$file" oci-layout index.json blobs
    say "sha256:$digest"
    echo "$file"
}

# ---- licences ----

notices() {
    tool cargo-about $CARGO_ABOUT --features cli
    cargo about generate --config packaging/notices/about.toml --locked --output-file packaging/THIRD-PARTY-NOTICES \
        packaging/notices/about.hbs >&2
    echo packaging/THIRD-PARTY-NOTICES
}

case ${1:-}:$# in
    deb:1 | rpm:1 | image:1 | notices:1) "$1" ;;
    *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
