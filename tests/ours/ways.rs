//! Our client by every way into the server: TLS with and without a certificate of its own, and the path of a
//! socket. The fear: a way that only the tests of the client's own know.

use corq_client::{Applied, Client, PullOptions, Tls};
use serde_json::json;

use super::run;
use crate::secure::{Authority, Paper};
use crate::support::{DEADLINE, Server, Start, WAIT};

/// A job there and back, large enough for many records of TLS.
async fn there_and_back(client: &Client) {
    let text = "long ".repeat(200_000);
    let queue = client.queue("ways");
    let id = queue.push(&json!({ "text": text })).await.unwrap();
    let pulled = queue.pull(1, &PullOptions::new().wait(WAIT)).await.unwrap();
    assert_eq!(pulled[0].id, id);
    assert_eq!(pulled[0].data::<serde_json::Value>().unwrap()["text"], json!(text));
    assert_eq!(pulled[0].complete(&json!(text.len())).await.unwrap(), Applied::Yes);
    assert!(client.job(&id).result().await.unwrap().is_some());
}

fn tls(server: &Server) -> String {
    format!("tls://127.0.0.1:{}", server.tcp)
}

#[test]
fn our_client_comes_in_over_tls_and_believes_nobody_else() {
    let authority = Authority::new();
    let server = Start::new().tls(&authority.issue("server", None)).start();
    run(async {
        let believing = Tls::with_ca_file(authority.path()).unwrap();
        let client = Client::builder(&tls(&server)).tls(believing).timeout(DEADLINE);
        there_and_back(&client.connect().await.unwrap()).await;
        let stranger = Authority::new();
        let believing = Tls::with_ca_file(stranger.path()).unwrap();
        let client = Client::builder(&tls(&server)).tls(believing).timeout(DEADLINE);
        assert!(client.connect().await.is_err());
    });
}

#[test]
fn our_client_shows_who_it_is_to_a_server_that_asks() {
    let authority = Authority::new();
    let start = Start::new().tls(&authority.issue("server", None));
    let server = start.env("TLS_CLIENT_CA_FILE", authority.path().display()).start();
    let Paper { cert, key } = authority.issue("client", None);
    run(async {
        let nobody = Tls::with_ca_file(authority.path()).unwrap();
        let somebody = nobody.clone().client_certificate(cert, key).unwrap();
        let client = Client::builder(&tls(&server)).tls(somebody).timeout(DEADLINE);
        there_and_back(&client.connect().await.unwrap()).await;
        let client = Client::builder(&tls(&server)).tls(nobody).timeout(DEADLINE);
        // With TLS 1.3 a client learns only by its first request that it was not let in.
        let refused = match client.connect().await {
            Ok(client) => client.ping().await.is_err(),
            Err(_) => true,
        };
        assert!(refused);
    });
}

#[test]
fn our_client_comes_in_by_a_path() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("corq.sock");
    let _server = Start::new().env("TCP_SOCKET_PATH", path.display()).start();
    run(async {
        let client = Client::builder(&format!("unix://{}", path.display())).timeout(DEADLINE);
        there_and_back(&client.connect().await.unwrap()).await;
    });
}
