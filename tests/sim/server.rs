//! The process: an engine on a faulty store, which can be killed at any moment and started again on the same disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_core::Clock;
use outlast_engine::Engine;
use outlast_engine::egress::Egress;
use outlast_engine::engine::Loops;
use outlast_engine::engine::Ports;
use outlast_engine::push::PushSettings;
use outlast_engine::seal::Seal;
use outlast_store::peer_bus::NoPeers;
use outlast_tests::model::ModelDisk;
use outlast_tests::no_egress::NoEgress;
use outlast_tests::ports::SeededEntropy;

use crate::faults::{Faults, FaultyStore};
use crate::judge::Witness;
use crate::outside::Outside;
use crate::planted::Plant;

pub struct Server {
    pub disk: ModelDisk,
    pub faults: Arc<Faults>,
    pub witness: Arc<Witness>,
    clock: Arc<dyn Clock>,
    plant: Plant,
    /// Where deliveries go; nowhere without it.
    outside: Option<Arc<Outside>>,
    life: Mutex<Option<Life>>,
    /// The loops of all lives, to be waited for at the end.
    loops: Mutex<Vec<Loops>>,
}

struct Life {
    engine: Engine,
    alive: Arc<AtomicBool>,
}

impl Server {
    pub fn new(disk: ModelDisk, faults: Arc<Faults>, clock: Arc<dyn Clock>, plant: Plant) -> Server {
        let witness = Arc::new(Witness::default());
        let (life, loops) = (Mutex::new(None), Mutex::new(Vec::new()));
        Server { disk, faults, witness, clock, plant, outside: None, life, loops }
    }

    pub fn with_outside(self, outside: Arc<Outside>) -> Server {
        Server { outside: Some(outside), ..self }
    }

    /// `None` while the process is dead.
    pub fn engine(&self) -> Option<Engine> {
        self.life().as_ref().map(|life| life.engine.clone())
    }

    pub fn start(&self) {
        let store = FaultyStore::new(&self.disk, Arc::clone(&self.faults), Arc::clone(&self.witness), self.plant);
        let alive = store.alive();
        let egress: Arc<dyn Egress> = match &self.outside {
            Some(outside) => outside.egress(Arc::clone(&alive)),
            None => Arc::new(NoEgress),
        };
        let (peer_bus, entropy) = (Arc::new(NoPeers::embedded()), Box::new(SeededEntropy::new(3)));
        let engine = Engine::new(
            Ports {
                store: Arc::new(store),
                peer_bus,
                clock: Arc::clone(&self.clock),
                entropy,
                egress,
                blobs: outlast_tests::objects::no_blobs(),
                seal: Seal::new(&[1; 32], &[]),
            },
            PushSettings::default(),
        );
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).push(engine.start());
        *self.life() = Some(Life { engine, alive });
    }

    /// kill -9: no pending write reaches the disk any more, and no client gets an answer.
    pub fn kill(&self) {
        if let Some(life) = self.life().take() {
            life.alive.store(false, Ordering::SeqCst);
            // The tasks of a dead process do not exist; here they have to be stopped.
            life.engine.stop();
        }
    }

    /// Waits for the loops of all lives.
    pub async fn finish(&self) {
        self.kill();
        let all = std::mem::take(&mut *self.loops.lock().unwrap_or_else(PoisonError::into_inner));
        for loops in all {
            loops.finish().await;
        }
    }

    fn life(&self) -> MutexGuard<'_, Option<Life>> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
