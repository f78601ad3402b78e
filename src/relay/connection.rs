//! One client connection and its own connection to the runtime: dial, pump both ways, drain.
//!
//! accepted --runtime there--> relaying --either side over--> closed
//! relaying --drain--> announced (a GOAWAY without limit) --calls done--> closed (a GOAWAY that names the last stream)
//! relaying --drain, after a GOAWAY of the runtime--> leaving --calls done, and quiet--> closed (without a word of ours)
//! any of them --freezing--> frozen: another relay goes on, from the same byte

use std::{
    cell::RefCell,
    future::{Future, pending, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::time::{Sleep, sleep};

use super::{
    Phase, Shared,
    descriptors::Counted,
    handover::FrozenConnection,
    pump::{Finished, Pump},
    registry::RelayedConnection,
    socket::Socket,
};
use crate::{
    clock,
    tap::{Boundary, Tap, TapEvent},
};

/// 64 KiB: the size of one read. A relay thread has one such buffer; a connection holds at most the same amount again,
/// and only while the receiving side is slow and the pump's bound for all connections is not reached.
const SCRATCH: usize = 64 * 1024;

/// 100 ms between the two GOAWAYs: time for the first one to reach the client, so that it opens no stream in between.
const ANNOUNCEMENT: Duration = Duration::from_millis(100);

/// 100 ms: how often a connection checks itself while it drains, is closed on one side, or its runtime reads nothing.
const LOOK: Duration = Duration::from_millis(100);

/// 500 ms without a byte: when a blind connection, or one that has just been made, counts as quiet.
const QUIET: Duration = Duration::from_millis(500);

/// 1 s without a byte from a side that only stopped receiving: then the connection ends. Bytes that were on their way to
/// this side are lost, and whoever sent them would wait for an answer.
const LAST_WORDS: Duration = Duration::from_secs(1);

thread_local! {
    static SCRATCH_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
    /// Events of this thread's taps, between decoding some bytes and passing the events on.
    static EVENTS: RefCell<Vec<TapEvent>> = const { RefCell::new(Vec::new()) };
}

/// Relays one connection until it is over.
///
/// `born` is the phase in which it was accepted. `undialled` is released once there is a connection to the runtime.
pub(super) async fn relay(
    shared: &Shared,
    connection: &RelayedConnection,
    born: Phase,
    client: Socket,
    undialled: Counted,
) {
    let link = Link {
        shared,
        connection,
        tap: Tap::within(&shared.room, connection.id, Arc::clone(&connection.peer)),
        up: Pump::new(&shared.waiting),
        down: Pump::new(&shared.waiting),
        born,
        announced: None,
        farewell: None,
        moved_at: clock::now(),
        moved: (0, 0),
        taken: 0,
        owes_answer: false,
        is_cut: false,
        calls: 0,
    };
    link.dial(client, undialled).await;
}

/// Goes on with a connection of another relay until it is over.
pub(super) async fn resume(
    shared: &Shared,
    connection: &RelayedConnection,
    frozen: FrozenConnection,
    undialled: Counted,
) {
    let FrozenConnection { client, runtime, up, down, tap, farewell, owes_answer, .. } = frozen;
    let sockets = Socket::new(client).and_then(|client| Ok((client, runtime.map(Socket::new).transpose()?)));
    let (moved, calls) = ((up.bytes, down.bytes), tap.open_calls());
    let link = Link {
        shared,
        connection,
        tap,
        up: Pump::resume(&shared.waiting, up),
        down: Pump::resume(&shared.waiting, down),
        // Such a connection ends in every drain.
        born: Phase::Serving,
        announced: None,
        farewell,
        moved_at: clock::now(),
        moved,
        taken: 0,
        owes_answer,
        is_cut: false,
        // As the registry counts them.
        calls,
    };
    match sockets {
        Ok((client, Some(runtime))) => {
            drop(undialled);
            link.relay(client, runtime).await;
        }
        Ok((client, None)) => link.dial(client, undialled).await,
        Err(error) => {
            tracing::warn!(conn = connection.id.0, %error, "cannot go on with a connection");
            link.close();
        }
    }
}

/// How a connection left its relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// It is over.
    Over,
    /// Another relay goes on with it.
    Freeze,
}

struct Link<'a> {
    shared: &'a Shared,
    connection: &'a RelayedConnection,
    tap: Tap,
    /// Client to runtime.
    up: Pump,
    /// Runtime to client.
    down: Pump,
    /// The phase in which it was accepted: a connection accepted during a drain is served normally until the end.
    born: Phase,
    /// When the first GOAWAY was sent.
    announced: Option<Instant>,
    /// Until the client has been asked to connect again, because this connection cannot be understood any more: where the
    /// runtime's frames end.
    farewell: Option<Boundary>,
    /// For blind connections: when bytes last moved.
    moved_at: Instant,
    moved: (u64, u64),
    /// Bytes that the runtime had read at the last check.
    taken: u64,
    /// For blind connections: the last bytes came from the client, so it most likely waits for an answer.
    owes_answer: bool,
    /// We closed it.
    is_cut: bool,
    calls: usize,
}

