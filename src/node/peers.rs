//! Who is connected to a Unix socket now: the kernel's list of Unix sockets (sock_diag(7)) and /proc in; processes out.
//! Changes nothing. Sockets of other network namespaces are not listed.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    io::{self, ErrorKind},
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
    time::Duration,
};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink,
    sockopt::{Timeout, set_socket_timeout},
};

use crate::peer;

/// A process that holds sockets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    /// 0 if the process cannot be found: it is in another pid namespace, or not ours to see.
    pub(crate) pid: i32,
    /// The kernel's name of it; empty with a pid of 0.
    pub(crate) comm: String,
}

/// The processes at a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peers {
    /// Who can accept connections.
    pub(crate) listeners: Vec<Holder>,
    /// Who is connected, and by how many connections.
    pub(crate) clients: Vec<(Holder, usize)>,
}

/// 64 KiB of the kernel's answer at a time: more than it sends in one piece.
const BUFFER: usize = 64 << 10;

/// 2 s: how long the kernel may take for a piece; it takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);

// linux/sock_diag.h, linux/unix_diag.h, linux/netlink.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const AF_UNIX: u8 = 1;
const SHOW_NAME_VFS_PEER_AND_WAITING: u32 = 1 | 2 | 4 | 8;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_VFS: u16 = 1;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_ICONS: u16 = 3;
/// The states `TCP_ESTABLISHED` and `TCP_LISTEN`, which Unix sockets have, too.
const ESTABLISHED: u8 = 1;
const LISTENING: u8 = 10;

/// One Unix socket of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Socket {
    inode: u32,
    state: u8,
    /// The file that it, or what accepted it, is bound to: inode, device.
    file: Option<(u32, u32)>,
    /// The path that it was bound to, as it was named then.
    name: Vec<u8>,
    /// The inode of the other end.
    peer: Option<u32>,
    /// Of one that listens: the inodes of clients that wait to be accepted.
    waiting: Vec<u32>,
}

