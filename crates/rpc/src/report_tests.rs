use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::testing::{Ca, FOREIGN_POD, OPERATOR, POD, admitting};
use crate::tls::identity;
use crate::{Credentials, Refusals, Reloadable, ServerTls};

struct Desk(mpsc::UnboundedSender<Report>);

impl ReportDesk for Desk {
    async fn take(&self, sender: Sender, report: Report) -> Result<(), Turned> {
        let shown = identity(&sender.certificate).unwrap_or_default();
        if !shown.ends_with(&format!("/pod/{}", report.pod)) {
            return Err(Turned { away: format!("{shown} is not {}", report.pod) });
        }
        self.0.send(report).map_err(|_| Turned { away: "closed".into() })
    }
}

fn report(pod: &str, event: Event) -> Report {
    let summary = Summary {
        id: "07c37dfeb235213a872192d90877d0cd55635b91".into(),
        role: NodeRole::Replica,
        state_ok: true,
        loading: false,
        link: Link::Syncing,
        config_epoch: 3,
    };
    Report { namespace: "shop".into(), cluster: "orders".into(), pod: pod.into(), event, summary: Some(summary) }
}

async fn running(credentials: Reloadable<Credentials>) -> (ReportUrl, mpsc::UnboundedReceiver<Report>, Refusals) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (sender, taken) = mpsc::unbounded_channel();
    let refusals = Refusals::default();
    let tls = ServerTls::new(credentials, |_| Ok(())).counting(refusals.clone());
    tokio::spawn(async move { serve_reports(&listener, &tls, Arc::new(Desk(sender))).await });
    (url, taken, refusals)
}

#[tokio::test]
async fn a_pod_reports_for_itself_and_for_nobody_else() {
    let ca = Ca::new();
    let (url, mut taken, refusals) = running(ca.issue(OPERATOR)).await;
    let reporter = Reporter::new(url, ca.issue(POD), OPERATOR.into());
    for event in [Event::ServerUp, Event::ServerExited { code: 137 }, Event::Held { reason: "no data".into() }] {
        let said = report("orders-0-0", event);
        reporter.post(&said).await.unwrap();
        assert_eq!(taken.recv().await, Some(said));
    }
    assert_eq!(refusals.count(), 0);
    let error = reporter.post(&report("orders-0-1", Event::Heartbeat)).await.unwrap_err();
    assert!(error.to_string().contains("403") && error.to_string().contains("is not orders-0-1"), "{error}");
    assert_eq!(refusals.count(), 1);
}

#[tokio::test]
async fn nothing_is_reported_to_somebody_who_is_not_the_operator() {
    let ca = Ca::new();
    let (url, mut taken, _) = running(ca.issue(FOREIGN_POD)).await;
    let reporter = Reporter::new(url, ca.issue(POD), OPERATOR.into());
    let error = reporter.post(&report("orders-0-0", Event::Heartbeat)).await.unwrap_err();
    assert!(error.to_string().contains("others-0-0 answers where"), "{error}");
    assert!(taken.try_recv().is_err());
}

#[tokio::test]
async fn a_sender_that_is_not_admitted_gets_no_answer() {
    let ca = Ca::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let tls = ServerTls::new(ca.issue(OPERATOR), admitting(POD));
    let refusals = tls.refusals.clone();
    let (sender, _taken) = mpsc::unbounded_channel();
    tokio::spawn(async move { serve_reports(&listener, &tls, Arc::new(Desk(sender))).await });
    let reporter = Reporter::new(url, ca.issue(FOREIGN_POD), OPERATOR.into());
    reporter.post(&report("others-0-0", Event::Heartbeat)).await.unwrap_err();
    assert_eq!(refusals.count(), 1);
}

#[test]
fn an_event_of_a_newer_sidecar_is_still_a_report() {
    let text = r#"{"namespace":"shop","cluster":"orders","pod":"orders-0-0","event":{"type":"slotsMoved","to":7}}"#;
    let report: Report = serde_json::from_str(text).unwrap();
    assert_eq!((report.event, report.summary), (Event::Unknown, None));
}

#[test]
fn reports_go_to_https_only() {
    assert_eq!(
        "https://operator.system.svc:9443".parse::<ReportUrl>().unwrap().to_string(),
        "https://operator.system.svc:9443"
    );
    assert!("https://[fd00::1]:9443".parse::<ReportUrl>().is_ok());
    for text in ["http://operator:80", "operator:9443", "", "https://"] {
        assert!(text.parse::<ReportUrl>().is_err(), "{text}");
    }
}
