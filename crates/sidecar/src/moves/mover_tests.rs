use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use super::*;
use crate::fake_server::{OK, bulk, fake_server};

const SOURCE: NodeId = NodeId::from_bytes([1; 20]);
const TARGET: NodeId = NodeId::from_bytes([2; 20]);
const THIRD: NodeId = NodeId::from_bytes([3; 20]);

/// Two servers and slot 7, as far as a move of it is concerned. What is not set out to go wrong goes right.
#[derive(Clone, Debug)]
struct World {
    /// How many batches of keys the source has.
    batches: usize,
    open: Option<NodeId>,
    owner_says_source: NodeId,
    owner_says_target: NodeId,
    source_flags: &'static str,
    target_id: NodeId,
    target_flags: &'static str,
    /// What the source says about the target; empty if it does not know it.
    target_known_as: &'static str,
    /// The first command that begins so is refused.
    refuse: &'static str,
    /// Somebody closes the slot when its last keys are gone.
    closed_by_somebody: Option<()>,
    /// Keys stay when they are moved.
    sticky: Option<()>,
    said: Vec<String>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            batches: 2,
            open: None,
            owner_says_source: SOURCE,
            owner_says_target: SOURCE,
            source_flags: "master",
            target_id: TARGET,
            target_flags: "master",
            target_known_as: "master",
            refuse: "nothing",
            closed_by_somebody: None,
            sticky: None,
            said: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Source,
    Target,
}

impl World {
    fn answer(&mut self, who: Who, words: &str) -> String {
        let name = if who == Who::Source { "source" } else { "target" };
        if words != "CLUSTER NODES" {
            let ids = [(SOURCE, "SOURCE"), (TARGET, "TARGET")];
            let words = ids.iter().fold(words.to_owned(), |words, (id, name)| words.replace(&id.to_string(), name));
            self.said.push(format!("{name}: {words}"));
        }
        if format!("{name}: {words}").starts_with(self.refuse) {
            return "-IOERR error or timeout\r\n".into();
        }
        match (who, words.split(' ').collect::<Vec<_>>().as_slice()) {
            (Who::Source, ["CLUSTER", "NODES"]) => bulk(&self.table_of_source()),
            (Who::Target, ["CLUSTER", "NODES"]) => bulk(&self.table_of_target()),
            (Who::Source, ["CLUSTER", "GETKEYSINSLOT", ..]) => {
                if self.batches == 0 && self.closed_by_somebody.is_some() {
                    self.open = None;
                }
                let keys = (self.batches > 0).then(|| format!("*1\r\n{}", bulk(&format!("key{}", self.batches))));
                keys.unwrap_or_else(|| "*0\r\n".into())
            }
            (Who::Source, ["MIGRATE", ..]) => {
                self.batches -= usize::from(self.sticky.is_none());
                OK.into()
            }
            (Who::Source, ["CLUSTER", "SETSLOT", "7", "MIGRATING", to]) => {
                self.open = Some(to.parse().unwrap());
                OK.into()
            }
            (Who::Source, ["CLUSTER", "SETSLOT", "7", "NODE", to]) => {
                (self.open, self.owner_says_source) = (None, to.parse().unwrap());
                OK.into()
            }
            (Who::Target, ["CLUSTER", "SETSLOT", "7", "NODE", to]) => {
                self.owner_says_target = to.parse().unwrap();
                OK.into()
            }
            _ => OK.into(),
        }
    }

    fn table_of_source(&self) -> String {
        let mark = self.open.map(|to| format!(" [7->-{to}]")).unwrap_or_default();
        let mine = if self.owner_says_source == SOURCE { "0-9" } else { "0-6 8-9" };
        let target = match self.target_known_as {
            "" => String::new(),
            flags => format!("{TARGET} 10.0.0.2:6379@16379 {flags} - 0 0 2 connected\n"),
        };
        let flags = self.source_flags;
        format!("{SOURCE} 10.0.0.1:6379@16379 myself,{flags} - 0 0 1 connected {mine}{mark}\n{target}")
    }

    fn table_of_target(&self) -> String {
        let mine = if self.owner_says_target == TARGET { "7" } else { "" };
        format!("{} 10.0.0.2:6379@16379 myself,{} - 0 0 2 connected {mine}\n", self.target_id, self.target_flags)
    }
}

/// A socket behind which one of the two answers.
async fn server(folder: &TempDir, who: Who, world: Arc<Mutex<World>>) -> Node {
    let path = folder.path().join(format!("{who:?}"));
    fake_server(&path, move |words| world.lock().unwrap().answer(who, words)).await
}

/// Moves slot 7, and gives back what the servers were told and how they are afterwards.
async fn move_slot(world: World) -> (Result<(), MoveError>, World) {
    let (folder, world) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(world)));
    let mut mover = Mover {
        source: server(&folder, Who::Source, world.clone()).await,
        target: server(&folder, Who::Target, world.clone()).await,
        address: "10.0.0.2:6379".parse().unwrap(),
        from: SOURCE,
        to: TARGET,
        login: Login { user: "replicator".into(), password: "pw".to_owned().into() },
    };
    let result = mover.move_slot(7).await;
    let world = world.lock().unwrap().clone();
    assert!(!world.said.iter().any(|words| words.contains("STABLE")), "{:?}", world.said);
    (result, world)
}

