use std::fs;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::fake_server::{OK, bulk, listen};
use crate::mounts::Mounts;
use crate::pod::tests::pod;
use crate::reports::Outbox;
use crate::view::Phase;

/// A pod whose server was started with `maxclients 100` under the mark `start`.
struct Fixture {
    folder: TempDir,
    context: Arc<Context>,
}

/// What the server answers when it is told to change something.
type Answer = &'static str;
const NO: Answer = "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - too many\r\n";
const BUSY: Answer = "-BUSY Valkey is busy running a script\r\n";
const NOTHING: Answer = "";

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["config", "users", "run", "data"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        for (name, content) in [
            ("config/valkey.conf", format!("port 1\n{}", clients("start", "100").to_conf())),
            ("config/first-start.conf", String::new()),
            ("users/users.acl", String::new()),
            ("users/admin-password", "admin".into()),
            ("users/replication-password", "replica".into()),
        ] {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let fixture = Self { context: Arc::new(context(&folder)), folder };
        assert_eq!(fixture.taken().mark, "", "nothing was started yet");
        start(&fixture.context);
        fixture
    }

    fn taken(&self) -> TakenSettings {
        self.context.settings.taken()
    }

    /// Orders these settings from a server that answers so.
    async fn configure(&self, settings: &Settings, answer: Answer) -> Result<(), ConfigureError> {
        let context = self.context.clone();
        let socket = self.folder.path().join("run/valkey.sock");
        let _ = fs::remove_file(&socket);
        let mut has = "100".to_owned();
        listen(&socket, move |words| match words.split(' ').collect::<Vec<_>>().as_slice() {
            ["INFO", "server"] => bulk("valkey_version:9.1.2\r\n"),
            ["CONFIG", "GET", "maxclients"] => format!("*2\r\n{}{}", bulk("maxclients"), bulk(&has)),
            ["CONFIG", "SET", "maxclients", "777"] => {
                start(&context); // just then it ends, and is started again
                OK.into()
            }
            ["CONFIG", "SET", "maxclients", count] => {
                has = (*count).to_owned();
                answer.to_owned()
            }
            other => panic!("{other:?}"),
        });
        configure(&self.context, settings).await
    }
}

fn context(folder: &TempDir) -> Context {
    let root = folder.path();
    let (outbox, _) = Outbox::new();
    Context::new(pod(), Mounts::new(root, "orders-2-1"), RunDir::new(root.join("run")), root.join("data"), outbox)
}

/// As the launcher has it done.
fn start(context: &Context) {
    context.run.prepare(&context.mounts, &context.pod, &context.data).unwrap();
    context.settings.read(&context.run);
    context.board.set(Phase::Starting);
}

fn clients(mark: &str, count: &str) -> Settings {
    Settings { mark: mark.into(), values: [("maxclients".into(), count.into())].into() }
}

#[tokio::test]
async fn a_server_has_what_it_was_started_with_until_it_takes_something_else() {
    let fixture = Fixture::new();
    assert_eq!(fixture.taken().mark, "start");
    fixture.configure(&clients("new", "200"), OK).await.unwrap();
    assert_eq!(fixture.taken(), TakenSettings { mark: "new".into(), refused: None });
    start(&fixture.context);
    assert_eq!(fixture.taken().mark, "start");
}

#[tokio::test]
async fn one_of_us_that_is_restarted_beside_the_server_knows_what_it_has() {
    let fixture = Fixture::new();
    fixture.configure(&clients("new", "200"), OK).await.unwrap();
    let next = context(&fixture.folder);
    assert_eq!((next.settings.taken().mark, next.settings.given()), ("new".into(), clients("new", "200")));
}

#[tokio::test]
async fn what_is_refused_is_remembered_and_what_was_there_stays() {
    let fixture = Fixture::new();
    let error = fixture.configure(&clients("bad", "99999999"), NO).await.unwrap_err();
    let refused = RefusedSettings { mark: "bad".into(), words: error.to_string() };
    assert!(refused.words.starts_with("ERR CONFIG SET failed"), "{}", refused.words);
    assert_eq!(fixture.taken(), TakenSettings { mark: "start".into(), refused: Some(refused) });
    fixture.configure(&clients("good", "200"), OK).await.unwrap();
    assert_eq!(fixture.taken(), TakenSettings { mark: "good".into(), refused: None });
}

#[tokio::test]
async fn a_server_that_has_no_time_refuses_nothing() {
    let fixture = Fixture::new();
    fixture.configure(&clients("new", "200"), BUSY).await.unwrap_err();
    assert_eq!(fixture.taken(), TakenSettings { mark: "start".into(), refused: None });
}

#[tokio::test]
async fn after_an_order_without_an_answer_nobody_can_say_what_the_server_has() {
    let fixture = Fixture::new();
    fixture.configure(&clients("new", "200"), NOTHING).await.unwrap_err();
    assert_eq!(fixture.taken(), TakenSettings::default());
    assert_eq!(context(&fixture.folder).settings.given(), clients("", "200"), "but it can be taken back");
}

#[tokio::test]
async fn a_server_that_restarts_in_between_has_what_it_was_started_with() {
    let fixture = Fixture::new();
    let error = fixture.configure(&clients("new", "777"), OK).await.unwrap_err();
    assert!(matches!(error, ConfigureError::Restarted), "{error}");
    assert_eq!(fixture.taken().mark, "start");
}
