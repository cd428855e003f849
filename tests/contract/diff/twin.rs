//! The two engines side by side: the same calls, the same time, the same chance; equal answers, equal memories.

use std::fmt::{Debug, Write};

use outlast_core::{Clock, Lease};
use outlast_tests::chance::Chance;
use outlast_tests::model::Rules;
use outlast_tests::ports::SeededEntropy;
use tokio::runtime::Builder;

use super::draw::Draw;
use super::plan::{Call, Place};
use super::side::{Answer, Side, lease};
use crate::backend::{Backend, Ground, Model};

/// Waiting jobs a namespace may hold: few, so that the limit is met.
const WAITING_MAX: u64 = 14;
/// Calls between two comparisons of everything.
const DUMP_EVERY: usize = 25;

struct Twin {
    model: Side,
    engine: Side,
    draw: Draw,
    calls: Vec<Call>,
    seed: u64,
}

/// Runs the sequence of this seed on the model (with these rules) and on the engine.
pub fn compare<B: Backend + 'static>(rules: Rules, seed: u64) -> Result<(), String> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut twin = Twin::new::<B>(rules, seed).await;
        let outcome = twin.run().await;
        twin.model.close().await;
        twin.engine.close().await;
        outcome
    })
}

impl Twin {
    async fn new<B: Backend + 'static>(rules: Rules, seed: u64) -> Twin {
        let ground = Ground { waiting_max: WAITING_MAX, ..Ground::new(seed) };
        let other = Ground { entropy: SeededEntropy::new(seed), ..ground.clone() };
        let backend = B::on(&other);
        let model = Model::with_rules(rules, &ground).shared_if(backend.is_shared());
        let model = Side::new(ground.clone(), Box::new(model)).await;
        let engine = Side::new(other.clone(), Box::new(backend)).await;
        let chance = Chance::seeded(seed);
        let draw = Draw {
            chance,
            now: ground.clock.now(),
            leases: Vec::new(),
            handed_out: Vec::new(),
            operations: 0,
            keys: 0,
        };
        Twin { model, engine, draw, calls: Vec::new(), seed }
    }

    async fn run(&mut self) -> Result<(), String> {
        for (namespace, queue) in [(0, "a"), (0, "b"), (1, "a")] {
            let place = Place { namespace, queue };
            let draft = Box::new(self.draw.queue(place));
            self.step(Call::SaveQueue(place, draft, outlast_store::queues::ExpectedVersion::Absent)).await?;
        }
        let length = self.draw.chance.between(45, 112);
        for _ in 0..length {
            let call = self.draw.call();
            let reopens = matches!(call, Call::Reopen);
            self.step(call).await?;
            if reopens || self.calls.len().is_multiple_of(DUMP_EVERY) {
                self.compare_memories().await?;
            }
        }
        self.step(Call::Reopen).await?;
        self.compare_memories().await
    }

    async fn step(&mut self, call: Call) -> Result<(), String> {
        self.calls.push(call.clone());
        if let Call::Pass(time) = call {
            self.model.ground.clock.advance(time);
            self.draw.now = self.model.ground.clock.now();
        }
        // Both draw the same leases and jitter in this call, whatever they drew before.
        let chance = self.seed.wrapping_mul(1_000_003).wrapping_add(self.calls.len() as u64);
        self.model.ground.entropy.reseed(chance);
        self.engine.ground.entropy.reseed(chance);
        let expected = self.model.perform(&call).await;
        let found = self.engine.perform(&call).await;
        self.learn(&expected);
        self.check("the answer", &expected, &found)
    }

    async fn compare_memories(&mut self) -> Result<(), String> {
        let expected = self.model.dump().await;
        let found = self.engine.dump().await;
        self.check("the queues", &expected.queues, &found.queues)?;
        self.check("the number of jobs", &expected.jobs.len(), &found.jobs.len())?;
        for (expected, found) in expected.jobs.iter().zip(&found.jobs) {
            self.check("a job", expected, found)?;
        }
        self.check("the rest", &expected, &found)?;
        let sound = self.engine.is_sound().await;
        self.check("the index in memory equals the rows", &true, &sound)
    }

    /// State that later calls need.
    fn learn(&mut self, answer: &Answer) {
        self.draw.leases.resize(self.model.jobs_made(), Vec::new());
        match answer {
            Answer::Claimed(Some(handed_out)) => {
                for job in &handed_out.jobs {
                    let order = job.id.variable() as usize;
                    let leases: &mut Vec<Lease> = &mut self.draw.leases[order];
                    leases.extend(lease(job));
                    self.draw.handed_out.push(order);
                }
            }
            Answer::Key(Some(key)) => self.draw.keys = self.draw.keys.max(key.id.0 as usize + 1),
            Answer::Operations(operations) => {
                let newest = operations.iter().map(|operation| operation.id.0 as usize + 1).max();
                self.draw.operations = self.draw.operations.max(newest.unwrap_or(0));
            }
            _ => {}
        }
    }

    fn check<T: PartialEq + Debug>(&self, what: &str, expected: &T, found: &T) -> Result<(), String> {
        if expected == found {
            return Ok(());
        }
        let mut report = String::new();
        for (number, call) in self.calls.iter().enumerate() {
            writeln!(report, "{number:3} {call:?}").expect("a string takes text");
        }
        write!(
            report,
            "after these calls {what} differs\nmodel:  {expected:?}\nengine: {found:?}\n\
             repeat with: OUTLAST_SEED={} cargo test -p outlast-tests --test contract as_the_model",
            self.seed
        )
        .expect("a string takes text");
        Err(report)
    }
}
