//! What hostile pods run: a server a trick, at every address of loopback. They count who came and who is still there.
//! One thread at the lowest priority: what a pod does is not criprobe's doing.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use socket2::{Domain, Socket, Type};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::sleep,
};

use crate::{
    good::PODS,
    http2::{ACK, PING, put, put_settings},
    node::Node,
    targets::give_way,
    tricks::{self, COUNT, Server},
};

/// 64 KiB: what a server keeps on its way, so that one that never ends does not fill the machine's memory.
const SENT: usize = 64 << 10;

/// 50 ms between two bytes of a slow server: no read times out, and the whole takes for ever.
const DRIP: Duration = Duration::from_millis(50);

/// Connections that fill the queue of a listener that has none: Linux holds one more than asked for.
const FILLING: usize = 4;

/// The servers of all hostile pods.
pub(crate) struct Servers {
    /// The port of each trick; 0 where it needs none.
    pub(crate) ports: [u16; COUNT],
    seen: Arc<Seen>,
    /// Never accepts, and is full.
    _full: (Socket, Vec<Socket>),
}

/// What came.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// By trick, since the start.
    came: [AtomicU64; COUNT],
    /// Connections that the other side has not closed.
    open: AtomicUsize,
}

impl Seen {
    /// How often a trick was met.
    pub(crate) fn came(&self, trick: usize) -> u64 {
        self.came[trick].load(Ordering::Relaxed)
    }

    /// Begins something that is counted until the guard is gone.
    pub(crate) fn begin(self: &Arc<Self>, trick: usize) -> Open {
        self.came[trick].fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }

    /// What has begun and not ended.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// Something that has not ended.
#[derive(Debug)]
pub(crate) struct Open(Arc<Seen>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Servers {
    /// Listens for all tricks, until the process ends.
    pub(crate) fn listen() -> io::Result<Self> {
        let full = full_backlog()?;
        let full_port = port(&full.0)?;
        let closed_port = {
            let unused = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            unused.local_addr()?.port()
        };
        let (mut ports, mut listeners) = ([0; COUNT], Vec::new());
        for (trick, port) in ports.iter_mut().enumerate() {
            *port = match tricks::server(trick) {
                None => 0,
                Some(Server::FullBacklog) => full_port,
                Some(Server::Closed) => closed_port,
                Some(server) => {
                    let listener = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                    listener.set_nonblocking(true)?;
                    let port = listener.local_addr()?.port();
                    listeners.push((trick, server, listener));
                    port
                }
            };
        }
        let silent = listeners.iter().find(|(_, server, _)| *server == Server::Silence);
        let silent = silent.map_or(0, |(trick, ..)| ports[*trick]);
        let seen = Arc::new(Seen::default());
        let served = seen.clone();
        thread::Builder::new().name("hostile".into()).spawn(move || run(listeners, silent, &served))?;
        Ok(Self { ports, seen, _full: full })
    }

    /// What came to them.
    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }
}

/// A listener that accepts nothing, with a queue that is full: later connections are not answered at all.
fn full_backlog() -> io::Result<(Socket, Vec<Socket>)> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    listener.listen(0)?;
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port(&listener)?)).into();
    let filling = (0..FILLING).map(|_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        // In progress, or not to be answered: both fill the queue.
        let _ = socket.connect(&to);
        Ok(socket)
    });
    let filling = filling.collect::<io::Result<_>>()?;
    Ok((listener, filling))
}

fn port(socket: &Socket) -> io::Result<u16> {
    let address = socket.local_addr()?.as_socket();
    address.map(|address| address.port()).ok_or_else(|| io::Error::other("a listener without a port"))
}

fn run(listeners: Vec<(usize, Server, std::net::TcpListener)>, silent: u16, seen: &Arc<Seen>) {
    give_way();
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let threads = threads.expect("the bench has descriptors enough");
    threads.block_on(async {
        let accepting = listeners.into_iter().map(|(trick, server, listener)| {
            let seen = seen.clone();
            tokio::spawn(async move {
                let listener = TcpListener::from_std(listener).expect("it is not blocking");
                loop {
                    let Ok((stream, _)) = listener.accept().await else {
                        sleep(DRIP).await;
                        continue;
                    };
                    let open = seen.begin(trick);
                    tokio::spawn(async move {
                        // The other side leaves whenever it likes.
                        let _ = serve(stream, server, silent).await;
                        drop(open);
                    });
                }
            })
        });
        for accepting in accepting.collect::<Vec<_>>() {
            let _ = accepting.await;
        }
    });
}

/// Plays its part until the other side has closed.
async fn serve(mut stream: TcpStream, server: Server, silent: u16) -> io::Result<()> {
    socket2::SockRef::from(&stream).set_send_buffer_size(SENT)?;
    let local = stream.local_addr()?.ip();
    let (mut reader, mut writer) = stream.split();
    let speak = async {
        match server {
            Server::Silence | Server::FullBacklog | Server::Closed => {}
            Server::EndlessBody => {
                writer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                repeat(&mut writer, &[b'b'; 4096]).await?;
            }
            Server::SlowHead => {
                drip(&mut writer, b"HTTP/1.1 200 OK\r\nX-Slow: ").await?;
            }
            Server::SlowBody => {
                writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").await?;
                drip(&mut writer, b"").await?;
            }
            Server::EndlessHead => {
                writer.write_all(b"HTTP/1.1 200 OK\r\n").await?;
                repeat(&mut writer, b"X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")
                    .await?;
            }
            Server::EndlessContinue => repeat(&mut writer, b"HTTP/1.1 100 Continue\r\n\r\n").await?,
            Server::Loop => redirect(&mut writer, "/").await?,
            Server::OtherPort => redirect(&mut writer, &format!("http://{local}:{silent}/")).await?,
            Server::OtherHost => {
                redirect(&mut writer, &format!("http://{}:{silent}/", Node::address(PODS))).await?;
            }
            Server::BadChunks => {
                writer.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
                repeat(&mut writer, b"zzzz\r\n").await?;
            }
            Server::EndlessFrames => {
                let (mut first, mut frames) = (Vec::new(), Vec::new());
                put_settings(&mut first, &[]);
                writer.write_all(&first).await?;
                put_settings(&mut frames, &[(4, 65_535)]);
                put(&mut frames, PING, 0, 0, &[7; 8]);
                put(&mut frames, PING, ACK, 0, &[7; 8]);
                repeat(&mut writer, &frames).await?;
            }
            Server::Noise => repeat(&mut writer, &[0xff; 4096]).await?,
        }
        io::Result::Ok(())
    };
    let listen = async {
        let mut heard = [0; 4096];
        while reader.read(&mut heard).await? > 0 {}
        io::Result::Ok(())
    };
    // What it has to say may end; it stays until the other side goes.
    let (spoken, heard) = tokio::join!(speak, listen);
    spoken.and(heard)
}

async fn repeat(writer: &mut (impl AsyncWriteExt + Unpin), octets: &[u8]) -> io::Result<()> {
    let all = octets.repeat(4096_usize.div_ceil(octets.len()));
    loop {
        writer.write_all(&all).await?;
    }
}

async fn drip(writer: &mut (impl AsyncWriteExt + Unpin), first: &[u8]) -> io::Result<()> {
    writer.write_all(first).await?;
    loop {
        writer.write_all(b"s").await?;
        sleep(DRIP).await;
    }
}

async fn redirect(writer: &mut (impl AsyncWriteExt + Unpin), to: &str) -> io::Result<()> {
    let head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
    writer.write_all(head.as_bytes()).await
}
