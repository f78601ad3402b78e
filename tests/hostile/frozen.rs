//! A runtime that stands still.

use std::{io::Write, net::Shutdown, os::unix::net::UnixStream, time::Duration};

use anyhow::Result;
use criprobe::clock;

use crate::{
    made_up::{self, DATA, END_HEADERS, FREEZE, HEADERS},
    support::{PATIENCE, daemon::Daemon, eventually, stays},
};

/// A client that has sent to a frozen runtime as much as it could.
fn stuck(daemon: &Daemon) -> Result<UnixStream> {
    let mut client = made_up::connect(&daemon.socket())?;
    client.write_all(&made_up::frame(HEADERS, END_HEADERS, 1, &made_up::call(FREEZE)))?;
    client.set_write_timeout(Some(Duration::from_millis(300)))?;
    let piece = made_up::frame(DATA, 0, 1, &[0; 16_000]);
    for _ in 0..1000 {
        if client.write_all(&piece).is_err() {
            return Ok(client);
        }
    }
    anyhow::bail!("16 MB went to a runtime that reads nothing")
}

#[tokio::test(flavor = "multi_thread")]
async fn row_19a_a_client_that_is_gone_ends_its_connection_while_the_runtime_takes_nothing() -> Result<()> {
    let (socket, _dir) = made_up::start()?;
    let mut daemon = Daemon::spawn(&socket, &[])?;
    eventually("the runtime is there", PATIENCE, async || {
        Ok(daemon.status().await.ok().filter(|status| status["runtime"]["state"] == "ok"))
    })
    .await?;
    let open = async || -> Result<u64> {
        Ok(daemon.status().await?["connections"]["open"].as_u64().unwrap_or_default())
    };
    let half_closed = stuck(&daemon)?;
    half_closed.shutdown(Shutdown::Write)?;
    let gone: Vec<_> = (0..4).map(|_| stuck(&daemon)).collect::<Result<_>>()?;
    eventually("all are open", PATIENCE, async || Ok((open().await? == 5).then_some(()))).await?;
    drop(gone);
    eventually("those that are gone are closed", PATIENCE, async || Ok((open().await? == 1).then_some(())))
        .await?;
    stays("one that can still read an answer is kept", Duration::from_secs(1), async || {
        Ok(open().await? == 1)
    })
    .await?;

    let leaves_during_the_drain = stuck(&daemon)?;
    daemon.terminate();
    let asked = clock::now();
    eventually("it drains", PATIENCE, async || {
        Ok(daemon.status().await.ok().filter(|status| status["draining"] == true))
    })
    .await?;
    drop((half_closed, leaves_during_the_drain));
    assert_eq!(daemon.ended().await?.code(), Some(0));
    assert!(clock::now() - asked < Duration::from_secs(8), "it waited for clients that are gone");
    Ok(())
}
