//! A service whose handler works under a lock: the work can fail, each outcome has its HTTP status,
//! and a shutdown releases what is held. `-- serve 127.0.0.1:3000` listens until SIGTERM or Ctrl-C;
//! otherwise the example calls itself a few times and ends.

mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use rwlease::{Client, ErrorKind, FencingToken};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;
use tower::ServiceExt;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long requests may go on after the order to stop. Shorter than the time after which the
/// supervisor kills the process.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct Service {
    locks: Client,
    orders: Store,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let service = Service { locks: common::connect().await?, orders: Store::default() };
    let app = Router::new()
        .route("/orders/{id}/pay", post(pay))
        .route("/orders/{id}/ship", post(ship))
        .with_state(service.clone());
    let mut arguments = std::env::args().skip_while(|argument| argument != "serve");
    match (arguments.next(), arguments.next()) {
        (Some(_), address) => serve(app, &address.unwrap_or("127.0.0.1:3000".into())).await?,
        (None, _) => demonstrate(&app, &service.locks).await?,
    }
    // Last: what is still held is released, and its work is cancelled.
    let left = service.locks.shutdown(GRACE).await;
    println!("stopped; locks that may still be held: {left:?}");
    Ok(())
}

/// Serves until the order to stop. Then takes no requests, and lets the others end within `GRACE`.
async fn serve(app: Router, address: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let (stop, mut stopping) = watch::channel(false);
    let stopped = async move {
        terminated().await;
        let _ = stop.send(true);
    };
    let server = axum::serve(listener, app).with_graceful_shutdown(stopped);
    let out_of_time = async {
        let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
        sleep(GRACE).await;
    };
    tokio::select! {
        result = server.into_future() => result,
        () = out_of_time => Ok(()),
    }
}

async fn terminated() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
        tokio::select! { _ = interrupt => {}, _ = terminate.recv() => {} }
    }
    #[cfg(not(unix))]
    let _ = interrupt.await;
}

/// If the client of the request goes away, axum drops this future. Then the lock is released, or
/// the request leaves the queue.
async fn pay(State(service): State<Service>, Path(id): Path<u64>) -> Result<String, AppError> {
    let order = service.locks.rwlock(format!("order:{{{id}}}"))?;
    let request = order.write().timeout(Duration::from_secs(2));
    let work = async |lease: rwlease::Lease| service.orders.pay(id, lease.fencing_token()).await;
    // The outer error is the lock's, the inner one is the work's.
    let receipt = request.run_while_held(work).await??;
    Ok(receipt)
}

/// Takes a while.
async fn ship(State(service): State<Service>, Path(id): Path<u64>) -> Result<String, AppError> {
    let order = service.locks.rwlock(format!("order:{{{id}}}"))?;
    let request = order.write().timeout(Duration::from_secs(2));
    request.run_while_held(async |_lease| sleep(Duration::from_secs(2)).await).await?;
    Ok("shipped".into())
}

/// Why a request failed.
enum AppError {
    Lock(rwlease::Error),
    AlreadyPaid,
    /// A later holder of the lock has written.
    StaleToken,
}

impl From<rwlease::Error> for AppError {
    fn from(error: rwlease::Error) -> Self {
        AppError::Lock(error)
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        let error = match self {
            AppError::AlreadyPaid => return (StatusCode::CONFLICT, "already paid").into_response(),
            AppError::StaleToken => {
                return (StatusCode::CONFLICT, "changed by another request").into_response();
            }
            AppError::Lock(error) => error,
        };
        eprintln!("{error}");
        match error.kind() {
            // Others hold the lock.
            ErrorKind::TimedOut | ErrorKind::QueueFull => retry(StatusCode::TOO_MANY_REQUESTS),
            // The servers cannot serve it, the lease was lost halfway, or this process stops. The
            // token makes a repetition safe.
            ErrorKind::Unavailable | ErrorKind::LeaseLost | ErrorKind::Cancelled => {
                retry(StatusCode::SERVICE_UNAVAILABLE)
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

fn retry(status: StatusCode) -> Response {
    (status, [(header::RETRY_AFTER, "1")]).into_response()
}

/// Stands for a database: `UPDATE orders SET paid = true, token = $2 WHERE id = $1 AND token <=
/// $2`.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<HashMap<u64, Order>>>);

#[derive(Default)]
struct Order {
    token: Option<FencingToken>,
    is_paid: bool,
}

impl Store {
    async fn pay(&self, id: u64, token: Option<FencingToken>) -> Result<String, AppError> {
        sleep(Duration::from_millis(10)).await; // a round trip
        let mut orders = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let order = orders.entry(id).or_default();
        if order.token > token {
            return Err(AppError::StaleToken);
        }
        order.token = token;
        if std::mem::replace(&mut order.is_paid, true) {
            return Err(AppError::AlreadyPaid);
        }
        Ok(format!("order {id} is paid"))
    }
}

/// Pays an order twice at the same time, and ships one while the process stops.
async fn demonstrate(app: &Router, locks: &Client) -> Result<(), BoxError> {
    let call = |path: &str| {
        let request = Request::post(path).body(Body::empty());
        let app = app.clone();
        async move { Ok::<_, BoxError>(app.oneshot(request?).await?.status()) }
    };
    let (one, other) = tokio::join!(call("/orders/42/pay"), call("/orders/42/pay"));
    println!("POST /orders/42/pay: {} and {}", one?, other?);

    let shipping = tokio::spawn(call("/orders/7/ship"));
    while !locks.rwlock("order:{7}")?.is_locked().await? {
        sleep(Duration::from_millis(10)).await;
    }
    let left = locks.shutdown(GRACE).await;
    println!("POST /orders/7/ship, cut off: {}; may still be held: {left:?}", shipping.await??);
    Ok(())
}