const MIGRATE: &str = "source: MIGRATE 10.0.0.2 6379  0 3000 REPLACE AUTH2 replicator pw KEYS";

#[tokio::test]
async fn a_slot_moves_in_the_order_in_which_no_client_finds_it_missing() {
    let (result, world) = move_slot(World::default()).await;
    result.unwrap();
    assert_eq!(
        world.said,
        [
            "target: CLUSTER SETSLOT 7 IMPORTING SOURCE",
            "source: CLUSTER SETSLOT 7 MIGRATING TARGET",
            "source: CLUSTER GETKEYSINSLOT 7 100",
            &format!("{MIGRATE} key2"),
            "source: CLUSTER GETKEYSINSLOT 7 100",
            &format!("{MIGRATE} key1"),
            "source: CLUSTER GETKEYSINSLOT 7 100",
            "target: CLUSTER SETSLOT 7 NODE TARGET",
            "source: CLUSTER SETSLOT 7 NODE TARGET",
        ]
    );
}

#[tokio::test]
async fn a_slot_that_was_left_half_moved_goes_on_forward() {
    let (result, world) = move_slot(World { open: Some(TARGET), batches: 1, ..World::default() }).await;
    result.unwrap();
    assert_eq!((world.batches, world.owner_says_target, world.owner_says_source), (0, TARGET, TARGET));
    // The target has it, and only the source is left to be told.
    let given = World { open: Some(TARGET), batches: 0, owner_says_target: TARGET, ..World::default() };
    let (result, world) = move_slot(given).await;
    result.unwrap();
    assert_eq!(world.said, ["source: CLUSTER SETSLOT 7 NODE TARGET"]);
    let moved = World { batches: 0, owner_says_target: TARGET, owner_says_source: TARGET, ..World::default() };
    let (result, world) = move_slot(moved).await;
    result.unwrap();
    assert_eq!(world.said, [""; 0]);
}

#[tokio::test]
async fn nothing_is_begun_that_cannot_be_ended() {
    let world = World::default;
    for (world, expected) in [
        (World { source_flags: "slave", ..world() }, "is a replica now: order the move from"),
        (World { target_known_as: "", ..world() }, "does not know the target"),
        (World { target_known_as: "handshake", ..world() }, "does not know the target"),
        (World { target_known_as: "master,fail", ..world() }, "does not answer its peers"),
        (World { target_known_as: "slave", ..world() }, "the target is a replica now"),
        (World { target_flags: "slave", ..world() }, "the target is a replica now"),
        (World { target_id: THIRD, ..world() }, "at the target's address is 0303"),
        (World { owner_says_source: THIRD, owner_says_target: THIRD, ..world() }, "belongs to another node"),
        (World { owner_says_target: TARGET, ..world() }, "no move was begun here"),
        // Valkey itself would let the slot be led elsewhere, and the keys that are there already be forgotten.
        (World { open: Some(THIRD), ..world() }, "the slot is open towards 0303"),
    ] {
        let (result, world) = move_slot(world).await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(world.said, [""; 0], "{expected}");
    }
}

#[tokio::test]
async fn whatever_goes_wrong_the_slot_stays_open_and_with_its_owner() {
    for refuse in ["target: CLUSTER SETSLOT 7 IMPORTING", "source: CLUSTER SETSLOT 7 MIGRATING"] {
        let (result, world) = move_slot(World { refuse, ..World::default() }).await;
        result.unwrap_err();
        assert_eq!((world.batches, world.owner_says_target), (2, SOURCE), "{refuse}");
    }
    for refuse in ["source: CLUSTER GETKEYSINSLOT", "source: MIGRATE", "target: CLUSTER SETSLOT 7 NODE"] {
        let (result, world) = move_slot(World { refuse, ..World::default() }).await;
        result.unwrap_err();
        assert_eq!((world.open, world.owner_says_source), (Some(TARGET), SOURCE), "{refuse}");
        assert!(!world.said.contains(&"source: CLUSTER SETSLOT 7 NODE TARGET".to_owned()), "{refuse}");
    }
}

#[tokio::test]
async fn a_slot_is_not_given_away_while_it_has_keys_or_may_get_new_ones() {
    let (result, world) = move_slot(World { sticky: Some(()), ..World::default() }).await;
    assert!(matches!(result, Err(MoveError::Stuck(key)) if key == "key2"));
    assert_eq!((world.open, world.owner_says_target), (Some(TARGET), SOURCE));
    let (result, world) = move_slot(World { closed_by_somebody: Some(()), ..World::default() }).await;
    assert!(matches!(result, Err(MoveError::Closed)));
    assert_eq!(world.owner_says_target, SOURCE);
}
