use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::*;

/// A server that answers with prepared words whatever it is asked, and remembers what that was.
pub struct Parrot {
    folder: TempDir,
    heard: Arc<Mutex<String>>,
}

impl Parrot {
    pub fn saying(answer: impl Into<Vec<u8>>) -> Self {
        Self::saying_in_turn([answer.into()])
    }

    /// The last answer counts for all that comes after it.
    fn saying_in_turn(answers: impl Into<VecDeque<Vec<u8>>>) -> Self {
        let mut answers = answers.into();
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let heard = Arc::new(Mutex::new(String::new()));
        let log = heard.clone();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut buffer, mut greeted) = ([0; 4096], false);
            while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                log.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
                let words = match answers.front() {
                    Some(words) if greeted => words.clone(),
                    _ => b"+OK\r\n".to_vec(),
                };
                if greeted && answers.len() > 1 {
                    answers.pop_front();
                }
                greeted = true;
                stream.write_all(&words).await.unwrap();
            }
        });
        Self { folder, heard }
    }

    pub async fn node(&self) -> Node {
        let login = Login { user: "valkey-admin".into(), password: "secret".to_owned().into() };
        let deadline = Duration::from_millis(200);
        Node::connect_within(deadline, Route::Socket(&self.folder.path().join("socket")), &login).await.unwrap()
    }

    /// The last command, as words.
    pub fn heard(&self) -> String {
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
async fn settings_are_asked_for_all_at_once() {
    let parrot = Parrot::saying("*4\r\n$2\r\nhz\r\n$2\r\n10\r\n$4\r\nsave\r\n$0\r\n\r\n");
    let told = parrot.node().await.config_get(["hz", "save", "nonsense"]).await.unwrap();
    assert_eq!(parrot.heard(), "CONFIG GET hz save nonsense");
    assert_eq!(told, [("hz".to_owned(), "10".to_owned()), ("save".to_owned(), String::new())].into());
}

#[tokio::test]
async fn a_log_that_is_still_being_written_is_not_whole() {
    let whole =
        "aof_enabled:1\r\naof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\naof_last_bgrewrite_status:ok\r\n";
    for (was, is) in
        [("", ""), ("progress:0", "progress:1"), ("scheduled:0", "scheduled:1"), ("status:ok", "status:err")]
    {
        let info = whole.replace(was, is);
        let parrot = Parrot::saying(format!("${}\r\n{info}\r\n", info.len()));
        assert_eq!(parrot.node().await.log_is_whole().await.unwrap(), was.is_empty(), "{is}");
    }
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

/// The first round of an observation, as a server of this version answers it.
fn first_round(info: &str, cluster: &str, nodes: &str) -> Vec<u8> {
    let mut answer = String::new();
    for text in [info, cluster, nodes] {
        write!(answer, "${}\r\n{text}\r\n", text.len()).unwrap();
    }
    answer.push_str("*2\r\n$20\r\ncluster-node-timeout\r\n$4\r\n5000\r\n");
    answer.into_bytes()
}

#[tokio::test]
async fn a_server_that_refuses_to_tell_its_moves_is_reported_all_the_same() {
    let first = first_round(
        include_str!("../samples/9.1.2/info-primary.txt"),
        include_str!("../samples/9.1.2/cluster-info.txt"),
        include_str!("../samples/9.1.2/nodes-primary.txt"),
    );
    let parrot = Parrot::saying_in_turn([first.clone(), b"-LOADING Valkey is loading\r\n".to_vec()]);
    let report = parrot.node().await.observe("10.0.0.1:6379".parse().unwrap()).await.unwrap();
    assert_eq!(parrot.heard(), "CLUSTER GETSLOTMIGRATIONS");
    assert_eq!((report.slots.len(), report.exports.running.len()), (5461, 0));
    let moves = include_bytes!("../samples/9.1.2/slot-migrations.resp").to_vec();
    let parrot = Parrot::saying_in_turn([first, moves]);
    let report = parrot.node().await.observe("10.0.0.1:6379".parse().unwrap()).await.unwrap();
    assert_eq!(report.exports.running.len(), 1);
}

#[tokio::test]
async fn a_server_that_does_not_know_such_moves_is_not_asked_about_them() {
    let first = first_round(
        include_str!("../samples/8.1.1/info-primary.txt"),
        include_str!("../samples/8.1.1/cluster-info.txt"),
        include_str!("../samples/8.1.1/nodes-primary.txt"),
    );
    let parrot = Parrot::saying(first);
    parrot.node().await.observe("10.0.0.1:6379".parse().unwrap()).await.unwrap();
    assert_eq!(parrot.heard(), "CONFIG GET cluster-node-timeout");
}
