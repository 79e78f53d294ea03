use std::fs;

use tempfile::TempDir;
use tokio::io::Lines;
use tokio::sync::mpsc::UnboundedReceiver;
use valkey_planner::guard::Released;

use super::*;
use crate::mounts::Mounts;
use crate::pod::tests::pod;
use crate::prepare::RunDir;
use crate::reports::Outbox;

#[test]
fn requests_are_told_apart() {
    for (line, request) in [
        ("start\n", Some(Request::Start(None))),
        ("start 8.1.4\n", Some(Request::Start(Some(Version::new(8, 1, 4))))),
        ("start soon\n", Some(Request::Start(None))),
        ("stop\n", Some(Request::Stop)),
        ("exited 0\n", Some(Request::Exited(0))),
        ("exited 137\n", Some(Request::Exited(137))),
        ("exited signal 9\n", Some(Request::Exited(137))),
        ("exited\n", None),
        ("exited signal x\n", None),
        ("restart\n", None),
        ("", None),
    ] {
        assert_eq!(Request::parse(line), request, "{line:?}");
    }
}

/// A pod whose server has never run, with everything mounted that a server without TLS needs.
struct Fixture {
    folder: TempDir,
    context: Arc<Context>,
    events: UnboundedReceiver<Event>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["config", "users", "run", "data"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        for (name, content) in [
            ("config/valkey.conf", "port 1\nappendonly no\n"),
            ("config/first-start.conf", ""),
            ("users/users.acl", ""),
            ("users/admin-password", "admin"),
            ("users/replication-password", "replica"),
        ] {
            fs::write(root.join(name), content).unwrap();
        }
        let (outbox, events) = Outbox::new();
        let mounts = Mounts::new(root, "orders-2-1");
        let context = Context::new(pod(), mounts, RunDir::new(root.join("run")), root.join("data"), outbox);
        Self { context: Arc::new(context), events, folder }
    }

    /// What the server was when it last ran: a primary with a replica at an address where nobody answers.
    fn led(&self) {
        let (me, replica) = ("01".repeat(20), "02".repeat(20));
        let text = format!(
            "{me} 127.0.0.1:1@2,a myself,master - 0 0 1 connected 0-99\n\
             {replica} 127.0.0.1:1@2,b slave {me} 0 0 1 connected\n"
        );
        fs::write(self.folder.path().join("data/nodes.conf"), text).unwrap();
    }

    fn ask(&self, request: &str) -> Lines<BufReader<UnixStream>> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (context, request) = (self.context.clone(), format!("{request}\n"));
        tokio::spawn(async move { converse(theirs, &context).await });
        ours.try_write(request.as_bytes()).unwrap();
        BufReader::new(ours).lines()
    }
}

#[tokio::test]
async fn a_first_start_is_allowed_when_all_is_prepared() {
    let fixture = Fixture::new();
    assert_eq!(fixture.ask("start").next_line().await.unwrap().as_deref(), Some("go"));
    assert!(fixture.folder.path().join("run/valkey.conf").exists());
    assert_eq!(fixture.context.board.view().phase, Phase::Starting);
}

#[tokio::test]
async fn a_start_waits_for_what_is_not_mounted_yet() {
    let fixture = Fixture::new();
    let users = fixture.folder.path().join("users/users.acl");
    fs::remove_file(&users).unwrap();
    let mut answers = fixture.ask("start");
    let answer = answers.next_line().await.unwrap().unwrap();
    assert!(answer.starts_with("hold ") && answer.contains("users.acl"), "{answer}");
    fs::write(&users, "").unwrap();
    assert_eq!(answers.next_line().await.unwrap().as_deref(), Some("go"));
}

#[tokio::test]
async fn a_primary_that_lost_its_data_is_held_until_the_operator_releases_it() {
    let mut fixture = Fixture::new();
    fixture.led();
    let mut answers = fixture.ask("start");
    let answer = answers.next_line().await.unwrap().unwrap();
    assert!(answer.starts_with("hold it led its shard"), "{answer}");
    assert!(matches!(fixture.context.board.view().phase, Phase::Held { .. }));
    assert!(matches!(fixture.events.recv().await, Some(Event::Held { .. })));
    fixture.context.released.send_replace(Released::ByOperator);
    while answers.next_line().await.unwrap().unwrap() != "go" {}
    assert_eq!(fixture.events.recv().await, Some(Event::ServerStarted));
}

#[tokio::test]
async fn a_launcher_that_went_away_is_not_held_any_longer() {
    let fixture = Fixture::new();
    fixture.led();
    let mut answers = fixture.ask("start");
    answers.next_line().await.unwrap();
    drop(answers);
    while fixture.context.board.view().phase != Phase::Unknown {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_release_counts_for_one_start_only() {
    let fixture = Fixture::new();
    fixture.led();
    fixture.context.released.send_replace(Released::ByOperator);
    let answer = fixture.ask("start").next_line().await.unwrap().unwrap();
    assert!(answer.starts_with("hold "), "{answer}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_not_waited_for_at_the_end() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.ask("stop").next_line().await.unwrap().as_deref(), Some("done"));
    assert_eq!(fixture.events.recv().await, Some(Event::Stopping));
}

#[tokio::test]
async fn the_end_of_a_server_is_reported() {
    let mut fixture = Fixture::new();
    fixture.context.board.set(Phase::Starting);
    assert_eq!(fixture.ask("exited signal 9").next_line().await.unwrap(), None);
    assert_eq!(fixture.events.recv().await, Some(Event::ServerExited { code: 137 }));
    assert_eq!(fixture.context.board.view().phase, Phase::Unknown);
}

/// The volume of a pod that comes back with a former release: a newer one wrote its snapshot.
fn written_by_9(fixture: &Fixture) {
    fs::write(fixture.folder.path().join("data/dump.rdb"), "VALKEY080 and so on").unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_read_the_last_copy_is_held_and_the_copy_stays() {
    let mut fixture = Fixture::new();
    fixture.led();
    written_by_9(&fixture);
    let mut answers = fixture.ask("start 8.1.4");
    let answer = answers.next_line().await.unwrap().unwrap();
    assert!(answer.starts_with("hold its data was written by a newer Valkey"), "{answer}");
    let Phase::Held { held, .. } = fixture.context.board.view().phase else { panic!("not held") };
    assert_eq!(held.data, valkey_model::LocalData::Unreadable);
    assert!(fixture.folder.path().join("data/dump.rdb").exists());
    assert!(matches!(fixture.events.recv().await, Some(Event::Held { .. })));
    // The operator sees another primary of the shard.
    fixture.context.released.send_replace(Released::ByOperator);
    while answers.next_line().await.unwrap().unwrap() != "go" {}
    assert!(!fixture.folder.path().join("data/dump.rdb").exists());
    let mut aside = fs::read_dir(fixture.folder.path().join("data")).unwrap().map(|entry| entry.unwrap().path());
    let aside = aside.find(|path| path.to_str().unwrap().contains("set-aside-")).unwrap();
    assert_eq!(fs::read_to_string(aside.join("dump.rdb")).unwrap(), "VALKEY080 and so on");
}

#[tokio::test]
async fn a_server_of_the_release_that_wrote_its_data_just_starts() {
    for release in ["start 9.1.2", "start"] {
        let fixture = Fixture::new();
        written_by_9(&fixture);
        assert_eq!(fixture.ask(release).next_line().await.unwrap().as_deref(), Some("go"), "{release}");
        assert!(fixture.folder.path().join("data/dump.rdb").exists());
    }
}
