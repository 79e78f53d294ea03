use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::*;

/// A server that answers every command with the same words, and remembers what it was asked.
struct Parrot {
    folder: TempDir,
    heard: Arc<Mutex<String>>,
}

impl Parrot {
    fn saying(answer: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let heard = Arc::new(Mutex::new(String::new()));
        let log = heard.clone();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut buffer, mut greeted) = ([0; 4096], false);
            while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                log.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
                let words = if greeted { answer } else { "+OK\r\n" };
                greeted = true;
                stream.write_all(words.as_bytes()).await.unwrap();
            }
        });
        Self { folder, heard }
    }

    async fn node(&self) -> Node {
        let login = Login { user: "valkey-admin".into(), password: "secret".to_owned().into() };
        let deadline = Duration::from_millis(200);
        Node::connect_within(deadline, Route::Socket(&self.folder.path().join("socket")), &login).await.unwrap()
    }

    /// The last command, as words.
    fn heard(&self) -> String {
        let heard = self.heard.lock().unwrap();
        let last = heard.rsplit('*').next().unwrap_or_default();
        last.lines().skip(1).filter(|line| !line.starts_with('$')).collect::<Vec<_>>().join(" ")
    }
}

fn id() -> NodeId {
    NodeId::from_bytes([0xab; 20])
}

#[tokio::test]
async fn commands_are_sent_as_valkey_reads_them() {
    let parrot = Parrot::saying("+OK\r\n");
    let mut node = parrot.node().await;
    node.add_slots(&"0-5460,7000".parse().unwrap()).await.unwrap();
    assert_eq!(parrot.heard(), "CLUSTER ADDSLOTSRANGE 0 5460 7000 7000");
    node.meet("[fd00::1]:6379".parse().unwrap()).await.unwrap();
    assert_eq!(parrot.heard(), "CLUSTER MEET fd00::1 6379");
    node.replicate(id()).await.unwrap();
    assert_eq!(parrot.heard(), format!("CLUSTER REPLICATE {}", id()));
    node.take_over().await.unwrap();
    assert_eq!(parrot.heard(), "CLUSTER FAILOVER TAKEOVER");
    node.set_node_timeout(Duration::from_secs(5)).await.unwrap();
    assert_eq!(parrot.heard(), "CONFIG SET cluster-node-timeout 5000");
    node.config_set(&[("tls-cert-file", "/a"), ("tls-key-file", "/b")]).await.unwrap();
    assert_eq!(parrot.heard(), "CONFIG SET tls-cert-file /a tls-key-file /b");
}

#[tokio::test]
async fn a_refusal_comes_in_valkeys_own_words() {
    let parrot = Parrot::saying("-ERR Slot 3 is already busy\r\n");
    let error = parrot.node().await.add_slots(&SlotSet::all()).await.unwrap_err();
    assert_eq!(error.to_string(), "ERR Slot 3 is already busy");
}

#[tokio::test]
async fn what_is_done_already_is_done() {
    let parrot = Parrot::saying("-ERR Node config epoch is already non-zero\r\n");
    parrot.node().await.set_epoch(3).await.unwrap();
    let parrot = Parrot::saying("-ERR Unknown node abababab\r\n");
    parrot.node().await.forget(id()).await.unwrap();
    let parrot = Parrot::saying("-ERR Can't forget my master!\r\n");
    parrot.node().await.forget(id()).await.unwrap_err();
}

#[tokio::test]
async fn any_reply_is_a_sign_of_life_and_silence_is_none() {
    for reply in ["+PONG\r\n", "-LOADING Valkey is loading the dataset in memory\r\n", "-MISCONF disk\r\n"] {
        Parrot::saying(reply).node().await.ping().await.unwrap();
    }
    let error = Parrot::saying("").node().await.ping().await.unwrap_err();
    assert!(matches!(error, Error::Deadline(_)), "{error}");
}

#[tokio::test]
async fn the_role_is_read_from_the_first_word() {
    let primary = Parrot::saying("*3\r\n$6\r\nmaster\r\n:205\r\n*0\r\n");
    assert_eq!(primary.node().await.role().await.unwrap(), Role::Primary);
    let replica = Parrot::saying("*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:1\r\n$9\r\nconnected\r\n:2\r\n");
    assert_eq!(replica.node().await.role().await.unwrap(), Role::Replica);
}
