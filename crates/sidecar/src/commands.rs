//! What the operator asks of us.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::time::timeout;
use tracing::{info, warn};
use valkey_engine::Error;
use valkey_model::{Action, Member, SlotKeys, Way};
use valkey_planner::guard::Released;
use valkey_rpc::{
    CONTRACT_VERSION, Certificate, Certificates, Credentials, Observed, Outcome, Reloadable, Sidecar, State, Unanswered,
};

use crate::context::{Context, ReachError};
use crate::lead::lead;
use crate::moves::{order_atomic, order_classic, together};
use crate::settings::configure;
use crate::view::Phase;

/// Below the operator's own, so that it hears from us what is wrong.
const PATIENCE: Duration = Duration::from_millis(800);

pub struct Commands {
    pub context: Arc<Context>,
    pub credentials: Reloadable<Credentials>,
}

impl Sidecar for Commands {
    fn member(&self) -> Member {
        self.context.pod.member
    }

    async fn observe(&self) -> Result<Observed, Unanswered> {
        Ok(Observed {
            state: self.state().await?,
            sidecar_version: env!("CARGO_PKG_VERSION").into(),
            contract_version: CONTRACT_VERSION,
            certificates: self.certificates(),
        })
    }

    async fn execute(&self, actions: Vec<Action>) -> Vec<Outcome> {
        let (mut outcomes, mut failed) = (Vec::with_capacity(actions.len()), false);
        for action in actions {
            if failed {
                outcomes.push(Outcome::Skipped);
                continue;
            }
            outcomes.push(match self.carry_out(&action).await {
                Ok(()) => {
                    info!(%action, "done");
                    Outcome::Done
                }
                Err(reason) => {
                    failed = true;
                    warn!(%action, %reason, "refused");
                    Outcome::Refused(reason.to_string())
                }
            });
        }
        outcomes
    }

    async fn weigh(&self) -> Result<SlotKeys, Unanswered> {
        timeout(PATIENCE, self.slot_keys())
            .await
            .unwrap_or_else(|_| Err(Error::Deadline(PATIENCE).into()))
            .map_err(|error| Unanswered(error.to_string()))
    }
}

impl Commands {
    /// Asked afresh: decisions are made from this, so a second ago is too old.
    async fn state(&self) -> Result<State, Unanswered> {
        if let Phase::Held { held, .. } = self.context.board.view().phase {
            return Ok(State::Held(held));
        }
        let report = timeout(PATIENCE, self.report()).await;
        match report.unwrap_or_else(|_| Err(Error::Deadline(PATIENCE).into())) {
            Ok(state) => Ok(state),
            // One that was up may well be running: to call it starting would be a guess.
            Err(error) if matches!(self.context.board.view().phase, Phase::Up { .. }) => {
                Err(Unanswered(error.to_string()))
            }
            Err(error) => Ok(State::Starting(error.to_string())),
        }
    }

    async fn report(&self) -> Result<State, ReachError> {
        let address = self.context.address()?;
        // Before the server is asked: what is done meanwhile may be told twice, but never as neither moving nor moved.
        let ours = self.context.moves.exports(Instant::now());
        let mut report = self.context.server().await?.observe(address).await?;
        report.exports = together(report.exports, ours);
        report.settings = Some(self.context.settings.taken());
        Ok(State::Known(Box::new(report)))
    }

    async fn slot_keys(&self) -> Result<SlotKeys, ReachError> {
        let mut server = self.context.server().await?;
        let slots = server.table().await?.myself.slots;
        Ok(server.slot_keys(&slots).await?)
    }

    fn certificates(&self) -> Certificates {
        let facts = |facts: valkey_pki::CertificateFacts| Certificate {
            thumbprint: facts.thumbprint.to_string(),
            expires_at: facts.not_after.as_second(),
        };
        let credentials = self.credentials.get();
        let mtls = credentials.certificate().and_then(|leaf| valkey_pki::facts_of(leaf).ok());
        let tls = self.context.in_use().and_then(|prepared| prepared.tls);
        let tls = tls.and_then(|keypair| valkey_pki::facts(keypair.chain.as_bytes()).ok());
        Certificates { mtls: mtls.map(facts), tls: tls.map(facts) }
    }

    async fn carry_out(&self, action: &Action) -> anyhow::Result<()> {
        let context = &self.context;
        let server = || context.server();
        match action {
            Action::SetEpoch { on: _, epoch } => server().await?.set_epoch(*epoch).await?,
            Action::AddSlots { on: _, slots } => server().await?.add_slots(slots).await?,
            Action::Meet { on: _, address } => server().await?.meet(*address).await?,
            Action::Replicate { on: _, primary } => server().await?.replicate(*primary).await?,
            Action::TakeOver { on: _ } => server().await?.take_over().await?,
            Action::HandOver { on: _ } => lead(&mut server().await?, context.address()?).await?,
            Action::Migrate { on: _, slots, to, way: Way::Atomic } => order_atomic(context, slots, *to).await?,
            Action::Migrate { on: _, slots, to, way: Way::Classic } => order_classic(context, slots, *to).await?,
            Action::Forget { on: _, id } => server().await?.forget(*id).await?,
            Action::SetNodeTimeout { on: _, timeout } => server().await?.set_node_timeout(*timeout).await?,
            Action::Configure { on: _, settings } => configure(context, settings).await?,
            Action::Release { on: _ } => self.release()?,
        }
        Ok(())
    }

    fn release(&self) -> anyhow::Result<()> {
        if !matches!(self.context.board.view().phase, Phase::Held { .. }) {
            bail!("no server is held here");
        }
        self.context.released.send_replace(Released::ByOperator);
        // Nobody is held any more, also while its container waits to be started again.
        self.context.board.set(Phase::Unknown);
        Ok(())
    }
}
