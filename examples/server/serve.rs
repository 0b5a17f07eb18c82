//! Starts and stops the server.

use std::{
    future::IntoFuture,
    io::{self, ErrorKind},
    net::SocketAddr,
    pin::pin,
    time::Duration,
};

use axum::Router;
use tokio::{net::TcpListener, sync::oneshot, time::sleep};

/// How long open requests may take after the signal to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Listens on the port, or explains why that is not possible.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            format!("{address} is in use by another program. Stop it, or choose another port with --listen.")
        }
        _ => format!("can't listen on {address}: {error}"),
    })
}

/// Serves until Ctrl-C or SIGTERM, and then waits for open requests.
pub(crate) async fn until_stopped(listener: TcpListener, app: Router) -> io::Result<()> {
    let (stop, stopped) = oneshot::channel::<()>();
    // the login service needs the address of each client
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let mut server = pin!(server.into_future());
    tokio::select! {
        result = &mut server => return result,
        () = signal() => println!("Stopping. Press Ctrl-C again to close open connections."),
    }
    let _ = stop.send(());
    // live streams never end on their own
    tokio::select! {
        result = server => result,
        () = sleep(GRACE) => Ok(()),
        () = signal() => Ok(()),
    }
}

async fn signal() {
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    let _ = tokio::signal::ctrl_c().await;
}
