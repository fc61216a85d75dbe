//! A web handler that works under a lock, and answers as the lock's error says: `503` where the
//! cluster cannot serve, `423` where others hold it for too long. Run with `-- serve` to listen on
//! 127.0.0.1:3000; otherwise it calls itself a few times and ends.

mod common;

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use rwlease::{ErrorKind, Locks};
use tower::ServiceExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app =
        Router::new().route("/orders/{id}/pay", post(pay)).with_state(common::connect().await?);
    if std::env::args().any(|argument| argument == "serve") {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
        axum::serve(listener, app).await?;
        return Ok(());
    }
    for _ in 0..3 {
        let request = axum::http::Request::post("/orders/42/pay").body(axum::body::Body::empty())?;
        let response = app.clone().oneshot(request).await?;
        println!("POST /orders/42/pay: {}", response.status());
    }
    Ok(())
}

/// If the client goes away axum drops this future, and with it the guard or the place in the queue.
async fn pay(
    State(locks): State<Locks>,
    Path(id): Path<u64>,
) -> Result<String, (StatusCode, String)> {
    let lock = locks.rwlock(format!("order:{{{id}}}")).map_err(answer)?;
    let writing = lock.write().timeout(Duration::from_secs(2)).await.map_err(answer)?;
    let token = writing.token(); // handed to the store with the write
    if !writing.release().await.map_err(answer)?.was_held() {
        // Another request may have written since. The store compares the tokens.
        return Err((StatusCode::CONFLICT, "the lease ended before the write".to_owned()));
    }
    Ok(format!("paid under token {token}"))
}

fn answer(error: rwlease::Error) -> (StatusCode, String) {
    let status = match error.kind() {
        ErrorKind::TimedOut | ErrorKind::TooManyWaiters => StatusCode::LOCKED,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, error.to_string())
}
