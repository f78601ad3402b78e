//! What is in a carrier: taken apart, changed as a damage or another version would, and put together again.

use std::{
    fs::File,
    io::{IoSlice, IoSliceMut, Read as _, Seek as _, SeekFrom, Write as _},
    mem::MaybeUninit,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use anyhow::{Context as _, Result, ensure};
use criprobe::{carry::checksum, tap::Tap};
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};

/// The contents of a carrier.
pub(super) struct Parts {
    pub(super) state: Vec<u8>,
    pub(super) sockets: Vec<OwnedFd>,
    /// Whether the state can be changed by others.
    pub(super) is_open: bool,
    pub(super) has_end: bool,
}

impl Parts {
    /// Takes everything out.
    pub(super) fn of(carrier: &OwnedFd) -> Result<Self> {
        let (mut state, mut sockets) = (None, Vec::new());
        loop {
            let mut kind = [0];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            recvmsg(carrier, &mut [IoSliceMut::new(&mut kind)], &mut control, flags)?;
            let mut descriptors = Vec::new();
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(passed) = part {
                    descriptors.extend(passed);
                }
            }
            match kind[0] {
                b'M' => state = descriptors.pop(),
                b'S' => sockets.append(&mut descriptors),
                _ => break,
            }
        }
        let (mut file, mut bytes) = (File::from(state.context("a state")?), Vec::new());
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut bytes)?;
        Ok(Self { state: bytes, sockets, is_open: false, has_end: true })
    }

    /// A carrier with all of it: the end to keep, and the one that sends.
    pub(super) fn put_together(&self) -> Result<(OwnedFd, OwnedFd)> {
        let (sending, receiving) = pair()?;
        let mut file = File::from(memfd_create("handover", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.write_all(&self.state)?;
        if !self.is_open {
            fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK)?;
        }
        send(&sending, b'M', &[file.as_fd()])?;
        let sockets: Vec<_> = self.sockets.iter().map(AsFd::as_fd).collect();
        for some in sockets.chunks(250) {
            send(&sending, b'S', some)?;
        }
        if self.has_end {
            send(&sending, b'E', &[])?;
        }
        Ok((receiving, sending))
    }

    /// Changes the head, which stays a valid one.
    pub(super) fn change_head(&mut self, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let head = 8..8 + number(&self.state, 0)?;
        change(&mut self.state[head.clone()]);
        seal(&mut self.state[head]);
        Ok(())
    }

    /// Changes the record of a connection, which stays a valid one.
    pub(super) fn change_record(&mut self, at: usize, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let record = self.record(at)?;
        change(&mut self.state[record.clone()]);
        seal(&mut self.state[record]);
        Ok(())
    }

    /// As a version that keeps other state in its taps would have written it.
    pub(super) fn of_another_layout(&mut self) -> Result<()> {
        for at in 0..self.records()?.len() {
            let mut is_changed = false;
            self.change_record(at, |record| {
                let layout = Tap::LAYOUT.to_le_bytes();
                if let Some(at) = record.windows(8).position(|window| window == layout) {
                    record[at] ^= 1;
                    is_changed = true;
                }
            })?;
            ensure!(is_changed, "record {at} has no layout");
        }
        Ok(())
    }

    /// Where the record of a connection is.
    pub(super) fn record(&self, at: usize) -> Result<Range<usize>> {
        self.records()?.get(at).cloned().context("so many connections")
    }

    fn records(&self) -> Result<Vec<Range<usize>>> {
        let length = number(&self.state, 0)?;
        // Layout and checksum, the runtime's path, two times and numbers, and the length of each record.
        let at = 8 + 16 + 8 + number(&self.state, 24)? + 16;
        let mut begin = 8 + length;
        let mut records = Vec::new();
        for record in 0..number(&self.state, at)? {
            let end = begin + number(&self.state, at + 8 + 8 * record)?;
            records.push(begin..end);
            begin = end;
        }
        Ok(records)
    }
}

/// An empty carrier: the end that sends, and the one to keep.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

fn send(to: &OwnedFd, kind: u8, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    ensure!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
    sendmsg(to, &[IoSlice::new(&[kind])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn number(bytes: &[u8], at: usize) -> Result<usize> {
    let bytes = bytes.get(at..at + 8).context("eight bytes")?;
    Ok(usize::try_from(u64::from_le_bytes(bytes.try_into()?))?)
}

/// Gives a head or a record the checksum that fits.
fn seal(bytes: &mut [u8]) {
    let checksum = checksum(&bytes[16..]);
    bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
}
