use std::sync::{Arc, Mutex};

use super::*;
use crate::fake_server::{OK, bulk, fake_server};

/// A server of 9.1 that spells sizes as numbers and has its own opinion about some values.
#[derive(Clone)]
struct Fake {
    has: Arc<Mutex<Values>>,
    orders: Arc<Mutex<Vec<String>>>,
    log: &'static str,
}

fn values(pairs: &[(&str, &str)]) -> Values {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn settings(mark: &str, pairs: &[(&str, &str)]) -> Settings {
    Settings { mark: mark.into(), values: values(pairs) }
}

const WHOLE: &str = "aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\naof_last_bgrewrite_status:ok\r\n";
const UNDER_WAY: &str = "aof_rewrite_in_progress:1\r\naof_rewrite_scheduled:0\r\naof_last_bgrewrite_status:ok\r\n";

impl Fake {
    fn with(pairs: &[(&str, &str)]) -> Self {
        Self { has: Arc::new(Mutex::new(values(pairs))), orders: Arc::default(), log: WHOLE }
    }

    fn answer(&self, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        match words.as_slice() {
            ["INFO", "server"] => bulk("valkey_version:9.1.2\r\n"),
            ["INFO", "persistence"] => bulk(self.log),
            ["CONFIG", "GET", names @ ..] => {
                let has = self.has.lock().unwrap();
                let told: Vec<_> = names.iter().filter_map(|name| has.get_key_value(*name)).collect();
                let lines: String = told.iter().map(|(name, value)| bulk(name) + &bulk(value)).collect();
                format!("*{}\r\n{lines}", told.len() * 2)
            }
            ["CONFIG", "SET", pairs @ ..] => {
                self.orders.lock().unwrap().push(pairs.join(" "));
                if pairs.contains(&"99999999") {
                    return "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - too many\r\n".into();
                }
                let mut has = self.has.lock().unwrap();
                for pair in pairs.chunks(2) {
                    let [name, value] = pair else { panic!("{pairs:?}") };
                    let told = match (*name, size(value)) {
                        ("hz", _) => "10".to_owned(), // it does not listen
                        ("repl-backlog-size", Some(size)) => size.max(16384).to_string(),
                        (_, Some(size)) => size.to_string(),
                        (_, None) => value.to_ascii_lowercase(),
                    };
                    has.insert((*name).to_owned(), told);
                }
                OK.into()
            }
            other => panic!("{other:?}"),
        }
    }

    async fn give(&self, before: &Settings, settings: &Settings) -> Result<Given, GiveError> {
        let folder = tempfile::tempdir().unwrap();
        let fake = self.clone();
        let mut server = fake_server(&folder.path().join("socket"), move |words| fake.answer(words)).await;
        give(&mut server, before, settings).await
    }

    fn orders(&self) -> Vec<String> {
        self.orders.lock().unwrap().clone()
    }

    fn value(&self, name: &str) -> String {
        self.has.lock().unwrap()[name].clone()
    }
}

#[tokio::test]
async fn only_what_the_server_has_otherwise_is_set_and_all_of_it_at_once() {
    let fake =
        Fake::with(&[("maxmemory", "1073741824"), ("activedefrag", "no"), ("maxclients", "10000"), ("hz", "10")]);
    let wanted = [("maxmemory", "1gb"), ("activedefrag", "YES"), ("maxclients", "100"), ("hz", "10")];
    let given = fake.give(&settings("a", &[]), &settings("b", &wanted)).await.unwrap();
    assert_eq!((given, fake.orders()), (Given::Wholly, vec!["activedefrag YES maxclients 100".to_owned()]));
    fake.give(&settings("a", &[]), &settings("b", &wanted)).await.unwrap();
    assert_eq!(fake.orders().len(), 1, "what is done is done");
}

#[tokio::test]
async fn what_is_not_wanted_any_more_gets_its_default_again() {
    let fake =
        Fake::with(&[("maxclients", "100"), ("slave-priority", "7"), ("replica-priority", "7"), ("maxmemory", "1")]);
    let before = settings("a", &[("maxclients", "100"), ("slave-priority", "7"), ("maxmemory", "1")]);
    // The same setting under its other name is no reason to set both, which is refused.
    let wanted = settings("b", &[("replica-priority", "8"), ("maxmemory", "1")]);
    fake.give(&before, &wanted).await.unwrap();
    assert_eq!(fake.orders(), ["maxclients 10000 replica-priority 8"]);
}

#[tokio::test]
async fn what_has_no_known_default_is_not_left_behind_in_silence() {
    let fake = Fake::with(&[("from-the-future", "1")]);
    let error = fake.give(&settings("a", &[("from-the-future", "1")]), &settings("b", &[])).await.unwrap_err();
    assert!(error.to_string().contains("from-the-future cannot be taken back"), "{error}");
    assert_eq!(fake.orders(), [""; 0]);
}

#[tokio::test]
async fn a_refusal_is_told_in_the_servers_words() {
    let fake = Fake::with(&[("maxclients", "100"), ("maxmemory", "0")]);
    let wanted = settings("b", &[("maxclients", "99999999"), ("maxmemory", "1gb")]);
    let error = fake.give(&settings("a", &[]), &wanted).await.unwrap_err();
    assert!(error.to_string().starts_with("ERR CONFIG SET failed"), "{error}");
}

#[tokio::test]
async fn a_value_that_is_taken_and_ignored_is_noticed_and_the_others_are_put_back() {
    let fake = Fake::with(&[("hz", "10"), ("maxclients", "100")]);
    let error =
        fake.give(&settings("a", &[]), &settings("b", &[("hz", "20"), ("maxclients", "200")])).await.unwrap_err();
    assert!(error.to_string().contains("took hz 20 and still says 10"), "{error}");
    assert_eq!(fake.value("maxclients"), "100");
}

#[tokio::test]
async fn a_value_that_the_server_rounds_or_spells_differently_is_no_refusal() {
    let fake = Fake::with(&[("repl-backlog-size", "10485760"), ("maxmemory-policy", "noeviction")]);
    let wanted = settings("b", &[("repl-backlog-size", "1"), ("maxmemory-policy", "ALLKEYS-LRU")]);
    for before in [settings("a", &[]), wanted.clone()] {
        fake.give(&before, &wanted).await.unwrap();
        assert_eq!(
            (fake.value("repl-backlog-size"), fake.value("maxmemory-policy")),
            ("16384".into(), "allkeys-lru".into())
        );
    }
}

#[tokio::test]
async fn a_log_that_was_just_switched_on_has_to_become_whole() {
    let mut fake = Fake::with(&[("appendonly", "no")]);
    fake.log = UNDER_WAY;
    let (before, wanted) = (settings("a", &[("appendonly", "no")]), settings("b", &[("appendonly", "yes")]));
    assert_eq!(fake.give(&before, &wanted).await.unwrap(), Given::LogNotWhole);
    // Asked again: it is on, but nobody was told so far that it may be relied on.
    assert_eq!(fake.give(&settings("", &[("appendonly", "yes")]), &wanted).await.unwrap(), Given::LogNotWhole);
    // A log that has long been whole is rewritten from time to time.
    assert_eq!(fake.give(&settings("c", &[("appendonly", "yes")]), &wanted).await.unwrap(), Given::Wholly);
    fake.log = WHOLE;
    assert_eq!(fake.give(&settings("", &[("appendonly", "yes")]), &wanted).await.unwrap(), Given::Wholly);
}

#[test]
fn only_what_is_surely_the_same_is_not_set_again() {
    for (wanted, told) in [("1gb", "1073741824"), ("10", "10"), ("YES", "yes"), ("a b", "a b"), ("1K", "1000")] {
        assert!(is_same(wanted, told), "{wanted}");
    }
    // An event of another kind: upper and lower case are different things here.
    for (wanted, told) in [("KE", "Ke"), ("5%", "5"), ("-1", "1"), ("", "0")] {
        assert!(!is_same(wanted, told), "{wanted}");
    }
}