impl Link<'_> {
    /// Relays once there is a connection to the runtime.
    async fn dial(self, client: Socket, undialled: Counted) {
        let mut phase = self.shared.phase.clone();
        let dialled = tokio::select! {
            biased;
            () = async {
                if phase.wait_for(|phase| *phase == Phase::Freezing).await.is_err() {
                    pending::<()>().await;
                }
            } => return self.freeze(client, None),
            dialled = super::dial::dial(self.shared, &client) => dialled,
        };
        drop(undialled);
        match dialled {
            Some(runtime) => self.relay(client, runtime).await,
            None => self.close(),
        }
    }

    async fn relay(mut self, mut client: Socket, mut runtime: Socket) {
        match self.run(&mut client, &mut runtime).await {
            Exit::Over => self.close(),
            Exit::Freeze => self.freeze(client, Some(runtime)),
        }
    }

    /// Leaves everything to another relay.
    fn freeze(mut self, client: Socket, runtime: Option<Socket>) {
        self.has_rested(Duration::ZERO, clock::now());
        let Self { shared, connection, tap, up, down, farewell, owes_answer, .. } = self;
        let frozen = FrozenConnection {
            id: connection.id,
            peer: Arc::clone(&connection.peer),
            since: connection.since,
            blind: connection.blind(),
            client: client.into_stream(),
            runtime: runtime.map(Socket::into_stream),
            up: up.freeze(),
            down: down.freeze(),
            tap,
            farewell,
            owes_answer,
        };
        // It is not taken if its relay was dropped instead of frozen.
        let _ = shared.frozen.send(frozen);
    }

    async fn run(&mut self, client: &mut Socket, runtime: &mut Socket) -> Exit {
        let mut phase = self.shared.phase.clone();
        let born = self.born;
        let mut changed = pin!(async move {
            if phase.wait_for(|phase| *phase != born).await.is_err() {
                pending::<()>().await;
            }
        });
        let (mut is_waiting, mut has_changed) = (false, false);
        let mut look: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            // Polled once to register the waker: this is the hot path. When a phase has been announced, polled each time:
            // its announcement may still be under way, and wake a connection that was made meanwhile without any change.
            // That uses up the waker, and only another poll registers it again.
            if !has_changed && (!is_waiting || *self.shared.phase.borrow() != Phase::Serving) {
                has_changed = changed.as_mut().poll(cx).is_ready();
                is_waiting = true;
            }
            loop {
                if has_changed && *self.shared.phase.borrow() == Phase::Freezing {
                    return Poll::Ready(Exit::Freeze);
                }
                if self.poll_bytes(cx, client, runtime).is_ready() {
                    return Poll::Ready(Exit::Over);
                }
                // Nothing wakes a connection that is closed on one side, that ends when its calls do, or whose client
                // leaves while it is not read from. So it polls.
                let is_finished_on_one_side = self.up.finished().is_some() || self.down.finished().is_some();
                let is_to_look = has_changed || is_finished_on_one_side || !self.up.is_flushed();
                if !is_to_look && look.is_none() {
                    return Poll::Pending;
                }
                let timer = look.get_or_insert_with(|| {
                    self.taken = self.up.bytes;
                    Box::pin(sleep(LOOK))
                });
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                look = None;
                if self.is_abandoned(client) {
                    return Poll::Ready(Exit::Over);
                }
            }
        })
        .await
    }

    /// Moves bytes both ways, then checks whether the connection is over.
    fn poll_bytes(&mut self, cx: &mut Context<'_>, client: &mut Socket, runtime: &mut Socket) -> Poll<()> {
        SCRATCH_BUFFER.with_borrow_mut(|scratch| {
            self.poll_up(cx, client, runtime, scratch);
            self.poll_down(cx, runtime, client, scratch);
            self.note();
            self.bid_farewell(cx, client);
            if self.drain(cx, client) {
                return Poll::Ready(());
            }
            if self.is_over(client, runtime) { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    fn poll_up(&mut self, cx: &mut Context<'_>, from: &mut Socket, to: &mut Socket, scratch: &mut [u8]) {
        let Self { up, tap, shared, connection, .. } = self;
        let was_finished = up.finished().is_some();
        let polled = up.poll(cx, &mut *from, to, scratch, |bytes| {
            watch(tap, shared, connection, |tap, now, out| {
                tap.client_bytes(bytes, now, |event| out.push(event));
            });
        });
        if polled == Poll::Ready(Finished::Refused) && !was_finished {
            self.refuse(from);
        }
    }

    fn poll_down(&mut self, cx: &mut Context<'_>, from: &mut Socket, to: &mut Socket, scratch: &mut [u8]) {
        let Self { down, tap, shared, connection, farewell, .. } = self;
        let was_finished = down.finished().is_some();
        let polled = down.poll(cx, &mut *from, to, scratch, |bytes| {
            if let Some(boundary) = farewell {
                boundary.pass(bytes);
            }
            watch(tap, shared, connection, |tap, now, out| {
                tap.runtime_bytes(bytes, now, |event| out.push(event));
            });
        });
        if polled == Poll::Ready(Finished::Refused) && !was_finished {
            self.refuse(from);
        }
    }

    /// The bytes of this sender are refused.
    fn refuse(&mut self, sender: &Socket) {
        sender.refuse();
        self.moved = (self.up.bytes, self.down.bytes);
        self.moved_at = clock::now();
    }

    /// Shows others what is in flight and what has passed.
    fn note(&mut self) {
        self.connection.bytes.store(self.up.bytes, self.down.bytes);
        let calls = self.tap.open_calls();
        if calls != self.calls {
            self.calls = calls;
            self.connection.calls.store(calls, Ordering::Relaxed);
        }
    }

    /// Whether no more bytes can pass. A side that only stopped sending may still receive answers.
    fn is_over(&mut self, client: &Socket, runtime: &Socket) -> bool {
        match (self.up.finished(), self.down.finished()) {
            (Some(_), Some(_)) => true,
            (Some(Finished::Ended), None) => client.is_gone(),
            (None, Some(Finished::Ended)) => runtime.is_gone(),
            // What the side that reads no more still sends is delivered before the end.
            (Some(Finished::Refused), None) => {
                client.is_gone() || (self.down.is_flushed() && self.has_rested(LAST_WORDS, clock::now()))
            }
            (None, Some(Finished::Refused)) => {
                runtime.is_gone() || (self.up.is_flushed() && self.has_rested(LAST_WORDS, clock::now()))
            }
            (None, None) => false,
        }
    }

    /// Whether the client has closed completely and the runtime has read nothing of what it sent since the last check.
    /// A runtime that keeps reading gets all of it; a client that only stopped sending may still get answers.
    fn is_abandoned(&self, client: &Socket) -> bool {
        !self.up.is_flushed() && self.up.bytes == self.taken && client.is_gone()
    }

    /// Asks the client of a connection that cannot be understood any more to connect again: its next calls come on the new
    /// connection, and those that are open here end here.
    fn bid_farewell(&mut self, cx: &mut Context<'_>, client: &mut Socket) {
        let is_due = self.farewell.as_ref().is_some_and(Boundary::is_between_frames);
        if is_due && self.down.is_flushed() && self.down.finished().is_none() {
            self.farewell = None;
            self.down.inject(&go_away(i32::MAX as u32));
            // If the client takes it later, it stands before what follows.
            let _ = self.down.poll_ours(cx, client);
        }
    }

    /// Performs the steps of the drain. Returns whether the connection is to be closed now.
    fn drain(&mut self, cx: &mut Context<'_>, client: &mut Socket) -> bool {
        let phase = *self.shared.phase.borrow();
        let is_to_stay = matches!(phase, Phase::Serving | Phase::Freezing);
        if is_to_stay || (phase == Phase::Draining && self.born == Phase::Draining) {
            return false;
        }
        let now = clock::now();
        if self.tap.blindness().is_some() {
            self.is_cut = (self.has_rested(QUIET, now) && !self.owes_answer) || phase == Phase::Closing;
            return self.is_cut;
        }
        if self.tap.has_goodbye() {
            // The runtime has already asked the client to open no more streams. A GOAWAY of ours could name a higher
            // stream than the runtime's, which is forbidden (RFC 9113, 6.8).
            let is_done = self.tap.open_calls() == 0 && self.down.is_flushed() && self.has_rested(QUIET, now);
            return is_done || phase == Phase::Closing;
        }
        let boundary =
            self.tap.between_answers().filter(|_| self.down.is_flushed() && self.down.finished().is_none());
        let Some(highest) = boundary else {
            // In the middle of an answer, or before the first one: no frame of ours may be inserted there.
            return phase == Phase::Closing || (self.tap.open_calls() == 0 && self.has_rested(QUIET, now));
        };
        // It has only just connected, to make a call: that comes first.
        if phase != Phase::Closing && highest == 0 && !self.has_rested(QUIET, now) {
            return false;
        }
        let announced = *self.announced.get_or_insert_with(|| {
            self.down.inject(&go_away(i32::MAX as u32));
            now
        });
        let is_due = phase == Phase::Closing || now.duration_since(announced) >= ANNOUNCEMENT;
        let is_last = is_due && self.tap.open_calls() == 0;
        if is_last {
            self.down.inject(&go_away(highest));
        }
        let is_refused = matches!(self.down.poll_ours(cx, client), Poll::Ready(Err(_)));
        is_last || is_refused || phase == Phase::Closing
    }

    /// Whether no byte has moved for so long.
    fn has_rested(&mut self, least: Duration, now: Instant) -> bool {
        let moved = (self.up.bytes, self.down.bytes);
        if moved != self.moved {
            self.owes_answer = moved.1 == self.moved.1;
            self.moved = moved;
            self.moved_at = now;
        }
        now.duration_since(self.moved_at) >= least
    }

    fn close(mut self) {
        let phase = *self.shared.phase.borrow();
        let has_cut_blindly = self.tap.blindness().is_some() && self.is_cut && self.owes_answer;
        let has_cut_calls = self.calls > 0 && phase != Phase::Serving;
        if (has_cut_blindly || has_cut_calls)
            && let Some(passed_over) = self.shared.notices.cut.due(clock::now())
        {
            let (conn, peer) = (self.connection.id.0, &self.connection.peer);
            if has_cut_blindly {
                tracing::warn!(conn, %peer, passed_over, "closed a blind connection that may have been waiting for an answer");
            } else {
                let calls = self.tap.open_methods();
                tracing::warn!(conn, %peer, ?calls, passed_over, "aborted calls that did not end in time");
            }
        }
        // A runtime that closes a connection which its client still uses may be stopping, or has restarted. If it sent
        // a GOAWAY to this client, or does not speak HTTP/2, nothing is wrong with it.
        if self.down.finished() == Some(Finished::Ended)
            && self.up.finished().is_none()
            && self.tap.is_ended_without_word()
            && self.shared.gate.doubted(clock::now())
        {
            tracing::debug!(conn = self.connection.id.0, "runtime closed a connection: checking the runtime");
        }
        watch(&mut self.tap, self.shared, self.connection, |tap, now, out| {
            tap.closed(now, |event| out.push(event));
        });
        tracing::debug!(
            conn = self.connection.id.0,
            peer = %self.connection.peer,
            up = self.up.bytes,
            down = self.down.bytes,
            "connection closed"
        );
    }
}

/// Runs the tap. A panic in it blinds this connection and has no other effect.
fn watch(
    tap: &mut Tap,
    shared: &Shared,
    connection: &RelayedConnection,
    look: impl FnOnce(&mut Tap, Instant, &mut Vec<TapEvent>),
) {
    let now = clock::now();
    let was_sighted = tap.blindness().is_none();
    EVENTS.with_borrow_mut(|events| {
        if catch_unwind(AssertUnwindSafe(|| look(tap, now, events))).is_err() {
            tap.abandon(|event| events.push(event));
        }
        shared.output.send(events);
    });
    if let Some(reason) = tap.blindness().filter(|_| was_sighted) {
        let (conn, peer, notices) = (connection.id.0, &connection.peer, &shared.notices);
        if shared.registry.blinded(connection, reason) {
            if let Some(passed_over) = notices.blind_in_calls.due(now) {
                tracing::warn!(conn, %peer, %reason, passed_over, "connection went blind during calls: what it changes is seen in the lists only");
            }
        } else if let Some(passed_over) = notices.blind.due(now) {
            tracing::info!(conn, %peer, %reason, passed_over, "connection is relayed blindly");
        }
    }
}

/// A GOAWAY with NO_ERROR (RFC 9113, 6.8): streams above `last` were not processed and will not be.
fn go_away(last: u32) -> [u8; 17] {
    let mut frame = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    frame[9..13].copy_from_slice(&last.to_be_bytes());
    frame
}
