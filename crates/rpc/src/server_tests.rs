use std::net::SocketAddr;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::*;
use crate::testing::{Ca, FOREIGN_POD, OPERATOR, POD, server};
use crate::{Certificates, Credentials, Dialer, Refusals, Reloadable, State};

/// Answers with this, and refuses the second of all commands.
struct Simple(Result<State, Unanswered>);

impl Sidecar for Simple {
    fn member(&self) -> Member {
        Member::new(0, 0)
    }

    async fn observe(&self) -> Result<Observed, Unanswered> {
        Ok(Observed {
            state: self.0.clone()?,
            sidecar_version: "0".into(),
            contract_version: crate::CONTRACT_VERSION,
            certificates: Certificates::default(),
        })
    }

    async fn execute(&self, actions: Vec<Action>) -> Vec<Outcome> {
        actions
            .iter()
            .zip(0..)
            .map(|(action, index)| if index == 1 { Outcome::Refused(action.to_string()) } else { Outcome::Done })
            .collect()
    }

    async fn weigh(&self) -> Result<SlotKeys, Unanswered> {
        Ok([(7, 70), (16383, 1)].into_iter().collect())
    }
}

struct Running {
    address: SocketAddr,
    refusals: Refusals,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn running(credentials: &Reloadable<Credentials>) -> Running {
    answering(Ok(State::Starting("test".into())), credentials).await
}

async fn answering(state: Result<State, Unanswered>, credentials: &Reloadable<Credentials>) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, tls) = (listener.local_addr().unwrap(), server(credentials, OPERATOR));
    let refusals = tls.refusals.clone();
    let task = tokio::spawn(async move { serve(&listener, &tls, Arc::new(Simple(state))).await });
    Running { address, refusals, task }
}

/// Connects, asks, and says what went wrong in words.
async fn ask(sidecar: &Running, credentials: &Reloadable<Credentials>, expected: &str) -> Result<Observed, String> {
    let dialer = Dialer::new(credentials.clone());
    let mut client = dialer.connect(sidecar.address, expected).await.map_err(|error| error.to_string())?;
    client.observe().await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_operator_asks_and_commands() {
    let ca = Ca::new();
    let sidecar = running(&ca.issue(POD)).await;
    let mut client = Dialer::new(ca.issue(OPERATOR)).connect(sidecar.address, POD).await.unwrap();
    assert_eq!(client.observe().await.unwrap().state, State::Starting("test".into()));
    let on = Member::new(0, 0);
    let outcomes = client.execute(&[Action::Release { on }, Action::TakeOver { on }]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Done, Outcome::Refused("make 0-0 the primary of its shard".into())]);
    let keys: Vec<_> = client.weigh().await.unwrap().iter().collect();
    assert_eq!(keys, [(7, 70), (16383, 1)]);
    assert_eq!(sidecar.refusals.count(), 0);
}

#[tokio::test]
async fn a_server_that_fell_silent_is_no_answer() {
    let ca = Ca::new();
    let sidecar = answering(Err(Unanswered("no answer within 800ms".into())), &ca.issue(POD)).await;
    let error = ask(&sidecar, &ca.issue(OPERATOR), POD).await.unwrap_err();
    assert!(error.ends_with("no answer within 800ms"), "{error}");
}

#[tokio::test]
async fn only_the_operator_is_let_in_and_everybody_else_is_counted() {
    let (ca, foreign) = (Ca::new(), Ca::new());
    let sidecar = running(&ca.issue(POD)).await;
    let expired = Reloadable::new(ca.credentials(OPERATOR, Duration::from_mins(1)));
    let strangers = [ca.issue(FOREIGN_POD), ca.issue(POD), expired];
    for (stranger, count) in strangers.iter().zip(1..) {
        ask(&sidecar, stranger, POD).await.unwrap_err();
        assert_eq!(sidecar.refusals.count(), count);
    }
    // Whoever has another root does not trust the sidecar either, so it is the first to leave.
    let error = ask(&sidecar, &foreign.issue(OPERATOR), POD).await.unwrap_err();
    assert!(error.contains("invalid peer certificate"), "{error}");
    ask(&sidecar, &ca.issue(OPERATOR), POD).await.unwrap();
}

#[tokio::test]
async fn the_operator_talks_to_exactly_the_pod_that_it_means() {
    let (ca, foreign) = (Ca::new(), Ca::new());
    let operator = ca.issue(OPERATOR);
    for (impostor, word) in [
        (ca.issue(FOREIGN_POD), "others-0-0 answers where"),
        (foreign.issue(POD), "invalid peer certificate"),
        (Reloadable::new(ca.credentials(POD, Duration::from_mins(1))), "expired"),
    ] {
        let sidecar = running(&impostor).await;
        let error = ask(&sidecar, &operator, POD).await.unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}

#[tokio::test]
async fn new_certificates_count_from_the_next_connection_on() {
    let (old, new) = (Ca::new(), Ca::new());
    let (pod, operator) = (old.issue(POD), old.issue(OPERATOR));
    let sidecar = running(&pod).await;
    ask(&sidecar, &operator, POD).await.unwrap();
    pod.replace(new.credentials(POD, Duration::from_hours(1)));
    ask(&sidecar, &operator, POD).await.unwrap_err();
    operator.replace(new.credentials(OPERATOR, Duration::from_hours(1)));
    ask(&sidecar, &operator, POD).await.unwrap();
}

#[tokio::test]
async fn who_never_finishes_a_handshake_does_not_keep_others_waiting() {
    let ca = Ca::new();
    let sidecar = running(&ca.issue(POD)).await;
    let mut silent = TcpStream::connect(sidecar.address).await.unwrap();
    ask(&sidecar, &ca.issue(OPERATOR), POD).await.unwrap();
    let mut nothing = Vec::new();
    tokio::time::timeout(Duration::from_secs(10), silent.read_to_end(&mut nothing)).await.unwrap().unwrap();
    assert_eq!(sidecar.refusals.count(), 0);
}
