//! One address with several servers behind it: each new connection goes to the next server, as with
//! a load balancer.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::{Result, Server};

#[derive(Debug)]
pub struct Balancer {
    port: u16,
    acceptor: JoinHandle<()>,
}

impl Balancer {
    pub async fn start(servers: &[&Server]) -> Result<Balancer> {
        let targets: Vec<SocketAddr> =
            servers.iter().map(|server| Ok(server.address().parse()?)).collect::<Result<_>>()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let acceptor = tokio::spawn(async move {
            for target in targets.into_iter().cycle() {
                let Ok((client, _)) = listener.accept().await else {
                    return;
                };
                tokio::spawn(connect(client, target));
            }
        });
        Ok(Balancer { port, acceptor })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

async fn connect(mut client: TcpStream, target: SocketAddr) {
    if let Ok(mut server) = TcpStream::connect(target).await {
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}