/// Who is at each of these sockets.
///
/// # Errors
/// The kernel does not list Unix sockets, or a path cannot be read. A path without a file has no peers.
pub(crate) fn at(paths: &[&Path]) -> io::Result<Vec<Peers>> {
    let files = paths.iter().map(|path| match fs::metadata(path) {
        Ok(meta) => Ok(Some((file_of(&meta), path.as_os_str().as_encoded_bytes()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    });
    let files = files.collect::<io::Result<Vec<_>>>()?;
    // Not every kernel has a list, and without a socket there are no peers.
    let sockets = if files.iter().any(Option::is_some) { list()? } else { Vec::new() };
    let of = |file, state| at_file(&sockets, file, state);
    let clients = |file| {
        let waiting = of(file, LISTENING).flat_map(|socket| socket.waiting.iter().copied());
        of(file, ESTABLISHED).filter_map(|socket| socket.peer).chain(waiting)
    };
    let listeners = |file| of(file, LISTENING).map(|socket| socket.inode);
    let holders = holders(&files.iter().flat_map(|file| listeners(*file).chain(clients(*file))).collect());
    let none = Holder { pid: 0, comm: String::new() };
    let holder = |inode: &u32| holders.get(inode).cloned().unwrap_or_else(|| vec![none.clone()]);
    let peers = files.iter().map(|file| {
        let mut holding: Vec<_> = listeners(*file).flat_map(|inode| holder(&inode)).collect();
        holding.sort();
        holding.dedup();
        let mut connected = BTreeMap::new();
        // A process and the one that it hands its sockets to, or inherited them from, may both have it: the last counts.
        for client in clients(*file).filter_map(|inode| holder(&inode).pop()) {
            *connected.entry(client).or_insert(0) += 1;
        }
        Peers { listeners: holding, clients: connected.into_iter().collect() }
    });
    Ok(peers.collect())
}

/// The sockets of this state at a file. Some file systems show another inode than the kernel's own; then the name must do,
/// which sockets of other file systems may have, too, such as those of containers.
fn at_file<'a>(
    sockets: &'a [Socket],
    file: Option<((u32, u32), &'a [u8])>,
    state: u8,
) -> impl Iterator<Item = &'a Socket> {
    let is_shown = file.is_some_and(|(id, _)| sockets.iter().any(|socket| socket.file == Some(id)));
    sockets.iter().filter(move |socket| {
        let is_at = |(id, name)| if is_shown { socket.file == Some(id) } else { socket.name == name };
        file.is_some_and(is_at) && socket.state == state
    })
}

/// The kernel's own number of a file and its device, which differs from that of stat(2).
fn file_of(meta: &fs::Metadata) -> (u32, u32) {
    let device = rustix::fs::major(meta.dev()) << 20 | rustix::fs::minor(meta.dev());
    // The kernel reports only the lower half of an inode's number, too.
    (meta.ino() as u32, device)
}

/// All connected and listening Unix sockets.
fn list() -> io::Result<Vec<Socket>> {
    let protocol = Some(netlink::SOCK_DIAG);
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    rustix::net::send(&socket, &request(), SendFlags::empty())?;
    let mut sockets = Vec::new();
    let mut buffer = vec![0; BUFFER];
    while !pieces(receive(&socket, &mut buffer)?, &mut sockets)? {}
    Ok(sockets)
}

fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let (length, _) = rustix::net::recv(socket, &mut *buffer, RecvFlags::empty())?;
    Ok(&buffer[..length])
}

fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40);
    bytes.extend(40_u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([AF_UNIX, 0, 0, 0]);
    bytes.extend((1_u32 << ESTABLISHED | 1 << LISTENING).to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(SHOW_NAME_VFS_PEER_AND_WAITING.to_ne_bytes());
    bytes.extend([0xff; 8]);
    bytes
}

/// Reads the messages of one answer; whether it was the last one.
fn pieces(mut bytes: &[u8], sockets: &mut Vec<Socket>) -> io::Result<bool> {
    let malformed = || io::Error::new(ErrorKind::InvalidData, "the kernel's list of sockets is malformed");
    if bytes.is_empty() {
        return Err(malformed());
    }
    while !bytes.is_empty() {
        let length = number(bytes, 0).ok_or_else(malformed)? as usize;
        let kind = short(bytes, 4).ok_or_else(malformed)?;
        let body = bytes.get(16..length).ok_or_else(malformed)?;
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = number(body, 0).ok_or_else(malformed)?.cast_signed();
                return Err(io::Error::from_raw_os_error(-code));
            }
            SOCK_DIAG_BY_FAMILY => sockets.push(socket(body).ok_or_else(malformed)?),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn socket(body: &[u8]) -> Option<Socket> {
    let mut socket = Socket {
        inode: number(body, 4)?,
        state: *body.get(2)?,
        file: None,
        name: Vec::new(),
        peer: None,
        waiting: Vec::new(),
    };
    let mut attributes = body.get(16..)?;
    while attributes.len() >= 4 {
        let length = usize::from(short(attributes, 0)?);
        let value = attributes.get(4..length)?;
        match short(attributes, 2)? {
            UNIX_DIAG_NAME => socket.name = value.strip_suffix(&[0]).unwrap_or(value).to_owned(),
            UNIX_DIAG_VFS => socket.file = Some((number(value, 0)?, number(value, 4)?)),
            UNIX_DIAG_PEER => socket.peer = Some(number(value, 0)?),
            UNIX_DIAG_ICONS => {
                socket.waiting = (0..value.len() / 4).filter_map(|index| number(value, index * 4)).collect();
            }
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(socket)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The processes that have these sockets open.
fn holders(inodes: &HashSet<u32>) -> HashMap<u32, Vec<Holder>> {
    let mut holders: HashMap<u32, Vec<Holder>> = HashMap::new();
    if inodes.is_empty() {
        return holders;
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        // It has ended, or is not ours to see.
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        let inodes = open.flatten().filter_map(|entry| {
            let link = fs::read_link(entry.path()).ok()?;
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
            inodes.contains(&inode).then_some(inode)
        });
        for inode in inodes {
            let holders = holders.entry(inode).or_default();
            if holders.last().is_none_or(|last| last.pid != pid) {
                holders.push(Holder { pid, comm: peer::comm(pid) });
            }
        }
    }
    holders
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn who_listens_and_who_is_connected_is_told_by_socket() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        let (listener, _other) = (UnixListener::bind(&one).unwrap(), UnixListener::bind(&other).unwrap());
        let _waiting = UnixStream::connect(&one).unwrap();
        let _accepted = listener.accept().unwrap();
        let _client = UnixStream::connect(&one).unwrap();
        let us = Holder {
            pid: std::process::id().cast_signed(),
            comm: peer::comm(std::process::id().cast_signed()),
        };
        let peers = at(&[&one, &other, &dir.path().join("none")]).unwrap();
        let expected = [
            Peers { listeners: vec![us.clone()], clients: vec![(us.clone(), 2)] },
            Peers { listeners: vec![us], clients: vec![] },
            Peers::default(),
        ];
        assert_eq!(peers, expected);
    }

    #[test]
    fn a_name_counts_only_where_no_socket_is_of_the_file() {
        let socket = |inode, file| Socket {
            inode,
            state: LISTENING,
            file: Some(file),
            name: b"/run/s".to_vec(),
            peer: None,
            waiting: vec![],
        };
        let sockets = [socket(1, (7, 1)), socket(2, (8, 1))];
        for (file, found) in [((7, 1), vec![1]), ((8, 1), vec![2]), ((9, 9), vec![1, 2])] {
            let at = at_file(&sockets, Some((file, b"/run/s")), LISTENING);
            assert_eq!(at.map(|socket| socket.inode).collect::<Vec<_>>(), found, "{file:?}");
        }
    }

    #[test]
    fn an_answer_that_is_cut_off_is_an_error() {
        let mut whole = request();
        whole.truncate(32);
        whole[..4].copy_from_slice(&32_u32.to_ne_bytes());
        whole[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        for length in 0..whole.len() {
            assert!(pieces(&whole[..length], &mut Vec::new()).is_err(), "{length}");
        }
        let mut sockets = Vec::new();
        assert!(!pieces(&whole, &mut sockets).unwrap());
        assert_eq!(sockets.len(), 1);
    }
}
