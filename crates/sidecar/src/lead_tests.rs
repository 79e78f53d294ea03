use std::sync::{Arc, Mutex};

use super::*;
use crate::fake_server::{OK, bulk, fake_server};

macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("../../engine/samples/", $name))
    };
}

/// What a server answers when it is observed.
#[derive(Clone, Copy)]
struct Samples {
    info: &'static str,
    cluster: &'static str,
    nodes: &'static str,
}

const REPLICA_8_0: Samples = Samples {
    info: sample!("8.0.1/info-replica.txt"),
    cluster: sample!("8.0.1/cluster-info.txt"),
    nodes: sample!("8.0.1/nodes-replica.txt"),
};
const REPLICA_8_1: Samples = Samples {
    info: sample!("8.1.1/info-replica.txt"),
    cluster: sample!("8.1.1/cluster-info.txt"),
    nodes: sample!("8.1.1/nodes-replica.txt"),
};
const PRIMARY_8_1: Samples = Samples {
    info: sample!("8.1.1/info-primary.txt"),
    cluster: sample!("8.1.1/cluster-info.txt"),
    nodes: sample!("8.1.1/nodes-primary.txt"),
};

/// Has such a server lead, which takes a while, and says what it was ordered to do. `edit` is what is different about it.
async fn led(samples: Samples, edit: (&str, &str)) -> (Result<(), LeadError>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let info = samples.info.replace(edit.0, edit.1);
    let orders = Arc::new(Mutex::new(Vec::new()));
    let log = orders.clone();
    let mut looks = 0;
    let answer = move |words: &str| match words {
        "CLUSTER INFO" => bulk(samples.cluster),
        "CLUSTER NODES" => bulk(samples.nodes),
        "CONFIG GET cluster-node-timeout" => format!("*2\r\n{}{}", bulk("cluster-node-timeout"), bulk("5000")),
        "ROLE" => {
            looks += 1;
            format!("*1\r\n{}", bulk(if looks > 3 { "master" } else { "slave" }))
        }
        words if words.starts_with("INFO") => bulk(&info),
        order => {
            log.lock().unwrap().push(order.to_owned());
            OK.into()
        }
    };
    let mut server = fake_server(&folder.path().join("socket"), answer).await;
    let result = lead(&mut server, "10.0.0.1:6379".parse().unwrap()).await;
    let orders = orders.lock().unwrap().clone();
    (result, orders)
}

const AS_IT_IS: (&str, &str) = ("", "");

#[tokio::test]
async fn a_replica_in_step_is_told_to_lead_and_not_to_try_for_long() {
    let (result, orders) = led(REPLICA_8_1, AS_IT_IS).await;
    result.unwrap();
    assert_eq!(orders, ["CONFIG SET cluster-manual-failover-timeout 2000", "CLUSTER FAILOVER"]);
    let (result, orders) = led(REPLICA_8_0, AS_IT_IS).await;
    result.unwrap();
    assert_eq!(orders, ["CLUSTER FAILOVER"]);
}

#[tokio::test]
async fn one_that_leads_already_is_left_alone() {
    let (result, orders) = led(PRIMARY_8_1, AS_IT_IS).await;
    result.unwrap();
    assert_eq!(orders, [""; 0]);
}

#[tokio::test]
async fn one_that_is_not_in_step_is_not_told_to_lead() {
    for (edit, expected) in [
        (("master_link_status:up", "master_link_status:down"), "no link to its primary"),
        (("master_sync_in_progress:0", "master_sync_in_progress:1"), "no link to its primary"),
        (("\nloading:0", "\nloading:1"), "still loading"),
    ] {
        let (result, orders) = led(REPLICA_8_1, edit).await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(orders, [""; 0], "{expected}");
    }
}
